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
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from micrograd import draw, foreign, ieee, names, ops, order, rows, statements

if TYPE_CHECKING:
    import graphviz

Number: TypeAlias = "Value | float"
Order: TypeAlias = "tuple[list[Value], list[Value], list[Value], int]"  # see Value._sort

_ids = itertools.count()
_new = object.__new__


class Value:
    """One scalar of an expression graph, with its gradient.

    `data` and `grad` are floats. `_prev` holds the operands in order, `_op` names the operation and `_exponent` is the
    constant exponent of `**`, None where the exponent is a Value itself. A leaf's `_op` is "", or says what the leaf
    is for: "weight", "bias" or "input". That changes no number, only C text (`compile`) and pictures. `label` is a
    name for pictures. `_id` is a running number: a node's is larger than those of its operands. `_order` caches,
    at the root of a graph, the orders of recompute() and backward(). Any other attribute can be set: `p.m = 0.0`.

    Raises TypeError for anything that is not a real number (OverflowError for an int that no float can hold), and for
    comparisons and truth tests: a graph is traced once and compiled, so a branch on a Value would be decided only
    once, at that time.
    """

    __slots__ = ("__dict__", "__weakref__", "_exponent", "_id", "_op", "_order", "_prev", "data", "grad")
    label = ""
    # Unset until needed, because a program creates millions of Values.
    _order: Order | None
    _own: Callable[[], Any] | None

    def __init__(self, data: float, _children: Iterable[Value] = (), _op: str = "", label: str = "") -> None:
        if type(data) is not float:
            if not isinstance(data, numbers.Real):
                raise TypeError(f"a Value holds a real number, not {type(data).__name__}")
            data = float(data)
        operands = _operands(_children) if _children else ()
        self.data = data
        self.grad = 0.0
        self._prev: tuple[Value, ...] = operands
        self._op: str = _op if operands or not _op else names.Kind(_op)
        self._exponent: float | None = names.exponent_of(_op) if len(operands) == 1 else None
        self._id = next(_ids)
        if label:
            self.label = label

    def __add__(self, other: Number) -> Value:
        right = other if isinstance(other, Value) else _value(other)
        if right is None:
            return NotImplemented
        out = _new(Value)  # as in _node(), written out: most of a graph is made here
        out.data = self.data + right.data
        out.grad = 0.0
        out._prev = (self, right)
        out._op = "+"
        out._exponent = None
        out._id = next(_ids)
        return out

    def __mul__(self, other: Number) -> Value:
        right = other if isinstance(other, Value) else _value(other)
        if right is None:
            return NotImplemented
        out = _new(Value)  # as in _node(), written out: most of a graph is made here
        out.data = self.data * right.data
        out.grad = 0.0
        out._prev = (self, right)
        out._op = "*"
        out._exponent = None
        out._id = next(_ids)
        return out

    def __pow__(self, other: Number) -> Value:
        """self**other. The exponent may be a number or a Value.

        A Value's gradient as an exponent is self**other * log(self), IEEE throughout: nan for a negative base.
        """
        if isinstance(other, Value):
            return _node(ieee.power(self.data, other.data), (self, other), "**")
        if not isinstance(other, numbers.Real):
            return NotImplemented
        exponent = float(other)
        out = _node(ieee.power(self.data, exponent), (self,), names.power(exponent))
        out._exponent = exponent
        return out

    def exp(self) -> Value:
        return _node(ieee.exp(self.data), (self,), "exp")

    def log(self) -> Value:
        """Natural logarithm; -inf at 0, nan below."""
        return _node(ieee.log(self.data), (self,), "log")

    def tanh(self) -> Value:
        return _node(ieee.tanh(self.data), (self,), "tanh")

    def sigmoid(self) -> Value:
        return _node(ieee.sigmoid(self.data), (self,), "sigmoid")

    def relu(self) -> Value:
        """0 below zero, else self. The gradient at 0 is 0."""
        return _node(ieee.relu(self.data), (self,), "ReLU")

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
            out = _node(op.function(out.data, right.data), (out, right), op.symbol)
        return out

    def detach(self) -> Value:
        """The same number, through which no gradient flows."""
        return _node(self.data, (self,), "detach")

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
        return _node(op.function(*[x.data for x in values]), values, op.symbol)  # type: ignore[union-attr, arg-type]

    def topo(self) -> list[Value]:
        """Every node of this graph, operands before their users: depth first, operands from left to right."""
        return order.topo([self])

    def backward(self) -> None:
        """Adds d(self)/d(leaf) to every leaf's grad; inner nodes' grads start from zero at each call.

        Contributions are added in the order of creation, backwards: the youngest user's first.
        """
        inner, passing, own, _ = self._sorted()
        for node in inner:
            node.grad = 0.0
        if self._prev:
            self.grad = 0.0
        self.grad += 1.0
        self._backward()
        if own:
            for node in passing:
                node._backward()
        else:
            pass_on = rows.BACKWARD
            for node in passing:
                pass_on[node._op](node)

    def recompute(self) -> float:
        """Computes this graph again from the leaves' present data, in the order of creation; returns self.data.

        Raises ValueError if a node has a `_backward` of its own: the engine does not know what it computes.
        """
        inner, _, own, _ = self._sorted()
        foreign.refuse(own, "recomputed")
        compute = rows.FORWARD
        for node in inner:
            node.data = compute[node._op](node)
        self._forward()
        return self.data

    def _sorted(self) -> Order:
        """The cached order; found again after any Value has been given a `_backward` of its own."""
        found = getattr(self, "_order", None)
        return found if found is not None and found[3] == foreign.assigned else self._sort()

    def _sort(self) -> Order:
        """The inner nodes except self: all of them, oldest first; those that pass gradient on, youngest first.

        Then the nodes with a `_backward` of their own, self among them, and how many were assigned so far.

        Operands never change, so the result is cached. It leaves self out to avoid a reference cycle. Of nested graphs
        only the one used last has a cache: else each root of a long chain would hold a list.
        """
        nodes = order.creation([self])
        passing = list(order.gradient_order(nodes))
        own = foreign.having(nodes)
        nodes.pop()
        if passing and passing[0] is self:  # the root is the youngest
            del passing[0]
        for node in nodes:
            node._order = None
        inner = [node for node in nodes if node._prev]
        found = inner, passing, own, foreign.assigned
        if self not in own:  # a closure refers to its node: no second cycle, which would keep whole graphs alive
            self._order = found
        return found

    def compile(self, graph: Value | None = None) -> str:
        """The C statement that computes this node: `data[2] = data[0]*data[1];`.

        Nodes are numbered as in `graph.topo()`; without a graph, by `_id`, the same in every statement. A plain leaf
        is a constant; "weight", "bias" and "input" leaves are set elsewhere and give "". Raises ValueError if this
        node is not in `graph`, is a leaf of another kind, or has an op that is not in the table.
        """
        return statements.forward(self, graph)

    def backward_compile(self, graph: Value | None = None) -> list[str]:
        """The C statements that add to this node's operands' gradients: `grad[0] += data[1]*grad[2];`.

        Constants and inputs keep no gradient, and a leaf has no operands. Numbers and errors as for compile().
        """
        return statements.backward(self, graph)

    def var(self) -> str:
        """This node in C, by `_id`: `data[2]`."""
        return f"data[{self._id}]"

    def set(self, val: object) -> str:
        """The C statement that sets it: `data[2] = val;`."""
        return f"{self.var()} = {val};"

    def getgrad(self) -> str:
        """Its gradient in C: `grad[2]`. Raises RuntimeError for constants and inputs, which have none."""
        if not statements.has_gradient(self):
            raise RuntimeError(f"constants and inputs have no gradient in C, and {self!r} is one of them")
        return f"grad[{self._id}]"

    def setgrad(self, val: object) -> list[str]:
        """The C statement that adds to it: [`grad[2] += val;`]; none for constants and inputs."""
        return [f"{self.getgrad()} += {val};"] if statements.has_gradient(self) else []

    def render_graph(self, format: str = "svg", rankdir: str = "LR") -> graphviz.Digraph:
        """This graph as a picture, which a notebook shows: micrograd.draw.draw_dot(self)."""
        return draw.draw_dot(self, format, rankdir)

    def to_json(self) -> str:
        """This graph as nested JSON objects with value, operation and children: see micrograd.draw.to_json."""
        return draw.to_json(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """In a notebook, a Value is a picture of its graph."""
        return draw.mimebundle(self)

    @property
    def value(self) -> float:
        """`data` by another name, as are `gradient`, `children` and `operation` of what they say."""
        return self.data

    @value.setter
    def value(self, number: float) -> None:
        self.data = number

    @property
    def gradient(self) -> float:
        return self.grad

    @gradient.setter
    def gradient(self, number: float) -> None:
        self.grad = number

    @property
    def children(self) -> tuple[Value, ...]:
        return self._prev

    @property
    def operation(self) -> names.Op:
        """`_op` as an Op, whose text `opstr()` returns."""
        return names.Op(self._op)

    def _forward(self) -> None:
        if self._prev:
            self.data = rows.FORWARD[self._op](self)

    @property
    def _backward(self) -> Callable[[], Any]:
        """Adds to the operands' gradients. Assigned to, it is a function of one's own: see micrograd.foreign."""
        return foreign.closure(self) or self._pass_on

    @_backward.setter
    def _backward(self, function: Callable[[], Any]) -> None:
        foreign.assign(self, function)

    def _pass_on(self) -> None:
        if self._prev:
            rows.BACKWARD[self._op](self)

    def __neg__(self) -> Value:
        return self * -1.0

    def __sub__(self, other: Number) -> Value:
        right = _value(other)
        return NotImplemented if right is None else self + (-right)

    def __truediv__(self, other: Number) -> Value:
        right = _value(other)
        return NotImplemented if right is None else _node(ieee.divide(self.data, right.data), (self, right), "/")

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
            "a Value has no order and no truth: a comparison would be fixed when the graph is traced; use relu(), "
            "max() or min(), or compare the .data; np.maximum and the like need micrograd.arrays.array(values)"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __bool__ = _refuse

    def __eq__(self, other: object) -> bool:
        if isinstance(other, numbers.Real) or hasattr(other, "__array__"):
            return self._refuse(other)
        return self is other

    __hash__ = object.__hash__

    def __getstate__(self) -> dict[str, object]:
        if foreign.closure(self) is not None:
            raise TypeError(f"{self!r} has a _backward of its own, which belongs to its operands: it cannot be copied")
        state = {name: getattr(self, name) for name in _COPIED}
        return state | self.__dict__

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restores a copied or unpickled node; nodes created later still get larger numbers."""
        global _ids
        for name, value in state.items():
            setattr(self, name, value)
        if self._id >= next(_ids):
            _ids = itertools.count(self._id + 1)

    def __repr__(self) -> str:
        return f"Value(data={names.plain(self.data)}, grad={names.plain(self.grad)})"


class Max(Value):
    """The larger of two Values, as the essay's programs write it: `functools.reduce(Max, outputs)`. See Value.max()."""

    __slots__ = ()

    def __init__(self, left: Value, right: Value) -> None:
        operands = _operands((left, right))
        super().__init__(ops.maximum.function(left.data, right.data), operands, ops.maximum.symbol)


_COPIED = ("_exponent", "_id", "_op", "_prev", "data", "grad")


def _node(data: float, operands: tuple[Value, ...], op: str) -> Value:
    """What an operation makes: a Value without __init__, which would take as long as the rest together."""
    out = _new(Value)
    out.data = data
    out.grad = 0.0
    out._prev = operands
    out._op = op
    out._exponent = None
    out._id = next(_ids)
    return out


def _operands(children: Iterable[Value]) -> tuple[Value, ...]:
    """As a tuple. A set has an order of its own in each process: the order of creation replaces it."""
    found = tuple(children)
    for child in found:
        if not isinstance(child, Value):
            raise TypeError(f"the operands of a Value are Values, not {type(child).__name__}")
    return tuple(sorted(found, key=lambda x: x._id)) if isinstance(children, set | frozenset) else found


def value_of(x: Any) -> Value:
    """A Value, or the constant that a number is in an expression. Raises TypeError for anything else."""
    found = _value(x)
    return Value(x) if found is None else found  # which says what it takes


def _value(other: object) -> Value | None:
    """The operand as a Value; None if it is neither a Value nor a number."""
    if isinstance(other, Value):
        return other
    if isinstance(other, numbers.Real):
        return _node(float(other), (), names.NUMBER)
    return None
