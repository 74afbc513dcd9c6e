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


Lanes are padded to whole vectors where the padding lanes are unobservable.

Example input, the results being stored in a row of 10 numbers and 2 of padding:

    lanes i < 10:
        value[920 + i] = mul(value[880 + i], value[870])

becomes:

    lanes i < 12:
        value[920 + i] = mul(value[880 + i], value[870])

A padding lane may read anything, even past an array's end, but writes only padding. Lanes with a registered op that
brings C of its own are not padded: it may call a function, and each padding lane would be a call more.
"""

from collections.abc import Callable
from dataclasses import replace

from codegen.ir.loops import (
    Apply,
    Body,
    For,
    Kernel,
    Kind,
    Loops,
    Stmt,
    all_expressions,
    places,
    statements,
)
from codegen.reroll.layout import padded
from codegen.schedule.nest import around, distributed, each_nest, result, root_loops, with_lanes
from codegen.schedule.target import Target
from micrograd import ops


def split_into_lanes(loops: Loops, where: Callable[[Body], bool] = lambda nest: True) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        found = root_loops(nest)
        if not found or found[-1].kind == Kind.IN_ORDER or not where(nest):
            return nest
        *outer, lane = found
        return around(outer, distributed(lane.body, [replace(lane, kind=Kind.LANES)]))

    return each_nest(loops, change)


def pad_lanes(loops: Loops, target: Target) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        lanes = next((s for s in statements(nest) if type(s) is For and s.kind == Kind.LANES), None)
        if lanes is None:
            return nest
        count = _padded(loops, nest, lanes, target)
        return nest if count == lanes.count else with_lanes(nest, lanes.counter, count)

    return each_nest(loops, change)


def _padded(loops: Loops, nest: Body, lanes: For, target: Target) -> int:
    """The number of lanes, padding included."""
    written, counter = result(nest), lanes.counter
    region = loops.region(written.array, written.index.base)
    others = [stride for stride, name in written.index.steps if name != counter]
    starts_rows = all(start % region.row_length == 0 for start in (written.index.base - region.start, *others))
    if lanes.count != region.row or not starts_rows or written.index.tables:
        return lanes.count
    for place in places(nest):
        index = place.index
        if not index.is_contiguous(counter):
            return lanes.count
        if place.array in loops.tables and index.depends_on(counter):
            return lanes.count
    if any(_has_own_c(stmt) for stmt in statements(nest)):
        return lanes.count
    return min(region.row_length, padded(region.row, target.cache_line))


def _has_own_c(stmt: Stmt) -> bool:
    return any(type(part) is Apply and ops.row(part.op).c_definition is not None for part in all_expressions(stmt))
