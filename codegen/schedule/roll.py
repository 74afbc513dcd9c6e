"""A sequence of kernels that comes again and again, with indices that advance by constants, becomes one loop.

Example input, three steps of a recurrence:

    kernel 4: i < 12: value[100 + i] = tanh(value[i])             kernel 5: i < 12: value[116 + i] = exp(value[100 + i])
    kernel 6: i < 12: value[132 + i] = tanh(value[16 + i])        kernel 7: i < 12: value[148 + i] = exp(value[132 + i])
    kernel 8: i < 12: value[164 + i] = tanh(value[32 + i])        kernel 9: i < 12: value[180 + i] = exp(value[164 + i])

becomes:

    kernel 4: t < 3:
        nest of kernel 4: i < 12: value[100 + i + 32t] = tanh(value[i + 16t])
        nest of kernel 5: i < 12: value[116 + i + 32t] = exp(value[100 + i + 32t])

Counts of terms may advance too, as where each token looks at one more than the token before it: k < 3 + t. Where a long
sequence reads or writes something that does not lie evenly, as the first of some blocks reads inputs, a table has the
distances: value[i + steps_1616_1056x3[t]]. Another one has constants that differ, as the time in the steps of an
integrator. The last iteration may end early. Loops of a sum, one after the other, become one in the same way.

The order of the nests stays as it is, so nothing has to be known about what they read and write. Steps that differ, as
the first one of a recurrence does, stay in front of the loop or behind it. Among all repeats, the one that saves most
statements is rolled first; then what is before it, behind it and inside it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, count, groupby
from operator import ne, sub

from codegen.ir.loops import (
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Loops,
    Nest,
    Pass,
    Phase,
    Place,
    Stmt,
    is_rolled,
    map_body,
    statements,
)
from codegen.schedule.forms import OVER_TERMS, Form, form_of, with_counts, with_indices

MAX_OCCURRENCES = 8  # of equal statements in one repeat
MIN_SAVED = 8  # statements: a loop around fewer is no easier to read
MIN_LOOPS = 6  # of a sum, one after the other
PER_TABLE = 15  # statements that a table of distances has to save, and that its loop has to have
PER_CONSTANTS = 2  # the same of a table of constants
MAX_UNROLLED = 8  # repeats
PER_END = 15  # statements that an early end has to save

Distances = tuple[int, ...]  # of each repeat from the first one
Run = tuple[int, int]  # where items begin, and how many there are


@dataclass(frozen=True)
class _Item:
    """One kernel, or a statement inside a loop over kernels. `numbers`: what may advance, of its form."""

    body: Body
    form: Form
    size: int  # in statements

    @classmethod
    def of(cls, body: Body) -> _Item:
        return cls(body, form_of(body), sum(1 for _ in statements(body)))

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.form.counts + self.form.bases


@dataclass(frozen=True)
class _Repeat:
    """Items [start, end) are `count` times the first `period`; the last time, the last ones may be missing."""

    start: int
    end: int
    period: int
    saved: int  # in statements
    tables: tuple[Distances, ...] = ()

    @property
    def count(self) -> int:
        return -(-(self.end - self.start) // self.period)

    @property
    def missing(self) -> int:
        return self.count * self.period - (self.end - self.start)

    def of(self, items: Sequence[_Item], place: int) -> Sequence[_Item]:
        """The items at one place of the period."""
        return items[self.start + place : self.end : self.period]


def roll(loops: Loops, fewest: int = 2, unrolled: bool = False) -> Loops:
    """The loops with repeated kernels in loops over them; `fewest` repeats, 2 or more, become one.

    `unrolled`: the C compiler unrolls few repeats in which numbers of terms grow, so that it knows these.
    """

    def time(kernel: Kernel) -> tuple[Pass, Phase, bool]:
        return kernel.passes, kernel.phase, kernel.is_gradient

    rolled: list[Kernel] = []
    roller = _Roller(unrolled)
    for _, together in groupby(loops.kernels, key=time):
        inner = [roller.with_inner(kernel, 3) for kernel in together]  # two are alike by accident
        rolled += [roller.with_terms(roller.with_inner(kernel, 2)) for kernel in roller.kernels(inner, fewest)]
    return replace(loops.with_kernels(rolled), tables={**loops.tables, **roller.tables})


class _Roller:
    """Makes loops over kernels, and collects the tables that they need."""

    def __init__(self, unrolled: bool) -> None:
        self.unrolled = unrolled
        self.tables: dict[str, Sequence[int | float]] = {}

    def kernels(self, kernels: list[Kernel], fewest: int) -> list[Kernel]:
        """Those that run at one time, with each repeat as one."""
        items = [_Item.of(_nests(kernel)) for kernel in kernels]
        rolled: list[Kernel] = []
        for start, end, loop in self.parts(items, (), fewest):
            rolled += kernels[start:end] if loop is None else [_over(kernels[start:end], (loop,))]
        return rolled

    def with_inner(self, kernel: Kernel, fewest: int) -> Kernel:
        """A kernel outside of all loops, whose own nests may repeat."""
        if len(kernel.nests) == 1:
            return kernel
        body = self.body(_nests(kernel), (), fewest)
        return kernel.with_nests(tuple([stmt.body if type(stmt) is Nest else (stmt,) for stmt in body]))

    def with_terms(self, kernel: Kernel) -> Kernel:
        """A kernel, the loops of whose sums may repeat: those over units, in the gradient of what all steps share."""

        def inside(stmt: Stmt, around: tuple[str, ...]) -> Stmt:
            if type(stmt) is For and not stmt.last:
                return stmt.with_body(repeated(stmt.body, (*around, stmt.counter)))
            return stmt.with_body(repeated(stmt.body, around)) if type(stmt) is Nest else stmt

        def repeated(body: Body, around: tuple[str, ...]) -> Body:
            many = sum([type(stmt) is For and stmt.kind in OVER_TERMS for stmt in body]) >= MIN_LOOPS
            body = tuple([inside(stmt, around) for stmt in body])
            return self.body(body, around, 3) if many else body

        return kernel.with_nests(tuple([repeated(nest, ()) for nest in kernel.nests]))

    def body(self, body: Body, around: tuple[str, ...], fewest: int = 2) -> Body:
        """The body of a loop over kernels, which may repeat in it. `around`: the counters of the loops over kernels."""
        items = [_Item.of((stmt,)) for stmt in body]
        parts = [body[start:end] if loop is None else (loop,) for start, end, loop in self.parts(items, around, fewest)]
        return tuple([stmt for part in parts for stmt in part])

    def parts(
        self, items: Sequence[_Item], around: tuple[str, ...], fewest: int
    ) -> Iterator[tuple[int, int, For | None]]:
        """Where parts of a sequence start and end: repeats, with the loop over them, and what is between."""
        done = 0
        for repeat in _Search(items).repeats(fewest):
            yield done, repeat.start, None
            yield repeat.start, repeat.end, self.loop(items, repeat, around)
            done = repeat.end
        yield done, len(items), None

    def loop(self, items: Sequence[_Item], repeat: _Repeat, around: tuple[str, ...]) -> For:
        first = items[repeat.start : repeat.start + repeat.period]
        used = {stmt.counter for item in first for stmt in statements(item.body) if type(stmt) is For}
        counter = next(name for name in _counters() if name not in used and name not in around)
        bodies = [self.advancing(repeat.of(items, place), counter, repeat.tables) for place in range(repeat.period)]
        whole = repeat.period - repeat.missing  # those of the last iteration
        parts = [tuple([stmt for body in part for stmt in body]) for part in (bodies[:whole], bodies[whole:])]
        begin, rest = [self.body(part, (*around, counter)) for part in parts]
        is_short = self.unrolled and repeat.count <= MAX_UNROLLED and not rest
        unrolled = is_short and any(type(stmt) is For and stmt.steps for stmt in statements(begin))
        return For(counter, repeat.count, begin + rest, last=len(begin) if rest else 0, unrolled=unrolled)

    def advancing(self, items: Sequence[_Item], counter: str, tables: Sequence[Distances]) -> Body:
        """The first of some items, with indices that advance with the counter as those of the others."""
        numbers = iter([*zip(*[item.numbers for item in items], strict=True)])
        constants = iter([*zip(*[item.form.constants for item in items], strict=True)])

        def advance(index: Index) -> Index:
            found = _distances(next(numbers))
            if _is_even(found):
                return replace(index, steps=(*index.steps, (found[1], counter))) if any(found) else index
            table = next(table for table in tables if table[: len(found)] == found)
            name = _table_name(table)
            self.tables[name] = table
            return replace(index, tables=(*index.tables, (name, Index(0, ((1, counter),)))))

        def change(expr: Expr) -> Expr:
            if type(expr) is Place:
                return replace(expr, index=with_indices(expr.index, advance))
            found = next(constants) if type(expr) is Const else ()
            if len(set(found)) < 2:
                return expr
            name = _constants_name(found)
            self.tables[name] = [*map(float, found)]
            return Place(name, Index(0, ((1, counter),)))

        def grow(loop: For) -> For:
            found = _distances(next(numbers))
            return replace(loop, steps=(*loop.steps, (found[1], counter))) if any(found) else loop

        return map_body(with_counts(items[0].body, grow), change)


def _over(kernels: list[Kernel], nest: Body) -> Kernel:
    """The nest of a loop over kernels in place of all of them."""
    nodes = min([kernel.nodes[0] for kernel in kernels]), max([kernel.nodes[1] for kernel in kernels])
    return replace(kernels[0], nests=(nest,), nodes=nodes, roots=sum([kernel.roots for kernel in kernels]))


def _nests(kernel: Kernel) -> Body:
    nests = [nest if is_rolled(nest) else (Nest(kernel.number, nest, kernel.box),) for nest in kernel.nests]
    return tuple([stmt for nest in nests for stmt in nest])


def _counters() -> Iterator[str]:
    yield from ("t", "s", "z")
    yield from (f"t{n}" for n in count(2))


def _distances(numbers: Sequence[int]) -> Distances:
    return tuple([number - numbers[0] for number in numbers])


def _is_even(distances: Distances) -> bool:
    """Whether they are multiples of the second one."""
    return all(distance == i * distances[1] for i, distance in enumerate(distances[1:], 1))


def _table_name(distances: Distances) -> str:
    """Tables of equal names are equal: `steps_1616_1056x3`, for 0, 1616, 2672, 3728, 4784."""
    steps = [(step, len([*same])) for step, same in groupby(map(sub, distances[1:], distances))]
    texts = [f"{step}x{times}" if times > 1 else f"{step}" for step, times in steps]
    return "steps_" + "_".join(texts).replace("-", "m")


def _constants_name(constants: Sequence[str]) -> str:
    """Tables of equal names are equal: by a digest, as numbers have points and signs."""
    return f"constants_{hashlib.sha256(' '.join(constants).encode()).hexdigest()[:16]}"


class _Search:
    """What repeats in a sequence of items. Any two of equal keys do; more have to advance evenly, or need tables."""

    def __init__(self, items: Sequence[_Item]) -> None:
        self.items = items
        numbers: dict[object, int] = {}
        self.keys = [numbers.setdefault(item.form.key, len(numbers)) for item in items]
        self.sizes = [0, *accumulate(item.size for item in items)]
        self.runs = cache(self._runs)

    def repeats(self, fewest: int) -> list[_Repeat]:
        """Those that do not overlap, in order: the best one, then the best before and behind it."""
        found: list[_Repeat] = []
        open_parts = [(0, len(self.items))]
        while open_parts:
            start, end = open_parts.pop()
            best = self.best(start, end, fewest)
            if best is not None and best.saved >= MIN_SAVED:
                best = self.or_inner(best)
                found.append(best)
                open_parts += [(start, best.start), (best.end, end)]
        return sorted(found, key=lambda repeat: repeat.start)

    def best(self, start: int, end: int, fewest: int) -> _Repeat | None:
        """The repeat in items [start, end) that saves most.

        Two may be alike by accident, so they have to save more; so have those whose constants differ.
        """
        best: dict[bool, _Repeat] = {}  # of those whose constants differ, and of others
        pair = None
        for repeat in self.candidates(start, end):
            if repeat.count == 2:
                is_better = fewest == 2 and (pair is None or repeat.saved > pair.saved)
                pair = repeat if is_better and not self.constants(repeat) else pair
                continue
            better = [kind for kind in (False, True) if kind not in best or repeat.saved > best[kind].saved]
            differ = bool(better) and bool(self.constants(repeat))
            tabled = self.with_tables(repeat) if differ in better else None
            if tabled is not None and (differ not in best or tabled.saved > best[differ].saved):
                best[differ] = tabled
        most, other = best.get(False), best.get(True)
        if other is not None and (most is None or other.saved > 2 * most.saved):
            most = other
        return pair if pair is not None and (most is None or pair.saved > 2 * most.saved) else most

    def or_inner(self, repeat: _Repeat) -> _Repeat:
        """The repeat, or one inside of it that can be no loop there, if this one saves more in all its iterations.

        As the steps of recurrences that read the same from both ends: it advances differently.
        """
        inner = self.best(repeat.start, repeat.start + repeat.period, 3)
        if inner is None or inner.saved < MIN_SAVED or repeat.count * inner.saved <= repeat.saved:
            return repeat
        last = inner.end - inner.period
        first, *others = [
            self.steps(inner.start + start, last + start, inner.period)
            for start in range(0, repeat.end - inner.end + 1, repeat.period)
        ]
        return repeat if all(other == first for other in others) else self.or_inner(inner)

    def candidates(self, start: int, end: int) -> Iterator[_Repeat]:
        """Of each period the longest repeats and the first two, those of short periods first."""
        for period in _periods(self.keys[start:end]):
            even, alike = self.runs(period)
            for first, length in _within(even, start, end - 2 * period):
                if length >= period:
                    yield from self.repeated(first, length + 2 * period, period)
            for first, length in _within(alike, start, end - period):
                yield from self.repeated(first, length + period, period)
                yield from self.repeated(first, min(length + period, 2 * period), period)

    def _runs(self, period: int) -> tuple[list[Run], list[Run]]:
        """Runs of items that the next ones follow at even distances, and of those that others of their key follow."""
        steps = self.steps(0, len(self.items) - period, period)
        even = [step is not None and step == later for step, later in zip(steps, steps[period:], strict=False)]
        return [*_runs(even)], [*_runs([step is not None for step in steps])]

    def steps(self, first: int, end: int, period: int) -> list[tuple[int, ...] | None]:
        """How far items [first, end) are from those a period later; None if their keys differ."""
        items, keys = self.items, self.keys
        return [_step(items[i], items[i + period]) if keys[i] == keys[i + period] else None for i in range(first, end)]

    def repeated(self, start: int, length: int, period: int) -> Iterator[_Repeat]:
        """The repeats of so many items, as often as they are whole; and with a last one that ends early."""
        whole = length // period * period
        if whole > period:
            yield _Repeat(start, start + whole, period, self.saved(start, whole, period))
        early = self.saved(start, length, period) - PER_END
        if whole < length and early > max(0, self.saved(start, whole, period)) and 2 * length >= 3 * period:
            yield _Repeat(start, start + length, period, early)

    def saved(self, start: int, length: int, period: int) -> int:
        return self.sizes[start + length] - self.sizes[start + period]

    def with_tables(self, repeat: _Repeat) -> _Repeat | None:
        """The repeat with tables for what does not advance evenly, if they pay."""
        tables: set[Distances] = set()
        size = self.sizes[repeat.start + repeat.period] - self.sizes[repeat.start]
        for place in range(repeat.period):
            items = repeat.of(self.items, place)
            counts = len(items[0].form.counts)
            for i, numbers in enumerate(zip(*[item.numbers for item in items], strict=True)):
                found = _distances(numbers)
                if len(found) > 2 and not _is_even(found):
                    tables.add(found)
                    if i < counts or PER_TABLE * sum(len(table) == repeat.count for table in tables) > size:
                        return None  # whatever else needs one
        longest = max(map(len, tables), default=0)
        whole = {table for table in tables if len(table) == longest}
        short = {table for table in tables - whole if not any(table == other[: len(table)] for other in whole)}
        constants = self.constants(repeat)
        cost = PER_TABLE * len(whole | short) + PER_CONSTANTS * len(constants)
        if any(map(_are_few, constants)) or cost > size:
            return None
        return replace(repeat, saved=repeat.saved - cost, tables=(*sorted(whole), *sorted(short)))

    def constants(self, repeat: _Repeat) -> set[tuple[str, ...]]:
        """Those that differ from repeat to repeat."""
        columns = [
            zip(*[item.form.constants for item in repeat.of(self.items, k)], strict=True) for k in range(repeat.period)
        ]
        return {found for column in columns for found in column if len(set(found)) > 1}


def _are_few(constants: Sequence[str]) -> bool:
    """Whether at most half of them are others: a few steps differ, or a longer sequence of kernels repeats."""
    return 2 * len(set(constants)) <= len(constants)


def _step(item: _Item, other: _Item) -> tuple[int, ...]:
    """How far the numbers of one are from those of the other, and which constants are others."""
    changed = map(ne, item.form.constants, other.form.constants)
    return *map(sub, other.numbers, item.numbers), *changed


def _periods(keys: list[int]) -> list[int]:
    """Distances at which as many equal keys as fill half of them stand."""
    in_runs = [(key, i) for key, same in groupby(keys) for i, _ in enumerate(same)]
    distances = _distances_of_equals(keys) | _distances_of_equals(in_runs)
    return sorted(distance for distance, times in distances.items() if 2 * times >= distance)


def _distances_of_equals(keys: Sequence[object]) -> Counter[int]:
    """How often equal keys stand so far apart."""
    places: dict[object, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    return Counter(
        here[i + lag] - here[i]
        for here in places.values()
        for lag in range(1, MAX_OCCURRENCES + 1)
        for i in range(len(here) - lag)
    )


def _within(runs: list[Run], start: int, end: int) -> Iterator[Run]:
    """The parts of runs that are in [start, end)."""
    for first, length in runs[max(0, bisect_right(runs, (start, 0)) - 1) : bisect_right(runs, (end, 0))]:
        begin, stop = max(first, start), min(first + length, end)
        if begin < stop:
            yield begin, stop - begin


def _runs(alike: list[bool]) -> Iterator[Run]:
    """Where runs of True begin, and how long they are."""
    start = 0
    for value, same in groupby(alike):
        length = len(list(same))
        if value:
            yield start, length
        start += length
