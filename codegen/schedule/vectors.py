"""Short loops over lanes in a loop over rows -> vectors: the C compiler must not unroll them before it vectorises.

Example input:

    lanes row < 5:
        lanes j < 12:
            sum[12row + j] += mul(value[856 + row], value[976 + j])

becomes:

    lanes row < 5:
        vectors j < 12:
            sum[12row + j] += mul(value[856 + row], value[976 + j])

gcc unrolls an inner loop of at most 16 iterations first, then joins what it finds into vectors, but finds less in two
loops. Lanes that are not side by side in memory do become faster that way.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import Body, For, Kernel, Kind, Loops, Stmt, reads
from codegen.schedule.in_order import MAX_UNROLLED
from codegen.schedule.nest import each_nest


def mark_vectors(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        return tuple([_marked(stmt, in_lanes=False) for stmt in nest])

    return each_nest(loops, change)


def _marked(stmt: Stmt, in_lanes: bool) -> Stmt:
    if not isinstance(stmt, For):
        return stmt
    if stmt.kind != Kind.LANES or any(isinstance(inner, For) for inner in stmt.body):
        return replace(stmt, body=tuple([_marked(inner, stmt.kind == Kind.LANES) for inner in stmt.body]))
    is_marked = in_lanes and stmt.count <= MAX_UNROLLED and _is_contiguous(stmt)
    return replace(stmt, kind=Kind.VECTORS) if is_marked else stmt


def _is_contiguous(lanes: For) -> bool:
    indices = [place.index for stmt in lanes.body for place in reads(stmt)]
    return all(index.stride(lanes.counter) in (0, 1) and not index.looks_up(lanes.counter) for index in indices)
