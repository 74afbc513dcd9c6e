"""What lanes read far apart, for a function, is collected first: the function can then be computed for whole vectors.

Example input:

    lanes i < 16:
        value[100 + i] = mul(erf(value[i]), value[200 + 8i])

becomes:

    local far[16]
    lanes i < 16:
        far[i] = value[200 + 8i]
    lanes i < 16:
        value[100 + i] = mul(erf(value[i]), far[i])

C compilers give up on vectors where they see the stride, and the function takes ten times as long as the copy.
"""

from __future__ import annotations

from codegen.ir.loops import (
    DATA,
    SHARED,
    VALUE,
    Apply,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Local,
    Loops,
    Place,
    Stmt,
    Store,
    expressions,
    map_expr,
    subexpressions,
)
from codegen.schedule.nest import each_nest
from micrograd import ops
from micrograd.definitions import is_long

MIN_LANES = 4  # fewer do not fill a vector
MAX_LANES = 512  # more would not stay in the cache of the first level


def collect(loops: Loops) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        return _collected(nest, {*loops.tables, DATA, VALUE, SHARED})

    return each_nest(loops, change)


def _collected(body: Body, arrays: set[str]) -> Body:
    return tuple([new for stmt in body for new in (_loop(stmt, arrays) if type(stmt) is For else (stmt,))])


def _loop(loop: For, arrays: set[str]) -> Body:
    if loop.kind != Kind.LANES or any(type(stmt) is not Store for stmt in loop.body):
        return (For(loop.counter, loop.count, _collected(loop.body, arrays), loop.kind, loop.input),)
    if not MIN_LANES <= loop.count <= MAX_LANES or not any(map(_calls, loop.body)):
        return (loop,)
    far: dict[Place, Place] = {}

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place or expr.array not in arrays or expr.index.is_contiguous(loop.counter):
            return expr
        return far.setdefault(expr, Place(f"far{len(far) or ''}", Index(0, ((1, loop.counter),))))

    body = tuple([Store(stmt.target, map_expr(stmt.value, change)) for stmt in loop.body if type(stmt) is Store])
    copies = [
        stmt
        for place, copy in far.items()
        for stmt in (
            Local(copy.array, loop.count),
            For(loop.counter, loop.count, (Store(copy, place),), Kind.LANES),
        )
    ]
    return (*copies, For(loop.counter, loop.count, body, Kind.LANES))


def _calls(stmt: Stmt) -> bool:
    """Whether a statement calls a function that takes many operations."""
    parts = [part for expr in expressions(stmt) for part in subexpressions(expr)]
    return any(type(part) is Apply and part.op >= ops.FIRST and is_long(ops.row(part.op)) for part in parts)
