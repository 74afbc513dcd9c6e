"""The models. Each is the loss of one example: loss(m, p, x, y).

`m` has the functions of NumPy, which are those of jax.numpy, and `sigmoid`, `softmax` over the last axis, `windows`,
all squares of a side in images, and `rows`, those of a table that tokens select; `p` the parameters by name, `x` the
inputs and `y` the targets, or None.
The compiler was written without these: what is tuned to the other benchmarks shows here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Loss = Callable[[Any, Any, Any, Any], Any]


@dataclass(frozen=True)
class Twin:
    loss: Loss
    parameters: dict[str, Shape]
    inputs: Shape
    targets: Shape | None
    classes: bool = False  # rows of targets are 1 at one place
    words: int = 0  # inputs are so many tokens, of a vocabulary of these


TWINS: dict[str, Twin] = {}


def twin(
    name: str, parameters: dict[str, Shape], inputs: Shape, targets: Shape | None, classes: bool = False, words: int = 0
) -> Callable[[Loss], Loss]:
    def known(loss: Loss) -> Loss:
        TWINS[name] = Twin(loss, parameters, inputs, targets, classes, words)
        return loss

    return known


def dense(**layers: Shape) -> dict[str, Shape]:
    """Weights and biases of layers from so many to so many numbers."""
    return {f"{name}{kind}": s for name, (i, o) in layers.items() for kind, s in (("_w", (i, o)), ("_b", (o,)))}


def layer(p: Any, name: str, x: Any) -> Any:
    return x @ p[f"{name}_w"] + p[f"{name}_b"]


def mse(out: Any, y: Any) -> Any:
    return ((out - y) ** 2).mean()


# Sequences


@twin("diagonal state space", {"a": (16,), "b": (8, 16), "out": (16, 4)}, (24, 8), (4,))
def state_space(m: Any, p: Any, x: Any, y: Any) -> Any:
    """S4D (Gu et al., 2022), real."""
    state = m.zeros(16)
    for now in x:
        state = m.sigmoid(p["a"]) * state + now @ p["b"]
    return mse(m.tanh(state) @ p["out"], y)


@twin(
    "selective state space",
    {"a": (8, 4), "b": (8, 4), "c": (8, 4), "dt": (8, 8), "skip": (8,), "out": (8, 3)},
    (12, 8),
    (3,),
)
def selective(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Mamba (Gu and Dao, 2023)."""
    state, told = m.zeros((8, 4)), 0.0
    for now in x:
        step = m.log(1 + m.exp(now @ p["dt"]))
        state = m.exp(-step[:, None] * m.exp(p["a"])) * state + (step * now)[:, None] * (now @ p["b"])[None, :]
        told = told + state @ (now @ p["c"]) + p["skip"] * now
    return mse((told / 12) @ p["out"], y)


@twin(
    "receptance and decay",
    {**dict.fromkeys(("key", "value", "open", "mix"), (8, 8)), **dict.fromkeys("wufgh", (8,)), "out": (8, 3)},
    (10, 8),
    (3,),
)
def receptance(m: Any, p: Any, x: Any, y: Any) -> Any:
    """RWKV (Peng et al., 2023)."""
    above, below, before, told = m.zeros(8), m.zeros(8), m.zeros(8), 0.0
    keep = m.exp(-m.exp(p["w"]))
    for now in x:
        key, value, opened = (
            (now * p[share] + before * (1 - p[share])) @ p[name]
            for share, name in (("f", "key"), ("g", "value"), ("h", "open"))
        )
        first, other = m.exp(key + p["u"]), m.exp(key)
        told = told + (m.sigmoid(opened) * (above + first * value) / (below + first + 1e-3)) @ p["mix"]
        above, below, before = keep * above + other * value, keep * below + other, now
    return mse((told / 10) @ p["out"], y)


@twin(
    "gated convolutions over time",
    {"f": (3, 2, 6, 6), "g": (3, 2, 6, 6), "first": (4, 6), "out": (6, 4)},
    (24, 4),
    (4,),
)
def gated(m: Any, p: Any, x: Any, y: Any) -> Any:
    """WaveNet (van den Oord et al., 2016)."""
    h = x @ p["first"]
    for i, dilation in enumerate((1, 2, 4)):
        old, new = h[:-dilation], h[dilation:]
        a, b = (old @ p[name][i, 0] + new @ p[name][i, 1] for name in "fg")
        h = new + m.tanh(a) * m.sigmoid(b)
    return mse(h.mean(axis=0) @ p["out"], y)


@twin("chain of labels", {"after": (5, 5), "emit": (6, 5)}, (10, 6), (10, 5), classes=True)
def chain(m: Any, p: Any, x: Any, y: Any) -> Any:
    """A conditional random field (Lafferty et al., 2001)."""
    emitted = x @ p["emit"]
    paths = emitted[0]
    for t in range(1, 10):
        paths = m.log(m.exp(paths[:, None] + p["after"]).sum(axis=0)) + emitted[t]
    pairs = sum((y[t][:, None] * p["after"] * y[t + 1][None, :]).sum() for t in range(9))
    return m.log(m.exp(paths).sum()) - (emitted * y).sum() - pairs


@twin(
    "controller with a memory",
    {"x": (6, 16), "h": (16, 16), "key": (16, 4), "erase": (16, 4), "add": (16, 4), "out": (20, 3)},
    (6, 6),
    (3,),
)
def memory(m: Any, p: Any, x: Any, y: Any) -> Any:
    """A neural Turing machine (Graves et al., 2014) that finds its eight rows by content."""
    rows, h = m.zeros((8, 4)) + np.linspace(-1, 1, 32).reshape(8, 4), m.zeros(16)
    read = None
    for now in x:
        h = m.tanh(now @ p["x"] + h @ p["h"])
        share = m.softmax(rows @ m.tanh(h @ p["key"]))
        rows = rows * (1 - share[:, None] * m.sigmoid(h @ p["erase"])[None, :])
        rows = rows + share[:, None] * m.tanh(h @ p["add"])[None, :]
        read = share @ rows
    return mse(m.concatenate([h, read]) @ p["out"], y)


@twin(
    "binary tree", {"leaf": (5, 8), "l": (8, 8), "r": (8, 8), "b": (8,), "gate": (16, 8), "out": (8, 2)}, (8, 5), (2,)
)
def tree(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Pairs become one, with a gate, as in a tree-structured recurrence (Tai et al., 2015)."""
    level = [m.tanh(x[i] @ p["leaf"]) for i in range(8)]
    while len(level) > 1:
        pairs, level = [*zip(level[::2], level[1::2], strict=True)], []
        for a, b in pairs:
            gate = m.sigmoid(m.concatenate([a, b]) @ p["gate"])
            level.append(gate * m.tanh(a @ p["l"] + b @ p["r"] + p["b"]) + (1 - gate) * a)
    return mse(level[0] @ p["out"], y)


# Layers


@twin("radiance field", dense(a=(6, 24), b=(24, 24), c=(24, 24), d=(24, 3)), (2,), (3,))
def radiance(m: Any, p: Any, x: Any, y: Any) -> Any:
    """NeRF's network (Mildenhall et al., 2020) of sines and cosines of a place."""
    h = m.concatenate([m.sin(x), m.cos(x), m.sin(2.0 * x)])
    for name in "abc":
        h = m.maximum(layer(p, name, h), 0)
    return mse(m.sigmoid(layer(p, "d", h)), y)


@twin("network of sines", dense(a=(2, 32), b=(32, 32), c=(32, 1)), (2,), (1,))
def sines(m: Any, p: Any, x: Any, y: Any) -> Any:
    """SIREN (Sitzmann et al., 2020)."""
    return mse(layer(p, "c", m.sin(layer(p, "b", m.sin(5.0 * layer(p, "a", x))))), y)


@twin("highway network", dense(**{f"{kind}{i}": (12, 12) for i in range(3) for kind in "tg"}, out=(12, 4)), (12,), (4,))
def highway(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Srivastava et al., 2015."""
    for i in range(3):
        gate = m.sigmoid(layer(p, f"g{i}", x))
        x = gate * m.tanh(layer(p, f"t{i}", x)) + (1 - gate) * x
    return mse(layer(p, "out", x), y)


@twin("maximum over points", {"a": (3, 16), "b": (16, 32), "c": (32, 8), "d": (8, 3)}, (16, 3), (3,))
def points(m: Any, p: Any, x: Any, y: Any) -> Any:
    """PointNet (Qi et al., 2017)."""
    found = m.maximum(m.maximum(x @ p["a"], 0) @ p["b"], 0).max(axis=0)
    return mse(m.maximum(found @ p["c"], 0) @ p["d"], y)


@twin("hypernetwork", dense(h=(6, 64)), (14,), (1,))
def hyper(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Ha et al., 2016."""
    return ((m.tanh(layer(p, "h", x[:6])).reshape(8, 8) @ x[6:]).mean() - y[0]) ** 2


@twin("fixed point", {"w": (12, 12), "u": (6, 12), "b": (12,), "out": (12, 3)}, (6,), (3,))
def fixed_point(m: Any, p: Any, x: Any, y: Any) -> Any:
    """A deep equilibrium model (Bai et al., 2019), unrolled."""
    z, given = m.zeros(12), x @ p["u"] + p["b"]
    for _ in range(15):
        z = m.tanh(z @ p["w"] + given)
    return mse(z @ p["out"], y)


@twin("associative memory", {"keys": (16, 8), "values": (16, 4)}, (8,), (4,))
def associative(m: Any, p: Any, x: Any, y: Any) -> Any:
    """A modern Hopfield network (Ramsauer et al., 2020)."""
    for _ in range(3):
        x = m.softmax(2.0 * (p["keys"] @ x)) @ p["keys"]
    return mse(m.softmax(p["keys"] @ x) @ p["values"], y)


@twin(
    "latents that look at a sequence",
    {**dict.fromkeys("qkv", (8, 8)), "latents": (4, 8), "out": (8, 3)},
    (16, 8),
    (3,),
)
def latents(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Perceiver (Jaegle et al., 2021)."""
    keys, values, rows = x @ p["k"], x @ p["v"], p["latents"]
    for _ in range(2):
        rows = rows + m.softmax((rows @ p["q"]) @ keys.T / 8**0.5) @ values
    return mse(rows.mean(axis=0) @ p["out"], y)


@twin("capsules", {"w": (4, 6, 4, 4), "out": (6, 3)}, (4, 4), (3,))
def capsules(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Two rounds of routing by agreement (Sabour et al., 2017)."""
    votes = m.einsum("ia,ijba->ijb", x, p["w"])
    shares = m.zeros((4, 6)) + 1 / 6
    agreed = m.zeros((4, 6))
    for _ in range(2):
        sums = m.einsum("ij,ijb->jb", shares, votes)
        size = (sums**2).sum(axis=1, keepdims=True)
        out = sums * (size / (1 + size) / m.sqrt(size + 1e-6))
        agreed = agreed + m.einsum("ijb,jb->ij", votes, out)
        shares = m.softmax(agreed)
    return mse(m.sqrt((out**2).sum(axis=1) + 1e-6) @ p["out"], y)


@twin(
    "minimal gated unit",
    {"x_f": (6, 16), "h_f": (16, 16), "x": (6, 16), "h": (16, 16), "out": (16, 3)},
    (12, 6),
    (3,),
)
def minimal(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Zhou et al., 2016."""
    h = m.zeros(16)
    for now in x:
        forget = m.sigmoid(now @ p["x_f"] + h @ p["h_f"])
        h = (1 - forget) * h + forget * m.tanh(now @ p["x"] + (forget * h) @ p["h"])
    return mse(h @ p["out"], y)


@twin("mixer", dense(into=(8, 8), a=(6, 12), b=(12, 6), c=(8, 16), d=(16, 8), out=(8, 4)), (6, 8), (4,))
def mixer(m: Any, p: Any, x: Any, y: Any) -> Any:
    """MLP-Mixer (Tolstikhin et al., 2021): two blocks of the same weights."""
    x = layer(p, "into", x)
    for _ in range(2):
        x = x + layer(p, "b", m.tanh(layer(p, "a", x.T))).T
        x = x + layer(p, "d", m.tanh(layer(p, "c", x)))
    return mse(layer(p, "out", x.mean(axis=0)), y)


PATHS = np.eye(12) + np.eye(12, k=1) + np.eye(12, k=-1) + np.eye(12, k=5)


@twin("graph convolution", {"a": (6, 12), "b": (12, 3)}, (12, 6), (12, 3))
def graph(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Kipf and Welling, 2017: the graph is a constant."""
    near = PATHS / PATHS.sum(axis=1, keepdims=True)
    return mse(near @ (m.maximum(near @ (x @ p["a"]), 0) @ p["b"]), y)


# Images


@twin("squeeze and excitation", {"k": (8, 3, 3, 3), "s": (8, 4), "e": (4, 8), "out": (8, 5)}, (3, 10, 10), (5,))
def squeeze(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Hu et al., 2018."""
    maps = m.maximum(m.einsum("ocuv,cijuv->oij", p["k"], m.windows(x, 3)), 0)
    gate = m.sigmoid(m.maximum(maps.mean(axis=(1, 2)) @ p["s"], 0) @ p["e"])
    return mse((maps * gate[:, None, None]).mean(axis=(1, 2)) @ p["out"], y)


@twin("normalised convolutions", {"first": (6, 1, 5, 5), "second": (12, 6, 3, 3), "out": (12, 10)}, (1, 16, 16), (10,))
def normalised(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Each map of the first layer has a mean of 0 and a variance of 1 (Ulyanov et al., 2016)."""
    maps = m.einsum("ocuv,cijuv->oij", p["first"], m.windows(x, 5))
    centred = maps - maps.mean(axis=(1, 2), keepdims=True)
    maps = m.maximum(centred / m.sqrt((centred**2).mean(axis=(1, 2), keepdims=True) + 1e-5), 0)
    maps = maps.reshape(6, 6, 2, 6, 2).mean(axis=(2, 4))
    maps = m.maximum(m.einsum("ocuv,cijuv->oij", p["second"], m.windows(maps, 3)), 0)
    return mse(maps.mean(axis=(1, 2)) @ p["out"], y)


# Dense layers


@twin("mixture of experts", {"gate": (8, 4), "a": (4, 8, 16), "b": (4, 16, 3)}, (8,), (3,))
def experts(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Jacobs et al., 1991."""
    h = m.maximum(m.einsum("i,eij->ej", x, p["a"]), 0)
    return mse(m.einsum("e,ej,ejk->k", m.softmax(x @ p["gate"]), h, p["b"]), y)


@twin("gated linear units", {"a": (16, 32), "gate": (16, 32), "b": (32, 16)}, (16,), (16,))
def gated_linear(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Two blocks of a transformer's dense layers (Shazeer, 2020), with the same weights."""
    for _ in range(2):
        gate = x @ p["gate"]
        gate = 0.5 * gate * (1 + m.tanh(0.7978845608 * (gate + 0.044715 * gate * gate * gate)))
        x = x + (gate * (x @ p["a"])) @ p["b"]
    return mse(x, y)


@twin("swish", dense(a=(16, 64), b=(64, 64), c=(64, 4)), (16,), (4,))
def swish(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Ramachandran et al., 2017."""
    for name in "ab":
        x = layer(p, name, x)
        x = x * m.sigmoid(x)
    return mse(layer(p, "c", x), y)


@twin("masked autoregression", dense(a=(10, 24), b=(24, 10)), (10,), None)
def masked(m: Any, p: Any, x: Any, _: Any) -> Any:
    """MADE (Germain et al., 2015): masks of zeros and ones keep each output from its own input and those behind."""
    at, unit = np.arange(10), np.arange(24) % 9
    h = m.maximum(x @ (p["a_w"] * (unit[None, :] >= at[:, None])) + p["a_b"], 0)
    return ((h @ (p["b_w"] * (at[None, :] > unit[:, None])) + p["b_b"] - x) ** 2).sum()


# Losses


@twin("contrastive pairs", {"first": (10, 16), "second": (16, 8)}, (6, 20), None)
def contrastive(m: Any, p: Any, x: Any, _: Any) -> Any:
    """InfoNCE (van den Oord et al., 2018) of six pairs."""
    left, right = (m.tanh(half @ p["first"]) @ p["second"] for half in (x[:, :10], x[:, 10:]))
    left, right = (rows / m.sqrt((rows**2).sum(axis=1, keepdims=True) + 1e-6) for rows in (left, right))
    alike = 5.0 * (left @ right.T)
    return (m.log(m.exp(alike).sum(axis=1)) - m.diagonal(alike)).mean()


@twin("clipped policy", dense(a=(8, 32), b=(32, 32), act=(32, 4), value=(32, 1)), (8,), (6,))
def policy(m: Any, p: Any, x: Any, y: Any) -> Any:
    """PPO (Schulman et al., 2017): the action as four weights, its advantage and the return."""
    h = m.tanh(layer(p, "b", m.tanh(layer(p, "a", x))))
    shares, value = m.softmax(layer(p, "act", h)), layer(p, "value", h)[0]
    ratio = 4.0 * (shares * y[:4]).sum(axis=0, keepdims=True)
    gain = m.minimum(ratio * y[4], m.clip(ratio, 0.8, 1.2) * y[4]).sum()
    return 0.5 * (value - y[5]) ** 2 - gain + 0.01 * (shares * m.log(shares + 1e-6)).sum()


@twin("quantiles", dense(a=(10, 32), b=(32, 3)), (10,), (1,))
def quantiles(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Koenker and Bassett, 1978."""
    error, shares = y - layer(p, "b", m.maximum(layer(p, "a", x), 0)), np.array([0.1, 0.5, 0.9])
    return m.maximum(shares * error, (shares - 1) * error).mean()


@twin("variational autoencoder", dense(a=(8, 16), mean=(16, 4), spread=(16, 4), c=(4, 16), out=(16, 8)), (8,), (4,))
def variational(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Kingma and Welling, 2013; the noise is the target."""
    h = m.tanh(layer(p, "a", x))
    mean, spread = layer(p, "mean", h), layer(p, "spread", h)
    out = layer(p, "out", m.tanh(layer(p, "c", mean + m.exp(0.5 * spread) * y)))
    return ((out - x) ** 2).sum() - 0.5 * (1 + spread - mean**2 - m.exp(spread)).sum()


@twin("coupling flow", dense(s=(4, 16), s_2=(16, 4), t=(4, 16), t_2=(16, 4)), (4,), (4,))
def flow(m: Any, p: Any, x: Any, y: Any) -> Any:
    """RealNVP (Dinh et al., 2016): three couplings of two halves, one of which is the target."""
    volume = 0.0
    for _ in range(3):
        scale, shift = (layer(p, f"{name}_2", m.tanh(layer(p, name, x))) for name in "st")
        x, y = y * m.exp(m.tanh(scale)) + shift, x
        volume = volume + m.tanh(scale).sum()
    return 0.5 * ((x**2).sum() + (y**2).sum()) - volume


# Physics


@twin("Runge and Kutta", {"w": (4, 4), "c": (4,)}, (12,), None)
def steps(m: Any, p: Any, x: Any, _: Any) -> Any:
    """Eight steps of a differential equation that a network is (Chen et al., 2018), and two observations."""

    def slope(state: Any) -> Any:
        return m.tanh(state @ p["w"]) * p["c"] - 0.1 * state

    state, loss = x[:4], 0.0
    for i in range(8):
        a = slope(state)
        b = slope(state + 0.05 * a)
        c = slope(state + 0.05 * b)
        state = state + 0.1 / 6 * (a + 2.0 * b + 2.0 * c + slope(state + 0.1 * c))
        if i in (3, 7):
            loss = loss + ((state - x[i + 1 : i + 5]) ** 2).sum()
    return loss


@twin("Hamiltonian", {"a": (4, 32), "a_b": (32,), "b": (32, 32), "b_b": (32,), "c": (32,)}, (4,), (4,))
def hamiltonian(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Greydanus et al., 2019: how a state moves is the derivative of an energy, which is written out."""
    first = m.tanh(x @ p["a"] + p["a_b"])
    second = m.tanh(first @ p["b"] + p["b_b"])
    slope = p["a"] @ ((p["b"] @ ((1 - second**2) * p["c"])) * (1 - first**2))
    return mse(m.concatenate([slope[2:], -1.0 * slope[:2]]), y)


@twin("coupled oscillators", {"phase": (12,), "rate": (12,), "k": (12, 12)}, (12,), None)
def oscillators(m: Any, p: Any, x: Any, _: Any) -> Any:
    """Kuramoto, 1975: how far twelve are from one phase after five steps."""
    phase = x + p["phase"]
    for _ in range(5):
        phase = phase + 0.1 * (p["rate"] + (p["k"] * m.sin(phase[None, :] - phase[:, None])).sum(axis=1))
    return 1.0 - m.cos(phase).mean() ** 2 - m.sin(phase).mean() ** 2


# Tokens


@twin("factorization", {"v": (200, 16), "bias": (200, 1)}, (2,), (1,), words=200)
def factorization(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Koren et al., 2009: users and what they like, in one table."""
    v, bias = m.rows(p["v"], x), m.rows(p["bias"], x)
    return ((v[0] * v[1]).sum() + bias.sum() - y[0]) ** 2


@twin("factorization machine", {"v": (300, 8), "w": (300, 1)}, (6,), (1,), words=300)
def machine(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Rendle, 2010: all pairs of six words."""
    v = m.rows(p["v"], x)
    pairs = (v.sum(axis=0) ** 2 - (v * v).sum(axis=0)).sum()
    return (0.5 * pairs + m.rows(p["w"], x).sum() - y[0]) ** 2


@twin("mean of words", {"e": (500, 16), "out": (16, 4)}, (12,), (4,), words=500)
def mean_of_words(m: Any, p: Any, x: Any, y: Any) -> Any:
    """fastText (Joulin et al., 2016)."""
    return mse(m.rows(p["e"], x).mean(axis=0) @ p["out"], y)


@twin("words before the next", {"e": (100, 8), **dense(a=(64, 16), b=(16, 4))}, (8,), (4,), words=100)
def words_before(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Bengio et al., 2003, for a few classes."""
    return mse(layer(p, "b", m.tanh(layer(p, "a", m.rows(p["e"], x).reshape(64)))), y)


@twin("word and neighbours", {"e": (300, 16), "out": (300, 16)}, (6,), None, words=300)
def neighbours(m: Any, p: Any, x: Any, _: Any) -> Any:
    """word2vec (Mikolov et al., 2013): a neighbour, and four words that are none."""
    signs = np.array([1.0, -1.0, -1.0, -1.0, -1.0])
    alike = m.rows(p["out"], x)[1:] @ m.rows(p["e"], x)[0]
    return -m.log(m.sigmoid(signs * alike)).sum()


@twin("translated entities", {"e": (200, 12), "r": (200, 12)}, (4,), None, words=200)
def translated(m: Any, p: Any, x: Any, _: Any) -> Any:
    """TransE (Bordes et al., 2013): head, relation, tail, and another tail."""
    e, r = m.rows(p["e"], x), m.rows(p["r"], x)[1]
    far = ((e[0] + r - e[2:]) ** 2).sum(axis=1)
    return m.maximum(1 + far[:1] - far[1:], 0).sum()


@twin("wide and deep", {"wide": (300, 1), "e": (300, 8), **dense(a=(32, 16), b=(16, 1))}, (4,), (1,), words=300)
def wide_and_deep(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Cheng et al., 2016."""
    deep = layer(p, "b", m.maximum(layer(p, "a", m.rows(p["e"], x).reshape(32)), 0))
    logit = (deep + m.rows(p["wide"], x).sum())[0]
    return m.log(1 + m.exp(logit)) - y[0] * logit


@twin("characters", {"e": (30, 12), "x": (12, 16), "h": (16, 16), "out": (16, 5)}, (10,), (5,), words=30)
def characters(m: Any, p: Any, x: Any, y: Any) -> Any:
    h = m.zeros(16)
    for now in m.rows(p["e"], x):
        h = m.tanh(now @ p["x"] + h @ p["h"])
    return mse(h @ p["out"], y)
