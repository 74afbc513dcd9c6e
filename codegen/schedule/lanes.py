"""The innermost loop over roots -> lanes: independent results side by side in vector registers.

Example input:

    for i < 50:
        let sum = data[39200 + i]
        for k < 784:
            sum += mul(data[i + 56k], value[k])
        value[800 + i] = relu(sum)

becomes:

    local sum[50]
    lanes i < 50:
        sum[i] = data[39200 + i]
    for k < 784:
        lanes i < 50:
            sum[i] += mul(data[i + 56k], value[k])
    lanes i < 50:
        value[800 + i] = relu(sum[i])

Every lane adds its own terms in the order of the graph, so lanes side by side in a register change no bit.
"""

from __future__ import annotations

from collections.abc import Callable

from codegen.ir.loops import (
    Accumulate,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Place,
    Store,
    map_body,
)
from codegen.schedule.nest import around, each_nest, root_loops


def split_into_lanes(loops: Loops, where: Callable[[Body], bool] = lambda nest: True) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        found = root_loops(nest)
        if not found or not where(nest):
            return nest
        *outer, lane = found
        return around(outer, _distributed(lane.body, lane, {}))

    return each_nest(loops, change)


def _distributed(body: Body, lane: For, names: dict[str, Place]) -> Body:
    """Loop distribution: the loop over lanes goes around each statement, and each Let gets one element per lane."""

    def change(expr: Expr) -> Expr:
        return names.get(expr.name, expr) if type(expr) is Name else expr

    result: list[For | Local] = []
    for stmt in body:
        match stmt:
            case For():
                inner = _distributed(stmt.body, lane, names)
                result.append(For(stmt.counter, stmt.count, inner, stmt.kind, stmt.input))
            case Let():
                assert not isinstance(stmt.value, Index)
                names[stmt.name] = Place(stmt.name, Index(0, ((1, lane.counter),)))
                start = Store(names[stmt.name], stmt.value)
                result += [Local(stmt.name, lane.count), For(lane.counter, lane.count, (start,), Kind.LANES)]
            case Store() | Accumulate():
                result.append(For(lane.counter, lane.count, map_body((stmt,), change), Kind.LANES))
    return tuple(result)
