"""Groups that fill a part of a box -> the whole box is computed.

Example input: under a causal mask, token t compares itself with the t + 1 tokens that it may look at

    score[0]     = query[0] * key[0]
    score[1 + i] = query[1] * key[i]        i < 2
    score[3 + i] = query[2] * key[i]        i < 3

becomes:

    score[3t + i] = query[t] * key[i]       t < 3, i < 3

Each row is as long as the longest. What the others do not need is computed too, from numbers that mean nothing, and
nobody reads it: that is at most as much as what is needed, in one loop instead of one for each row, and it leaves rows
an equal distance apart, so that sums along columns are loops too. Only long functions are not computed in vain: see
schedule.each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from codegen.reroll.affine import Ints, peel

MIN_ROWS = 3  # of different lengths


@dataclass(frozen=True)
class Box:
    """Rows of `length` elements, the first `counts[r]` of row r being instances of a group, in order."""

    length: int
    counts: Ints

    @property
    def size(self) -> int:
        return len(self.counts) * self.length

    @property
    def places(self) -> Ints:
        """Where in the box each instance is."""
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        return rows * self.length + _within(self.counts)

    def filled(self, instances: Ints) -> Ints | None:
        """The indices of all elements, from those of the instances; None unless they advance evenly."""
        starts = instances[np.cumsum(self.counts) - self.counts]
        longest = int(self.counts.argmax())
        first = int(self.counts[:longest].sum())
        step = instances[first + 1] - instances[first]
        whole: Ints = starts[:, None, :] + np.arange(self.length)[:, None] * step
        whole = whole.reshape(self.size, -1)
        return whole if (whole[self.places] == instances).all() else None


def find_box(rows: Ints, keys: Iterable[Ints]) -> tuple[Ints, Box] | None:
    """The order of a group's instances in which they fill a part of a box, and the box.

    rows   the indices that each instance reads
    keys   what may be the same for a row of the box, for each instance
    """
    for key in keys:
        order = np.lexsort([*rows.T[::-1], key])
        box = _box(rows[order], key[order])
        if box is not None:
            return order, box
    return None


def _box(rows: Ints, key: Ints) -> Box | None:
    starts = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    counts = np.diff(starts, append=len(key))
    box = Box(int(counts.max()), counts)
    if len(np.unique(counts)) < MIN_ROWS or box.size > 2 * len(rows):
        return None
    whole = box.filled(rows)
    if whole is None or (whole.min(axis=0) < rows.min(axis=0)).any() or (whole.max(axis=0) > rows.max(axis=0)).any():
        return None  # what is not read by instances may be anything, even outside of the array
    return box if _is_one_nest(rows[starts]) else None


def _is_one_nest(rows: Ints) -> bool:
    return peel(rows)[1] == len(rows)


def _within(counts: Ints) -> Ints:
    """0, 1, ... for each row."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)


def row_keys(rows: Ints, row_lengths: Iterable[int]) -> Iterator[Ints]:
    """What tells rows apart: an index that stays the same, or the row of the box that an index is in.

    row_lengths   for each column of `rows` that of the box that it reads, or 0
    """
    for column, length in zip(rows.T, row_lengths, strict=True):
        if length:
            yield (column - column.min()) // length
    yield from rows.T
