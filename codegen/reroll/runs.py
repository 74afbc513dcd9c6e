"""Shapes -> runs: what a root adds up, as equal terms side by side. And runs -> segments, each of which becomes a loop.

Example input: the shape relu(sum(P, 784 x mul(P, X))) becomes two runs, 1 x P and 784 x mul(P, X), combined by add, and
relu on top of them. The leaves of a root are in the order of its runs.

And the terms of ten instances, i < 10, of which the first reads h[i], and 48 others read in turns

    a[31 + 32i], b[15 + 16i], a[15 + 32i], a[30 + 32i], b[14 + 16i], a[14 + 32i], a[29 + 32i] ...

become two segments: the first term alone, and three runs that alternate, of 16 terms each, every third of the 48:

    a[31 + 32i - u]    b[15 + 16i - u]    a[15 + 32i - u]    for u < 16

Runs that alternate may have different shapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from codegen.ir.graph import Op
from codegen.reroll.groups import Ints
from codegen.reroll.trees import Shapes

MAX_PERIOD = 6  # runs that alternate
MIN_TURNS = 3  # two terms, or two pairs, are a progression in any case


@dataclass(frozen=True)
class Run:
    """`count` equal terms of a sum (or the one expression of a root without a sum): columns of Group.leaves.

    `distance`: of its terms, in columns, where those of other runs are between them; else 0.
    """

    shape: int
    count: int
    kinds: list[int]
    column: int
    distance: int = 0

    def columns(self, leaves: Ints) -> Ints:
        """The run's part of a leaf matrix, as instances x terms x leaves of one term."""
        width = len(self.kinds)
        if not self.distance:
            part = leaves[:, self.column : self.column + self.count * width]
            return part.reshape(len(leaves), self.count, width)
        return leaves[:, self.column + self.distance * np.arange(self.count)[:, None] + np.arange(width)]

    def term(self, k: int) -> Run:
        """One of its terms."""
        return replace(self, count=1, column=self.column + k * (self.distance or len(self.kinds)), distance=0)


def split_shape(shapes: Shapes, shape: int, is_gradient: bool) -> tuple[list[Run], list[int], int | None]:
    """A root's shape as runs of terms, the unary ops on top of them, and how the terms are combined.

    A gradient is always a sum: of the old gradient and the term of this image.
    """
    if is_gradient and shapes.terms(shape) is None:
        old, term = shapes.operands(shape)
        return [Run(old, 1, [Op.GRAD], 0), Run(term, 1, shapes.kinds(term), 1)], [], Op.ADD
    post: list[int] = []
    top = shape
    while not shapes.is_leaf(top) and shapes.terms(top) is None and len(shapes[top]) == 2:
        post.insert(0, shapes[top][0])
        top = shapes[top][1]  # type: ignore[assignment]
    terms = shapes.terms(top)
    if terms is None:
        return [Run(shape, 1, shapes.kinds(shape), 0)], [], None
    result, column = [], 0
    for s, count in terms:
        result.append(Run(s, count, shapes.kinds(s), column))
        column += count * len(result[-1].kinds)
    return result, post, shapes[top][0]


def equal_rows(matrix: Ints) -> list[Ints]:
    """The row numbers of each different row, in the order of first appearance."""
    if (matrix == matrix[0]).all():
        return [np.arange(len(matrix))]
    rows: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.ascontiguousarray(matrix)):
        rows.setdefault(row.tobytes(), []).append(i)
    return [np.array(found) for found in rows.values()]


Segment = tuple[Run, ...]  # runs whose terms alternate; most often one run


class TermList:
    """The terms of a sum, one after the other.

    `indices`: where each instance finds its leaves. `key`: equal for terms that differ in these places alone.
    """

    def __init__(self, runs: list[Run], indices: Ints, key: Callable[[Run], Hashable]) -> None:
        self.runs = runs
        self.terms = [run.term(k) for run in runs for k in range(run.count)]
        width = max(len(run.kinds) for run in runs)
        parts = [run.columns(indices) for run in runs]
        parts = [np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[2]))) for part in parts]
        self.places = np.concatenate(parts, axis=1)  # instances x terms x leaves
        numbers: dict[Hashable, int] = {}
        self.keys = np.array([numbers.setdefault(key(term), len(numbers)) for term in self.terms])
        self.ends: list[int] = np.cumsum([run.count for run in runs]).tolist()

    def rest(self, start: int) -> int:
        """How many terms their run has from term `start` on."""
        return _next(self.ends, start + 1, len(self.terms)) - start

    def alike(self, start: int) -> int:
        """The same, up to where instances continue differently."""
        return min(_next(self._differ, start, len(self.terms)) + 1 - start, self.rest(start))

    @cached_property
    def _differ(self) -> list[int]:
        steps = np.diff(self.places, axis=1)
        found: list[int] = np.flatnonzero(~(steps == steps[:1]).all(axis=(0, 2))).tolist()
        return found

    def segments(self, advance: Callable[[int], int]) -> list[Segment]:
        """Segments from the first term on: `advance(start)` terms of one run, unless more terms alternate."""
        turns = {period: _Turns(self, period) for period in range(2, min(MAX_PERIOD, len(self.terms) // MIN_TURNS) + 1)}
        found: list[Segment] = []
        start = 0
        while start < len(self.terms):
            length, period = advance(start), 1
            for candidate, those in turns.items():
                count = those.count(start)
                if count >= MIN_TURNS and count > length:
                    length, period = count * candidate, candidate
                    break
            found.append(tuple([self._run(start + first, length // period, period) for first in range(period)]))
            start += length
        return found

    def _run(self, start: int, count: int, period: int) -> Run:
        """The terms start, start + period, ..."""
        first = self.terms[start]
        distance = self.terms[start + period].column - first.column if period > 1 else 0
        return replace(first, count=count, distance=distance)


class _Turns:
    """Where each term follows the one `period` before it at a constant distance, the same for all instances."""

    def __init__(self, those: TermList, period: int) -> None:
        steps = those.places[:, period:] - those.places[:, :-period]
        alike = (steps == steps[:1]).all(axis=(0, 2)) & (those.keys[period:] == those.keys[:-period])
        constant = np.ones_like(alike)
        constant[period:] = (steps[0, period:] == steps[0, :-period]).all(axis=1)
        self.period = period
        self.end = len(alike)
        self.differ: list[int] = np.flatnonzero(~alike).tolist()
        self.change: list[int] = np.flatnonzero(~constant).tolist()

    def count(self, start: int) -> int:
        """How often terms take turns from term `start` on."""
        first = min(_next(self.differ, start, self.end), _next(self.change, start + self.period, self.end))
        return max(first - start, 0) // self.period + 1


def _next(numbers: list[int], start: int, end: int) -> int:
    """The first of some ascending numbers from `start` on."""
    at = bisect_left(numbers, start)
    return numbers[at] if at < len(numbers) else end
