"""Small models of many kinds, written in scalars: what `python -m benchmarks.small` measures.

Each function returns a Program. They are as large as one trains on a laptop: some thousand scalar operations an
example, in shapes that a compiler tuned to one dense layer would not expect.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from codegen import Floats, Label, Program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, mse, softmax, total


def numbers(count: int) -> list[Value]:
    return [Value(0.0) for _ in range(count)]


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


def affine(w: Sequence[Sequence[Value]], b: Sequence[Value], x: Sequence[Value]) -> list[Value]:
    return [total([bias, *(wi * xi for wi, xi in zip(row, x, strict=True))]) for row, bias in zip(w, b, strict=True)]


def regression(x: list[Value], y: list[Value], out: list[Value], w: Weights, loss: Value | None = None) -> Program:
    return Program(
        inputs=Floats(x),
        targets=Floats(y),
        parameters=w.named,
        loss=mse(out, y) if loss is None else loss,
        outputs={"out": out},
    )


def logistic_with_l2(inputs: int = 30, classes: int = 3) -> Program:
    """Logistic regression with an L2 term, which depends on parameters alone."""
    w = Weights()
    x, t = numbers(inputs), numbers(classes)
    weight, bias = w("weight", classes, inputs), w("bias", classes)
    logits = affine(weight, bias, x)
    penalty = total([p**2 for row in weight for p in row]) * 1e-3
    loss = cross_entropy(logits, t) + penalty
    return Program(inputs=Floats(x), targets=Label(t), parameters=w.named, loss=loss, outputs={"p": softmax(logits)})


def lstm(steps: int = 8, inputs: int = 4, hidden: int = 12) -> Program:
    w = Weights()
    x, y = numbers(steps * inputs), numbers(2)
    gates = {g: (w(f"w{g}", hidden, inputs), w(f"u{g}", hidden, hidden), w(f"b{g}", hidden)) for g in "ifgo"}
    h = c = [Value(0.0)] * hidden
    for step in range(steps):
        now = x[step * inputs : (step + 1) * inputs]
        sums = {
            g: [total([b[i], dot(wi[i], now), dot(u[i], h)]) for i in range(hidden)] for g, (wi, u, b) in gates.items()
        }
        i, f, o = ([v.sigmoid() for v in sums[g]] for g in "ifo")
        g = [v.tanh() for v in sums["g"]]
        c = [fk * ck + ik * gk for fk, ck, ik, gk in zip(f, c, i, g, strict=True)]
        h = [ok * ck.tanh() for ok, ck in zip(o, c, strict=True)]
    return regression(x, y, affine(w("wy", 2, hidden), w("by", 2), h), w)


def gru(steps: int = 8, inputs: int = 4, hidden: int = 12) -> Program:
    w = Weights()
    x, y = numbers(steps * inputs), numbers(2)
    gates = {g: (w(f"w{g}", hidden, inputs), w(f"u{g}", hidden, hidden), w(f"b{g}", hidden)) for g in "zrh"}
    h = [Value(0.0)] * hidden

    def gate(name: str, now: list[Value], state: list[Value]) -> list[Value]:
        wi, u, b = gates[name]
        return [total([b[i], dot(wi[i], now), dot(u[i], state)]) for i in range(hidden)]

    for step in range(steps):
        now = x[step * inputs : (step + 1) * inputs]
        z, r = ([v.sigmoid() for v in gate(g, now, h)] for g in "zr")
        new = [v.tanh() for v in gate("h", now, [ri * hi for ri, hi in zip(r, h, strict=True)])]
        h = [(1.0 - zi) * hi + zi * ci for zi, hi, ci in zip(z, h, new, strict=True)]
    return regression(x, y, affine(w("wy", 2, hidden), w("by", 2), h), w)


def transformer(tokens: int = 6, width: int = 8, heads: int = 2, blocks: int = 2) -> Program:
    """Pre-norm blocks of causal attention and a GELU perceptron."""
    w = Weights()
    x, t = numbers(tokens * width), numbers(5)
    h = [x[i * width : (i + 1) * width] for i in range(tokens)]
    size = width // heads
    for block in range(blocks):
        wq, wk, wv, wo = (w(f"{block}.{name}", width, width) for name in ("q", "k", "v", "o"))
        up, down = w(f"{block}.up", 2 * width, width), w(f"{block}.down", width, 2 * width)
        gain, gain_2 = w(f"{block}.gain", width), w(f"{block}.gain_2", width)
        normed = [layer_norm(token, gain) for token in h]
        q, k, v = ([[dot(row, token) for row in m] for token in normed] for m in (wq, wk, wv))
        mixed: list[list[Value]] = [[] for _ in range(tokens)]
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            for i in range(tokens):
                scores = softmax([dot(q[i][part], k[j][part]) / math.sqrt(size) for j in range(i + 1)])
                mixed[i] += [total([s * v[j][a] for j, s in enumerate(scores)]) for a in range(part.start, part.stop)]
        h = [[a + dot(row, m) for a, row in zip(token, wo, strict=True)] for token, m in zip(h, mixed, strict=True)]
        for i, token in enumerate(h):
            inner = [dot(row, layer_norm(token, gain_2)).gelu() for row in up]
            h[i] = [a + dot(row, inner) for a, row in zip(token, down, strict=True)]
    logits = affine(w("head", 5, width), w("bias", 5), h[-1])
    return Program(
        inputs=Floats(x), targets=Label(t), parameters=w.named, loss=cross_entropy(logits, t), outputs={"y": logits}
    )


def layer_norm(x: list[Value], gain: list[Value]) -> list[Value]:
    mean = total(x) / len(x)
    centred = [xi - mean for xi in x]
    variance = total([xi**2 for xi in centred]) / len(x)
    scale = (variance + 1e-5) ** -0.5
    return [xi * scale * g for xi, g in zip(centred, gain, strict=True)]


def spline_network(inputs: int = 4, hidden: int = 6, knots: int = 6) -> Program:
    """A Kolmogorov-Arnold network: each edge is a cubic spline, in the basis of truncated powers."""
    w = Weights()
    x, y = numbers(inputs), numbers(1)
    places = [-1 + 2 * k / knots for k in range(knots)]

    def layer(name: str, values: list[Value], units: int) -> list[Value]:
        c = w(name, units, len(values), knots)
        basis = [[(v - place).relu() ** 3 for place in places] for v in values]
        return [total([dot(c[u][i], basis[i]) for i in range(len(values))]) for u in range(units)]

    out = layer("second", [h.tanh() for h in layer("first", x, hidden)], 1)
    return regression(x, y, out, w)


def chebyshev_network(inputs: int = 4, hidden: int = 6, degree: int = 5) -> Program:
    """A Kolmogorov-Arnold network whose edges are Chebyshev polynomials of tanh(x)."""
    w = Weights()
    x, y = numbers(inputs), numbers(1)

    def layer(name: str, values: list[Value], units: int) -> list[Value]:
        c = w(name, units, len(values), degree + 1)
        basis = []
        for v in values:
            terms = [Value(1.0), v.tanh()]
            for _ in range(degree - 1):
                terms.append(2.0 * terms[1] * terms[-1] - terms[-2])
            basis.append(terms)
        return [total([dot(c[u][i], basis[i]) for i in range(len(values))]) for u in range(units)]

    return regression(x, y, layer("second", layer("first", x, hidden), 1), w)


def physics_loss(points: int = 16, hidden: int = 10) -> Program:
    """u'' = -u at `points` places, by central differences of a tanh network: three evaluations a place."""
    w = Weights()
    x, y = numbers(points), numbers(1)
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
    loss = total([r**2 for r in residuals]) / points + (u(Value(0.0)) - y[0]) ** 2
    return regression(x, y, residuals, w, loss)


def autoencoder(inputs: int = 32, hidden: int = 16, code: int = 4) -> Program:
    w = Weights()
    x = numbers(inputs)
    h = x
    for name, size in (("a", hidden), ("b", code), ("c", hidden)):
        h = [v.sigmoid() for v in affine(w(f"w{name}", size, len(h)), w(f"b{name}", size), h)]
    out = affine(w("wd", inputs, hidden), w("bd", inputs), h)
    return Program(inputs=Floats(x), targets=None, parameters=w.named, loss=mse(out, x), outputs={"out": out})


def residual_network(width: int = 16, blocks: int = 6) -> Program:
    w = Weights()
    x, y = numbers(width), numbers(width)
    h = x
    for block in range(blocks):
        inner = [v.relu() for v in affine(w(f"{block}.w", width, width), w(f"{block}.b", width), h)]
        h = [a + dot(row, inner) for a, row in zip(h, w(f"{block}.v", width, width), strict=True)]
    return regression(x, y, h, w)


def convolution(size: int = 10, channels: int = 4, classes: int = 4) -> Program:
    """3 x 3 kernels, a sigmoid, 2 x 2 mean pooling and a linear layer."""
    w = Weights()
    x, t = numbers(size * size), numbers(classes)
    kernels, bias = w("kernels", channels, 9), w("bias", channels)
    side = size - 2
    maps = [
        [
            [
                total(
                    [bias[c], *(kernels[c][3 * a + b] * x[(i + a) * size + j + b] for a in range(3) for b in range(3))]
                )
                for j in range(side)
            ]
            for i in range(side)
        ]
        for c in range(channels)
    ]
    active = [[[v.sigmoid() for v in row] for row in m] for m in maps]
    pooled = [
        total([m[2 * i + a][2 * j + b] for a in range(2) for b in range(2)]) / 4
        for m in active
        for i in range(side // 2)
        for j in range(side // 2)
    ]
    logits = affine(w("head", classes, len(pooled)), w("head_bias", classes), pooled)
    return Program(
        inputs=Floats(x), targets=Label(t), parameters=w.named, loss=cross_entropy(logits, t), outputs={"y": logits}
    )


MODELS: dict[str, Callable[[], Program]] = {
    "logistic regression, L2": logistic_with_l2,
    "LSTM": lstm,
    "GRU": gru,
    "transformer, 2 blocks": transformer,
    "spline network": spline_network,
    "Chebyshev network": chebyshev_network,
    "physics loss": physics_loss,
    "autoencoder": autoencoder,
    "residual network": residual_network,
    "convolution": convolution,
}
