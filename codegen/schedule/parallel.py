"""Loops over gradients -> parallel loops, divided among threads.

Example input:

    for i < 50:
        local sum[12]
        ...

becomes:

    parallel i < 50:
        local sum[12]
        ...

A nest that does not begin with a loop over roots goes to one thread as a whole: it becomes the body of a parallel loop
of one iteration. One thread computes each number, adding in the same order as a single thread would.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import Body, For, Kernel, Kind, Loops, Pass
from codegen.schedule.nest import each_nest, root_loops


def share_gradients(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if kernel.passes != Pass.DENSE_GRADIENTS:
            return nest
        found = root_loops(nest)
        if found and found[0].kind == Kind.SEQUENTIAL:
            return (replace(found[0], kind=Kind.PARALLEL),)
        return (For("all", 1, nest, Kind.PARALLEL),)

    return each_nest(loops, change, straight=True)
