"""Loops over gradients -> parallel loops, divided among threads.

Example input:

    for i < 50:
        local sum[12]
        ...

becomes:

    parallel i < 50:
        local sum[12]
        ...

Of several loops over roots, the longest is divided. A nest that does not begin with a loop over roots goes to one
thread as a whole: it becomes the body of a parallel loop of one iteration. One thread computes each number, adding in
the same order as a single thread would.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import PARAMETER_GRADIENTS, Body, For, Kernel, Kind, Loops
from codegen.schedule.nest import around, each_nest, root_loops


def share_gradients(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if kernel.passes not in PARAMETER_GRADIENTS:
            return nest
        found = [loop for loop in root_loops(nest) if loop.kind == Kind.SEQUENTIAL]
        if not found:
            return (For("all", 1, nest, Kind.PARALLEL),)
        longest = max(found, key=lambda loop: loop.count)
        divided = [replace(loop, kind=Kind.PARALLEL) if loop is longest else loop for loop in found]
        return around(divided, found[-1].body)

    return each_nest(loops, change, straight=True)
