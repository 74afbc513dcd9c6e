"""Loops over terms that lie far apart: the next ones begin to load before they are needed.

Example input, of images side by side, and of a gradient:

    for k < 512:
        for i < 16:
            side by side image < 8:
                sum[i][image] += mul(data[i + 520k + 16block], value[k][image])
    images image < 64:
        for row < 4:
            lanes j < 32:
                sum[32row + j] += mul(value[4i + row], value[512 + j])

becomes:

    for k < 512:
        prefetch data[520k + 16block] for k + 16
        prefetch data[8 + 520k + 16block] for k + 16
        for i < 16:
            side by side image < 8:
                sum[i][image] += mul(data[i + 520k + 16block], value[k][image])
    images image < 64:
        prefetch value[4i] for image + 8
        prefetch value[512] for image + 8
        prefetch value[520] for image + 8
        ...

Caches expect the next line of memory, but not that of the next row, which is in another page, nor that of the next
image. A processor looks ahead by itself, but only by as many instructions as wait for their operands: a few terms of a
tile of sums, which is less than the second-level cache takes. So large matrices and gradients gain, in tiles with
several sums for each line; lanes of one image read a line for each, and small models stay in the first-level cache.
"""

from dataclasses import replace

import numpy as np

from codegen.ir.loops import (
    DATA,
    ROWS_OF_IMAGES,
    VALUE,
    Body,
    For,
    Index,
    Kernel,
    Kind,
    Loops,
    Nest,
    Place,
    Prefetch,
    Stmt,
    adds,
    is_over_terms,
    reads,
    statements,
)
from codegen.schedule.nest import counts_of, each_nest
from codegen.schedule.target import Target

TERMS, IMAGES = 16, 8  # how many iterations ahead
FAR = 1024  # bytes between two terms
LARGE = 2**17  # bytes of a matrix, or of a gradient, that leaves nothing else in a first-level cache
MOST = 8  # lines of an iteration; a processor waits for some 16 at a time
WORTH = 2  # vectors of sums for each line


def prefetch(loops: Loops, target: Target) -> Loops:
    """The loops with prefetches, where tiles of sums are worth them."""

    def change(kernel: Kernel, nest: Body) -> Body:
        kinds = {Kind.SEQUENTIAL, Kind.IN_ORDER}
        kinds |= {Kind.ACTIVE} if kernel.passes & ROWS_OF_IMAGES else set()
        kinds |= {Kind.IMAGES} if kernel.roots * target.bytes >= LARGE else set()
        return _changed(nest, kinds, target)

    return each_nest(loops, change)


def _changed(body: Body, kinds: set[Kind], target: Target) -> Body:
    return tuple([_statement(stmt, kinds, target) for stmt in body])


def _statement(stmt: Stmt, kinds: set[Kind], target: Target) -> Stmt:
    if not isinstance(stmt, For | Nest):
        return stmt
    body = _changed(stmt.body, kinds, target)
    if body == stmt.body and isinstance(stmt, For) and stmt.kind in kinds and is_over_terms(stmt):
        body = (*_prefetches(stmt, target), *body)
    return stmt.with_body(body)


def _prefetches(loop: For, target: Target) -> tuple[Prefetch, ...]:
    """What an iteration begins to load."""
    inside = counts_of(loop.body)
    found = dict.fromkeys(place for stmt in statements(loop.body) for place in reads(stmt))
    far = [place for place in found if _is_far(place, loop, target)]
    rows = [_lines(place, inside, target.cache_line) for place in far]
    lines = list(dict.fromkeys(line for row in rows for line in row))
    if not all(rows) or len(lines) > MOST or len(lines) * WORTH > _sums(loop.body) / target.cache_line:
        return ()
    ahead = IMAGES if loop.kind == Kind.IMAGES else TERMS
    return tuple([Prefetch(place, loop.counter, ahead) for place in lines])


def _is_far(place: Place, loop: For, target: Target) -> bool:
    if place.index.tables or place.index.origin:
        return False
    if loop.kind == Kind.IMAGES:
        return place.array == VALUE
    apart = abs(place.index.stride(loop.counter)) * target.bytes
    is_large = loop.count >= 2 * TERMS and apart * loop.count >= LARGE
    return place.array == DATA and apart >= FAR and (is_large or bool(loop.steps))


def _lines(place: Place, inside: dict[str, int], length: int) -> list[Place]:
    """The first element that is read of each cache line; none if these are not side by side."""
    offsets = np.zeros(1, np.int64)
    outer: list[tuple[int, str]] = []
    for stride, counter in place.index.steps:
        if counter in inside:
            offsets = np.unique(np.add.outer(offsets, stride * np.arange(inside[counter])))
        else:
            outer.append((stride, counter))
    first = place.index.base + offsets
    lines, firsts = np.unique(first // length, return_index=True)
    if lines[-1] - lines[0] >= len(lines):
        return []
    return [replace(place, index=Index(int(first[i]), tuple(outer))) for i in firsts]


def _sums(body: Body) -> int:
    """How many sums an iteration adds to."""
    return sum(stmt.count * _sums(stmt.body) if isinstance(stmt, For) else adds(stmt) for stmt in body)
