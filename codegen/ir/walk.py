"""The loop language, walked through and rebuilt: see loops.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import is_not

from codegen.ir.loops import (
    DATA,
    GRAD,
    VALUE,
    Accumulate,
    Apply,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Loops,
    Name,
    Nest,
    Place,
    Prefetch,
    Stmt,
    Store,
    Target,
)


def statements(body: Body) -> Iterator[Stmt]:
    """Every statement, outer ones before those inside."""
    for stmt in body:
        yield stmt
        if type(stmt) is For or type(stmt) is Nest:
            yield from statements(stmt.body)


def has_loop(nests: Iterable[Body], kind: Kind) -> bool:
    """Whether there is a loop of a kind."""
    return any(type(stmt) is For and stmt.kind == kind for nest in nests for stmt in statements(nest))


def is_over_terms(loop: For) -> bool:
    """Whether a loop adds to sums, which are Locals or names, and stores nothing elsewhere."""
    inside = [*statements(loop.body)]
    targets = [stmt.target for stmt in inside if isinstance(stmt, Accumulate | Store)]
    is_local = all(not isinstance(target, Place) or target.array not in (DATA, GRAD, VALUE) for target in targets)
    return is_local and any(map(adds, inside)) and not any(isinstance(stmt, Nest) for stmt in inside)


def adds(stmt: Stmt) -> bool:
    """Whether a statement adds to its target; as a Store, with a product that is not rounded."""
    return isinstance(stmt, Accumulate) or (isinstance(stmt, Store) and stmt.target in subexpressions(stmt.value))


def applied_to_each(loop: For) -> tuple[int, Place]:
    """The op that a loop of kind `each` applies, and the first place. Raises ValueError if it does anything else."""
    match loop.body:
        case (For(body=(Store() as stmt,), kind=Kind.SIDE_BY_SIDE),) | (Store() as stmt,):
            target, value, counter = stmt.target, stmt.value, loop.counter
            if type(target) is Place and type(value) is Apply and value.operands == (target,):
                index = target.index
                if index.stride(counter) == 1 and not index.looks_up(counter):
                    return value.op, replace(target, index=moved(index, counter, Index(0)))
    raise ValueError("no function of numbers side by side")


def is_rolled(nest: Body) -> bool:
    """Whether a nest is a loop over kernels: see schedule.roll."""
    return (
        len(nest) == 1
        and type(nest[0]) is For
        and any(type(stmt) is Nest or is_rolled((stmt,)) for stmt in nest[0].body)
    )


def subexpressions(expr: Expr) -> Iterator[Expr]:
    yield expr
    if type(expr) is Apply:
        for operand in expr.operands:
            yield from subexpressions(operand)


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions that a statement itself evaluates."""
    if type(stmt) in (Let, Store, Accumulate) and not isinstance(stmt.value, Index):  # type: ignore[union-attr]
        yield stmt.value  # type: ignore[union-attr]


def reads(stmt: Stmt) -> Iterator[Place]:
    """The places that a statement itself reads, except the target of an Accumulate; or prefetches."""
    if type(stmt) is Prefetch:
        yield stmt.place
    for expr in expressions(stmt):
        for part in subexpressions(expr):
            if type(part) is Place:
                yield part


def writes(stmt: Stmt) -> Place | None:
    """The place that a statement itself writes."""
    return stmt.target if type(stmt) in (Store, Accumulate) and type(stmt.target) is Place else None  # type: ignore[union-attr]


def places(body: Body) -> Iterator[Place]:
    """Every place that a body reads or writes."""
    for stmt in statements(body):
        target = writes(stmt)
        yield from reads(stmt) if target is None else (target, *reads(stmt))


def all_places(loops: Loops) -> Iterator[Place]:
    """Every place that the kernels read or write."""
    for kernel in loops.kernels:
        for nest in kernel.nests:
            yield from places(nest)


def uses(body: Body, array: str) -> bool:
    """Whether anything in a body reads or writes an array."""
    return any(place.array == array for place in places(body))


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every part changed, operands first. What stays as it was is the same object."""
    if type(expr) is Apply:
        operands = tuple([map_expr(operand, change) for operand in expr.operands])
        if any(map(is_not, operands, expr.operands)):
            expr = Apply(expr.op, operands)
    return change(expr)


def map_body(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """The body with every expression and every target changed. What stays as it was is the same object."""
    changed = tuple([_map_stmt(stmt, change) for stmt in body])
    return changed if any(map(is_not, changed, body)) else body


def _map_stmt(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    match stmt:
        case For() | Nest():
            body = map_body(stmt.body, change)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case Let():
            if isinstance(stmt.value, Index):
                return stmt
            value = map_expr(stmt.value, change)
            return stmt if value is stmt.value else Let(stmt.name, value)
        case Store() | Accumulate():
            target, value = _target(change(stmt.target)), map_expr(stmt.value, change)
            if target is stmt.target and value is stmt.value:
                return stmt
            return Store(target, value) if type(stmt) is Store else replace(stmt, target=target, value=value)
        case Prefetch():
            place = change(stmt.place)
            assert isinstance(place, Place)
            return replace(stmt, place=place)
    return stmt


def _target(expr: Expr) -> Target:
    assert isinstance(expr, Place | Name)
    return expr


def moved(index: Index, counter: str, to: Index) -> Index:
    """The index with a counter replaced: counter = to.base + sum(stride * counter)."""
    if not index.depends_on(counter):
        return index
    stride = index.stride(counter)
    steps = tuple([step for step in index.steps if step[1] != counter])
    if stride:
        steps += tuple([(stride * step, name) for step, name in to.steps])
    tables = tuple([(table, moved(inner, counter, to)) for table, inner in index.tables])
    return Index(index.base + stride * to.base, steps, tables, index.origin)


def substituted(body: Body, counter: str, to: Index) -> Body:
    """The body with a counter replaced in every index and in every count; see moved()."""

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place or (index := moved(expr.index, counter, to)) is expr.index:
            return expr
        return replace(expr, index=index)

    return tuple([_with_count(stmt, counter, to) for stmt in map_body(body, change)])


def _with_count(stmt: Stmt, counter: str, to: Index) -> Stmt:
    match stmt:
        case For():
            count = moved(Index(stmt.count, stmt.steps), counter, to)
            body = tuple([_with_count(inner, counter, to) for inner in stmt.body])
            return replace(stmt, count=count.base, body=body, steps=count.steps)
        case Nest():
            return replace(stmt, body=tuple([_with_count(inner, counter, to) for inner in stmt.body]))
    return stmt


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
