"""What is copied between the workspaces of single images and images side by side.

Example: of a perceptron whose first layer runs image by image, the values of group_0 and the target go to the images
side by side; those of its adjoints go back, because the gradients of parameters add one image after the other.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np

from codegen.ir.loops import LEAVES, VALUE, Kernel, Loops, Pass, Phase
from codegen.schedule.columns import copy_columns
from codegen.schedule.groups_of_images import FEWEST_GROUPS
from codegen.schedule.needed import computed_share
from codegen.schedule.phases import (
    COPY_OPERATIONS,
    STARTED,
    Cost,
    Marks,
    are_far,
    indices_read,
    indices_written,
    kernel_cost,
    longest_chain,
    marked,
    written_in,
)
from codegen.schedule.sums_of_images import Sums
from codegen.schedule.target import Target

MAX_BYTES = 2**25  # of the values of images side by side
CACHE_LINE = 64  # bytes of a value of images side by side
SECOND_LEVEL = 2**20  # bytes that stay in a second-level cache
FAR = 1.3  # so many times longer operations take on what does not, at most
SHARED = 1.1  # so many times longer operations take whose parameters are loaded for one image

NO_LOOPS = Loops((), {}, {}, {}, 0)

Span = tuple[int, int]  # the first element of value[], and how many


@dataclass(frozen=True)
class Batch:
    """How the images of a batch run, so many side by side; with fewer than `fewest`, one after the other is faster."""

    loops: Loops
    gradients: Loops  # those of parameters that groups of images add: see groups_of_images.py
    sums: Sums  # and other sums over their images
    target: Target
    copies: Copies
    costs: dict[int, Cost]  # of each kernel, by its number
    fewest: int

    @property
    def images(self) -> int:
        return self.target.cache_line

    @property
    def sum_spans(self) -> list[Span]:
        """The sums over images that are not gradients of parameters, in value[]."""
        written = (found for kernel in self.sums.added for found in indices_written(self.loops, kernel))
        return _spans(marked(self.loops, written))

    @property
    def phases(self) -> dict[int, Phase]:
        """How each kernel runs, by its number."""
        in_groups = self.sums.changed.union(kernel.number for kernel in self.gradients.kernels)
        of_loops = {kernel.number: kernel.phase for kernel in self.loops.kernels}
        return dict.fromkeys(in_groups, Phase.SIDE_BY_SIDE) | of_loops


@dataclass(frozen=True)
class Scheduled:
    """All loops of a program, for the registers of one kind of SIMD level."""

    plain: Loops  # of single images, before the passes that decide how they run
    single: Loops  # and after them
    batch: Batch | None = None
    beside: Loops = NO_LOOPS  # what computes all images of a batch at once
    in_groups: Loops = NO_LOOPS  # the gradients of groups of images
    from_sums: Loops = NO_LOOPS  # what follows from sums over their images
    steps: Loops = NO_LOOPS  # gradients of a single image that become steps at once
    dense: Loops = NO_LOOPS  # row sums of a few images at a time


@dataclass(frozen=True)
class Copies:
    """`into` goes from workspaces to images side by side, `out_of` back, and `out_of_groups` where groups of images add
    gradients; `once` to each workspace: values that are computed once, and read by rows or together with others. The
    others are all values that are computed side by side, or once."""

    into: list[Span]
    out_of: list[Span]
    out_of_groups: list[Span]
    once: list[Span]
    all_side_by_side: list[Span]
    all_once: list[Span]

    @property
    def cost(self) -> int:
        """Vector operations of `into` and `out_of`."""
        return COPY_OPERATIONS * sum(count for _, count in (*self.into, *self.out_of))


def plan_batch(
    loops: Loops,
    gradients: Loops,
    sums: Sums,
    plain: Loops,
    factors: Iterable[Span],
    target: Target,
) -> Batch | None:
    """`loops`: those of a batch, scheduled, and `gradients`: of groups of images, with `sums`. `plain`: all as reroll
    made them. `factors`: what the gradients of rows read.

    None if one image after the other is faster, or if the images need too much memory.
    """
    images = target.cache_line
    beside = {kernel.number for kernel in loops.kernels if kernel.phase == Phase.SIDE_BY_SIDE}
    in_groups = sums.changed.union(kernel.number for kernel in gradients.kernels) - beside
    copies = _copies(loops, plain, in_groups, factors, images)
    before = {kernel.number: kernel for kernel in plain.kernels}
    phases = {kernel.number: kernel.phase for kernel in loops.kernels}
    alone = copy_columns(plain, images, phases)
    instead = [kernel for kernel in alone.kernels if kernel.number in beside or kernel.number not in before]
    started = STARTED * images * sum(len(kernel.nests) for kernel in instead)
    is_far = are_far(loops, instead, target)
    by_image = {kernel.number: kernel_cost(kernel, target, is_far).by_image for kernel in instead}
    total = Cost(sum(by_image.values(), start=started), copies.cost)
    costs = {}
    for kernel in loops.kernels:
        if kernel.number in beside:
            together = kernel_cost(before[kernel.number], target).side_by_side * computed_share(kernel.box)
            costs[kernel.number] = Cost(by_image[kernel.number], together)
            total += Cost(0, together)
        else:
            costs[kernel.number] = kernel_cost(kernel, target)
    far = min(max(loops.lengths[VALUE] * CACHE_LINE / SECOND_LEVEL, 1), FAR)
    fewest = max(min(math.ceil(far * total.side_by_side / max(total.by_image, 1) * images), images), 2)
    fits = loops.lengths[VALUE] * 8 * images <= MAX_BYTES
    waits = longest_chain(alone, instead, target)
    pays = 0 < far * total.side_by_side <= SHARED * max(total.by_image, waits)
    for number in sorted(in_groups):
        costs[number] = kernel_cost(before[number], target)
        total += costs[number]
    if not pays and in_groups and total.by_image > far * total.side_by_side:
        fewest, pays = FEWEST_GROUPS * images, True  # only where gradients gain too
    return Batch(loops, gradients, sums, target, copies, costs, fewest) if pays and fits else None


def sent_values(plain: Loops, factors: Iterable[Span], batch: Batch | None) -> list[Span]:
    """What one process has to tell another one of an image that it has computed: all values that the gradients of
    parameters read, but for inputs, targets and noise, and for what every process computes once."""
    gradients = [kernel for kernel in plain.kernels if kernel.passes & Pass.DENSE_GRADIENTS]
    sent = _read_by(plain, gradients, factors)
    for region in plain.regions[VALUE]:
        if region.holds in LEAVES:
            sent[region.start : region.start + region.extent] = False
    return _spans(sent & ~written_in(batch.loops, Phase.ONCE) if batch is not None else sent)


def _read_by(plain: Loops, gradients: Iterable[Kernel], factors: Iterable[Span]) -> Marks:
    """The values that gradients of parameters read; `factors` are those of rows."""
    marks = marked(plain, (found for kernel in gradients for found in indices_read(plain, kernel)))
    for factor, lanes in factors:
        marks[factor : factor + lanes] = True
    return marks


def _copies(loops: Loops, plain: Loops, in_groups: Container[int], factors: Iterable[Span], images: int) -> Copies:
    gradients = [kernel for kernel in plain.kernels if kernel.passes & Pass.DENSE_GRADIENTS]
    beside = {kernel.number for kernel in loops.kernels if kernel.phase == Phase.SIDE_BY_SIDE}
    read_beside = [kernel for kernel in plain.kernels if kernel.number in beside]
    written = written_in(loops, Phase.SIDE_BY_SIDE)
    once = written_in(loops, Phase.ONCE)
    read_beside += [kernel for kernel in gradients if kernel.number in in_groups]
    others = [kernel for kernel in gradients if kernel.number not in in_groups]
    read = marked(loops, (found for kernel in read_beside for found in indices_read(plain, kernel)))
    together = (found for kernel in gradients for found in indices_read(plain, kernel))
    mixed = _read_by(plain, (), factors) | marked(loops, (found for found in together if not once[found].all()))
    kept, kept_by_image = (_read_by(plain, found, factors) for found in (gradients, others))
    return Copies(
        into=_blocks(read & ~written & ~once, ~written & ~once, images),
        out_of=_blocks(kept & written, written | _padding(loops), images),
        out_of_groups=_blocks(kept_by_image & written, written | _padding(loops), images),
        once=_spans(mixed & once),
        all_side_by_side=_spans(written),
        all_once=_spans(once),
    )


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
