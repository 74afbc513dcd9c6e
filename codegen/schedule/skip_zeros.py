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
"""

from __future__ import annotations

from codegen.ir.loops import (
    Body,
    Expr,
    For,
    Kernel,
    Kind,
    Loops,
    Name,
    Place,
    in_time,
    map_body,
    reads,
    statements,
)
from codegen.schedule.nest import around, each_nest, root_loops
from codegen.schedule.rows import Rows, RowTensor, is_input, rows_read


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
