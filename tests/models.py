"""Programs that the tests compile: the regular ones of the field, and random irregular ones."""

from __future__ import annotations

import itertools
import math
import random
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

from codegen import Floats, Label, Pixels, Program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, mse, softmax, total
from micrograd.nn import MLP
from tools.fuzz_compiler.programs import dot, expression

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
convolution = runpy.run_path(str(EXAMPLES / "convolution.py"))["program"]  # (size, channels)
attention = runpy.run_path(str(EXAMPLES / "attention.py"))["program"]  # (tokens, width)


def values(count: int) -> list[Value]:
    return [Value(0.0) for _ in range(count)]


def weights(rng: random.Random, *shape: int) -> list:
    """Nested lists of parameters."""
    if len(shape) == 1:
        return [Value(rng.uniform(-0.7, 0.7)) for _ in range(shape[0])]
    return [weights(rng, *shape[1:]) for _ in range(shape[0])]


def affine(w: list[list[Value]], b: list[Value], x: Sequence[Value]) -> list[Value]:
    return [total([bias, *(wi * xi for wi, xi in zip(row, x, strict=True))]) for row, bias in zip(w, b, strict=True)]


def mlp(sizes: Sequence[int] = (12, 7, 5), **options: object) -> Program:
    """The MNIST program's kind, in another size, or with more layers."""
    random.seed(5)
    model = MLP(sizes[0], sizes[1:], init="fan_in")
    x, t = values(sizes[0]), values(sizes[-1])
    logits = model(x)
    return Program(
        inputs=Pixels(x, scale=1 / 255),
        targets=Label(t),
        parameters=model.named_parameters(),
        order=model.parameters(),
        initial=model.initial(),
        seed=5,
        loss=cross_entropy(logits, t),
        outputs={"logits": logits, "probabilities": softmax(logits)},
        **options,
    )


def mlp_of_floats(**options: object) -> Program:
    """Float inputs and targets, squared error, and rows of weights that a zero input leaves alone."""
    random.seed(5)
    x, y = values(12), values(3)
    model = MLP(12, [8, 3])
    out = model(x)
    return Program(Floats(x), Floats(y), model.named_parameters(), mse(out, y), {"out": out}, **options)


def xor() -> Program:
    """Two tanh units and one output, squared error, float64 inputs and targets; layers shared by name only."""
    rng = random.Random(1)
    w1, b1, w2, b2 = weights(rng, 2, 2), weights(rng, 2), weights(rng, 1, 2), weights(rng, 1)
    x, y = values(2), values(1)
    out = affine(w2, b2, [h.tanh() for h in affine(w1, b1, x)])
    return Program(
        inputs=Floats(x),
        targets=Floats(y),
        parameters={"w1": w1, "b1": b1, "w2": w2, "b2": b2},
        loss=mse(out, y),
        outputs={"out": out},
        learning_rate=0.3,
    )


def recurrence(steps: int = 6, inputs: int = 3, hidden: int = 5) -> Program:
    """An Elman network, unrolled, the same weights at each step."""
    rng = random.Random(3)
    wx, wh, b = weights(rng, hidden, inputs), weights(rng, hidden, hidden), weights(rng, hidden)
    wo, bo = weights(rng, 2, hidden), weights(rng, 2)
    x, y = values(steps * inputs), values(2)
    start = Value(0.0)
    h = [start] * hidden
    for step in range(steps):
        now = x[step * inputs : (step + 1) * inputs]
        h = [total([b[i], dot(wx[i], now), dot(wh[i], h)]).tanh() for i in range(hidden)]
    out = affine(wo, bo, h)
    return Program(
        inputs=Floats(x),
        targets=Floats(y),
        parameters={"wx": wx, "wh": wh, "b": b, "wo": wo, "bo": bo},
        loss=mse(out, y),
        outputs={"out": out},
        constants=[start],
    )


def residual(width: int = 6, blocks: int = 3) -> Program:
    """x + f(x), three times, with sigmoid units."""
    rng = random.Random(4)
    x, y = values(width), values(width)
    parameters = {}
    h: list[Value] = x
    for block in range(blocks):
        w, b = weights(rng, width, width), weights(rng, width)
        parameters |= {f"blocks.{block}.w": w, f"blocks.{block}.b": b}
        h = [old + new.sigmoid() for old, new in zip(h, affine(w, b, h), strict=True)]
    return Program(inputs=Floats(x), targets=Floats(y), parameters=parameters, loss=mse(h, y), outputs={"out": h})


def shared_weights() -> Program:
    """One matrix used forwards and transposed (an autoencoder with tied weights), on pixels."""
    rng = random.Random(7)
    w, b, c = weights(rng, 4, 9), weights(rng, 4), weights(rng, 9)
    x = values(9)
    h = [u.relu() for u in affine(w, b, x)]
    out = [total([c[i], *(w[j][i] * h[j] for j in range(4))]) for i in range(9)]
    return Program(
        inputs=Pixels(x, scale=1 / 255),
        targets=None,
        parameters={"w": w, "b": b, "c": c},
        loss=mse(out, x),
        outputs={"out": out, "code": h},
    )


def gather(units: int = 20, fan: int = 9) -> Program:
    """Random connections and a random constant for each: index tables and tables of constants."""
    rng = random.Random(8)
    w, b = weights(rng, 40), weights(rng, units)
    x = values(30)
    out = []
    for unit in range(units):
        terms = [rng.choice(w) * rng.choice(x) * rng.uniform(-1, 1) for _ in range(fan)]
        out.append(total([b[unit] * rng.uniform(-1, 1), *terms]).tanh())
    wide = [rng.choice(w) * rng.choice(out) for _ in range(300)]
    return Program(
        inputs=Pixels(x, scale=1 / 255),
        targets=None,
        parameters={"w": w, "b": b},
        loss=total([*(o**2 for o in out), *wide]),
        outputs={"out": out},
    )


def edges() -> Program:
    """Leaves everywhere: outputs that are parameters and inputs, unused leaves, constants of every kind."""
    a, b, unused = Value(0.5), Value(-2.0), Value(3.0)
    x, idle = Value(0.0), Value(0.0)
    inf, nan = Value(math.inf), Value(math.nan)
    loss = (a * x + b) ** 2 + (2.0**a) * 5e-324 + a**b + b**0 + (x * 0.0 + -0.0).exp() + a.max(b, a, 0.25)
    odd = [a * inf, b * nan, -a * 0.0, a * 1.7976931348623157e308 * 10, (b * 1e-310).log(), x, a, Value(7.0)]
    return Program(
        inputs=Floats([x, idle]),
        targets=None,
        parameters={"a": a, "rest": [b, unused]},
        loss=loss,
        outputs={"odd": odd, "parameter": [a]},
        learning_rate=0.01,
    )


def irregular(size: int) -> Value:
    """Such a graph of 20 weights."""
    rng = random.Random(0)
    return expression(rng, [Value(rng.random(), _op="weight") for _ in range(20)], size)


def chain(length: int) -> Value:
    """A deep graph: each step needs the one before."""
    x, out = Value(0.5, _op="weight"), Value(1.0, _op="input")
    for _ in range(length):
        out = (out * x).tanh()
    return out


def random_programs(seed: int, count: int) -> Program:
    """Many random graphs side by side in one Program: each is an output of its own, their sum is the loss."""
    rng = random.Random(seed)
    x, y = values(4), values(2)
    losses, parameters = [], {}
    for i in range(count):
        own = weights(rng, rng.randint(1, 5))
        parameters[f"p{i}"] = own
        losses.append(expression(rng, [*own, *x], rng.randint(3, 60)))
    return Program(
        inputs=Floats(x),
        targets=Floats(y),
        parameters=parameters,
        loss=total([*losses, y[0] * losses[0], (y[1] - losses[-1]) ** 2]),
        outputs={"losses": losses},
        learning_rate=0.01,
    )


def borders(sizes: Sequence[int] = (1, 4, 4), side: int = 6) -> Program:
    """Convolutions of 3 x 3 that leave out what is beyond the border; the outputs are the last pixels."""
    rng = random.Random(1)
    x = values(sizes[0] * side**2)
    maps = [[x[side * (side * c + r) :][:side] for r in range(side)] for c in range(sizes[0])]
    parameters = {}
    for layer, (few, many) in enumerate(itertools.pairwise(sizes)):
        kernels = parameters[f"kernels{layer}"] = weights(rng, many, few, 3, 3)
        bias = parameters[f"bias{layer}"] = weights(rng, many)

        def pixel(c: int, r: int, s: int, maps: list = maps, kernels: list = kernels, bias: list = bias) -> Value:
            near = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if 0 <= r + a < side and 0 <= s + b < side]
            terms = [w[a + 1][b + 1] * m[r + a][s + b] for w, m in zip(kernels[c], maps, strict=True) for a, b in near]
            return total([bias[c], *terms]).tanh()

        maps = [[[pixel(c, r, s) for s in range(side)] for r in range(side)] for c in range(many)]
    pixels = [v for rows in maps for row in rows for v in row]
    return Program(Floats(x), None, parameters, total([v * v for v in pixels]), {"pixels": pixels})


def points(count: int = 9, units: int = 7) -> Program:
    """A small network at many points. Neither these nor units fill vectors: functions run over whole lines of both, and
    gradients read copies of columns of units, four columns at a time and then three.
    """
    rng = random.Random(1)
    x, y = values(count), values(2 * count)
    first, bias, last = weights(rng, units), weights(rng, units), weights(rng, 2, units)
    hidden = [[(a * at + b).tanh() for a, b in zip(first, bias, strict=True)] for at in x]
    found = [dot(row, h) for h in hidden for row in last]
    loss = total([(v - goal) ** 2 for v, goal in zip(found, y, strict=True)])
    return Program(Floats(x), Floats(y), {"first": first, "bias": bias, "last": last}, loss, {"found": found})


REGULAR: dict[str, Callable[[], Program]] = {
    "mlp": mlp,
    "deep_mlp": lambda: mlp((30, 8, 8, 8, 3)),
    "xor": xor,
    "convolution": convolution,
    "recurrence": recurrence,
    "residual": residual,
    "attention": attention,
    "shared_weights": shared_weights,
    "gather": gather,
    "wide": lambda: mlp((5, 300, 2)),
    "edges": edges,
}
