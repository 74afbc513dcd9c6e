"""Sums over active inputs -> sums of a few images at a time, for inputs that are active in all of them.

Example input, a kernel of row sums before lanes are split:

    for i < 96:
        let sum = value[1200 + i]
        active k < 784, x_k = value[k]:
            sum += mul(data[i + 104k], x_k)
        value[1200 + i] = sum

becomes:

    for block < 3:
        local sum[128]
        few images image < 4:
            lanes i < 32:
                sum[32image + i] = value[1200 + 32block + i]
        active k < 784:
            few images image < 4:
                let x_k = inputs[k][image]
                lanes i < 32:
                    sum[32image + i] += mul(data[i + 32block + 104k], x_k)
        few images image < 4:
            lanes i < 32:
                value[1200 + 32block + i] = sum[32image + i]

Each row of weights is loaded once for all of these images. Floats are expected not to be 0; where an image has a zero
among these inputs, run-time code takes the images one by one: see csrc/passes.h. Each sum adds its terms in the same
order. As with a tile of gradients, the sums fill half the vector registers.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import (
    INPUTS,
    Accumulate,
    Body,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Pass,
    Place,
    Stmt,
    Store,
    substituted,
)
from codegen.reroll.layout import padded
from codegen.schedule.nest import root_loops
from codegen.schedule.target import Target

IMAGES = 4  # at a time
IMAGE, BLOCK, SUM = "image", "block", "sum"


def rows_of_images(loops: Loops, target: Target) -> Loops:
    """The kernels of row sums alone, each for a few images."""
    return loops.with_kernels([_few_images(k, target) for k in loops.kernels if k.passes & Pass.ROW_SUMS])


def _few_images(kernel: Kernel, target: Target) -> Kernel:
    (nest,) = kernel.nests
    (lane,) = root_loops(nest)
    width = target.registers.tile // IMAGES * target.cache_line
    lanes = padded(lane.count, target.cache_line)
    nests: list[Body] = []
    if lanes >= width:
        blocks = For(BLOCK, lanes // width, _block(lane, width, Index(0, ((width, BLOCK),))))
        nests.append((blocks,))
    if lanes % width:
        nests.append(_block(lane, lanes % width, Index(lanes // width * width)))
    return replace(kernel, passes=Pass.DENSE_ROWS, nests=tuple(nests))


def _block(lane: For, width: int, start: Index) -> Body:
    """The sums of `width` lanes from the start on."""
    i = lane.counter
    first, rows, last = substituted(lane.body, i, Index(start.base, (*start.steps, (1, i))))
    assert isinstance(first, Let)
    assert not isinstance(first.value, Index)
    assert isinstance(rows, For)
    assert isinstance(last, Store)
    (term,) = rows.body
    assert isinstance(term, Accumulate)
    element = Place(SUM, Index(0, ((width, IMAGE), (1, i))))

    def few(*body: Stmt) -> For:
        return For(IMAGE, IMAGES, body, Kind.FEW_IMAGES)

    def lanes(stmt: Stmt) -> For:
        return For(i, width, (stmt,), Kind.LANES)

    x = Let(rows.input, Place(INPUTS, Index(0, ((1, rows.counter),)), IMAGE))
    return (
        Local(SUM, IMAGES * width),
        few(lanes(Store(element, first.value))),
        replace(rows, body=(few(x, lanes(replace(term, target=element))),), input=""),
        few(lanes(replace(last, value=element))),
    )
