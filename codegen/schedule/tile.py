"""Rows of gradients -> tiles of a few rows and a few vectors of lanes, whose sums fit into registers.

Example input, with tiles of at most 4 x 32 numbers:

    for i < 50:
        local sum[64]
        lanes j < 64:
            sum[j] = grad[64i + j]
        images image < 64:
            lanes j < 64:
                sum[j] += mul(value[800 + i], value[856 + j])
        lanes j < 64:
            grad[64i + j] = sum[j]

becomes:

    for block < 2:
        for i < 12:
            local sum[128]
            lanes row < 4:
                lanes j < 32:
                    sum[32row + j] = grad[256i + 64row + 32block + j]
            images image < 64:
                lanes row < 4:
                    lanes j < 32:
                        sum[32row + j] += mul(value[800 + 4i + row], value[856 + 32block + j])
            lanes row < 4:
                lanes j < 32:
                    grad[256i + 64row + 32block + j] = sum[32row + j]

and a nest of the same form for the last two rows. A tile of R rows and J vectors loads R + J operands for R * J
products. Rows of one vector are unrolled: gcc would keep the sums of so many in memory. All rows of a block of lanes
come before the next block, so what the block reads from all images stays in the first-level cache.


Sums of values -> tiles of a few rows that read some numbers together: tokens that share weights, pixels a kernel.

Example input, whose sums are filled and stored as above:

    for i < 16:
        for k < 8:
            lanes j < 32:
                sum[j] += mul(data[32k + j], value[8i + k])

becomes:

    for i < 4:
        for k < 8:
            unrolled lanes row < 4:
                lanes j < 32:
                    sum[32row + j] += mul(data[32k + j], value[32i + 8row + k])

All rows fill whole tiles. Where a row is a part of a vector they are not unrolled: gcc would make vectors of the first
two alone. While an addition waits for the one before in its sum, those of other sums begin. Where the number of terms
grows from token to token, rows that share nothing are tiles too: heads, for example.


More lanes than registers can hold -> blocks of lanes.

Example input, with 16 lanes at most:

    local sum[40]
    lanes i < 40:
        sum[i] = data[i]
    for k < 9:
        lanes i < 40:
            sum[i] += mul(data[40 + i + 40k], value[k])
    lanes i < 40:
        value[16 + i] = sum[i]

becomes:

    for block < 5:
        local sum[8]
        lanes i < 8:
            sum[i] = data[i + 8block]
        for k < 9:
            lanes i < 8:
                sum[i] += mul(data[40 + i + 40k + 8block], value[k])
        lanes i < 8:
            value[16 + i + 8block] = sum[i]

If no width divides the lanes, a shorter block follows the loop. Lanes that accumulate nothing need no blocks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

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
    Store,
    map_body,
    moved,
    reads,
    statements,
)
from codegen.schedule.forms import Growing
from codegen.schedule.nest import each_nest, with_lanes
from codegen.schedule.target import Target

ROW, BLOCK = "row", "block"
MAX_ROWS = 8  # of a tile of values: so many additions are in flight


def tile_values(loops: Loops, target: Target) -> Loops:
    growing = Growing(loops)

    def change(kernel: Kernel, nest: Body) -> Body:
        return nest if kernel.passes in PARAMETER_GRADIENTS else _shared(nest, target, nest in growing)

    return each_nest(loops, change)


def tile_rows(loops: Loops, target: Target) -> Loops:
    def change(kernel: Kernel) -> Kernel:
        if kernel.passes not in PARAMETER_GRADIENTS:
            return kernel
        return kernel.with_nests(tuple([tiled for nest in kernel.nests for tiled in _tiled(nest, target)]))

    return loops.with_kernels([change(kernel) for kernel in loops.kernels])


@dataclass(frozen=True)
class Part:
    """A part of a loop's iterations, from `start` on: `tiles` times `size` of them.

    `outside` counts the tiles, `inside` the iterations in a tile.
    """

    loop: For
    outside: str
    inside: str
    start: int
    tiles: int
    size: int

    @property
    def index(self) -> Index:
        """What the loop's counter becomes."""
        outside = ((self.size, self.outside),) if self.tiles > 1 else ()
        return Index(self.start, (*outside, *(((1, self.inside),) if self.size > 1 else ())))


def parts_of(loop: For, outside: str, inside: str, size: int) -> list[Part]:
    """The iterations in tiles of `size`, and a smaller tile for the rest."""
    tiles, rest = divmod(loop.count, size)
    parts = [Part(loop, outside, inside, 0, tiles, size)]
    return [*parts, Part(loop, outside, inside, tiles * size, 1, rest)] if rest else parts


def in_parts(index: Index, parts: Iterable[Part]) -> Index:
    """The index with the counters of loops replaced by those of their parts."""
    for part in parts:
        index = moved(index, part.loop.counter, part.index)
    return index


def even_size(loop: For, most: int) -> int:
    """How many iterations a tile has: at most so many, and rather those of which all tiles have as many."""
    size = min(loop.count, most)
    return next((n for n in range(size, size // 2, -1) if loop.count % n == 0), size)


def _inside(nest: Body) -> tuple[list[For], Body]:
    """The loops around the statements of a nest, outermost first, and these statements."""
    outer: list[For] = []
    body = nest
    while len(body) == 1 and isinstance(loop := body[0], For) and loop.kind == Kind.SEQUENTIAL:
        outer.append(loop)
        body = loop.body
    return outer, body


def _tiled(nest: Body, target: Target) -> Iterator[Body]:
    """The nest as nests of tiles: of whole ones, and of the rests at the ends of its loops."""
    outer, body = _inside(nest)
    if not outer or not isinstance(body[0], Local):
        yield nest
        return
    lane = next(stmt for stmt in body if isinstance(stmt, For) and stmt.kind == Kind.LANES)
    width = target.tile_width(lane.count)
    sizes = _rows(outer, body, lane, target.tile_rows(width))
    choices = [parts_of(lane, BLOCK, lane.counter, width)]
    for number, (loop, size) in enumerate(sizes):
        choices.append(parts_of(loop, loop.counter, f"{ROW}_{number}" if number else ROW, size))
    for lanes, *rows in product(*choices):
        yield _nest(outer, lanes, rows, body, unrolled=width == target.cache_line)


def _shared(nest: Body, target: Target, is_growing: bool) -> Body:
    """The nest in tiles whose rows read some numbers of each term together, or have ever more terms; else as it was."""
    outer, body = _inside(nest)
    if not outer or not _is_row_of_sums(body):
        return nest
    lane = body[1]
    assert isinstance(lane, For)
    read = [place for stmt in statements(body) if isinstance(stmt, Accumulate) for place in reads(stmt)]
    loop = min(outer, key=lambda loop: sum(place.depends_on(loop.counter) for place in read))
    width = target.tile_width(lane.count)
    width = width if lane.count % width == 0 else lane.count
    most = min(loop.count, target.tile_rows(width), MAX_ROWS)
    size = next((n for n in range(most, 1, -1) if loop.count % n == 0), 1)
    is_shared = not all(place.depends_on(loop.counter) for place in read)
    if size == 1 or not (is_shared or is_growing) or not all(place.index.is_contiguous(lane.counter) for place in read):
        return nest
    rows = [Part(loop, loop.counter, ROW, 0, loop.count // size, size)]
    lanes = Part(lane, BLOCK, lane.counter, 0, lane.count // width, width)
    return _nest(outer, lanes, rows, body, unrolled=width % target.cache_line == 0)


def _is_row_of_sums(body: Body) -> bool:
    """Whether a body fills one row of sums, adds terms to it in loops, and stores it."""
    if len(body) < 4 or not isinstance(body[0], Local):
        return False
    inside = [stmt for stmt in statements(body[1:]) if not isinstance(stmt, Accumulate | Store)]
    kinds = {stmt.kind if isinstance(stmt, For) else None for stmt in inside}
    return kinds <= {Kind.SEQUENTIAL, Kind.LANES} and all(isinstance(stmt, For) for stmt in body[1:])


def _rows(outer: list[For], body: Body, lane: For, most: int) -> list[tuple[For, int]]:
    """How many iterations of which loops a tile has: first of those on which no operand of the lanes depends."""
    operands = {place.index for stmt in statements(body) for place in reads(stmt)}
    operands = {index for index in operands if index.depends_on(lane.counter)}
    dependents = {loop.counter: sum(index.depends_on(loop.counter) for index in operands) for loop in outer}
    sizes: list[tuple[For, int]] = []
    for loop in sorted(outer, key=lambda loop: (dependents[loop.counter], -outer.index(loop))):
        size = even_size(loop, most)
        sizes.append((loop, size))
        if size < loop.count:
            break
        most //= size
    return sizes


def _nest(outer: list[For], lanes: Part, rows: Sequence[Part], body: Body, unrolled: bool = False) -> Body:
    """The loops over tiles, and a tile inside."""
    tiles = {row.loop.counter: row.tiles for row in rows}
    inner = _tile(body, lanes, [row for row in rows if row.size > 1], [lanes, *rows], unrolled)
    for loop in reversed(outer):
        count = tiles.get(loop.counter, loop.count)
        if count > 1 or loop.counter not in tiles:
            inner = (For(loop.counter, count, inner),)
    return (For(BLOCK, lanes.tiles, inner),) if lanes.tiles > 1 else inner


def _tile(body: Body, lanes: Part, rows: Sequence[Part], parts: Sequence[Part], unrolled: bool = False) -> Body:
    """The statements of a tile: loops over its rows around every loop over lanes."""
    locals_ = {stmt.name for stmt in body if isinstance(stmt, Local)}
    length, steps = lanes.size, [(1, lanes.inside)]
    for row in reversed(rows):
        steps.insert(0, (length, row.inside))
        length *= row.size
    element = Index(0, tuple(steps))

    def change(expr: Expr) -> Expr:
        if not isinstance(expr, Place):
            return expr
        if expr.array in locals_:
            return Place(expr.array, element)
        return Place(expr.array, in_parts(expr.index, parts))

    def visit(body: Body) -> Iterator[For | Local]:
        for stmt in body:
            if isinstance(stmt, Local):
                yield Local(stmt.name, length)
                continue
            assert isinstance(stmt, For)
            if stmt.kind != Kind.LANES:
                yield stmt.with_body(tuple(visit(stmt.body)))
                continue
            loop = For(lanes.inside, lanes.size, map_body(stmt.body, change), Kind.LANES)
            adds = unrolled and isinstance(stmt.body[0], Accumulate)
            for row in reversed(rows):
                loop = For(row.inside, row.size, (loop,), Kind.LANES, unrolled=adds)
            yield loop

    return tuple(visit(body))


def tile_lanes(loops: Loops, target: Target) -> Loops:
    return each_nest(loops, lambda kernel, nest: _in_blocks(nest, target))


def _in_blocks(body: Body, target: Target) -> Body:
    local = next((stmt for stmt in body if type(stmt) is Local), None)
    if local is None:
        if len(body) == 1 and isinstance(loop := body[0], For) and loop.kind != Kind.LANES:
            return (loop.with_body(_in_blocks(loop.body, target)),)
        return body
    width = target.lane_block(local.length)
    if width == local.length:
        return body
    lane = next(stmt.counter for stmt in body if type(stmt) is For and stmt.kind == Kind.LANES)
    blocks, rest = divmod(local.length, width)
    inner = block_of_lanes(body, lane, Index(0, ((1, lane), (width, "block"))), width)
    tiled: Body = (
        (For("block", blocks, inner),) if blocks > 1 else block_of_lanes(body, lane, Index(0, ((1, lane),)), width)
    )
    if rest:
        tiled += block_of_lanes(body, lane, Index(blocks * width, ((1, lane),)), rest, "_rest")
    return tiled


def block_of_lanes(body: Body, lane: str, start: Index, width: int, suffix: str = "") -> Body:
    """`width` lanes of a body from `start` on, with Locals of that length whose names end in `suffix`."""
    locals_ = {stmt.name for stmt in body if type(stmt) is Local}

    def change(expr: Expr) -> Expr:
        if type(expr) is not Place:
            return expr
        if expr.array in locals_:
            return Place(expr.array + suffix, expr.index)
        return Place(expr.array, moved(expr.index, lane, start))

    named = tuple([Local(stmt.name + suffix, stmt.length) if type(stmt) is Local else stmt for stmt in body])
    return with_lanes(map_body(named, change), lane, width)
