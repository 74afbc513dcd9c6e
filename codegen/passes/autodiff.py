"""Forward ir -> forward and adjoint ir in one graph.

Example input, with parameter w and input x:

    %0 = param 0
    %1 = input 0
    %2 = mul %0 %1
    loss %2

becomes:

    %0 = param 0
    %1 = input 0
    %2 = mul %0 %1
    %3 = const 1.0
    %4 = mul %1 %3
    %5 = grad 0
    %6 = add %5 %4
    loss %2
    gradient 0 %6

Reverse accumulation in the engine's own order: nodes backwards, operands from left to right, each contribution added
to what is there already. A parameter starts from its old gradient, everything else from nothing, where the engine
starts from 0.0: the sum differs at most in the sign of a zero. Only nodes that depend on a parameter get an adjoint.
"""

from codegen.ir.graph import Graph, Op
from codegen.ir.ops import DERIVATIVE


def differentiate(graph: Graph) -> None:
    """Appends the adjoint nodes of `graph.loss`, if there is one, and fills `graph.gradients`."""
    size, parameter = len(graph), int(Op.PARAM)
    op, a, b = graph.op, graph.a, graph.b
    needed = _needed(graph)
    rules = [DERIVATIVE.get(op, ()) for op in Op]
    adjoint = [-1] * size
    gradients: dict[int, int] = {}
    if graph.loss >= 0 and needed[graph.loss]:
        _accumulate(graph, adjoint, graph.loss, graph.const(1.0))
    for n in range(size - 1, -1, -1):
        g = adjoint[n]
        if g < 0:
            continue
        o = op[n]
        if o == parameter:
            gradients[a[n]] = g
            continue
        for operand, rule in zip((a[n], b[n]), rules[o], strict=False):
            if needed[operand]:
                _accumulate(graph, adjoint, operand, rule(graph, n, g))
    graph.gradients = dict(sorted(gradients.items()))


def _needed(graph: Graph) -> bytearray:
    """For each node, 1 where it depends on a parameter by a path that carries gradient, else 0."""
    last_leaf, parameter, detach = int(Op.TARGET), int(Op.PARAM), int(Op.DETACH)
    needed = bytearray(len(graph) + 1)  # the last element is for the b that a unary op lacks, -1
    for n, (op, a, b) in enumerate(zip(graph.op, graph.a, graph.b, strict=True)):
        if op > last_leaf:
            needed[n] = op != detach and (needed[a] or needed[b])
        elif op == parameter:
            needed[n] = 1
    return needed


def _accumulate(graph: Graph, adjoint: list[int], n: int, contribution: int) -> None:
    before = adjoint[n]
    if before < 0 and graph.op[n] == Op.PARAM:
        before = graph.add(Op.GRAD, graph.a[n])
    adjoint[n] = contribution if before < 0 else graph.add(Op.ADD, before, contribution)
