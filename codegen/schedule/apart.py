"""Values that terms read two, four or eight times as far apart as others -> read through a pointer of their own.

Example input, of a layer that all tokens share:

    for k < 32:
        for row < 4:
            lanes j < 8:
                sum[8row + j] += mul(value[496 + row - 16k], value[1520 + j - 32k])

becomes:

    for k < 32:
        for row < 4:
            lanes j < 8:
                sum[8row + j] += mul(value[496 + row - 16k], apart[1520 + j - 32k])

Both are the same array, and C must not know that. gcc 12 would make the second address of twice the first one, which no
longer says what it points to: perhaps to the sums, so they are stored and loaded again for each term.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import (
    APART,
    VALUE,
    Body,
    Expr,
    For,
    Kind,
    Loops,
    Nest,
    Place,
    Stmt,
    is_over_terms,
    map_body,
    reads,
    statements,
)
from codegen.schedule.nest import each_nest

FACTORS = (2, 4, 8)  # of an index in an address of x86


def read_apart(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: _changed(nest))


def _changed(body: Body) -> Body:
    return tuple(map(_statement, body))


def _statement(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For | Nest):
        return stmt
    if isinstance(stmt, For) and stmt.kind in (Kind.SEQUENTIAL, Kind.IN_ORDER) and is_over_terms(stmt):
        return replace(stmt, body=_inside(stmt))
    return replace(stmt, body=_changed(stmt.body))


def _inside(loop: For) -> Body:
    """The body of a loop over terms, and of those inside it."""
    found = {place for stmt in statements(loop.body) for place in reads(stmt) if _is_value(place)}
    strides = {place.index.stride(loop.counter) for place in found} - {0}
    far = {stride for stride in strides if any(stride == factor * near for near in strides for factor in FACTORS)}

    def change(expr: Expr) -> Expr:
        is_far = type(expr) is Place and _is_value(expr) and expr.index.stride(loop.counter) in far
        return replace(expr, array=APART) if is_far and type(expr) is Place else expr

    return _changed(map_body(loop.body, change) if far else loop.body)


def _is_value(place: Place) -> bool:
    return place.array == VALUE and not place.image and not place.index.tables
