"""Loads that are invariant in an innermost loop -> loads before it.

Example input:

    for k < 50:
        lanes i < 12:
            sum[i] += mul(data[39256 + i + 12k], value[800 + k])

becomes:

    for k < 50:
        let x = value[800 + k]
        lanes i < 12:
            sum[i] += mul(data[39256 + i + 12k], x)

A C compiler cannot do this: it does not know that the lanes' stores do not alias the load. A loop that is not inside
another one would gain nothing.


The part of an index that is invariant in an innermost loop -> computed before it.

Example input:

    for i < 10:
        for k < 50:
            sum += mul(data[39250 + 50i + k], value[800 + k])

becomes:

    for i < 10:
        let at = place 39250 + 50i
        for k < 50:
            sum += mul(data[at + k], value[800 + k])

For Python, which would compute it again in each iteration. C compilers do this themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from codegen.ir.loops import (
    DATA,
    SHARED,
    VALUE,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Loops,
    Name,
    Place,
    Stmt,
    map_body,
)
from codegen.schedule.nest import each_nest

Change = Callable[[For, Iterator[str]], list[Stmt]]


def hoist(loops: Loops, kinds: tuple[Kind, ...] = (Kind.LANES, Kind.SIDE_BY_SIDE), at_top: bool = False) -> Loops:
    """Hoists out of innermost loops of these kinds; `at_top`: also out of a loop that is not inside another."""
    arrays = {DATA, VALUE, SHARED, *loops.tables}

    def change(loop: For, names: Iterator[str]) -> list[Stmt]:
        found: dict[Place, Name] = {}

        def name(expr: Expr) -> Expr:
            if type(expr) is not Place or expr.array not in arrays or expr.depends_on(loop.counter):
                return expr
            if expr not in found:
                found[expr] = Name(next(names))
            return found[expr]

        if loop.kind not in kinds:
            return [loop]
        body = map_body(loop.body, name)
        lets = [Let(name.name, place) for place, name in found.items()]
        return [*lets, For(loop.counter, loop.count, body, loop.kind, loop.input)]

    return _each_innermost(loops, "x", change, at_top)


def name_addresses(loops: Loops) -> Loops:
    def change(loop: For, names: Iterator[str]) -> list[Stmt]:
        found: dict[Index, str] = {}

        def name(expr: Expr) -> Expr:
            if type(expr) is not Place or not expr.index.depends_on(loop.counter):
                return expr
            fixed, moving = _split(expr.index, loop.counter)
            if not (fixed.steps or fixed.tables):
                return expr
            if fixed not in found:
                found[fixed] = next(names)
            return Place(expr.array, Index(0, moving.steps, moving.tables, found[fixed]))

        body = map_body(loop.body, name)
        lets = [Let(name, index) for index, name in found.items()]
        return [*lets, For(loop.counter, loop.count, body, loop.kind, loop.input)]

    return _each_innermost(loops, "at", change, at_top=True)


def _each_innermost(loops: Loops, prefix: str, change: Change, at_top: bool) -> Loops:
    """What an innermost loop becomes; it may name what comes before it `prefix` and a number."""

    def in_nest(kernel: Kernel, nest: Body) -> Body:
        names = (f"{prefix}{i or ''}" for i in count())

        def visit(body: Body, is_inside: bool) -> Body:
            result: list[Stmt] = []
            for stmt in body:
                if not isinstance(stmt, For):
                    result.append(stmt)
                elif any(isinstance(inner, For) for inner in stmt.body):
                    result.append(For(stmt.counter, stmt.count, visit(stmt.body, True), stmt.kind, stmt.input))
                else:
                    result += change(stmt, names) if is_inside else [stmt]
            return tuple(result)

        return visit(nest, at_top)

    return each_nest(loops, in_nest)


def _split(index: Index, counter: str) -> tuple[Index, Index]:
    """The part of an index that does not depend on a counter, and the part that does."""
    steps, tables = index.steps, index.tables
    fixed = Index(
        index.base,
        tuple([step for step in steps if step[1] != counter]),
        tuple([table for table in tables if not table[1].depends_on(counter)]),
    )
    moving = Index(
        0,
        tuple([step for step in steps if step[1] == counter]),
        tuple([table for table in tables if table[1].depends_on(counter)]),
    )
    return fixed, moving
