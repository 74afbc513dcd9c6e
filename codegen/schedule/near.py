"""Loops over lanes whose functions have short forms for arguments near 0.

Example input:

    for i < 32:
        side by side image < 8:
            value[32 + i][image] = sin(value[i][image])

becomes:

    for i < 32:
        side by side image < 8, near value[i][image]:
            value[32 + i][image] = sin(value[i][image])

What makes a sine right for the largest floats takes three times as long as the sine itself, and vectors would compute
both for each lane. So C compares all arguments of such a loop first. If one of them is far from 0, it calls the whole
function, lane by lane.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import BESIDE, Apply, Body, Expr, For, Loops, Nest, Stmt, expressions, subexpressions
from codegen.schedule.nest import each_nest
from micrograd import ops
from micrograd.definitions import NEAR_FORMS

OPS = {row.number for row in ops.ROWS if row.name in NEAR_FORMS}


def mark_near(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: _marked(nest))


def _marked(body: Body) -> Body:
    return tuple(map(_statement, body))


def _statement(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For | Nest):
        return stmt
    if isinstance(stmt, For) and stmt.kind in BESIDE and len(stmt.body) == 1:
        return replace(stmt, near=_arguments(stmt.body[0]))
    return replace(stmt, body=_marked(stmt.body))


def _arguments(stmt: Stmt) -> tuple[Expr, ...]:
    """Of a single statement: nothing that its loop computes is in them."""
    parts = [part for expr in expressions(stmt) for part in subexpressions(expr)]
    return tuple(dict.fromkeys([p.operands[0] for p in parts if type(p) is Apply and p.op in OPS]))
