"""Value graph -> ir: the only place where the compiler reads Values.

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

Whatever the loss or an output depends on becomes a node, and nothing else does. Nodes are numbered in order of
creation; gradients are accumulated in the reverse of that order. Leaves that the Program does not declare are
constants.
"""

from collections.abc import Iterable, Sequence

from codegen.ir.graph import Graph, Op
from codegen.program import Program
from micrograd import foreign, ops
from micrograd.engine import Value
from micrograd.names import FromNumber
from micrograd.order import creation

# For each kind of leaf: the position of each declared Value among its kind, by the Value's identity.
Leaves = list[tuple[int, dict[int, int]]]


def trace(program: Program, undeclared: list[Value] | None = None) -> Graph:
    """The forward graph of a Program, with its loss and outputs.

    `undeclared` collects the leaves that become constants, except the numbers of expressions like `2 * x`.
    """
    graph = Graph()
    leaves = _positions(
        (Op.PARAM, program.parameter_values), (Op.INPUT, program.input_values), (Op.TARGET, program.target_leaves)
    )
    numbers = number_values(graph, program.roots(), leaves, undeclared)
    if program.loss is not None:
        graph.loss = numbers[id(program.loss)]
    graph.outputs = {name: [numbers[id(v)] for v in values] for name, values in program.outputs.items()}
    graph.metrics = {name: numbers[id(value)] for name, value in program.metrics.items()}
    return graph


def trace_value(root: Value) -> Graph:
    """The forward graph of a Value without a Program, `root` as its loss. Leaves keep the kind in their `_op`."""
    graph = Graph()
    marked: dict[str, list[Value]] = {"weight": [], "bias": [], "input": []}
    for value in creation([root]):
        if not value._prev and value._op in marked:
            marked[value._op].append(value)
    leaves = _positions((Op.PARAM, [*marked["weight"], *marked["bias"]]), (Op.INPUT, marked["input"]))
    graph.loss = number_values(graph, [root], leaves)[id(root)]
    return graph


def _positions(*declared: tuple[int, Sequence[Value]]) -> Leaves:
    return [(op, {id(value): i for i, value in enumerate(values)}) for op, values in declared]


def number_values(
    graph: Graph, roots: Iterable[Value], leaves: Leaves, undeclared: list[Value] | None = None
) -> dict[int, int]:
    """Appends everything that the roots depend on; returns each Value's node, by the Value's identity."""
    numbers: dict[int, int] = {}
    for value in creation(roots):
        try:
            operands = [numbers[id(child)] for child in value._prev]
        except KeyError:
            raise ValueError(f"{value!r} has an operand that is younger than itself: _prev must not change") from None
        n = numbers[id(value)] = _append(graph, value, operands, leaves)
        if graph.op[n] == Op.CONST and undeclared is not None and type(value._op) is not FromNumber:
            undeclared.append(value)
    return numbers


def _append(graph: Graph, value: Value, operands: list[int], leaves: Leaves) -> int:
    """Appends the node of a Value, whose operands have their numbers, and returns its own."""
    if not operands:
        for op, positions in leaves:
            position = positions.get(id(value))
            if position is not None:
                return graph.add(op, position)
        foreign.refuse([value], "compiled")
        return graph.const(value.data)
    row = foreign.row(value)
    if len(operands) == 2 and row.arity == 2:
        return graph.add(row.number, operands[0], operands[1])
    if value._exponent is not None and row is ops.power:
        (a,) = operands
        if value._exponent == 0.0:  # the engine's rule: x**0 has the gradient 0, at x = 0 too
            a = graph.add(Op.DETACH, a)
        return graph.add(Op.POW, a, graph.const(value._exponent))
    if len(operands) != row.arity:
        raise ValueError(f"{row.symbol!r} takes {row.arity} operands, but {value!r} has {len(operands)}")
    return graph.add(row.number, operands[0])
