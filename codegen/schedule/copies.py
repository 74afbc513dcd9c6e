"""What is copied between the workspaces of single images and images side by side.

Example: of a perceptron whose first layer runs image by image, the values of group_0 and the target go to the images
side by side; those of its adjoints go back, because the gradients of parameters add one image after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.loops import VALUE, Loops, Pass, Phase
from codegen.schedule.phases import Cost, Ints, indices_read, indices_written, kernel_cost
from codegen.schedule.roll import roll
from codegen.schedule.target import Target

MAX_BYTES = 2**25  # of the values of images side by side
COPY_OPERATIONS = 5  # for one element of as many images as fill a vector: loads, shuffles, stores

Span = tuple[int, int]  # the first element of value[], and how many
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Batch:
    """How the images of a batch run, so many side by side; with fewer than `fewest`, one after the other is faster."""

    loops: Loops
    images: int
    copies: Copies
    costs: dict[int, Cost]  # of each kernel, by its number
    fewest: int

    @property
    def side_by_side(self) -> Loops:
        """The kernels that compute all images at once, in loops over kernels where they repeat."""
        return roll(self.loops.with_kernels([k for k in self.loops.kernels if k.phase == Phase.SIDE_BY_SIDE]))

    @property
    def phases(self) -> dict[int, Phase]:
        """How each kernel runs, by its number."""
        return {kernel.number: kernel.phase for kernel in self.loops.kernels}


@dataclass(frozen=True)
class Copies:
    """`into` goes from workspaces to images side by side, `out_of` back; `once` from the values that are computed once
    to each workspace. The others are all values that are computed side by side, or once."""

    into: list[Span]
    out_of: list[Span]
    once: list[Span]
    all_side_by_side: list[Span]
    all_once: list[Span]

    @property
    def cost(self) -> int:
        """Vector operations of `into` and `out_of`."""
        return COPY_OPERATIONS * sum(count for _, count in (*self.into, *self.out_of))


def plan_batch(loops: Loops, plain: Loops, factors: Iterable[Span], target: Target) -> Batch | None:
    """`loops`: those of a batch, scheduled. `plain`: the same with the gradients, as reroll made them. `factors`: what
    the gradients of rows read.

    None if one image after the other is faster, or if the images need too much memory.
    """
    images = target.cache_line
    copies = _copies(loops, plain, factors, images)
    before = {kernel.number: kernel for kernel in plain.kernels}
    costs = {}
    total = Cost(0, copies.cost)
    for kernel in loops.kernels:
        is_beside = kernel.phase == Phase.SIDE_BY_SIDE
        costs[kernel.number] = kernel_cost(before[kernel.number] if is_beside else kernel, target)
        total += costs[kernel.number] if is_beside else Cost()
    fewest = max(math.ceil(total.side_by_side / max(total.by_image, 1) * images), 2)
    fits = loops.lengths[VALUE] * 8 * images <= MAX_BYTES
    return Batch(loops, images, copies, costs, fewest) if total.by_image and fewest <= images and fits else None


def sent_values(plain: Loops, factors: Iterable[Span], batch: Batch | None) -> list[Span]:
    """What one process has to tell another one of an image that it has computed: all values that the gradients of
    parameters read, but for inputs, targets and noise, and for what every process computes once."""
    sent = _read_by_gradients(plain, factors)
    for region in plain.regions[VALUE]:
        if region.name in ("INPUT", "TARGET", "NOISE"):
            sent[region.start : region.start + region.extent] = False
    return _spans(sent & ~_written(batch.loops, Phase.ONCE) if batch is not None else sent)


def _read_by_gradients(plain: Loops, factors: Iterable[Span]) -> Marks:
    """The values that the gradients of parameters read; `factors` are those of rows."""
    gradients = [kernel for kernel in plain.kernels if kernel.passes & Pass.DENSE_GRADIENTS]
    marks = _marks(plain, (found for kernel in gradients for found in indices_read(plain, kernel)))
    for factor, lanes in factors:
        marks[factor : factor + lanes] = True
    return marks


def _copies(loops: Loops, plain: Loops, factors: Iterable[Span], images: int) -> Copies:
    beside = {kernel.number for kernel in loops.kernels if kernel.phase == Phase.SIDE_BY_SIDE}
    read_beside = [kernel for kernel in plain.kernels if kernel.number in beside]
    written = _written(loops, Phase.SIDE_BY_SIDE)
    once = _written(loops, Phase.ONCE)
    read = _marks(loops, (found for kernel in read_beside for found in indices_read(plain, kernel)))
    kept = _read_by_gradients(plain, factors)
    return Copies(
        into=_blocks(read & ~written & ~once, ~written & ~once, images),
        out_of=_blocks(kept & written, written | _padding(loops), images),
        once=_spans(kept & once),
        all_side_by_side=_spans(written),
        all_once=_spans(once),
    )


def _written(loops: Loops, phase: Phase) -> Marks:
    kernels = [kernel for kernel in loops.kernels if kernel.phase == phase]
    return _marks(loops, (found for kernel in kernels for found in indices_written(loops, kernel)))


def _marks(loops: Loops, indices: Iterable[Ints]) -> Marks:
    marks = np.zeros(loops.lengths[VALUE], bool)
    for found in indices:
        marks[found] = True
    return marks


def _padding(loops: Loops) -> Marks:
    """The elements that belong to no region, or to the padding of one."""
    marks = np.ones(loops.lengths[VALUE], bool)
    for region in loops.regions[VALUE]:
        marks[region.start : region.start + region.row] = False
    return marks


def _blocks(needed: Marks, harmless: Marks, size: int) -> list[Span]:
    """Spans with all that is needed, in whole blocks of `size` elements where copying the others is harmless."""
    marks = needed.copy()
    for start in range(0, len(marks) - size + 1, size):
        block = slice(start, start + size)
        if needed[block].any() and harmless[block].all():
            marks[block] = True
    return _spans(marks)


def _spans(marks: Marks) -> list[Span]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marks, [False]]).astype(np.int8))).tolist()
    return [(first, end - first) for first, end in zip(edges[::2], edges[1::2], strict=True)]
