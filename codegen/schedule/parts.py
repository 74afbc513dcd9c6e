"""Sums that may be reordered -> several sums, so that additions do not wait for one another.

Example input:

    let sum = data[9]
    for k < 102:
        sum += mul(data[10 + k], value[k])
    value[200] = sum

becomes:

    let sum = data[9]
    let sum_1 = -0
    let sum_2 = -0
    let sum_3 = -0
    for from < 25:
        sum += mul(data[10 + 4from], value[4from])
        sum_1 += mul(data[11 + 4from], value[1 + 4from])
        sum_2 += mul(data[12 + 4from], value[2 + 4from])
        sum_3 += mul(data[13 + 4from], value[3 + 4from])
    for k < 2:
        sum += mul(data[110 + k], value[100 + k])
    value[200] = add(add(sum, sum_1), add(sum_2, sum_3))

With lanes, each sum has one element per lane. Only long loops with few lanes gain from this, and only a Program with
reorder=True allows it.
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
    has_loop,
    map_body,
    statements,
    substituted,
)
from codegen.schedule.nest import each_nest
from codegen.schedule.target import Target

PARTS = 4  # additions in flight at a time


def split_sums(loops: Loops, target: Target) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if (
            kernel.is_gradient
            or has_loop([nest], Kind.IN_ORDER)
            or not any(_is_splittable(stmt, target) for stmt in statements(nest))
        ):
            return nest
        return _split_at_sum(nest, target)

    return each_nest(loops, change)


def _is_splittable(stmt: Stmt, target: Target) -> bool:
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


def _split_at_sum(body: Body, target: Target) -> Body:
    """Descends to the declaration of the sum and splits it there."""
    declaration = body[0]
    if not isinstance(declaration, Let | Local):
        (loop,) = body
        assert isinstance(loop, For)
        return (For(loop.counter, loop.count, _split_at_sum(loop.body, target), loop.kind, loop.input),)
    name = declaration.name
    starts = 1 if isinstance(declaration, Let) else 2  # a Local is filled by a loop over lanes
    result: list[Stmt] = list(body[:starts])
    for part in range(1, PARTS):
        if isinstance(declaration, Let):
            result.append(Let(_part(name, part), Const(-0.0)))
        else:
            fill = _renamed(body[1:2], name, part)
            result += [Local(_part(name, part), declaration.length), *_filled(fill)]
    result += _runs(body[starts:-1], name, target)
    return (*result, _with_total(body[-1], name))


def _part(name: str, part: int) -> str:
    return f"{name}_{part}" if part else name


def _renamed(body: Body, name: str, part: int) -> Body:
    """The body as it adds to one part."""

    def change(expr: Expr) -> Expr:
        if expr == Name(name):
            return Name(_part(name, part))
        if type(expr) is Place and expr.array == name:
            return Place(_part(name, part), expr.index)
        return expr

    return map_body(body, change)


def _filled(body: Body) -> Body:
    """The loop that fills a Local, with what changes no sum."""
    (loop,) = body
    assert isinstance(loop, For)
    (stmt,) = loop.body
    assert isinstance(stmt, Store)
    return (For(loop.counter, loop.count, (Store(stmt.target, Const(-0.0)),), loop.kind),)


def _runs(body: Body, name: str, target: Target) -> Body:
    """Runs of terms, in parts where they are long."""
    result: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, For) or stmt.kind == Kind.LANES:
            result.append(stmt)
        elif _is_splittable(stmt, target):
            count, rest = divmod(stmt.count, PARTS)
            parts = [
                substituted(_renamed(stmt.body, name, part), stmt.counter, Index(part, ((PARTS, "from"),)))
                for part in range(PARTS)
            ]
            result.append(For("from", count, tuple([inner for part in parts for inner in part])))
            if rest:
                tail = substituted(stmt.body, stmt.counter, Index(count * PARTS, ((1, stmt.counter),)))
                result.append(For(stmt.counter, rest, tail))
        else:
            result.append(For(stmt.counter, stmt.count, _runs(stmt.body, name, target), stmt.kind, stmt.input))
    return tuple(result)


def _with_total(stmt: Stmt, name: str) -> Stmt:
    """The last statement, with the sum of all parts."""

    def part_of(expr: Name | Place, part: int) -> Name | Place:
        return Name(_part(name, part)) if isinstance(expr, Name) else Place(_part(name, part), expr.index)

    def change(expr: Expr) -> Expr:
        if not isinstance(expr, Name | Place) or (expr.name if isinstance(expr, Name) else expr.array) != name:
            return expr
        a, b, c, d = (part_of(expr, part) for part in range(PARTS))
        return Apply(Op.ADD, (Apply(Op.ADD, (a, b)), Apply(Op.ADD, (c, d))))

    (changed,) = map_body((stmt,), change)
    return changed
