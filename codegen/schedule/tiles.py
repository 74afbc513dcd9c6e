"""Loops over the sums of a tile -> loops that the C compiler must unroll.

Example input:

    for k < 30:
        for i < 4:
            side by side image < 8:
                sum[i][image] += mul(value[k + 30i][image], value[k + 30i][image])

becomes:

    for k < 30:
        unrolled for i < 4:
            side by side image < 8:
                sum[i][image] += mul(value[k + 30i][image], value[k + 30i][image])

Sums are in registers only if C knows which one each statement means. Left alone, gcc unrolls most such loops, but not
all, and stores and loads each sum for each term of the others. Few terms it unrolls too, and then finds its own way. Of
loops in order, which pass `in order` marks, it makes no vectors if it unrolls them before.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.ir.loops import BESIDE, Accumulate, Body, For, Kind, Loops, Nest, Place, Stmt, statements
from codegen.schedule.nest import each_nest

FEW_TERMS = 8


def mark_tiles(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: _marked(nest, False))


def _marked(body: Body, has_terms: bool) -> Body:
    """`has_terms`: whether it is that of a loop over many terms."""
    return tuple([_statement(stmt, has_terms) for stmt in body])


def _statement(stmt: Stmt, has_terms: bool) -> Stmt:
    if isinstance(stmt, Nest):
        return replace(stmt, body=_marked(stmt.body, False))
    if not isinstance(stmt, For) or stmt.kind in BESIDE:
        return stmt
    if has_terms and stmt.kind == Kind.SEQUENTIAL and _adds_to_tile(stmt):
        return replace(stmt, unrolled=True)
    return replace(stmt, body=_marked(stmt.body, stmt.kind == Kind.GROUPS or stmt.count > FEW_TERMS))


def _adds_to_tile(loop: For) -> bool:
    """Whether each iteration adds to a sum of its own, with images side by side."""
    inside = [*statements(loop.body)]
    sums = [stmt.target for stmt in inside if isinstance(stmt, Accumulate)]
    is_tile = all(isinstance(place, Place) and place.image and place.depends_on(loop.counter) for place in sums)
    return bool(sums) and is_tile and all(not isinstance(stmt, For) or stmt.kind in BESIDE for stmt in inside)
