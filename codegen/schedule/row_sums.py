"""Sums over active inputs -> kernels of their own, which can stop at any input and go on later.

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
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen.ir.loops import (
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
    Name,
    Pass,
    Place,
    Region,
    Regions,
    Store,
    map_body,
    reads,
    statements,
)
from codegen.reroll.layout import aligned, padded
from codegen.schedule.nest import root_loops
from codegen.schedule.target import Target


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
        start=(replace(lane, body=(Store(sums, first),)),),
        add=(replace(lane, body=(Let(name, sums), rows, Store(sums, Name(name)))),),
        finish=(replace(lane, body=map_body((last,), change)),),
        lanes=lane.count,
    )
