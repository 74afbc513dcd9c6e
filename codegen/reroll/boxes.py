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

Where tokens see a window of those before them, rows begin where all of the window would be:

    score[2]     = query[0] * key[0]
    score[4 + i] = query[1] * key[i]        i < 2
    score[6 + i] = query[2] * key[i]        i < 3
    score[9 + i] = query[3] * key[1 + i]    i < 3

So score[3t + i] reads key[t + i - 2], and before the first key there must be two numbers more, a margin: zeros that the
group of the keys writes too. Windows of what comes next need one behind the last key.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from codegen.reroll.affine import Ints, peel

MIN_ROWS = 3  # of different lengths


@dataclass(frozen=True)
class Box:
    """Rows of `length` elements. `counts[r]` of row r, from `firsts[r]` on, are instances of a group, in order."""

    length: int
    firsts: Ints
    counts: Ints

    @property
    def size(self) -> int:
        return len(self.counts) * self.length

    @property
    def places(self) -> Ints:
        """Where in the box each instance is."""
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        return rows * self.length + self.firsts[rows] + _within(self.counts)

    @property
    def needed(self) -> tuple[range, ...]:
        """Of each row the places that are instances."""
        firsts, counts = self.firsts.tolist(), self.counts.tolist()
        return tuple([range(first, first + count) for first, count in zip(firsts, counts, strict=True)])

    def filled(self, instances: Ints) -> Ints | None:
        """The indices of all elements, from those of the instances; None unless they advance evenly."""
        starts = np.cumsum(self.counts) - self.counts
        longest = starts[self.counts.argmax()]
        step = instances[longest + 1] - instances[longest]
        places = np.arange(self.length) - self.firsts[:, None]
        whole: Ints = instances[starts][:, None] + places[..., None] * step
        whole = whole.reshape(self.size, -1)
        return whole if (whole[self.places] == instances).all() else None


def find_boxes(rows: Ints, keys: Iterable[Ints], has_margin: Ints) -> Iterator[tuple[Ints, Box]]:
    """The boxes of which a group fills a part, those without margins first, each with the order of the instances.

    rows         the indices that each instance reads
    keys         what may be the same for a row of the box, for each instance
    has_margin   for each column of `rows`, whether there may be numbers beyond those that instances read
    """
    beyond: list[tuple[Ints, Box]] = []
    for key in keys:
        order = np.lexsort([*rows.T[::-1], key])
        sorted_, starts = rows[order], np.flatnonzero(np.diff(key[order], prepend=key.min() - 1))
        counts = np.diff(starts, append=len(key))
        length = int(counts.max())
        if len(np.unique(counts)) < MIN_ROWS or length * len(counts) > 2 * len(rows):
            continue
        box = Box(length, np.zeros_like(counts), counts)
        if _fits(box, sorted_, np.zeros_like(has_margin)):
            yield order, box
            continue
        firsts = _firsts(sorted_, starts, counts)
        box = Box(length, firsts, counts) if firsts is not None else box
        if _fits(box, sorted_, has_margin):
            beyond.append((order, box))
    yield from beyond


def _fits(box: Box, rows: Ints, has_margin: Ints) -> bool:
    """Whether one nest computes the whole box. What no instance reads may be anything, even outside of an array."""
    whole = box.filled(rows)
    if whole is None:
        return False
    is_inside = (whole.min(axis=0) >= rows.min(axis=0)) & (whole.max(axis=0) <= rows.max(axis=0))
    starts = whole[:: box.length]
    return bool((is_inside | has_margin).all()) and peel(starts)[1] == len(starts)


def _firsts(rows: Ints, starts: Ints, counts: Ints) -> Ints | None:
    """Where in each row its first instance is, if rows advance as those that have all of their instances."""
    full = np.flatnonzero(counts == counts.max())
    loops, length = peel(rows[starts[full]])
    if length < len(full) or len(full) < 2 or full[-1] - full[0] >= len(full):
        return None
    row = np.arange(len(counts)) - full[0]
    begin = np.tile(rows[starts[full[0]]], (len(counts), 1))
    for loop in loops[:-1]:
        begin += (row % loop.count)[:, None] * loop.strides
        row //= loop.count
    begin += row[:, None] * loops[-1].strides
    step = rows[starts[full[0]] + 1] - rows[starts[full[0]]]
    distance = rows[starts] - begin
    moving = int(step.astype(bool).argmax())
    firsts: Ints = distance[:, moving] // (step[moving] or 1)
    is_inside = (firsts >= 0).all() and (firsts + counts <= counts.max()).all()
    return firsts if is_inside and (distance == firsts[:, None] * step).all() else None


def _within(counts: Ints) -> Ints:
    """0, 1, ... for each row."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
