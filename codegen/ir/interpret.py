"""A plain interpreter of the ir: the living definition of what a graph means."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.ir.graph import Graph, Op
from micrograd import ops


def interpret(
    graph: Graph,
    params: Sequence[float],
    grads: Sequence[float],
    inputs: Sequence[float],
    targets: Sequence[float],
) -> list[float]:
    """The value of every node, in order. `inputs` are after scaling."""
    columns = {Op.CONST: graph.constants, Op.PARAM: params, Op.GRAD: grads, Op.INPUT: inputs, Op.TARGET: targets}
    functions = ops.FUNCTIONS
    values: list[float] = []
    for op, a, b in zip(graph.op, graph.a, graph.b, strict=True):
        if op in columns:
            values.append(columns[op][a])
        elif b >= 0:
            values.append(functions[op](values[a], values[b]))
        else:
            values.append(functions[op](values[a]))
    return values
