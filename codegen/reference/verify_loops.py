"""The rules that legal loops obey. Tests and the fuzzer check them after each pass.

* Counters, names and Locals are in scope where they are used, and no counter shadows another.
* Every place is inside its array; padding lanes may read up to SLACK numbers past its end.
* Only value[], grad[] and Locals are written, by steps data[] instead of grad[], and each element of these arrays by
  one nest only, except that a kernel of row sums adds to what another has stored. No two iterations of lanes or of a
  parallel loop write the same element.
* Before rows are padded: what a kernel reads of value[] is an input, a target, the row of a token, or written by an
  earlier kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from codegen.ir.loops import (
    DATA,
    GRAD,
    IMAGE_COUNT,
    INPUTS,
    LEAVES,
    ROWS_OF_IMAGES,
    SHARED,
    STEP,
    TOKEN,
    VALUE,
    VALUES,
    Body,
    For,
    Holds,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Nest,
    Pass,
    Place,
    Prefetch,
    Stmt,
    applied_to_each,
    expressions,
    reads,
    statements,
    subexpressions,
    substituted,
    writes,
)
from codegen.reference.print_loops import kernel_lines, statement_lines
from codegen.schedule.nest import in_time

ROW_SUMS = Pass.ROW_SUMS | ROWS_OF_IMAGES
OF_SUMS = Pass.FROM_SUMS | Pass.SUM_GRADIENTS
SLACK = 16  # numbers after the last one of each array

Ints = npt.NDArray[np.int64]


def verify_loops(loops: Loops, is_padded: bool = True) -> None:
    """Raises ValueError, with the statement's text, for anything illegal. `is_padded`: lanes may include padding."""
    written = {array: np.zeros(loops.length(array) + SLACK, bool) for array in (VALUE, SHARED, GRAD, DATA)}
    known = written[VALUE]
    has_rows = any(kernel.passes & Pass.TOKEN_ROWS for kernel in loops.kernels)  # else run-time code copies them
    for region in loops.regions[VALUE]:
        if region.holds in LEAVES or (region.holds == Holds.TOKEN_ROWS and not has_rows):
            known[region.start : region.start + region.row] = True
    for kernel in in_time(loops):
        before = {array: elements.copy() for array, elements in written.items()}
        for nest in kernel.nests:
            checker = _Checker(loops, kernel, before, written, is_padded)
            checker.body(nest, _Scope(names={IMAGE_COUNT} if kernel.passes & OF_SUMS else set()))
            for array, indices in checker.stored.items():
                elements = np.unique(np.concatenate(indices))
                if array == VALUE and known[elements].any() and not kernel.passes & ROW_SUMS:
                    _fail(kernel, f"{array}[{elements[known[elements]][0]}] has been written before")
                written[array][elements] = True


def _counted(stmt: Stmt) -> list[str]:
    """The counters with which a loop's count grows."""
    return [name for _, name in stmt.steps] if isinstance(stmt, For) else []


def _fail(kernel: Kernel, message: str) -> None:
    raise ValueError("\n".join([message, *kernel_lines(kernel)]))


@dataclass
class _Scope:
    counters: dict[str, For] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    places: dict[str, Index] = field(default_factory=dict)
    locals: dict[str, int] = field(default_factory=dict)

    def inside(self, loop: For) -> _Scope:
        names = self.names | {loop.input} if loop.input else set(self.names)
        return _Scope(self.counters | {loop.counter: loop}, names, dict(self.places), dict(self.locals))


class _Checker:
    """One nest. `stored` collects what it writes."""

    def __init__(
        self, loops: Loops, kernel: Kernel, before: dict[str, Ints], written: dict[str, Ints], is_padded: bool
    ) -> None:
        self.loops, self.kernel, self.before, self.written, self.is_padded = loops, kernel, before, written, is_padded
        self.stored: dict[str, list[Ints]] = {}

    def require(self, condition: bool, what: str, stmt: Stmt) -> None:
        if not condition:
            _fail(self.kernel, f"{what}: {next(statement_lines(stmt))}")

    def body(self, body: Body, scope: _Scope) -> None:
        for stmt in body:
            self.statement(stmt, scope)

    def statement(self, stmt: Stmt, scope: _Scope) -> None:
        for expr in expressions(stmt):
            for part in subexpressions(expr):
                if isinstance(part, Name):
                    self.require(part.name in scope.names, f"{part.name} is not in scope", stmt)
        for place in reads(stmt):
            self.read(place, stmt, scope)
        target = writes(stmt)
        if target is not None:
            self.write(target, stmt, scope)
        match stmt:
            case For():
                self.require(stmt.counter not in scope.counters, f"{stmt.counter} counts twice", stmt)
                self.require(stmt.count > 0, "an empty loop", stmt)
                if stmt.kind == Kind.EACH:
                    applied_to_each(stmt)
                self.require(not stmt.steps, "a count that grows with no counter in scope", stmt)
                grows = any(stmt.counter == name for inner in statements(stmt.body) for name in _counted(inner))
                if grows:
                    for i in range(stmt.count):
                        self.body(substituted(stmt.body, stmt.counter, Index(i)), scope)
                else:
                    self.body(stmt.body, scope.inside(stmt))
            case Let():
                self.require(stmt.name not in scope.names, "named twice", stmt)
                if isinstance(stmt.value, Index):
                    self.indices(stmt.value, stmt, scope)
                    scope.places[stmt.name] = stmt.value
                else:
                    scope.names.add(stmt.name)
            case Local():
                self.require(stmt.name not in scope.locals, "named twice", stmt)
                scope.locals[stmt.name] = stmt.length
            case Prefetch():
                self.require(stmt.counter in scope.counters, f"{stmt.counter} is not in scope", stmt)
            case _ if target is None:
                assert not isinstance(stmt, For | Let | Local | Nest)
                assert isinstance(stmt.target, Name)
                self.require(stmt.target.name in scope.names, f"{stmt.target.name} is not in scope", stmt)

    def indices(self, index: Index, stmt: Stmt, scope: _Scope) -> Ints:
        """Every index, with an axis for each counter in scope that it depends on."""
        if index.origin:
            self.require(index.origin in scope.places, f"{index.origin} is not in scope", stmt)
            start = scope.places[index.origin]
            index = Index(index.base + start.base, start.steps + index.steps, start.tables + index.tables, start.origin)
            return self.indices(index, stmt, scope)
        total = np.array(index.base)
        for stride, counter in index.steps:
            self.require(counter in scope.counters, f"{counter} is not in scope", stmt)
            total = total + stride * self.counter(counter, scope)
        for table, inner in index.tables:
            self.require(table in self.loops.tables, f"no such table as {table}", stmt)
            at = self.indices(inner, stmt, scope)
            numbers = np.asarray(self.loops.tables[table])
            self.require(bool((at >= 0).all() and (at < len(numbers)).all()), f"{table} is too short", stmt)
            total = total + numbers[at].astype(np.int64)
        return total

    def counter(self, counter: str, scope: _Scope) -> Ints:
        """Its values, along an axis of its own."""
        axis = [*scope.counters].index(counter)
        shape = [1] * len(scope.counters)
        shape[axis] = scope.counters[counter].count
        return np.arange(shape[axis]).reshape(shape)

    def read(self, place: Place, stmt: Stmt, scope: _Scope) -> None:
        indices = self.indices(place.index, stmt, scope)
        length = self.length(place, stmt, scope)
        slack = SLACK if self.is_padded else 0
        inside = indices.min() >= 0 and indices.max() < length + slack
        self.require(bool(inside), f"{place.array} has {length} elements, out of bounds", stmt)
        if place.image:
            self.require(self.is_side_by_side(place, scope), f"{place.image} does not count images", stmt)
        if place.array in VALUES and not self.is_padded:
            known = self.before[VALUE][indices]
            if place == writes(stmt) and VALUE in self.stored:  # changed in place: see schedule.each
                known = known | np.isin(indices, np.concatenate(self.stored[VALUE]))
            self.require(bool(known.all()), "value[] is read before it is written", stmt)

    def write(self, place: Place, stmt: Stmt, scope: _Scope) -> None:
        indices = self.indices(place.index, stmt, scope)
        length = self.length(place, stmt, scope)
        self.require(bool(indices.min() >= 0 and indices.max() < length), "out of bounds", stmt)
        is_local = place.array in scope.locals
        is_step = place.array == DATA and self.kernel.passes == Pass.STEPS
        is_sum = place.array == SHARED and self.kernel.passes == Pass.DENSE_GRADIENTS  # of images in groups
        is_written = is_local or is_step or is_sum or place.array in (VALUE, GRAD)
        self.require(is_written, f"{place.array} cannot be written", stmt)
        inner = [counter for counter, loop in scope.counters.items() if loop.kind == Kind.SIDE_BY_SIDE]
        self.require([place.image] == (inner or [""]), "the images beside it are not written", stmt)
        if not is_local:
            self.stored.setdefault(place.array, []).append(np.unique(indices))
        for counter, loop in scope.counters.items():
            is_lane = loop.kind in (Kind.LANES, Kind.VECTORS, Kind.TRANSPOSED, Kind.EACH)
            is_own = is_lane or (loop.kind == Kind.PARALLEL and not is_local)
            if is_own and loop.count > 1:
                moves = place.index.depends_on(counter) or place.index.origin != ""
                self.require(moves, f"every iteration of {counter} writes the same element", stmt)
        moving = [scope.counters[c].count for c in scope.counters if place.index.depends_on(c)]
        if not is_local and not place.index.origin:
            distinct = len(np.unique(indices)) == int(np.prod(moving, dtype=np.int64))
            self.require(distinct, "an element is written in two iterations", stmt)

    def is_side_by_side(self, place: Place, scope: _Scope) -> bool:
        loop = scope.counters.get(place.image)
        return loop is not None and loop.kind in (Kind.SIDE_BY_SIDE, Kind.ADDED, Kind.FEW_IMAGES)

    def length(self, place: Place, stmt: Stmt, scope: _Scope) -> int:
        if place.array in scope.locals:
            return scope.locals[place.array]
        if place.array in self.loops.tables:
            return len(self.loops.tables[place.array])
        if place.array in (STEP, INPUTS):
            return 1 if place.array == STEP else self.loops.inputs
        self.require(place.array in (DATA, GRAD, *VALUES, TOKEN), f"no such array as {place.array}", stmt)
        return self.loops.length(place.array)
