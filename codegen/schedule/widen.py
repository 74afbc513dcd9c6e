"""Reads of narrow weights -> the same as real numbers, where plain C has no memory for widened ones.

Example input, of weights with 50 rows of 784, which the layout has as columns:

    sum[i] += mul(data[i + 50k], x_k)

becomes, with the scales of the rows of all tensors in a table, if data[] holds int8,

    sum[i] += mul(mul(data[i + 50k], scales[i]), x_k)

and of float16 or bfloat16 mul(widened(data[i + 50k]), x_k). The products with scales are exact: see passes/freeze.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from codegen.ir.graph import Op
from codegen.ir.loops import DATA, WIDENED, Apply, Body, Expr, For, Index, Kernel, Loops, Place, map_body, statements
from codegen.reroll.layout import TensorPlace
from codegen.schedule.nest import each_nest

SCALES, ROWS = "scales", "rows_of_weights"  # tables


def widen_weights(loops: Loops, tensors: Sequence[TensorPlace], scales: Sequence[float]) -> Loops:
    """The loops with data[] as it is stored: `scales` are those of all rows, none for float16 and bfloat16."""
    tables = dict(loops.tables)

    def change(kernel: Kernel, nest: Body) -> Body:
        counts: dict[str, int] = {}
        for stmt in statements(nest):
            if type(stmt) is For:
                counts[stmt.counter] = max(stmt.count, counts.get(stmt.counter, 0))

        def widen(expr: Expr) -> Expr:
            if type(expr) is not Place or expr.array != DATA:
                return expr
            if not scales:
                return Apply(WIDENED, (expr,))
            row = row_of(expr.index, tensors, counts)
            if row is None:
                tables.setdefault(ROWS, _rows(tensors))
                row = Index(0, (), ((ROWS, expr.index),))
            return Apply(Op.MUL, (expr, Place(SCALES, row)))

        return map_body(nest, widen)

    changed = each_nest(loops, change, straight=True)
    return replace(changed, tables=tables | ({SCALES: list(map(float, scales))} if scales else {}))


def row_of(index: Index, tensors: Sequence[TensorPlace], counts: Mapping[str, int]) -> Index | None:
    """Which of the rows of all tensors an element of data[] is in; None if that is no sum of counters."""
    number = max(
        (i for i, place in enumerate(tensors) if place.extent and place.offset <= index.base),
        key=lambda i: tensors[i].offset,
    )
    place, first = tensors[number], _first_rows(tensors)[number]
    base = _coordinates(index.base - place.offset, place)
    if index.tables or base is None:
        return None
    lowest, highest, steps = list(base), list(base), []
    for stride, counter in index.steps:
        step = _coordinates(abs(stride), place)
        if step is None:
            return None
        for axis, length in enumerate(step):
            reach = length * (counts[counter] - 1)
            if stride < 0:
                lowest[axis] -= reach
            else:
                highest[axis] += reach
        if len(step) > 1 and step[0]:
            steps.append((step[0] if stride > 0 else -step[0], counter))
    # Where no coordinate leaves its axis, the element is the one with these coordinates.
    if min(lowest, default=0) < 0 or any(far >= size for far, size in zip(highest, place.tensor.shape, strict=True)):
        return None
    return Index(first + (base[0] if len(base) > 1 else 0), tuple(steps))


def _coordinates(distance: int, place: TensorPlace) -> list[int] | None:
    """A distance in data[] as steps along the axes of a tensor, most of them along those of the longest strides."""
    found = [0] * len(place.strides)
    for axis in sorted(range(len(found)), key=lambda axis: -place.strides[axis]):
        if place.tensor.shape[axis] > 1:
            found[axis], distance = divmod(distance, place.strides[axis])
    return None if distance else found


def _first_rows(tensors: Sequence[TensorPlace]) -> list[int]:
    """The number of the first row of each tensor."""
    return [0, *accumulate(row_count(place.tensor.shape) for place in tensors)]


def row_count(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) > 1 else 1


def _rows(tensors: Sequence[TensorPlace]) -> list[int]:
    """The row of each element of data[], for indices that tables hold."""
    rows = np.zeros(max(place.offset + place.extent for place in tensors), dtype=np.int64)
    for place, first in zip(tensors, _first_rows(tensors), strict=False):
        grid = np.indices(place.tensor.shape).reshape(len(place.strides), -1)
        places = place.offset + sum((axis * s for axis, s in zip(grid, place.strides, strict=True)), np.int64(0))
        rows[places] = first + (grid[0] if len(place.strides) > 1 else 0)
    return [int(row) for row in rows]
