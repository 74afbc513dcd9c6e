"""What passes share: which loops of a nest run over roots, where its result goes, and how to rebuild it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import is_not

from codegen.ir.loops import (
    GRAD,
    SHARED,
    VALUE,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Nest,
    Place,
    Stmt,
    Store,
    is_rolled,
    map_body,
    statements,
    substituted,
    writes,
)


def result(nest: Body) -> Place:
    """The place in value[], shared[] or grad[] that a nest writes."""
    found = [target for stmt in statements(nest) if (target := writes(stmt)) and target.array in (VALUE, SHARED, GRAD)]
    return found[-1]


def root_loops(nest: Body) -> list[For]:
    """The loops over roots, outermost first: each is the whole body of the one before, and the result depends on it."""
    loops: list[For] = []
    body = nest
    if len(nest) == 1 and type(nest[0]) is For:
        index = result(nest).index
        while len(body) == 1 and type(body[0]) is For and index.depends_on(body[0].counter):
            loops.append(body[0])
            body = body[0].body
    return loops


def roots_and_body(nest: Body) -> tuple[list[For], Body]:
    """The loops over roots, outermost first, and what is done for each root."""
    found = root_loops(nest)
    return found, found[-1].body if found else nest


def counts_of(nest: Body) -> dict[str, int]:
    return {stmt.counter: stmt.count for stmt in statements(nest) if type(stmt) is For}


def is_copy(nest: Body) -> bool:
    """Whether a nest copies columns as rows: see columns.py."""
    match nest:
        case (For(body=(For(body=(Store(Place() as to, Place() as source),)) as inner,)) as outer,):
            strides = to.index.stride(inner.counter), source.index.stride(outer.counter)
            is_plain = not (to.index.tables or source.index.tables)
            return is_plain and strides == (1, 1) and source.index.stride(inner.counter) > 1
    return False


def around(loops: Iterable[For], body: Body) -> Body:
    """The body inside copies of these loops, outermost first."""
    for loop in reversed(list(loops)):
        body = (loop.with_body(body),)
    return body


def distributed(body: Body, loops: Sequence[For]) -> Body:
    """Loop distribution: the loops go around each statement, and a Let becomes a Local with an element an iteration.

    `loops` are some over roots, then one over images side by side, or one of them.
    """
    roots = [loop for loop in loops if loop.kind != Kind.SIDE_BY_SIDE]
    image = next((loop.counter for loop in loops if loop.kind == Kind.SIDE_BY_SIDE), "")
    inside = [prod(loop.count for loop in roots[i + 1 :]) for i in range(len(roots))]
    index = Index(0, tuple([(stride, loop.counter) for stride, loop in zip(inside, roots, strict=True)]))
    count = prod(loop.count for loop in roots)
    names: dict[str, Place] = {}

    def change(expr: Expr) -> Expr:
        return names.get(expr.name, expr) if type(expr) is Name else expr

    def visit(body: Body) -> Body:
        result: list[Stmt] = []
        for stmt in body:
            match stmt:
                case For():
                    result.append(stmt.with_body(visit(stmt.body)))
                case Let():
                    assert not isinstance(stmt.value, Index)
                    names[stmt.name] = Place(stmt.name, index, image)
                    result.append(Local(stmt.name, count, images=bool(image)))
                    result += around(loops, map_body((Store(names[stmt.name], stmt.value),), change))
                case _:
                    result += around(loops, map_body((stmt,), change))
        return tuple(result)

    return visit(body)


def each_nest(loops: Loops, change: Callable[[Kernel, Body], Body], straight: bool = False) -> Loops:
    """The loops with every nest changed that is more than a statement; `straight`: those too."""

    def changed(kernel: Kernel) -> Kernel:
        nests = kernel.nests
        if not straight and len(nests) == 1 and len(nests[0]) == 1 and type(nests[0][0]) is not For:
            return kernel  # a single statement, as most of an irregular graph is
        found = tuple([change(kernel, nest) for nest in nests])
        return kernel.with_nests(found) if any(map(is_not, found, nests)) else kernel

    return loops.with_kernels([changed(kernel) for kernel in loops.kernels])


def with_lanes(body: Body, lane: str, count: int) -> Body:
    """The body with `count` lanes, and `count` elements in its Locals."""
    changed: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                inner = with_lanes(stmt.body, lane, count)
                changed.append(replace(stmt, count=count if stmt.counter == lane else stmt.count, body=inner))
            case Local():
                changed.append(Local(stmt.name, count))
            case _:
                changed.append(stmt)
    return tuple(changed)


def in_time(loops: Loops) -> Iterator[Kernel]:
    """The kernels, and for loops over kernels each of those that they run, one after the other."""

    def looked_up(expr: Expr) -> Expr:
        """Distances that tables have for one iteration are a part of the base."""
        if type(expr) is not Place or not expr.index.tables:
            return expr
        index = expr.index
        known = [loops.tables[table][at.base] for table, at in index.tables if not (at.steps or at.tables or at.origin)]
        tables = tuple([(table, at) for table, at in index.tables if at.steps or at.tables or at.origin])
        return replace(expr, index=replace(index, base=index.base + int(sum(known)), tables=tables))

    for kernel in loops.kernels:
        if any(is_rolled(nest) for nest in kernel.nests):
            bodies = [map_body(body, looked_up) for nest in kernel.nests for body in _steps(nest)]
            yield from [kernel.with_nests((body,)) for body in bodies]
        else:
            yield kernel


def _steps(nest: Body) -> Iterator[Body]:
    if not is_rolled(nest):
        yield nest
        return
    loop = nest[0]
    assert isinstance(loop, For)
    for i in range(loop.count):
        body = loop.halves[0] if i == loop.count - 1 else loop.body
        for stmt in substituted(body, loop.counter, Index(i)):
            yield from _steps(stmt.body if type(stmt) is Nest else (stmt,))
