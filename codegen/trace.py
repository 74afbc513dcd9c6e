"""Value graph -> ir: the one place where the compiler looks at Values.

Example input, with parameter w, input x and a plain Value(2.0):

    (w * x + 2.0).relu()

becomes:

    %0 = param 0
    %1 = input 0
    %2 = mul %0 %1
    %3 = const 2.0
    %4 = add %2 %3
    %5 = relu %4
    loss %5

Nodes are numbered here, in the order of the loss's topo(), then of the outputs that the loss does not need. That
order is the order in which gradients are accumulated. Leaves that the Program does not declare are constants.
"""

from codegen.ir import Graph, Op
from codegen.program import Program
from micrograd.engine import Value

OPS = {
    "+": Op.ADD,
    "*": Op.MUL,
    "**": Op.POW,
    "exp": Op.EXP,
    "log": Op.LOG,
    "tanh": Op.TANH,
    "sigmoid": Op.SIGMOID,
    "ReLU": Op.RELU,
    "max": Op.MAX,
    "detach": Op.DETACH,
}


def trace(program: Program) -> Graph:
    """The forward graph of a Program, with its loss and outputs."""
    graph = Graph()
    leaves: dict[int, tuple[Op, int]] = {}
    for op, values in (
        (Op.PARAM, program.parameter_values),
        (Op.INPUT, program.inputs.values),
        (Op.TARGET, program.target_values),
    ):
        leaves.update((id(value), (op, i)) for i, value in enumerate(values))
    numbers: dict[int, int] = {}
    # topo() of every root in turn walks shared parts again, so all roots hang under one node, the loss first.
    everything = Value(0.0, tuple(program.roots()), "roots")
    order = everything.topo()
    order.pop()
    for value in order:
        numbers[id(value)] = _append(graph, value, leaves, numbers)
    graph.loss = numbers[id(program.loss)]
    graph.outputs = {name: [numbers[id(v)] for v in values] for name, values in program.outputs.items()}
    return graph


def _append(graph: Graph, value: Value, leaves: dict[int, tuple[Op, int]], numbers: dict[int, int]) -> int:
    children = value._prev
    if not children:
        leaf = leaves.get(id(value))
        return graph.const(value.data) if leaf is None else graph.add(*leaf)
    a = numbers[id(children[0])]
    if len(children) == 2:
        return graph.add(OPS[value._op], a, numbers[id(children[1])])
    if value._exponent is not None:
        if value._exponent == 0.0:  # the engine's rule: x**0 has the gradient 0, at x = 0 too
            a = graph.add(Op.DETACH, a)
        return graph.add(Op.POW, a, graph.const(value._exponent))
    return graph.add(OPS[value._op], a)
