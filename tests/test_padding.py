"""Padding: constants around values that a parameter is multiplied with, stored with them as one array."""

from __future__ import annotations

import random
from dataclasses import replace

import models
import numpy as np
import pytest
from harness import bits, compare, nightly_but
from models import dot, total

from codegen import Floats, Program, compile_program
from codegen.ir.graph import Graph, Op
from codegen.passes.autodiff import differentiate
from codegen.passes.padding import store_padding
from codegen.passes.trace import trace
from codegen.passes.windows import find_windows
from codegen.pipeline import build_graph
from codegen.reference.interpret import interpret
from micrograd.arrays import array
from micrograd.engine import Value


def image(
    channels: int, sides: tuple[int, ...], kernels: int, size: int, around: int, stride: int = 1, mode: str = "constant"
) -> Program:
    """Two convolutions of as many axes as `sides`, each behind a border: zeros, if not of another mode of np.pad."""
    rng = random.Random(1)
    x = models.values(channels * int(np.prod(sides)))
    first = models.weights(rng, kernels, channels, *[size for _ in sides])
    second = models.weights(rng, kernels, kernels, *[size for _ in sides])
    given = array(x).reshape(channels, *sides)
    maps = np.tanh(convolved(given, array(first), size, (around, around), stride, mode))
    out = convolved(maps, array(second), size, (around, around), stride, mode)
    loss = (out * out).sum() + total([w * w for w in flat(second)]) * 0.01
    return Program(Floats(x), None, {"first": first, "second": second}, loss, {"loss": [loss]}, 0.01)


def convolved(maps, kernels, size, around, stride=1, mode="constant"):
    sides = maps.shape[1:]
    maps = np.pad(maps, [(0, 0), *[around for _ in sides]], mode=mode)
    reach = [side + sum(around) - size + 1 for side in sides]
    found = None
    for tap in np.ndindex(*[size for _ in sides]):
        seen = maps[(slice(None), *[slice(t, t + r, stride) for t, r in zip(tap, reach, strict=True)])]
        part = np.tensordot(kernels[(slice(None), slice(None), *tap)], seen, axes=1)
        found = part if found is None else found + part
    return found


def flat(nested) -> list[Value]:
    return [v for inner in nested for v in flat(inner)] if isinstance(nested, list) else [nested]


def causal(steps: int = 9, width: int = 3) -> Program:
    """Each place reads itself, the place before and the one before that; a place that is not there is 0.5."""
    rng = random.Random(1)
    x = models.values(steps * width)
    parameters = {name: models.weights(rng, width, 3 * width) for name in ("first", "second")}
    places = [x[i : i + width] for i in range(0, len(x), width)]
    for kernel in parameters.values():
        behind = [[0.5] * width, [0.5] * width, *places]
        near = [flat(behind[t : t + 3]) for t in range(steps)]
        places = [[dot(row, read).tanh() for row in kernel] for read in near]
    loss = total([v * v for place in places for v in place])
    return Program(Floats(x), None, parameters, loss, {"loss": [loss]}, 0.01)


def depthwise(side: int = 4, channels: int = 5) -> Program:
    """Each channel has a kernel of its own; channels are the last axis."""
    rng = random.Random(1)
    x = models.values(side * side * channels)
    mix, kernel = models.weights(rng, channels, channels), models.weights(rng, channels, 3, 3)
    maps = np.maximum(array(x).reshape(side, side, channels) @ array(mix), 0)
    maps = np.pad(maps, [(1, 1), (1, 1), (0, 0)])
    taps = [(u, v) for u in range(3) for v in range(3)]
    out = sum(maps[u : u + side, v : v + side] * array(kernel)[:, u, v] for u, v in taps)
    return Program(Floats(x), None, {"mix": mix, "kernel": kernel}, (out * out).sum(), {"out": [*out.ravel()]}, 0.01)


def enlarged(side: int = 3, channels: int = 2) -> Program:
    """A convolution of an image whose pixels are repeated, twice in each direction."""
    rng = random.Random(1)
    x = models.values(channels * side * side)
    kernels = models.weights(rng, channels, channels, 3, 3)
    maps = np.repeat(np.repeat(array(x).reshape(channels, side, side), 2, axis=1), 2, axis=2)
    out = np.tanh(convolved(maps, array(kernels), 3, (1, 1)))
    return Program(Floats(x), None, {"kernels": kernels}, (out * out).sum(), {"out": [*out.ravel()]}, 0.01)


def recurrent(steps: int = 3, side: int = 4, channels: int = 2, zeros: bool = False) -> Program:
    """A recurrence whose state is an image, with a gate: two convolutions of the input and of the state before it.

    The first state is `zeros`, or there is none, and nothing is multiplied with the weights that would read it.
    """
    rng = random.Random(1)
    x = models.values(steps * side * side)
    parameters = {name: models.weights(rng, channels, 1 + channels, 3, 3) for name in ("gate", "new")}
    gate, new = (array(parameters[name]) for name in ("gate", "new"))
    state = np.zeros((channels, side, side)) if zeros else None
    for seen in array(x).reshape(steps, 1, side, side):
        if state is None:
            state = np.tanh(convolved(seen, new[:, :1], 3, (1, 1)))
            continue
        kept = 1 / (1 + np.exp(-convolved(np.concatenate([seen, state]), gate, 3, (1, 1))))
        added = np.tanh(convolved(np.concatenate([seen, kept * state]), new, 3, (1, 1)))
        state = kept * state + added
    return Program(Floats(x), None, parameters, (state * state).sum(), {"out": [*state.ravel()]}, 0.01)


PADDED = {
    "one axis": lambda: image(2, (7,), 3, 3, 1),
    "two axes": lambda: image(2, (4, 5), 3, 3, 1),
    "stride": lambda: image(1, (6, 6), 3, 3, 1, stride=2),
    "large kernel": lambda: image(1, (6, 6), 2, 5, 2),
    "other side": lambda: image(2, (4, 5), 3, 3, 1, mode="wrap"),
    "nearest": lambda: image(2, (8,), 3, 3, 1, mode="edge"),
    "mirrored": lambda: image(1, (5, 4), 2, 3, 1, mode="reflect"),
    "enlarged": enlarged,
    "causal": causal,
    "depthwise": depthwise,
    "recurrent": recurrent,
    "recurrent from zeros": lambda: recurrent(zeros=True),
}


@pytest.mark.parametrize(
    "name",
    nightly_but(["stride"], PADDED),
)
def test_bits(name, tmp_path):
    program = PADDED[name]()
    assert build_graph(program).padded
    compare(program, tmp_path, steps=2, flags=["-O0"])


def test_a_small_image_may_have_many_more_places_with_its_border():
    assert build_graph(enlarged(side=2, channels=8)).padded  # 36 for 4 pixels


def test_frozen_models_have_padding_too():
    program = image(1, (5, 5), 2, 3, 1)
    frozen = replace(program, targets=None, loss=None)
    assert len(build_graph(frozen).padded) == 2


def padded(program: Program, is_stored: bool = True) -> Graph:
    graph = trace(program)
    forward = len(graph)
    differentiate(graph, False)
    return store_padding(graph, program, forward) if is_stored else graph


def row(border: list[float], weight=None, extra=None) -> Program:
    """Three weights on four numbers between two constants."""
    x, w = models.values(4), models.values(3)
    around = [border[0], *x, border[1]]
    w_ = weight(w) if weight else w
    sums = [total([a * b for a, b in zip(w_, around[i : i + 3], strict=True)]) for i in range(len(around) - 2)]
    loss = total([s * s for s in sums]) + (extra(w, x) if extra else 0.0)
    return Program(Floats(x), None, {"w": w}, loss, {"sums": sums}, 0.01)


def decayed() -> Program:
    """The squares of the weights come first, so that their gradients are added last."""
    x, w = models.values(4), models.weights(random.Random(1), 1, 3)[0]
    squares, around = total([v * v for v in w]), [0.0, *x, 0.0]
    sums = [dot(w, around[i : i + 3]) for i in range(4)]
    return Program(Floats(x), None, {"w": w}, total([s * s for s in sums]) + squares * 0.1, {"sums": sums}, 0.01)


@pytest.mark.parametrize("name", ["one axis", "stride", "nearest", "enlarged", "causal", "recurrent", "decayed"])
def test_an_array_changes_no_number(name):
    """Not in the gradients either, whose terms read the array too."""
    program, rng = (PADDED | {"decayed": decayed})[name](), random.Random(2)
    inputs, old = ([rng.uniform(-1, 1) for _ in values] for values in (program.input_values, program.parameter_values))
    found = []
    for graph in (padded(program, is_stored=False), padded(program)):
        values = interpret(graph, [p.data for p in program.parameter_values], old, inputs, [])
        found.append(bits([values[n] for n in graph.roots()]))
    assert found[0] == found[1]


def test_the_array_of_the_example():
    graph = padded(row([0.0, 0.0]))
    (found,) = graph.padded
    read = [graph.op[graph.a[n]] for n in found.nodes]
    assert found.places == [0, 1, 2, 3, 4, 5]
    assert read == [Op.CONST, Op.INPUT, Op.INPUT, Op.INPUT, Op.INPUT, Op.CONST]
    assert [graph.a[graph.a[n]] for n in found.nodes[1:5]] == [0, 1, 2, 3]
    place = {n: i for i, n in zip(found.places, found.nodes, strict=True)}
    taps = {}
    for op, a, b in zip(graph.op, graph.a, graph.b, strict=True):
        if op == Op.MUL and graph.op[a] == Op.PARAM and b in place:
            taps.setdefault(graph.a[a], []).append(place[b])
    assert taps == {0: [0, 1, 2, 3], 1: [1, 2, 3, 4], 2: [2, 3, 4, 5]}


def test_constants_may_differ_from_place_to_place():
    (found,) = padded(row([0.25, -1.0])).padded
    assert len(found.nodes) == 6


@pytest.mark.parametrize(
    "program",
    [
        row([0.0, 0.0], extra=lambda w, x: w[0] * 2.0 + w[1] * x[1]),  # not as often as the others
        row([0.0, 0.0], weight=lambda w: [w[0], w[1] * 1.5, w[2]]),  # a product, no parameter
        row([0.0, 0.0], extra=lambda w, x: total([a * b for a, b in zip(w, [x[2], 3.0, x[0]], strict=True)])),
    ],
)
def test_other_constants_stay_where_they_are(program):
    assert not padded(program).padded


def test_each_state_of_a_recurrence_is_an_array():
    """Each step reads the state before, with a zero on either side: a copy of it, which stands behind it."""
    x, w = models.values(5), models.values(3)
    state, sums = x, []
    for _ in range(3):
        around = [0.0, *state, 0.0]
        state = [dot(w, around[i : i + 3]).tanh() for i in range(5)]
        sums += state
    graph = padded(Program(Floats(x), None, {"w": w}, total(sums), {"sums": sums}, 0.01))
    assert [found.places for found in graph.padded] == [[*range(7)]] * 3
    read = [{graph.op[graph.a[n]] == Op.INPUT for n in found.nodes[1:6]} for found in graph.padded]
    assert read == [{True}, {False}, {False}]


def test_weights_that_read_the_same_share_an_array():
    x, weights = models.values(5), [models.values(3), models.values(3)]
    around = [0.0, *x, 0.0]
    sums = [dot(w, around[i : i + 3]) for w in weights for i in range(5)]
    program = Program(Floats(x), None, dict(zip("ab", weights, strict=True)), total(sums), {"sums": sums}, 0.01)
    assert len(padded(program).padded) == 1


def test_two_constants_in_one_place_are_no_padding():
    x, w = models.values(4), models.values(3)
    sums = [[w[0] * 0.0, w[1] * x[0], w[2] * x[1]], [w[0] * x[0], w[1] * x[1], w[2] * x[2]],
            [w[0] * x[1], w[1] * x[2], w[2] * x[3]], [w[0] * x[2], w[1] * x[3], w[2] * 0.0]]  # fmt: skip
    more = [[w[0] * 1.0, w[1] * x[0], w[2] * x[1]]]
    for terms, count in ((sums, 1), (sums + more, 0)):
        loss = total([total(some) for some in terms])
        assert len(padded(Program(Floats(x), None, {"w": w}, loss, {}, 0.01)).padded) == count


WINDOWS = [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]


@pytest.mark.parametrize("border", [(-1, -1), (-1, -2), (4, 7), (7, 4), (8, 9)])
def test_windows(border):
    """Constants, the other side, the nearest element, the mirrored one."""
    array = np.array([border[0], 7, 8, 9, 4, border[1]])
    assert find_windows(array[WINDOWS]).tolist() == WINDOWS


def test_windows_may_skip_elements():
    """With a stride of two, some weights read even elements alone, others odd ones and the border."""
    array = np.array([-1, 7, 8, 9, 10, 11, 12, 13, -1])
    windows = np.array([[0, 2, 4, 6], [1, 3, 5, 7], [2, 4, 6, 8]])
    assert find_windows(array[windows]).tolist() == windows.tolist()
    side = np.pad(7 + np.arange(49).reshape(7, 7), 1, constant_values=-1)
    taps = [side[u : u + 7 : 2, v : v + 7 : 2].ravel() for u in range(3) for v in range(3)]
    places = [[9 * (u + i) + v + j for i in range(0, 7, 2) for j in range(0, 7, 2)] for u in range(3) for v in range(3)]
    assert find_windows(np.array(taps)).tolist() == places


def test_windows_of_elements_as_they_are_need_no_array():
    elements = np.arange(12)
    assert find_windows(elements[WINDOWS]) is None  # 0 to 5
    assert find_windows(np.array([[5, 6, 7, 8], [9, 10, 11, 12]])) is None
    assert find_windows(np.array([[5, 5, 5, 5], [6, 6, 6, 6]])) is None  # the same each time: multiplied once
    assert find_windows(np.array([[5, 6, 7, 8, 9, 10, 11, -1], [9, 5, -1, 8, 11, 6, 10, 7]])) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one axis", "two axes"])
def test_a_border_costs_no_kernels(name):
    """Nor does a larger image; without the array, each side and corner would be kernels of its own, and all behind."""
    sizes = {"one axis": [(7,), (11,)], "two axes": [(5, 5), (7, 8)]}[name]
    counts = [len(compile_program(image(2, sides, 3, 3, 1)).plain.kernels) for sides in sizes]
    assert counts[0] == counts[1]
    assert counts[0] <= {"one axis": 18, "two axes": 20}[name]


@pytest.mark.slow
def test_steps_of_a_recurrence_of_images_cost_no_kernels():
    """Sums that read the border alone depend on no state, and are still of the step whose array they read."""
    compiled = [compile_program(recurrent(steps), "m") for steps in (4, 7)]
    lines = [found.files["m_kernels.h"].count("\n") for found in compiled]
    assert lines[1] <= 1.01 * lines[0]
    assert lines[0] < 2000  # and 8,748 if those sums had no step, 5,052 if gradients were not stored as images are


def test_a_model_may_have_no_constants():
    """Beyond the end of a ring is its start: nothing is padded, and nowhere is a number."""
    kernels = array(np.random.default_rng(0).uniform(size=(4, 4, 2)))
    h = x = array(np.zeros((4, 8)))
    for _ in range(2):
        near, far = kernels[:, :, 0], kernels[:, :, 1]
        h = np.tanh(np.einsum("oc,ci->oi", near, h) + np.einsum("oc,ci->oi", far, np.roll(h, 1, axis=1)))
    program = Program(Floats(x), None, {"kernels": kernels}, None, {"h": h})
    assert not build_graph(program).constants
