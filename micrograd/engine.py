"""Scalars that remember how they were made: micrograd's `Value`.

An expression of Values is a graph. `backward()` walks it once, from the result to the leaves, and leaves in every
node's `grad` the derivative of the result with respect to that node. This module is the definition of what the
compiler's output must compute, bit for bit, so three things are fixed that micrograd leaves open: operands keep
their order, gradients are accumulated in the order of creation, backwards (see `order`), and edge cases are IEEE's
(see `ieee`). What each operation computes and how it is differentiated is a row of the table in `ops`.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from micrograd import draw, ieee, ops, order, statements

if TYPE_CHECKING:
    import graphviz

Number: TypeAlias = "Value | float"

_ids = itertools.count()


class Value:
    """One scalar of an expression graph, with its gradient.

    `data` and `grad` are floats. `_prev` holds the operands in order, `_op` names the operation and `_exponent` is the
    constant exponent of `**`, None where the exponent is a Value itself. A leaf's `_op` is "", or says what the leaf
    is for: "weight", "bias" or "input". That changes no number, only C text (`compile`) and pictures. `label` is a
    name for pictures. `_id` is a running number: a node's is larger than those of its operands. `_order` caches,
    at the root of a graph, the orders of recompute() and backward().

    Raises TypeError for anything that is not a real number (OverflowError for an int that no float can hold), and for
    comparisons and truth tests: a graph is traced once and compiled, so a branch on a Value would be decided only
    once, at that time.
    """

    __slots__ = ("_exponent", "_id", "_op", "_order", "_prev", "data", "grad", "label")
    _order: tuple[list[Value], list[Value]] | None  # unset until needed: a program creates millions of Values

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
        self._id = next(_ids)
        self.label = label

    def __add__(self, other: Number) -> Value:
        right = other if isinstance(other, Value) else _value(other)
        if right is None:
            return NotImplemented
        return Value(self.data + right.data, (self, right), "+")

    def __mul__(self, other: Number) -> Value:
        right = other if isinstance(other, Value) else _value(other)
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
        return Value(ieee.tanh(self.data), (self,), "tanh")

    def sigmoid(self) -> Value:
        return Value(ieee.sigmoid(self.data), (self,), "sigmoid")

    def relu(self) -> Value:
        """0 below zero, else self. The gradient at 0 is 0."""
        return Value(ieee.relu(self.data), (self,), "ReLU")

    def sqrt(self) -> Value:
        """The square root; nan below zero. The gradient at 0 is inf."""
        return self.apply(ops.sqrt)

    def sin(self) -> Value:
        return self.apply(ops.sin)

    def cos(self) -> Value:
        return self.apply(ops.cos)

    def abs(self) -> Value:
        """Self without its sign. The gradient at 0 is 0."""
        return self.apply(ops.absolute)

    __abs__ = abs

    def erf(self) -> Value:
        """The error function."""
        return self.apply(ops.erf)

    def expm1(self) -> Value:
        """e**self - 1, exact also for small self."""
        return self.apply(ops.expm1)

    def log1p(self) -> Value:
        """log(1 + self), exact also for small self; -inf at -1, nan below."""
        return self.apply(ops.log1p)

    def softplus(self) -> Value:
        """log(1 + e**self), without overflow."""
        return self.apply(ops.softplus)

    def leaky_relu(self, slope: float = 0.01) -> Value:
        """self above zero, else slope * self. The gradient at 0 is the slope."""
        below = self * float(slope)
        return below.max(self) if slope <= 1 else below.min(self)

    def gelu(self, approximate: str = "none") -> Value:
        """self times the probability that a standard normal number is smaller than self.

        `approximate="tanh"` is the form of GPT-2. Raises ValueError for anything else but "none".
        """
        if approximate == "none":
            return self.apply(ops.gelu)
        if approximate == "tanh":
            inner = (self + self * self * self * 0.044715) * math.sqrt(2 / math.pi)
            return self * 0.5 * (inner.tanh() + 1.0)
        raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")

    def max(self, *others: Number) -> Value:
        """The largest of self and the others, compared from left to right.

        On a tie the leftmost wins and gets the whole gradient. nan wins over everything. Raises TypeError without
        any others.
        """
        return self._fold(ops.maximum, others)

    def min(self, *others: Number) -> Value:
        """The smallest of self and the others: ties, nan and errors as for max()."""
        return self._fold(ops.minimum, others)

    def _fold(self, op: ops.Row, others: Sequence[Number]) -> Value:
        if not others:
            raise TypeError(f"{op.name}() needs at least two Values")
        out = self
        for other in others:
            right = _value(other)
            if right is None:
                raise TypeError(f"{op.name}() takes Values and numbers, not {type(other).__name__}")
            out = Value(op.function(out.data, right.data), (out, right), op.symbol)
        return out

    def detach(self) -> Value:
        """The same number, through which no gradient flows."""
        return Value(self.data, (self,), "detach")

    def apply(self, op: str | ops.Row, *others: Number) -> Value:
        """Any op of the table, by its name or row, with self as its left operand: `x.apply("min", 0.0)`.

        Raises ValueError for an unknown name, TypeError for a wrong number or type of operands.
        """
        result: Value = ops.apply(op, self, *others)
        return result

    def _from_op(self, op: ops.Row, operands: Sequence[Number]) -> Value:
        """Applies a row of the table to operands, at least one of which is a Value."""
        values = tuple([_value(x) for x in operands])
        for x, value in zip(operands, values, strict=True):
            if value is None:
                raise TypeError(f"{op.name} takes Values and numbers, not {type(x).__name__}")
        return Value(op.function(*[x.data for x in values]), values, op.symbol)  # type: ignore[union-attr, arg-type]

    def topo(self) -> list[Value]:
        """Every node of this graph, operands before their users: depth first, operands from left to right."""
        return order.topo([self])

    def backward(self) -> None:
        """Adds d(self)/d(leaf) to every leaf's grad; inner nodes' grads start from zero at each call.

        Contributions are added in the order of creation, backwards: the youngest user's first.
        """
        inner, passing = getattr(self, "_order", None) or self._sort()
        for node in inner:
            node.grad = 0.0
        if self._prev:
            self.grad = 0.0
        self.grad += 1.0
        self._backward()
        for node in passing:
            _BACKWARD[node._op](node)

    def recompute(self) -> float:
        """Computes this graph again from the leaves' present data, in the order of creation; returns self.data."""
        inner, _ = getattr(self, "_order", None) or self._sort()
        for node in inner:
            node.data = _FORWARD[node._op](node)
        self._forward()
        return self.data

    def _sort(self) -> tuple[list[Value], list[Value]]:
        """The inner nodes except self: all of them, oldest first; those that pass gradient on, youngest first.

        Operands never change, so the result is cached. It leaves self out to avoid a reference cycle. Of nested graphs
        only the one used last has a cache: else each root of a long chain would hold a list.
        """
        nodes = order.creation([self])
        passing = list(order.gradient_order(nodes))
        nodes.pop()
        for node in nodes:
            node._order = None
        self._order = ([node for node in nodes if node._prev], [node for node in passing if node is not self])
        return self._order

    def compile(self, graph: Value | None = None) -> str:
        """The C statement that computes this node: `data[2] = data[0]*data[1];`.

        Nodes are numbered as in `graph.topo()` (default: this node's own graph). A plain leaf is a constant; "weight",
        "bias" and "input" leaves are set elsewhere and give "". Raises ValueError if this node is not in `graph`,
        or is a leaf of another kind.
        """
        return statements.forward(self, graph)

    def backward_compile(self, graph: Value | None = None) -> list[str]:
        """The C statements that add to this node's operands' gradients: `grad[0] += data[1]*grad[2];`.

        Constants and inputs keep no gradient, and a leaf has no operands. Numbers and errors as for compile().
        """
        return statements.backward(self, graph)

    def render_graph(self, format: str = "svg", rankdir: str = "LR") -> graphviz.Digraph:
        """This graph as a picture, which a notebook shows: micrograd.draw.draw_dot(self)."""
        return draw.draw_dot(self, format, rankdir)

    def to_json(self) -> str:
        """This graph as nested JSON objects with value, operation and children: see micrograd.draw.to_json."""
        return draw.to_json(self)

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
        return NotImplemented if right is None else Value(ieee.divide(self.data, right.data), (self, right), "/")

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

    def __getstate__(self) -> dict[str, object]:
        state = {name: getattr(self, name) for name in Value.__slots__ if name != "_order"}
        return state | getattr(self, "__dict__", {})

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restores a copied or unpickled node; nodes created later still get larger numbers."""
        global _ids
        for name, value in state.items():
            setattr(self, name, value)
        if self._id >= next(_ids):
            _ids = itertools.count(self._id + 1)

    def __repr__(self) -> str:
        return f"Value(data={_plain(self.data)}, grad={_plain(self.grad)})"


def _value(other: object) -> Value | None:
    """The operand as a Value; None if it is neither a Value nor a number."""
    if isinstance(other, Value):
        return other
    if isinstance(other, numbers.Real):
        return Value(float(other))
    return None


def _plain(number: float) -> str:
    return repr(number).removesuffix(".0")


# The table as the engine runs it: one function per row, made on the first use of its symbol.


class _Forward(dict[str, Callable[[Value], float]]):
    def __missing__(self, symbol: str) -> Callable[[Value], float]:
        function = self[symbol] = _forward_of(ops.BY_SYMBOL[symbol])
        return function


class _Backward(dict[str, Callable[[Value], None]]):
    def __missing__(self, symbol: str) -> Callable[[Value], None]:
        function = self[symbol] = _backward_of(ops.BY_SYMBOL[symbol])
        return function


def _forward_of(op: ops.Row) -> Callable[[Value], float]:
    function = op.function

    def binary(out: Value) -> float:
        a, b = out._prev
        return function(a.data, b.data)

    def power(out: Value) -> float:
        return binary(out) if out._exponent is None else function(out._prev[0].data, out._exponent)

    if op is ops.power:
        return power
    return binary if op.arity == 2 else lambda out: function(out._prev[0].data)


def _backward_of(op: ops.Row) -> Callable[[Value], None]:
    slopes = [_slope_function(partial) for partial in op.partials]

    def unary(out: Value) -> None:
        (slope,) = slopes
        (a,) = out._prev
        a.grad += slope(out.data, a.data) * out.grad

    def binary(out: Value) -> None:
        by_left, by_right = slopes
        a, b = out._prev
        y, x, z, g = out.data, a.data, b.data, out.grad
        a.grad += by_left(y, x, z) * g
        b.grad += by_right(y, x, z) * g

    def power(out: Value) -> None:
        exponent = out._exponent
        if exponent is None:
            binary(out)
        elif exponent != 0.0:  # x**0 is 1 everywhere: its gradient is 0, at x = 0 too
            (a,) = out._prev
            a.grad += slopes[0](out.data, a.data, exponent) * out.grad

    def partly(out: Value) -> None:
        y, g, data = out.data, out.grad, [x.data for x in out._prev]
        for x, partial, slope in zip(out._prev, op.partials, slopes, strict=True):
            if partial is not None:
                x.grad += slope(y, *data) * g

    if op is ops.power:
        return power
    if None in op.partials:
        return partly
    return binary if op.arity == 2 else unary


def _slope_function(partial: ops.Partial) -> Callable[..., float]:
    return partial if callable(partial) else lambda *_: partial or 0.0


def _add_backward(out: Value) -> None:  # the most frequent one
    a, b = out._prev
    a.grad += out.grad
    b.grad += out.grad


_FORWARD = _Forward()
_BACKWARD = _Backward({"+": _add_backward})
