"""Random Programs that repeat themselves, as time steps, blocks, heads, tokens, points and stages of integrators do.

Example: random_regular(Random(9)) may give two blocks with weights of their own over five tokens of three numbers; a
block is a gated recurrence from a learned state, and then a sum of the tokens so far, by the weights of a triangle.

What repeats is drawn once and called often. A `Cell` is a random function of vectors. A layer makes a sequence of
vectors out of one: a cell for each, a cell that keeps a state, or a sum over those that a mask shows. Blocks are layers
after layers; first and last repetitions may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

from codegen.program import Floats, Program, Tokens
from micrograd.engine import Value
from micrograd.functional import cross_entropy, mse, softmax, total
from tools.fuzz_compiler.programs import ACTIVATIONS, Goal, Part, dot, finished

Vector: TypeAlias = list[Value]
Sequences: TypeAlias = list[Vector]
Weights: TypeAlias = dict[str, Any]
Shapes: TypeAlias = dict[str, tuple[int, ...]]
Instruction: TypeAlias = Callable[[Weights, list[Vector]], Vector]

REGULAR = "regular"  # the kind of these Programs
MAX_NODES, MAX_RESULTS = 1200, 60
WIDTHS = [1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 12, 16, 17]
COUNTS = [2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 12]


class Cell:
    """A random function of vectors: `registers` of the given widths in, `results` vectors of one width out."""

    def __init__(self, rng: Random, widths: Sequence[int], width: int, results: int = 1) -> None:
        self.rng, self.width, self.results = rng, width, results
        self.shapes: Shapes = {}
        self.code: list[Instruction] = []
        self.count = len(widths)
        own = [i for i, n in enumerate(widths) if n == width]
        for i, n in enumerate(widths):  # all inputs come in
            if i not in own or rng.random() < 0.7:
                own = [j for j in own if j != i]
                own.append(self._add(self._linear(i, n)))
        if len(own) > 1 and rng.random() < 0.8:
            own.append(self._add(self._sum(own)))
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4, 6])):
            own.append(self._add(self._any(own)))
        self.out = [own[-1], *rng.sample(own[:-1], min(results - 1, len(own) - 1))]
        self.out += [own[-1]] * (results - len(self.out))
        self.squash = rng.choice([None, lambda x: x.tanh(), lambda x: x.tanh(), lambda x: x.sigmoid()])

    def __call__(self, w: Weights, *vectors: Vector) -> list[Vector]:
        registers = list(vectors)
        for instruction in self.code:
            registers.append(instruction(w, registers))
        found = [registers[i] for i in self.out]
        return [[self.squash(x) for x in each] for each in found] if self.squash else found

    def _add(self, instruction: Instruction) -> int:
        self.code.append(instruction)
        return self.count + len(self.code) - 1

    def _tensor(self, *shape: int) -> str:
        name = f"t{len(self.shapes)}"
        self.shapes[name] = shape
        return name

    def _linear(self, i: int, n: int) -> Instruction:
        matrix, bias = self._tensor(self.width, n), self._tensor(self.width)
        match self.rng.randrange(4):
            case 0:
                return lambda w, r: [total([b, *(a * x for a, x in zip(row, r[i], strict=True))])
                                     for b, row in zip(w[bias], w[matrix], strict=True)]  # fmt: skip
            case 1:
                return lambda w, r: [dot(row, r[i]) + b for b, row in zip(w[bias], w[matrix], strict=True)]
            case 2:
                return lambda w, r: [b + dot(row, r[i]) for b, row in zip(w[bias], w[matrix], strict=True)]
            case _:
                del self.shapes[bias]
                return lambda w, r: [dot(row, r[i]) for row in w[matrix]]

    def _sum(self, those: Sequence[int]) -> Instruction:
        those = list(those)
        return lambda w, r: [total([r[i][k] for i in those]) for k in range(self.width)]

    def _any(self, own: Sequence[int]) -> Instruction:
        rng = self.rng
        a, b, c = (own[-1 - min(int(rng.expovariate(0.6)), len(own) - 1)] for _ in range(3))
        f, g = rng.choice(ACTIVATIONS), rng.choice(ACTIVATIONS)
        gain = self._tensor(self.width) if rng.random() < 0.3 else ""
        match rng.randrange(11):
            case 0 | 1:
                return self._linear(a, self.width)
            case 2:
                return lambda w, r: [f(x) for x in r[a]]
            case 3:  # a gate
                return lambda w, r: [
                    s.sigmoid() * y + (1.0 - s.sigmoid()) * x for s, x, y in zip(r[a], r[b], r[c], strict=True)
                ]
            case 4:
                return lambda w, r: [x * y for x, y in zip(r[a], r[b], strict=True)]
            case 5:
                return lambda w, r: [f(x) * g(y) + z for x, y, z in zip(r[a], r[b], r[c], strict=True)]
            case 6:
                return lambda w, r: [x - 0.5 * f(y) for x, y in zip(r[a], r[b], strict=True)]
            case 7:
                return lambda w, r: rmsnorm(r[a], w.get(gain))
            case 8:
                return lambda w, r: layer_norm(r[a], w.get(gain))
            case 9:
                return lambda w, r: softmax(r[a])
            case _:
                return lambda w, r: [x * total(r[b]) for x in r[a]]


def _apart(rng: Random) -> Random:
    """Other random numbers, for what came later: the rest of a seed's Program stays as it was."""
    return Random(hash(rng.getstate()[1]))


def rmsnorm(x: Vector, gain: Vector | None) -> Vector:
    scale = (dot(x, x) / len(x) + 1e-5) ** -0.5
    return [v * scale for v in x] if gain is None else [v * scale * g for v, g in zip(x, gain, strict=True)]


def layer_norm(x: Vector, gain: Vector | None) -> Vector:
    mean = total(x) / len(x)
    centred = [v - mean for v in x]
    scale = (total([v**2 for v in centred]) / len(x) + 1e-5) ** -0.5
    return [v * scale for v in centred] if gain is None else [v * scale * g for v, g in zip(centred, gain, strict=True)]


class Each:
    """A layer that does the same with each vector."""

    def __init__(self, rng: Random, width: int, out: int, _: int) -> None:
        self.cell, self.twice = Cell(rng, [width], out), width == out and rng.random() < 0.2
        self.shapes = self.cell.shapes

    def __call__(self, w: Weights, xs: Sequences) -> Sequences:
        ys = [self.cell(w, x)[0] for x in xs]
        return [self.cell(w, y)[0] for y in ys] if self.twice else ys


class Scan:
    """A layer that goes through the sequence with one to three states. Without a first state, what would read it is
    left out: the first vector has a cell of its own."""

    def __init__(self, rng: Random, width: int, out: int, _: int) -> None:
        self.states = rng.choice([1, 1, 2, 2, 3])
        self.cell = Cell(rng, [*[out] * self.states, width], out, self.states)
        self.start = rng.choice(["shared", "zeros", "learned", "learned", "first", "input"])
        self.first = Cell(rng, [width], out, self.states)
        self.backwards, self.skips, self.detaches = rng.random() < 0.2, rng.random() < 0.2, rng.random() < 0.1
        self.shapes = dict(self.cell.shapes)
        if self.start == "learned":
            self.shapes |= {f"start{i}": (out,) for i in range(self.states)}
        if self.start in ("first", "input"):
            self.shapes |= {f"f{name}": shape for name, shape in self.first.shapes.items()}
        self.out = out

    def __call__(self, w: Weights, xs: Sequences) -> Sequences:
        ys: Sequences = []
        states: list[Vector] | None = None
        zero = Value(0.0)
        match self.start:
            case "shared":
                states = [[zero] * self.out for _ in range(self.states)]
            case "zeros":
                states = [[Value(0.0) for _ in range(self.out)] for _ in range(self.states)]
            case "learned":
                states = [w[f"start{i}"] for i in range(self.states)]
        own = {name[1:]: tensor for name, tensor in w.items() if name.startswith("f")}
        for t, x in enumerate(reversed(xs) if self.backwards else xs):
            if states is None:
                states = self.first(own, x)
                if self.start == "first":
                    ys.append(states[0])
                    continue
            new = self.cell(w, *states, x)
            if self.skips:
                new = [[a + b for a, b in zip(old, n, strict=True)] for old, n in zip(states, new, strict=True)]
            states = [[v.detach() for v in n] for n in new] if self.detaches and t % 2 else new
            ys.append(new[0])
        return ys[::-1] if self.backwards else ys


class Mask:
    """A layer of sums over the vectors that a mask shows to a vector: attention in heads, or weights of a kind."""

    def __init__(self, rng: Random, width: int, out: int, count: int) -> None:
        self.sees = rng.choice(["causal", "causal", "causal", "all", "window", "before", "after"])
        self.kind = rng.choice(["attention", "attention", "attention", "sum", "mean", "triangle", "decay", "product"])
        self.heads = rng.choice([n for n in (1, 1, 2, 3, 4) if out % n == 0])
        self.window, self.per_head = rng.choice([1, 2, 3]), rng.random() < 0.4
        own = _apart(rng)
        self.adds = self.kind == "attention" and own.random() < 0.4  # -inf to what is not seen
        self.back, self.ahead = own.choice([(1, 0), (1, 0), (0, 1), (1, 1)])  # where a window reaches to
        self.positions = own.choice(["", "", "turn", "turn in pairs", "incline"])  # queries and keys, or scores
        self.shapes: Shapes = {"value": (out, width)}
        self.out = out
        if self.kind in ("attention", "product"):
            self.shapes |= {"query": (out, width), "key": (out, width)}
        if self.kind == "triangle":
            self.shapes["share"] = (count, count)
        if self.kind == "decay":
            self.shapes["share"] = (count,)
        if rng.random() < 0.6:
            self.shapes["mix"] = (out, out)

    def seen(self, t: int, count: int) -> range:
        match self.sees:
            case "causal":
                return range(t + 1)
            case "window":
                return range(max(0, t - self.back * self.window), min(count, t + self.ahead * self.window + 1))
            case "before":
                return range(t)
            case "after":
                return range(t, count)
            case _:
                return range(count)

    def __call__(self, w: Weights, xs: Sequences) -> Sequences:
        made: dict[str, Sequences] = {
            n: [[dot(row, x) for row in w[n]] for x in xs] for n in ("query", "key", "value") if n in w
        }
        for name in ("query", "key") if "turn" in self.positions and "query" in made else ():
            made[name] = [rotated(t, x, self.positions == "turn in pairs") for t, x in enumerate(made[name])]
        size, ys = self.out // self.heads, [list[Value]() for _ in xs]
        heads = [slice(h * size, (h + 1) * size) for h in range(self.heads)]
        places = [(t, head) for head in heads for t in range(len(xs))]
        if self.per_head:
            places = [(t, head) for t in range(len(xs)) for head in heads]
        for t, head in places:
            js = self.seen(t, len(xs))
            hidden = [*(0.0 if j in js else -math.inf for j in range(len(xs)))] if self.adds and js else []
            js = range(len(xs)) if hidden else js
            values = [made["value"][j][head] for j in js]
            if not values:
                ys[t] += made["value"][t][head]
                continue
            shares = self._shares(w, made, t, js, head, hidden)
            terms = [[s * v for v in value] for s, value in zip(shares, values, strict=True)] if shares else values
            ys[t] += [total(list(column)) for column in zip(*terms, strict=True)]
            if self.kind == "mean":
                ys[t][head] = [y / len(js) for y in ys[t][head]]
        return [[dot(row, y) for row in w["mix"]] for y in ys] if "mix" in w else ys

    def _shares(
        self, w: Weights, made: dict[str, Sequences], t: int, js: range, head: slice, hidden: list[float]
    ) -> Vector:
        match self.kind:
            case "attention" | "product":
                scores = [dot(made["query"][t][head], made["key"][j][head]) for j in js]
                if self.kind == "product":
                    return scores
                scores = [s / math.sqrt(head.stop - head.start) for s in scores]
                if self.positions == "incline":
                    scores = [s - 0.5 / head.stop * abs(t - j) for s, j in zip(scores, js, strict=True)]
                return softmax([s + c for s, c in zip(scores, hidden, strict=True)] if hidden else scores)
            case "triangle":
                return [w["share"][t][j] for j in js]
            case "decay":
                return [w["share"][abs(t - j)] for j in js]
            case _:
                return []


class Place:
    """A layer that adds or multiplies a vector of its own to each place."""

    def __init__(self, rng: Random, width: int, _: int, count: int) -> None:
        self.multiplies = rng.random() < 0.3
        self.shapes: Shapes = {"place": (count, width)}

    def __call__(self, w: Weights, xs: Sequences) -> Sequences:
        pairs = zip(xs, w["place"], strict=True)
        return [[a * b if self.multiplies else a + b for a, b in zip(x, p, strict=True)] for x, p in pairs]


class Fixed:
    """A layer of constants, among which are 0 and 1: numbers that are added or multiplied, rotations of pairs by angles
    of each place, or a matrix over the places, as of a graph."""

    def __init__(self, rng: Random, width: int, _: int, count: int) -> None:
        self.kind = rng.choice(["add", "multiply", "rotate", "matrix"])
        few = rng.choice([[0.0, 1.0], [0.0, 1.25], [0.0, 1.0, -1.0, 0.5], None])
        columns = count if self.kind == "matrix" else width
        self.table = [[rng.choice(few) if few else rng.uniform(-1, 1) for _ in range(columns)] for _ in range(count)]
        self.shapes: Shapes = {}

    def __call__(self, _: Weights, xs: Sequences) -> Sequences:
        match self.kind:
            case "add":
                return [[a + c for a, c in zip(x, row, strict=True)] for x, row in zip(xs, self.table, strict=True)]
            case "multiply":
                return [[a * c for a, c in zip(x, row, strict=True)] for x, row in zip(xs, self.table, strict=True)]
            case "matrix":
                return [[total([c * x[k] for c, x in zip(row, xs, strict=True)]) for k in range(len(xs[0]))]
                        for row in self.table]  # fmt: skip
            case _:
                return [rotated(t, x) for t, x in enumerate(xs)]


def rotated(t: int, x: Vector, in_pairs: bool = False) -> Vector:
    """Pairs of numbers, neighbours or of both halves, turned by angles of place t."""
    half = len(x) // 2
    turns = [(math.cos(t / (k + 1)), math.sin(t / (k + 1))) for k in range(half)]
    firsts, seconds = (x[: 2 * half : 2], x[1::2]) if in_pairs else (x[:half], x[half:])
    pairs = [*zip(turns, firsts, seconds, strict=False)]
    left, right = [a * cos - b * sin for (cos, sin), a, b in pairs], [a * sin + b * cos for (cos, sin), a, b in pairs]
    found = [v for pair in zip(left, right, strict=True) for v in pair] if in_pairs else [*left, *right]
    return [*found, *x[2 * half :]]


class Padded:
    """A convolution over places. Where there are none, on one side or on both, it reads 0 or another number, the
    nearest place, or those of the other side."""

    def __init__(self, rng: Random, width: int) -> None:
        self.size = rng.choice([2, 3, 3, 5])
        self.before = rng.choice([(self.size - 1) // 2, self.size - 1])
        self.border = rng.choice([0.0, 0.0, 1.0, -0.5, "nearest", "other side"])
        self.per_channel = rng.random() < 0.4
        self.shapes: Shapes = {"kernel": (width, self.size) if self.per_channel else (width, width, self.size)}

    def __call__(self, w: Weights, xs: Sequences) -> Sequences:
        around = [self._at(t, xs) for t in range(-self.before, len(xs) + self.size - 1 - self.before)]
        return [self._place(w["kernel"], around[t : t + self.size]) for t in range(len(xs))]

    def _at(self, t: int, xs: Sequences) -> Sequence[Any]:
        if self.border == "nearest":
            return xs[max(0, min(t, len(xs) - 1))]
        if self.border == "other side":
            return xs[t % len(xs)]
        return xs[t] if 0 <= t < len(xs) else [self.border] * len(xs[0])

    def _place(self, kernel: Any, near: Sequence[Sequence[Any]]) -> Vector:
        if self.per_channel:
            return [total([a * x[i] for a, x in zip(taps, near, strict=True)]) for i, taps in enumerate(kernel)]
        pairs = [(j, k) for j in range(len(near[0])) for k in range(self.size)]
        return [total([taps[j][k] * near[k][j] for j, k in pairs]) for taps in kernel]


class Block:
    """Layers, each perhaps with a norm before it and its input added to what comes out."""

    def __init__(self, rng: Random, width: int, count: int, kinds: Sequence[Callable[..., Any]]) -> None:
        self.layers = [rng.choice(kinds)(rng, width, width, count) for _ in range(rng.choice([1, 1, 2, 3]))]
        self.residual, self.normed = rng.random() < 0.6, rng.random() < 0.4
        own = _apart(rng)
        if own.random() < 0.3:
            self.layers.insert(0, Fixed(own, width, width, count))
        self.shapes = {f"{i}.{name}": s for i, layer in enumerate(self.layers) for name, s in layer.shapes.items()}

    def __call__(self, w: Weights, xs: Sequences) -> Sequences:
        for i, layer in enumerate(self.layers):
            own = {name.partition(".")[2]: tensor for name, tensor in w.items() if name.startswith(f"{i}.")}
            ys = layer(own, [rmsnorm(x, None) for x in xs] if self.normed else xs)
            xs = (
                [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(xs, ys, strict=True)]
                if self.residual
                else ys
            )
        return xs


def repeated(part: Part, name: str, what: Any, times: int) -> list[Weights]:
    """The weights of each repetition: the same ones, tensors of their own, or rows of one tensor."""
    rng = part.rng
    match rng.choice(["shared", "own", "own", "own", "stacked"]) if times else "own":
        case "shared":
            return [weights(part, name, what.shapes)] * times
        case "own":
            return [weights(part, f"{name}{i}", what.shapes) for i in range(times)]
        case _:
            stacked = weights(part, name, {key: (times, *shape) for key, shape in what.shapes.items()})
            return [{key: tensor[i] for key, tensor in stacked.items()} for i in range(times)]


def weights(part: Part, name: str, shapes: Shapes) -> Weights:
    return {key: part.weights(f"{name}.{key}", *shape) for key, shape in shapes.items()}


# Programs


def blocks(part: Part, xs: Sequences) -> Sequences:
    """A sequence through layers, and blocks of layers."""
    rng, count = part.rng, len(xs)
    width = rng.choice(WIDTHS)
    kinds: list[Callable[..., Any]] = [Each, Each, Scan, Scan, Mask]
    first = rng.choice(kinds)(rng, len(xs[0]), width, count)
    xs = convolved(part, first(weights(part, "first", first.shapes), convolved(part, xs, "pad")), "pad0")
    block = Block(rng, width, count, rng.choice([[Each, Mask], [Mask], [Scan], [Each, Scan, Mask, Place], [Each]]))
    for w in repeated(part, "block", block, rng.choice([0, 1, 1, 2, 3, 4, 6])):
        xs = block(w, xs)
    match rng.randrange(4):
        case 0:
            return [xs[-1]]
        case 1:
            return [[total(list(column)) / count for column in zip(*xs, strict=True)]]
        case 2:
            head = Cell(rng, [width], rng.choice([1, 2, 3, 5]))
            w = weights(part, "head", head.shapes)
            return [head(w, x)[0] for x in xs]
        case _:
            return xs


def convolved(part: Part, xs: Sequences, name: str) -> Sequences:
    """The sequence, or behind a convolution with padding. Only then are more random numbers drawn."""
    own = _apart(part.rng)
    if own.random() > 0.4:
        return xs
    layer = Padded(own, len(xs[0]))
    return layer(weights(part, name, layer.shapes), xs)


def stack(part: Part, xs: Sequences) -> Sequences:
    """One vector through many blocks: a deep network, or one that is applied until it settles."""
    rng = part.rng
    width, x = rng.choice(WIDTHS), [v for x in xs for v in x]
    enter = Cell(rng, [len(x)], width)
    h, feeds = enter(weights(part, "enter", enter.shapes), x)[0], rng.random() < 0.3
    block = Cell(rng, [width, width] if feeds else [width], width)
    residual, start = rng.random() < 0.6, h
    seen = []
    for w in repeated(part, "block", block, rng.choice(COUNTS)):
        new = block(w, h, start)[0] if feeds else block(w, h)[0]
        h = [a + b for a, b in zip(h, new, strict=True)] if residual else new
        seen.append(h)
    return seen if rng.random() < 0.25 else [h]


def integrator(part: Part, xs: Sequences) -> Sequences:
    """Steps of stages: Runge-Kutta or Adams-Bashforth of a random right-hand side, which may read a control."""
    rng = part.rng
    width = rng.choice([n for n in WIDTHS if n < 10])
    controlled = rng.random() < 0.4
    slope = Cell(rng, [width, len(xs[0])] if controlled else [width], width)
    w = weights(part, "slope", slope.shapes)
    y = part.vector("start", width)
    if rng.random() < 0.5:
        enter = Cell(rng, [len(xs[0])], width)
        y = enter(weights(part, "enter", enter.shapes), xs[0])[0]
    method, dt, path = rng.choice(["euler", "heun", "rk4", "rk4", "bashforth"]), rng.choice([0.1, 0.25]), []
    before: Vector | None = None

    def f(at: Vector, x: Vector) -> Vector:
        return slope(w, at, x)[0] if controlled else slope(w, at)[0]

    def ahead(step: float, k: Vector) -> Vector:
        return [a + step * b for a, b in zip(y, k, strict=True)]

    for x in xs if controlled else [xs[0]] * rng.choice(COUNTS[:8]):
        k1 = f(y, x)
        match method:
            case "euler":
                y = ahead(dt, k1)
            case "heun":
                k2 = f(ahead(dt, k1), x)
                y = [a + dt / 2 * (b + c) for a, b, c in zip(y, k1, k2, strict=True)]
            case "bashforth":
                y = ahead(dt, k1 if before is None else [1.5 * b - 0.5 * c for b, c in zip(k1, before, strict=True)])
                before = k1
            case _:
                k2 = f(ahead(dt / 2, k1), x)
                k3 = f(ahead(dt / 2, k2), x)
                k4 = f(ahead(dt, k3), x)
                slopes = zip(y, k1, k2, k3, k4, strict=True)
                y = [a + dt / 6 * (b + 2.0 * c + 2.0 * d + e) for a, b, c, d, e in slopes]
        path.append(y)
    return path if rng.random() < 0.5 else [y]


def points(part: Part, xs: Sequences) -> Sequences:
    """The same network at many points, and beside them, as derivatives of physics losses have them."""
    rng = part.rng
    width, size = rng.choice(WIDTHS), len(xs[0])
    one, two, last = Cell(rng, [size], width), Cell(rng, [width], width), Cell(rng, [width], rng.choice([1, 1, 2]))
    names = [weights(part, name, cell.shapes) for name, cell in (("one", one), ("two", two), ("last", last))]

    def u(x: Vector) -> Vector:
        return last(names[2], two(names[1], one(names[0], x)[0])[0])[0]

    def beside(x: Vector, step: float) -> Vector:
        return [v + step for v in x]

    found = []
    kind = rng.choice(["values", "first", "second"])
    for x in xs:
        if kind == "values":
            found.append(u(x))
        elif kind == "first":
            found.append([(b - a) / 0.2 for a, b in zip(u(beside(x, -0.1)), u(beside(x, 0.1)), strict=True)])
        else:
            three = zip(u(beside(x, -0.1)), u(x), u(beside(x, 0.1)), strict=True)
            found.append([(a - 2.0 * b + c) / 0.01 + b for a, b, c in three])
    if rng.random() < 0.5:
        found.append(u([Value(0.0) for _ in range(size)]))  # the border
    return found


def grid(part: Part, xs: Sequences) -> Sequences:
    """States in two dimensions, each of its neighbours above and to the left; those outside are zero or learned."""
    rng = part.rng
    width = rng.choice([n for n in WIDTHS if n < 6])
    reads = rng.random() < 0.6
    cell = Cell(rng, [width, width, len(xs[0])] if reads else [width, width], width)
    w, zero = weights(part, "cell", cell.shapes), Value(0.0)
    edge = part.vector("edge", width) if not reads or rng.random() < 0.5 else [zero] * width
    above = [edge] * rng.choice([2, 3, 4, 5])
    rows = []
    for x in xs:
        left, row = edge, []
        for up in above:
            left = cell(w, up, left, x)[0] if reads else cell(w, up, left)[0]
            row.append(left)
        above = row
        rows.append(row[-1])
    return [above[-1]] if rng.random() < 0.5 else rows if rng.random() < 0.5 else above


SHAPES = {"blocks": blocks, "stack": stack, "integrator": integrator, "points": points, "grid": grid}


def random_regular(rng: Random) -> Program:
    """A Program of at most MAX_NODES nodes: larger ones are drawn again."""
    while True:
        drawn = _drawn(rng)
        if drawn is not None:
            return drawn


def _drawn(rng: Random) -> Program | None:
    count, size = rng.choice(COUNTS), rng.choice([1, 1, 2, 2, 3, 4, 5])
    kinds: dict[str, Any] = {}
    if rng.random() < 0.15:
        words = [[Value(0.0) for _ in range(n)] for n in [rng.choice([2, 3, 6])] * count]
        kinds = {"words": Tokens(words)}
        part = Part(rng, [v for word in words for v in word])
        table = part.matrix("table", len(words[0]), size)
        xs = [[dot(word, column) for column in zip(*table, strict=True)] for word in words]
    else:
        inputs = [Value(0.0) for _ in range(count * size)]
        part = Part(rng, inputs)
        xs = [inputs[i : i + size] for i in range(0, len(inputs), size)]
    first = Value(0.0)._id
    found = SHAPES[rng.choice(["blocks"] * 5 + ["stack", "integrator", "points", "grid"])](part, xs)
    if Value(0.0)._id - first > MAX_NODES:
        return None
    results = [v for each in found for v in each]
    return finished(part, kinds, results[:MAX_RESULTS], _loss(rng, found))


def _loss(rng: Random, found: Sequences) -> Goal | None:
    """A loss at every place; None for one as other Programs have it."""
    wanted = [[Value(0.0) for _ in each] for each in found]
    match rng.randrange(5):
        case 0 if len(found[0]) > 1:
            losses = [cross_entropy(x, y) for x, y in zip(found, wanted, strict=True)]
        case 1 | 2:
            losses = [mse(x, y) for x, y in zip(found, wanted, strict=True)]
        case _:
            return None
    targets = [v for each in wanted for v in each]
    if rng.random() < 0.4:  # how much each place counts
        shares = [Value(0.0) for _ in found]
        return Floats([*targets, *shares]), dot(shares, losses)
    return Floats(targets), total(losses) / (len(losses) if rng.random() < 0.5 else 1.0)
