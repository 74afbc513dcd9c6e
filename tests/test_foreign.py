"""What programs for micrograd do to a Value: `out._backward = closure`, attributes of their own, subclasses."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref
from collections.abc import Callable

import pytest
from test_passes import program

from codegen.passes.trace import trace
from micrograd import foreign, names
from micrograd.engine import Max, Value
from micrograd.nn import MLP, Layer, Neuron
from micrograd.order import creation
from micrograd.statements import backward_code, definitions_code, forward_code


def sinh(x: Value, op: str = "sinh") -> Value:
    """An op in micrograd's own way."""
    out = Value(math.sinh(x.data), (x,), op)

    def _backward() -> None:
        x.grad += math.cosh(x.data) * out.grad

    out._backward = _backward
    return out


def multiply(*values: Value) -> Value:
    """A product of any number of factors, which no row of the table could be."""
    out = Value(math.prod(x.data for x in values), values, "prod")

    def _backward() -> None:
        for i, x in enumerate(values):
            x.grad += math.prod(y.data for j, y in enumerate(values) if i != j) * out.grad

    out._backward = _backward
    return out


# A _backward of one's own


def test_a_closure_takes_part_in_backward():
    x, y = Value(0.5), Value(2.0)
    inner = x * y
    out = sinh(inner) * x + inner
    for expected in (1, 2):
        out.backward()
        slope = math.cosh(1.0) * 0.5 + 1.0
        assert x.grad == pytest.approx(expected * (slope * 2.0 + math.sinh(1.0)))
        assert y.grad == pytest.approx(expected * slope * 0.5)


def test_any_number_of_operands():
    leaves = [Value(float(i)) for i in range(2, 6)]
    out = multiply(*leaves)
    assert out.data == 120.0
    out.backward()
    assert [leaf.grad for leaf in leaves] == [60.0, 40.0, 30.0, 24.0]


def test_at_the_root_and_above_other_operations():
    x = Value(0.5)
    out = sinh(x)
    out.backward()
    assert x.grad == math.cosh(0.5)
    out._backward()  # by hand, as in the lecture
    assert x.grad == 2 * math.cosh(0.5)


def test_a_closure_given_later_is_seen():
    x = Value(2.0)
    out = x * 3.0 + 1.0
    out.backward()
    (product, _) = out._prev
    product._backward = lambda: setattr(x, "grad", x.grad + 100.0)
    out.backward()
    assert x.grad == 103.0


def test_a_leaf_may_have_one():
    x = Value(2.0)
    seen = []
    x._backward = lambda: seen.append(x.grad)
    (x * 3.0).backward()
    assert seen == [3.0]


def test_nothing_flows_to_a_closure_behind_a_cut():
    x = Value(2.0)
    inner = sinh(x)
    (inner.detach() * x).backward()
    assert x.grad == inner.data


def test_by_hand_without_a_closure():
    """`o.grad = 1.0; o._backward()` on the engine's own operations."""
    a, b = Value(2.0), Value(3.0)
    o = a * b
    o.grad = 1.0
    o._backward()
    a._backward()
    assert (a.grad, b.grad) == (3.0, 2.0)


def test_what_is_no_function_is_refused():
    x = Value(1.0)
    out = x * 2.0
    with pytest.raises(TypeError, match="_backward must be a function without arguments, not int"):
        out._backward = 3
    out.backward()
    assert x.grad == 2.0


@pytest.mark.parametrize("op", ["sinh", "tanh", "**3", ""])
def test_whatever_cannot_know_what_it_computes_says_so(op: str):
    x = Value(0.5, _op="weight")
    node = sinh(x, op)
    loss = node * x
    data = [v.data for v in loss.topo()]
    name = op if op.isidentifier() else "name"
    message = rf"Value\(data=0.52.*, made by '.*', has a _backward of its own: .*ops\.register\('{name}', \.\.\.\)"
    for use in (
        lambda: trace(program(loss, [x])),
        loss.recompute,
        node.recompute,
        node.compile,
        node.backward_compile,
        lambda: forward_code(loss),
        lambda: backward_code(loss),
        lambda: definitions_code(loss),
    ):
        with pytest.raises(ValueError, match=message):
            use()
    assert [v.data for v in loss.topo()] == data
    assert loss.compile().startswith(f"data[{loss._id}] =")


def test_a_leaf_with_one_cannot_be_compiled():
    x = Value(0.5)
    x._backward = lambda: None
    for use in (x.compile, lambda: trace(program(x * 2.0, [Value(1.0)]))):
        with pytest.raises(ValueError, match="has a _backward of its own"):
            use()


def test_an_unknown_op_without_one_is_named():
    node = Value(1.0, (Value(1.0),), "swish")
    with pytest.raises(ValueError, match=r"Value\(data=1, grad=0\): no op is called 'swish'.*or give the node a _back"):
        (node * 2.0).backward()


def test_it_cannot_be_copied():
    x = Value(0.5)
    for how in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="has a _backward of its own, which belongs to its operands"):
            how(sinh(x))


def test_graphs_with_closures_are_freed():
    x = Value(0.5)
    alive = weakref.ref(x)
    out = sinh(x) + 1.0
    out.backward()
    del out, x
    gc.collect()
    assert alive() is None


# The words of _op


def test_a_power_says_its_exponent():
    x = Value(2.0)
    assert [(x**n)._op for n in (3, 3.0, -1, 0.5, True)] == ["**3", "**3", "**-1", "**0.5", "**1"]
    assert (x ** Value(3.0))._op == "**"
    assert int((x**3)._op[2:]) == 3


def test_a_power_made_by_hand_is_a_power():
    x = Value(2.0)
    out = Value(8.0, (x,), "**3")
    out.backward()
    assert (x.grad, out.recompute()) == (12.0, 8.0)
    assert out.compile(out) == "data[1] = op_pow(data[0], 3.0);"


def test_as_many_exponents_as_there_are():
    x = Value(1.0)
    total = sum(x ** (i / 10_000) for i in range(3000))
    total.backward()
    assert x.grad == pytest.approx(sum(i / 10_000 for i in range(3000)))


def test_a_leafs_kind_is_no_operation():
    w = Value(2.0, (), "weight")
    assert w._op == "weight"
    assert w._op in ("weight", "bias")
    assert {"weight": 1}[w._op] == 1
    assert not w._op
    assert not any(p._op for p in MLP(2, [2, 1]).parameters())
    assert (w * w)._op
    assert copy.deepcopy(w)._op == "weight"
    assert not copy.deepcopy(w)._op
    assert not pickle.loads(pickle.dumps(w))._op


@pytest.mark.parametrize("op", ["**", "**x", "*3", "", "3", "tanh"])
def test_what_is_no_power(op: str):
    assert names.exponent_of(op) is None


# Attributes


def test_any_attribute_can_be_set_on_any_node():
    x = Value(2.0)
    inner = x * 3.0
    for node in (x, inner, inner.tanh()):
        node.m = 0.5
        node._vis_color = "red"
        assert (node.m, node._vis_color) == (0.5, "red")
        assert weakref.ref(node)() is node
        twin = copy.deepcopy(node)
        assert (twin.m, twin._vis_color) == (0.5, "red")
    with pytest.raises(AttributeError, match="'Value' object has no attribute 'v'"):
        assert x.v


def test_operands_may_come_in_any_collection():
    a, b = Value(1.0), Value(2.0)
    assert Value(3.0, [a, b], "+")._prev == (a, b)
    assert Value(3.0, {b, a}, "+")._prev == (a, b)  # in order of creation
    assert Value(3.0, iter([b, a]), "+")._prev == (b, a)
    for operands in ([a, 2.0], (a, 2.0)):
        with pytest.raises(TypeError, match="the operands of a Value are Values, not float"):
            Value(3.0, operands, "+")


# Subclasses


class Largest(Value):
    """As the essay writes its Max and Dot: a class for an op."""

    def __init__(self, *values: Value) -> None:
        super().__init__(max(v.data for v in values), tuple(values), "largest")
        self.winner = max(values, key=lambda v: v.data)
        self._backward = self.give

    def give(self) -> None:
        self.winner.grad += self.grad

    def compile(self, graph: Value | None = None) -> str:
        assert graph is None
        return self.set(f"largest({', '.join(v.var() for v in self._prev)})")


def test_a_subclass_is_an_op():
    x, y, z = Value(1.0), Value(3.0, _op="weight"), Value(2.0)
    out = Largest(x, y, z)
    (out * 2.0).backward()
    assert [v.grad for v in (x, y, z)] == [0.0, 2.0, 0.0]
    assert out._prev == (x, y, z)
    assert (out + 1.0).topo()[:4] == [x, y, z, out]
    assert out.compile() == f"data[{out._id}] = largest(data[{x._id}], data[{y._id}], data[{z._id}]);"


def test_max_is_the_essays_class():
    x, y = Value(1.0, _op="weight"), Value(3.0)
    out = Max(x, y)
    assert isinstance(out, Value)
    assert (out.data, out._prev, out._op) == (3.0, (x, y), "max")
    out.backward()
    assert (x.grad, y.grad) == (0.0, 1.0)
    assert out.compile(out) == "data[2] = op_max(data[0], data[1]);"
    assert len(trace(program(out, [x]))) == 3
    with pytest.raises(TypeError, match="the operands of a Value are Values, not float"):
        Max(1.0, x)


# Iterators as inputs


@pytest.mark.parametrize("make", [lambda: Neuron(2), lambda: Layer(2, 3), lambda: MLP(2, [3, 1])])
def test_inputs_may_be_a_map(make: Callable):
    model = make()
    expected, found = model([1.0, 2.0]), model(map(Value, [1, 2]))
    assert repr(found) == repr(expected)
    with pytest.raises(ValueError, match="has 2 inputs, got 3"):
        model(Value(i) for i in range(3))


def test_nobody_looks_for_closures_where_there_are_none(monkeypatch: pytest.MonkeyPatch):
    x = sinh(Value(1.0))
    monkeypatch.setattr(foreign, "assigned", 0)
    assert foreign.having(creation([x])) == []
