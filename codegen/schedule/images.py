"""Gradients of one image -> gradients summed over a block of images, in order.

Example input:

    for i < 50:
        for j < 10:
            grad[12i + j] += mul(value[800 + i], value[920 + j])

becomes:

    for i < 50:
        for j < 10:
            images image:
                grad[12i + j] += mul(value[800 + i], value[920 + j])

Each gradient adds the images in order, so it has the same bits as with one image at a time.
"""

from __future__ import annotations

from codegen.ir.loops import Body, For, Kernel, Kind, Loops, Pass
from codegen.schedule.nest import around, each_nest, root_loops

MAX_IMAGES = 64  # in a block: an upper bound of the iterations


def add_images(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if kernel.passes != Pass.DENSE_GRADIENTS:
            return nest
        found = root_loops(nest)
        body = found[-1].body if found else nest
        return around(found, (For("image", MAX_IMAGES, body, Kind.IMAGES),))

    return each_nest(loops, change, straight=True)
