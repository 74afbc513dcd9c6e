"""Sums over neighbours in memory, which may be reordered -> vectors of terms.

Example input, the product of a transposed matrix and a vector: the lanes of a register would be far apart,

    for i < 50:
        let sum = -0
        for k < 35:
            sum += mul(data[64i + k], value[k])
        value[200 + i] = sum

becomes:

    for in order i < 50:
        let sum = -0
        local partial[16]
        lanes term < 16:
            partial[term] = -0
        for from < 2:
            lanes term < 16:
                partial[term] += mul(data[64i + 16from + term], value[16from + term])
        lanes term < 8:
            partial[term] += partial[8 + term]
        ... 4, 2 ...
        lanes term < 2:
            partial[term] += mul(data[64i + 32 + term], value[32 + term])
        sum += add(partial[0], partial[1])
        sum += mul(data[64i + 34], value[34])
        value[200 + i] = sum

Terms that fill no vector are added when no more parts than they are left: 13 of them as 8, 4 and 1. Where the order is
kept, see schedule.transpose.
"""

from collections.abc import Iterator
from dataclasses import replace

from codegen.ir.graph import Op
from codegen.ir.loops import (
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Pass,
    Place,
    Stmt,
    Store,
    map_body,
    moved,
    reads,
)
from codegen.schedule.forms import Growing
from codegen.schedule.nest import around, each_nest, root_loops
from codegen.schedule.target import Target

PART, TERM, FROM = "partial", "term", "from"


def add_terms_in_vectors(loops: Loops, target: Target) -> Loops:
    growing, width = Growing(loops), target.cache_line

    def change(kernel: Kernel, nest: Body) -> Body:
        found = root_loops(nest)
        if kernel.passes == Pass.DENSE_GRADIENTS or not found or nest in growing:
            return nest
        *outer, row = found
        over_terms = [stmt for stmt in row.body if isinstance(stmt, For)]
        if type(row.body[0]) is not Let or not all(_direction(loop, row.counter, width) for loop in over_terms):
            return nest
        numbers = {id(loop): number for number, loop in enumerate(over_terms)}
        body = [part for stmt in row.body for part in _in_vectors(stmt, row.counter, width, numbers.get(id(stmt), 0))]
        return around([*outer, replace(row, kind=Kind.IN_ORDER)], tuple(body)) if over_terms else nest

    return each_nest(loops, change)


def _direction(loop: For, row: str, width: int) -> int:
    """1 or -1 if the terms are neighbours in memory, upwards or downwards, and the rows are not; else 0."""
    if loop.kind != Kind.SEQUENTIAL or loop.count < width or len(loop.body) != 1:
        return 0
    (stmt,) = loop.body
    if type(stmt) is not Accumulate or stmt.op != Op.ADD:
        return 0
    places = [*reads(stmt)]
    strides = {place.index.stride(loop.counter) for place in places} - {0}
    looks_up = any(place.index.looks_up(loop.counter) for place in places)
    are_rows_far = any(not place.index.is_contiguous(row) for place in places)
    return strides.pop() if strides in ({1}, {-1}) and are_rows_far and not looks_up else 0


def _in_vectors(stmt: Stmt, row: str, width: int, number: int) -> Iterator[Stmt]:
    if not isinstance(stmt, For):
        yield stmt
        return
    (add,) = stmt.body
    assert isinstance(add, Accumulate)
    direction, vectors, rest = _direction(stmt, row, width), stmt.count // width, stmt.count % width
    name, term, start = (f"{name}_{number}" if number else name for name in (PART, TERM, FROM))
    first = 0 if direction == 1 else stmt.count - 1

    def part(offset: int, counter: str = "") -> Place:
        return Place(name, Index(offset, ((1, counter),) if counter else ()))

    def lanes(count: int, inner: Stmt) -> For:
        return For(term, count, (inner,), Kind.LANES)

    def of_term(*steps: tuple[int, str], base: int = 0) -> Accumulate:
        to = Index(first + direction * base, tuple([(direction * step, counter) for step, counter in steps]))

        def change(expr: Expr) -> Expr:
            return replace(expr, index=moved(expr.index, stmt.counter, to)) if type(expr) is Place else expr

        (changed,) = map_body((add,), change)
        assert isinstance(changed, Accumulate)
        return changed

    yield Local(name, width)
    yield lanes(width, Store(part(0, term), Const(-0.0)))
    terms = of_term((width, start), (1, term))
    yield For(start, vectors, (lanes(width, replace(terms, target=part(0, term))),))
    base, half = vectors * width, width // 2
    while half > 1:
        yield lanes(half, Accumulate(part(0, term), Op.ADD, part(half, term)))
        if rest & half:  # as many terms as there are parts left
            yield lanes(half, replace(of_term((1, term), base=base), target=part(0, term)))
            base += half
        half //= 2
    yield Accumulate(add.target, Op.ADD, Apply(Op.ADD, (part(0), part(1))))
    if rest & half:
        yield of_term(base=base)
