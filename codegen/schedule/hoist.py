"""Loads that are invariant in an innermost loop, and long functions of them -> loads and functions before it.

Example input:

    for k < 50:
        lanes i < 12:
            sum[i] += mul(data[39256 + i + 12k], value[800 + k])

becomes:

    for k < 50:
        let x = value[800 + k]
        lanes i < 12:
            sum[i] += mul(data[39256 + i + 12k], x)

A C compiler cannot do this: it does not know that the lanes' stores do not alias the load, and a function has branches.
A loop that is not inside another one would gain nothing by loads.


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


What lanes read far apart, for a function, is collected first: the function can then be computed for whole vectors.

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

from collections.abc import Callable, Iterator
from itertools import count

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
    Let,
    Local,
    Loops,
    Name,
    Place,
    Stmt,
    Store,
    all_expressions,
    map_body,
    map_expr,
    subexpressions,
)
from codegen.schedule.nest import each_nest
from micrograd import ops
from micrograd.definitions import is_long

MIN_LANES = 4  # of a function: fewer do not fill a vector
MAX_LANES = 512  # more would not stay in the cache of the first level

Change = Callable[[For, Iterator[str], bool], list[Stmt]]


def hoist(loops: Loops, kinds: tuple[Kind, ...] = (Kind.LANES, Kind.SIDE_BY_SIDE), at_top: bool = False) -> Loops:
    """Hoists out of innermost loops of these kinds; `at_top`: also out of a loop that is not inside another."""
    arrays = {DATA, VALUE, SHARED, *loops.tables}

    def change(loop: For, names: Iterator[str], is_inside: bool) -> list[Stmt]:
        found: dict[Expr, Name] = {}

        def is_invariant(expr: Expr) -> bool:
            if type(expr) is Place:
                return expr.array in arrays and not expr.depends_on(loop.counter)
            if type(expr) is Name:
                return expr in found.values()
            return _is_long_function(expr) and all(map(is_invariant, _read(expr)))

        def name(expr: Expr) -> Expr:
            if type(expr) is Name or not is_invariant(expr):
                return expr
            if expr not in found:
                found[expr] = Name(next(names))
            return found[expr]

        if loop.kind not in kinds or not (
            is_inside or any(is_invariant(call) for stmt in loop.body for call in _functions(stmt))
        ):
            return [loop]
        body = map_body(loop.body, name)
        lets = [Let(name.name, value) for value, name in found.items()]
        return [*lets, loop.with_body(body)]

    return _each_innermost(loops, "x", change, at_top)


def _read(expr: Expr) -> list[Expr]:
    """The places and names in an expression."""
    return [part for part in subexpressions(expr) if type(part) is Place or type(part) is Name]


def _functions(stmt: Stmt) -> list[Expr]:
    """The functions in a statement that take many operations."""
    return [part for part in all_expressions(stmt) if _is_long_function(part)]


def name_addresses(loops: Loops) -> Loops:
    def change(loop: For, names: Iterator[str], _: bool) -> list[Stmt]:
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
        return [*lets, loop.with_body(body)]

    return _each_innermost(loops, "at", change, at_top=True)


def _each_innermost(loops: Loops, prefix: str, change: Change, at_top: bool) -> Loops:
    """What an innermost loop becomes; it may name what comes before it `prefix` and a number."""

    def in_nest(kernel: Kernel, nest: Body) -> Body:
        names = _names(prefix)

        def visit(body: Body, is_inside: bool) -> Body:
            result: list[Stmt] = []
            for stmt in body:
                if not isinstance(stmt, For):
                    result.append(stmt)
                elif any(isinstance(inner, For) for inner in stmt.body):
                    result.append(stmt.with_body(visit(stmt.body, True)))
                else:
                    result += change(stmt, names, is_inside)
            return tuple(result)

        return visit(nest, at_top)

    return each_nest(loops, in_nest)


def _names(prefix: str) -> Iterator[str]:
    """Names that a nest has not yet: prefix, prefix1, prefix2, ..."""
    return (f"{prefix}{i or ''}" for i in count())


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


def collect(loops: Loops) -> Loops:
    arrays = {*loops.tables, DATA, VALUE, SHARED}

    return each_nest(loops, lambda _, nest: _collected(nest, arrays, _names("far")))


def _collected(body: Body, arrays: set[str], names: Iterator[str]) -> Body:
    return tuple([new for stmt in body for new in (_loop(stmt, arrays, names) if type(stmt) is For else (stmt,))])


def _loop(loop: For, arrays: set[str], names: Iterator[str]) -> Body:
    if loop.kind != Kind.LANES or any(type(stmt) is not Store for stmt in loop.body):
        return (loop.with_body(_collected(loop.body, arrays, names)),)
    if not MIN_LANES <= loop.count <= MAX_LANES or not any(map(_functions, loop.body)):
        return (loop,)
    far: dict[Place, Place] = {}

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place or expr.array not in arrays or expr.index.is_contiguous(loop.counter):
            return expr
        if expr not in far:
            far[expr] = Place(next(names), Index(0, ((1, loop.counter),)))
        return far[expr]

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


def _is_long_function(expr: Expr) -> bool:
    return type(expr) is Apply and expr.op >= ops.FIRST and is_long(ops.row(expr.op))
