"""Departures from micrograd: the graphs that it is tested and advertised with, and PyTorch's gradients.

The three expressions, their numbers and the tolerances are those of Andrej Karpathy's micrograd
(https://github.com/karpathy/micrograd, MIT): `test_sanity_check` and `test_more_ops` of its test/test_engine.py, and
the example in its README.

They are compared with PyTorch where it is installed. Where it is not, a module of the same name stands in for it:
the few calls that these tests make of a Tensor, on the independent library `autograd`, in float64.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from micrograd.engine import Value


class Tensor:
    """An expression that is evaluated, and differentiated by autograd, from its leaves."""

    def __init__(self, data: Sequence[float], function: Callable | None = None, operands: Sequence = ()) -> None:
        self.data = np.asarray(data, dtype=np.float32 if function is None else np.float64)
        self.function = function
        self.operands = operands
        self.requires_grad = False
        self.grad: np.ndarray | None = None

    def double(self) -> Tensor:
        self.data = self.data.astype(np.float64)
        return self

    def leaves(self) -> list[Tensor]:
        if self.function is None:
            return [self]
        found = [leaf for x in self.operands if isinstance(x, Tensor) for leaf in x.leaves()]
        return list({id(leaf): leaf for leaf in found}.values())

    def evaluate(self, known: dict[int, object]) -> object:
        if self.function is None:
            return known.get(id(self), self.data)
        if id(self) not in known:
            operands = [x.evaluate(known) if isinstance(x, Tensor) else x for x in self.operands]
            known[id(self)] = self.function(*operands)
        return known[id(self)]

    def backward(self) -> None:
        leaves = [leaf for leaf in self.leaves() if leaf.requires_grad]

        def loss(*arrays: object) -> object:
            return anp.sum(self.evaluate({id(leaf): x for leaf, x in zip(leaves, arrays, strict=True)}))

        slopes = autograd.grad(loss, argnum=tuple(range(len(leaves))))(*(leaf.data for leaf in leaves))
        for leaf, slope in zip(leaves, slopes, strict=True):
            leaf.grad = slope if leaf.grad is None else leaf.grad + slope


def operator(function: Callable) -> Callable:
    def apply(*operands: Tensor | float) -> Tensor:
        data = [x.data if isinstance(x, Tensor) else x for x in operands]
        return Tensor(function(*data), function, operands)

    return apply


Tensor.__add__ = operator(lambda a, b: a + b)
Tensor.__radd__ = operator(lambda a, b: b + a)
Tensor.__sub__ = operator(lambda a, b: a - b)
Tensor.__mul__ = operator(lambda a, b: a * b)
Tensor.__rmul__ = operator(lambda a, b: b * a)
Tensor.__truediv__ = operator(lambda a, b: a / b)
Tensor.__rtruediv__ = operator(lambda a, b: b / a)
Tensor.__pow__ = operator(lambda a, b: a**b)
Tensor.__neg__ = operator(lambda a: -a)
Tensor.relu = operator(lambda a: anp.where(a > 0, a, 0.0))
Tensor.tanh = operator(anp.tanh)
Tensor.exp = operator(anp.exp)


@pytest.fixture
def torch(monkeypatch) -> ModuleType:
    if importlib.util.find_spec("torch") is None:
        stand_in = ModuleType("torch")
        stand_in.Tensor = Tensor
        monkeypatch.setitem(sys.modules, "torch", stand_in)
    return importlib.import_module("torch")


def on_tensors(torch: ModuleType, function: Callable, *numbers: float) -> tuple[float, list[float]]:
    """Value and gradients of an expression, by PyTorch or what stands in for it."""
    leaves = [torch.Tensor([x]).double() for x in numbers]
    for leaf in leaves:
        leaf.requires_grad = True
    out = function(*leaves)
    out.backward()
    return out.data.item(), [leaf.grad.item() for leaf in leaves]


def on_values(function: Callable, *numbers: float) -> tuple[float, list[float]]:
    leaves = [Value(x) for x in numbers]
    out = function(*leaves)
    out.backward()
    return out.data, [leaf.grad for leaf in leaves]


def sanity_check(x):
    z = 2 * x + 2 + x
    q = z.relu() + z * x
    h = (z * z).relu()
    return h + q + q * x


def more_ops(a, b):
    c = a + b
    d = a * b + b**3
    c = c + c + 1
    c = c + 1 + c + (-a)
    d = d + d * 2 + (b + a).relu()
    d = d + 3 * d + (b - a).relu()
    f = (c - d) ** 2
    return f / 2.0 + 10.0 / f


def test_sanity_check(torch):
    assert on_values(sanity_check, -4.0) == on_tensors(torch, sanity_check, -4.0)


def test_more_ops(torch):
    data, grads = on_values(more_ops, -4.0, 2.0)
    expected, expected_grads = on_tensors(torch, more_ops, -4.0, 2.0)
    assert data == pytest.approx(expected, rel=0, abs=1e-6)
    assert grads == pytest.approx(expected_grads, rel=0, abs=1e-6)


@pytest.mark.parametrize("name", ["tanh", "exp"])
@pytest.mark.parametrize("number", [-1.0, 0.123, 2.0])
def test_unary_functions(torch, name, number):
    data, grads = on_values(getattr(Value, name), number)
    expected, expected_grads = on_tensors(torch, getattr(torch.Tensor, name), number)
    assert data == pytest.approx(expected, rel=0, abs=1e-6)
    assert grads == pytest.approx(expected_grads, rel=0, abs=1e-6)


def test_readme_example():
    data, (a, b) = on_values(more_ops, -4.0, 2.0)
    assert f"{data:.4f}" == "24.7041"
    assert f"{a:.4f}" == "138.8338"
    assert f"{b:.4f}" == "645.5773"
