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
to the sum so far. A parameter's sum starts from its old gradient, any other from its first contribution, where the
engine starts from 0.0: the results differ at most in the sign of a zero. Only nodes that depend on a parameter get an
adjoint, and those that depend on an input if the gradients of inputs are asked for.

A contribution is `partial * g`, g being the adjoint of the node and the partial a row's in the op table. It is
evaluated once for each op, on the nodes of a small graph, and copied from there for each node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen import checks
from codegen.ir.graph import Graph, Node, Op
from codegen.program import Program
from micrograd import ops
from micrograd.engine import Value
from micrograd.noise import Noise


@dataclass
class Slope:
    """A partial derivative as ir. `node` is -1 for the constant 1: then g itself is the contribution."""

    steps: Graph
    node: int

    @classmethod
    def of(cls, op: ops.Row, i: int) -> Slope | None:
        """The derivative by operand i; None if no gradient flows to it."""
        graph = Graph()
        result, *operands = [Node(graph, graph.add(Op.INPUT, k)) for k in range(3)]
        slope = op.slope(i, result, operands[: op.arity])
        if slope is None:
            return None
        if isinstance(slope, Node):
            return cls(graph, slope.n)
        return cls(graph, -1 if slope == 1.0 else graph.const(slope))

    def contribution(self, graph: Graph, n: int, g: int) -> int:
        """Appends what node n, whose adjoint is g, adds to the adjoint of its operand."""
        if self.node < 0:
            return g
        steps = self.steps
        places = [n, graph.a[n], graph.b[n]]
        for k in range(len(places), len(steps)):
            op, a, b = steps.op[k], steps.a[k], steps.b[k]
            if op == Op.CONST:
                places.append(graph.const(steps.constants[a]))
            else:
                places.append(graph.add(op, places[a], places[b] if b >= 0 else -1))
        return graph.add(Op.MUL, places[self.node], g)


def differentiate(graph: Graph, input_gradients: bool = False) -> None:
    """Appends the adjoint nodes of `graph.loss`, if there is one, and fills `graph.gradients`.

    With `input_gradients` the graph's own too: what depends on an input gets an adjoint then.
    """
    size, leaves = len(graph), {int(Op.PARAM), int(Op.INPUT)} if input_gradients else {int(Op.PARAM)}
    op, a, b = graph.op, graph.a, graph.b
    slopes: list[tuple[Slope | None, ...]] = [() for _ in range(ops.count())]
    for used in set(op):
        if used >= ops.FIRST:
            row = ops.row(used)
            slopes[used] = tuple([Slope.of(row, i) for i in range(row.arity)])
    needed = _needed(graph, bytes([any(slope is not None for slope in found) for found in slopes]), leaves)
    adjoint = [-1] * size
    gradients: dict[int, int] = {}
    if graph.loss >= 0 and needed[graph.loss]:
        _accumulate(graph, adjoint, graph.loss, graph.const(1.0))
    for n in range(size - 1, -1, -1):
        g = adjoint[n]
        if g < 0:
            continue
        o = op[n]
        if o in leaves:
            (gradients if o == Op.PARAM else graph.input_gradients)[a[n]] = g
            continue
        for operand, slope in zip((a[n], b[n]), slopes[o], strict=False):
            if needed[operand] and slope is not None:
                _accumulate(graph, adjoint, operand, slope.contribution(graph, n, g))
    graph.gradients = dict(sorted(gradients.items()))


def _needed(graph: Graph, passes_gradient: bytes, leaves: set[int]) -> bytearray:
    """For each node, 1 where it depends on such a leaf by a path that carries gradient, else 0."""
    last_leaf = Op.TARGET
    needed = bytearray(len(graph) + 1)  # the last element is for the b that a unary op lacks, -1
    for n, (op, a, b) in enumerate(zip(graph.op, graph.a, graph.b, strict=True)):
        if op > last_leaf:
            needed[n] = passes_gradient[op] and (needed[a] or needed[b])
        elif op in leaves:
            needed[n] = 1
    return needed


def _accumulate(graph: Graph, adjoint: list[int], n: int, contribution: int) -> None:
    before = adjoint[n]
    if before < 0 and graph.op[n] == Op.PARAM:
        before = graph.add(Op.GRAD, graph.a[n])
    adjoint[n] = contribution if before < 0 else graph.add(Op.ADD, before, contribution)


def add_output_gradients(graph: Graph, program: Program, output: str) -> Program:
    """Appends the nodes for the gradient of an output by the inputs: what a net looks at.

    Of a model with the output logits, two of them, `logits[0] * seed[0] + logits[1] * seed[1]` is differentiated as a
    loss would be, but by the inputs. Its seeds are targets behind all others, chosen by a caller: noise of the Program
    that is returned. The derivatives are metrics of the graph, which have a pass of their own, named 0, 1, ... by their
    inputs.
    """
    seeds = [Value(0.0) for _ in program.outputs[output]]
    first, terms = len(program.target_leaves), []
    for i, n in enumerate(graph.outputs[output]):
        terms.append(graph.add(Op.MUL, n, graph.add(Op.TARGET, first + i)))
    look = terms[0]
    for term in terms[1:]:
        look = graph.add(Op.ADD, look, term)
    loss, graph.loss = graph.loss, look
    differentiate(graph, input_gradients=True)
    if not graph.input_gradients:
        raise ValueError(f"gradients of an output: {output!r} depends on no input")
    graph.metrics = {str(i): n for i, n in sorted(graph.input_gradients.items())}
    graph.loss, graph.gradients, graph.input_gradients = loss, {}, {}
    return replace(program, noise=[*program.noises, Noise(seeds, (0.0, 1.0))])


def checked_output(program: Program, output: object) -> str:
    """The name of an output that has such a gradient. Raises ValueError for any other."""
    name = checks.name("the output whose gradients are wanted", output)
    if name not in program.outputs:
        raise ValueError(f"gradients of an output: {name!r} is none of the outputs {list(program.outputs)}")
    if not program.input_values:
        raise ValueError("a model without inputs has no gradients of outputs by them")
    return name
