"""Value graph -> C, one node at a time, as in Max Bernstein's essay "Compiling ML models to C for fun".

Example input, with weights x and y:

    z = x * y

becomes, forwards and backwards:

    data[2] = data[0]*data[1];

    grad[0] += data[1]*grad[2];
    grad[1] += data[0]*grad[2];

Nodes are numbered in the order of topo(), or by `_id`, and each has its own element of data[] and grad[]. The `_op` of
a leaf is its kind: "weight" and "bias" are parameters, "input" is set before each pass, "" is a constant. There is no
Program and no compiler: the statements are the engine's own forward and _backward, by the op table. The C needs
csrc/ops.h, the functions in definitions_code(), and data[] and grad[] of type double.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from micrograd import foreign, ops, order
from micrograd.definitions import c_definitions

if TYPE_CHECKING:
    from micrograd.engine import Value

CONSTANT, INPUT = "", "input"
PARAMETERS = ("weight", "bias")

Numbers = dict[int, int]  # a node's number, by the Value's identity


def forward(node: Value, graph: Value | None = None) -> str:
    """The statement of one node, "" for a leaf that is set elsewhere. See Value.compile()."""
    return _forward(node, _numbers_with(node, graph))


def backward(node: Value, graph: Value | None = None) -> list[str]:
    """The statements that add to the gradients of a node's operands. See Value.backward_compile()."""
    return list(_backward(node, _numbers_with(node, graph)))


def forward_code(loss: Value) -> str:
    """The whole forward pass: constants and operations, one per line."""
    nodes = loss.topo()
    numbers = _numbers(nodes)
    return _lines(_forward(node, numbers) for node in nodes)


def backward_code(loss: Value) -> str:
    """The whole backward pass. It adds to the gradients of parameters; all others start from 0, the loss's from 1.

    Contributions are added in the order of Value.backward().
    """
    nodes = loss.topo()
    numbers = _numbers(nodes)
    statements = [f"grad[{numbers[id(node)]}] = 0.0;" for node in nodes if node._prev and node is not loss]
    if has_gradient(loss):
        statements.append(f"grad[{numbers[id(loss)]}] {'=' if loss._prev else '+='} 1.0;")
    for node in order.gradient_order(order.creation([loss])):
        statements += _backward(node, numbers)
    return _lines(statements)


def definitions_code(*losses: Value) -> str:
    """The functions that the other code of some graphs calls, "" if there are none. They need csrc/ops.h."""
    nodes = order.topo(losses)
    numbers, dialect = _numbers(nodes), _dialect()
    for node in nodes:
        _forward(node, numbers, dialect)
        list(_backward(node, numbers, dialect))
    return _lines(c_definitions(dialect.used, c_literal))


def update_code(loss: Value, parameters: Sequence[Value], learning_rate: float) -> str:
    """A step of gradient descent: `data[0] -= 0.5*grad[0];` for each parameter that the loss depends on.

    Raises ValueError for a Value that is not a "weight" or "bias" leaf.
    """
    numbers = _numbers(loss.topo())
    rate = c_literal(learning_rate)
    found = _found("parameter", parameters, PARAMETERS, numbers)
    return _lines(f"data[{n}] -= {rate}*grad[{n}];" for _, n in found)


def set_input_code(loss: Value, inputs: Sequence[Value]) -> str:
    """`data[3] = buf[0];` for each input that the loss depends on, numbered in buf[] as in `inputs`.

    Raises ValueError for a Value that is not an "input" leaf.
    """
    numbers = _numbers(loss.topo())
    return _lines(f"data[{n}] = buf[{i}];" for i, n in _found("input", inputs, (INPUT,), numbers))


def _dialect() -> Dialect:
    return Dialect(c_literal, tight=True)


def _forward(node: Value, numbers: Numbers, dialect: Dialect | None = None) -> str:
    number = numbers[id(node)]
    if not node._prev:
        return f"data[{number}] = {c_literal(node.data)};" if _kind(node) == CONSTANT else ""
    dialect = dialect or _dialect()
    operands = [Text(f"data[{numbers[id(child)]}]", dialect) for child in node._prev]
    if node._exponent is not None:
        operands.append(Text(c_literal(node._exponent), dialect))
    return f"data[{number}] = {dialect.definition(foreign.row(node), operands).text};"


def _backward(node: Value, numbers: Numbers, dialect: Dialect | None = None) -> Iterator[str]:
    if not node._prev:
        _kind(node)
        return
    if node._exponent == 0.0:
        return
    dialect, op, number = dialect or _dialect(), foreign.row(node), numbers[id(node)]
    operands: list[Text | float] = [Text(f"data[{numbers[id(child)]}]", dialect) for child in node._prev]
    if node._exponent is not None:
        operands.append(node._exponent)
    result, g = Text(f"data[{number}]", dialect), Text(f"grad[{number}]", dialect)
    for i, child in enumerate(node._prev):
        if has_gradient(child) and op.partials[i] is not None:
            yield f"grad[{numbers[id(child)]}] += {dialect.contribution(op, i, result, operands, g)};"


def _kind(leaf: Value) -> str:
    foreign.refuse([leaf], "compiled")
    if leaf._op not in (CONSTANT, INPUT, *PARAMETERS):
        raise ValueError(f"a leaf's _op must be '', 'weight', 'bias' or 'input', got {leaf._op!r}")
    return leaf._op


def has_gradient(node: Value) -> bool:
    """Whether grad[] has a number for it: operations, weights and biases. Raises ValueError for unknown leaves."""
    return bool(node._prev) or _kind(node) in PARAMETERS


def _numbers(nodes: list[Value]) -> Numbers:
    return {id(node): i for i, node in enumerate(nodes)}


def _numbers_with(node: Value, graph: Value | None) -> Numbers:
    if graph is not None and not hasattr(graph, "_prev"):
        raise TypeError(f"graph must be a Value, not {type(graph).__name__}")
    if graph is None:
        return {id(known): known._id for known in (node, *node._prev)}
    numbers = _numbers(graph.topo())
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


def _lines(statements: Iterable[str]) -> str:
    return "\n".join(statement for statement in statements if statement)


# Rows of the op table as C


@dataclass
class Dialect:
    """How literals are written, and whether + and * have no spaces (`tight`). `rows` collects those printed.

    With the operands `data[0]` and `data[1]` and the gradient `grad[2]`, the row of pow becomes what the node computes,
    and what it adds to the gradient of its left operand, which is the row's own partial derivative:

        op_pow(data[0], data[1])
        (data[1] * op_pow(data[0], (data[1] + -1.0))) * grad[2]

    The compiler's straight-line code is printed like this too, with other operands and spaces.
    """

    literal: Callable[[float], str]
    tight: bool = False
    rows: dict[int, ops.Row] = field(default_factory=dict)

    @property
    def used(self) -> list[ops.Row]:
        """The rows that were printed, in the order of the table."""
        return [row for _, row in sorted(self.rows.items())]

    def definition(self, op: ops.Row, operands: Sequence[Text]) -> Text:
        """An op applied to operands, which get parentheses if they need them."""
        self.rows[op.number] = op
        template = op.c.replace(" ", "") if self.tight and op.is_infix else op.c
        parts = [f"({x.text})" if x.loose else x.text for x in operands]
        return Text(template.format(*parts), self, op.is_infix)

    def contribution(self, op: ops.Row, i: int, result: Text, operands: Sequence[Text | float], g: Text) -> str:
        """The term added to the gradient of operand i, which must have one. A constant operand is a float."""
        slope = op.slope(i, result, operands)
        text: Text = g if isinstance(slope, float) and slope == 1.0 else ops.mul(slope, g)
        return text.text


class Text(ops.Operand):
    """A C expression. A loose one has + or * at the top: as an operand it needs parentheses."""

    __slots__ = ("dialect", "loose", "text")

    def __init__(self, text: str, dialect: Dialect, loose: bool = False) -> None:
        self.text, self.dialect, self.loose = text, dialect, loose

    def _from_op(self, op: ops.Row, operands: Sequence[Any]) -> Text:
        dialect = self.dialect
        parts = [x if isinstance(x, Text) else Text(dialect.literal(float(x)), dialect) for x in operands]
        return dialect.definition(op, parts)


def c_literal(value: float, suffix: str = "") -> str:
    """A C constant with exactly these bits (all nans become NAN). `suffix` is the type's: "f" for float."""
    value = float(value)
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    if value == int(value) and 0 < abs(value) < 1e6:
        return f"{value:.1f}{suffix}"
    mantissa, exponent = value.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}{suffix}"
