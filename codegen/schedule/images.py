"""Gradients of one image -> gradients of some images of a batch, in their order.

Example input:

    for i < 50:
        for j < 10:
            grad[12i + j] += mul(value[800 + i], value[920 + j])

becomes:

    for i < 50:
        for j < 10:
            images image:
                grad[12i + j] += mul(value[800 + i], value[920 + j])

Each gradient adds its images in their order, so it has the bits of one image after the other.
"""

from __future__ import annotations

from codegen.ir.loops import Body, For, Kernel, Kind, Loops, Pass
from codegen.schedule.nest import around, each_nest, root_loops

MAX_IMAGES = 64  # of a block: at most so many times does the loop run


def add_images(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if kernel.passes != Pass.DENSE_GRADIENTS:
            return nest
        found = root_loops(nest)
        body = found[-1].body if found else nest
        return around(found, (For("image", MAX_IMAGES, body, Kind.IMAGES),))

    return each_nest(loops, change, straight=True)
