"""Lanes that read columns of a matrix -> tiles of it, transposed.

Example input, the lanes being 8 rows apart and the terms neighbours, as in the adjoints of a layer:

    local sum[8]
    lanes i < 8:
        sum[i] = -0.0
    for k < 8:
        lanes i < 8:
            sum[i] += mul(data[7 + 8i - k], value[71 - k])
    lanes i < 8:
        value[80 + i] = sum[i]

becomes, for the terms:

    local tile[64]
    for quad < 2:
        transposed column < 8:
            tile[4column + 32quad] = data[column + 32quad]
            tile[1 + 4column + 32quad] = data[8 + column + 32quad]
            tile[2 + 4column + 32quad] = data[16 + column + 32quad]
            tile[3 + 4column + 32quad] = data[24 + column + 32quad]
    for k < 8:
        for quad < 2:
            lanes i < 4:
                sum[i + 4quad] += mul(tile[28 + i - 4k + 32quad], value[71 - k])

A lane that is far from the next one costs a load and a shuffle for each number. Of four rows, two are loaded as the
halves of a vector each, and interleaved with one shuffle a vector: by transpose_rows() of csrc/level_begin.h, since
gcc's own interleaving takes three times as long. Plain C leaves it to the compiler. The sums keep their order.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count

from codegen.ir.loops import (
    PARAMETER_GRADIENTS,
    Accumulate,
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
    map_body,
    moved,
    reads,
    substituted,
)
from codegen.schedule.forms import Growing
from codegen.schedule.nest import each_nest, is_copy
from codegen.schedule.target import Target
from codegen.schedule.tile import block_of_lanes

ROWS = 4  # of a quad
LANES = (8, 12, 4)  # in a block
TERMS = (8, 4)  # in a tile
TILE = "tile"


def transpose(loops: Loops, target: Target, kind: Kind = Kind.VECTORS) -> Loops:
    """`kind`: of the loops that fill tiles."""
    growing = Growing(loops)

    def change(kernel: Kernel, nest: Body) -> Body:
        if kind == Kind.TRANSPOSED and is_copy(nest):
            return _copied(nest)
        is_left = kernel.passes in PARAMETER_GRADIENTS or target.is_float32  # a float32 vector is longer than ROWS
        return nest if is_left or nest in growing else _nest(nest, kind)

    return each_nest(loops, change)


def _copied(nest: Body) -> Body:
    """A nest that copies columns as rows, four at a time: of some that are left, the last four, some of them twice."""
    (loop,) = nest
    assert isinstance(loop, For)
    (lanes,) = loop.body
    assert isinstance(lanes, For)
    (copy,) = lanes.body
    assert isinstance(copy, Store)
    quads, rest = divmod(lanes.count, ROWS)

    def quad(first: Index) -> For:
        starts = [Index(first.base + r, first.steps) for r in range(ROWS)]
        column: Body = tuple([stmt for start in starts for stmt in substituted((copy,), lanes.counter, start)])
        return replace(loop, body=column, kind=Kind.TRANSPOSED)

    if not quads:
        return nest
    copied: Body = (For("quad", quads, (quad(Index(0, ((ROWS, "quad"),))),)),)
    return (*copied, quad(Index(lanes.count - ROWS))) if rest else copied


def _nest(body: Body, kind: Kind) -> Body:
    first = body[0]
    if isinstance(first, For) and len(body) == 1 and first.kind == Kind.SEQUENTIAL:
        return (first.with_body(_nest(first.body, kind)),)
    if not isinstance(first, Local):
        return body
    width = next((width for width in LANES if first.length % width == 0), 0)
    lane = next(stmt.counter for stmt in body if type(stmt) is For and stmt.kind == Kind.LANES)
    blocks = first.length // width if width else 0
    if not blocks or not any(_columns(stmt) for stmt in _term_loops(body)):
        return body
    steps = ((1, lane), (width, "block")) if blocks > 1 else ((1, lane),)
    tiles = chain((TILE,), (f"{TILE}_{n}" for n in count(1)))  # a name for each loop over terms
    inner = tuple(
        [part for stmt in block_of_lanes(body, lane, Index(0, steps), width) for part in _terms(stmt, tiles, kind)]
    )
    return (For("block", blocks, inner),) if blocks > 1 else inner


def _term_loops(body: Body) -> list[For]:
    found = []
    for stmt in body:
        if isinstance(stmt, For) and stmt.kind == Kind.SEQUENTIAL:
            found += [stmt, *_term_loops(stmt.body)]
    return found


def _columns(loop: For) -> Place | None:
    """The place that lanes read from different rows, if the terms of a loop are neighbours in them."""
    (lanes, *rest) = loop.body
    if rest or not isinstance(lanes, For) or lanes.kind != Kind.LANES or len(lanes.body) != 1:
        return None
    if not isinstance(lanes.body[0], Accumulate) or not any(loop.count % terms == 0 for terms in TERMS):
        return None
    places = {*reads(lanes.body[0])}
    far = [place for place in places if place.index.stride(lanes.counter) not in (0, 1)]
    looks_up = any(place.index.looks_up(lanes.counter) or place.index.looks_up(loop.counter) for place in places)
    return far[0] if len(far) == 1 and abs(far[0].index.stride(loop.counter)) == 1 and not looks_up else None


def _terms(stmt: Stmt, names: Iterator[str], kind: Kind) -> Body:
    if not isinstance(stmt, For) or stmt.kind != Kind.SEQUENTIAL:
        return (stmt,)
    columns = _columns(stmt)
    if columns is None:
        inner = tuple([part for inner in stmt.body for part in _terms(inner, names, kind)])
        return (stmt.with_body(inner),)
    (lanes,) = stmt.body
    assert isinstance(lanes, For)
    name = next(names)
    terms = next(terms for terms in TERMS if stmt.count % terms == 0)
    quads, tiles = lanes.count // ROWS, stmt.count // terms
    walks_back = columns.index.stride(stmt.counter) < 0
    start: tuple[tuple[int, str], ...] = ((terms, "first"),) if tiles > 1 else ()
    quad: tuple[tuple[int, str], ...] = ((ROWS, "quad"),)
    across = Index(terms - 1, (*start, (-1, "column"))) if walks_back else Index(0, (*start, (1, "column")))

    def row(r: int) -> Store:
        place = Place(name, Index(r, ((ROWS, "column"), (ROWS * terms, "quad"))))
        index = moved(moved(columns.index, stmt.counter, across), lanes.counter, Index(r, quad))
        return Store(place, Place(columns.array, index))

    def read(expr: Expr) -> Expr:
        if expr != columns:
            return expr
        step, base = (-ROWS, ROWS * (terms - 1)) if walks_back else (ROWS, 0)
        # The counters of lanes and terms are replaced below, so the ones of the tile have names of their own.
        return Place(name, Index(base, ((step, "term"), (1, "lane"), (ROWS * terms, "quad"))))

    rows = For("quad", quads, (For("column", terms, tuple([row(r) for r in range(ROWS)]), kind),))
    body = map_body(lanes.body, read)
    body = substituted(body, stmt.counter, Index(0, (*start, (1, stmt.counter))))
    body = substituted(body, lanes.counter, Index(0, (*quad, (1, lanes.counter))))
    body = substituted(body, "term", Index(0, ((1, stmt.counter),)))
    body = substituted(body, "lane", Index(0, ((1, lanes.counter),)))
    sums = For("quad", quads, (For(lanes.counter, ROWS, body, Kind.LANES),))
    tile: Body = (Local(name, terms * lanes.count), rows, For(stmt.counter, terms, (sums,)))
    return (For("first", tiles, tile),) if tiles > 1 else tile
