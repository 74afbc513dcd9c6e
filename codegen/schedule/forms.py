"""What is the same in nests that one loop over kernels can serve: all but the numbers that may advance.

Example:

    i < 12: let sum = -0.0; k < 3: sum += value[100 + 8i + k]; value[200 + i] = sum
    i < 12: let sum = -0.0; k < 4: sum += value[196 + 8i + k]; value[212 + i] = sum

have one form. Their counts of terms are (3) and (4), the bases of their indices (100, 200) and (196, 212). Both have
(-0.0) as constants.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from codegen.ir.loops import Body, Const, Expr, For, Index, Kind, Loops, Name, Nest, Place, Stmt, map_body, statements
from codegen.schedule.nest import roots_and_body

MIN_COUNTS = 3  # from which on sums of different numbers of terms stay alike
Steps = tuple[tuple[int, str], ...]
OVER_TERMS = (Kind.SEQUENTIAL, Kind.IN_ORDER)  # kinds of loops whose counts may differ


@dataclass(frozen=True)
class Form:
    """`key`: a body without its counts of terms and the names of these counters, the bases of its indices and its
    constants, which are in the order of the body. `constants`: as texts, which tell 0 from -0."""

    key: object
    counts: tuple[int, ...]
    bases: tuple[int, ...]
    constants: tuple[str, ...]


def form_of(body: Body) -> Form:
    """The form of a body."""
    counts: list[int] = []
    bases: list[int] = []
    constants: list[str] = []
    names: dict[str, str] = {}

    def anonymous(steps: Steps) -> Steps:
        return tuple([(stride, names.get(name, name)) for stride, name in steps]) if names else steps

    def without_base(index: Index) -> Index:
        bases.append(index.base)
        return Index(0, anonymous(index.steps), index.tables, index.origin)

    def change(expr: Expr) -> Expr:
        if type(expr) is Const:
            constants.append(repr(expr.value))
            return Name("constant")
        if type(expr) is not Place:
            return expr
        return Place(expr.array, with_indices(expr.index, without_base), expr.image)

    def without_count(loop: For) -> For:
        counts.append(loop.count)
        return replace(loop, counter=names[loop.counter], count=0, steps=anonymous(loop.steps))

    for stmt in statements(body):
        if type(stmt) is For and stmt.kind in OVER_TERMS:
            names.setdefault(stmt.counter, f"{len(names)}")
    key = with_counts(map_body(body, change), without_count)
    return Form(key, tuple(counts), tuple(bases), tuple(constants))


class Growing:
    """The nests that differ in nothing but the number of terms, as those of tokens behind a mask.

    What is done for some numbers of terms only would tell them apart.
    """

    def __init__(self, loops: Loops) -> None:
        counts: dict[object, set[tuple[int, ...]]] = {}
        alike: dict[int, set[tuple[int, ...]]] = {}  # by the identity of a nest
        for nest in (nest for kernel in loops.kernels for nest in kernel.nests if _sums(nest)):
            form = form_of(nest)
            alike[id(nest)] = counts.setdefault((form.key, form.constants), set())
            alike[id(nest)].add(form.counts)
        self.loops = loops  # which keeps the nests
        self.nests = {nest for nest, found in alike.items() if len(found) >= MIN_COUNTS}

    def __contains__(self, nest: Body) -> bool:
        """Of the nests of these loops."""
        return id(nest) in self.nests


def _sums(nest: Body) -> bool:
    """Whether there is a loop inside of those over roots, or beside a number that it adds to."""
    return any(type(stmt) is For for stmt in roots_and_body(nest)[1])


def with_counts(body: Body, change: Callable[[For], For]) -> Body:
    """The body with each loop over terms changed, outer ones first."""

    def visit(stmt: Stmt) -> Stmt:
        if type(stmt) is For and stmt.kind in OVER_TERMS:
            stmt = change(stmt)
        if type(stmt) is For or type(stmt) is Nest:
            return stmt.with_body(with_counts(stmt.body, change))
        return stmt

    return tuple([visit(stmt) for stmt in body])


def with_indices(index: Index, change: Callable[[Index], Index]) -> Index:
    """The index changed, after those that look up its tables."""
    if index.tables:
        index = replace(index, tables=tuple([(table, with_indices(inner, change)) for table, inner in index.tables]))
    return change(index)
