"""Loops over the inputs that read rows of a row tensor -> loops over active inputs.

Example input, the tensor being a row tensor:

    for i < 50:
        let sum = data[39200 + i]
        for k < 784:
            sum += mul(data[i + 56k], value[k])
        value[800 + i] = relu(sum)

becomes:

    for i < 50:
        let sum = data[39200 + i]
        active k < 784, x_k = value[k]:
            sum += mul(data[i + 56k], x_k)
        value[800 + i] = relu(sum)


Sums over active inputs -> kernels of their own, which can stop at any input and go on later.

Example input:

    for i < 50:
        let sum = data[39200 + i]
        active k < 784, x_k = value[k]:
            sum += mul(data[i + 56k], x_k)
        value[800 + i] = relu(sum)

becomes three kernels, with room for the sums behind all other values:

    for i < 50:
        value[1200 + i] = data[39200 + i]

    for i < 50:
        let sum = value[1200 + i]
        active k < 784, x_k = value[k]:
            sum += mul(data[i + 56k], x_k)
        value[1200 + i] = sum

    for i < 50:
        value[800 + i] = relu(value[1200 + i])

The first two come before everything else. The second may run for some inputs at a time: csrc/passes.h takes rows that
fit the L1 cache, and adds those of one image after the other. Each sum adds its terms in the same order.


Sums over active inputs -> sums of a few images at a time, for inputs that are active in all of them.

Example input, a kernel of row sums before lanes are split:

    for i < 96:
        let sum = value[1200 + i]
        active k < 784, x_k = value[k]:
            sum += mul(data[i + 104k], x_k)
        value[1200 + i] = sum

becomes:

    for block < 3:
        local sum[128]
        few images image < 4:
            lanes i < 32:
                sum[32image + i] = value[1200 + 32block + i]
        active k < 784:
            few images image < 4:
                let x_k = inputs[k][image]
                lanes i < 32:
                    sum[32image + i] += mul(data[i + 32block + 104k], x_k)
        few images image < 4:
            lanes i < 32:
                value[1200 + 32block + i] = sum[32image + i]

Each row of weights is loaded once for all of these images. Floats are expected not to be 0; where an image has a zero
among these inputs, run-time code takes the images one by one: see csrc/passes.h. Each sum adds its terms in the same
order. As with a tile of gradients, the sums fill half the vector registers. Where such a tile has one line, there are
kernels of more images too.
"""

from dataclasses import dataclass, replace

from codegen.ir.loops import (
    INPUTS,
    VALUE,
    Accumulate,
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
    Pass,
    Place,
    Region,
    Regions,
    Stmt,
    Store,
    map_body,
    reads,
    statements,
    substituted,
)
from codegen.reroll.layout import aligned, padded
from codegen.schedule.nest import around, each_nest, in_time, root_loops
from codegen.schedule.rows import Rows, RowTensor, is_input, rows_read
from codegen.schedule.target import Target

IMAGES = 4  # at a time, for inputs that are active in all of them
IMAGE, BLOCK, SUM = "image", "block", "sum"


def skip_zeros(loops: Loops, rows: dict[int, RowTensor]) -> Loops:
    def change(kernel: Kernel, nest: Body) -> Body:
        if kernel.is_gradient:
            return nest
        skipped = [loop for loop, read in rows_read(nest, loops) if _is_row_of(rows.get(read.offset), read)]
        if not skipped:
            return nest
        (lane,) = root_loops(nest)
        body = tuple([_active(stmt, loops) if stmt in skipped else stmt for stmt in lane.body])
        return around([lane], body)

    return each_nest(loops, change)


def reads_inputs(loops: Loops) -> bool:
    """Whether a statement reads inputs from value[]; loops over active inputs and row tensors do not."""
    return any(
        is_input(place, loops)
        for kernels in (loops.kernels, in_time(loops))  # the first steps, then all
        for kernel in kernels
        for nest in kernel.nests
        for stmt in statements(nest)
        for place in reads(stmt)
    )


def _is_row_of(tensor: RowTensor | None, read: Rows) -> bool:
    return tensor is not None and (tensor.lanes, tensor.row_length) == (read.lanes, read.row_length)


def _active(loop: For, loops: Loops) -> For:
    name = f"x_{loop.counter}"

    def change(expr: Expr) -> Expr:
        return Name(name) if type(expr) is Place and is_input(expr, loops) else expr

    return For(loop.counter, loop.count, map_body(loop.body, change), Kind.ACTIVE, name)


@dataclass(frozen=True)
class _Split:
    """A nest in three parts: `start` stores where the sums begin, `add` adds the rows, `finish` uses the sums."""

    start: Body
    add: Body
    finish: Body
    lanes: int


def split_row_sums(loops: Loops, target: Target) -> Loops:
    line, length = target.cache_line, loops.lengths[VALUE]
    starts: list[Kernel] = []
    adds: list[Kernel] = []
    rest: list[Kernel] = []
    regions: list[Region] = []
    for kernel in loops.kernels:
        offset = aligned(length, line)
        split = _split(kernel.nests[0], offset) if len(kernel.nests) == 1 and kernel.passes & Pass.LOSS else None
        if split is None:
            rest.append(kernel)
            continue
        starts.append(replace(kernel.with_nests((split.start,)), passes=kernel.passes | Pass.ROW_STARTS))
        adds.append(replace(kernel.with_nests((split.add,)), passes=kernel.passes | Pass.ROW_SUMS))
        rest.append(kernel.with_nests((split.finish,)))
        extent = padded(split.lanes, line)
        name = f"SUMS_{kernel.number}"
        regions.append(Region(offset, name, name.lower(), split.lanes, extent, extent))
        length = offset + extent
    return replace(
        loops,
        kernels=(*starts, *adds, *rest),
        lengths={**loops.lengths, VALUE: length},
        regions={**loops.regions, VALUE: Regions([*loops.regions[VALUE], *regions])},
    )


def _split(nest: Body, offset: int) -> _Split | None:
    """The parts of a nest whose sums over active inputs depend on nothing but parameters and these inputs."""
    roots = root_loops(nest)
    if len(roots) != 1:
        return None
    (lane,) = roots
    match lane.body:
        case (Let(name, first), For(kind=Kind.ACTIVE, body=(Accumulate(target=Name(added)),)) as rows, Store() as last):
            pass
        case _:
            return None
    start = Let(name, first)
    if added != name or any(place.array == VALUE for stmt in (start, *statements(rows.body)) for place in reads(stmt)):
        return None
    sums = Place(VALUE, Index(offset, ((1, lane.counter),)))

    def change(expr: Expr) -> Expr:
        return sums if expr == Name(name) else expr

    assert not isinstance(first, Index)
    return _Split(
        start=(lane.with_body((Store(sums, first),)),),
        add=(lane.with_body((Let(name, sums), rows, Store(sums, Name(name)))),),
        finish=(lane.with_body(map_body((last,), change)),),
        lanes=lane.count,
    )


def rows_of_images(loops: Loops, target: Target) -> Loops:
    """The kernels of row sums alone, each for a few images, and for more."""
    numbers = {IMAGES: Pass.DENSE_ROWS, more_images(target): Pass.MORE_DENSE_ROWS}
    sums = [kernel for kernel in loops.kernels if kernel.passes & Pass.ROW_SUMS]
    return loops.with_kernels([_of_images(k, n, p, target) for n, p in numbers.items() if n for k in sums])


def more_images(target: Target) -> int:
    """How many images go together, if more than IMAGES do; else 0."""
    rows = target.registers.tile // target.product_lines
    return rows if rows > IMAGES else 0


def _of_images(kernel: Kernel, images: int, passes: Pass, target: Target) -> Kernel:
    (nest,) = kernel.nests
    (lane,) = root_loops(nest)
    width = target.registers.tile // images * target.cache_line
    lanes = padded(lane.count, target.cache_line)
    nests: list[Body] = []
    if lanes >= width:
        blocks = For(BLOCK, lanes // width, _block(lane, width, Index(0, ((width, BLOCK),)), images))
        nests.append((blocks,))
    if lanes % width:
        nests.append(_block(lane, lanes % width, Index(lanes // width * width), images))
    return replace(kernel, passes=passes, nests=tuple(nests))


def _block(lane: For, width: int, start: Index, images: int) -> Body:
    """The sums of `width` lanes from the start on."""
    i = lane.counter
    first, rows, last = substituted(lane.body, i, Index(start.base, (*start.steps, (1, i))))
    assert isinstance(first, Let)
    assert not isinstance(first.value, Index)
    assert isinstance(rows, For)
    assert isinstance(last, Store)
    (term,) = rows.body
    assert isinstance(term, Accumulate)
    element = Place(SUM, Index(0, ((width, IMAGE), (1, i))))

    def few(*body: Stmt, unrolled: bool = False) -> For:
        return For(IMAGE, images, body, Kind.FEW_IMAGES, unrolled=unrolled)

    def lanes(stmt: Stmt) -> For:
        return For(i, width, (stmt,), Kind.LANES)

    x = Let(rows.input, Place(INPUTS, Index(0, ((1, rows.counter),)), IMAGE))
    return (
        Local(SUM, images * width),
        few(lanes(Store(element, first.value))),
        replace(rows, body=(few(x, lanes(replace(term, target=element)), unrolled=images > IMAGES),), input=""),
        few(lanes(replace(last, value=element))),
    )
