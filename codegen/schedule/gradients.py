"""Gradients of one image -> gradients summed over a block of images, in order; then, of many terms, in registers.

Example input:

    for i < 50:
        for j < 10:
            grad[12i + j] += mul(value[800 + i], value[920 + j])

becomes:

    for i < 50:
        for j < 10:
            images image:
                grad[12i + j] += mul(value[800 + i], value[920 + j])

and then:

    for i < 50:
        for j < 10:
            let sum = grad[12i + j]
            images image:
                sum += mul(value[800 + i], value[920 + j])
            grad[12i + j] = sum

Each gradient adds the images in order, so it has the same bits as with one image at a time. A single row of gradients
with one term per image stays in memory: nothing would be reused between two terms.
"""

from __future__ import annotations

from collections.abc import Callable

from codegen.ir.loops import (
    Accumulate,
    Body,
    Expr,
    For,
    Kernel,
    Kind,
    Let,
    Loops,
    Name,
    Pass,
    Store,
    map_body,
    statements,
)
from codegen.schedule.nest import around, each_nest, result, root_loops

MAX_IMAGES = 64  # in a block: an upper bound of the iterations
SUM = "sum"


def add_images(loops: Loops) -> Loops:
    return _inside_roots(loops, lambda body: (For("image", MAX_IMAGES, body, Kind.IMAGES),), straight=True)


def keep_in_registers(loops: Loops) -> Loops:
    def change(body: Body) -> Body:
        place = result(body)

        def to_sum(expr: Expr) -> Expr:
            return Name(SUM) if expr == place else expr

        assert all(isinstance(stmt, For | Accumulate) for stmt in statements(body))
        return Let(SUM, place), *map_body(body, to_sum), Store(place, Name(SUM))

    return _inside_roots(loops, change)


def _inside_roots(loops: Loops, change: Callable[[Body], Body], straight: bool = False) -> Loops:
    """The loops with what each root of a gradient does changed; `straight`: see each_nest()."""

    def changed(kernel: Kernel, nest: Body) -> Body:
        if kernel.passes != Pass.DENSE_GRADIENTS:
            return nest
        found = root_loops(nest)
        return around(found, change(found[-1].body if found else nest))

    return each_nest(loops, changed, straight)
