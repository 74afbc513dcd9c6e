"""Value graph -> C, one node at a time, as in Max Bernstein's essay "Compiling ML models to C for fun".

Example input, with weights x and y:

    z = x * y

becomes, forwards and backwards:

    data[2] = data[0]*data[1];

    grad[0] += data[1]*grad[2];
    grad[1] += data[0]*grad[2];

Nodes are numbered in the order of topo(), and every node has a place of its own in data[] and grad[]. A leaf says what
it is by its `_op`: "weight" and "bias" are parameters, "input" is set before each pass, "" is a constant. There is no
Program and no other pass: what is written is the engine's own forward and _backward, by the compiler's tables. The C
needs the functions of csrc/ops.h, and data[] and grad[] of type double.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.texts import Texts
from codegen.ir.graph import Graph, Op
from codegen.ir.ops import DERIVATIVE, PYTHON, C
from codegen.passes.trace import append
from micrograd.engine import Value, gradient_order

CONSTANT, INPUT = "", "input"
PARAMETERS = ("weight", "bias")
ARITHMETIC = Arithmetic()

Numbers = dict[int, int]  # a node's number, by the Value's identity


def forward(node: Value, graph: Value | None = None) -> str:
    """The statement of one node, "" for a leaf that is set elsewhere. See Value.compile()."""
    return _forward(node, _numbers_with(node, graph))


def backward(node: Value, graph: Value | None = None) -> list[str]:
    """The statements that add to the gradients of a node's operands. See Value.backward_compile()."""
    return list(_backward(node, _numbers_with(node, graph)))


def forward_code(loss: Value) -> str:
    """The whole forward pass: constants and operations, a line each."""
    order = loss.topo()
    numbers = _numbers(order)
    return _lines(_forward(node, numbers) for node in order)


def backward_code(loss: Value) -> str:
    """The whole backward pass. It adds to the gradients of parameters; all others start from 0, the loss's from 1."""
    order = loss.topo()
    numbers = _numbers(order)
    statements = [f"grad[{numbers[id(node)]}] = 0.0;" for node in order if node._prev and node is not loss]
    if _has_gradient(loss):
        statements.append(f"grad[{numbers[id(loss)]}] {'=' if loss._prev else '+='} 1.0;")
    for node in gradient_order(order):
        statements += _backward(node, numbers)
    return _lines(statements)


def update_code(loss: Value, parameters: Sequence[Value], learning_rate: float) -> str:
    """A step of gradient descent: `data[0] -= 0.5*grad[0];` for each parameter that the loss depends on.

    Raises ValueError for a Value that is no "weight" or "bias" leaf.
    """
    numbers = _numbers(loss.topo())
    rate = ARITHMETIC.literal(learning_rate)
    found = _found("parameter", parameters, PARAMETERS, numbers)
    return _lines(f"data[{n}] -= {rate}*grad[{n}];" for _, n in found)


def set_input_code(loss: Value, inputs: Sequence[Value]) -> str:
    """`data[3] = buf[0];` for each input that the loss depends on, numbered in buf[] as in `inputs`.

    Raises ValueError for a Value that is no "input" leaf.
    """
    numbers = _numbers(loss.topo())
    return _lines(f"data[{n}] = buf[{i}];" for i, n in _found("input", inputs, (INPUT,), numbers))


class _Node(Texts):
    """One node, as a graph of its own: its operands are leaves that know their numbers."""

    def __init__(self, node: Value, numbers: Numbers) -> None:
        graph = Graph()
        operands = [graph.add(Op.PARAM, numbers[id(child)]) for child in node._prev]
        self.node, self.number = append(graph, node, operands, []), numbers[id(node)]
        super().__init__(graph, ARITHMETIC)

    def _place(self, n: int) -> int:
        return self.number if n == self.node else self.graph.a[n]

    def operand(self, n: int) -> str:
        if self.graph.op[n] == Op.CONST:  # an exponent: it is part of its node
            return self.literal(self.graph.constants[self.graph.a[n]])
        if self.graph.op[n] == Op.DETACH and n != self.node:  # the base of x**0
            return self.operand(self.graph.a[n])
        return f"data[{self._place(n)}]"

    def adjoint(self, n: int) -> str:
        return f"grad[{self._place(n)}]"

    def template(self, op: Op) -> str:
        return C[op].replace(" ", "") if op in (Op.ADD, Op.MUL) else C[op]

    def _tree(self, n: int, g: int, node: int) -> str:
        graph = self.graph
        a, b = graph.a[n], graph.b[n]
        if n > g and graph.op[n] == Op.ADD and graph.op[a] == graph.op[b] == Op.CONST:  # an exponent less 1
            difference = PYTHON[Op.ADD](graph.constants[graph.a[a]], graph.constants[graph.a[b]])
            graph.op[n], graph.a[n] = Op.CONST, graph.constant_number(difference)
        return super()._tree(n, g, node)


def _forward(node: Value, numbers: Numbers) -> str:
    number = numbers[id(node)]
    if node._prev:
        texts = _Node(node, numbers)
        return f"data[{number}] = {texts.definition(texts.node)};"
    return f"data[{number}] = {ARITHMETIC.literal(node.data).strip('()')};" if _kind(node) == CONSTANT else ""


def _backward(node: Value, numbers: Numbers) -> Iterator[str]:
    if not node._prev:
        _kind(node)
        return
    texts = _Node(node, numbers)
    graph, n = texts.graph, texts.node
    rules = DERIVATIVE[Op(graph.op[n])]
    for child, operand, rule in zip(node._prev, (graph.a[n], graph.b[n]), rules, strict=False):
        if _has_gradient(child) and graph.op[operand] != Op.DETACH:
            yield f"{texts.adjoint(operand)} += {texts.contribution(n, rule)};"


def _kind(leaf: Value) -> str:
    if leaf._op not in (CONSTANT, INPUT, *PARAMETERS):
        raise ValueError(f"a leaf's _op must be '', 'weight', 'bias' or 'input', got {leaf._op!r}")
    return leaf._op


def _has_gradient(node: Value) -> bool:
    return bool(node._prev) or _kind(node) in PARAMETERS


def _numbers(order: list[Value]) -> Numbers:
    return {id(node): i for i, node in enumerate(order)}


def _numbers_with(node: Value, graph: Value | None) -> Numbers:
    if not isinstance(graph, Value | None):
        raise TypeError(f"graph must be a Value, not {type(graph).__name__}")
    numbers = _numbers((node if graph is None else graph).topo())
    if id(node) not in numbers:
        raise ValueError(f"{node!r} is not a node of the graph of {graph!r}")
    return numbers


def _found(what: str, leaves: Sequence[Value], kinds: Sequence[str], numbers: Numbers) -> Iterator[tuple[int, int]]:
    """Position and number of those that are in the graph."""
    for i, leaf in enumerate(leaves):
        if leaf._prev or leaf._op not in kinds:
            expected = " or ".join(f"Value(x, _op={kind!r})" for kind in kinds)
            raise ValueError(f"{what} {i} must be a leaf made as {expected}, but its _op is {leaf._op!r}")
        if id(leaf) in numbers:
            yield i, numbers[id(leaf)]


def _lines(statements: Iterator[str] | list[str]) -> str:
    return "\n".join(statement for statement in statements if statement)
