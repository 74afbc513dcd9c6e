"""More lanes than registers can hold -> blocks of lanes.

Example input, with 16 lanes at most:

    local sum[40]
    lanes i < 40:
        sum[i] = data[i]
    for k < 9:
        lanes i < 40:
            sum[i] += mul(data[40 + i + 40k], value[k])
    lanes i < 40:
        value[16 + i] = sum[i]

becomes:

    for block < 5:
        local sum[8]
        lanes i < 8:
            sum[i] = data[i + 8block]
        for k < 9:
            lanes i < 8:
                sum[i] += mul(data[40 + i + 40k + 8block], value[k])
        lanes i < 8:
            value[16 + i + 8block] = sum[i]

If no width divides the lanes, a shorter block follows the loop. Lanes that accumulate nothing need no blocks.
"""

from __future__ import annotations

from codegen.ir.loops import Body, Expr, For, Index, Kind, Local, Loops, Place, map_body, moved
from codegen.schedule.nest import each_nest, with_lanes
from codegen.schedule.target import Target


def tile_lanes(loops: Loops, target: Target) -> Loops:
    return each_nest(loops, lambda kernel, nest: _tiled(nest, target))


def _tiled(body: Body, target: Target) -> Body:
    local = next((stmt for stmt in body if type(stmt) is Local), None)
    if local is None:
        if len(body) == 1 and isinstance(loop := body[0], For) and loop.kind != Kind.LANES:
            return (For(loop.counter, loop.count, _tiled(loop.body, target), loop.kind, loop.input),)
        return body
    width = target.lane_block(local.length)
    if width == local.length:
        return body
    lane = next(stmt.counter for stmt in body if type(stmt) is For and stmt.kind == Kind.LANES)
    blocks, rest = divmod(local.length, width)
    inner = block_of_lanes(body, lane, Index(0, ((1, lane), (width, "block"))), width)
    tiled: Body = (
        (For("block", blocks, inner),) if blocks > 1 else block_of_lanes(body, lane, Index(0, ((1, lane),)), width)
    )
    if rest:
        tiled += block_of_lanes(body, lane, Index(blocks * width, ((1, lane),)), rest, "_rest")
    return tiled


def block_of_lanes(body: Body, lane: str, start: Index, width: int, suffix: str = "") -> Body:
    """`width` lanes of a body from `start` on, with Locals of that length whose names end in `suffix`."""
    locals_ = {stmt.name for stmt in body if type(stmt) is Local}

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place:
            return expr
        if expr.array in locals_:
            return Place(expr.array + suffix, expr.index)
        return Place(expr.array, moved(expr.index, lane, start))

    named = tuple([Local(stmt.name + suffix, stmt.length) if type(stmt) is Local else stmt for stmt in body])
    return with_lanes(map_body(named, change), lane, width)
