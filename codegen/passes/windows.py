"""What products of weights read -> places in an array, of which each weight reads a window.

Example input: three weights, each of which is multiplied four times; -1 is a constant, other numbers are values

    -1  7  8  9
     7  8  9 11
     8  9 11 -1

becomes:

     0  1  2  3
     1  2  3  4
     2  3  4  5

Two ways to find it, in arrays of up to four axes. By elements: one weight reads no constant, that in the middle of a
kernel; the others read at a constant distance from there, in the axes of a box that has just the values, and constants
lie outside of it. So uses may skip elements, as those of a convolution with a stride do. By uses: what one weight
reads, use after use, is a box, and the others read the same shifted, and beyond its border anything: a constant, the
element on the other side, the nearest one, or the mirrored one. There, elements may be in several places.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MOST_AXES = 4
FEWEST_USES = 4
MOST_PLACES = 16  # times as many as elements
LINE = 8  # neighbours that are loaded together
SOME_ROWS = 8  # which most boxes do not fit


def find_windows(rows: Ints) -> Ints | None:
    """Where each weight (row) reads in each use (column); None if that is no array, or the elements are one already.

    Axes without padding, as channels, are the last if they fill cache lines: then rows of these are neighbours.
    """
    if rows.shape[1] < FEWEST_USES:
        return None
    distinct, row_of = np.unique(rows, axis=0, return_inverse=True)
    cells = _by_elements(distinct) if (rows < 0).any() else None
    if cells is None:
        cells = _by_uses(distinct)
    if cells is None:
        return None
    low, high = cells.min(axis=(0, 1)), cells.max(axis=(0, 1))
    values = cells[distinct >= 0]
    shape = high - low + 1
    if shape.prod() > MOST_PLACES * len(np.unique(distinct)):
        return None
    is_padded = (low < values.min(axis=0)) | (high > values.max(axis=0))
    axes = np.argsort(~is_padded & (shape[~is_padded].prod() % LINE == 0), kind="stable")
    places: Ints = np.ravel_multi_index(tuple(np.moveaxis((cells - low)[..., axes], -1, 0)), tuple(shape[axes]))
    return places[row_of.reshape(-1)]


def _boxes(size: int, most: int = MOST_AXES) -> Iterator[tuple[int, ...]]:
    """The shapes of so many elements, those with few axes first."""
    for axes in range(1, most + 1):
        yield from _factors(size, axes)


def _factors(size: int, count: int) -> Iterator[tuple[int, ...]]:
    """The ways to write a size as a product of so many numbers greater than 1."""
    if count == 1 and size > 1:
        yield (size,)
    for first in range(2, size // 2 + 1) if count > 1 else ():
        if size % first == 0:
            for rest in _factors(size // first, count - 1):
                yield first, *rest


def _by_elements(rows: Ints) -> Ints | None:
    """The coordinates of what each row reads in a box of all elements, with as few axes as possible."""
    is_value = rows >= 0
    elements = np.unique(rows[is_value])
    if not is_value.any(axis=1).all() or not is_value.all(axis=1).any():
        return None
    middle = int(is_value.all(axis=1).argmax())
    some = np.unique([middle, *range(0, len(rows), 1 + len(rows) // SOME_ROWS)])
    for shape in _boxes(len(elements)):
        if _in_box(rows[some], elements, rows[middle], shape) is None:
            continue
        cells = _in_box(rows, elements, rows[middle], shape)
        if cells is not None:
            return cells
    return None


def _in_box(rows: Ints, elements: Ints, middle: Ints, shape: tuple[int, ...]) -> Ints | None:
    """The coordinates of what each row reads, if the elements fill a box of this shape and constants lie outside."""

    def coordinates(nodes: Ints) -> Ints:
        return np.stack(np.unravel_index(np.searchsorted(elements, nodes.clip(elements[0])), shape), axis=-1)

    is_value = rows >= 0
    distance = coordinates(rows) - coordinates(middle)
    first = distance[np.arange(len(rows)), is_value.argmax(axis=1)][:, None]
    if (distance != first)[is_value].any():
        return None
    cells: Ints = coordinates(middle) + first
    is_outside = ((cells < 0) | (cells >= np.array(shape))).any(axis=-1)
    return cells if (is_outside == ~is_value).all() else None


def _by_uses(rows: Ints) -> Ints | None:
    """The coordinates of what each row reads, those of a plane of elements around the box of one of its rows.

    Planes, as of channels, have no element in common. They are the first axis.
    """
    plane = _planes(rows)
    planes = [np.flatnonzero(plane == number) for number in np.unique(plane)]
    if min(map(len, planes)) < 2 or rows.shape[1] * len(planes) > MOST_PLACES * len(np.unique(rows)):
        return None  # the second: each plane has a place for each use at least, too many for find_windows()
    planes.sort(key=lambda members: int(rows[members].max()))
    for shape in _boxes(rows.shape[1], MOST_AXES - 1):
        cells = np.zeros((*rows.shape, 1 + len(shape)), np.int64)
        for number, members in enumerate(planes):
            found = _shifted(rows[members], shape)
            if found is None:
                break
            cells[members, :, 0], cells[members, :, 1:] = number, found
        else:
            return cells if _is_more_than_elements(rows, cells) else None
    return None


def _planes(rows: Ints) -> Ints:
    """A number for each row, the same for those that share a value, directly or through others."""
    plane = np.arange(len(rows))
    elements, position = np.unique(rows, return_inverse=True)
    position, is_value = position.reshape(rows.shape), rows >= 0
    row = np.broadcast_to(plane[:, None], rows.shape)
    while True:
        lowest = np.full(len(elements), len(rows))
        np.minimum.at(lowest, position[is_value], plane[row[is_value]])
        new: Ints = np.minimum(plane, np.where(is_value, lowest[position], len(rows)).min(axis=1))
        if (new == plane).all():
            return plane
        plane = new


def _shifted(rows: Ints, shape: tuple[int, ...]) -> Ints | None:
    """The coordinates of what each row reads, if its uses are a box that is that of one of them, shifted."""
    uses = np.arange(rows.shape[1])
    at = np.stack(np.unravel_index(uses, shape), axis=-1)
    base = rows[max(range(len(rows)), key=lambda row: len(np.unique(rows[row][rows[row] >= 0])))]
    from_middle = abs(2 * at + 1 - np.array(shape)).max(axis=-1)  # a border may read other elements
    cells = np.zeros((*rows.shape, len(shape)), np.int64)
    for number, row in enumerate(rows):
        shared = np.flatnonzero((row >= 0) & np.isin(row, base))
        use = shared[from_middle[shared].argmin()] if len(shared) else 0
        for other in np.flatnonzero(base == row[use]).tolist():
            found = at + (at[other] - at[use])
            is_inside = ((found >= 0) & (found < np.array(shape))).all(axis=-1)
            if (base[np.ravel_multi_index(tuple(found[is_inside].T), shape)] == row[is_inside]).all():
                cells[number] = found
                break
        else:
            return None
    return cells


def _is_more_than_elements(rows: Ints, cells: Ints) -> bool:
    """Whether there are constants, or elements in several cells. Other windows are those of values as they are."""
    if (rows < 0).any():
        return True
    read = np.concatenate([rows[..., None], cells], axis=-1).reshape(rows.size, -1)
    return len(np.unique(read, axis=0)) > len(np.unique(rows))
