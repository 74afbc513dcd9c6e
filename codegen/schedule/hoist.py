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
"""

from __future__ import annotations

from itertools import count

from codegen.ir.loops import DATA, SHARED, VALUE, Body, Expr, For, Kernel, Kind, Let, Loops, Name, Place, Stmt, map_body
from codegen.schedule.nest import each_nest


def hoist(loops: Loops, kinds: tuple[Kind, ...] = (Kind.LANES, Kind.SIDE_BY_SIDE), at_top: bool = False) -> Loops:
    """Hoists out of innermost loops of these kinds; `at_top`: also out of a loop that is not inside another."""

    def change(kernel: Kernel, nest: Body) -> Body:
        names = ("x" if i == 0 else f"x{i}" for i in count())
        arrays = {DATA, VALUE, SHARED, *loops.tables}

        def visit(body: Body, is_inside: bool) -> Body:
            result: list[Stmt] = []
            for stmt in body:
                if not isinstance(stmt, For):
                    result.append(stmt)
                elif any(isinstance(inner, For) for inner in stmt.body):
                    result.append(For(stmt.counter, stmt.count, visit(stmt.body, True), stmt.kind, stmt.input))
                elif stmt.kind in kinds and is_inside:
                    result += split(stmt)
                else:
                    result.append(stmt)
            return tuple(result)

        def split(loop: For) -> list[Stmt]:
            found: dict[Place, Name] = {}

            def name(expr: Expr) -> Expr:
                if type(expr) is not Place or expr.array not in arrays or expr.depends_on(loop.counter):
                    return expr
                if expr not in found:
                    found[expr] = Name(next(names))
                return found[expr]

            body = map_body(loop.body, name)
            lets = [Let(name.name, place) for place, name in found.items()]
            return [*lets, For(loop.counter, loop.count, body, loop.kind, loop.input)]

        return visit(nest, at_top)

    return each_nest(loops, change)
