"""Columns that gradients read again and again -> rows, copied once.

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

Lanes that are far apart are loaded one by one and put together, for each tile of gradients anew. The copy costs as much
once, and next to nothing where images lie side by side. Passes later on see one more kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.ir.loops import (
    VALUE,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Loops,
    Pass,
    Place,
    Region,
    Regions,
    Store,
    map_body,
    reads,
    statements,
)
from codegen.reroll.layout import aligned, padded
from codegen.schedule.nest import result, root_loops

FEWEST_LANES = 4  # of which a copy makes vectors
NOT_COMPUTED = ("INPUT", "TARGET", "NOISE")
FEWEST_READS = 4  # of each number: as often as the rows of a tile share one


@dataclass(frozen=True)
class Matrix:
    """A region of value[] as rows of `stride` numbers. Lanes of gradients read columns of it."""

    region: Region
    stride: int

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
    reads: int = 0

    @property
    def columns(self) -> int:
        return self.last - self.first + 1

    @property
    def size(self) -> int:
        return self.columns * self.rows

    def is_within(self, matrix: Matrix) -> bool:
        """Whether all that is copied is in the region."""
        return matrix.stride * (self.rows - 1) + self.last < matrix.region.row


def copy_columns(loops: Loops, cache_line: int) -> Loops:
    """With the copies that pay. `cache_line`: rows of the copies are padded to multiples of so many numbers."""
    copies: dict[Matrix, Copy] = {}
    for place, matrix, counts in _column_reads(loops):
        _widen(copies, place, matrix, counts)
    paying = {
        matrix: copy
        for matrix, copy in copies.items()
        if copy.reads >= FEWEST_READS * copy.size and copy.is_within(matrix)
    }
    return _with_copies(loops, paying, cache_line) if paying else loops


def _column_reads(loops: Loops) -> Iterator[tuple[Place, Matrix, dict[str, int]]]:
    """What lanes of gradients read from columns, and how often each loop around it runs."""
    for kernel in loops.kernels:
        if kernel.passes != Pass.DENSE_GRADIENTS:
            continue
        for nest in kernel.nests:
            counts = {stmt.counter: stmt.count for stmt in statements(nest) if type(stmt) is For}
            for loops_around, place in _places(nest, {}):
                matrix = _matrix(loops, nest, place, counts)
                if matrix is not None:
                    yield place, matrix, loops_around


def _places(body: Body, around: dict[str, int]) -> Iterator[tuple[dict[str, int], Place]]:
    """Every place that a body reads, and the loops around it."""
    for stmt in body:
        if type(stmt) is For:
            yield from _places(stmt.body, {**around, stmt.counter: stmt.count})
        else:
            yield from ((around, place) for place in reads(stmt))


def _matrix(loops: Loops, nest: Body, place: Place, counts: dict[str, int]) -> Matrix | None:
    """The matrix of which lanes read a column, if each of its numbers is where one formula says."""
    roots = root_loops(nest)
    if not roots or roots[-1].count < FEWEST_LANES or place.array != VALUE or place.index.tables:
        return None
    index, stride = place.index, place.index.stride(roots[-1].counter)
    region = loops.region(VALUE, index.base)
    if region.name in NOT_COMPUTED:
        return None
    if stride <= 1 or not region.start <= _least(index, counts) <= _most(index, counts) < region.start + region.row:
        return None
    matrix = Matrix(region, stride)
    row, column = matrix.at(index)
    is_inside = _least(column, counts) >= 0 and _most(column, counts) < stride and _least(row, counts) >= 0
    return matrix if is_inside else None


def _least(index: Index, counts: dict[str, int]) -> int:
    return index.base + sum(step * (counts[name] - 1) for step, name in index.steps if step < 0)


def _most(index: Index, counts: dict[str, int]) -> int:
    return index.base + sum(step * (counts[name] - 1) for step, name in index.steps if step > 0)


def _widen(copies: dict[Matrix, Copy], place: Place, matrix: Matrix, counts: dict[str, int]) -> None:
    """Counts a read, and lets the copy reach as far as it does."""
    row, column = matrix.at(place.index)
    first, last, rows = _least(column, counts), _most(column, counts), _most(row, counts) + 1
    copy = copies.setdefault(matrix, Copy(first, last, rows))
    copy.first, copy.last, copy.rows = min(copy.first, first), max(copy.last, last), max(copy.rows, rows)
    times = 1
    for count in counts.values():
        times *= count
    copy.reads += times


def _with_copies(loops: Loops, copies: dict[Matrix, Copy], cache_line: int) -> Loops:
    writers = {_region(loops, kernel).start: kernel for kernel in loops.kernels if not kernel.is_gradient}
    number, length = max(kernel.number for kernel in loops.kernels) + 1, aligned(loops.lengths[VALUE], cache_line)
    found: dict[Matrix, Region] = {}
    kernels: list[Kernel] = []
    for matrix, copy in copies.items():
        row = padded(copy.rows, cache_line)
        name, title = f"{matrix.region.name}_COLUMNS_{matrix.stride}", f"{matrix.region.title}.columns"
        region = found[matrix] = Region(length, name, title, copy.rows, row, row * copy.columns)
        kernels.append(_kernel(number + len(kernels), matrix, copy, region, writers[matrix.region.start].nodes))
        length = aligned(length + region.extent, cache_line)
    changed = [_reading(loops, kernel, copies, found) for kernel in loops.kernels]
    last = max(i for i, kernel in enumerate(changed) if not kernel.is_gradient) + 1
    return replace(
        loops,
        kernels=(*changed[:last], *kernels, *changed[last:]),
        lengths={**loops.lengths, VALUE: length},
        regions={**loops.regions, VALUE: Regions([*loops.regions[VALUE], *found.values()])},
    )


def _region(loops: Loops, kernel: Kernel) -> Region:
    """The first region that a kernel writes."""
    place = result(kernel.nests[0])
    return loops.region(place.array, place.index.base)


def _kernel(number: int, matrix: Matrix, copy: Copy, region: Region, nodes: tuple[int, int]) -> Kernel:
    to = Place(VALUE, Index(region.start, ((region.row_length, "i"), (1, "j"))))
    source = Place(VALUE, Index(matrix.region.start + copy.first, ((1, "i"), (matrix.stride, "j"))))
    nest: Body = (For("i", copy.columns, (For("j", copy.rows, (Store(to, source),)),)),)
    return Kernel(number, Pass.GRADIENTS, (nest,), nodes, copy.size)


def _reading(loops: Loops, kernel: Kernel, copies: dict[Matrix, Copy], found: dict[Matrix, Region]) -> Kernel:
    """The kernel, with what its lanes read from columns replaced."""
    if kernel.passes != Pass.DENSE_GRADIENTS:
        return kernel
    nests = []
    for nest in kernel.nests:
        counts = {stmt.counter: stmt.count for stmt in statements(nest) if type(stmt) is For}

        def change(expr: Expr, nest: Body = nest, counts: dict[str, int] = counts) -> Expr:
            matrix = _matrix(loops, nest, expr, counts) if type(expr) is Place else None
            if matrix not in found or type(expr) is not Place:
                return expr
            (row, column), region = matrix.at(expr.index), found[matrix]
            base = region.start + row.base + region.row_length * (column.base - copies[matrix].first)
            steps = (*row.steps, *((region.row_length * step, name) for step, name in column.steps))
            return Place(VALUE, Index(base, steps))

        nests.append(map_body(nest, change))
    return kernel.with_nests(tuple(nests))
