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
from dataclasses import replace

from codegen.ir.loops import Body, Kernel, Kind, Loops
from codegen.schedule.nest import around, distributed, each_nest, root_loops


def split_into_lanes(loops: Loops, where: Callable[[Body], bool] = lambda nest: True) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        found = root_loops(nest)
        if not found or found[-1].kind == Kind.IN_ORDER or not where(nest):
            return nest
        *outer, lane = found
        return around(outer, distributed(lane.body, [replace(lane, kind=Kind.LANES)]))

    return each_nest(loops, change)
