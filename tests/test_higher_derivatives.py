"""Derivatives of derivatives that are wrong: those of examples/higher_derivatives.py, and those of the ir."""

from __future__ import annotations

import math
import random
import runpy
from pathlib import Path

import pytest

from codegen.ir.graph import Op, verify
from codegen.passes.autodiff import differentiate
from codegen.passes.simplify import simplify
from codegen.passes.trace import trace_value
from codegen.reference.interpret import interpret
from micrograd import ops
from micrograd.engine import Value
from micrograd.nn import MLP
from micrograd.order import creation

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parent.parent / "examples" / "higher_derivatives.py"))
reverse, forward, difference = EXAMPLE["reverse"], EXAMPLE["forward"], EXAMPLE["difference"]
SMOOTH = [row for row in ops.ROWS if all(callable(p) or p is not None for p in row.partials)]


def leaves(count: int, seed: int = 0) -> list[Value]:
    rng = random.Random(seed)
    return [Value(rng.uniform(0.2, 0.9), _op="weight") for _ in range(count)]


@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.name)
def test_first_and_second_derivatives_of_every_op(row):
    x = leaves(row.arity)
    y = row(*x)
    first = reverse(y, x)
    y.backward()
    for leaf, derivative in zip(x, first, strict=True):
        assert derivative.data == leaf.grad
        (along,) = forward([y], {leaf: Value(1.0)})
        assert along.data == derivative.data
        for other in x:
            (second,) = reverse(derivative, [other])
            assert second.data == pytest.approx(difference(derivative, other), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("at", [0.0, 1e-320, -1e-20, 1.3e-15, -1e-12, 1e-7, 2.0**-17, -(2.0**-16)])
def test_the_curvature_of_gelu_near_zero(at):
    """There gelu(x) is x / 2 + x**2 / sqrt(2 pi) + O(x**4), and gelu(x) / x has lost the second term."""
    x = Value(at, _op="weight")
    (slope,) = reverse(x.gelu(), [x])
    (curvature,) = reverse(slope, [x])
    assert slope.data == pytest.approx(0.5 + at * math.sqrt(2 / math.pi), rel=1e-9)
    assert curvature.data == pytest.approx(math.sqrt(2 / math.pi), rel=1e-9)


def test_a_constant_exponent_and_a_detached_node():
    (x,) = leaves(1)
    (slope,) = reverse(x**3, [x])
    (curvature,) = reverse(slope, [x])
    assert slope.data == 3 * x.data**2
    assert curvature.data == pytest.approx(6 * x.data, rel=1e-15)
    assert reverse(x.detach() * x, [x])[0].data == x.data
    assert forward([x.detach()], {x: Value(1.0)})[0].data == 0.0


@pytest.fixture
def model() -> tuple[Value, list[Value]]:
    """A loss, and its parameters in the order of the ir's numbers."""
    random.seed(3)
    net = MLP(2, [3, 1], lecture=True)
    loss = (net([0.5, -1.5]) - 0.25) ** 2
    found = [v for v in creation([loss]) if not v._prev]
    return loss, [v for kind in ("weight", "bias") for v in found if v._op == kind]


def test_the_ir_is_differentiated_twice(model):
    """A gradient in the ir, taken as the loss of the same graph: its gradients are a row of second derivatives."""
    loss, parameters = model
    data, zeros = [p.data for p in parameters], [0.0] * len(parameters)
    first = reverse(loss, parameters)
    for i, derivative in enumerate(first):
        graph = trace_value(loss)
        differentiate(graph)
        size, graph.loss = len(graph), graph.gradients[i]
        differentiate(graph)
        verify(graph)
        assert len(graph) > size
        graph = simplify(graph)
        values = interpret(graph, data, zeros, [], [])
        assert values[graph.loss] == pytest.approx(derivative.data, rel=1e-12)
        row = [values[graph.gradients[j]] if j in graph.gradients else 0.0 for j in range(len(parameters))]
        assert row == pytest.approx([x.data for x in reverse(derivative, parameters)], rel=1e-12, abs=1e-15)
        assert row == pytest.approx([difference(derivative, p) for p in parameters], rel=1e-6, abs=1e-9)
        assert Op.GRAD in graph.op  # which the caller has to leave at 0


def test_forward_over_reverse_is_reverse_over_reverse(model):
    loss, parameters = model
    gradient = reverse(loss, parameters)
    rows = [reverse(derivative, parameters) for derivative in gradient]
    for j, parameter in enumerate(parameters):
        column = forward(gradient, {parameter: Value(1.0)})
        assert [x.data for x in column] == pytest.approx([row[j].data for row in rows], rel=1e-12, abs=1e-15)
        assert [x.data for x in column] == pytest.approx([x.data for x in rows[j]], rel=1e-12, abs=1e-15)
