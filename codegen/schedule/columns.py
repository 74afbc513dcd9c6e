"""Columns that lanes read again and again -> rows, copied once.

Example input: a network at 32 points, which its loss is about, has the values of a unit at all points side by side. The
lanes of a gradient are units, 32 numbers apart:

    kernel 30:
        for i < 10:
            for j < 10:
                for k < 32:
                    grad[12i + j] += mul(value[400 + 32i + k], value[720 + 32j + k])

becomes, with a kernel that copies what the lanes read:

    kernel 35:
        for i < 32:
            for j < 10:
                value[1200 + 12i + j] = value[720 + i + 32j]
    kernel 30:
        for i < 10:
            for j < 10:
                for k < 32:
                    grad[12i + j] += mul(value[400 + 32i + k], value[1200 + 12k + j])

Lanes that are far apart are loaded one by one and put together, or transposed tile by tile, for each row of results
anew. The copy costs as much once.

Images side by side are lanes themselves. So there are two such passes: one for gradients, which single images and
batches share, and one for all else that single images compute, where columns may be those of parameters too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod

from codegen.ir.loops import (
    DATA,
    LEAVES,
    VALUE,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Loops,
    Pass,
    Phase,
    Place,
    Region,
    Regions,
    Store,
    map_body,
    reads,
)
from codegen.reroll.layout import aligned, padded
from codegen.schedule.nest import is_copy, result, root_loops

FEWEST_LANES = 4  # of which a copy makes vectors
FEWEST_READS = 4  # of each number
MOST_NUMBERS = 2**16  # of all copies, which each image of a block has room for


def copy_columns_of_gradients(loops: Loops, cache_line: int, reorder: bool = False) -> Loops:
    """With copies of what gradients read. `cache_line`: rows of copies are padded to multiples of so many numbers.

    `reorder`: groups of images may add gradients, which reads no columns: see groups_of_images.py.
    """
    readers = [kernel for kernel in loops.kernels if kernel.passes == Pass.DENSE_GRADIENTS]
    return _Copies(loops, readers, (VALUE,), FEWEST_READS if reorder else 1).made(cache_line, Phase.BY_IMAGE)


def copy_columns(loops: Loops, cache_line: int, phases: Mapping[int, Phase]) -> Loops:
    """With copies of what other kernels read, if a batch has these side by side. `phases`: how they run there; without,
    all run image by image, and so do copies.
    """
    readers = [
        kernel
        for kernel in loops.kernels
        if not kernel.passes & (Pass.DENSE_GRADIENTS | Pass.ROW_GRADIENTS | Pass.TOKEN_ROWS)
        and phases.get(kernel.number, Phase.SIDE_BY_SIDE) == Phase.SIDE_BY_SIDE
    ]
    return _Copies(loops, readers, (DATA, VALUE)).made(cache_line, Phase.SIDE_BY_SIDE if phases else Phase.BY_IMAGE)


@dataclass(frozen=True)
class Matrix:
    """A region of value[] or data[], or some neighbours, as rows of `stride` numbers; lanes of kernels of `passes` read
    columns of it.
    """

    array: str
    region: Region
    stride: int
    passes: Pass

    def starts(self, loops: Loops) -> list[int]:
        """Of the regions that it consists of."""
        first, end = self.region.start, self.region.start + self.region.extent
        return [region.start for region in loops.regions[self.array] if first <= region.start < end]

    def at(self, index: Index) -> tuple[Index, Index]:
        """The row and the column of an element."""
        offset = index.base - self.region.start
        down = tuple([(step // self.stride, name) for step, name in index.steps if step % self.stride == 0])
        across = tuple([(step, name) for step, name in index.steps if step % self.stride])
        return Index(offset // self.stride, down), Index(offset % self.stride, across)


@dataclass
class Copy:
    """The columns `first` .. `last` of a matrix, as far as its row `rows - 1`."""

    first: int
    last: int
    rows: int
    reads: int
    reader: int  # the position of the first kernel that reads it

    @property
    def columns(self) -> int:
        return self.last - self.first + 1

    def pays(self, matrix: Matrix, fewest: int) -> bool:
        """Whether each number is read so often; and all that is copied must be in the region."""
        is_inside = matrix.stride * (self.rows - 1) + self.last < matrix.region.extent
        return is_inside and self.reads >= fewest * self.columns * self.rows


class _Copies:
    """What lanes of some kernels read from columns of some arrays."""

    def __init__(
        self, loops: Loops, readers: list[Kernel], arrays: tuple[str, ...], fewest: int = FEWEST_READS
    ) -> None:
        self.loops, self.arrays, self.fewest = loops, arrays, fewest
        self.readers = {kernel.number for kernel in readers}
        self.copies: dict[Matrix, Copy] = {}
        self.matrices: dict[tuple[int, int, Place], Matrix] = {}  # by kernel, nest and place
        for position, kernel in enumerate(loops.kernels):
            for n, nest in enumerate(kernel.nests if kernel.number in self.readers else ()):
                if is_copy(nest):
                    continue
                for counts, place in _places(nest, {}):
                    matrix = self.matrix(kernel, nest, place, counts)
                    if matrix is not None:
                        self.matrices[kernel.number, n, place] = matrix
                        self.count(matrix, place, counts, position)

    def matrix(self, kernel: Kernel, nest: Body, place: Place, counts: dict[str, int]) -> Matrix | None:
        """The matrix of which lanes read a column, if each of its numbers is where one formula says."""
        roots, index = root_loops(nest), place.index
        if not roots or roots[-1].count < FEWEST_LANES or place.array not in self.arrays or index.tables:
            return None
        stride, regions = index.stride(roots[-1].counter), self.loops.regions[place.array]
        least, most = _least(index, counts), _most(index, counts)
        region, last = regions.at(least), regions.at(most)
        end = last.start + last.extent
        if stride <= 1 or region.holds in LEAVES or not region.start <= least <= most < end:
            return None
        region = replace(region, extent=end - region.start)
        passes = Pass.GRADIENTS if kernel.is_gradient else kernel.passes
        matrix = Matrix(place.array, region, stride, passes)
        row, column = matrix.at(index)
        is_regular = _least(column, counts) >= 0 and _most(column, counts) < stride and _least(row, counts) >= 0
        return matrix if is_regular else None

    def count(self, matrix: Matrix, place: Place, counts: dict[str, int], position: int) -> None:
        """Counts a read, and lets the copy reach as far as it does."""
        row, column = matrix.at(place.index)
        first, last, rows = _least(column, counts), _most(column, counts), _most(row, counts) + 1
        copy = self.copies.setdefault(matrix, Copy(first, last, rows, 0, position))
        copy.first, copy.last, copy.rows = min(copy.first, first), max(copy.last, last), max(copy.rows, rows)
        copy.reads += prod(counts.values())

    def made(self, cache_line: int, phase: Phase) -> Loops:
        """The loops with the copies that pay, as far as there is room for them.

        `phase`: that of images side by side for copies that batches do without, because lanes are images there.
        """
        loops = self.loops
        number = max((kernel.number for kernel in loops.kernels), default=-1) + 1
        length = aligned(loops.lengths[VALUE], cache_line)
        most = length + MOST_NUMBERS
        known = self.known_from()
        found: dict[Matrix, Region] = {}
        before: dict[int, list[Kernel]] = {}  # kernels, by the position of the next one
        for matrix, copy in self.copies.items():
            first = max([known.get(start, 0) for start in matrix.starts(loops)]) if matrix.array == VALUE else 0
            row = padded(copy.rows, cache_line)
            if not copy.pays(matrix, self.fewest) or copy.reader < first or length + row * copy.columns > most:
                continue
            names = f"COLUMNS_{number}", f"{matrix.region.title}.columns"
            region = Region(length, *names, copy.rows, row, row * copy.columns)
            nodes = loops.kernels[first - 1 if first else copy.reader].nodes
            position = self.among_others(first, copy.reader, matrix.passes)
            before.setdefault(position, []).append(_kernel(number, matrix, copy, region, nodes, phase))
            found[matrix] = region
            number, length = number + 1, aligned(length + region.extent, cache_line)
        if not found:
            return loops
        kernels = [[*before.get(i, ()), self.reading(kernel, found)] for i, kernel in enumerate(loops.kernels)]
        return replace(
            loops,
            kernels=(*chain.from_iterable(kernels), *before.get(len(loops.kernels), ())),
            lengths={**loops.lengths, VALUE: length},
            regions={**loops.regions, VALUE: Regions([*loops.regions[VALUE], *found.values()])},
        )

    def known_from(self) -> dict[int, int]:
        """For the start of each region of value[] the position after the last kernel that computes a part of it."""
        computing = [(i, kernel) for i, kernel in enumerate(self.loops.kernels) if not kernel.is_gradient]
        return {
            self.loops.region(VALUE, result(nest).index.base).start: i + 1 for i, k in computing for nest in k.nests
        }

    def among_others(self, position: int, last: int, passes: Pass) -> int:
        """The next position, up to the last, in front of a kernel that runs in the same passes, if there is one.

        A copy for gradients between kernels of the forward pass would keep these from being repeats of one another.
        """
        kernels = self.loops.kernels
        return next((i for i in range(position, last + 1) if kernels[i].passes == passes), position)

    def reading(self, kernel: Kernel, found: dict[Matrix, Region]) -> Kernel:
        """The kernel, with what its lanes read from columns replaced."""

        def change(n: int, expr: Expr) -> Expr:
            matrix = self.matrices.get((kernel.number, n, expr)) if type(expr) is Place else None
            if matrix not in found or type(expr) is not Place:
                return expr
            (row, column), region = matrix.at(expr.index), found[matrix]
            base = region.start + row.base + region.row_length * (column.base - self.copies[matrix].first)
            steps = (*row.steps, *((region.row_length * step, name) for step, name in column.steps))
            return Place(VALUE, Index(base, steps))

        if kernel.number not in self.readers:
            return kernel
        return kernel.with_nests(tuple([map_body(nest, partial(change, n)) for n, nest in enumerate(kernel.nests)]))


def _places(body: Body, counts: dict[str, int]) -> Iterator[tuple[dict[str, int], Place]]:
    """Every place that a body reads, and how often each loop around it runs."""
    for stmt in body:
        if type(stmt) is For:
            yield from _places(stmt.body, {**counts, stmt.counter: stmt.count})
        else:
            yield from ((counts, place) for place in reads(stmt))


def _least(index: Index, counts: dict[str, int]) -> int:
    return index.base + sum(step * (counts[name] - 1) for step, name in index.steps if step < 0)


def _most(index: Index, counts: dict[str, int]) -> int:
    return index.base + sum(step * (counts[name] - 1) for step, name in index.steps if step > 0)


def _kernel(number: int, matrix: Matrix, copy: Copy, region: Region, nodes: tuple[int, int], phase: Phase) -> Kernel:
    to = Place(VALUE, Index(region.start, ((region.row_length, "i"), (1, "j"))))
    source = Place(matrix.array, Index(matrix.region.start + copy.first, ((1, "i"), (matrix.stride, "j"))))
    nest: Body = (For("i", copy.columns, (For("j", copy.rows, (Store(to, source),)),)),)
    return Kernel(number, matrix.passes, (nest,), nodes, copy.columns * copy.rows, phase=phase)
