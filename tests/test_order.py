"""Order of creation: what decides the order in which gradients are added up, in every system."""

from __future__ import annotations

import copy
import gc
import math
import random
from collections.abc import Callable
from itertools import pairwise

import models
import pytest
from test_passes import program

from codegen import Floats, Program, compile_program
from codegen.ir.graph import graph_text
from codegen.passes.trace import trace
from micrograd import order
from micrograd.engine import Value
from micrograd.functional import cross_entropy, total
from micrograd.nn import MLP
from micrograd.order import creation, gradient_order, topo
from micrograd.statements import backward_code

BIG = 2.0**53  # BIG + 1.0 is BIG: sums depend on their order


def three_users() -> tuple[Value, Value]:
    """A leaf whose users were created in another order than that in which a walk from the loss meets them."""
    x = Value(1.0, _op="weight")
    small, big, minus = x * 1.0, x * BIG, x * -BIG
    return x, minus + small + big


def test_the_two_orders():
    w, x = Value(2.0), Value(3.0)
    y = x * x
    z = y + w
    assert topo([z]) == z.topo() == [x, y, w, z]
    assert creation([z]) == [w, x, y, z]
    assert creation([z, y, z]) == creation([y, z]) == creation([z])
    assert list(gradient_order(creation([z]))) == [z, y]


def test_operands_are_older_than_their_users():
    for root in (models.irregular(2000), models.chain(100)):
        nodes = creation([root])
        assert {id(node) for node in nodes} == {id(node) for node in root.topo()}
        assert all(a._id < b._id for a, b in pairwise(nodes))
        assert all(child._id < node._id for node in nodes for child in node._prev)


def test_the_youngest_users_contribution_comes_first():
    x, loss = three_users()
    loss.backward()
    assert x.grad == (-BIG + BIG) + 1.0 == 1.0
    depth_first = (BIG + 1.0) - BIG
    assert depth_first != x.grad


def test_the_c_of_one_node_and_the_trace_have_the_same_order():
    _, loss = three_users()
    lines = [line for line in backward_code(loss).splitlines() if line.startswith("grad[0] +=")]
    numbers = [node.data for node in loss.topo()]
    factors = [numbers[int(line.split("data[")[1].split("]")[0])] for line in lines]
    assert factors == [-BIG, BIG, 1.0]
    x, loss = three_users()
    assert [line for line in graph_text(trace(program(loss, [x]))).splitlines() if "mul" in line] == [
        "%2 = mul %0 %1",
        "%4 = mul %0 %3",
        "%6 = mul %0 %5",
    ]


def test_a_younger_operand_is_refused():
    x, y = Value(1.0), Value(2.0)
    node = x * x
    node._prev = (x, y * y)
    with pytest.raises(ValueError, match="younger than itself"):
        trace(program(node, [x]))


def test_the_order_is_found_once(monkeypatch: pytest.MonkeyPatch):
    found = []
    sort = Value._sort
    monkeypatch.setattr(Value, "_sort", lambda self: found.append(self) or sort(self))
    x = Value(0.5)
    loss = (x * 2.0).tanh() + x
    for i in range(3):
        x.data, x.grad = 0.5 + i, 0.0
        assert loss.recompute() == math.tanh(x.data * 2.0) + x.data
        loss.backward()
        slope = 1.0 - math.tanh(x.data * 2.0) ** 2
        assert x.grad == pytest.approx(1.0 + 2.0 * slope)
    assert found == [loss]


def test_mnist_is_sorted_once(monkeypatch: pytest.MonkeyPatch):
    """Sorting takes several times as long as a pass over the sorted nodes."""
    walks = []
    walk = order.creation
    monkeypatch.setattr(order, "creation", lambda roots: walks.append(1) or walk(roots))
    x = [Value(0.5) for _ in range(784)]
    loss = cross_entropy(MLP(784, [50, 10], init="fan_in")(x), 3)
    for i in range(3):
        x[0].data = float(i)
        loss.recompute()
        loss.backward()
    assert len(walks) == 1


def test_a_part_of_a_graph_forgets_its_order():
    """A long chain of roots would otherwise hold a list at each of them."""
    x = Value(1.0)
    part = x * x
    part.backward()
    assert part._order is not None
    whole = part + x
    whole.backward()
    assert part._order is None
    part.backward()
    assert x.grad == 2.0 + 3.0 + 2.0


@pytest.mark.parametrize("make", [lambda: models.chain(50_000), lambda: models.irregular(4000)])
def test_a_graph_that_remembers_is_freed_at_once(make: Callable[[], Value]):
    gc.collect()
    gc.disable()
    try:
        before = sum(type(thing) is Value for thing in gc.get_objects())
        loss = make()
        loss.recompute()
        loss.backward()
        assert sum(type(thing) is Value for thing in gc.get_objects()) > before + 1000
        del loss
        assert sum(type(thing) is Value for thing in gc.get_objects()) == before
    finally:
        gc.enable()


def test_copies_keep_the_order():
    rng = random.Random(1)
    x = Value(0.5)
    parts = [x * rng.uniform(-1e9, 1e9) for _ in range(30)]
    loss = total(rng.sample(parts, len(parts)))
    loss.backward()
    (twin,) = (copy.deepcopy(loss),)
    (other,) = [node for node in creation([twin]) if node.data == 0.5]
    other.grad = 0.0
    twin.backward()
    assert other.grad.hex() == x.grad.hex()


def test_what_comes_after_a_node_from_elsewhere_is_younger():
    x = Value(1.0)
    state = x.__getstate__() | {"_id": x._id + 1_000_000}
    stranger = Value.__new__(Value)
    stranger.__setstate__(state)
    user = stranger + x
    assert user._id > stranger._id
    user.backward()
    assert (x.grad, stranger.grad) == (1.0, 1.0)


def recurrence(steps: int) -> Program:
    """A gated recurrence in plain Values."""
    rng = random.Random(0)

    def matrix(rows: int, columns: int) -> list[list[Value]]:
        return [[Value(rng.uniform(-0.5, 0.5)) for _ in range(columns)] for _ in range(rows)]

    def lines(w: list[list[Value]], x: list[Value]) -> list[Value]:
        return [total([a * b for a, b in zip(row, x, strict=True)]) for row in w]

    gates = ("input", "forget", "output", "cell")
    inner, outer = ({gate: matrix(5, n) for gate in gates} for n in (5, 3))
    inputs = [[Value(0.0) for _ in range(3)] for _ in range(steps)]
    state, cell = ([Value(0.0) for _ in range(5)] for _ in range(2))
    for x in inputs:
        sums = {g: [a + b for a, b in zip(lines(inner[g], state), lines(outer[g], x), strict=True)] for g in gates}
        i, f, o = ([v.sigmoid() for v in sums[g]] for g in gates[:3])
        candidate = [v.tanh() for v in sums["cell"]]
        cell = [a * b + c * d for a, b, c, d in zip(f, cell, i, candidate, strict=True)]
        state = [a * b.tanh() for a, b in zip(o, cell, strict=True)]
    return Program(
        inputs=Floats([v for x in inputs for v in x]),
        targets=None,
        parameters={**{f"u.{g}": inner[g] for g in gates}, **{f"w.{g}": outer[g] for g in gates}},
        loss=total(state),
    )


@pytest.mark.slow
def test_a_recurrence_needs_no_table_of_indices():
    compiled = compile_program(recurrence(8))
    assert not compiled.plain.tables
