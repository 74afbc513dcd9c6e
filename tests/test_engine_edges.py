"""Edge cases of the engine that would differ from C: IEEE, powers, relu and max."""

from __future__ import annotations

import math

import pytest
from harness import exact_bits as bits
from harness import gradients_of as gradients

from micrograd import ieee
from micrograd.engine import Value

INF, NAN = math.inf, math.nan


# IEEE, where Python raises or leaves the real numbers

EDGES = {
    "log(0)": (lambda x: x.log(), 0.0, -INF, INF),
    "log(-0)": (lambda x: x.log(), -0.0, -INF, -INF),
    "log(-1)": (lambda x: x.log(), -1.0, NAN, -1.0),
    "log(inf)": (lambda x: x.log(), INF, INF, 0.0),
    "log(nan)": (lambda x: x.log(), NAN, NAN, NAN),
    "exp(1000)": (lambda x: x.exp(), 1000.0, INF, INF),
    "exp(-1000)": (lambda x: x.exp(), -1000.0, 0.0, 0.0),
    "exp(-inf)": (lambda x: x.exp(), -INF, 0.0, 0.0),
    "exp(nan)": (lambda x: x.exp(), NAN, NAN, NAN),
    "tanh(1000)": (lambda x: x.tanh(), 1000.0, 1.0, 0.0),
    "tanh(-inf)": (lambda x: x.tanh(), -INF, -1.0, 0.0),
    "tanh(nan)": (lambda x: x.tanh(), NAN, NAN, NAN),
    "sigmoid(1000)": (lambda x: x.sigmoid(), 1000.0, 1.0, 0.0),
    "sigmoid(-1000)": (lambda x: x.sigmoid(), -1000.0, 0.0, 0.0),
    "sigmoid(nan)": (lambda x: x.sigmoid(), NAN, NAN, NAN),
    "relu(0)": (lambda x: x.relu(), 0.0, 0.0, 0.0),
    "relu(-3)": (lambda x: x.relu(), -3.0, 0.0, 0.0),
    "relu(-inf)": (lambda x: x.relu(), -INF, 0.0, 0.0),
    "relu(inf)": (lambda x: x.relu(), INF, INF, 1.0),
    "relu(nan)": (lambda x: x.relu(), NAN, NAN, 0.0),
    "relu(5e-324)": (lambda x: x.relu(), 5e-324, 5e-324, 1.0),
    "0**-1": (lambda x: x**-1, 0.0, INF, -INF),
    "-0**-1": (lambda x: x**-1, -0.0, -INF, -INF),
    "0**-2": (lambda x: x**-2, 0.0, INF, -INF),
    "0**0": (lambda x: x**0, 0.0, 1.0, 0.0),
    "nan**0": (lambda x: x**0, NAN, 1.0, 0.0),
    "inf**0": (lambda x: x**0, INF, 1.0, 0.0),
    "0**0.5": (lambda x: x**0.5, 0.0, 0.0, INF),
    "0**1": (lambda x: x**1, 0.0, 0.0, 1.0),
    "0**2": (lambda x: x**2, 0.0, 0.0, 0.0),
    "(-2)**0.5": (lambda x: x**0.5, -2.0, NAN, NAN),
    "(-2)**3": (lambda x: x**3, -2.0, -8.0, 12.0),
    "(-2)**-1": (lambda x: x**-1, -2.0, -0.5, -0.25),
    "1e200**2": (lambda x: x**2, 1e200, INF, 2e200),
    "(-1e200)**3": (lambda x: x**3, -1e200, -INF, INF),
    "(-inf)**3": (lambda x: x**3, -INF, -INF, INF),
    "inf**-1": (lambda x: x**-1, INF, 0.0, -0.0),
    "x/0": (lambda x: x / 0.0, 1.0, INF, INF),
    "0/0": (lambda x: x / 0.0, 0.0, NAN, INF),
    "1/x at 0": (lambda x: 1.0 / x, 0.0, INF, -INF),
    "0*inf": (lambda x: x * INF, 0.0, NAN, INF),
    "inf-inf": (lambda x: x - x, INF, NAN, 0.0),
    "overflow": (lambda x: x * x, 1e300, INF, 2e300),
}


@pytest.mark.parametrize("name", EDGES)
def test_edge_cases_follow_ieee(name):
    function, number, data, grad = EDGES[name]
    x = Value(number)
    out = function(x)
    assert type(out.data) is float
    assert bits(out.data) == bits(data)
    out.backward()
    assert bits(x.grad + 0.0) == bits(grad + 0.0)  # + 0.0: a gradient's zero has no sign to rely on


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1.0,
        lambda x: x * 0.0,
        lambda x: 0.0 - x,
        lambda x: 1.0 / x,
        lambda x: x**2,
        lambda x: 2.0**x,
        lambda x: x.exp(),
        lambda x: x.log(),
        lambda x: x.tanh(),
        lambda x: x.sigmoid(),
        lambda x: x.relu(),
        lambda x: x.max(1.0),
        lambda x: Value(1.0).max(x),
        lambda x: x.detach(),
    ],
)
def test_nan_is_not_hidden(function):
    assert math.isnan(function(Value(NAN)).data)


# Powers


@pytest.mark.parametrize(("base", "exponent"), [(2.0, 3.0), (0.5, -1.5), (3.0, 0.0), (7.0, 1.0)])
def test_value_to_the_value_has_both_gradients(base, exponent):
    a, b = Value(base), Value(exponent)
    out = a**b
    assert out.data == ieee.power(base, exponent) == pytest.approx(base**exponent, rel=3e-16)
    assert out._exponent is None
    out.backward()
    assert a.grad == pytest.approx(exponent * base ** (exponent - 1), rel=1e-15)
    assert b.grad == pytest.approx(base**exponent * math.log(base), rel=1e-15)


def test_number_to_the_value():
    x = Value(3.0)
    out = 2**x
    assert out.data == 8.0
    out.backward()
    assert x.grad == 8.0 * ieee.log(2.0)


@pytest.mark.parametrize(
    ("base", "exponent", "data", "base_grad", "exponent_grad"),
    [
        (-2.0, 3.0, -8.0, 12.0, NAN),
        (-2.0, 0.5, NAN, NAN, NAN),
        (0.0, 2.0, 0.0, 0.0, 0.0),
        (0.0, -1.0, INF, -INF, -INF),
        (0.0, 0.0, 1.0, 0.0, 0.0),
    ],
)
def test_gradients_of_a_power_at_or_below_zero_are_ieee(base, exponent, data, base_grad, exponent_grad):
    a, b = Value(base), Value(exponent)
    out = a**b
    out.backward()
    assert [bits(x) for x in (out.data, a.grad, b.grad)] == [bits(x) for x in (data, base_grad, exponent_grad)]


def test_a_constant_exponent_is_an_attribute():
    out = Value(4.0) ** 0.5
    assert out._op == "**0.5"  # for readers: nothing parses it
    assert out._exponent == 0.5
    assert len(out._prev) == 1


# relu and max


def test_relu_has_no_slope_at_zero():
    assert gradients(lambda x: x.relu() * 3.0, 0.0) == [0.0]
    assert gradients(lambda x: x.relu() * 3.0, -0.0) == [0.0]
    assert gradients(lambda x: x.relu() * 3.0, 1e-300) == [3.0]


def test_the_leftmost_of_equals_is_the_maximum():
    assert gradients(lambda a, b, c: a.max(b, c) * 2.0, 1.0, 1.0, 1.0) == [2.0, 0.0, 0.0]
    assert gradients(lambda a, b, c: a.max(b, c) * 2.0, 0.0, 1.0, 1.0) == [0.0, 2.0, 0.0]
    assert gradients(lambda a, b, c: a.max(b, c) * 2.0, 0.0, 1.0, 2.0) == [0.0, 0.0, 2.0]
    assert gradients(lambda a: a.max(a) * 2.0, 1.0) == [2.0]
    assert bits(Value(-0.0).max(0.0).data) == bits(-0.0)
    assert bits(Value(0.0).max(-0.0).data) == bits(0.0)


@pytest.mark.parametrize("numbers", [(NAN, 1.0, 2.0), (1.0, NAN, 2.0), (1.0, 2.0, NAN), (INF, NAN, 2.0)])
def test_nan_is_the_maximum_and_takes_the_gradient(numbers):
    leaves = [Value(x) for x in numbers]
    out = leaves[0].max(*leaves[1:])
    assert math.isnan(out.data)
    out.backward()
    assert [leaf.grad for leaf in leaves] == [float(x != x) for x in numbers]


def test_max_takes_numbers_and_one_operand_at_a_time():
    out = Value(1.0).max(3, 2.0)
    assert out.data == 3.0
    assert out._prev[0]._op == out._op == "max"
    assert out._prev[0]._prev[1].data == 3.0


def test_the_kind_of_a_leaf_is_false_and_an_operation_is_true():
    """Notebooks draw an operation for a node `if n._op:`; so do they where a caller has made the node."""
    w = Value(1.0, _op="weight")
    assert [bool(node._op) for node in (w, Value(3.0, (w, w), "+"), w + w)] == [False, True, True]
