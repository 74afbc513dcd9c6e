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

from codegen.ir import BINARY, Graph, Op
from codegen.ops import DERIVATIVE


def differentiate(graph: Graph) -> None:
    """Appends the adjoint nodes of `graph.loss` and fills `graph.gradients`."""
    size = len(graph)
    binary = {int(op) for op in BINARY}
    op, a, b = graph.op, graph.a, graph.b
    needed = bytearray(size)  # depends on a parameter by a path that carries gradient
    for n in range(size):
        o = op[n]
        if o == Op.PARAM:
            needed[n] = 1
        elif o > Op.TARGET and o != Op.DETACH:
            needed[n] = needed[a[n]] or (o in binary and needed[b[n]])
    rules = {int(op): DERIVATIVE.get(Op(op), ()) for op in Op}
    adjoint = [-1] * size
    parameters: dict[int, int] = {}
    if needed[graph.loss]:
        _accumulate(graph, adjoint, graph.loss, graph.const(1.0))
    for n in range(size - 1, -1, -1):
        g = adjoint[n]
        if g < 0:
            continue
        o = op[n]
        if o == Op.PARAM:
            parameters[a[n]] = g
            continue
        for operand, rule in zip((a[n], b[n]), rules[o], strict=False):
            if needed[operand]:
                _accumulate(graph, adjoint, operand, rule(graph, n, g))
    graph.gradients = dict(sorted(parameters.items()))


def _accumulate(graph: Graph, adjoint: list[int], n: int, contribution: int) -> None:
    if adjoint[n] < 0 and graph.op[n] == Op.PARAM:
        adjoint[n] = graph.add(Op.GRAD, graph.a[n])
    adjoint[n] = contribution if adjoint[n] < 0 else graph.add(Op.ADD, adjoint[n], contribution)
