"""With reorder=True: gradients of parameters that add images side by side.

Example input:

    for i < 30:
        for j < 3:
            grad[3i + j] += mul(value[i], value[48 + j])

becomes:

    for i < 6:
        local sum[15][images]
        for row < 5:
            for column < 3:
                side by side image < 16:
                    sum[3row + column][image] = -0
        groups group < 4:
            for row < 5:
                for column < 3:
                    side by side image < 16:
                        sum[3row + column][image] += mul(value[5i + row][image], value[48 + column][image])
        added image < 16:
            for row < 5:
                for column < 3:
                    grad[15i + 3row + column] += sum[3row + column][image]

Each image has a sum of its own, over the same images of all groups; at the end these are added, in pairs. So a vector
register is full whatever the shape of a tensor, and nothing has to be copied to the workspaces of single images. Where
lanes fill a vector register too, they need no additions at the end, and the gradient stays as it is, unless the copies
that it needs take longer.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import product

from codegen.ir.graph import Op
from codegen.ir.loops import (
    SHARED,
    VALUE,
    Accumulate,
    Body,
    Const,
    Expr,
    For,
    Holds,
    Index,
    Kernel,
    Kind,
    Local,
    Loops,
    Pass,
    Phase,
    Place,
    Stmt,
    Store,
    map_body,
)
from codegen.schedule.nest import around, result, roots_and_body
from codegen.schedule.phases import COPY_OPERATIONS, indices_read, kernel_cost, marked, written_in
from codegen.schedule.side_by_side import IMAGE, places_of
from codegen.schedule.target import Target
from codegen.schedule.tile import Part, even_size, in_parts, parts_of

GROUPS = 4  # in a block, about
FEWEST_GROUPS = 2  # whose gradients are added: csrc/passes.h has the same
MAX_SUMS, MAX_COLUMNS = 16, 5  # of a tile, each a vector of images
GAIN = 1.5  # so many times more vector operations are worth the additions at the end
ADDED = 8  # operations that add numbers of images side by side


def add_groups(loops: Loops, batch: Loops, target: Target, always: Container[int] = ()) -> Loops:
    """The gradients that are faster so, and those to do so `always`; none if the order of the images is to be kept.

    `batch`: the other kernels. What adds to value[] adds to the part that all images share: see sums_of_images.py.
    """
    of_images = places_of(batch)
    kernels = []
    for kernel in _chosen(loops, batch, target, always) if target.reorder else ():
        written = {result(nest) for nest in kernel.nests}

        def place(expr: Expr, written: Container[Expr] = written) -> Expr:
            if type(expr) is Place and expr.array == VALUE and expr in written:
                return Place(SHARED, expr.index)
            return of_images(expr)

        nests = [tiled for nest in kernel.nests for tiled in _tiled(map_body(nest, place), target.cache_line)]
        kernels.append(replace(kernel, nests=tuple(nests), phase=Phase.SIDE_BY_SIDE))
    return loops.with_kernels(kernels)


def _chosen(loops: Loops, batch: Loops, target: Target, always: Container[int]) -> list[Kernel]:
    """Kernels that gain by themselves; all of them, if more is saved where nothing is copied to single images."""
    costs = {kernel.number: kernel_cost(kernel, target) for kernel in loops.kernels}
    possible = [kernel for kernel in loops.kernels if kernel.passes == Pass.DENSE_GRADIENTS]
    found = [
        k for k in possible if k.number in always or costs[k.number].by_image > GAIN * costs[k.number].side_by_side
    ]
    others = [kernel for kernel in possible if kernel not in found]
    apart = COPY_OPERATIONS * _copied(batch, loops, others) + sum(costs[kernel.number].by_image for kernel in others)
    ends = ADDED * sum(kernel.roots for kernel in others) / FEWEST_GROUPS
    together = ends + sum(costs[kernel.number].side_by_side for kernel in others)
    return possible if together < apart else found


def _copied(batch: Loops, loops: Loops, gradients: Iterable[Kernel]) -> int:
    """How many values are copied to workspaces of single images because gradients read them there.

    Where nothing else reads workspaces, inputs and targets do not go there first.
    """
    beside = written_in(batch, Phase.SIDE_BY_SIDE)
    read = marked(loops, (found for kernel in gradients for found in indices_read(loops, kernel)))
    goes_there = any(kernel.phase == Phase.BY_IMAGE for kernel in batch.kernels)
    given = sum(region.row for region in loops.regions[VALUE] if region.holds in (Holds.INPUTS, Holds.TARGETS))
    return int((beside & read).sum()) + (0 if goes_there else given)


def _tiled(nest: Body, images: int) -> Iterator[Body]:
    """The nest as nests of tiles: of whole ones, and of the rests at the ends of its loops."""
    found, body = roots_and_body(nest)
    for parts in product(*_choices(found)):
        yield _nest(found, parts, body, images)


def _choices(found: list[For]) -> list[list[Part]]:
    """The innermost loops over roots in parts: MAX_SUMS roots at a time."""
    choices: list[list[Part]] = []
    most = MAX_COLUMNS if len(found) > 1 and found[-2].count > 1 else MAX_SUMS
    for loop, inside in zip(reversed(found), ("column", "row"), strict=False):
        size = even_size(loop, most)
        choices.insert(0, parts_of(loop, loop.counter, inside, size))
        most = MAX_SUMS // size
    return choices


def _nest(found: list[For], parts: tuple[Part, ...], body: Body, images: int) -> Body:
    inside = [For(part.inside, part.size, ()) for part in parts if part.size > 1]
    length, steps = 1, list[tuple[int, str]]()
    for loop in reversed(inside):
        steps.insert(0, (length, loop.counter))
        length *= loop.count
    element = Place("sum", Index(0, tuple(steps)), IMAGE)
    gradient = result(body)

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place or expr == element:
            return expr
        return replace(expr, index=in_parts(expr.index, parts))

    def tile(stmt: Store | Accumulate) -> Body:
        return map_body(around([*inside, For(IMAGE, images, (), Kind.SIDE_BY_SIDE)], (stmt,)), change)

    def visit(body: Body) -> Iterator[Stmt]:
        for stmt in body:
            if isinstance(stmt, For):
                yield stmt.with_body(tuple(visit(stmt.body)))
            else:
                assert isinstance(stmt, Accumulate)
                yield from tile(replace(stmt, target=element))

    added = For(IMAGE, images, (), Kind.ADDED)
    whole: Body = (
        Local("sum", length, images=True),
        *tile(Store(element, Const(-0.0))),
        For("group", GROUPS, tuple(visit(body)), Kind.GROUPS),
        *map_body(around([added, *inside], (Accumulate(gradient, Op.ADD, element),)), change),
    )
    tiles = {part.loop.counter: part.tiles for part in parts}
    outer = [replace(loop, count=tiles.get(loop.counter, loop.count)) for loop in found]
    return around([loop for loop in outer if loop.count > 1 or loop.counter not in tiles], whole)
