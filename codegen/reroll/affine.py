"""Rows of storage indices -> loops: nested arithmetic progressions.

Example input, the indices that six instances use (result, weight, input):

    [[ 0,  0, 10], [ 1,  1, 10], [ 2,  2, 10], [ 3,  0, 20], [ 4,  1, 20], [ 5,  2, 20]]

becomes two loops, the innermost first:

    3 times, strides (1, 1, 0)    2 times, strides (3, 0, 10)

Where the progression ends, another piece begins; rows that need too many pieces become an index table, or a loop over
a shorter one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MIN_TABLE = 8  # rows
MIN_PERIOD = 3  # of rows that repeat
MAX_PIECES = 64


@dataclass(frozen=True)
class Loop:
    """`count` iterations; column c advances by strides[c] in each. With a table it is rows[iteration][c] instead."""

    count: int
    strides: Ints
    rows: Ints | None = None


@dataclass(frozen=True)
class Piece:
    """Rows [start, start + length) as nested loops, the innermost first. No loops: a single row."""

    start: int
    length: int
    loops: list[Loop]


def peel(rows: Ints) -> tuple[list[Loop], int]:
    """The longest nest of arithmetic progressions that starts at row 0, and the number of rows that it covers."""
    loops: list[Loop] = []
    length = 1
    while 2 * length <= len(rows):
        blocks = rows[: len(rows) // length * length].reshape(-1, length, rows.shape[1])
        stride = blocks[1, 0] - blocks[0, 0]
        regular = (blocks[1:] - blocks[:-1] == stride).all(axis=(1, 2))
        count = 1 + (len(regular) if regular.all() else int(regular.argmin()))
        if count < 2:
            break
        loops.append(Loop(count, stride))
        length *= count
    return loops, length


def most_pieces(rows: int) -> int:
    """How many nests may cover so many rows: few rows get no table."""
    return min(max(4, rows // MIN_TABLE), MAX_PIECES) if rows >= MIN_TABLE else rows


def fit(rows: Ints, shorten: bool = False) -> list[Piece]:
    """Covers all rows, in order: by few nests where they are regular, else by one loop over a table.

    `shorten`: or by what covers the first rows, if it repeats; then the order is another. Terms of a sum gain nothing
    from one more loop.
    """
    pieces = _pieces(rows, peel)
    if shorten and len(pieces) > 2:
        pieces = min([pieces, *_by_blocks(rows)], key=len)
    if len(pieces) > most_pieces(len(rows)):
        return _repeated(rows) if shorten else [Piece(0, len(rows), [_table(rows)])]
    return min(pieces, _pieces(rows, _shortened), key=len) if len(pieces) > 2 else pieces


def _pieces(rows: Ints, first: Callable[[Ints], tuple[list[Loop], int]]) -> list[Piece]:
    """The nests one after the other, up to one more than may be."""
    pieces: list[Piece] = []
    start = 0
    while start < len(rows) and len(pieces) <= most_pieces(len(rows)):
        loops, length = first(rows[start:])
        pieces.append(Piece(start, length, loops))
        start += length
    return pieces


def _shortened(rows: Ints) -> tuple[list[Loop], int]:
    """The nest that starts at row 0; without its last iteration where that belongs to the nest behind it.

    Rows of 3, 3, 4 and 4 are 3 times 3 and a rest, or 2 times 3 and 2 times 4.
    """
    loops, length = peel(rows)
    if not loops or length == len(rows):
        return loops, length
    outer = loops[-1]
    shorter = length // outer.count * (outer.count - 1)
    if shorter + peel(rows[shorter:])[1] <= length + peel(rows[length:])[1]:
        return loops, length
    return [*loops[:-1], *([Loop(outer.count - 1, outer.strides)] if outer.count > 2 else [])], shorter


def _periods(rows: Ints) -> list[int]:
    return [size for size in range(MIN_PERIOD, len(rows) // 2 + 1) if len(rows) % size == 0]


def _by_blocks(rows: Ints) -> Iterator[list[Piece]]:
    """The few nests that cover a block of rows, in loops around them, where all other blocks are alike."""
    for size in _periods(rows):
        blocks = rows.reshape(-1, size, rows.shape[1])
        if (blocks - blocks[:, :1] == blocks[0] - blocks[0, 0]).all():
            inside, around = _pieces(blocks[0], peel), _pieces(blocks[:, 0], peel)
            if len(inside) <= min(max(size // 2, 2), most_pieces(size)) and len(around) <= most_pieces(len(blocks)):
                yield [
                    Piece(outer.start * size + inner.start, outer.length * inner.length, inner.loops + outer.loops)
                    for outer in around
                    for inner in inside
                ]


def _repeated(rows: Ints) -> list[Piece]:
    """Rows that repeat, each time a constant further, by what covers the first repetition; else by a table.

    A few are covered by a table, so that they are one nest around what repeats, which may be lanes.
    """
    for period in _periods(rows):
        steps = rows[period:] - rows[:-period]
        if (steps == steps[0]).all():
            count = len(rows) // period
            first = fit(rows[:period]) if period >= MIN_TABLE else [Piece(0, period, [_table(rows[:period])])]
            return [Piece(piece.start, piece.length * count, [*piece.loops, Loop(count, steps[0])]) for piece in first]
    return [Piece(0, len(rows), [_table(rows)])]


def _table(rows: Ints) -> Loop:
    """A loop over a table of offsets from row 0; columns that advance evenly stay out of it."""
    offsets = rows - rows[0]
    strides = offsets[1]
    even = (offsets == np.arange(len(rows))[:, None] * strides).all(axis=0)
    return Loop(len(rows), np.where(even, strides, 0), np.where(even, 0, offsets))
