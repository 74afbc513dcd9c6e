"""The small models in NumPy, their gradients written by hand: those made of dense layers only. The others are left out.

A batch is a matrix, and a single example a vector, whose gradients are outer products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.small import Named
from benchmarks.small.models import SMALL, WIDE, Array
from benchmarks.tasks import Data, Missing, Task

VERSION = f"NumPy {np.__version__}"
STEPS = 512  # a run, at most
Step = Callable[[Named, Array, Array], Named]


def of_product(d: Array, x: Array) -> Array:
    """The gradient of w in x @ w.T, whose own is d."""
    found: Array = np.outer(d, x) if d.ndim == 1 else d.T @ x
    return found


def of_bias(d: Array) -> Array:
    return d if d.ndim == 1 else d.sum(0)


def examples(x: Array) -> int:
    return 1 if x.ndim == 1 else len(x)


def of_logits(z: Array, one_hot: Array) -> Array:
    """The gradient of softmax and cross-entropy, of a mean over the batch."""
    z = np.exp(z - z.max(-1, keepdims=True))
    return (z / z.sum(-1, keepdims=True) - one_hot) / examples(z)


def dense(p: Named, x: Array, y: Array) -> Named:
    last = len(p) // 2 - 1
    h = [x]
    for i in range(last):
        h.append(np.maximum(h[i] @ p[f"w{i}"].T + p[f"b{i}"], 0))
    d = of_logits(h[last] @ p[f"w{last}"].T + p[f"b{last}"], y)
    g = {}
    for i in range(last, -1, -1):
        g[f"w{i}"], g[f"b{i}"] = of_product(d, h[i]), of_bias(d)
        if i:
            d = (d @ p[f"w{i}"]) * (h[i] > 0)
    return g


def logistic_with_l2(p: Named, x: Array, y: Array) -> Named:
    d = of_logits(x @ p["weight"].T + p["bias"], y)
    return {"weight": of_product(d, x) + 2e-3 * p["weight"], "bias": of_bias(d)}


def autoencoder(p: Named, x: Array, _: Array) -> Named:
    h = [x]
    for name in "abc":
        h.append(1 / (1 + np.exp(-(h[-1] @ p[f"w{name}"].T + p[f"b{name}"]))))
    d = (h[3] @ p["wd"].T + p["bd"] - x) * (2 / x.size)
    g = {}
    for i, name in reversed(list(enumerate("abcd"))):
        g[f"w{name}"], g[f"b{name}"] = of_product(d, h[i]), of_bias(d)
        if i:
            d = (d @ p[f"w{name}"]) * h[i] * (1 - h[i])
    return g


def residual_network(p: Named, x: Array, y: Array) -> Named:
    blocks = range(len(p) // 3)
    h, inner = [x], []
    for i in blocks:
        inner.append(np.maximum(h[i] @ p[f"{i}.w"].T + p[f"{i}.b"], 0))
        h.append(h[i] + inner[i] @ p[f"{i}.v"].T)
    d = (h[-1] - y) * (2 / y.size)
    g = {}
    for i in reversed(blocks):
        g[f"{i}.v"] = of_product(d, inner[i])
        below = (d @ p[f"{i}.v"]) * (inner[i] > 0)
        g[f"{i}.w"], g[f"{i}.b"] = of_product(below, h[i]), of_bias(below)
        d = d + below @ p[f"{i}.w"]
    return g


GRADIENTS: dict[str, Step] = dict.fromkeys(WIDE, dense) | {
    "logistic regression, L2": logistic_with_l2,
    "autoencoder": autoencoder,
    "residual MLP": residual_network,
}


class ByHand:
    note = ""

    def __init__(self, task: Task) -> None:
        model = SMALL[task.model]
        self.floats, self.rate, self.gradients = task.floats, task.floats(model.rate), GRADIENTS[task.model]
        self.images = min(task.images, STEPS * task.batch)
        x, y = model.examples(task.images)
        if y is None:
            y = np.zeros((len(x), 1))
        elif model.labels:
            y = np.eye(model.targets)[y]
        self.steps = list(zip(self.batches(x, task.batch), self.batches(y, task.batch), strict=True))

    def batches(self, examples: Array, batch: int) -> list[Array]:
        kept = examples[: self.images].astype(self.floats)
        return list(kept if batch == 1 else kept.reshape(-1, batch, kept.shape[1]))

    def load(self, weights: Named) -> None:
        self.parameters = {name: w.astype(self.floats) for name, w in weights.items()}

    def run(self, part: int = 0) -> None:
        parameters, rate, gradients = self.parameters, self.rate, self.gradients
        for x, y in self.steps:
            for name, gradient in gradients(parameters, x, y).items():
                gradient *= rate
                parameters[name] -= gradient

    def weights(self) -> Named:
        return {name: w.astype(np.float64) for name, w in self.parameters.items()}


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Any]]:
    if task.model not in GRADIENTS:
        raise Missing("NumPy has no gradients; only models of dense layers are written by hand")
    return {"NumPy, by hand": partial(ByHand, task)}
