"""Loops over terms that walk backwards past few lanes are marked: no compiler shall vectorise them.

Example input:

    for k < 10:
        sum += mul(-1, value[930 - k])

becomes:

    for in order k < 10:
        sum += mul(-1, value[930 - k])

gcc 12 vectorises such a sum, if it goes on in an outer loop, and adds wrong elements. What it keeps in order anyway
gains nothing from vectors.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import Body, For, Kernel, Kind, Loops, Stmt, reads, statements
from codegen.schedule.nest import each_nest

PEELED = 16  # lanes that gcc unrolls at most before it looks for sums to vectorise


def keep_order(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        return tuple([_marked(stmt) for stmt in nest]) if _has_terms(nest) else nest

    return each_nest(loops, change)


def _has_terms(nest: Body) -> bool:
    return any(isinstance(stmt, For) and stmt.kind == Kind.SEQUENTIAL for stmt in statements(nest))


def _marked(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For):
        return stmt
    if any(isinstance(inner, For) and inner.kind != Kind.LANES for inner in stmt.body):
        return replace(stmt, body=tuple([_marked(inner) for inner in stmt.body]))
    lanes = max((inner.count for inner in stmt.body if isinstance(inner, For)), default=1)
    goes_back = any(place.index.stride(stmt.counter) < 0 for inner in statements(stmt.body) for place in reads(inner))
    is_marked = stmt.kind == Kind.SEQUENTIAL and lanes <= PEELED and goes_back
    return replace(stmt, kind=Kind.IN_ORDER) if is_marked else stmt
