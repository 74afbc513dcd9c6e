"""The small models of the benchmark, written in scalars: MODELS are of many kinds, WIDE are wide dense layers, BORDERS
convolutions that leave out what is beyond the border.

They are as large as one trains on a laptop: some thousand scalar operations an example, in shapes that a compiler tuned
to one dense layer would not expect. Each function gets the Values of an example and returns a Program. Parameters have
the shapes that a framework gives them, so that peers compute with the same arrays.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from codegen import Floats, Label, Program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, mse, softmax, total

Array = np.ndarray[Any, np.dtype[Any]]
Numbers = list[Value]


def numbers(count: int) -> Numbers:
    return [Value(0.0) for _ in range(count)]


@dataclass(frozen=True)
class Model:
    """One row of the table: `write(x, y)` makes the Program from so many inputs and targets.

    A classifier's targets are one-hot and arrive as labels; a model without targets has none. `rate` moves
    every tensor by more than float32 rounds, and leads every system to the same weights.
    """

    write: Callable[[Numbers, Numbers], Program]
    inputs: int
    targets: int
    labels: bool = False
    rate: float = 0.01

    def __call__(self) -> Program:
        return self.write(numbers(self.inputs), numbers(self.targets))

    def examples(self, count: int) -> tuple[Array, Array | None]:
        """Random inputs and targets, the same for every system; fewer are the first ones of more."""
        x = np.random.default_rng(0).uniform(-1, 1, (count, self.inputs))
        rng = np.random.default_rng(1)
        if self.labels:
            return x, rng.integers(0, self.targets, count, dtype=np.uint8)
        return x, rng.uniform(-1, 1, (count, self.targets)) if self.targets else None


class Weights:
    """Parameters by name, drawn from uniform(-k, k) with k = 1 / sqrt(fan-in)."""

    def __init__(self) -> None:
        self.rng, self.named = random.Random(1), dict[str, Any]()

    def __call__(self, name: str, *shape: int) -> Any:
        bound = 1 / math.sqrt(shape[-1])
        self.named[name] = self._draw(shape, bound)
        return self.named[name]

    def _draw(self, shape: tuple[int, ...], bound: float) -> Any:
        if not shape:
            return Value(self.rng.uniform(-bound, bound))
        return [self._draw(shape[1:], bound) for _ in range(shape[0])]


def dot(row: Sequence[Value], x: Sequence[Value]) -> Value:
    return total([w * xi for w, xi in zip(row, x, strict=True)])


def affine(w: Sequence[Sequence[Value]], b: Sequence[Value], x: Sequence[Value]) -> Numbers:
    return [total([bias, *(wi * xi for wi, xi in zip(row, x, strict=True))]) for row, bias in zip(w, b, strict=True)]


def parts(values: Numbers, size: int) -> list[Numbers]:
    return [values[i : i + size] for i in range(0, len(values), size)]


def regression(
    x: Numbers, y: Numbers, out: Numbers, w: Weights, loss: Value | None = None, constants: Sequence[Value] = ()
) -> Program:
    return Program(
        inputs=Floats(x),
        targets=Floats(y),
        parameters=w.named,
        loss=mse(out, y) if loss is None else loss,
        outputs={"out": out},
        constants=constants,
    )


def classifier(x: Numbers, y: Numbers, logits: Numbers, w: Weights) -> Program:
    loss = cross_entropy(logits, y)
    return Program(inputs=Floats(x), targets=Label(y), parameters=w.named, loss=loss, outputs={"logits": logits})


def dense(x: Numbers, y: Numbers, *hidden: int) -> Program:
    """A relu perceptron."""
    w, h = Weights(), x
    for i, size in enumerate((*hidden, len(y))):
        h = affine(w(f"w{i}", size, len(h)), w(f"b{i}", size), h)
        if i < len(hidden):
            h = [v.relu() for v in h]
    return classifier(x, y, h, w)


def logistic_with_l2(x: Numbers, y: Numbers) -> Program:
    """Logistic regression with an L2 term, which depends on parameters alone."""
    w = Weights()
    weight, bias = w("weight", len(y), len(x)), w("bias", len(y))
    logits = affine(weight, bias, x)
    penalty = total([p**2 for row in weight for p in row]) * 1e-3
    loss = cross_entropy(logits, y) + penalty
    return Program(inputs=Floats(x), targets=Label(y), parameters=w.named, loss=loss, outputs={"p": softmax(logits)})


def lstm(x: Numbers, y: Numbers, steps: int = 8, hidden: int = 12) -> Program:
    """Gates i, f, g, o, as rows of one matrix."""
    w = Weights()
    wx, wh, b = w("wx", 4 * hidden, len(x) // steps), w("wh", 4 * hidden, hidden), w("b", 4 * hidden)
    start = Value(0.0)
    h = c = [start] * hidden
    for now in parts(x, len(x) // steps):
        sums = [total([bias, dot(row, now), dot(back, h)]) for bias, row, back in zip(b, wx, wh, strict=True)]
        i, f, g, o = parts(sums, hidden)
        c = [fk.sigmoid() * ck + ik.sigmoid() * gk.tanh() for ik, fk, gk, ck in zip(i, f, g, c, strict=True)]
        h = [ok.sigmoid() * ck.tanh() for ok, ck in zip(o, c, strict=True)]
    return regression(x, y, affine(w("wy", len(y), hidden), w("by", len(y)), h), w, constants=[start])


def gru(x: Numbers, y: Numbers, steps: int = 8, hidden: int = 12) -> Program:
    """Gates z, r as rows of one matrix; the candidate reads the state that r has gated."""
    w = Weights()
    size = len(x) // steps
    wx, wh, b = w("wx", 2 * hidden, size), w("wh", 2 * hidden, hidden), w("b", 2 * hidden)
    vx, vh, c = w("vx", hidden, size), w("vh", hidden, hidden), w("c", hidden)
    start = Value(0.0)
    h = [start] * hidden

    def gate(rows: Any, back: Any, bias: Numbers, now: Numbers, state: Numbers) -> Numbers:
        return [total([b, dot(r, now), dot(u, state)]) for b, r, u in zip(bias, rows, back, strict=True)]

    for now in parts(x, size):
        z, r = parts([v.sigmoid() for v in gate(wx, wh, b, now, h)], hidden)
        new = [v.tanh() for v in gate(vx, vh, c, now, [ri * hi for ri, hi in zip(r, h, strict=True)])]
        h = [(1.0 - zi) * hi + zi * ci for zi, hi, ci in zip(z, h, new, strict=True)]
    return regression(x, y, affine(w("wy", len(y), hidden), w("by", len(y)), h), w, constants=[start])


def transformer(x: Numbers, y: Numbers, width: int = 8, heads: int = 2, blocks: int = 2) -> Program:
    """Pre-norm blocks of causal attention and a GELU perceptron."""
    w = Weights()
    h = parts(x, width)
    size = width // heads
    for block in range(blocks):
        wq, wk, wv, wo = (w(f"{block}.{name}", width, width) for name in ("q", "k", "v", "o"))
        up, down = w(f"{block}.up", 2 * width, width), w(f"{block}.down", width, 2 * width)
        gain, gain_2 = w(f"{block}.gain", width), w(f"{block}.gain_2", width)
        normed = [layer_norm(token, gain) for token in h]
        q, k, v = ([[dot(row, token) for row in m] for token in normed] for m in (wq, wk, wv))
        mixed: list[Numbers] = [[] for _ in h]
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            for i in range(len(h)):
                scores = softmax([dot(q[i][part], k[j][part]) / math.sqrt(size) for j in range(i + 1)])
                mixed[i] += [total([s * v[j][a] for j, s in enumerate(scores)]) for a in range(part.start, part.stop)]
        h = [[a + dot(row, m) for a, row in zip(token, wo, strict=True)] for token, m in zip(h, mixed, strict=True)]
        for i, token in enumerate(h):
            inner = [dot(row, layer_norm(token, gain_2)).gelu() for row in up]
            h[i] = [a + dot(row, inner) for a, row in zip(token, down, strict=True)]
    return classifier(x, y, affine(w("head", len(y), width), w("bias", len(y)), h[-1]), w)


def layer_norm(x: Numbers, gain: Numbers) -> Numbers:
    mean = total(x) / len(x)
    centred = [xi - mean for xi in x]
    variance = total([xi**2 for xi in centred]) / len(x)
    scale = (variance + 1e-5) ** -0.5
    return [xi * scale * g for xi, g in zip(centred, gain, strict=True)]


INTERVALS = 5
KNOTS = [-1 + 2 * (k - 3) / INTERVALS for k in range(INTERVALS + 7)]
BINOMIAL = [1.0, -4.0, 6.0, -4.0, 1.0]  # fourth differences of cubes


def spline_network(x: Numbers, y: Numbers, hidden: int = 6) -> Program:
    """A Kolmogorov-Arnold network: each edge is w * silu(x) plus a cubic B-spline on five intervals of [-1, 1]."""
    w = Weights()
    scale = (2 / INTERVALS) ** -3 / 6

    def splines(v: Value) -> Numbers:
        cubes = [(v - knot).relu() ** 3 for knot in KNOTS]
        return [total([c * cubes[k + i] for i, c in enumerate(BINOMIAL)]) * scale for k in range(INTERVALS + 3)]

    def layer(name: str, values: Numbers, units: int) -> Numbers:
        base, c = w(f"{name}_base", units, len(values)), w(name, units, len(values), INTERVALS + 3)
        smooth, basis = [v * v.sigmoid() for v in values], [splines(v) for v in values]
        return [
            dot(base[u], smooth) + total([dot(ci, bi) for ci, bi in zip(c[u], basis, strict=True)])
            for u in range(units)
        ]

    return regression(x, y, layer("second", layer("first", x, hidden), len(y)), w)


def chebyshev_network(x: Numbers, y: Numbers, hidden: int = 6, degree: int = 5) -> Program:
    """A Kolmogorov-Arnold network whose edges are Chebyshev polynomials of tanh(x)."""
    w = Weights()

    def layer(name: str, values: Numbers, units: int) -> Numbers:
        c = w(name, units, len(values), degree + 1)
        basis = []
        for v in values:
            terms = [Value(1.0), v.tanh()]
            for _ in range(degree - 1):
                terms.append(2.0 * terms[1] * terms[-1] - terms[-2])
            basis.append(terms)
        return [total([dot(c[u][i], basis[i]) for i in range(len(values))]) for u in range(units)]

    return regression(x, y, layer("second", layer("first", x, hidden), len(y)), w)


def physics_loss(x: Numbers, y: Numbers, hidden: int = 10) -> Program:
    """u'' = -u at each x, by central differences of a tanh network: three evaluations a place."""
    w = Weights()
    first, b1 = w("first", hidden), w("b1", hidden)
    second, b2, last = w("second", hidden, hidden), w("b2", hidden), w("last", hidden)

    def u(at: Value) -> Value:
        one = [(wi * at + b).tanh() for wi, b in zip(first, b1, strict=True)]
        return dot(last, [v.tanh() for v in affine(second, b2, one)])

    step = 0.1
    residuals = []
    for at in x:
        left, middle, right = u(at - step), u(at), u(at + step)
        residuals.append((left - 2.0 * middle + right) / step**2 + middle)
    loss = total([r**2 for r in residuals]) / len(x) + (u(Value(0.0)) - y[0]) ** 2
    return regression(x, y, residuals, w, loss)


def autoencoder(x: Numbers, _: Numbers, hidden: int = 16, code: int = 4) -> Program:
    w = Weights()
    h = x
    for name, size in (("a", hidden), ("b", code), ("c", hidden)):
        h = [v.sigmoid() for v in affine(w(f"w{name}", size, len(h)), w(f"b{name}", size), h)]
    out = affine(w("wd", len(x), hidden), w("bd", len(x)), h)
    return Program(inputs=Floats(x), targets=None, parameters=w.named, loss=mse(out, x), outputs={"out": out})


def residual_network(x: Numbers, y: Numbers, blocks: int = 6) -> Program:
    w = Weights()
    h, width = x, len(x)
    for block in range(blocks):
        inner = [v.relu() for v in affine(w(f"{block}.w", width, width), w(f"{block}.b", width), h)]
        h = [a + dot(row, inner) for a, row in zip(h, w(f"{block}.v", width, width), strict=True)]
    return regression(x, y, h, w)


def lenet(x: Numbers, y: Numbers, channels: tuple[int, int] = (4, 8), hidden: int = 32) -> Program:
    """Twice 3 x 3 kernels, relu and 2 x 2 max pooling; then two dense layers."""
    w = Weights()
    side = math.isqrt(len(x))
    maps = [parts(x, side)]
    for i, count in enumerate(channels):
        maps = [pool(m) for m in convolve(maps, w(f"k{i}", count, len(maps) * 9), w(f"b{i}", count))]
    flat = [v for m in maps for row in m for v in row]
    h = [v.relu() for v in affine(w("w2", hidden, len(flat)), w("b2", hidden), flat)]
    return classifier(x, y, affine(w("w3", len(y), hidden), w("b3", len(y)), h), w)


def convolve(maps: list[list[Numbers]], kernels: list[Numbers], bias: Numbers) -> list[list[Numbers]]:
    """3 x 3 without padding, and a relu."""
    side = len(maps[0]) - 2

    def window(i: int, j: int) -> Numbers:
        return [m[i + a][j + b] for m in maps for a in range(3) for b in range(3)]

    windows = [[window(i, j) for j in range(side)] for i in range(side)]
    return [
        [[total([b, *(w * v for w, v in zip(kernel, seen, strict=True))]).relu() for seen in row] for row in windows]
        for kernel, b in zip(kernels, bias, strict=True)
    ]


def pool(rows: list[Numbers]) -> list[Numbers]:
    """The largest of each 2 x 2."""
    half = range(len(rows) // 2)
    return [
        [
            rows[2 * i][2 * j].max(rows[2 * i][2 * j + 1], rows[2 * i + 1][2 * j], rows[2 * i + 1][2 * j + 1])
            for j in half
        ]
        for i in half
    ]


def bordered(x: Numbers, y: Numbers, channels: tuple[int, ...] = (6, 8, 12)) -> Program:
    """3 x 3 kernels and relu, three times, the last two with a stride of 2; then the mean of each map."""
    w = Weights()
    maps = [parts(x, math.isqrt(len(x)))]
    for i, count in enumerate(channels):
        kernels, bias = w(f"k{i}", count, len(maps), 3, 3), w(f"b{i}", count)
        places = range(0, len(maps[0]), 2 if i else 1)
        maps = [
            [[near(maps, kernel, b, r, s).relu() for s in places] for r in places]
            for kernel, b in zip(kernels, bias, strict=True)
        ]
    means = [total([v for row in m for v in row]) / len(m) ** 2 for m in maps]
    return classifier(x, y, affine(w("w", len(y), len(means)), w("b", len(y)), means), w)


def near(maps: list[list[Numbers]], kernel: Any, bias: Value, r: int, s: int) -> Value:
    """A kernel on pixel r, s of all maps and on its neighbours, as far as there are any."""
    side = range(len(maps[0]))
    places = [(a, b) for a in range(3) for b in range(3) if r + a - 1 in side and s + b - 1 in side]
    return total(
        [bias, *(w[a][b] * m[r + a - 1][s + b - 1] for w, m in zip(kernel, maps, strict=True) for a, b in places)]
    )


def u_net(x: Numbers, y: Numbers, channels: int = 6) -> Program:
    """Kernels of three on a line, on its half, where means of two are, and on both together."""
    w = Weights()

    def convolution(name: str, lines: list[Numbers], count: int) -> list[Numbers]:
        kernels, bias, length = w(name, count, len(lines), 3), w(f"{name}b", count), len(lines[0])
        seen = [[k for k in range(3) if 0 <= t + k - 1 < length] for t in range(length)]
        return [
            [
                total(
                    [b, *(row[k] * line[t + k - 1] for row, line in zip(kernel, lines, strict=True) for k in seen[t])]
                ).relu()
                for t in range(length)
            ]
            for kernel, b in zip(kernels, bias, strict=True)
        ]

    whole = convolution("a", [x], channels)
    halves = [[(line[2 * t] + line[2 * t + 1]) * 0.5 for t in range(len(x) // 2)] for line in whole]
    deep = convolution("b", halves, 2 * channels)
    both = convolution("c", whole + [[line[t // 2] for t in range(len(x))] for line in deep], channels)
    last, bias = w("o", channels), w("ob", 1)
    return regression(x, y, [dot(last, [line[t] for line in both]) + bias[0] for t in range(len(x))], w)


NODES = 12


def neighbours() -> list[list[int]]:
    """A graph of 12 nodes: a ring and eight chords."""
    rng = random.Random(3)
    edges = {(i, (i + 1) % NODES) for i in range(NODES)}
    while len(edges) < NODES + 8:
        a, b = rng.sample(range(NODES), 2)
        if (a, b) not in edges and (b, a) not in edges:
            edges.add((a, b))
    return [sorted({a + b - n for a, b in edges if n in (a, b)}) for n in range(NODES)]


def graph_network(x: Numbers, y: Numbers, hidden: int = 8) -> Program:
    """Two rounds in which each node adds the mean of its neighbours to what it knows; read out by the mean."""
    w = Weights()
    near = neighbours()
    h = parts(x, len(x) // NODES)
    for i in range(2):
        size = len(h[0])
        own, other, b = w(f"own{i}", hidden, size), w(f"other{i}", hidden, size), w(f"b{i}", hidden)
        means = [[total([h[n][k] for n in ns]) / len(ns) for k in range(size)] for ns in near]
        h = [
            [total([b[u], dot(own[u], mine), dot(other[u], mean)]).relu() for u in range(hidden)]
            for mine, mean in zip(h, means, strict=True)
        ]
    mean = [total([node[u] for node in h]) / NODES for u in range(hidden)]
    return regression(x, y, affine(w("wy", len(y), hidden), w("by", len(y)), mean), w)


LEVELS, UNITS, FAN_IN = 4, 24, 4
ACTIVATIONS = ("tanh", "sigmoid", "relu", "sin")


def wiring(inputs: int) -> tuple[list[list[list[int]]], list[list[int]]]:
    """For each unit of each level four earlier values, and the number of its activation: all at random."""
    rng = random.Random(4)
    sources = [[rng.sample(range(inputs + level * UNITS), FAN_IN) for _ in range(UNITS)] for level in range(LEVELS)]
    return sources, [[rng.randrange(len(ACTIVATIONS)) for _ in range(UNITS)] for _ in range(LEVELS)]


def sparse_network(x: Numbers, y: Numbers) -> Program:
    """Units that read random earlier values, each with an activation of its own: nothing is regular but the sums."""
    w = Weights()
    values = list(x)
    sources, kinds = wiring(len(x))
    for level in range(LEVELS):
        weight, bias = w(f"w{level}", UNITS, FAN_IN), w(f"b{level}", UNITS)
        sums = affine_of(weight, bias, [[values[s] for s in unit] for unit in sources[level]])
        values += [v.apply(ACTIVATIONS[kind]) for v, kind in zip(sums, kinds[level], strict=True)]
    return regression(x, y, affine(w("wy", len(y), UNITS), w("by", len(y)), values[-UNITS:]), w)


def affine_of(w: list[Numbers], b: Numbers, seen: list[Numbers]) -> Numbers:
    return [total([bias, dot(row, values)]) for row, bias, values in zip(w, b, seen, strict=True)]


MODELS: dict[str, Model] = {
    "logistic regression, L2": Model(logistic_with_l2, 30, 3, labels=True),
    "LSTM": Model(lstm, 32, 2),
    "GRU": Model(gru, 32, 2),
    "transformer, 2 blocks": Model(transformer, 48, 5, labels=True, rate=0.1),
    "B-spline KAN": Model(spline_network, 4, 1),
    "Chebyshev KAN": Model(chebyshev_network, 4, 1),
    "physics loss": Model(physics_loss, 16, 1),
    "autoencoder": Model(autoencoder, 32, 0, rate=0.1),
    "residual MLP": Model(residual_network, 16, 16),
    "LeNet, 14 x 14": Model(lenet, 196, 10, labels=True),
    "graph network": Model(graph_network, 4 * NODES, 2),
    "sparse random network": Model(sparse_network, 16, 2),
}
WIDE: dict[str, Model] = {
    f"{inputs}-{'-'.join(map(str, hidden))}-10": Model(
        partial(lambda sizes, x, y: dense(x, y, *sizes), hidden), inputs, 10, labels=True
    )
    for inputs, hidden in (
        (784, (256, 128)),
        (784, (512, 512)),
        (256, (128, 128)),
        (256, (256, 256)),
        (256, (512, 512)),
    )
}
BORDERS: dict[str, Model] = {
    "convolutions, borders": Model(bordered, 100, 5, labels=True),
    "U-net of 32": Model(u_net, 32, 32),
}
SMALL = MODELS | WIDE | BORDERS
