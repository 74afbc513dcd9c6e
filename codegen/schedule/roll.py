"""A sequence of kernels that comes again and again, with indices that advance by constants, becomes one loop.

Example input, three steps of a recurrence:

    kernel 4: i < 12: value[100 + i] = tanh(value[i])             kernel 5: i < 12: value[116 + i] = exp(value[100 + i])
    kernel 6: i < 12: value[132 + i] = tanh(value[16 + i])        kernel 7: i < 12: value[148 + i] = exp(value[132 + i])
    kernel 8: i < 12: value[164 + i] = tanh(value[32 + i])        kernel 9: i < 12: value[180 + i] = exp(value[164 + i])

becomes:

    kernel 4: t < 3:
        nest of kernel 4: i < 12: value[100 + i + 32t] = tanh(value[i + 16t])
        nest of kernel 5: i < 12: value[116 + i + 32t] = exp(value[100 + i + 32t])

Counts of terms may advance too, as where each token looks at one more than the token before it: k < 3 + t.

The order of the nests stays as it is, so nothing has to be known about what they read and write. Steps that differ, as
the first one of a recurrence does, stay in front of the loop or behind it. Among all repeats, the one that saves most
statements is rolled first; then what is before it, behind it and inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, groupby
from operator import sub

from codegen.ir.loops import (
    Body,
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
from codegen.schedule.forms import Form, form_of, with_counts, with_indices

MAX_OCCURRENCES = 8  # of equal statements in one repeat
MIN_SAVED = 8  # statements: a loop around fewer is no easier to read


@dataclass(frozen=True)
class _Item:
    """One kernel, or a statement inside a loop over kernels. `numbers`: what may advance, of its form."""

    body: Body
    form: Form
    size: int  # in statements

    @classmethod
    def of(cls, body: Body, inputs: int) -> _Item:
        return cls(body, form_of(body, inputs), sum(1 for _ in statements(body)))

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.form.counts + self.form.bases


@dataclass(frozen=True)
class _Repeat:
    """Items [start, start + period * count) are `count` times the first `period`, a constant further each time."""

    start: int
    period: int
    count: int
    saved: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def roll(loops: Loops, phases: Mapping[int, Phase] | None = None, fewest: int = 2) -> Loops:
    """The loops with repeated kernels in loops over them.

    phases   how kernels run in a batch, by their number
    fewest   repeats that become a loop, 2 or more
    """
    phases = phases or {}

    def time(kernel: Kernel) -> tuple[Pass, Phase, bool]:
        return kernel.passes, phases.get(kernel.number, kernel.phase), kernel.is_gradient

    rolled: list[Kernel] = []
    for _, together in groupby(loops.kernels, key=time):
        inner = [_with_inner(kernel, 3, loops.inputs) for kernel in together]  # two are alike by accident
        rolled += [_with_inner(kernel, 2, loops.inputs) for kernel in _rolled_kernels(inner, fewest, loops.inputs)]
    return loops.with_kernels(rolled)


def _rolled_kernels(kernels: list[Kernel], fewest: int, inputs: int) -> list[Kernel]:
    """Those that run at one time, with each repeat as one."""
    items = [_Item.of(_nests(kernel), inputs) for kernel in kernels]
    rolled: list[Kernel] = []
    done = 0
    for repeat in _Search(items).repeats(fewest):
        rolled += kernels[done : repeat.start]
        done = repeat.end
        rolled.append(_over(kernels[repeat.start : done], (_loop(items, repeat, (), inputs),)))
    return [*rolled, *kernels[done:]]


def _over(kernels: list[Kernel], nest: Body) -> Kernel:
    """The nest of a loop over kernels in place of all of them."""
    nodes = min([kernel.nodes[0] for kernel in kernels]), max([kernel.nodes[1] for kernel in kernels])
    return replace(kernels[0], nests=(nest,), nodes=nodes, roots=sum([kernel.roots for kernel in kernels]))


def _nests(kernel: Kernel) -> Body:
    return tuple(
        [stmt for nest in kernel.nests for stmt in (nest if is_rolled(nest) else (Nest(kernel.number, nest),))]
    )


def _with_inner(kernel: Kernel, fewest: int, inputs: int) -> Kernel:
    """A kernel outside of all loops, whose own nests may repeat."""
    if len(kernel.nests) == 1:
        return kernel
    body = _rolled_body(_nests(kernel), (), inputs, fewest)
    return kernel.with_nests(tuple([stmt.body if type(stmt) is Nest else (stmt,) for stmt in body]))


def _rolled_body(body: Body, around: tuple[str, ...], inputs: int, fewest: int = 2) -> Body:
    """The body of a loop over kernels, which may repeat in it. `around`: the counters of the loops over kernels."""
    items = [_Item.of((stmt,), inputs) for stmt in body]
    rolled: list[Stmt] = []
    done = 0
    for repeat in _Search(items).repeats(fewest):
        rolled += [*body[done : repeat.start], _loop(items, repeat, around, inputs)]
        done = repeat.end
    return (*rolled, *body[done:])


def _loop(items: Sequence[_Item], repeat: _Repeat, around: tuple[str, ...], inputs: int) -> For:
    first = items[repeat.start : repeat.start + repeat.period]
    second = items[repeat.start + repeat.period :]
    used = {stmt.counter for item in first for stmt in statements(item.body) if type(stmt) is For}
    counter = next(name for name in _counters() if name not in used and name not in around)
    body = [stmt for item, later in zip(first, second, strict=False) for stmt in _advancing(item, later, counter)]
    return For(counter, repeat.count, _rolled_body(tuple(body), (*around, counter), inputs))


def _counters() -> Iterator[str]:
    yield from ("t", "s", "z")
    yield from (f"t{n}" for n in count(2))


def _advancing(item: _Item, later: _Item, counter: str) -> Body:
    """An item whose indices advance with the counter as from it to a later one."""
    counts = map(sub, later.form.counts, item.form.counts)
    bases = map(sub, later.form.bases, item.form.bases)

    def advance(index: Index) -> Index:
        step = next(bases)
        return replace(index, steps=(*index.steps, (step, counter))) if step else index

    def change(expr: Expr) -> Expr:
        return replace(expr, index=with_indices(expr.index, advance)) if type(expr) is Place else expr

    def grow(loop: For) -> For:
        step = next(counts)
        return replace(loop, steps=(*loop.steps, (step, counter))) if step else loop

    return with_counts(map_body(item.body, change), grow)


class _Search:
    """What repeats in a sequence of items. Any two of equal keys do; from the third on, steps have to be equal."""

    def __init__(self, items: Sequence[_Item]) -> None:
        self.items = items
        numbers: dict[object, int] = {}
        self.keys = [numbers.setdefault(item.form.key, len(numbers)) for item in items]
        self.sizes = [0, *accumulate(item.size for item in items)]

    def repeats(self, fewest: int) -> list[_Repeat]:
        """Those that do not overlap, in order: the best one, then the best before and behind it."""
        found: list[_Repeat] = []
        open_parts = [(0, len(self.items))]
        while open_parts:
            start, end = open_parts.pop()
            best = self.best(start, end, fewest)
            if best is not None and best.saved >= MIN_SAVED:
                found.append(best)
                open_parts += [(start, best.start), (best.end, end)]
        return sorted(found, key=lambda repeat: repeat.start)

    def best(self, start: int, end: int, fewest: int) -> _Repeat | None:
        """The repeat in items [start, end) that saves most. Two may be alike by accident, so they have to save more."""
        found = [*self.candidates(start, end)]
        even = _most([repeat for repeat in found if repeat.count > 2])
        pair = _most([repeat for repeat in found if repeat.count == 2]) if fewest == 2 else None
        return pair if pair is not None and (even is None or pair.saved > 2 * even.saved) else even

    def candidates(self, start: int, end: int) -> Iterator[_Repeat]:
        """Of each period the longest repeats and the first two, those of short periods first."""
        items, keys = self.items, self.keys
        for period in _periods(keys[start:end]):
            steps = [
                tuple(map(sub, items[i + period].numbers, items[i].numbers)) if keys[i] == keys[i + period] else None
                for i in range(start, end - period)
            ]
            alike = [step is not None and step == later for step, later in zip(steps, steps[period:], strict=False)]
            runs = [(first, length // period + 2) for first, length in _runs(alike) if length >= period]
            pairs = _runs([step is not None for step in steps])
            for first, times in [*runs, *((first, 2) for first, length in pairs if length >= period)]:
                yield self.repeat(start + first, period, times)

    def repeat(self, start: int, period: int, times: int) -> _Repeat:
        return _Repeat(start, period, times, (times - 1) * (self.sizes[start + period] - self.sizes[start]))


def _most(repeats: list[_Repeat]) -> _Repeat | None:
    return max(repeats, key=lambda repeat: repeat.saved, default=None)


def _periods(keys: list[int]) -> list[int]:
    """Distances at which as many equal keys as fill them stand."""
    places: dict[int, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    distances = Counter(
        here[i + lag] - here[i]
        for here in places.values()
        for lag in range(1, MAX_OCCURRENCES + 1)
        for i in range(len(here) - lag)
    )
    return sorted(distance for distance, times in distances.items() if times >= distance)


def _runs(alike: list[bool]) -> Iterator[tuple[int, int]]:
    """Where runs of True begin, and how long they are."""
    start = 0
    for value, same in groupby(alike):
        length = len(list(same))
        if value:
            yield start, length
        start += length
