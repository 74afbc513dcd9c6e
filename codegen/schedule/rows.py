"""Which tensors can skip the rows of inputs that are zero.

Example: in a nest where every root reads the same inputs,

    for i < 50:
        let sum = data[39200 + i]
        for k < 784:
            sum += mul(data[i + 56k], value[k])
        ...

the term of an input that is 0 adds nothing, so its whole row of weights is left out. In the gradient of these weights

    for i < 784:
        for j < 50:
            grad[56i + j] += mul(value[i], value[1016 + j])

the row of that input does not change, and neither update() nor zero_grad() has to visit it. This requires every weight
of the row, and every factor value[1016 + j], to be finite: 0 * inf is nan. The generated code checks that; rows with a
non-finite weight are never skipped.

A *row tensor* is one for which all of this holds: stored as one row for each input, all inputs in order, and written
by one nest of gradients alone. Its gradient is then an outer product, inputs times factors, which is materialized only
when it is read: csrc/rows.h can take a step with the two vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from codegen.ir.graph import Op
from codegen.ir.loops import DATA, VALUE, Accumulate, Apply, Body, Expr, For, Holds, Let, Loops, Name, Pass, Place
from codegen.reroll.layout import Layout, TensorPlace
from codegen.schedule.nest import result, root_loops

SMALL = 1 << 14  # numbers, whose products take less time than to look for inputs that are 0


@dataclass(frozen=True)
class RowTensor:
    """A tensor as rows, one for each input: data[offset + row_length * input + lane].

    A backward pass adds value[input] * value[factor + lane] to its gradient.
    """

    place: TensorPlace
    lanes: int
    row_length: int  # lanes and padding
    factor: int
    copy: int = 0  # offset in the copies of factors that a block of images keeps


@dataclass(frozen=True)
class Rows:
    """The rows that a loop over inputs reads from a tensor: `lanes` numbers for each input."""

    offset: int
    lanes: int
    row_length: int


def find_row_tensors(loops: Loops, layout: Layout, is_trained: bool, density: float) -> dict[int, RowTensor]:
    """The row tensors, by their offset in data[]. `density`: the share of inputs that are expected not to be 0.

    If all are, a small tensor is no row tensor: to look for inputs that are 0 takes longer than its few products.
    In a model that only predicts, no gradient is written and all weights are finite constants: all rows
    that are read can be skipped.
    """
    if not is_trained:
        read = [rows for kernel in loops.kernels for nest in kernel.nests for _, rows in rows_read(nest, loops)]
        return {r.offset: RowTensor(layout.tensor_at(r.offset), r.lanes, r.row_length, factor=0) for r in read}
    written: dict[int, list[RowTensor | None]] = {}  # offset of a tensor -> what each of its gradient nests is
    for kernel in loops.kernels:
        for nest in kernel.nests if kernel.is_gradient else ():
            tensor = layout.tensor_at(result(nest).index.base)
            written.setdefault(tensor.offset, []).append(_gradient_rows(nest, tensor, loops))
    found: dict[int, RowTensor] = {}
    copy = 0
    for offset, rows in written.items():
        if len(rows) == 1 and rows[0] is not None and (density < 1 or rows[0].place.extent > SMALL):
            found[offset] = replace(rows[0], copy=copy)
            copy += rows[0].row_length
    return found


def mark_row_gradients(loops: Loops, rows: dict[int, RowTensor]) -> Loops:
    """Moves the gradients of row tensors to a pass of their own."""
    return loops.with_kernels(
        [
            replace(kernel, passes=Pass.ROW_GRADIENTS)
            if kernel.is_gradient and result(kernel.nests[0]).index.base in rows
            else kernel
            for kernel in loops.kernels
        ]
    )


def rows_read(nest: Body, loops: Loops) -> list[tuple[For, Rows]]:
    """The loops over all inputs in a nest, with the rows of weights that they read; all roots read the same inputs."""
    roots = root_loops(nest)
    if len(roots) != 1:
        return []
    (lane,) = roots
    if not (lane.body and type(lane.body[0]) is Let):
        return []
    found = []
    for stmt in lane.body:
        if type(stmt) is For and stmt.count == loops.inputs and len(stmt.body) == 1:
            rows = _row(stmt, lane, loops)
            if rows is not None:
                found.append((stmt, rows))
    return found


def _row(loop: For, lane: For, loops: Loops) -> Rows | None:
    (stmt,) = loop.body
    if type(stmt) is not Accumulate or type(stmt.target) is not Name or stmt.op != Op.ADD:
        return None
    product = _product_with_input(stmt.value, loops)
    if product is None:
        return None
    x, other = product
    if other.array != DATA or other.index.tables or (x.index.base, x.index.steps) != (0, ((1, loop.counter),)):
        return None
    if other.index.stride(lane.counter) != 1 or len(other.index.steps) != 2:
        return None
    return Rows(other.index.base, lane.count, other.index.stride(loop.counter))


def _product_with_input(expr: Expr, loops: Loops) -> tuple[Place, Place] | None:
    return factors(expr, lambda place: is_input(place, loops))


def factors(expr: Expr, is_first: Callable[[Place], bool]) -> tuple[Place, Place] | None:
    """The operands of a product of a place of which that is true and one of which it is not, in this order."""
    if type(expr) is not Apply or expr.op != Op.MUL:
        return None
    a, b = expr.operands
    if type(a) is not Place or type(b) is not Place or is_first(a) == is_first(b):
        return None
    return (a, b) if is_first(a) else (b, a)


def is_input(place: Place, loops: Loops) -> bool:
    return place.array == VALUE and loops.region(VALUE, place.index.base).holds == Holds.INPUTS


def _gradient_rows(nest: Body, tensor: TensorPlace, loops: Loops) -> RowTensor | None:
    """A nest `for i < inputs: for j < lanes: grad[...] += mul(value[i], value[factor + j])` over all of a tensor."""
    found = root_loops(nest)
    if len(found) != 2 or len(found[1].body) != 1:
        return None
    row, lane = found
    (stmt,) = lane.body
    if type(stmt) is not Accumulate or row.count != loops.inputs or row.count * lane.count != tensor.size:
        return None
    product = _product_with_input(stmt.value, loops)
    if product is None:
        return None
    x, factor = product
    if factor.array != VALUE or loops.region(VALUE, factor.index.base).holds in (Holds.TARGETS, Holds.NOISE):
        return None
    row_length, i, j = tensor.extent // loops.inputs, row.counter, lane.counter
    target = result(nest).index
    if any(place.tables for place in (target, x.index, factor.index)) or target.base != tensor.offset:
        return None
    walks_rows = (x.index.base, x.index.steps) == (0, ((1, i),)) and target.stride(i) == row_length
    walks_lanes = factor.index.steps == ((1, j),) and target.stride(j) == 1
    return RowTensor(tensor, lane.count, row_length, factor.index.base) if walks_rows and walks_lanes else None
