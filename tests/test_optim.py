"""Rules whose formulas are not PyTorch's, that treat floats and Values differently, or that fail without a reason."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import models
import numpy as np
import pytest

import codegen
from micrograd import ops, optim
from micrograd.engine import Value
from micrograd.nn import MLP

STEPS, COUNT = 100, 7
SHARED = Value(1.0)


def gradient(step: int, i: int) -> float:
    return math.sin(1.7 * step + i) * 10.0 ** (i % 3 - 1)


def starts() -> list[float]:
    return [0.5 * (i + 1) * (-1) ** i for i in range(COUNT)]


def run(rule: Any, batch_size: int = 1, **options: Any) -> list[float]:
    values = [Value(x) for x in starts()]
    optimizer = optim.Optimizer(values, rule, **options)
    for step in range(STEPS):
        for i, value in enumerate(values):
            value.grad = gradient(step, i) * batch_size
        optimizer.step(batch_size)
    return [value.data for value in values]


# As the documentation of torch.optim writes them, one array operation after the other: (p, g, state, t, rate).
def torch_sgd(p, g, s, t, rate, momentum=0.0, nesterov=False, decay=0.0):
    g = g + decay * p
    if momentum:
        s["b"] = g if t == 1 else momentum * s["b"] + g
        g = g + momentum * s["b"] if nesterov else s["b"]
    return p - rate * g


def torch_adam(p, g, s, t, rate, betas=(0.9, 0.999), eps=1e-8, decay=0.0, decoupled=False, amsgrad=False):
    p, g = (p - rate * decay * p, g) if decoupled else (p, g + decay * p)
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    s["max"] = np.maximum(s.get("max", 0), s["v"]) if amsgrad else s["v"]
    m, v = s["m"] / (1 - betas[0] ** t), s["max"] / (1 - betas[1] ** t)
    return p - rate * m / (np.sqrt(v) + eps)


def torch_rmsprop(p, g, s, t, rate, alpha=0.99, eps=1e-8, decay=0.0, momentum=0.0, centered=False):
    g = g + decay * p
    s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
    v = s["v"]
    if centered:
        s["a"] = alpha * s.get("a", 0) + (1 - alpha) * g
        v = v - s["a"] ** 2
    move = g / (np.sqrt(v) + eps)
    if momentum:
        move = s["b"] = momentum * s.get("b", 0) + move
    return p - rate * move


def torch_adagrad(p, g, s, t, rate, lr_decay=0.0, decay=0.0, eps=1e-10, initial=0.0):
    g = g + decay * p
    s["sum"] = s.get("sum", initial) + g * g
    return p - rate / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["sum"]) + eps)


def lion_of_the_paper(p, g, s, t, rate, betas=(0.9, 0.99), decay=0.0):
    m = s.get("m", np.zeros(COUNT))
    p = p * (1 - rate * decay) - rate * np.sign(betas[0] * m + (1 - betas[0]) * g)
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return p


# Ours, the formula, PyTorch's class and its arguments.
RULES: dict[str, tuple[Callable[[], optim.Rule], Callable[..., Any], str, dict[str, Any]]] = {
    "sgd": (optim.sgd, torch_sgd, "SGD", {}),
    "momentum": (lambda: optim.sgd(0.9), lambda *x: torch_sgd(*x, momentum=0.9), "SGD", {"momentum": 0.9}),
    "nesterov": (
        lambda: optim.sgd(0.8, nesterov=True, weight_decay=0.1),
        lambda *x: torch_sgd(*x, momentum=0.8, nesterov=True, decay=0.1),
        "SGD",
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
    ),
    "adam": (optim.adam, torch_adam, "Adam", {}),
    "amsgrad": (
        lambda: optim.adam((0.8, 0.95), 1e-6, 0.1, amsgrad=True),
        lambda *x: torch_adam(*x, betas=(0.8, 0.95), eps=1e-6, decay=0.1, amsgrad=True),
        "Adam",
        {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "amsgrad": True},
    ),
    "adamw": (optim.adamw, lambda *x: torch_adam(*x, decay=1e-2, decoupled=True), "AdamW", {}),
    "rmsprop": (optim.rmsprop, torch_rmsprop, "RMSprop", {}),
    "centered": (
        lambda: optim.rmsprop(0.9, 1e-6, 0.1, momentum=0.5, centered=True),
        lambda *x: torch_rmsprop(*x, alpha=0.9, eps=1e-6, decay=0.1, momentum=0.5, centered=True),
        "RMSprop",
        {"alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1, "momentum": 0.5, "centered": True},
    ),
    "adagrad": (optim.adagrad, torch_adagrad, "Adagrad", {}),
    "adagrad, slower": (
        lambda: optim.adagrad(0.1, 0.01, 0.5, 1e-8),
        lambda *x: torch_adagrad(*x, lr_decay=0.1, decay=0.01, initial=0.5, eps=1e-8),
        "Adagrad",
        {"lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.5, "eps": 1e-8},
    ),
    "lion": (lambda: optim.lion(weight_decay=0.1), lambda *x: lion_of_the_paper(*x, decay=0.1), "", {}),
}


def is_close(found: list[float], expected: Any) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-12, atol=0.0))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_the_formula(name):
    rule, formula, _, _ = RULES[name]
    p, state = np.array(starts()), {}
    for step in range(STEPS):
        p = formula(p, np.array([gradient(step, i) for i in range(COUNT)]), state, step + 1, rule().rate)
    assert is_close(run(rule()), p)
    assert is_close(run(rule(), batch_size=3), p)


@pytest.mark.parametrize("name", [name for name in RULES if name != "lion"])
def test_a_rule_is_that_of_pytorch(name):
    torch = pytest.importorskip("torch")
    rule, _, kind, arguments = RULES[name]
    tensor = torch.tensor(starts(), dtype=torch.float64, requires_grad=True)
    optimizer = getattr(torch.optim, kind)([tensor], lr=rule().rate, **arguments)
    if name != "sgd":  # whose rate is 1e-3 as all others' without a name
        assert optimizer.defaults["lr"] == rule().rate
    for step in range(STEPS):
        tensor.grad = torch.tensor([gradient(step, i) for i in range(COUNT)], dtype=torch.float64)
        optimizer.step()
    assert is_close(run(rule()), tensor.detach().numpy())


@pytest.mark.parametrize("name", RULES)
def test_floats_and_values_are_treated_alike(name):
    rule = RULES[name][0]()
    rng = random.Random(name)
    numbers = [rng.uniform(-1, 1) for _ in range(2)], [5.0 / (k + 1) ** 2 for k in range(len(rule.state))]
    (p, g), state = numbers
    of_floats = rule(p, g, tuple(state), 3.0, 0.01)
    of_values = rule(Value(p), Value(g), tuple(map(Value, state)), Value(3.0), Value(0.01))
    assert of_floats[0] == of_values[0].data
    assert list(of_floats[1]) == [x.data for x in of_values[1]]


def test_fading_momentum_ends_at_a_number_that_is_not_denormal():
    value = Value(1.0)
    value.grad = 1.0
    optimizer = optim.Optimizer([value], optim.sgd(momentum=0.1), learning_rate=0.01)
    optimizer.step()
    value.grad = 0.0
    for _ in range(2000):
        optimizer.step()
        assert abs(optimizer.state["momentum_buffer"][0]) > 1e-300 or optimizer.state["momentum_buffer"][0] == 0.0


def test_clipping():
    """torch.nn.utils.clip_grad_value_ and clip_grad_norm_."""
    plain = optim.sgd()
    clipped = optim.clip_value(plain, 0.3)
    assert clipped(1.0, -7.0, (), 1, 0.5) == (1.0 + 0.5 * 0.3, ())
    assert clipped(1.0, 0.2, (), 1, 0.5) == plain(1.0, 0.2, (), 1, 0.5)
    values = [Value(0.0), Value(0.0)]
    values[0].grad, values[1].grad = 3.0, -4.0
    optim.Optimizer(values, optim.clip_norm(plain, 1.0), learning_rate=1.0).step()
    assert np.allclose([x.data for x in values], [-3 / (5 + 1e-6), 4 / (5 + 1e-6)], rtol=1e-15)
    values[0].grad, values[1].grad = 0.3, -0.4
    before = [x.data for x in values]
    optim.Optimizer(values, optim.clip_norm(plain, 1.0), learning_rate=1.0).step()
    assert [x.data for x in values] == [before[0] - 0.3, before[1] + 0.4]


def test_the_norm_does_not_depend_on_the_order():
    rng = random.Random(1)
    for spread in (1, 10, 150):
        numbers = [rng.gauss(0, 1) * 10 ** rng.uniform(-spread, spread) for _ in range(1000)]
        norm = optim.global_norm(numbers)
        for _ in range(5):
            rng.shuffle(numbers)
            assert optim.global_norm(numbers) == norm
        assert math.isclose(norm, math.hypot(*numbers), rel_tol=1e-14)


@pytest.mark.parametrize(
    ("numbers", "norm"),
    [([], 0.0), ([0.0, -0.0], 0.0), ([3e-290, -4e-290], 5e-290), ([1e308, -1e308], math.hypot(1e308, 1e308)),
     ([1.7e308] * 4, math.inf), ([math.inf, 1.0], math.inf), ([math.nan, math.inf], math.nan)],
)  # fmt: skip
def test_norms_of_odd_numbers(numbers, norm):
    found = optim.global_norm(numbers)
    assert found == norm or math.isclose(found, norm, rel_tol=1e-15) or (found != found and norm != norm)


def test_different_rules_for_different_tensors():
    tensors = {"a.weight": [[Value(1.0)], [Value(2.0)]], "a.bias": [Value(3.0)]}
    for value in (x for nested in tensors.values() for x in np.ravel(nested)):
        value.grad = 1.0
    optimizer = optim.Optimizer(tensors, {"*.bias": optim.scale_rate(optim.sgd(), 0.5), "*": optim.adam()}, 0.1)
    assert set(optimizer.state) == {"a.weight.exp_avg", "a.weight.exp_avg_sq"}
    optimizer.step()
    assert tensors["a.bias"][0].data == 3.0 - 0.1 * 0.5
    assert math.isclose(tensors["a.weight"][1][0].data, 1.9, rel_tol=1e-7)
    assert optimizer.steps == 1
    optimizer.zero_grad()
    assert tensors["a.bias"][0].grad == 0.0


def branches(p, g, state, step, rate):
    return (p - rate * g if g > 0 else p), state


OUTSIDE = Value(2.0)
WRONG = {
    "branches": (optim.Rule(branches), TypeError, "the rule branches cannot be traced: a Value has no order"),
    "calls math": (
        lambda p, g, s, t, r: (p - math.sqrt(g), s), TypeError, "cannot be traced: must be real number, not Value"
    ),
    "returns one thing": (lambda p, g, s, t, r: p, TypeError, "must return the parameter and a tuple of its state"),
    "returns a number as state": (lambda p, g, s, t, r: (p, p), TypeError, "must return its state as a tuple"),
    "returns too much": (lambda p, g, s, t, r: (p, (g,)), ValueError, "returned 1 numbers of state, but it declares 0"),
    "returns too little": (
        optim.rule(m=0.0)(lambda p, g, s, t, r: (p, ())), ValueError, "returned 0 numbers of state, .* declares 1: m"
    ),
    "returns text": (lambda p, g, s, t, r: ("p", s), TypeError, "must return numbers, not str"),
    "reads other Values": (lambda p, g, s, t, r: (p + OUTSIDE, s), ValueError, "a Value that is none of its arguments"),
    "reads data": (lambda p, g, s, t, r: (p - r * g.data, s), ValueError, "computes with .data, which is a constant"),
    "forgets its state": (lambda p, g, s, t, r: (p - s[0], s), ValueError, "its state is none: @rule"),
    "reads too much state": (
        optim.rule(m=0.0)(lambda p, g, s, t, r: (p - s[1], s)), ValueError, "index out of range; its state is m$"
    ),
    "is no rule yet": (optim.adam, TypeError, r"adam makes a rule: write adam\(\)"),
    "takes too few": (lambda p, g: (p, ()), TypeError, "takes 2 positional arguments but 5 were given"),
}  # fmt: skip


def test_a_rule_may_be_long():
    """Longer than Python's stack is deep, and than a C compiler's expressions may be."""

    def chained(p, g, s, t, r):
        for _ in range(3000):
            g = g * 0.999
        return p - r * g, s

    program = replace(models.mlp(), update=optim.Rule(chained))
    for target in ("extension", "python", "c"):
        assert "next_p = " in codegen.compile_program(program, target=target).text


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_cannot_be_traced_is_refused(name):
    rule, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        optim.Optimizer([Value(1.0)], rule)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: optim.Rule(3), TypeError, "a rule is a function, not int"),
        (lambda: optim.rule(m=math.inf)(branches), ValueError, "m starts from a finite number, not from inf"),
        (lambda: optim.Rule(branches, {"a b": 0.0}), ValueError, "has an identifier as its name, not 'a b'"),
        (lambda: optim.Rule(branches, ["m"]), TypeError, "the state maps names to numbers, it is no list"),
        (lambda: optim.Rule(branches, rate=math.nan), ValueError, "the learning rate is a finite number, not nan"),
        (lambda: optim.sgd(momentum=-1), ValueError, "sgd: momentum must be finite and >= 0, got -1"),
        (lambda: optim.sgd("0.9"), TypeError, "sgd: momentum must be an int or a float, not '0.9'"),
        (lambda: optim.sgd(nesterov=True), ValueError, "sgd: nesterov needs a momentum"),
        (lambda: optim.adam(betas=(0.9, 1.0)), ValueError, r"adam: betas must be in \[0, 1\), got 1.0"),
        (lambda: optim.adam(betas=0.9), TypeError, "adam: betas are two numbers, not 0.9"),
        (lambda: optim.clip_norm(optim.sgd(), math.inf), ValueError, "bound must be finite and >= 0, got inf"),
        (lambda: optim.rmsprop(alpha=-0.1), ValueError, "rmsprop: alpha must be finite and >= 0, got -0.1"),
        (lambda: optim.adagrad(initial_accumulator_value=-1.0), ValueError, "adagrad: initial must be finite and >= 0"),
        (lambda: optim.lion((0.9, 1.0)), ValueError, r"lion: betas must be in \[0, 1\), got 1.0"),
        (lambda: optim.adamw(eps=-1e-8), ValueError, "adamw: eps must be finite and >= 0, got -1e-08"),
        (lambda: optim.scale_rate(optim.sgd(), -1.0), ValueError, "scale_rate: factor must be finite and >= 0"),
        (lambda: optim.clip_value(3, 1.0), TypeError, "a rule is a function, not int"),
        (lambda: optim.rules_of({"b*": optim.sgd()}, ["a"]), ValueError, "'b\\*' fits none of the tensors a"),
        (lambda: optim.rules_of({"a": optim.sgd()}, ["a", "b"]), ValueError, "no rule fits the tensor 'b'"),
        (lambda: optim.rules_of({1: optim.sgd()}, ["a"]), TypeError, "or patterns of names, not from 1"),
        (lambda: optim.Optimizer([1.0], optim.sgd()), TypeError, "must be Values, not float"),
        (lambda: optim.Optimizer([], optim.sgd(), "0.1"), TypeError, "learning_rate must be a number, not str"),
        (lambda: optim.Optimizer([], optim.sgd(), math.nan), ValueError, "learning_rate must be finite, got nan"),
        (lambda: optim.Optimizer([], optim.sgd()).step(0), ValueError, "batch_size must be at least 1, got 0"),
        (lambda: optim.Optimizer([], optim.sgd()).step(1j), TypeError, "batch_size must be an int, not complex"),
        (
            lambda: optim.Optimizer([], optim.sgd()).step(1, 10**400),
            ValueError,
            "learning_rate must be finite, got inf",
        ),
        (lambda: optim.Optimizer([SHARED, SHARED], optim.sgd()), ValueError, "one Value is among the parameters twice"),
        (lambda: optim.Optimizer(MLP(1, [1]), optim.sgd()), TypeError, "the parameters must be Values, not MLP"),
        (lambda: setattr(optim.Optimizer([], optim.sgd()), "learning_rate", "1"), TypeError, "a number, not str"),
        (lambda: setattr(optim.Optimizer([], optim.sgd()), "learning_rate", math.inf), ValueError, "must be finite"),
        (lambda: optim.clip_norm(optim.sgd(), 1.0)(1.0, 1.0, (), 1, 0.1), TypeError, "sgd needs the norm"),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_the_sign_of_lion():
    """0 stays, and what is no number does not pass unnoticed."""
    rule = optim.lion()
    assert [rule(0.0, g, (0.0,), 1, 1.0)[0] for g in (3.0, -1e-300, 0.0, -0.0)] == [-1.0, 1.0, 0.0, 0.0]
    assert all(math.isnan(rule(0.0, g, (0.0,), 1, 1.0)[0]) for g in (math.inf, math.nan))
    assert ops.step(1.0) == 1.0


@pytest.mark.parametrize(
    ("make", "rate"),
    [(optim.sgd, 1e-3), (lambda: optim.sgd(0.9), 1e-3), (optim.adam, 1e-3), (optim.adamw, 1e-3), (optim.rmsprop, 1e-2),
     (optim.adagrad, 1e-2), (optim.lion, 1e-4), (lambda: optim.Rule(lambda p, g, s, t, r: (p - r * g, s)), 0.1)],
)  # fmt: skip
def test_the_rates_that_rules_have_by_themselves(make, rate):
    """Those of torch.optim and of Lion's authors."""
    assert make().rate == rate
    assert optim.Optimizer([Value(1.0)], make()).learning_rate == rate


def test_amsgrad_of_adamw():
    """The largest square counts: after one large gradient, steps stay small."""
    plain, largest = optim.adamw(weight_decay=0.0), optim.adamw(weight_decay=0.0, amsgrad=True)
    assert list(largest.state) == ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    ends = []
    for rule in (plain, largest):
        value = Value(0.0)
        optimizer = optim.Optimizer([value], rule, 0.01)
        for step in range(300):
            value.grad = 100.0 if step == 0 else 0.01
            optimizer.step()
        ends.append(value.data)
    assert ends[0] < ends[1] < 0


def test_a_norm_that_is_clipped_twice():
    """The inner rule sees the norm of the gradients that it gets."""
    values = [Value(0.0), Value(0.0)]
    values[0].grad, values[1].grad = 3.0, -4.0
    rule = optim.clip_norm(optim.clip_norm(optim.sgd(), 1.0), 2.0)
    optim.Optimizer(values, rule, learning_rate=1.0).step()
    assert np.allclose([x.data for x in values], [-0.6, 0.8], rtol=2e-6)


def test_a_rule_may_return_plain_numbers():
    value = Value(3.0)
    optimizer = optim.Optimizer([value], optim.rule(m=1.0)(lambda p, g, s, t, r: (0.5, (2,))))
    optimizer.step()
    assert (value.data, optimizer.state) == (0.5, {"m": [2.0]})
