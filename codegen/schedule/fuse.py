"""Products that are added -> multiply-adds, rounded once if the processor can, in a Program with fma=True.

Example input:

    sum += mul(data[k], value[k])

becomes:

    sum = multiply_add(data[k], value[k], sum)
"""

from __future__ import annotations

from codegen.ir.graph import Op
from codegen.ir.loops import MULTIPLY_ADD, Accumulate, Apply, Body, Expr, For, Loops, Stmt, Store, map_body
from codegen.schedule.nest import each_nest


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
            stmt = For(stmt.counter, stmt.count, _accumulated(stmt.body), stmt.kind, stmt.input)
        elif isinstance(stmt, Accumulate) and stmt.op == Op.ADD and _is_product(stmt.value):
            stmt = Store(stmt.target, Apply(MULTIPLY_ADD, (*stmt.value.operands, stmt.target)))  # type: ignore[union-attr]
        result.append(stmt)
    return tuple(result)
