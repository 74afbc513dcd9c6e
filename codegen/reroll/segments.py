"""A run of equal terms -> segments, each of which becomes one loop.

Example input: the terms of ten instances, i < 10, of which the first reads h[i], and 48 others read in turns

    a[31 + 32i], b[15 + 16i], a[15 + 32i], a[30 + 32i], b[14 + 16i], a[14 + 32i], a[29 + 32i] ...

becomes two segments: the first term alone, and three runs that alternate, of 16 terms each, every third of the 48:

    a[31 + 32i - u]    b[15 + 16i - u]    a[15 + 32i - u]    for u < 16

A run is cut where its instances continue differently, as when terms come from one array and then from another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from codegen.reroll.groups import Ints
from codegen.reroll.runs import Run

Segment = tuple[Run, ...]  # runs whose terms alternate; most often one run

MAX_PERIOD = 6  # runs that alternate
MIN_TURNS = 3  # two terms, or two pairs, are a progression in any case


def segments(run: Run, indices: Ints) -> list[Segment]:
    """The run cut where its instances continue differently, unless its terms alternate."""
    places = run.columns(indices)
    steps = np.diff(places, axis=1)
    ends = [*np.flatnonzero(~(steps == steps[0]).all(axis=(0, 2))).tolist(), run.count - 1]
    return _cut(run, places, lambda start: ends[bisect_left(ends, start)] + 1 - start)


def alternating(run: Run, indices: Ints, advance: Callable[[int], int]) -> list[Segment]:
    """The run cut where terms alternate; from term `start` on, one loop would go over `advance(start)` terms."""
    return _cut(run, run.columns(indices), advance)


def _cut(run: Run, places: Ints, advance: Callable[[int], int]) -> list[Segment]:
    """Segments from the first term on: as many terms as `advance` says, or more that alternate."""

    @cache
    def turns_of(period: int) -> _Turns:
        return _Turns(places, period)

    found: list[Segment] = []
    start = 0
    while start < run.count:
        length, period = advance(start), 1
        for candidate in range(2, MAX_PERIOD + 1):
            turns = turns_of(candidate).count(start)
            if turns >= MIN_TURNS and turns > length:
                length, period = turns * candidate, candidate
                break
        found.append(tuple([_every(run, start + first, length // period, period) for first in range(period)]))
        start += length
    return found


def _every(run: Run, first: int, count: int, period: int) -> Run:
    """The run's terms first, first + period, ..."""
    return replace(run, count=count, column=run.column + first * len(run.kinds), every=period)


class _Turns:
    """Where each term follows the one `period` before it at a constant distance, the same for all instances."""

    def __init__(self, places: Ints, period: int) -> None:
        steps = places[:, period:] - places[:, :-period]
        alike = (steps == steps[:1]).all(axis=(0, 2))
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
