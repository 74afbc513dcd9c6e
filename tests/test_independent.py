"""Errors that engine and compiler share: whole models against the same models as arrays on autograd, in float64.

Nothing is shared with micrograd here but the initial weights and the inputs: sums run in NumPy's order, derivatives
are autograd's own. So the two agree up to rounding, not by bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import autograd
import autograd.numpy as anp
import models
import numpy as np
import pytest
from harness import example

from codegen import Label, Pixels, Program
from tools.fuzz_compiler.reference import Engine

RELATIVE = 1e-12
Parameters = dict[str, np.ndarray]


def relu(x):
    return anp.where(x > 0, x, 0.0)


def sigmoid(x):
    return 1 / (1 + anp.exp(-x))


def softmax(x):
    shares = anp.exp(x - anp.max(x, axis=-1, keepdims=True))
    return shares / anp.sum(shares, axis=-1, keepdims=True)


def cross_entropy(logits, one_hot):
    shifted = logits - anp.max(logits)
    return anp.log(anp.sum(anp.exp(shifted))) - anp.dot(shifted, one_hot)


def mean_square(x, y):
    return anp.mean((x - y) ** 2)


# Each takes parameters, inputs and targets, and returns the loss and the output.


def mlp(p, x, t):
    depth = len(p) // 2
    for i in range(depth):
        x = p[f"layers.{i}.weight"] @ x + p[f"layers.{i}.bias"]
        x = relu(x) if i < depth - 1 else x
    return cross_entropy(x, t), x


def convolution(p, x, t):
    image = x.reshape(8, 8)
    windows = anp.array([[image[r : r + 3, c : c + 3].ravel() for c in range(6)] for r in range(6)])
    maps = relu(anp.einsum("rcw,kw->krc", windows, p["kernels"]) + p["biases"][:, None, None])
    pooled = anp.max(anp.max(maps.reshape(3, 3, 2, 3, 2), axis=4), axis=2)
    logits = p["w"] @ pooled.ravel() + p["b"]
    return cross_entropy(logits, t), logits


def recurrence(p, x, y):
    h = anp.zeros(5)
    for now in x.reshape(6, 3):
        h = anp.tanh(p["wx"] @ now + p["wh"] @ h + p["b"])
    out = p["wo"] @ h + p["bo"]
    return mean_square(out, y), out


def residual(p, x, y):
    for block in range(3):
        x = x + sigmoid(p[f"blocks.{block}.w"] @ x + p[f"blocks.{block}.b"])
    return mean_square(x, y), x


def attention(p, x, y):
    rows = x.reshape(5, 4)
    q, k, v = (rows @ p[name].T for name in ("query", "key", "value"))
    out = anp.mean(softmax(q @ k.T / 2.0) @ v, axis=0)
    return mean_square(out, y), out


def shared_weights(p, x, y):
    code = relu(p["w"] @ x + p["b"])
    out = p["w"].T @ code + p["c"]
    return mean_square(out, x), out


MODELS: dict[str, tuple[Callable[[], Program], Callable]] = {
    "mlp": (models.mlp, mlp),
    "deep_mlp": (lambda: models.mlp((30, 8, 8, 8, 3)), mlp),
    "convolution": (models.convolution, convolution),
    "recurrence": (models.recurrence, recurrence),
    "residual": (models.residual, residual),
    "attention": (models.attention, attention),
    "shared_weights": (models.shared_weights, shared_weights),
}


def assert_close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Equal up to a relative error, by the norm of the whole."""
    assert found.shape == expected.shape
    error, norm = np.linalg.norm(found - expected), np.linalg.norm(expected)
    assert error <= RELATIVE * norm, f"{what}: error {error:.1e} of {norm:.1e}"


def tensors(program: Program, numbers: list[float]) -> Parameters:
    """A number for each parameter, as named arrays."""
    flat = np.array(numbers)
    return {tensor.name: flat[list(tensor.numbers)].reshape(tensor.shape) for tensor in program.tensors}


def arrays(program: Program, target: object, inputs: list[float]) -> tuple[np.ndarray, np.ndarray]:
    scale = program.inputs.scale if isinstance(program.inputs, Pixels) else 1.0
    if isinstance(program.targets, Label):
        target = np.eye(len(program.target_values))[target]
    return np.array(inputs) * scale, np.array(target)


@pytest.mark.parametrize("name", MODELS)
def test_engine_equals_an_independent_implementation(name):
    """Along four steps of training, each with a batch of two."""
    declare, model = MODELS[name]
    program = declare()
    engine = Engine(program)
    slopes_of = autograd.grad(lambda p, x, t: model(p, x, t)[0])
    rng = random.Random(11)
    alive = set()
    for step in range(4):
        expected = {tensor.name: np.zeros(tensor.shape) for tensor in program.tensors}
        parameters = tensors(program, engine.data)
        engine.zero_grad()
        for _ in range(2):
            target, inputs = example(program, rng)
            x, t = arrays(program, target, inputs)
            loss, out = model(parameters, x, t)
            assert_close(np.array([engine.forward(target, inputs)]), np.array([loss]), f"step {step}: loss")
            assert_close(np.array(next(iter(engine.outputs().values()))), out, f"step {step}: output")
            engine.backward()
            slopes = slopes_of(parameters, x, t)
            expected = {key: total + slopes[key] for key, total in expected.items()}
        for key, gradient in tensors(program, engine.grads).items():
            assert_close(gradient, expected[key], f"step {step}: gradient of {key}")
            alive |= {key} if gradient.any() else set()
        engine.update(batch_size=2)
        moved = {key: parameters[key] - program.learning_rate * expected[key] / 2 for key in parameters}
        for key, weights in tensors(program, engine.data).items():
            assert_close(weights, moved[key], f"step {step}: {key}")
    assert alive == {tensor.name for tensor in program.tensors}
