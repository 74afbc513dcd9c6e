"""Value: how a graph is built, walked and differentiated, and the rules of its edge cases."""

from __future__ import annotations

import gc
import math
import operator
import random
import weakref

import numpy as np
import pytest
from harness import exact_bits as bits
from harness import gradients_of as gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from micrograd.engine import Value
from tools.fuzz_compiler.programs import expression

INF, NAN = math.inf, math.nan
DEEP = 50_000
OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
NUMBERS = [5, 5.0, True, np.float64(5), np.float32(5), np.int64(5), np.uint8(5)]


# A node


@pytest.mark.parametrize("number", NUMBERS, ids=lambda x: type(x).__name__)
def test_data_and_grad_are_plain_floats(number):
    value = Value(number)
    assert type(value.data) is float
    assert type(value.grad) is float
    assert value.data == float(number)


@pytest.mark.parametrize("thing", ["1", b"1", None, 1j, [1.0], np.ones(1), Value(1.0)], ids=repr)
def test_only_real_numbers_become_values(thing):
    with pytest.raises(TypeError, match=f"real number, not {type(thing).__name__}"):
        Value(thing)


@pytest.mark.parametrize(
    ("number", "text"),
    [(2, "2"), (-4.0, "-4"), (0.5, "0.5"), (0.1 + 0.2, "0.30000000000000004"), (1e22, "1e+22"), (INF, "inf")],
)
def test_repr_shows_data_and_grad(number, text):
    value = Value(number)
    assert repr(value) == f"Value(data={text}, grad=0)"
    value.backward()
    assert repr(value) == f"Value(data={text}, grad=1)"


def test_operands_are_an_ordered_tuple():
    a, b = Value(2.0), Value(3.0)
    for out in (a + b, a * b, a**b, a.max(b)):
        assert type(out._prev) is tuple
        assert out._prev[0] is a
        assert out._prev[1] is b


@pytest.mark.parametrize("function", [operator.add, operator.mul, operator.pow, Value.max])
def test_an_operand_that_is_used_twice_is_kept_twice(function):
    a = Value(2.0)
    out = function(a, a)
    assert len(out._prev) == 2
    assert out._prev[0] is out._prev[1] is a


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("left", NUMBERS, ids=lambda x: type(x).__name__)
def test_a_number_on_the_left_stays_on_the_left(name, left):
    """other - self, not self - other; the same for every operator that does not commute."""
    right = Value(2.0)
    out = OPERATORS[name](left, right)
    assert type(out) is Value
    assert type(out.data) is float
    assert out.data == OPERATORS[name](float(left), 2.0)
    assert type(out._prev[0]) is Value
    assert out._prev[0].data == float(left)
    assert not out._prev[0]._prev
    assert out._prev[1] is right or out._prev[1]._prev[0] is right


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("right", NUMBERS, ids=lambda x: type(x).__name__)
def test_a_number_on_the_right_stays_on_the_right(name, right):
    left = Value(2.0)
    out = OPERATORS[name](left, right)
    assert type(out) is Value
    assert type(out.data) is float
    assert out.data == OPERATORS[name](2.0, float(right))
    assert out._prev[0] is left


def test_assignment_in_place_makes_a_new_node():
    x = Value(2.0)
    old = out = x * 3.0
    out += 1
    out *= out
    assert old.data == 6.0
    assert out.data == 49.0
    out.backward()
    assert x.grad == 42.0


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("other", ["1", None, 1j, [1.0], {}], ids=repr)
def test_operators_refuse_what_is_no_number(name, other):
    with pytest.raises(TypeError):
        OPERATORS[name](Value(2.0), other)
    with pytest.raises(TypeError):
        OPERATORS[name](other, Value(2.0))


@pytest.mark.parametrize("other", ["1", None, 1j, [1.0]], ids=repr)
def test_max_refuses_what_is_no_number(other):
    with pytest.raises(TypeError, match=type(other).__name__):
        Value(2.0).max(1.0, other)


def test_max_needs_something_to_compare_with():
    with pytest.raises(TypeError, match="two"):
        Value(2.0).max()


# What would bake a branch into a traced graph


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge], ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [1, 1.0, np.float64(1), Value(1.0)], ids=["int", "float", "numpy", "Value"])
def test_values_have_no_order(compare, other):
    with pytest.raises(TypeError, match="no order"):
        compare(Value(1.0), other)
    with pytest.raises(TypeError, match="no order"):
        compare(other, Value(1.0))


@pytest.mark.parametrize("compare", [operator.eq, operator.ne], ids=lambda f: f.__name__)
@pytest.mark.parametrize("number", [1, 1.0, np.float64(1)], ids=["int", "float", "numpy"])
def test_values_do_not_equal_numbers(compare, number):
    with pytest.raises(TypeError, match="no order"):
        compare(Value(1.0), number)
    with pytest.raises(TypeError, match="no order"):
        compare(number, Value(1.0))


@pytest.mark.parametrize(
    "decide",
    [bool, operator.not_, lambda v: v and 1, lambda v: 1 if v else 2, lambda v: max(v, v), lambda v: sorted([v, v])],
    ids=["bool", "not", "and", "if", "max", "sorted"],
)
def test_values_have_no_truth(decide):
    with pytest.raises(TypeError, match="no truth"):
        decide(Value(1.0))


def test_values_are_equal_by_identity():
    a, b = Value(1.0), Value(1.0)
    assert a == a
    assert a != b
    assert a in [b, a]
    assert a not in [b]
    assert len({a, b, a}) == 2


# Topological order


def depth_first(node: Value, order: list[Value], seen: set[int]) -> list[Value]:
    """micrograd's own build_topo, with operands from left to right."""
    if id(node) not in seen:
        seen.add(id(node))
        for child in node._prev:
            depth_first(child, order, seen)
        order.append(node)
    return order


@st.composite
def graphs(draw) -> list[Value]:
    """Nodes with up to three operands each, shared and repeated ones among them."""
    nodes = [Value(0.0)]
    for _ in range(draw(st.integers(0, 25))):
        children = draw(st.lists(st.integers(0, len(nodes) - 1), max_size=3))
        nodes.append(Value(0.0, tuple(nodes[i] for i in children), "any"))
    return nodes


@pytest.mark.slow
@given(graphs())
@settings(deadline=None, max_examples=300)
def test_topo_is_the_recursive_depth_first_order(nodes):
    for node in nodes[-3:]:
        assert list(map(id, node.topo())) == list(map(id, depth_first(node, [], set())))


def test_topo_of_a_leaf_is_the_leaf():
    leaf = Value(1.0)
    assert leaf.topo() == [leaf]


# Deep graphs


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda v: v + 1.0, id="left", marks=pytest.mark.slow),
        pytest.param(lambda v: 1.0 + v, id="right"),
        pytest.param(lambda v: v.relu(), id="one operand", marks=pytest.mark.slow),
    ],
)
def test_deep_chains_are_walked_differentiated_and_freed(step):
    leaf = Value(1.0)
    alive = weakref.ref(leaf)
    out = leaf
    for _ in range(DEEP):
        out = step(out)
    assert len(out.topo()) > DEEP
    out.backward()
    assert leaf.grad == 1.0
    data = out.data
    assert out.recompute() == data
    del out, leaf
    gc.collect()
    assert alive() is None


def test_the_builtin_sum_of_thousands_of_values():
    leaves = [Value(float(i)) for i in range(5000)]
    out = sum(leaves)
    out.backward()
    assert out.data == sum(range(5000))
    assert {leaf.grad for leaf in leaves} == {1.0}


def test_a_ladder_of_shared_nodes_is_walked_once():
    out = leaf = Value(1.0)
    for _ in range(1000):
        out = out + out
    assert len(out.topo()) == 1001
    out.backward()
    assert leaf.grad == out.data == 2.0**1000


# Accumulation


def test_shared_operands_add_up():
    assert gradients(lambda x: x + x, 3.0) == [2.0]
    assert gradients(lambda x: x * x, 3.0) == [6.0]
    assert gradients(lambda x: x - x, 3.0) == [0.0]
    assert gradients(lambda x: x / x, 4.0) == [0.0]
    assert gradients(lambda x: x**x, 1.0) == [1.0]


def test_diamonds_add_up():
    def diamond(x: Value) -> Value:
        shared = x * 3.0
        return shared * shared + shared

    assert gradients(diamond, 2.0) == [2 * 3.0 * 6.0 + 3.0]


def test_both_operands_of_a_sum_get_its_gradient():
    a, b = Value(1.0), Value(2.0)
    b.grad = 10.0
    ((a + b) * 5.0).backward()
    assert a.grad == 5.0
    assert b.grad == 15.0


def test_backward_twice_adds_the_same_gradient_to_the_leaves():
    """The inner nodes start from zero: 24 and 24 are 48, where leftovers would make them 72."""
    x = Value(2.0)
    square = x * x
    out = square * x * 2.0
    out.backward()
    assert x.grad == 24.0
    assert square.grad == 4.0
    out.backward()
    assert x.grad == 48.0
    assert square.grad == 4.0
    assert out.grad == 1.0


def test_backward_from_two_results_accumulates_in_the_leaves_only():
    x = Value(3.0)
    shared = x * 2.0
    first, second = shared + 1.0, shared * shared
    first.backward()
    second.backward()
    assert shared.grad == 12.0
    assert x.grad == 2.0 + 24.0


def test_backward_of_a_leaf_accumulates():
    x = Value(3.0)
    x.backward()
    x.backward()
    assert x.grad == 2.0


def test_gradients_are_accumulated_in_reversed_topological_order():
    """1 + 1e16 - 1e16 is 0 in one order and 1 in the other."""
    x = Value(1.0)
    ((x * 1.0 + x * -1e16) + x * 1e16).backward()
    assert x.grad == (1e16 + -1e16) + 1.0
    x = Value(1.0)
    (x * 1e16 + (x * -1e16 + x * 1.0)).backward()
    assert x.grad == (1.0 + -1e16) + 1e16
    assert x.grad == 0.0


# detach


def test_detach_is_the_number_without_the_gradient():
    x = Value(3.0)
    out = x.detach() * x
    assert out.data == 9.0
    out.backward()
    assert x.grad == 3.0


@pytest.mark.parametrize("cut", [lambda v: v.detach(), lambda v: v**0], ids=["detach", "power 0"])
def test_nothing_leaks_through_a_cut(cut):
    """What only a cut leads to has the gradient 0, and 0 * inf would make it nan further down."""
    x = Value(2.0)
    inner = x * INF
    out = cut(inner) + x * 5.0
    out.backward()
    assert inner.grad == 0.0
    assert x.grad == 5.0


def test_a_node_on_both_sides_of_a_cut_gets_the_open_side_only():
    x = Value(2.0)
    square = x * x
    (square.detach() * square).backward()
    assert square.grad == 4.0
    assert x.grad == 16.0


def test_backward_from_a_detached_value_reaches_nothing():
    x = Value(2.0)
    (x * x).detach().backward()
    assert x.grad == 0.0


# recompute


def test_recompute_follows_the_leaves():
    a, b = Value(2.0), Value(3.0)
    out = (a * b + 1.0).relu().max(b) ** 2
    assert out.recompute() == 49.0
    a.data, b.data = -2.0, 0.5
    assert out.recompute() == out.data == 0.25
    out.backward()
    assert a.grad == 0.0
    assert b.grad == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_recompute_gives_the_bits_of_a_new_graph(seed):
    def build() -> Value:
        rng = random.Random(seed)
        return expression(rng, [Value(rng.uniform(-2, 2)) for _ in range(4)], 60)

    expected = [bits(node.data) for node in build().topo()]
    out = build()
    for node in out.topo():
        if node._prev:
            node.data = 123.0
    assert bits(out.recompute()) == expected[-1]
    assert [bits(node.data) for node in out.topo()] == expected


def test_every_new_node_has_the_gradient_zero():
    """Also one that no backward() has reached."""
    x, y = Value(2.0), Value(3.0)
    nodes = [x + y, x - y, x * y, x / y, x**y, x**2, -x, x.exp(), x.max(y), x.detach(), 1 + x, 2 * x]
    assert [node.grad for node in nodes] == [0.0] * len(nodes)
