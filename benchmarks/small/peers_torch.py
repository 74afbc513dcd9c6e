"""The small models in PyTorch: each function is the mean loss of a batch. Eager, and through torch.compile.

Batches are tensors cut beforehand, and a step is the usual one: zero_grad, loss, backward, SGD(foreach=True).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.small import Named
from benchmarks.small.models import ACTIVATIONS, BINOMIAL, INTERVALS, KNOTS, NODES, SMALL, WIDE, neighbours, wiring
from benchmarks.tasks import Data, Task

VERSION = f"PyTorch {torch.__version__}"
STEPS = 64  # a run, at most: tens of milliseconds
COMPILED = (32, 64)  # batches: each takes up to a minute to compile
Loss = Callable[[Any, Any, Any], Any]


def dense(p: Any, x: Any, y: Any) -> Any:
    layers = len(p) // 2
    for i in range(layers - 1):
        x = F.linear(x, p[f"w{i}"], p[f"b{i}"]).relu()
    return F.cross_entropy(F.linear(x, p[f"w{layers - 1}"], p[f"b{layers - 1}"]), y)


def logistic_with_l2(p: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(F.linear(x, p["weight"], p["bias"]), y) + 1e-3 * (p["weight"] ** 2).sum()


def lstm(p: Any, x: Any, y: Any) -> Any:
    h = c = x.new_zeros(len(x), p["wh"].shape[1])
    for now in F.linear(x.view(len(x), 8, -1), p["wx"], p["b"]).unbind(1):
        i, f, g, o = (now + h @ p["wh"].T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return F.mse_loss(F.linear(h, p["wy"], p["by"]), y)


def gru(p: Any, x: Any, y: Any) -> Any:
    h = x.new_zeros(len(x), p["vh"].shape[1])
    x = x.view(len(x), 8, -1)
    gates, candidates = F.linear(x, p["wx"], p["b"]).unbind(1), F.linear(x, p["vx"], p["c"]).unbind(1)
    for gate, candidate in zip(gates, candidates, strict=True):
        z, r = (gate + h @ p["wh"].T).sigmoid().chunk(2, 1)
        h = (1 - z) * h + z * (candidate + (r * h) @ p["vh"].T).tanh()
    return F.mse_loss(F.linear(h, p["wy"], p["by"]), y)


def transformer(p: Any, x: Any, y: Any, heads: int = 2) -> Any:
    width = p["head"].shape[1]
    h = x.view(len(x), -1, width)
    for block in range(2):
        normed = F.layer_norm(h, (width,), p[f"{block}.gain"])
        q, k, v = (F.linear(normed, p[f"{block}.{name}"]).unflatten(2, (heads, -1)).transpose(1, 2) for name in "qkv")
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + F.linear(mixed.transpose(1, 2).flatten(2), p[f"{block}.o"])
        inner = F.gelu(F.linear(F.layer_norm(h, (width,), p[f"{block}.gain_2"]), p[f"{block}.up"]))
        h = h + F.linear(inner, p[f"{block}.down"])
    return F.cross_entropy(F.linear(h[:, -1], p["head"], p["bias"]), y)


def spline_network(p: Any, x: Any, y: Any) -> Any:
    knots = x.new_tensor(KNOTS)
    for name in ("first", "second"):
        cubes = (x[..., None] - knots).relu() ** 3
        basis = sum(c * cubes[..., i : i + INTERVALS + 3] for i, c in enumerate(BINOMIAL)) * ((2 / INTERVALS) ** -3 / 6)
        x = F.linear(F.silu(x), p[f"{name}_base"]) + basis.flatten(1) @ p[name].flatten(1).T
    return F.mse_loss(x, y)


def chebyshev_network(p: Any, x: Any, y: Any) -> Any:
    for name in ("first", "second"):
        terms = [torch.ones_like(x), x.tanh()]
        for _ in range(p[name].shape[-1] - 2):
            terms.append(2 * terms[1] * terms[-1] - terms[-2])
        x = torch.stack(terms, 2).flatten(1) @ p[name].flatten(1).T
    return F.mse_loss(x, y)


def physics_loss(p: Any, x: Any, y: Any) -> Any:
    def u(at: Any) -> Any:
        one = (at[..., None] * p["first"] + p["b1"]).tanh()
        return F.linear(one, p["second"], p["b2"]).tanh() @ p["last"]

    step = 0.1
    left, middle, right = u(torch.stack([x - step, x, x + step]))
    residuals = (left - 2 * middle + right) / step**2 + middle
    return (residuals**2).mean() + F.mse_loss(u(x.new_zeros(1)).expand_as(y), y)


def autoencoder(p: Any, x: Any, _: Any) -> Any:
    h = x
    for name in "abc":
        h = F.linear(h, p[f"w{name}"], p[f"b{name}"]).sigmoid()
    return F.mse_loss(F.linear(h, p["wd"], p["bd"]), x)


def residual_network(p: Any, x: Any, y: Any) -> Any:
    h = x
    for block in range(len(p) // 3):
        h = h + F.linear(F.linear(h, p[f"{block}.w"], p[f"{block}.b"]).relu(), p[f"{block}.v"])
    return F.mse_loss(h, y)


def lenet(p: Any, x: Any, y: Any) -> Any:
    side = math.isqrt(x.shape[1])
    h = x.view(len(x), 1, side, side)
    for i in range(2):
        kernels = p[f"k{i}"].view(-1, h.shape[1], 3, 3)
        h = F.max_pool2d(F.conv2d(h, kernels, p[f"b{i}"]).relu(), 2)
    h = F.linear(h.flatten(1), p["w2"], p["b2"]).relu()
    return F.cross_entropy(F.linear(h, p["w3"], p["b3"]), y)


def bordered(p: Any, x: Any, y: Any) -> Any:
    side = math.isqrt(x.shape[1])
    h = x.view(len(x), 1, side, side)
    for i, stride in enumerate((1, 2, 2)):
        h = F.conv2d(h, p[f"k{i}"], p[f"b{i}"], stride, 1).relu()
    return F.cross_entropy(F.linear(h.mean((2, 3)), p["w"], p["b"]), y)


def u_net(p: Any, x: Any, y: Any) -> Any:
    whole = F.conv1d(x[:, None], p["a"], p["ab"], padding=1).relu()
    deep = F.conv1d(F.avg_pool1d(whole, 2), p["b"], p["bb"], padding=1).relu()
    both = torch.cat([whole, deep.repeat_interleave(2, 2)], 1)
    out = torch.einsum("nct,c->nt", F.conv1d(both, p["c"], p["cb"], padding=1).relu(), p["o"])
    return F.mse_loss(out + p["ob"], y)


MEANS = np.array([[(n in ns) / len(ns) for n in range(NODES)] for ns in neighbours()])


def graph_network(p: Any, x: Any, y: Any) -> Any:
    h, means = x.view(len(x), NODES, -1), constant(MEANS, x.dtype)
    for i in range(2):
        h = (F.linear(h, p[f"own{i}"], p[f"b{i}"]) + F.linear(means @ h, p[f"other{i}"])).relu()
    return F.mse_loss(F.linear(h.mean(1), p["wy"], p["by"]), y)


def sparse_network(p: Any, x: Any, y: Any) -> Any:
    sources, kinds = wiring(x.shape[1])
    values = units = x
    for level, (read, kind) in enumerate(zip(sources, kinds, strict=True)):
        seen = values[:, constant(np.array(read))]
        sums = (p[f"w{level}"] * seen).sum(2) + p[f"b{level}"]
        units = torch.stack([getattr(sums, name)() for name in ACTIVATIONS], 0)
        units = units[constant(np.array(kind)), :, torch.arange(units.shape[2])].T
        values = torch.cat([values, units], 1)
    return F.mse_loss(F.linear(units, p["wy"], p["by"]), y)


def constant(array: Any, dtype: Any = None) -> Any:
    """A tensor of a constant, made once."""
    key = array.tobytes(), dtype
    if key not in CONSTANTS:
        CONSTANTS[key] = torch.tensor(array, dtype=dtype)
    return CONSTANTS[key]


CONSTANTS: dict[Any, Any] = {}
LOSSES: dict[str, Loss] = {
    "logistic regression, L2": logistic_with_l2,
    "LSTM": lstm,
    "GRU": gru,
    "transformer, 2 blocks": transformer,
    "B-spline KAN": spline_network,
    "Chebyshev KAN": chebyshev_network,
    "physics loss": physics_loss,
    "autoencoder": autoencoder,
    "residual MLP": residual_network,
    "LeNet, 14 x 14": lenet,
    "graph network": graph_network,
    "sparse random network": sparse_network,
    **dict.fromkeys(WIDE, dense),
    "convolutions, borders": bordered,
    "U-net of 32": u_net,
}


class Eager:
    def __init__(self, task: Task, compiled: bool = False) -> None:
        model = SMALL[task.model]
        self.dtype = torch.float64 if task.dtype == "f64" else torch.float32
        self.images = min(task.images, STEPS * task.batch)
        self.rate, self.note = model.rate, ""
        x, y = model.examples(task.images)
        inputs = torch.tensor(x[: self.images], dtype=self.dtype).split(task.batch)
        kept = torch.zeros(self.images) if y is None else torch.tensor(y[: self.images])
        targets = kept.to(torch.int64 if model.labels else self.dtype).split(task.batch)
        self.steps = list(zip(inputs, targets, strict=True))
        self.loss = torch.compile(LOSSES[task.model]) if compiled else LOSSES[task.model]
        self.parameters: dict[str, Any] = {}

    def load(self, weights: Named) -> None:
        if not self.parameters:
            self.parameters = {
                name: torch.tensor(w, dtype=self.dtype, requires_grad=True) for name, w in weights.items()
            }
            self.optimizer = torch.optim.SGD(self.parameters.values(), lr=self.rate, foreach=True)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(torch.from_numpy(weights[name]))

    def run(self, part: int = 0) -> None:
        loss, optimizer, parameters = self.loss, self.optimizer, self.parameters
        for x, y in self.steps:
            optimizer.zero_grad()
            loss(parameters, x, y).backward()
            optimizer.step()

    def weights(self) -> Named:
        return {name: p.detach().numpy().astype(np.float64) for name, p in self.parameters.items()}


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Any]]:
    torch.set_num_threads(threads)
    found: dict[str, Callable[[], Any]] = {"PyTorch": partial(Eager, task)}
    if task.batch in COMPILED:
        found["torch.compile"] = partial(Eager, task, compiled=True)
    return found
