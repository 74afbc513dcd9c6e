"""Sums that may be reordered -> several sums, so that their additions need not wait for one another.

Example input:

    let sum = data[9]
    for k < 102:
        sum += mul(data[10 + k], value[k])
    value[200] = sum

becomes:

    local sum[4]
    sum[0] = data[9]
    for part < 3:
        sum[1 + part] = -0
    for from < 25:
        for part < 4:
            sum[part] += mul(data[10 + part + 4from], value[part + 4from])
    for k < 2:
        sum[0] += mul(data[110 + k], value[100 + k])
    value[200] = add(add(sum[0], sum[1]), add(sum[2], sum[3]))

With lanes each part has an element for each of them. Only long loops with few lanes are worth it, and only a Program
with reorder=True allows it.
"""

from __future__ import annotations

from codegen.ir.graph import Op
from codegen.ir.loops import (
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Place,
    Stmt,
    Store,
    map_body,
    statements,
    substituted,
)
from codegen.schedule.nest import each_nest
from codegen.schedule.target import Target

PARTS = 4  # as many additions are under way at a time


def split_sums(loops: Loops, target: Target) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if kernel.is_gradient or not any(_goes_in_parts(stmt, target) for stmt in statements(nest)):
            return nest
        return _at_sum(nest, target)

    return each_nest(loops, change)


def _goes_in_parts(stmt: Stmt, target: Target) -> bool:
    """A long innermost loop of additions, around too few lanes to keep the processor busy."""
    if type(stmt) is not For or stmt.kind != Kind.SEQUENTIAL or stmt.count < 2 * PARTS or len(stmt.body) != 1:
        return False
    (inner,) = stmt.body
    if type(inner) is For and inner.kind == Kind.LANES:
        return inner.count <= 2 * target.cache_line and _adds(inner.body)
    return _adds(stmt.body)


def _adds(body: Body) -> bool:
    (stmt,) = body
    return type(stmt) is Accumulate and stmt.op == Op.ADD


def _at_sum(body: Body, target: Target) -> Body:
    """Goes down to where the sum is declared."""
    if not isinstance(body[0], Let | Local):
        (loop,) = body
        assert isinstance(loop, For)
        return (For(loop.counter, loop.count, _at_sum(loop.body, target), loop.kind, loop.input),)
    declaration = body[0]
    name = declaration.name
    width = declaration.length if isinstance(declaration, Local) else 1

    def part_of(part: Index) -> Body:
        """The body, adding to one part."""

        def change(expr: Expr) -> Expr:
            if expr == Name(name):
                return Place(name, part)
            if type(expr) is Place and expr.array == name:
                return Place(name, Index(part.base + expr.index.base, expr.index.steps + part.steps))
            return expr

        return map_body(body[1:], change)

    first = [part_of(Index(part * width)) for part in range(PARTS)]
    moving = part_of(Index(0, ((width, "part"),)))
    result: list[Stmt] = [Local(name, PARTS * width)]
    if isinstance(declaration, Let):
        assert not isinstance(declaration.value, Index)
        result.append(Store(Place(name, Index(0)), declaration.value))
        result.append(For("part", PARTS - 1, (Store(Place(name, Index(1, ((1, "part"),))), Const(-0.0)),)))
        inner = range(len(body) - 2)
    else:
        start = first[0][0]
        assert isinstance(start, For)
        lane = start.counter
        rest = Place(name, Index(width, ((1, lane),)))
        result += [start, For(lane, (PARTS - 1) * width, (Store(rest, Const(-0.0)),), Kind.LANES)]
        inner = range(1, len(body) - 2)
    for at in inner:
        result += _run(first[0][at], moving[at], target)
    sums = [_last_value(parts[-1]) for parts in first]
    result.append(_with_total(body[-1], name, sums))
    return tuple(result)


def _run(single: Stmt, moving: Stmt, target: Target) -> list[Stmt]:
    """A run of terms, in parts where it is long: `moving` is the run as it adds to part number `part`."""
    if type(moving) is not For or type(single) is not For:
        return [single]
    if not _goes_in_parts(moving, target):
        if moving.kind == Kind.LANES:
            return [single]
        pairs = zip(single.body, moving.body, strict=True)
        inner = tuple([stmt for a, b in pairs for stmt in _run(a, b, target)])
        return [For(single.counter, single.count, inner, single.kind, single.input)]
    count, rest = divmod(moving.count, PARTS)
    body = substituted(moving.body, moving.counter, Index(0, ((1, "part"), (PARTS, "from"))))
    result: list[Stmt] = [For("from", count, (For("part", PARTS, body),))]
    if rest:
        tail = substituted(single.body, single.counter, Index(count * PARTS, ((1, single.counter),)))
        result.append(For(single.counter, rest, tail, single.kind))
    return result


def _last_value(stmt: Stmt) -> Place:
    """The element of a part's sum that the last statement reads."""
    inner = stmt.body[0] if isinstance(stmt, For) else stmt
    assert isinstance(inner, Store)
    expr: Expr = inner.value
    while isinstance(expr, Apply):
        (expr,) = expr.operands
    assert isinstance(expr, Place)
    return expr


def _with_total(stmt: Stmt, name: str, sums: list[Place]) -> Stmt:
    total = Apply(Op.ADD, (Apply(Op.ADD, (sums[0], sums[1])), Apply(Op.ADD, (sums[2], sums[3]))))

    def change(expr: Expr) -> Expr:
        return total if expr == Name(name) or (type(expr) is Place and expr.array == name) else expr

    (changed,) = map_body((stmt,), change)
    return changed
