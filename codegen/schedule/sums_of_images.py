"""With reorder=True: what is linear in the adjoints of images, and is so with the same factors, takes their sum.

Example input, where weights w are a parameter a times a number s that a batch computes once, and value[100 + i] has the
adjoints of w, of each image:

    kernel 7: i < 30: value[100 + i] = mul(value[i], value[48])
    kernel 8: i < 30: value[132 + i] = mul(value[100 + i], value[90])       value[90] is s: the same for all images
    kernel 9: i < 30: grad[i] += value[132 + i]
              i < 30: grad[i] += mul(data[i], 0.002)

becomes, of groups of images side by side, which add what each image has of its own:

    kernel 7: i < 30: value[100 + i] += mul(value[i], value[48])

and then, once for all of them:

    kernel 8: i < 30: value[132 + i] = mul(value[100 + i], value[90])
    kernel 9: i < 30: grad[i] += value[132 + i]
              i < 30: grad[i] += mul(image_count, mul(data[i], 0.002))

So the way back through what depends on parameters alone (a norm of weights, a product of matrices, the gain of a
filter, a penalty) costs as little as the way there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    GRAD,
    IMAGE_COUNT,
    VALUE,
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Let,
    Loops,
    Name,
    Pass,
    Phase,
    Place,
    Stmt,
    Store,
    expressions,
    reads,
    statements,
    subexpressions,
    substituted,
)
from codegen.schedule.groups_of_images import ADDED, GROUPS
from codegen.schedule.nest import around, result, root_loops
from codegen.schedule.phases import STARTED, Ints, indices_of, indices_written, kernel_cost
from codegen.schedule.target import Target

# Who computes an element of value[]: kernel n for each image, as FIRST + n; one for all images; or no kernel.
FOR_ALL, NOBODY, FIRST = range(3)
GAIN = 0.02  # of all operations: a smaller part is not worth the sums
MAX_RUNS = 20  # that a loop over terms may become

# Of a place: whether it has the same elements for all images, sums over images, or others. Of a term: its degree in
# these, up to 2. MIXED: it depends on the root.
CONSTANT, LINEAR, NONLINEAR, MIXED = range(4)
FROM_SUMS = (CONSTANT, LINEAR)
SUM = "sum"

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Sums:
    """What groups of images add, and what follows from the sums; all as reroll makes loops."""

    added: tuple[Kernel, ...]  # value[...] += ..., for each image
    own: tuple[Kernel, ...]  # gradients of parameters, with the terms that each image has of its own
    after: tuple[Kernel, ...]  # adjoints, and the other terms of gradients
    numbers: frozenset[int]  # of the kernels that images side by side need not compute

    @property
    def changed(self) -> frozenset[int]:
        """The gradients of which sums have terms."""
        return frozenset([kernel.number for kernel in self.after if kernel.is_gradient])


def put_sums_last(loops: Loops, sums: Sums) -> Loops:
    """Of the kernels of a batch, those of images side by side; last those that groups of images can do without."""
    beside = [kernel for kernel in loops.kernels if kernel.phase == Phase.SIDE_BY_SIDE]
    kernels = [kernel for kernel in beside if kernel.number not in sums.numbers]
    return loops.with_kernels([*kernels, *(replace(k, phase=Phase.SUMMED) for k in beside if k.number in sums.numbers)])


def find_sums(loops: Loops, phases: Mapping[int, Phase], outside: Iterable[int], target: Target) -> Sums:
    """`loops`: as reroll makes them, `phases`: in a batch, `outside`: places in value[] that are read from outside.

    Without gain nothing follows from sums, but no place in what groups of images add is MIXED.
    """
    gradients = [kernel for kernel in loops.kernels if kernel.passes == Pass.DENSE_GRADIENTS]
    if not target.reorder or Phase.ONCE not in phases.values():
        return Sums((), tuple(gradients), (), frozenset())
    beside = [kernel for kernel in loops.kernels if phases.get(kernel.number) == Phase.SIDE_BY_SIDE]
    adjoints = [kernel for kernel in beside if kernel.passes == Pass.GRADIENTS]
    found = _Linear(loops, phases, outside, adjoints, gradients)
    summed = [kernel for kernel in adjoints if kernel.number in found.summable]
    plain = [kernel for kernel in gradients if not found.is_mixed(kernel)]
    sums = Sums(
        added=tuple([replace(kernel, passes=Pass.DENSE_GRADIENTS) for kernel in _parts(summed, found.own)]),
        own=tuple(_parts(plain, found.own)),
        after=(
            *(replace(kernel, passes=Pass.FROM_SUMS) for kernel in _parts(summed, found.after)),
            *(replace(kernel, passes=Pass.SUM_GRADIENTS) for kernel in _parts(plain, found.after)),
        ),
        numbers=frozenset(found.summable),
    )
    if (sums.added or sums.own) and _pays(sums, [*beside, *gradients], target):
        return sums
    found = _Linear(loops, phases, outside, (), gradients)
    plain = [kernel for kernel in gradients if not found.is_mixed(kernel)]
    return Sums((), tuple(_parts(plain, found.whole)), (), frozenset())


def _parts(kernels: Iterable[Kernel], part: Callable[[Body], Body]) -> Iterator[Kernel]:
    """Parts of kernels, where there are any."""
    for kernel in kernels:
        nests = tuple([found for nest in kernel.nests if (found := part(nest))])
        if nests:
            yield kernel.with_nests(nests)


class _Linear:
    """Which adjoints matter only as sums over images, and which of their terms follow from other sums."""

    def __init__(
        self,
        loops: Loops,
        phases: Mapping[int, Phase],
        outside: Iterable[int],
        adjoints: Iterable[Kernel],
        gradients: Iterable[Kernel],
    ) -> None:
        self.loops = loops
        self.writer = np.full(loops.lengths[VALUE] + 1, NOBODY)
        for kernel in loops.kernels:
            for indices in indices_written(loops, kernel):
                self.writer[indices] = FOR_ALL if phases.get(kernel.number) == Phase.ONCE else FIRST + kernel.number
        self.writers: dict[object, Ints] = {}  # of places
        self.kinds = np.full(FIRST + max([kernel.number for kernel in loops.kernels]) + 1, NONLINEAR)
        self.kinds[FOR_ALL] = CONSTANT
        observed = self.writer[[*outside]] - FIRST
        self.summable = {k.number for k in adjoints if k.number not in observed and all(map(_is_sum, k.nests))}
        self.kinds[[FIRST + number for number in self.summable]] = LINEAR
        kernels = [*adjoints, *gradients]
        read = {kernel.number: {kernel.number, *self.read(kernel)} for kernel in kernels}
        waiting = kernels
        while needed := {number for kernel in waiting for number in self.needed(kernel)} & self.summable:
            self.summable -= needed
            self.kinds[[FIRST + number for number in needed]] = NONLINEAR
            waiting = [kernel for kernel in kernels if read[kernel.number] & needed]

    def needed(self, kernel: Kernel) -> Iterator[int]:
        """The adjoints that a kernel reads of each image, and itself if it is no sum of terms."""
        is_sum = not self.is_mixed(kernel) and (kernel.is_gradient or kernel.number in self.summable)
        yield from self.read(kernel, NONLINEAR if is_sum else CONSTANT)
        if not is_sum:
            yield kernel.number

    def read(self, kernel: Kernel, degree: int = CONSTANT) -> Iterator[int]:
        """The kernels whose results one reads, in terms of at least a degree."""
        for nest in kernel.nests:
            roots = _counts(root_loops(nest))
            for stmt in (stmt for stmt, found in self.pieces(nest) if found >= degree):
                for place, counts in _places(stmt, roots):
                    yield from np.unique(self.writers_of(place, counts, {}) - FIRST).tolist()

    def is_mixed(self, kernel: Kernel) -> bool:
        """Whether it has places of several kinds at a time."""
        return any(degree == MIXED for nest in kernel.nests for _, degree in self.pieces(nest))

    def whole(self, nest: Body) -> Body:
        return around(root_loops(nest), tuple([stmt for stmt, _ in self.pieces(nest)]))

    def own(self, nest: Body) -> Body:
        """The terms that each image has of its own, added to the place that the nest writes."""
        terms = [stmt for stmt, degree in self.pieces(nest) if degree == NONLINEAR]
        return around(root_loops(nest), tuple(_added(terms, result(nest)))) if terms else ()

    def after(self, nest: Body) -> Body:
        """The others, of sums over images. An adjoint adds them to its own ones of all images, if there are any."""
        roots, place, pieces = root_loops(nest), result(nest), [*self.pieces(nest)]
        body = tuple([self.scaled(stmt, _counts(roots)) for stmt, degree in pieces if degree in FROM_SUMS])
        if place.array == VALUE and len(body) < len(pieces):
            terms = tuple(_added(body, Name(SUM)))
            body = (Let(SUM, place), *terms, Store(place, Name(SUM))) if terms else ()
        return around(roots, body) if body else ()

    def pieces(self, nest: Body) -> Iterator[tuple[Stmt, int]]:
        """What a nest does for a root, loops over terms apart so that each place is of one kind, with degrees."""
        roots = root_loops(nest)
        for stmt in roots[-1].body if roots else nest:
            loops = [*_chain(stmt)]
            body = loops[-1].body if loops else (stmt,)
            found = [self.kinds_of(inner, _counts(roots), _counts(loops)) for inner in body]
            of_all = {int(degrees.flat[0]) for _, degrees in found}
            if len(of_all) == 1 and all((codes == codes.flat[0]).all() for codes, _ in found):
                yield stmt, of_all.pop()
            else:
                for inner, (codes, degrees) in zip(body, found, strict=True):
                    yield from _split(inner, loops, codes, degrees)

    def kinds_of(self, stmt: Stmt, roots: Counts, terms: Counts) -> tuple[Ints, Ints]:
        """Of each iteration of the loops over terms, a number for the kinds of all places, and the degree."""
        shape = tuple(terms.values())
        codes = np.zeros(shape, dtype=np.int64)
        (expr,) = expressions(stmt)
        for place in subexpressions(expr):
            if type(place) is Place and len({*(kinds := self.degree(place, roots, terms)).flat}) > 1:
                codes = np.unique(codes * (MIXED + 1) + kinds, return_inverse=True)[1].reshape(shape)
        return codes, np.broadcast_to(self.degree(expr, roots, terms), shape)

    def degree(self, expr: Expr, roots: Counts, terms: Counts) -> Ints:
        """Of each iteration of the loops over terms."""
        if type(expr) is Place:
            kinds = self.kinds[self.writers_of(expr, roots, terms)]
            low, high = kinds.min(0), kinds.max(0)
            return np.where(low == high, low, MIXED)
        if type(expr) is not Apply:
            return np.zeros([1] * len(terms), dtype=np.int64)  # a name is that of the sum so far
        found = [self.degree(operand, roots, terms) for operand in expr.operands]
        most = np.max(np.broadcast_arrays(*found), axis=0)
        if expr.op == Op.MUL:
            of_all = np.minimum(found[0] + found[1], NONLINEAR)
        elif expr.op in (Op.ADD, Op.DETACH):
            of_all = most
        else:
            is_linear = (found[1] == CONSTANT) if expr.op == Op.DIV else (most == CONSTANT)
            of_all = np.where(is_linear, found[0], NONLINEAR)
        return np.where(most == MIXED, MIXED, of_all)

    def writers_of(self, place: Place, roots: Counts, terms: Counts) -> Ints:
        """Who computes the elements of a place: an axis for all roots, and one for each loop over terms."""
        if place.array != VALUE:
            is_shared = place.array in (DATA, GRAD) or place.array in self.loops.tables
            return np.full([1] * (1 + len(terms)), FOR_ALL if is_shared else NOBODY)
        counts = {**roots, **terms}
        key = place.index, *counts.items(), len(terms)
        if key not in self.writers:
            found = self.writer[indices_of(self.loops, place.index, counts)]
            shape = [count if place.index.depends_on(name) else 1 for name, count in terms.items()]
            self.writers[key] = found.reshape([-1, *shape])
        return self.writers[key]

    def scaled(self, stmt: Stmt, roots: Counts) -> Stmt:
        """A statement about sums over images: what is the same for all images counts for each."""
        loops = [*_chain(stmt)]
        terms = _counts(loops)

        def scale(expr: Expr) -> Expr:
            degree = int(self.degree(expr, roots, terms).max())
            if type(expr) is Name or expr == Const(0.0):  # the sum so far; -0.0 too, with which it begins
                return expr
            if degree == CONSTANT:
                return Apply(Op.MUL, (Name(IMAGE_COUNT), expr))
            if type(expr) is not Apply:
                return expr
            factor = expr.op in (Op.MUL, Op.DIV)
            operands = [x if factor and not self.degree(x, roots, terms).any() else scale(x) for x in expr.operands]
            return Apply(expr.op, tuple(operands))

        def change(inner: Stmt) -> Stmt:
            assert isinstance(inner, Accumulate | Let | Store)
            return replace(inner, value=scale(cast(Expr, inner.value)))

        return around(loops, tuple(map(change, loops[-1].body if loops else (stmt,))))[0]


def _chain(stmt: Stmt) -> Iterator[For]:
    """The loops over terms, each the whole body of the one before."""
    while isinstance(stmt, For):
        yield stmt
        if len(stmt.body) > 1:
            break
        stmt = stmt.body[0]


def _counts(loops: Iterable[For]) -> dict[str, int]:
    return {loop.counter: loop.count for loop in loops}


def _places(stmt: Stmt, counts: Counts) -> Iterator[tuple[Place, Counts]]:
    """The places that a statement reads, with the counts of the loops around them."""
    if isinstance(stmt, For):
        for inner in stmt.body:
            yield from _places(inner, {**counts, stmt.counter: stmt.count})
    yield from ((place, counts) for place in reads(stmt))


def _split(stmt: Stmt, loops: list[For], codes: Ints, degrees: Ints) -> Iterator[tuple[Stmt, int]]:
    """A statement with the loops over terms around it, apart where the codes of its iterations differ."""
    differ = [axis for axis in range(codes.ndim) if (codes != codes.take([0], axis)).any()]
    if not differ:
        yield around(loops, (stmt,))[0], int(degrees.flat[0])
        return
    axis, loop = differ[0], loops[differ[0]]
    line = [codes.take(i, axis).flat[0] for i in range(codes.shape[axis])]
    found = [(i, run) for code in dict.fromkeys(line) for i, run in _runs([i for i, x in enumerate(line) if x == code])]
    if len(differ) > 1 or len(found) > MAX_RUNS:
        yield around(loops, (stmt,))[0], MIXED
        return
    for first, steps in found:
        counters = [loop.counter + "_run" * i for i in range(len(steps))]
        over = [For(counter, count, ()) for counter, (count, _) in zip(counters, steps, strict=True)]
        start = Index(first, tuple([(step, counter) for counter, (_, step) in zip(counters, steps, strict=True)]))
        inner = (*loops[:axis], *reversed(over), *loops[axis + 1 :])
        yield around(inner, substituted((stmt,), loop.counter, start))[0], int(degrees.take(first, axis).flat[0])


def _runs(numbers: list[int]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Ascending numbers as a first one and what to add, so many times: 1, 2, 3, 8, 9, 10 is 1, [(3, 1), (2, 7)]."""
    found: list[tuple[int, list[tuple[int, int]]]] = [(number, []) for number in numbers]
    for _ in range(2):
        runs = [(first, [*steps, (1, 0)]) for first, steps in found]
        found = runs[:1]
        for first, steps in runs[1:]:
            start, before = found[-1]
            count, step = before[-1]
            if steps[:-1] == before[:-1] and (count == 1 or start + count * step == first):
                found[-1] = start, [*before[:-1], (count + 1, step if count > 1 else first - start)]
            else:
                found.append((first, steps))
    return [(first, [(count, step) for count, step in steps if count > 1]) for first, steps in found]


def _is_sum(nest: Body) -> bool:
    """Whether a nest stores single terms, or sums of terms."""
    names = [stmt for stmt in statements(nest) if type(stmt) is Let]
    stored = [stmt.value for stmt in statements(nest) if type(stmt) is Store]
    adds = all(stmt.op == Op.ADD for stmt in statements(nest) if type(stmt) is Accumulate)
    return adds and (not names or all(type(value) is Name for value in stored))


def _added(body: Iterable[Stmt], to: Place | Name) -> Iterator[Stmt]:
    """The terms that a body adds or stores, added to something else."""
    for stmt in body:
        if isinstance(stmt, For):
            yield stmt.with_body(tuple(_added(stmt.body, to)))
        else:
            assert isinstance(stmt, Store | Let | Accumulate)
            if stmt.value != Const(0.0) and type(stmt.value) is not Name:  # but the sum so far, or where it begins
                yield Accumulate(to, Op.ADD, cast(Expr, stmt.value))


def _pays(sums: Sums, kernels: list[Kernel], target: Target) -> bool:
    """Whether a block of GROUPS groups takes fewer operations."""
    before = sum(kernel_cost(kernel, target).side_by_side for kernel in kernels)
    found = [(kernel, kernel_cost(kernel, target)) for kernel in sums.after]
    of_groups = sum(cost.side_by_side for _, cost in found)
    once = sum(cost.by_image / target.cache_line + STARTED * len(kernel.nests) for kernel, cost in found)
    own = {kernel.number for kernel in sums.own}
    fewer = sum(kernel.roots for kernel in sums.after if kernel.number in sums.changed - own)
    ends = ADDED * (sum(kernel.roots for kernel in sums.added) - fewer)
    return GROUPS * of_groups - once - ends > GAIN * GROUPS * before
