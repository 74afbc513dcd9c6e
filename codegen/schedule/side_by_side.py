"""Images of a batch side by side: the innermost loop runs over images, whatever the graph looks like.

Example input:

    for i < 50:
        let sum = data[39200 + i]
        for k < 20:
            sum += mul(data[i + 56k], value[k])
        value[800 + i] = relu(sum)

becomes:

    for block < 10:
        local sum[5][images]
        for i < 5:
            side by side image < 8:
                sum[i][image] = data[39200 + i + 5block]
        for k < 20:
            for i < 5:
                side by side image < 8:
                    sum[i][image] += mul(data[i + 56k + 5block], value[k][image])
        for i < 5:
            side by side image < 8:
                value[800 + i + 5block][image] = relu(sum[i][image])

A vector register holds one number of each image, and each image adds its terms in the order of the graph. The sums of
some roots are kept in registers together, because roots share what their terms read: here, value[k][image]. What
depends on parameters alone is read from shared[], without an image.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from codegen.ir.loops import (
    DATA,
    SHARED,
    VALUE,
    Accumulate,
    Body,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Loops,
    Phase,
    Place,
    map_body,
    reads,
    statements,
    substituted,
)
from codegen.schedule.forms import Growing
from codegen.schedule.nest import around, distributed, roots_and_body
from codegen.schedule.phases import indices_of, written_in
from codegen.schedule.target import Target
from codegen.schedule.tile import even_size

IMAGE, BLOCK = "image", "block"


def put_side_by_side(loops: Loops, target: Target) -> Loops:
    place, growing = places_of(loops), Growing(loops)
    kernels: list[Kernel] = []
    for kernel in loops.kernels:
        if kernel.phase == Phase.SIDE_BY_SIDE:
            nests = [_nests(map_body(nest, place), target, nest in growing) for nest in kernel.nests]
            kernel = kernel.with_nests(tuple(chain(*nests)))
        kernels.append(kernel)
    return loops.with_kernels(kernels)


def places_of(loops: Loops) -> Callable[[Expr], Expr]:
    """Elements of value[] that are computed once for all images, and those of the images."""
    is_shared = written_in(loops, Phase.ONCE)

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place or expr.array != VALUE:
            return expr
        first = indices_of(loops, expr.index, {})
        return Place(SHARED, expr.index) if is_shared[first] else replace(expr, image=IMAGE)

    return change


def _nests(nest: Body, target: Target, grows: bool) -> list[Body]:
    """A nest with the loop over images innermost; a last block of fewer roots is a nest of its own.

    `grows`: the number of terms differs from token to token, and processors mispredict the end of each loop over them.
    These are fewer if the sums of several rows are kept together.
    """
    found, body = roots_and_body(nest)
    side_by_side = For(IMAGE, target.cache_line, (), Kind.SIDE_BY_SIDE)
    row = _row(found, body) if any(type(stmt) is Let for stmt in body) else None
    if row is None:
        return [around(_parameters_outside(found, body), distributed(body, [side_by_side]))]
    most = target.registers.roots
    beside = [loop for loop in found if grows and loop is not row and loop.count * row.count <= most][-1:]
    outer = [loop for loop in found if loop is not row and loop not in beside]
    size = even_size(row, most)
    blocks, rest = divmod(row.count, size)
    result = []
    if blocks:
        start = Index(0, ((1, row.counter), (size, BLOCK)) if blocks > 1 else ((1, row.counter),))
        tile = distributed(substituted(body, row.counter, start), [*beside, replace(row, count=size), side_by_side])
        result.append(around(outer, (For(BLOCK, blocks, tile),) if blocks > 1 else tile))
    if rest:
        start = Index(blocks * size, ((1, row.counter),))
        tile = distributed(substituted(body, row.counter, start), [replace(row, count=rest), side_by_side])
        result.append(around(outer, tile))
    return result


def _parameters_outside(found: list[For], body: Body) -> list[For]:
    """The loops over roots, those first whose iterations read other parameters: the others read the same ones."""
    read = [place for stmt in statements(body) for place in reads(stmt) if place.array == DATA]
    return sorted(found, key=lambda loop: not any(place.depends_on(loop.counter) for place in read))


def _row(found: list[For], body: Body) -> For | None:
    """The loop over roots whose sums are kept together: in its iterations, most reads of images are the same."""
    terms = [stmt for stmt in statements(body) if type(stmt) is Accumulate]
    read = [place for stmt in terms for place in reads(stmt) if place.image]

    def shared(loop: For) -> int:
        return sum(not place.depends_on(loop.counter) for place in read)

    return max(reversed(found), key=shared, default=None)
