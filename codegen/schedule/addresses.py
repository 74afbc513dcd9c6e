"""The part of an index that is invariant in an innermost loop -> computed before it.

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

from itertools import count

from codegen.ir.loops import Body, Expr, For, Index, Kernel, Let, Loops, Place, Stmt, map_body
from codegen.schedule.nest import each_nest


def name_addresses(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        names = ("at" if i == 0 else f"at{i}" for i in count())

        def visit(body: Body) -> Body:
            result: list[Stmt] = []
            for stmt in body:
                if not isinstance(stmt, For):
                    result.append(stmt)
                elif any(isinstance(inner, For) for inner in stmt.body):
                    result.append(For(stmt.counter, stmt.count, visit(stmt.body), stmt.kind, stmt.input))
                else:
                    result += split(stmt)
            return tuple(result)

        def split(loop: For) -> list[Stmt]:
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

        return visit(nest)

    return each_nest(loops, change)


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
