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

from codegen.ir.loops import VALUE, Kernel, Loops, Pass, Phase
from codegen.schedule.phases import GRADIENTS, Cost, kernel_cost, spans_read, spans_written
from codegen.schedule.rows import RowTensor
from codegen.schedule.target import Target

MAX_BYTES = 2**25  # of the values of images side by side

Span = tuple[int, int]  # the first element of value[], and how many
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Batch:
    """How the images of a batch run.

    `into` goes from workspaces to images side by side, `out_of` back, and `once` from the values that are computed
    once to each workspace. With fewer images than `fewest`, one after the other is faster.
    """

    loops: Loops
    images: int  # side by side
    into: list[Span]
    out_of: list[Span]
    once: list[Span]
    all_side_by_side: list[Span]
    all_once: list[Span]
    fewest: int

    @property
    def side_by_side(self) -> Loops:
        """The kernels that compute all images at once."""
        return self.loops.with_kernels([k for k in self.loops.kernels if k.phase == Phase.SIDE_BY_SIDE])


def plan_batch(loops: Loops, plain: Loops, rows: Iterable[RowTensor], target: Target) -> Batch | None:
    """`loops`: those of a batch, scheduled. `plain`: the same with the gradients, as reroll made them.

    None if one image after the other is faster, or if the images need too much memory.
    """
    beside = [kernel for kernel in loops.kernels if kernel.phase == Phase.SIDE_BY_SIDE]
    numbers = {kernel.number for kernel in beside}
    written = _marks(loops, (span for kernel in beside for span in spans_written(loops, kernel)))
    once = _marks(loops, (s for k in loops.kernels if k.phase == Phase.ONCE for s in spans_written(loops, k)))
    plain_beside = [kernel for kernel in plain.kernels if kernel.number in numbers]
    read = _marks(loops, (span for kernel in plain_beside for span in spans_read(plain, kernel)))
    gradients = [kernel for kernel in plain.kernels if kernel.passes & Pass.DENSE_GRADIENTS]
    kept = _marks(loops, (span for kernel in gradients for span in spans_read(plain, kernel)))
    for row in rows:
        kept[row.factor : row.factor + row.lanes] = True
    fewest, images = _fewest(plain_beside, target), target.cache_line
    if not beside or fewest > images or loops.lengths[VALUE] * 8 * images > MAX_BYTES:
        return None
    return Batch(
        loops,
        images,
        into=_blocks(read & ~written & ~once, ~written & ~once, images),
        out_of=_blocks(kept & written, written | _padding(loops), images),
        once=_spans(kept & once),
        all_side_by_side=_spans(written),
        all_once=_spans(once),
        fewest=fewest,
    )


def _marks(loops: Loops, spans: Iterable[slice]) -> Marks:
    marks = np.zeros(loops.lengths[VALUE], bool)
    for span in spans:
        marks[span] = True
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


def _fewest(beside: list[Kernel], target: Target) -> int:
    """From how many images on side by side is faster."""
    cost = sum((kernel_cost(kernel, target) for kernel in beside if not kernel.passes & GRADIENTS), Cost())
    return max(math.ceil(cost.side_by_side / max(cost.by_image, 1) * target.cache_line), 2)
