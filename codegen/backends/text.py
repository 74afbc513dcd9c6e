"""Loops -> text: each group as an assignment, and how much of a program's work is in loops.

Example output, for one group of the model in codegen/mnist.py:

    group_0[i] = relu(layers.0.bias[i] + sum_k(layers.0.weight[i + 56k] * input[k]))    i < 50, k < 784

i, j, ... walk over the roots of the group, k, u, ... over the terms of a sum. `micrograd explain model.py`
prints this for the Program that MODEL.py declares by a function program(), and generated C has it as comments.
"""

from dataclasses import dataclass, replace

from codegen.backends.expressions import ADDITION, PRIMARY, PRODUCT, Bound, bound, words_text
from codegen.ir.graph import Op
from codegen.ir.loops import (
    GRAD,
    IMAGE_COUNT,
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
    Nest,
    Phase,
    Place,
    Stmt,
    Store,
    all_expressions,
    places,
    statements,
)
from codegen.reroll.loops import is_neutral
from codegen.schedule.copies import Batch
from codegen.schedule.forms import OVER_TERMS, with_counts
from codegen.schedule.nest import root_loops, roots_and_body
from codegen.schedule.phases import once_first, with_phases
from codegen.schedule.roll import roll

REDUCTIONS = {int(Op.ADD): "sum", int(Op.MAX): "max"}


@dataclass(frozen=True)
class Formula:
    """A nest as text: an assignment, and the ranges of its counters."""

    assignment: str
    ranges: str

    def __str__(self) -> str:
        return f"{self.assignment}    {self.ranges}".rstrip()


@dataclass(frozen=True)
class Work:
    """Scalar operations of a program: all, those in loops, those whose innermost loop has strides 0 and 1 only."""

    nodes: int
    groups: int
    operations: int
    in_loops: int
    unit_stride: int

    def __str__(self) -> str:
        share = 100 * self.unit_stride / max(self.operations, 1)
        return (
            f"{self.nodes:,} nodes, {self.operations:,} of them operations, in {self.groups} groups; "
            f"{self.in_loops:,} operations in loops, {self.unit_stride:,} ({share:.1f} %) with unit stride"
        )


def formulas(loops: Loops, kernel: Kernel) -> list[Formula]:
    """The nests of a kernel as reroll makes them, before any pass has scheduled them."""
    return [_Words(loops).formula(nest) for nest in kernel.nests]


def summary(loops: Loops, kernel: Kernel) -> str:
    """A kernel in one comment: its first nest, and how many more there are."""
    first = _Words(loops).formula(kernel.nests[0])
    ranges = f" for {first.ranges}" if first.ranges else ""
    more = f", and {len(kernel.nests) - 1} more nests" if len(kernel.nests) > 1 else ""
    return f"{first.assignment}{ranges}{more}"


def explanation(loops: Loops, batch: Batch | None = None) -> list[str]:
    """All groups: a line with the number of roots and how they run in a batch, then one line per nest.

    Sequences of groups that come again and again, as those of time steps and layers, are told once: the first ones.
    So are groups whose sums grow, as those of the tokens behind a mask: `k < 3 + t`.
    """
    phases = batch.phases if batch is not None else {}
    loops = once_first(with_phases(loops, phases))
    kernels = {kernel.number: kernel for kernel in loops.kernels}

    def about(kernel: Kernel) -> list[str]:
        head = f"{kernel.roots:,} root{'s' * (kernel.roots > 1)}"
        if batch is not None and kernel.number in phases:
            cost = batch.costs[kernel.number]
            is_of_sums = kernel.number in batch.sums.numbers | batch.sums.changed
            phase = Phase.SUMMED if is_of_sums else phases[kernel.number]
            head += f", {phase.value}: {cost.by_image:,.0f} or {cost.side_by_side:,.0f}"
        return [head, *(f"    {formula}" for formula in formulas(loops, kernel))]

    def inside(body: Body) -> list[str]:
        lines: list[str] = []
        for stmt in body:
            if type(stmt) is Nest:
                nests = [nest.body for nest in body if type(nest) is Nest and nest.number == stmt.number]
                lines += whole(stmt.number, nests)
            elif type(stmt) is For and not (numbers := _numbers(stmt.body)) <= told:
                is_part = len(numbers) == 1 and len(kernels[min(numbers)].nests) > len(stmt.body)
                lines += whole(min(numbers), []) if is_part else times(stmt)
        return lines

    def times(loop: For) -> list[str]:
        """What a loop over kernels runs."""
        counted = f", {loop.counter} < {loop.count}" if _grows(loop.body) else ""
        always, rest = map(inside, loop.halves)
        lines = [f"{loop.count} times{counted}", *(f"    {line}" for line in always)]
        lines += ["    all but the last time"] if rest else []
        return [*lines, *(f"        {line}" for line in rest)]

    def whole(number: int, nests: list[Body]) -> list[str]:
        """A kernel, where its first nest is; with counts that grow, unless some nests are in loops of their own."""
        if number in told:
            return []
        told.add(number)
        kernel = kernels[number]
        return about(_growing_as(nests, kernel) if len(nests) == len(kernel.nests) else kernel)

    told: set[int] = set()
    found: list[str] = []
    plain = iter(loops.kernels)
    for kernel in roll(loops, fewest=3).kernels:
        together = [next(plain)]
        while sum(k.roots for k in together) < kernel.roots:
            together.append(next(plain))
        several = len(_numbers(kernel.nests[0])) > 1
        is_sequence = len(together) > 1 and (several or _grows(kernel.nests[0]))
        found += inside(kernel.nests[0]) if is_sequence else [line for k in together for line in about(k)]
    return found


def _numbers(body: Body) -> set[int]:
    """Of the kernels in a loop over kernels."""
    return {stmt.number for stmt in statements(body) if type(stmt) is Nest}


def _grows(body: Body) -> bool:
    return any(type(stmt) is For and stmt.steps for stmt in statements(body))


def _growing_as(nests: list[Body], kernel: Kernel) -> Kernel:
    """The kernel with counts that grow as those of its nests in a loop over kernels."""

    def grown(nest: Body, rolled: Body) -> Body:
        steps = iter([stmt.steps for stmt in statements(rolled) if type(stmt) is For and stmt.kind in OVER_TERMS])
        return with_counts(nest, lambda loop: replace(loop, steps=next(steps)))

    return kernel.with_nests(tuple([grown(*pair) for pair in zip(kernel.nests, nests, strict=True)]))


def in_batches(batch: Batch | None) -> str:
    """How images run in a batch, and why."""
    if batch is None:
        return "In a batch, one image after the other is at least as fast as images side by side."
    beside = [batch.costs[number] for number, phase in batch.phases.items() if phase == Phase.SIDE_BY_SIDE]
    alone, together = sum(cost.by_image for cost in beside), sum(cost.side_by_side for cost in beside)
    return (
        f"In batches of {batch.fewest} images or more, {batch.images} lie side by side: {together:,.0f} vector "
        f"operations and {batch.copies.cost:,} for copies, instead of {alone:,.0f} image by image. Numbers behind a "
        f"group: operations for {batch.images} images, image by image or side by side."
    )


def work(loops: Loops, nodes: int) -> Work:
    """How much of a program is in loops. A sum over terms is a loop too."""
    total = in_loops = unit_stride = 0
    for kernel in loops.kernels:
        for nest in kernel.nests:
            roots = root_loops(nest)
            for operations, loops_around, used in _operations(nest, []):
                inner = roots[-1:] or loops_around[-1:]
                total += operations
                in_loops += operations * bool(inner)
                unit_stride += operations * (bool(inner) and all(_has_unit_stride(p, inner[0]) for p in used))
    return Work(nodes, len(loops.kernels), total, in_loops, unit_stride)


def _operations(body: Body, around: list[For]) -> list[tuple[int, list[For], list[Place]]]:
    """For each statement its operations, the loops around it, and what it reads and writes."""
    found = []
    times = 1
    for loop in around:
        times *= loop.count
    for stmt in body:
        if isinstance(stmt, For):
            found += _operations(stmt.body, [*around, stmt])
            continue
        count = sum(isinstance(part, Apply) for part in all_expressions(stmt)) + isinstance(stmt, Accumulate)
        if isinstance(stmt, Let) and any(is_neutral(stmt.value, op) for op in REDUCTIONS):
            # n terms are added by n - 1 additions
            terms = _operations(tuple([loop for loop in body if isinstance(loop, For)][:1]), around)
            found += [(-times, loops, used) for _, loops, used in terms[:1]]
            continue
        found.append((times * count, around, [*places((stmt,))]))
    return found


def _has_unit_stride(place: Place, loop: For) -> bool:
    return place.index.is_contiguous(loop.counter)


def _range(loop: For) -> str:
    return f"{loop.counter} < {index_text(Index(loop.count, loop.steps))}"


class _Words:
    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.ranges: list[str] = []

    def formula(self, nest: Body) -> Formula:
        found, body = roots_and_body(nest)
        self.ranges = [_range(loop) for loop in found]
        last = body[-1]
        if isinstance(body[0], Let):
            assert isinstance(last, Store)
            adds = body[0].value == last.target
            total = self.terms(int(Op.ADD), [], body[1:-1]) if adds else self.total(body[0], body[1:-1])
            text = f"{self.place(last.target)} {'+=' if adds else '='} {self.expr(last.value, total)[0]}"
        elif isinstance(last, Store):
            text = f"{self.place(last.target)} = {self.expr(last.value, ('', PRIMARY))[0]}"
        else:
            text = f"{self.place(self.target(body))} += {self.terms(int(Op.ADD), [], body)[0]}"
        return Formula(text, ", ".join(self.ranges))

    def target(self, body: Body) -> Place | Name:
        return next(stmt.target for stmt in statements(body) if isinstance(stmt, Accumulate))

    def total(self, start: Let, body: Body) -> Bound:
        op = next(stmt.op for stmt in statements(body) if isinstance(stmt, Accumulate))
        assert not isinstance(start.value, Index)
        return self.terms(op, [] if is_neutral(start.value, op) else [self.expr(start.value, ("", PRIMARY))], body)

    def terms(self, op: int, parts: list[Bound], body: Body) -> Bound:
        """What is accumulated: `a + sum_k(b[k] * c[k])`. Terms that alternate are one term of their loop."""
        for stmt in body:
            counters = []
            inner: Body = (stmt,)
            while len(inner) == 1 and isinstance(loop := inner[0], For):
                counters.append(loop.counter)
                self.ranges.append(_range(loop))
                inner = loop.body
            text, binding = self.terms(op, [], inner) if len(inner) > 1 else self.term(inner[0])
            if counters:
                text, binding = f"{REDUCTIONS[op]}_{''.join(counters)}({text})", PRIMARY
            parts.append((text, binding))
        if len(parts) == 1:
            return parts[0]
        if op == Op.ADD:
            first, *others = parts
            return " + ".join([first[0], *(bound(part, PRODUCT) for part in others)]), ADDITION
        return f"{REDUCTIONS[op]}({', '.join(text for text, _ in parts)})", PRIMARY

    def term(self, stmt: Stmt) -> Bound:
        assert isinstance(stmt, Accumulate)
        return self.expr(stmt.value, ("", PRIMARY))

    def expr(self, expr: Expr, total: Bound) -> Bound:
        """The text of an expression. Of the names in it, that of the sum has the text `total`."""
        match expr:
            case Place():
                return self.place(expr), PRIMARY
            case Name():
                return (expr.name, PRIMARY) if expr.name == IMAGE_COUNT else total
            case Const():
                return f"{expr.value:g}", PRIMARY
        operands = [self.expr(operand, total) for operand in expr.operands]
        return words_text(expr.op, operands)

    def place(self, place: Place | Name) -> str:
        if isinstance(place, Name):
            return place.name
        if place.array in self.loops.tables:
            return f"{place.array}[{index_text(place.index)}]"
        region = self.loops.region(place.array, place.index.base)
        index = Index(place.index.base - region.start, place.index.steps, place.index.tables)
        name = region.title + ".grad" * (place.array == GRAD)
        return name if region.extent == 1 else f"{name}[{index_text(index)}]"


def index_text(index: Index) -> str:
    """`9 + i - 12j + table_3_0[k]`"""
    text = index.origin
    if index.base or not (text or index.steps or index.tables):
        text += f" + {index.base}" if text else str(index.base)
    for stride, counter in index.steps:
        factor = "" if abs(stride) == 1 else str(abs(stride))
        sign = "-" if stride < 0 else "+" if text else ""
        text += f" {sign} {factor}{counter}" if text else f"{sign}{factor}{counter}"
    for table, inner in index.tables:
        text += f"{' + ' if text else ''}{table}[{index_text(inner)}]"
    return text
