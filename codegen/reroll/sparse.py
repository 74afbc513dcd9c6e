"""Which tensors can skip the rows of inputs that are zero.

Example: in a group lanes x sum(P, n x mul(P, X)), where every lane reads the same inputs, the term of an input that
is 0 adds nothing, so its whole row of weights is left out. In the gradient of these weights, n * lanes x
add(G, mul(X, R)), the row of that input stays as it is, so it is not touched, and neither update nor zero_grad
have to visit it. This needs every weight of the row, and every R, to be finite: 0 * inf is nan. The generated code
checks that; rows with a non-finite weight are never skipped.

A *row tensor* is one for which all of this holds: stored as one row for each input, all inputs in order, and written
by one gradient nest alone. Its gradient is then an outer product, inputs times the R of the lanes, so it need not be
written at all until someone looks: csrc/rows.h can take a step with the two factors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen.ir.graph import Op
from codegen.reroll.layout import Layout, TensorPlace
from codegen.reroll.lower import RESULT, Nest, Terms
from codegen.reroll.trees import ROOT_KIND, Shapes


@dataclass(frozen=True)
class RowTensor:
    """A tensor as rows, one for each input: data[offset + row_length * input + lane].

    Its gradient is that of before plus value[input] * value[factor + lane].
    """

    place: TensorPlace
    lanes: int
    row_length: int  # lanes and padding
    factor: int
    copy: int = 0  # where a block of images keeps its copy of the factors


def find_row_tensors(layout: Layout, shapes: Shapes, nests: list[Nest], inputs: int) -> dict[int, RowTensor]:
    """The row tensors, by their offset in data[]."""
    written: dict[int, list[RowTensor | None]] = {}  # offset of a tensor -> what each of its gradient nests is
    for nest in nests:
        if nest.placed.group.is_gradient:
            tensor = layout.tensor_at(int(nest.first[RESULT]))
            written.setdefault(tensor.offset, []).append(_gradient_rows(shapes, nest, tensor, inputs))
    found: dict[int, RowTensor] = {}
    copy = 0
    for offset, rows in written.items():
        if len(rows) == 1 and rows[0] is not None:
            found[offset] = replace(rows[0], copy=copy)
            copy += rows[0].row_length
    return found


def _gradient_rows(shapes: Shapes, nest: Nest, tensor: TensorPlace, inputs: int) -> RowTensor | None:
    """A nest inputs * lanes x add(G, mul(X, R)), in either order of the product, that writes all of a tensor."""
    if shapes.text(nest.placed.group.shape) not in ("add(G, mul(X, R))", "add(G, mul(R, X))"):
        return None
    term = nest.terms[1]
    x, r = (term.columns[term.run.kinds.index(kind)] for kind in (Op.INPUT, ROOT_KIND))
    if len(nest.loops) != 2 or nest.first[x] != 0 or nest.first[RESULT] != tensor.offset:
        return None
    rows, lane = nest.loops
    if rows.rows is not None or lane.rows is not None or rows.count != inputs or inputs * lane.count != tensor.size:
        return None
    row_length = tensor.extent // inputs
    walks_rows = (rows.strides[x], rows.strides[r], rows.strides[RESULT]) == (1, 0, row_length)
    walks_lanes = (lane.strides[x], lane.strides[r], lane.strides[RESULT]) == (0, 1, 1)
    return RowTensor(tensor, lane.count, row_length, int(nest.first[r])) if walks_rows and walks_lanes else None


def find_constant_rows(layout: Layout, shapes: Shapes, nests: list[Nest], inputs: int) -> dict[int, RowTensor]:
    """The row tensors of a model that only predicts, by their offset in data[].

    No gradient is written and all weights are finite constants, so whatever is read as rows can be left out as rows.
    """
    found: dict[int, RowTensor] = {}
    for nest in nests:
        for terms in nest.terms:
            rows = _rows_read(shapes, nest, terms, inputs)
            if rows is not None:
                offset, lanes, row_length = rows
                found[offset] = RowTensor(layout.tensor_at(offset), lanes, row_length, factor=0)
    return found


def skips_zero_inputs(shapes: Shapes, nest: Nest, terms: Terms, tensors: dict[int, RowTensor], inputs: int) -> bool:
    """Whether a run of terms is one row of a row tensor for each input, the same inputs for every lane."""
    rows = _rows_read(shapes, nest, terms, inputs)
    if rows is None:
        return False
    offset, lanes, row_length = rows
    tensor = tensors.get(offset)
    return tensor is not None and (tensor.lanes, tensor.row_length) == (lanes, row_length)


def _rows_read(shapes: Shapes, nest: Nest, terms: Terms, inputs: int) -> tuple[int, int, int] | None:
    """Offset, lanes and row length of a run inputs x mul(P, X) that takes one row of weights for each input."""
    if nest.placed.combine != Op.ADD or len(nest.loops) != 1 or terms.run.count != inputs:
        return None
    if shapes.text(terms.run.shape) not in ("mul(P, X)", "mul(X, P)") or len(terms.pieces) != 1:
        return None
    kinds = terms.run.kinds
    p, x = kinds.index(Op.PARAM), kinds.index(Op.INPUT)
    (lane,) = nest.loops
    walk = terms.pieces[0].loops
    if len(walk) != 1 or walk[0].rows is not None or lane.rows is not None or nest.first[terms.columns[x]] != 0:
        return None
    if walk[0].strides[x] != 1 or (lane.strides[terms.columns[p]], lane.strides[terms.columns[x]]) != (1, 0):
        return None
    return int(nest.first[terms.columns[p]]), lane.count, int(walk[0].strides[p])
