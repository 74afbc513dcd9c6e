"""Scalars that remember how they were made: micrograd's `Value`.

An expression of Values is a graph. `backward()` walks it once, from the result to the leaves, and leaves in every
node's `grad` the derivative of the result with respect to that node. This module is the definition of what the
compiler's output must compute, bit for bit, so three things are fixed that micrograd leaves open: operands keep
their order, gradients are accumulated in the order of `topo()` reversed, and edge cases are IEEE's (see `ieee`).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from micrograd import ieee

if TYPE_CHECKING:
    import graphviz

Number: TypeAlias = "Value | float"


class Value:
    """One scalar of an expression graph, with its gradient.

    `data` and `grad` are floats. `_prev` holds the operands in order, `_op` names the operation and `_exponent` is the
    constant exponent of `**`, None where the exponent is a Value itself. A leaf's `_op` is "", or says what the leaf
    is for: "weight", "bias" or "input". That changes no number, only C text (`compile`) and pictures. `label` is a
    name for pictures.

    Raises TypeError for anything that is not a real number (OverflowError for an int that no float can hold), and for
    comparisons and truth tests: a graph is traced once and compiled, so a branch on a Value would be decided once and
    for all.
    """

    __slots__ = ("_exponent", "_op", "_prev", "data", "grad", "label")

    def __init__(self, data: float, _children: tuple[Value, ...] = (), _op: str = "", label: str = "") -> None:
        if type(data) is not float:
            if not isinstance(data, numbers.Real):
                raise TypeError(f"a Value holds a real number, not {type(data).__name__}")
            data = float(data)
        self.data = data
        self.grad = 0.0
        self._prev = _children
        self._op = _op
        self._exponent: float | None = None
        self.label = label

    def __add__(self, other: Number) -> Value:
        right = _value(other)
        if right is None:
            return NotImplemented
        return Value(self.data + right.data, (self, right), "+")

    def __mul__(self, other: Number) -> Value:
        right = _value(other)
        if right is None:
            return NotImplemented
        return Value(self.data * right.data, (self, right), "*")

    def __pow__(self, other: Number) -> Value:
        """self**other. The exponent may be a number or a Value.

        A Value's gradient as an exponent is self**other * log(self), IEEE throughout: nan for a negative base.
        """
        if isinstance(other, Value):
            return Value(ieee.power(self.data, other.data), (self, other), "**")
        if not isinstance(other, numbers.Real):
            return NotImplemented
        exponent = float(other)
        out = Value(ieee.power(self.data, exponent), (self,), "**")
        out._exponent = exponent
        return out

    def exp(self) -> Value:
        return Value(ieee.exp(self.data), (self,), "exp")

    def log(self) -> Value:
        """Natural logarithm; -inf at 0, nan below."""
        return Value(ieee.log(self.data), (self,), "log")

    def tanh(self) -> Value:
        return Value(math.tanh(self.data), (self,), "tanh")

    def sigmoid(self) -> Value:
        return Value(ieee.sigmoid(self.data), (self,), "sigmoid")

    def relu(self) -> Value:
        """0 below zero, else self. The gradient at 0 is 0."""
        return Value(ieee.relu(self.data), (self,), "ReLU")

    def max(self, *others: Number) -> Value:
        """The largest of self and the others, compared from left to right.

        On a tie the leftmost wins and gets the whole gradient. nan wins over everything. Raises TypeError without
        any others.
        """
        if not others:
            raise TypeError("max() needs at least two Values")
        out = self
        for other in others:
            right = _value(other)
            if right is None:
                raise TypeError(f"max() takes Values and numbers, not {type(other).__name__}")
            out = Value(ieee.maximum(out.data, right.data), (out, right), "max")
        return out

    def detach(self) -> Value:
        """The same number, through which no gradient flows."""
        return Value(self.data, (self,), "detach")

    def topo(self) -> list[Value]:
        """Every node of this graph, operands before their users: depth first, operands from left to right."""
        order: list[Value] = []
        entered: set[int] = set()
        left: set[int] = set()
        stack = [self]
        while stack:
            node = stack[-1]
            key = id(node)
            if key not in entered:
                entered.add(key)
                stack.extend([child for child in reversed(node._prev) if id(child) not in entered])
            else:
                stack.pop()
                if key not in left:
                    left.add(key)
                    order.append(node)
        return order

    def backward(self) -> None:
        """Adds d(self)/d(leaf) to every leaf's grad; inner nodes' grads start from zero at each call."""
        order = self.topo()
        for node in order:
            if node._prev:
                node.grad = 0.0
        self.grad += 1.0
        for node in gradient_order(order):
            node._backward()

    def recompute(self) -> float:
        """Computes this graph again from the leaves' present data, in topo() order, and returns self.data."""
        for node in self.topo():
            node._forward()
        return self.data

    def compile(self, graph: Value | None = None) -> str:
        """The C statement that computes this node: `data[2] = data[0]*data[1];`. Needs codegen.

        Nodes are numbered as in `graph.topo()` (default: this node's own graph). A plain leaf is a constant; "weight",
        "bias" and "input" leaves are set elsewhere and give "". Raises ValueError where this node is not in `graph`,
        or is a leaf of another kind.
        """
        from codegen.backends.c import statements

        return statements.forward(self, graph)

    def backward_compile(self, graph: Value | None = None) -> list[str]:
        """The C statements that add to this node's operands' gradients: `grad[0] += data[1]*grad[2];`. Needs codegen.

        Constants and inputs keep no gradient, and a leaf has no operands. Numbers and errors as for compile().
        """
        from codegen.backends.c import statements

        return statements.backward(self, graph)

    def render_graph(self, format: str = "svg", rankdir: str = "LR") -> graphviz.Digraph:
        """This graph as a picture, which a notebook shows: micrograd.draw.draw_dot(self)."""
        from micrograd.draw import draw_dot

        return draw_dot(self, format, rankdir)

    def to_json(self) -> str:
        """This graph as nested JSON objects with value, operation and children: see micrograd.draw.to_json."""
        from micrograd.draw import to_json

        return to_json(self)

    def _forward(self) -> None:
        if self._prev:
            self.data = _FORWARD[self._op](self)

    def _backward(self) -> None:
        if self._prev:
            _BACKWARD[self._op](self)

    def __neg__(self) -> Value:
        return self * -1.0

    def __sub__(self, other: Number) -> Value:
        right = _value(other)
        return NotImplemented if right is None else self + (-right)

    def __truediv__(self, other: Number) -> Value:
        right = _value(other)
        return NotImplemented if right is None else self * right**-1

    def __radd__(self, other: float) -> Value:
        left = _value(other)
        return NotImplemented if left is None else left + self

    def __rmul__(self, other: float) -> Value:
        left = _value(other)
        return NotImplemented if left is None else left * self

    def __rsub__(self, other: float) -> Value:
        left = _value(other)
        return NotImplemented if left is None else left - self

    def __rtruediv__(self, other: float) -> Value:
        left = _value(other)
        return NotImplemented if left is None else left / self

    def __rpow__(self, other: float) -> Value:
        left = _value(other)
        return NotImplemented if left is None else left**self

    def _refuse(self, other: object = None) -> bool:
        raise TypeError(
            "a Value has no order and no truth: a comparison would be fixed when the graph is traced; "
            "use relu() or max(), or compare the .data"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __bool__ = _refuse

    def __eq__(self, other: object) -> bool:
        if isinstance(other, numbers.Real):
            return self._refuse(other)
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Value(data={_plain(self.data)}, grad={_plain(self.grad)})"


def gradient_order(order: list[Value]) -> Iterator[Value]:
    """The nodes of a topo() that pass a gradient on to their operands, from the last to the first.

    Only what the root depends on by a path that carries gradient takes part: a node that is reached through detach()
    or x**0 alone has no gradient to pass on, and 0 * inf would make one.
    """
    reached = {id(order[-1])}
    for node in reversed(order):
        if node._prev and node._op != "detach" and node._exponent != 0.0 and id(node) in reached:
            reached.update(map(id, node._prev))
            yield node


def _value(other: object) -> Value | None:
    """A Value for an operand, None for what is neither a Value nor a number."""
    if isinstance(other, Value):
        return other
    if isinstance(other, numbers.Real):
        return Value(float(other))
    return None


def _plain(number: float) -> str:
    return repr(number).removesuffix(".0")


# What each operation computes. `codegen.ir.ops` states the same for the ir; a test holds the two together.
_FORWARD: dict[str, Callable[[Value], float]] = {
    "+": lambda out: out._prev[0].data + out._prev[1].data,
    "*": lambda out: out._prev[0].data * out._prev[1].data,
    "**": lambda out: ieee.power(out._prev[0].data, out._prev[1].data if out._exponent is None else out._exponent),
    "exp": lambda out: ieee.exp(out._prev[0].data),
    "log": lambda out: ieee.log(out._prev[0].data),
    "tanh": lambda out: math.tanh(out._prev[0].data),
    "sigmoid": lambda out: ieee.sigmoid(out._prev[0].data),
    "ReLU": lambda out: ieee.relu(out._prev[0].data),
    "max": lambda out: ieee.maximum(out._prev[0].data, out._prev[1].data),
    "detach": lambda out: out._prev[0].data,
}


def _add_backward(out: Value) -> None:
    a, b = out._prev
    a.grad += out.grad
    b.grad += out.grad


def _mul_backward(out: Value) -> None:
    a, b = out._prev
    a.grad += b.data * out.grad
    b.grad += a.data * out.grad


def _pow_backward(out: Value) -> None:
    if out._exponent is None:
        a, b = out._prev
        a.grad += (b.data * ieee.power(a.data, b.data + -1.0)) * out.grad
        b.grad += (out.data * ieee.log(a.data)) * out.grad
    elif out._exponent != 0.0:  # x**0 is 1 everywhere: its gradient is 0, at x = 0 too
        (a,) = out._prev
        a.grad += (out._exponent * ieee.power(a.data, out._exponent - 1.0)) * out.grad


def _exp_backward(out: Value) -> None:
    out._prev[0].grad += out.data * out.grad


def _log_backward(out: Value) -> None:
    (a,) = out._prev
    a.grad += ieee.power(a.data, -1.0) * out.grad


def _tanh_backward(out: Value) -> None:
    out._prev[0].grad += (1.0 - out.data * out.data) * out.grad


def _sigmoid_backward(out: Value) -> None:
    out._prev[0].grad += (out.data * (1.0 - out.data)) * out.grad


def _relu_backward(out: Value) -> None:
    out._prev[0].grad += ieee.positive(out.data) * out.grad


def _max_backward(out: Value) -> None:
    a, b = out._prev
    # Both slopes before either sum: a and b may be one node, but their data never changes here.
    a.grad += ieee.takes_left(a.data, b.data) * out.grad
    b.grad += ieee.takes_right(a.data, b.data) * out.grad


_BACKWARD: dict[str, Callable[[Value], None]] = {
    "+": _add_backward,
    "*": _mul_backward,
    "**": _pow_backward,
    "exp": _exp_backward,
    "log": _log_backward,
    "tanh": _tanh_backward,
    "sigmoid": _sigmoid_backward,
    "ReLU": _relu_backward,
    "max": _max_backward,
    "detach": lambda out: None,
}
