"""Short sums -> one expression.

Example input:

    let sum = value[3]
    for k < 3:
        sum += mul(data[k], value[8 + k])
    value[12] = tanh(sum)

becomes:

    value[12] = tanh(add(add(add(value[3], mul(data[0], value[8])), mul(data[1], value[9])), mul(data[2], value[10])))

C unrolls only nests without lanes, because there is a single root, and sums without loops over terms; Python unrolls
all. Sums that differ in nothing but the number of terms, as behind a mask, stay loops: see schedule.roll.


Products that are added -> multiply-adds, rounded once if the processor can, in a Program with fma=True.

Example input:

    sum += mul(data[k], value[k])

becomes:

    sum = multiply_add(data[k], value[k], sum)
"""

from collections.abc import Iterator

from codegen.ir.graph import Op
from codegen.ir.loops import (
    MULTIPLY_ADD,
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
    Stmt,
    Store,
    has_loop,
    map_body,
    map_expr,
    reads,
    statements,
    substituted,
)
from codegen.reroll.loops import is_neutral
from codegen.schedule.forms import Growing
from codegen.schedule.nest import around, each_nest, roots_and_body

MAX_TERMS = 8


def unroll(loops: Loops, single_roots_only: bool = True) -> Loops:
    growing = Growing(loops)

    def change(kernel: Kernel, nest: Body) -> Body:
        if nest in growing:
            return nest
        found, body = roots_and_body(nest)
        has_lanes = single_roots_only and bool(found) and has_loop([body], Kind.SEQUENTIAL)
        if has_lanes or len(body) < 2 or type(body[0]) is not Let:
            return nest
        return around(found, _expression(body))

    return each_nest(loops, change, straight=True)


def _expression(body: Body) -> Body:
    start, *inner, last = body
    assert isinstance(start, Let)
    assert isinstance(last, Store)
    if _count(inner) > MAX_TERMS:
        return body
    assert not isinstance(start.value, Index)
    terms = list(_terms(inner))
    total: Expr | None = None if is_neutral(start.value, terms[0].op) else start.value
    for term in terms:
        total = term.value if total is None else Apply(term.op, (total, term.value))
    assert total is not None
    whole = total
    return (Store(last.target, map_expr(last.value, lambda expr: whole if expr == Name(start.name) else expr)),)


def _count(body: list[Stmt]) -> int:
    """The number of terms; more than MAX_TERMS if a loop cannot be unrolled."""
    total = 0
    for stmt in body:
        if isinstance(stmt, For):
            inner = _count([*stmt.body]) if stmt.kind == Kind.SEQUENTIAL and not _looks_up(stmt) else MAX_TERMS + 1
            total += stmt.count * inner
        else:
            total += 1
    return total


def _looks_up(loop: For) -> bool:
    return any(place.index.looks_up(loop.counter) for stmt in statements(loop.body) for place in reads(stmt))


def _terms(body: list[Stmt]) -> Iterator[Accumulate]:
    for stmt in body:
        if isinstance(stmt, For):
            for i in range(stmt.count):
                yield from _terms([*substituted(stmt.body, stmt.counter, Index(i))])
        else:
            assert isinstance(stmt, Accumulate)
            yield stmt


def fuse_products(loops: Loops) -> Loops:
    return each_nest(loops, lambda kernel, nest: _accumulated(map_body(nest, _fused)), straight=True)


def _is_product(expr: Expr) -> bool:
    return type(expr) is Apply and expr.op == Op.MUL


def _fused(expr: Expr) -> Expr:
    if type(expr) is Apply and expr.op == Op.ADD:
        left, right = expr.operands
        if _is_product(right):
            return Apply(MULTIPLY_ADD, (*right.operands, left))  # type: ignore[union-attr]
        if _is_product(left):
            return Apply(MULTIPLY_ADD, (*left.operands, right))  # type: ignore[union-attr]
    return expr


def _accumulated(body: Body) -> Body:
    result: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For):
            stmt = stmt.with_body(_accumulated(stmt.body))
        elif isinstance(stmt, Accumulate) and stmt.op == Op.ADD and _is_product(stmt.value):
            stmt = Store(stmt.target, Apply(MULTIPLY_ADD, (*stmt.value.operands, stmt.target)))  # type: ignore[union-attr]
        result.append(stmt)
    return tuple(result)
