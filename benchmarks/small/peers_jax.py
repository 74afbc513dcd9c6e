"""The small models in JAX. Each function is the loss of one example.

The whole epoch is one compiled call: `lax.scan` over the steps, all batches on the device already, parameters donated.
A batch is `vmap` of the loss, and its mean; a single example goes without. Some models have several forms, wide layers
also with weights as (in, out); all are tried, and the fastest is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.small import Named
from benchmarks.small.models import ACTIVATIONS, BINOMIAL, INTERVALS, KNOTS, NODES, SMALL, WIDE, neighbours, wiring
from benchmarks.tasks import Data, Task

VERSION = f"JAX {jax.__version__}"
TRIALS = 3
Loss = Callable[[Any, Any, Any], Any]


def mse(out: Any, y: Any) -> Any:
    return jnp.mean((out - y) ** 2)


def cross_entropy(logits: Any, label: Any) -> Any:
    return -jax.nn.log_softmax(logits)[label]


def dense(p: Any, x: Any, y: Any) -> Any:
    layers = len(p) // 2
    for i in range(layers):
        x = p[f"w{i}"] @ x + p[f"b{i}"]
        if i < layers - 1:
            x = jax.nn.relu(x)
    return cross_entropy(x, y)


def logistic_with_l2(p: Any, x: Any, y: Any) -> Any:
    return cross_entropy(p["weight"] @ x + p["bias"], y) + 1e-3 * jnp.sum(p["weight"] ** 2)


def lstm(p: Any, x: Any, y: Any, ahead: bool = False) -> Any:
    """`ahead`: what the inputs give to the gates is one product of matrices before the loop."""
    h = c = jnp.zeros(p["wh"].shape[1], x.dtype)
    x = x.reshape(8, -1)
    for now in x @ p["wx"].T + p["b"] if ahead else x:
        seen = now if ahead else p["wx"] @ now + p["b"]
        i, f, g, o = jnp.split(seen + p["wh"] @ h, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return mse(p["wy"] @ h + p["by"], y)


def gru(p: Any, x: Any, y: Any) -> Any:
    h = jnp.zeros(p["vh"].shape[1], x.dtype)
    for now in x.reshape(8, -1):
        z, r = jnp.split(jax.nn.sigmoid(p["wx"] @ now + p["wh"] @ h + p["b"]), 2)
        h = (1 - z) * h + z * jnp.tanh(p["vx"] @ now + p["vh"] @ (r * h) + p["c"])
    return mse(p["wy"] @ h + p["by"], y)


def layer_norm(x: Any, gain: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * (jnp.mean(centred**2, -1, keepdims=True) + 1e-5) ** -0.5 * gain


def transformer(p: Any, x: Any, y: Any, heads: int = 2) -> Any:
    h = x.reshape(-1, p["head"].shape[1])
    tokens, width = h.shape
    mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    for block in range(2):
        normed = layer_norm(h, p[f"{block}.gain"])
        q, k, v = ((normed @ p[f"{block}.{name}"].T).reshape(tokens, heads, -1) for name in "qkv")
        scores = jnp.einsum("ihd,jhd->hij", q, k) / math.sqrt(width // heads)
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
        h = h + jnp.einsum("hij,jhd->ihd", weights, v).reshape(tokens, width) @ p[f"{block}.o"].T
        inner = jax.nn.gelu(layer_norm(h, p[f"{block}.gain_2"]) @ p[f"{block}.up"].T, approximate=False)
        h = h + inner @ p[f"{block}.down"].T
    return cross_entropy(p["head"] @ h[-1] + p["bias"], y)


def spline_network(p: Any, x: Any, y: Any) -> Any:
    for name in ("first", "second"):
        cubes = jax.nn.relu(x[:, None] - jnp.array(KNOTS, x.dtype)) ** 3
        basis = sum(c * cubes[:, i : i + INTERVALS + 3] for i, c in enumerate(BINOMIAL)) * ((2 / INTERVALS) ** -3 / 6)
        x = p[f"{name}_base"] @ jax.nn.silu(x) + jnp.einsum("uik,ik->u", p[name], basis)
    return mse(x, y)


def chebyshev_network(p: Any, x: Any, y: Any) -> Any:
    for name in ("first", "second"):
        terms = [jnp.ones_like(x), jnp.tanh(x)]
        for _ in range(p[name].shape[-1] - 2):
            terms.append(2 * terms[1] * terms[-1] - terms[-2])
        x = jnp.einsum("uik,ki->u", p[name], jnp.stack(terms))
    return mse(x, y)


def physics_loss(p: Any, x: Any, y: Any) -> Any:
    def u(at: Any) -> Any:
        one = jnp.tanh(at[:, None] * p["first"] + p["b1"])
        return jnp.tanh(one @ p["second"].T + p["b2"]) @ p["last"]

    step = 0.1
    left, middle, right = u(jnp.concatenate([x - step, x, x + step])).reshape(3, -1)
    residuals = (left - 2 * middle + right) / step**2 + middle
    return jnp.mean(residuals**2) + (u(jnp.zeros(1, x.dtype))[0] - y[0]) ** 2


def autoencoder(p: Any, x: Any, _: Any) -> Any:
    h = x
    for name in "abc":
        h = jax.nn.sigmoid(p[f"w{name}"] @ h + p[f"b{name}"])
    return mse(p["wd"] @ h + p["bd"], x)


def residual_network(p: Any, x: Any, y: Any) -> Any:
    h = x
    for block in range(len(p) // 3):
        h = h + p[f"{block}.v"] @ jax.nn.relu(p[f"{block}.w"] @ h + p[f"{block}.b"])
    return mse(h, y)


def convolve(x: Any, kernels: Any) -> Any:
    """(channels, side, side) with XLA's own convolution."""
    return jax.lax.conv_general_dilated(x[None], kernels.reshape(-1, len(x), 3, 3), (1, 1), "VALID")[0]


def multiply_windows(x: Any, kernels: Any) -> Any:
    """The same as a product of matrices: the windows are nine shifted pictures."""
    side = x.shape[1] - 2
    shifted = jnp.stack([x[:, a : a + side, b : b + side] for a in range(3) for b in range(3)], 1)
    return jnp.einsum("ck,kij->cij", kernels, shifted.reshape(-1, side, side))


def lenet(p: Any, x: Any, y: Any, convolution: Callable[[Any, Any], Any] = convolve) -> Any:
    h = x.reshape(1, math.isqrt(len(x)), -1)
    for i in range(2):
        h = jax.nn.relu(convolution(h, p[f"k{i}"]) + p[f"b{i}"][:, None, None])
        h = h.reshape(len(h), h.shape[1] // 2, 2, -1, 2).max((2, 4))
    h = jax.nn.relu(p["w2"] @ h.ravel() + p["b2"])
    return cross_entropy(p["w3"] @ h + p["b3"], y)


def bordered(p: Any, x: Any, y: Any) -> Any:
    h = x.reshape(1, math.isqrt(len(x)), -1)
    for i, stride in enumerate((1, 2, 2)):
        sums = jax.lax.conv_general_dilated(h[None], p[f"k{i}"], (stride, stride), ((1, 1), (1, 1)))[0]
        h = jax.nn.relu(sums + p[f"b{i}"][:, None, None])
    return cross_entropy(p["w"] @ h.mean((1, 2)) + p["b"], y)


def u_net(p: Any, x: Any, y: Any) -> Any:
    def convolution(name: str, h: Any) -> Any:
        sums = jax.lax.conv_general_dilated(h[None], p[name], (1,), ((1, 1),))[0]
        return jax.nn.relu(sums + p[f"{name}b"][:, None])

    whole = convolution("a", x[None])
    deep = convolution("b", whole.reshape(len(whole), -1, 2).mean(2))
    both = convolution("c", jnp.concatenate([whole, jnp.repeat(deep, 2, 1)]))
    return mse(p["o"] @ both + p["ob"], y)


def means() -> Any:
    """The matrix that takes the mean of each node's neighbours."""
    return np.array([[(n in ns) / len(ns) for n in range(NODES)] for ns in neighbours()])


def graph_network(p: Any, x: Any, y: Any) -> Any:
    h, near = x.reshape(NODES, -1), jnp.array(means(), x.dtype)
    for i in range(2):
        h = jax.nn.relu(h @ p[f"own{i}"].T + near @ h @ p[f"other{i}"].T + p[f"b{i}"])
    return mse(p["wy"] @ h.mean(0) + p["by"], y)


def sparse_network(p: Any, x: Any, y: Any) -> Any:
    functions = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu, "sin": jnp.sin}
    sources, kinds = wiring(len(x))
    values = x
    for level, (read, kind) in enumerate(zip(sources, kinds, strict=True)):
        sums = jnp.sum(p[f"w{level}"] * values[np.array(read)], 1) + p[f"b{level}"]
        units = jnp.choose(np.array(kind), [functions[name](sums) for name in ACTIVATIONS], mode="clip")
        values = jnp.concatenate([values, units])
    return mse(p["wy"] @ units + p["by"], y)


LOSSES: dict[str, tuple[Loss, ...]] = {
    "logistic regression, L2": (logistic_with_l2,),
    "LSTM": (lstm, partial(lstm, ahead=True)),
    "GRU": (gru,),
    "transformer, 2 blocks": (transformer,),
    "B-spline KAN": (spline_network,),
    "Chebyshev KAN": (chebyshev_network,),
    "physics loss": (physics_loss,),
    "autoencoder": (autoencoder,),
    "residual MLP": (residual_network,),
    "LeNet, 14 x 14": (lenet, partial(lenet, convolution=multiply_windows)),
    "graph network": (graph_network,),
    "sparse random network": (sparse_network,),
    **dict.fromkeys(WIDE, (dense,)),
    "convolutions, borders": (bordered,),
    "U-net of 32": (u_net,),
}


def transposed(parameters: Any) -> Any:
    return {name: p.T for name, p in parameters.items()}


class Scan:
    """An epoch a call, compiled ahead."""

    def __init__(self, task: Task, loss: Loss, in_out: bool = False) -> None:
        jax.config.update("jax_enable_x64", task.dtype == "f64")
        model = SMALL[task.model]
        self.task, self.images, self.rate = task, task.images, model.rate
        self.loss: Loss = (lambda p, x, y: loss(transposed(p), x, y)) if in_out else loss
        self.arrange = transposed if in_out else dict
        x, y = model.examples(task.images)
        self.data = (
            self.batches(x.astype(task.floats)),
            self.batches(y if model.labels else y.astype(task.floats)) if y is not None else None,
        )
        self.epoch: Any = None
        self.note = "scan"

    def batches(self, examples: Any) -> Any:
        batch = self.task.batch
        return jnp.asarray(examples if batch == 1 else examples.reshape(-1, batch, *examples.shape[1:]))

    def step(self, parameters: Any, example: Any) -> Any:
        x, y = example

        def loss(p: Any) -> Any:
            if self.task.batch == 1:
                return self.loss(p, x, y)
            return jnp.mean(jax.vmap(self.loss, (None, 0, None if y is None else 0))(p, x, y))

        value, gradients = jax.value_and_grad(loss)(parameters)
        return jax.tree.map(lambda p, g: p - self.rate * g, parameters, gradients), value

    def load(self, weights: Named) -> None:
        loaded = {name: jnp.array(w, self.task.floats, copy=True) for name, w in self.arrange(weights).items()}
        self.parameters = jax.block_until_ready(loaded)
        if self.epoch is None:
            start = perf_counter()
            epoch = jax.jit(lambda p, data: jax.lax.scan(self.step, p, data), donate_argnums=0)
            self.epoch = epoch.lower(self.parameters, self.data).compile()
            self.note = f"scan, compiled in {perf_counter() - start:.1f} s"

    def run(self, part: int = 0) -> None:
        self.parameters, losses = self.epoch(self.parameters, self.data)
        jax.block_until_ready((self.parameters, losses))

    def weights(self) -> Named:
        return {name: np.asarray(w, np.float64) for name, w in self.arrange(self.parameters).items()}


class Fastest:
    """Of several forms of one model the one that is fastest in a short trial, at the first load."""

    def __init__(self, task: Task) -> None:
        layouts = (False, True) if task.model in WIDE else (False,)
        self.forms = [Scan(task, loss, in_out) for loss in LOSSES[task.model] for in_out in layouts]
        self.images, self.note = task.images, "scan"

    def load(self, weights: Named) -> None:
        if len(self.forms) > 1:
            self.forms = [min(self.forms, key=lambda form: self.trial(form, weights))]
        self.forms[0].load(weights)
        self.note = self.forms[0].note

    def trial(self, form: Scan, weights: Named) -> float:
        times = []
        for _ in range(TRIALS):
            form.load(weights)
            start = perf_counter()
            form.run()
            times.append(perf_counter() - start)
        return min(times)

    def run(self, part: int = 0) -> None:
        self.forms[0].run(part)

    def weights(self) -> Named:
        return self.forms[0].weights()


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Any]]:
    return {"JAX, lax.scan": partial(Fastest, task)}
