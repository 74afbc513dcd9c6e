"""Loops whose sums gcc would store and load again for each term -> loops whose sums stay in registers.

Example input, in loops over k, of images side by side, and of a layer that all tokens share:

    for i < 4:
        side by side image < 8:
            sum[i][image] += mul(value[k + 30i][image], value[k + 30i][image])
    lanes j < 8:
        sum[j] += mul(value[496 - 16k], value[1520 + j - 32k])

becomes:

    unrolled for i < 4:
        side by side image < 8:
            sum[i][image] += mul(value[k + 30i][image], value[k + 30i][image])
    lanes j < 8:
        sum[j] += mul(value[496 - 16k], apart[1520 + j - 32k])

gcc unrolls most loops over tiles of sums, but not all, and then does not know which sum each statement means. Few
terms it unrolls too, if it knows how many, and finds its own way, unless loops around them have more, as those over the
places of a kernel. Terms that go back need no loop in order there: each lane is an image.

And of an address that is two, four or eight times another one plus something gcc 12 forgets what it points to: perhaps
to the sums. So it is not told that both are in the same array.
"""

from dataclasses import replace
from math import prod

from codegen.ir.loops import (
    APART,
    BESIDE,
    VALUE,
    Accumulate,
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

FEW_TERMS = 8
FACTORS = (2, 4, 8)  # of an index in an address of x86


def mark_tiles(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: _marked(nest, ()))


def _marked(body: Body, around: tuple[For, ...]) -> Body:
    """`around`: the loops over terms that it is in, or the loop next to it."""
    return tuple([_tile(stmt, around) for stmt in body])


def _tile(stmt: Stmt, around: tuple[For, ...]) -> Stmt:
    if isinstance(stmt, Nest):
        return stmt.with_body(_marked(stmt.body, ()))
    if not isinstance(stmt, For) or stmt.kind in BESIDE:
        return stmt
    if _are_many(around) and stmt.kind in (Kind.SEQUENTIAL, Kind.IN_ORDER) and _adds_to_tile(stmt):
        return replace(stmt, unrolled=True, kind=Kind.SEQUENTIAL, body=_marked(stmt.body, around))
    return stmt.with_body(_marked(stmt.body, (*filter(is_over_terms, around), stmt)))


def _are_many(loops: tuple[For, ...]) -> bool:
    """Whether loops have many terms, or so many that gcc does not know."""
    return any(loop.kind == Kind.GROUPS or loop.steps for loop in loops) or prod(x.count for x in loops) > FEW_TERMS


def _adds_to_tile(loop: For) -> bool:
    """Whether each iteration adds to a sum of its own, with images side by side."""
    inside = [*statements(loop.body)]
    sums = [stmt.target for stmt in inside if isinstance(stmt, Accumulate)]
    is_tile = all(isinstance(place, Place) and place.image and place.depends_on(loop.counter) for place in sums)
    inner = [stmt for stmt in loop.body if isinstance(stmt, For) and stmt.kind not in BESIDE]
    return bool(sums) and is_tile and all(map(_adds_to_tile, inner))


def read_apart(loops: Loops) -> Loops:
    return each_nest(loops, lambda _, nest: _apart(nest))


def _apart(body: Body) -> Body:
    return tuple([s.with_body(_inside(s)) if isinstance(s, For | Nest) else s for s in body])


def _inside(loop: For | Nest) -> Body:
    """The body of a loop, if that is over terms with the farther ones read apart."""
    if isinstance(loop, Nest) or loop.kind not in (Kind.SEQUENTIAL, Kind.IN_ORDER) or not is_over_terms(loop):
        return _apart(loop.body)
    found = {place for stmt in statements(loop.body) for place in reads(stmt) if _is_value(place)}
    strides = {place.index.stride(loop.counter) for place in found} - {0}
    far = {stride for stride in strides if any(stride == factor * near for near in strides for factor in FACTORS)}

    def change(expr: Expr) -> Expr:
        is_far = type(expr) is Place and _is_value(expr) and expr.index.stride(loop.counter) in far
        return replace(expr, array=APART) if is_far and type(expr) is Place else expr

    return _apart(map_body(loop.body, change) if far else loop.body)


def _is_value(place: Place) -> bool:
    return place.array == VALUE and not place.image and not place.index.tables
