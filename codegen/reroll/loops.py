"""Groups -> the loop language, in its plainest form: one root at a time, one term at a time.

Example input: the nest of 50 roots relu(sum(P, 784 x mul(P, X))) becomes:

    for i < 50:
        let sum = data[39200 + i]
        for k < 784:
            sum += mul(data[i + 50k], value[k])
        value[800 + i] = relu(sum)

and a group of gradients, n x add(G, mul(X, R)):

    for i < 784:
        for j < 50:
            grad[i + 50j] += mul(value[i], value[856 + j])

How these loops run is decided in `schedule`. Counters over roots are i, j, l, ..., those over terms k, u, v, ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count, repeat

import numpy as np

from codegen.ir.graph import Graph, Op
from codegen.ir.loops import (
    DATA,
    GRAD,
    TOKEN,
    VALUE,
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Holds,
    Index,
    Kernel,
    Let,
    Loops,
    Name,
    Pass,
    Place,
    Region,
    Regions,
    Store,
)
from codegen.program import Program
from codegen.reroll.affine import Loop, Piece
from codegen.reroll.layout import FIRST_TOKEN, GroupLayout, Layout, padded
from codegen.reroll.lower import RESULT, Floats, Nest, Terms, lower
from codegen.reroll.names import group_names, tensor_names
from codegen.reroll.trees import ROOT_KIND, Shapes

ARRAYS = {
    int(Op.PARAM): DATA,
    int(Op.GRAD): GRAD,
    int(Op.INPUT): VALUE,
    int(Op.TARGET): VALUE,
    ROOT_KIND: VALUE,
}
ROOT_COUNTERS = "ijlmno"
TERM_COUNTERS = "kuvpqr"
SUM = "sum"


def find_loops(graph: Graph, layout: Layout, shapes: Shapes, program: Program) -> Loops:
    """Every group as a kernel, in the order of their numbers."""
    tables = _Tables()
    kernels = tuple([_kernel(graph, layout, shapes, stored, tables) for stored in layout.groups])
    return Loops(
        kernels=kernels,
        lengths={DATA: layout.data_count, VALUE: layout.value_count, TOKEN: layout.token_count},
        tables=tables.named,
        regions=_regions(graph, layout, program),
        inputs=layout.input_count,
    )


def tree(shapes: Shapes, shape: int, leaves: Iterator[Expr]) -> Expr:
    """The expression of a tree, without sums."""
    if shapes.is_leaf(shape):
        return next(leaves)
    return Apply(shapes[shape][0], tuple([tree(shapes, operand, leaves) for operand in shapes.operands(shape)]))


def neutral(op: int) -> float:
    """The neutral element of a sum or a maximum: combined with a term, it leaves the bits of the term."""
    return -0.0 if op == Op.ADD else -math.inf


def is_neutral(expr: Expr | Index, op: int) -> bool:
    """Whether an expression is the neutral element of an op: the start of a sum without a first term of its own."""
    return isinstance(expr, Const) and repr(expr.value) == repr(neutral(op))


def counter(letters: str, i: int) -> str:
    return letters[i] if i < len(letters) else f"{letters[0]}{i}"


def _kernel(graph: Graph, layout: Layout, shapes: Shapes, stored: GroupLayout, tables: _Tables) -> Kernel:
    group = stored.group
    table_numbers = count()
    nests = [_Nest(shapes, stored, nest, tables, table_numbers).body() for nest in lower(graph, layout, stored)]
    nests = [*_margins(stored), *nests]
    passes = Pass.DENSE_GRADIENTS if group.is_gradient else group.passes
    nodes = int(group.roots.min()), int(group.roots.max())
    box = stored.box.needed if stored.box else ()
    return Kernel(stored.number, passes, tuple(nests), nodes, len(group.roots), group.is_gradient, box=box)


def _margins(stored: GroupLayout) -> Iterator[Body]:
    """Zeros before and behind the results of a group."""
    for start, zeros in zip((stored.start, stored.offset + stored.size), stored.margin, strict=True):
        if zeros:
            yield (For("i", zeros, (Store(Place(VALUE, Index(start, ((1, "i"),))), Const(0.0)),)),)


class _Tables:
    """Tables by name, and names by the bits of their numbers.

    Tables of equally many constants are one, one behind the other: steps of a sequence whose constants differ read it
    at an even distance, and can be a loop.
    """

    def __init__(self) -> None:
        self.named: dict[str, list[float]] = {}
        self.names: dict[bytes, str] = {}
        self.of_length: dict[int, str] = {}
        self.first: dict[bytes, int] = {}  # where constants begin

    def name(self, numbers: list[int], name: str) -> str:
        """The name of a table with these indices: an older one's, or the one that is given."""
        key = np.array(numbers).tobytes()
        if key not in self.names:
            self.names[key] = name
            self.named[name] = [*numbers]
        return self.names[key]

    def constants(self, numbers: list[float], name: str) -> tuple[str, int]:
        """The table that has these constants, and from where on. `name`: of a new one."""
        key = np.array(numbers).tobytes()
        name = self.of_length.setdefault(len(numbers), name)
        table = self.named.setdefault(name, [])
        if key not in self.first:
            self.first[key] = len(table)
            table += numbers
        return name, self.first[key]


class _Nest:
    """Translates one nest of a group to the loop language."""

    def __init__(
        self,
        shapes: Shapes,
        stored: GroupLayout,
        nest: Nest,
        tables: _Tables,
        table_numbers: Iterator[int],
    ) -> None:
        self.shapes, self.stored, self.nest, self.tables = shapes, stored, nest, tables
        self.table_numbers = table_numbers
        self.counters = [counter(ROOT_COUNTERS, i) for i in range(len(nest.loops))]
        self.terms_counted = 0
        self.named: dict[tuple[int, int], str] = {}  # tables of this nest, by the loop and the column

    def body(self) -> Body:
        combine, terms = self.stored.combine, self.nest.terms
        body: Body
        if combine is None:
            body = (Store(self.result(), self.term(terms[0][0], 0, [], [])),)
        elif self.stored.group.is_gradient:  # the first term is the old gradient
            body = self.accumulate(self.result(), combine, terms[1:])
        else:
            start: Expr = Const(neutral(combine))
            first = terms[0][0]
            if first.run.count == 1 and not first.pieces[0].loops and len(terms) > 1:
                start, terms = self.term(terms[0][0], 0, [], []), terms[1:]
            total: Expr = Name(SUM)
            for op in self.stored.post:
                total = Apply(op, (total,))
            body = (Let(SUM, start), *self.accumulate(Name(SUM), combine, terms), Store(self.result(), total))
        for loop, name in zip(reversed(self.nest.loops), reversed(self.counters), strict=True):
            body = (For(name, loop.count, body),)
        return body

    def accumulate(self, target: Place | Name, op: int, runs: list[tuple[Terms, ...]]) -> Body:
        return tuple(
            [
                stmt
                for alternating in runs
                for pieces in zip(*(terms.pieces for terms in alternating), strict=True)
                for stmt in self.piece(target, op, alternating, pieces)
            ]
        )

    def piece(self, target: Place | Name, op: int, alternating: tuple[Terms, ...], pieces: tuple[Piece, ...]) -> Body:
        """The loops over a piece of some terms; terms that alternate have equally many in one loop."""
        counts = [loop.count for loop in reversed(pieces[0].loops)]
        counters = [counter(TERM_COUNTERS, self.terms_counted + i) for i in range(len(counts))]
        self.terms_counted += len(counts)
        body: Body = tuple(
            [
                Accumulate(target, op, self.term(terms, piece.start, piece.loops[::-1], counters))
                for terms, piece in zip(alternating, pieces, strict=True)
            ]
        )
        for length, name in zip(reversed(counts), reversed(counters), strict=True):
            body = (For(name, length, body),)
        return body

    def term(self, terms: Terms, row: int, loops: list[Loop], counters: list[str]) -> Expr:
        leaves = [self.leaf(terms, k, offset, loops, counters) for k, offset in enumerate(terms.offsets[row].tolist())]
        return tree(self.shapes, terms.run.shape, iter(leaves))

    def leaf(self, terms: Terms, k: int, offset: int, loops: list[Loop], counters: list[str]) -> Expr:
        key, column = terms.run.column + k, terms.columns[k]
        if key in self.nest.literals:
            return Const(self.nest.literals[key])
        array = ARRAYS.get(terms.run.kinds[k], "")
        first = int(self.nest.first[column]) + offset
        if key in self.nest.tables:
            return self.constants(self.nest.tables[key], first, column, k, loops, counters)
        if terms.run.kinds[k] == Op.INPUT and first >= FIRST_TOKEN:
            array, first = TOKEN, first - FIRST_TOKEN
        steps, tables = self.walk(self.nest.loops, self.counters, column)
        inner_steps, inner_tables = self.walk(loops, counters, k)
        return Place(array, Index(first, steps + inner_steps, tables + inner_tables))

    def constants(
        self, numbers: Floats, first: int, column: int, k: int, loops: list[Loop], counters: list[str]
    ) -> Expr:
        """An element of a table with an axis for each loop along which constants differ, lanes innermost."""
        axes = [*zip(self.counters, self.nest.loops, repeat(column)), *zip(counters, loops, repeat(k))]
        lanes = len(self.counters) - 1
        if lanes >= 0:
            axes.append(axes.pop(lanes))
        indices = np.array(first)
        for _, loop, c in axes:
            distances = loop.strides[c] * np.arange(loop.count) + (0 if loop.rows is None else loop.rows[:, c])
            indices = indices[..., None] + distances
        table = numbers[indices]
        names: list[str] = []
        for axis, (name, _, _) in reversed([*enumerate(axes)]):
            one = table.take([0], axis)
            if (one.view(np.int64) == table.view(np.int64)).all():
                table = one.squeeze(axis)
            else:
                names.insert(0, name)
        if not names:
            return Const(float(table))
        steps = zip([stride // table.itemsize for stride in np.ascontiguousarray(table).strides], names, strict=True)
        name, start = self.tables.constants(table.ravel().tolist(), self.table_name())
        return Place(name, Index(start, tuple(steps)))

    def result(self) -> Place:
        array = GRAD if self.stored.group.is_gradient else VALUE
        return Place(array, Index(int(self.nest.first[RESULT]), *self.walk(self.nest.loops, self.counters, RESULT)))

    def walk(
        self, loops: list[Loop], counters: list[str], column: int
    ) -> tuple[tuple[tuple[int, str], ...], tuple[tuple[str, Index], ...]]:
        """How a column's index depends on loops: strides, and tables."""
        if not loops:
            return (), ()
        steps = [(int(loop.strides[column]), name) for loop, name in zip(loops, counters, strict=True)]
        tables = [
            (self.table(loop, column), Index(0, ((1, name),)))
            for loop, name in zip(loops, counters, strict=True)
            if loop.rows is not None and loop.rows[:, column].any()
        ]
        return tuple([step for step in steps if step[0]]), tuple(tables)

    def table(self, loop: Loop, column: int) -> str:
        """The name of a table of indices. Equal ones are one, as those of the layers of a stack."""
        assert loop.rows is not None
        key = id(loop), column
        if key not in self.named:
            self.named[key] = self.tables.name(loop.rows[:, column].tolist(), self.table_name())
        return self.named[key]

    def table_name(self) -> str:
        return f"table_{self.stored.number}_{next(self.table_numbers)}"


def _regions(graph: Graph, layout: Layout, program: Program) -> dict[str, Regions]:
    inputs, targets, noise = layout.input_count, len(program.target_values), len(program.noise_values)
    line = layout.cache_line
    values, room = list[Region](), layout.target_offset
    if inputs:
        values.append(Region(0, "INPUT", "input", inputs, room, room, Holds.INPUTS))
    if targets:
        values.append(Region(room, "TARGET", "target", targets, targets, targets, Holds.TARGETS))
    if noise:
        values.append(Region(room + targets, "NOISE", "noise", noise, noise, noise, Holds.NOISE))
    first = {group.start: group for group in reversed(layout.groups) if group.offset >= 0}  # of those in a grid
    stored = sorted(first.values(), key=lambda group: group.start)
    ends = [*(group.start for group in stored[1:]), layout.value_count]
    for group, end, (name, title) in zip(stored, ends, group_names(graph, stored), strict=True):
        count = group.grid.size if group.grid else group.extent
        room = min(padded(count, line), end - group.start)  # there may be none between the members of a family
        values.append(Region(group.start, name, title, count, room, room))
    tensors = []
    for place, name in zip(layout.tensors, tensor_names(place.tensor.name for place in layout.tensors), strict=True):
        row, row_length = place.row
        tensors.append(Region(place.offset, name, place.tensor.name, row, row_length, place.extent))
    count = layout.token_count
    tokens = [Region(0, "TOKEN", "token", count, count, count)] if count else []
    return {DATA: Regions(tensors), VALUE: Regions(values), TOKEN: Regions(tokens)}
