"""Loops over terms that walk backwards, with few lanes -> loops that the C compiler must not vectorise.

Example input:

    for k < 10:
        sum += mul(-1, value[930 - k])

becomes:

    for in order k < 10:
        sum += mul(-1, value[930 - k])

gcc 12 vectorises such a sum if it continues in an outer loop, and adds the wrong elements. It does the same to terms
that are statements, as value[41] and value[40], where it adds value[40] first because it lies in front; and to lanes
that it unrolls first, as in

    images image:
        lanes i < 2:
            sum[i] += mul(value[3 + 5i], value[46 + i])
        lanes i < 2:
            sum[i] += mul(value[9 - 2i], value[46])

A sum whose order must be kept gains nothing from vectors anyway, so C vectorises no loop over images, and none over
terms with such lanes.


Lanes that lie side by side in memory -> lanes that the C compiler must turn into vectors, not unroll.

Example input:

    for k < 3:
        lanes i < 8:
            sum[i] += mul(value[10 + i + k], x)

becomes:

    for k < 3:
        vectors i < 8:
            sum[i] += mul(value[10 + i + k], x)

Left alone, gcc unrolls short lanes and the terms around them into single statements, and then rarely finds the vectors
again. Lanes that are read with a stride or through a table stay: as scalars they are better unrolled.


Loops over lanes whose functions have short forms for arguments near 0.

Example input:

    for i < 32:
        side by side image < 8:
            value[32 + i][image] = sin(value[i][image])

becomes:

    for i < 32:
        side by side image < 8, near value[i][image]:
            value[32 + i][image] = sin(value[i][image])

What makes a sine right for the largest floats takes three times as long as the sine itself, and vectors would compute
both for each lane. So C compares all arguments of such a loop first. If one of them is far from 0, it calls the whole
function, lane by lane.
"""

from dataclasses import replace

from codegen.ir.loops import (
    BESIDE,
    Accumulate,
    Apply,
    Body,
    Expr,
    For,
    Kind,
    Let,
    Loops,
    Name,
    Nest,
    Place,
    Stmt,
    Store,
    all_expressions,
    places,
    reads,
    statements,
    subexpressions,
)
from codegen.schedule.nest import each_nest
from micrograd import ops
from micrograd.definitions import NEAR_FORMS

NEAR_OPS = {row.number for row in ops.ROWS if row.name in NEAR_FORMS}
CLOSE = 64  # numbers that gcc may load as a group
MAX_UNROLLED = 16  # lanes or images: gcc unrolls at most this many before it looks for sums to vectorise


def keep_order(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: tuple(map(_in_order, nest)))


def _in_order(stmt: Stmt, around: tuple[str, ...] = ()) -> Stmt:
    """`around`: the counters of the loops over terms around it, which gcc may unroll together with this one."""
    if not isinstance(stmt, For):
        return stmt
    is_over_terms = stmt.kind == Kind.SEQUENTIAL and not _stores(stmt.body)
    counters = (*around, stmt.counter) if is_over_terms else ()
    if any(isinstance(inner, For) and inner.kind not in BESIDE for inner in stmt.body):
        return stmt.with_body(tuple([_in_order(inner, counters) for inner in stmt.body]))
    lanes = [inner for inner in stmt.body if isinstance(inner, For)]
    if not is_over_terms or max((inner.count for inner in lanes), default=1) > MAX_UNROLLED:
        return stmt
    read = [place for inner in statements(stmt.body) for place in reads(inner)]
    walks_back = any(place.index.stride(counter) < 0 for place in read for counter in counters)
    goes_back = walks_back or any(map(_is_unrolled, lanes)) or _goes_back(stmt.body)
    return replace(stmt, kind=Kind.IN_ORDER) if goes_back else stmt


def _is_unrolled(lanes: For) -> bool:
    """Whether gcc makes statements of the innermost lanes."""
    inner = [stmt for stmt in lanes.body if isinstance(stmt, For)]
    return any(map(_is_unrolled, inner)) if inner else lanes.kind == Kind.LANES and not _fill_vectors(lanes)


def _goes_back(body: Body) -> bool:
    """Whether what is added to one sum reads a number, and later one that lies closely before it."""
    added: dict[Expr, list[Place]] = {}
    named: dict[str, list[Place]] = {}
    for stmt in body:
        for inner in stmt.body if isinstance(stmt, For) and stmt.kind in BESIDE else (stmt,):
            if isinstance(inner, Let):
                named[inner.name] = list(reads(inner))
            if isinstance(inner, Accumulate):
                earlier = added.setdefault(inner.target, [])
                found = list(reads(inner))
                for part in subexpressions(inner.value):
                    found += named.get(part.name, []) if isinstance(part, Name) else []
                if any(_is_before(place, other) for place in found for other in earlier):
                    return True
                earlier += found
    return False


def _is_before(place: Place, other: Place) -> bool:
    """Whether it lies a few numbers before another one, for all values of the counters."""
    distance = other.index.base - place.index.base
    return 0 < distance <= CLOSE and replace(place, index=replace(place.index, base=other.index.base)) == other


def _stores(body: Body) -> bool:
    """Whether a loop is over roots: each iteration stores a result."""
    return any(isinstance(stmt, Store) for stmt in statements(body))


MIN_LANES = 4  # fewer do not fill a vector
MAX_LANES = 16  # gcc does not unroll more before it makes vectors


def mark_vectors(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: _with_vectors(nest))


def _with_vectors(body: Body) -> Body:
    return tuple([_loop(stmt) if isinstance(stmt, For) else stmt for stmt in body])


def _loop(loop: For) -> For:
    if loop.kind != Kind.LANES or any(isinstance(stmt, For) for stmt in loop.body):
        return loop.with_body(_with_vectors(loop.body))
    return replace(loop, kind=Kind.VECTORS) if _fill_vectors(loop) else loop


def _fill_vectors(lanes: For) -> bool:
    return MIN_LANES <= lanes.count <= MAX_LANES and all(
        place.index.is_contiguous(lanes.counter) for place in places(lanes.body)
    )


def mark_near(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: _with_near(nest))


def _with_near(body: Body) -> Body:
    return tuple(map(_near_statement, body))


def _near_statement(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For | Nest):
        return stmt
    if isinstance(stmt, For) and stmt.kind in BESIDE and len(stmt.body) == 1:
        return replace(stmt, near=_arguments(stmt.body[0]))
    return stmt.with_body(_with_near(stmt.body))


def _arguments(stmt: Stmt) -> tuple[Expr, ...]:
    """Of a single statement: nothing that its loop computes is in them."""
    return tuple(dict.fromkeys([p.operands[0] for p in all_expressions(stmt) if type(p) is Apply and p.op in NEAR_OPS]))
