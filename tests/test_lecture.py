"""Departures from the network of karpathy's lecture on micrograd, and from how it learns four points.

`MLP(3, [4, 4, 1], lecture=True)` is compared with plain floats: the same draws, tanh from `math`, the chain rule
written out layer by layer. The lecture's notebook draws without a seed, so its own losses cannot be had again; see
docs/coming_from.md.
"""

from __future__ import annotations

import math
import random
from array import array
from itertools import pairwise

import pytest
from harness import Extension

from codegen import Floats, Program
from micrograd.engine import Value
from micrograd.functional import total
from micrograd.nn import MLP

XS = [[2.0, 3.0, -1.0], [3.0, -1.0, 0.5], [0.5, 1.0, 1.0], [1.0, 1.0, -1.0]]
YS = [1.0, -1.0, -1.0, 1.0]
SIZES = [3, 4, 4, 1]
STEPS = 20

# Seed, rate, and the losses before the first, second, third and last step.
RUNS = [
    (1337, 0.1, (6.005403, 3.20215, 2.462171, 0.017782)),
    (1337, 0.05, (6.005403, 4.448281, 3.03872, 0.059642)),
    (42, 0.05, (5.230518, 2.704689, 1.846024, 0.090313)),
]


def draw() -> list[list[tuple[list[float], float]]]:
    """Layers of neurons: each draws its weights, then its bias."""
    return [
        [([random.uniform(-1, 1) for _ in range(nin)], random.uniform(-1, 1)) for _ in range(nout)]
        for nin, nout in pairwise(SIZES)
    ]


def gradients(layers: list, x: list[float], y: float) -> tuple[float, list]:
    """The squared error of one point and, per layer and neuron, its gradients by the weights and the bias."""
    seen = [x]
    for layer in layers:
        seen.append([math.tanh(b + sum(w * h for w, h in zip(ws, seen[-1], strict=True))) for ws, b in layer])
    error = seen[-1][0] - y
    by_layer: list = []
    back = [2 * error]  # the derivative by each output of the layer
    for layer, inputs, outputs in zip(reversed(layers), reversed(seen[:-1]), reversed(seen[1:]), strict=True):
        inner = [g * (1 - h * h) for g, h in zip(back, outputs, strict=True)]
        by_layer.insert(0, [([g * i for i in inputs], g) for g in inner])
        back = [sum(g * ws[k] for g, (ws, _) in zip(inner, layer, strict=True)) for k in range(len(inputs))]
    return error * error, by_layer


def plain_losses(seed: int, rate: float) -> list[float]:
    random.seed(seed)
    layers = draw()
    losses = []
    for _ in range(STEPS):
        found = [gradients(layers, x, y) for x, y in zip(XS, YS, strict=True)]
        losses.append(sum(loss for loss, _ in found))
        layers = [
            [
                (
                    [w - rate * sum(g[i][j][0][k] for _, g in found) for k, w in enumerate(ws)],
                    b - rate * sum(g[i][j][1] for _, g in found),
                )
                for j, (ws, b) in enumerate(layer)
            ]
            for i, layer in enumerate(layers)
        ]
    return losses


def lecture_losses(seed: int, rate: float) -> list[float]:
    """The notebook's own loop."""
    random.seed(seed)
    n = MLP(3, [4, 4, 1], lecture=True)
    losses = []
    for _ in range(STEPS):
        ypred = [n(x) for x in XS]
        loss = sum((yout - ygt) ** 2 for ygt, yout in zip(YS, ypred, strict=True))
        for p in n.parameters():
            p.grad = 0.0
        loss.backward()
        for p in n.parameters():
            p.data += -rate * p.grad
        losses.append(loss.data)
    return losses


@pytest.mark.parametrize(("seed", "rate", "some"), RUNS)
def test_a_seeded_run_has_the_losses_of_plain_python(seed, rate, some):
    losses = lecture_losses(seed, rate)
    assert losses == pytest.approx(plain_losses(seed, rate), rel=1e-9, abs=0)
    assert tuple(round(losses[i], 6) for i in (0, 1, 2, -1)) == some


def test_weights_and_biases_are_drawn_neuron_by_neuron_and_nothing_else_is():
    random.seed(9)
    expected, after = draw(), random.random()
    random.seed(9)
    n = MLP(3, [4, 4, 1], lecture=True)
    assert random.random() == after
    assert [p.data for p in n.parameters()] == [x for layer in expected for ws, b in layer for x in (*ws, b)]
    assert len(n.parameters()) == 41


def test_every_layer_ends_in_tanh():
    n = MLP(3, [4, 4, 1], lecture=True)
    assert repr(n.layers[-1]) == "Layer of [TanhNeuron(4)]"
    assert {neuron([0.5] * len(neuron.w))._op for layer in n.layers for neuron in layer.neurons} == {"tanh"}
    assert n.initial() == dict.fromkeys(n.named_parameters(), (-1.0, 1.0))


@pytest.mark.parametrize("other", [{"init": "fan_in"}, {"activation": "sigmoid"}, {"last_nonlin": True}])
def test_other_options_beside_it_are_refused_before_anything_is_drawn(other):
    random.seed(5)
    expected = random.random()
    random.seed(5)
    with pytest.raises(ValueError, match="lecture=True stands for"):
        MLP(3, [4, 4, 1], lecture=True, **other)
    assert random.random() == expected


def four_points() -> Program:
    """All four points in one graph, as in the notebook; their numbers are inputs."""
    random.seed(0)
    n = MLP(3, [4, 4, 1], lecture=True)
    xs, ys = [[Value(0) for _ in range(3)] for _ in XS], [Value(0) for _ in YS]
    outs = [n(x) for x in xs]
    return Program(
        inputs=Floats([value for x in xs for value in x]),
        targets=Floats(ys),
        parameters=n.named_parameters(),
        order=n.parameters(),
        initial=n.initial(),
        seed=1337,
        loss=total([(out - y) ** 2 for out, y in zip(outs, ys, strict=True)]),
        outputs={"ypred": outs},
    )


@pytest.fixture(scope="module")
def nn(tmp_path_factory):
    return Extension(four_points(), tmp_path_factory.mktemp("lecture"), "loops", flags=["-O0"]).module


@pytest.mark.parametrize(
    ("seed", "rate", "some"), [RUNS[0], *(pytest.param(*run, marks=pytest.mark.slow) for run in RUNS[1:])]
)
def test_compiled_it_has_the_same_bits(nn, seed, rate, some):
    points, targets = array("d", [value for x in XS for value in x]), array("d", YS)
    nn.reset(seed)  # draws what the constructor draws after random.seed(seed)
    losses = []
    for _ in range(STEPS):
        nn.zero_grad()
        losses.append(nn.forward(targets, points))
        nn.backward()
        nn.update(learning_rate=rate)
    assert [x.hex() for x in losses] == [x.hex() for x in lecture_losses(seed, rate)]
