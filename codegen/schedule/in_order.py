"""Loops over terms that walk backwards, with few lanes -> loops that the C compiler must not vectorise.

Example input:

    for k < 10:
        sum += mul(-1, value[930 - k])

becomes:

    for in order k < 10:
        sum += mul(-1, value[930 - k])

gcc 12 vectorises such a sum if it continues in an outer loop, and adds the wrong elements. A sum whose order must be
kept gains nothing from vectors anyway.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import BESIDE, Body, For, Kernel, Kind, Loops, Stmt, Store, reads, statements
from codegen.schedule.nest import each_nest

MAX_UNROLLED = 16  # lanes or images: gcc unrolls at most this many before it looks for sums to vectorise


def keep_order(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        return tuple([_marked(stmt) for stmt in nest]) if _has_terms(nest) else nest

    return each_nest(loops, change)


def _has_terms(nest: Body) -> bool:
    return any(isinstance(stmt, For) and stmt.kind == Kind.SEQUENTIAL for stmt in statements(nest))


def _marked(stmt: Stmt, around: tuple[str, ...] = ()) -> Stmt:
    """`around`: the counters of the loops over terms around it, which gcc may unroll together with this one."""
    if not isinstance(stmt, For):
        return stmt
    is_over_terms = stmt.kind == Kind.SEQUENTIAL and not _stores(stmt.body)
    counters = (*around, stmt.counter) if is_over_terms else ()
    if any(isinstance(inner, For) and inner.kind not in BESIDE for inner in stmt.body):
        return replace(stmt, body=tuple([_marked(inner, counters) for inner in stmt.body]))
    lanes = max((inner.count for inner in stmt.body if isinstance(inner, For)), default=1)
    places = [place for inner in statements(stmt.body) for place in reads(inner)]
    goes_back = any(place.index.stride(counter) < 0 for place in places for counter in counters)
    return replace(stmt, kind=Kind.IN_ORDER) if is_over_terms and lanes <= MAX_UNROLLED and goes_back else stmt


def _stores(body: Body) -> bool:
    """Whether a loop is over roots: each iteration stores a result."""
    return any(isinstance(stmt, Store) for stmt in statements(body))
