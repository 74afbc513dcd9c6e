"""The terms of a sum -> segments, each of which becomes one loop.

Example input: the terms of ten instances, i < 10, of which the first reads h[i], and 48 others read in turns

    a[31 + 32i], b[15 + 16i], a[15 + 32i], a[30 + 32i], b[14 + 16i], a[14 + 32i], a[29 + 32i] ...

becomes two segments: the first term alone, and three runs that alternate, of 16 terms each, every third of the 48:

    a[31 + 32i - u]    b[15 + 16i - u]    a[15 + 32i - u]    for u < 16

Runs that alternate may have different shapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property

import numpy as np

from codegen.reroll.groups import Ints
from codegen.reroll.runs import Run

Segment = tuple[Run, ...]  # runs whose terms alternate; most often one run

MAX_PERIOD = 6  # runs that alternate
MIN_TURNS = 3  # two terms, or two pairs, are a progression in any case


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
