"""Random Programs. Each is a seed's: the same seed gives the same Program.

Example: random_program(Random(3)) may give two tanh layers of 5 and 3 units on 11 pixels, the second with the first
one's bias, trained against a label, with an inf among the weights, a parameter that nothing uses and another one that
is an output.

A Program is put together from one or two parts that read the same inputs. The part chooses the structure; what most
Programs do not have, and a compiler gets wrong, is sprinkled over it: repeated operands, constants and weights of every
kind, leaves as outputs or as the loss, unused leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from codegen.kinds import leaves_of
from codegen.program import Floats, Label, Pixels, Program, Tokens
from micrograd.engine import Value
from micrograd.functional import cross_entropy, log_softmax, mse, softmax, total
from micrograd.nn import Nested
from micrograd.ops import ROWS, power
from tools.fuzz_compiler.rules import random_rule

ODD_NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.1, -3.5, 5e-324, 1e-310, 1e308, -1e200, math.inf, -math.inf, math.nan]
SCALES = [1 / 255, 1 / 255, 1 / 16, 1.0, -0.5, 0.0, 1e-310, 1e300]
RATES = [0.1, 0.1, 0.01, 0.01, 1e-3, 0.0, -0.05, 1.0, 1e308, 1e308, 5e-324]

Unary = Callable[[Value], Value]
Goal = tuple[Label | Floats | None, Value]  # targets and loss
ACTIVATIONS: list[Unary] = [
    lambda x: x,
    lambda x: x.relu(),
    lambda x: x.tanh(),
    lambda x: x.sigmoid(),
    lambda x: x.tanh().exp(),
    lambda x: x * x,
    lambda x: x.max(0.1),
    lambda x: x.relu().detach() + x,
    lambda x: (x * x + 1.0).log(),
    lambda x: (x * x + 0.5) ** 0.5,
    lambda x: x**3 * 0.1,
    lambda x: x / (x.relu() + 1.5),
    lambda x: x.softplus(),
    lambda x: x.gelu(),
    lambda x: x.leaky_relu(0.1),
    lambda x: abs(x).sqrt(),
    lambda x: x.sin(),
]


@dataclass
class Part:
    """Some of a Program. `results` are the Values that a loss is made of."""

    rng: Random
    inputs: Sequence[Value]
    parameters: dict[str, Nested] = field(default_factory=dict)
    results: list[Value] = field(default_factory=list)
    words: list[list[Value]] = field(default_factory=list)  # tokens among the inputs, if there are any

    def weights(self, name: str, *shape: int) -> Nested:
        """A new tensor of parameters; the shape () is a single Value."""
        tensor = _nested(shape, lambda: Value(self.rng.uniform(-0.7, 0.7)))
        self.parameters[name] = tensor
        return tensor

    def vector(self, name: str, count: int) -> list[Value]:
        return self.weights(name, count)  # type: ignore[return-value]

    def matrix(self, name: str, rows: int, columns: int) -> list[list[Value]]:
        return self.weights(name, rows, columns)  # type: ignore[return-value]

    def sources(self) -> list[Value]:
        """The inputs; a parameter where there are none."""
        return list(self.inputs) or self.vector("source", self.rng.randint(1, 4))


def _nested(shape: Sequence[int], make: Callable[[], Value]) -> Nested:
    return [_nested(shape[1:], make) for _ in range(shape[0])] if shape else make()


def dot(a: Sequence[Value], b: Sequence[Value]) -> Value:
    return total([x * y for x, y in zip(a, b, strict=True)])


def reduce(rng: Random, terms: Sequence[Value]) -> Value:
    """The sum of some terms, in one of the orders that people write."""
    match rng.randrange(9):
        case 0:
            return total(list(reversed(terms)))
        case 1:  # a fold from the right
            out = terms[-1]
            for term in reversed(terms[:-1]):
                out = term + out
            return out
        case 2:  # a tree
            level = list(terms)
            while len(level) > 1:
                level = [total(level[i : i + 2]) for i in range(0, len(level), 2)]
            return level[0]
        case _:
            return total(terms)


def expression(rng: Random, leaves: Sequence[Value], size: int) -> Value:
    """An irregular graph: any op on any earlier nodes, with sharing, repeated operands and odd constants."""
    nodes = list(leaves)

    def pick() -> Value:
        return nodes[-1 - min(int(rng.expovariate(0.25)), len(nodes) - 1)] if rng.random() < 0.8 else rng.choice(nodes)

    def constant() -> float:
        return rng.choice(ODD_NUMBERS) if rng.random() < 0.1 else round(rng.uniform(-2, 2), 3)

    others = [row for row in ROWS if not (row.is_registered or row.is_infix or row is power)]

    def any_op() -> Value:
        row = rng.choice(others)
        result: Value = row(*[pick() for _ in range(row.arity)])
        return result

    operations: list[Callable[[], Value]] = [
        lambda: pick() + pick(),
        lambda: pick() + pick(),
        lambda: pick() * pick(),
        lambda: pick() * pick(),
        lambda: pick() - pick(),
        lambda: pick() / pick(),
        lambda: pick() + constant(),
        lambda: constant() * pick(),
        lambda: pick() ** rng.choice([-1, 0, 0.5, 1, 2, 3, -0.5]),
        lambda: pick() ** pick(),
        lambda: rng.choice([0.5, 2.0, -2.0]) ** pick(),
        lambda: pick().tanh(),
        lambda: pick().relu(),
        lambda: pick().sigmoid(),
        lambda: pick().tanh().exp(),
        lambda: pick().log(),
        lambda: pick().max(pick(), pick()),
        lambda: pick().detach(),
        any_op,
        any_op,
        any_op,
        lambda: total([pick() for _ in range(rng.randint(2, 12))]),
        lambda: total([pick() * pick() for _ in range(rng.randint(2, 6))]),
    ]
    for _ in range(size):
        nodes.append(rng.choice(operations)())
    return total([pick().tanh(), *nodes[-3:]])


def soup(part: Part) -> None:
    """Scalars without any structure."""
    rng = part.rng
    leaves = [*part.vector("soup", rng.randint(1, 8)), *part.inputs]
    part.results = [expression(rng, leaves, rng.randint(1, 70)) for _ in range(rng.randint(1, 3))]


def layered(part: Part) -> None:
    """Layers of random widths; some with skip connections, missing connections, or the weights of an earlier one."""
    rng = part.rng
    units = part.sources()
    drawn: list[list[list[Value]]] = []
    for layer in range(rng.choice([1, 1, 2, 2, 3, 4])):
        width = rng.choice([1, 2, 2, 3, 3, 4, 5, 5, 7, 8, 9, 10, 13, 16, 17, 33])
        if layer == 0 and len(units) < 10 and rng.random() < 0.15:
            width = rng.choice([50, 100, 129, 150])  # more lanes than registers
        tied = [w for w in drawn if len(w[0]) == len(units)]
        transposed = [list(map(list, zip(*w, strict=True))) for w in drawn if len(w) == len(units)]
        if (tied or transposed) and rng.random() < 0.4:
            matrix = rng.choice([*tied, *transposed])
        else:
            matrix = part.matrix(f"w{layer}", width, len(units))
            drawn.append(matrix)
        biases = part.vector(f"b{layer}", len(matrix)) if rng.random() < 0.7 else []
        bias_first, density = rng.random() < 0.5, rng.choice([1, 1, 1, 1, 1, 1, 1, 0.6])
        activation, order = rng.choice(ACTIVATIONS), Random(rng.random())
        new = []
        for i, row in enumerate(matrix):
            terms = [w * x for w, x in zip(row, units, strict=True) if density == 1 or rng.random() < density]
            bias = biases[i : i + 1]
            terms = [*bias, *terms] if bias_first else [*terms, *bias]
            same = Random()
            same.setstate(order.getstate())  # each unit of a layer is summed up alike
            new.append(activation(reduce(same, terms or [row[0]])))
        skips = len(new) == len(units) and rng.random() < 0.5
        units = [a + b for a, b in zip(units, new, strict=True)] if skips else new
    part.results = units


def convolution(part: Part) -> None:
    """Kernels over a line or a square of inputs, with stride and padding, pooled or not, a dense layer or none."""
    rng = part.rng
    x = part.sources()
    side = math.isqrt(len(x)) if rng.random() < 0.6 else 0
    height, width = (side, side) if side >= 2 else (1, len(x))
    kernel_h, kernel_w = rng.randint(1, min(3, height)), rng.randint(1, min(3, width))
    stride, padding = rng.randint(1, 3), rng.randint(0, 1)
    channels, activation, has_bias = rng.randint(1, 3), rng.choice(ACTIVATIONS), rng.random() < 0.5
    kernels = [part.vector(f"kernel{c}", kernel_h * kernel_w) for c in range(channels)]
    biases = part.vector("bias", channels) if has_bias else []
    zero = Value(0.0)
    padded = rng.choice(["skip", "shared", "fresh"])

    def term(weight: Value, row: int, column: int) -> list[Value]:
        if 0 <= row < height and 0 <= column < width:
            return [weight * x[row * width + column]]
        return [] if padded == "skip" else [weight * (zero if padded == "shared" else Value(0.0))]

    pad_h = padding if height > 1 else 0
    maps: list[list[Value]] = []
    for c, kernel in enumerate(kernels):
        found = []
        for top in range(-pad_h, height + pad_h - kernel_h + 1, stride):
            for left in range(-padding, width + padding - kernel_w + 1, stride):
                terms = biases[c : c + 1]
                for i in range(kernel_h):
                    for j in range(kernel_w):
                        terms = terms + term(kernel[i * kernel_w + j], top + i, left + j)
                found.append(activation(total(terms or [kernel[0]])))
        maps.append(found)
    match rng.randrange(4):
        case 0:
            pooled = [m[0].max(*m[1:]) if len(m) > 1 else m[0] for m in maps]
        case 1:
            pooled = [total(m) / len(m) for m in maps]
        case 2:
            pooled = [a.max(b) for m in maps for a, b in pairwise(m)] or maps[0]
        case _:
            pooled = [unit for m in maps for unit in m]
    if rng.random() < 0.5:
        dense = part.matrix("dense", rng.randint(1, 5), len(pooled))
        pooled = [dot(row, pooled) for row in dense]
    part.results = pooled


def recurrence(part: Part) -> None:
    """The same weights at every step, with or without a gate; sometimes the past is detached."""
    rng = part.rng
    x, hidden = part.sources(), rng.randint(1, 6)
    steps = rng.randint(1, min(6, len(x)))
    size = len(x) // steps
    inner, outer, bias = part.matrix("inner", hidden, hidden), part.matrix("outer", hidden, size), None
    if rng.random() < 0.7:
        bias = part.vector("bias", hidden)
    gate = part.matrix("gate", hidden, size) if rng.random() < 0.4 else None
    detached, from_zero, activation = rng.random() < 0.2, rng.random() < 0.5, rng.choice(ACTIVATIONS[1:5])
    state = [Value(0.0) for _ in range(hidden)] if from_zero else part.vector("start", hidden)
    seen: list[Value] = []
    for step in range(steps):
        now = x[step * size : (step + 1) * size]
        new = [activation(dot(inner[i], state) + dot(outer[i], now)) for i in range(hidden)]
        if bias is not None:
            new = [a + b for a, b in zip(new, bias, strict=True)]
        if gate is not None:
            share = [dot(row, now).sigmoid() for row in gate]
            new = [g * a + (1.0 - g) * old for g, a, old in zip(share, new, state, strict=True)]
        state = [a.detach() for a in new] if detached and step % 2 else new
        seen += new
    part.results = state if rng.random() < 0.5 else seen


def reductions(part: Part) -> None:
    """Sums, products and maxima of odd lengths, one of them in the next."""
    rng = part.rng
    x = part.sources()
    scale = part.vector("scale", rng.randint(1, 5))
    for i in range(rng.randint(1, 4)):
        length = rng.choice([1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 47])
        w, stride = part.vector(f"terms{i}", length), rng.randint(1, 3)
        terms = [a * x[(j * stride) % len(x)] for j, a in enumerate(w)]
        match rng.randrange(6):
            case 0:
                result = terms[0].max(*terms[1:]) if length > 1 else terms[0]
            case 1:
                result = total([t.exp() for t in terms]).log()
            case 2:
                mean = total(terms) / length
                result = reduce(rng, [(t - mean) ** 2 for t in terms])
            case 3:
                result = (reduce(rng, [t * t for t in terms]) + 1e-3) ** 0.5
            case 4:
                result = terms[0]
                for t in terms[1:8]:
                    result = result * t
            case _:
                result = reduce(rng, terms)
        part.results += [result * s for s in scale]
        x = [*x, result]


def strided(part: Part) -> None:
    """Products of elements at affine places of their tensors, as matrices, transposes, diagonals, every third weight;
    or wherever tables of places say."""
    rng = part.rng
    x = part.sources()
    w = part.vector("w", rng.randint(1, 40))
    for _ in range(rng.randint(1, 3)):
        outer, inner = rng.randint(1, 9), rng.randint(1, 9)
        a, b, c, d, e, f = (rng.randint(0, 5) for _ in range(6))
        activation, constant, scattered = rng.choice(ACTIVATIONS), rng.random() < 0.3, rng.random() < 0.3
        units = []
        for i in range(outer):
            places = [((a * i + b * j + c) % len(w), (d * i + e * j + f) % len(x)) for j in range(inner)]
            if scattered:
                places = [(rng.randrange(len(w)), rng.randrange(len(x))) for _ in places]
            terms = [w[p] * x[q] for p, q in places]
            units.append(activation(total([t * 0.5 if constant else t for t in terms])))
        part.results += units
        x = units


def attention(part: Part) -> None:
    """Softmax of dot products of learned queries and keys, applied to the inputs themselves."""
    rng = part.rng
    x = part.sources()
    width = rng.randint(1, min(4, len(x)))
    rows = [x[i : i + width] for i in range(0, len(x) - width + 1, width)][:6]
    query, key = part.matrix("query", width, width), part.matrix("key", width, width)
    keys = [[dot(w, row) for w in key] for row in rows]
    for row in rows:
        asked = [dot(w, row) for w in query]
        weigh = softmax if rng.random() < 0.8 else log_softmax
        shares = weigh([dot(asked, k) for k in keys])
        part.results += [dot(shares, list(column)) for column in zip(*rows, strict=True)]


def embedding(part: Part) -> None:
    """Rows of a table that tokens select, or all inputs as if they were one, and what models make of them."""
    rng = part.rng
    words = part.words or [part.sources()]
    table = part.matrix("table", len(words[0]), rng.choice([1, 2, 3, 5, 9]))
    rows = [[dot(word, column) for column in zip(*table, strict=True)] for word in words]
    match rng.randrange(5):
        case 0:
            part.results = [reduce(rng, column) / len(rows) for column in zip(*rows, strict=True)]
        case 1:  # a recurrence
            state = part.vector("state", len(rows[0]))
            for row in rows:
                state = [(s * 0.5 + x).tanh() for s, x in zip(state, row, strict=True)]
            part.results = state
        case 2:  # the table once more, as a matrix
            state = [reduce(rng, column) for column in zip(*rows, strict=True)]
            part.results = [dot(row, state) for row in table]
        case 3:
            places = part.matrix("places", len(rows), len(rows[0]))
            part.results = [
                rng.choice(ACTIVATIONS)(x + p)
                for row, at in zip(rows, places, strict=True)
                for x, p in zip(row, at, strict=True)
            ]
        case _:
            part.results = [x for row in rows for x in row]


KINDS: dict[str, Callable[[Part], None]] = {
    "soup": soup,
    "layered": layered,
    "convolution": convolution,
    "recurrence": recurrence,
    "reductions": reductions,
    "strided": strided,
    "attention": attention,
    "embedding": embedding,
}


def _declared(rng: Random, most: float) -> tuple[dict[str, Any], list[list[Value]]]:
    """Inputs of several kinds by name, and the tokens among them."""
    words = [
        [Value(0.0) for _ in range(n)] for n in [rng.choice([2, 3, 6, 11])] for _ in range(rng.choice([1, 1, 2, 3, 5]))
    ]
    kinds: dict[str, Any] = {"words": Tokens(words)}
    if rng.random() < 0.5:
        kinds["numbers"] = Floats([Value(0.0) for _ in range(rng.randint(1, 9))])
    if rng.random() < 0.4:
        kinds["picture"] = Pixels([Value(0.0) for _ in range(rng.randint(1, 9))], min(rng.choice(SCALES), most))
    if rng.random() < 0.3:
        kinds["others"] = Tokens([[Value(0.0) for _ in range(rng.choice([2, 5]))]])
    return dict(rng.sample([*kinds.items()], len(kinds))), words


def random_program(rng: Random, kind: str | None = None) -> Program:
    """A Program of one kind, or of one or two kinds that are drawn."""
    names = [kind] if kind else rng.choices([*KINDS, *["layered"] * 3], k=rng.choice([1, 1, 1, 1, 2]))
    inputs = [Value(0.0) for _ in range(rng.choice([0, 1, 2, 3, 4, 4, 5, 5, 7, 8, 9, 9, 12, 16, 17, 25, 36]))]
    kinds: dict[str, Any] = {}
    words: list[list[Value]] = []
    if rng.random() < (0.8 if "embedding" in names else 0.1):
        kinds, words = _declared(rng, 1e30)
        inputs = [value for each in kinds.values() for value in leaves_of(each)]
    parameters: dict[str, Nested] = {}
    results: list[Value] = []
    for i, name in enumerate(names):
        part = Part(rng, inputs, words=words)
        KINDS[name](part)
        parameters |= {f"{name}{i or ''}.{key}": tensor for key, tensor in part.parameters.items()}
        results += part.results
    return finished(Part(rng, inputs, parameters), kinds, results[:40])


def finished(part: Part, kinds: dict[str, Any], results: list[Value], goal: Goal | None = None) -> Program:
    """The Program of some results. Without a goal, its targets and loss are drawn."""
    rng, inputs, parameters = part.rng, part.inputs, part.parameters
    targets, loss = goal or _loss(rng, results)
    outputs = _outputs(rng, [*inputs, *_flat(parameters)], results)
    if rng.random() < 0.2:
        parameters["unused"] = _nested([(), (1,), (3,), (2, 2)][rng.randrange(4)], lambda: Value(rng.uniform(-1, 1)))
    flat = _flat(parameters)
    if rng.random() < 0.04:  # a loss that is a leaf
        loss = rng.choice([Value(rng.choice(ODD_NUMBERS)), *flat, *inputs, *getattr(targets, "values", [])])
    _sprinkle(rng, [loss, *(v for values in outputs.values() for v in values)], flat)
    order = rng.sample(flat, len(flat)) if rng.random() < 0.2 else flat
    initial, seed = None, rng.choice([0, 1, 2**32 + 3, 2**64 - 1])
    if rng.random() < 0.1:
        initial = {name: rng.choice([(-0.5, 0.5), (0.25, 0.25), (-0.0, 0.0), (0.0, 1.0)]) for name in parameters}
        _draw(parameters, initial, order, Random(seed))
    scale = rng.choice(SCALES) if rng.random() < 0.5 else None
    rate, dtype = rng.choice(RATES), "float32" if rng.random() < 0.06 else "float64"
    update = random_rule(rng.randrange(10**6)) if rng.random() < 0.3 else None
    most = 3e38 if dtype == "float32" else math.inf  # so that it is a number of the dtype
    return Program(
        inputs=kinds or (Floats(inputs) if scale is None else Pixels(inputs, min(scale, most))),
        targets=targets,
        parameters=parameters,
        loss=loss,
        outputs=outputs,
        learning_rate=min(rate, most),
        order=order,
        initial=initial,
        seed=seed,
        dtype=dtype,
        update=update,
    )


def _loss(rng: Random, results: list[Value]) -> Goal:
    count = len(results)
    match rng.randrange(6):
        case 0 | 1 if count > 1:
            label = [Value(0.0) for _ in range(count)]
            return Label(label), cross_entropy(results, label)
        case 2 | 3:
            wanted = [Value(0.0) for _ in range(count)]
            return Floats(wanted), mse(results, wanted)
        case 4:  # some targets that nothing needs, a hinge for the others
            signs = [Value(0.0) for _ in range(rng.randint(1, count + 2))]
            return Floats(signs), total([(1.0 - s * r).relu() for s, r in zip(signs, results, strict=False)])
        case _:
            return None, reduce(rng, [r * r for r in results]) if rng.random() < 0.5 else total(results)


def _outputs(rng: Random, leaves: list[Value], results: list[Value]) -> dict[str, list[Value]]:
    outputs = {"results": results}
    if rng.random() < 0.3:
        outputs["softmax"] = softmax(results)
    if rng.random() < 0.3:
        outputs["leaves"] = rng.choices([*leaves, Value(rng.choice(ODD_NUMBERS)), results[0]], k=rng.randint(1, 6))
    if rng.random() < 0.2:
        outputs["later"] = [r.tanh() + rng.choice(leaves) for r in results[:3]] if leaves else [results[-1].exp()]
    return outputs


def _sprinkle(rng: Random, roots: list[Value], flat: list[Value]) -> None:
    """Odd numbers among weights and constants, and operands that are used twice."""
    for value in flat:
        if rng.random() < 0.02:
            value.data = rng.choice([0.0, -0.0, 1.0, -1.0])
    if rng.random() < 0.2:
        numbers = rng.choice([ODD_NUMBERS, [math.inf, -math.inf, math.nan, 1e308, -1e308]])
        for value in rng.sample(flat, min(len(flat), rng.randint(1, 3))):
            value.data = rng.choice(numbers)
    if rng.random() < 0.15:
        inner = [v for v in Value(0.0, tuple(roots)).topo() if len(v._prev) == 2]
        for value in rng.sample(inner, min(len(inner), rng.randint(1, 2))):
            value._prev = (value._prev[0],) * 2


def _draw(
    parameters: dict[str, Nested], initial: dict[str, tuple[float, float]], order: list[Value], rng: Random
) -> None:
    """Gives the parameters what a module draws from the declared distributions when it is imported."""
    bounds = {id(value): initial[name] for name, tensor in parameters.items() for value in _flat({"": tensor})}
    for value in order:
        low, high = bounds[id(value)]
        value.data = low if low == high else rng.uniform(low, high)


def _flat(tensors: Mapping[Any, Nested]) -> list[Value]:
    out: list[Value] = []
    for item in tensors.values():
        out += [item] if isinstance(item, Value) else _flat(dict(enumerate(item)))
    return out
