"""Rows of weights that an input of 0 leaves alone: one that is skipped although it counts, or not written down in time.

A pixel of 0 lets the module skip its row of weights, and its row of gradients. Whoever writes through a view may make
this wrong at any time, so these tests write something non-finite, or a gradient, just where rows are skipped. After
each call all that can be observed is compared with the engine.
"""

from __future__ import annotations

import itertools
import math
import random
from array import array
from collections.abc import Callable

import numpy as np
import pytest
from harness import Extension, bits, example, nightly_but, slow_but, state, train_by_hand
from models import affine, values, weights

from codegen import Floats, Pixels, Program
from codegen.passes.freeze import weights_of
from micrograd.functional import mse
from tools.fuzz_compiler.reference import Engine

pytestmark = pytest.mark.usefixtures("rows_of_any_size")


class Twins:
    """A compiled model and the engine, which agree by bits after each call.

    Gradients may stay uncomputed until somebody looks: `looks` decides whether this compares them now.
    """

    def __init__(self, model: Extension, looks: Callable[[], bool] = lambda: True) -> None:
        self.looks = looks
        self.model, self.module, self.program = model, model.module, model.program
        self.engine = Engine(model.program)
        self.engine.data = list(model.data)
        self.places = {
            number: (tensor.name, index)
            for tensor in model.program.tensors
            for number, index in zip(tensor.numbers, np.ndindex(tensor.shape), strict=True)
        }

    def forward(self, target: object, inputs: object) -> float:
        loss = self.model.forward(target, inputs)
        assert bits([loss]) == bits([self.engine.forward(target, inputs)])
        return loss

    def backward(self) -> None:
        self.module.backward()
        for value, number in zip(self.program.parameter_values, self.engine.data, strict=True):
            value.data = number  # micrograd goes back with the weights of now
        self.engine.backward()
        self.agree()

    def update(self, batch_size: int = 1, rate: float | None = None) -> None:
        self.module.update(0, batch_size, learning_rate=rate)
        self.engine.update(batch_size, rate)
        self.agree()

    def zero_grad(self) -> None:
        self.module.zero_grad()
        self.engine.zero_grad()
        self.agree()

    def load(self, numbers: list[float]) -> None:
        self.engine.data = list(numbers)
        self.module.load_state_dict(weights_of(self.program, numbers))
        self.agree()

    def write(self, views: Callable, number: int, value: float) -> np.ndarray:
        """Writes one parameter or gradient through a view, and returns the view."""
        name, index = self.places[number]
        view = np.asarray(views()[name])
        view[index] = value
        (self.engine.data if views == self.module.state_dict else self.engine.grads)[number] = value
        return view

    def agree(self) -> None:
        assert bits(self.model.data) == bits(self.engine.data)
        if self.looks():
            assert bits(self.model.grads) == bits(self.engine.grads)


@pytest.fixture
def twins(compiled) -> Twins:
    """An MLP of 12 pixels, 7 units and 5 classes."""
    return Twins(compiled("mlp"))


DIM = [200, 0, 7, 0, 0, 31, 0, 0, 255, 0, 90, 0]
BLACK_PIXEL = 4  # 0 in DIM
BRIGHT = [255 if i == BLACK_PIXEL else x for i, x in enumerate(DIM)]
NON_FINITE = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", NON_FINITE)
@pytest.mark.parametrize("way", ["view alive", "view dropped", "view alive elsewhere", "load_state_dict"])
def test_a_non_finite_weight_of_a_black_pixel_poisons_the_loss(twins, way, value):
    assert math.isfinite(twins.forward(2, DIM))
    number = 3 * 13 + BLACK_PIXEL
    other = twins.module.state_dict() if way == "view alive elsewhere" else None
    if way == "load_state_dict":
        numbers = list(twins.engine.data)
        numbers[number] = value
        twins.load(numbers)
    else:
        view = twins.write(twins.module.state_dict, number, value)
        if way != "view alive":
            del view
    assert math.isnan(twins.forward(2, DIM))
    assert math.isnan(twins.module.evaluate(bytes(DIM), b"\x02")[0])
    assert math.isnan(twins.module.probabilities(bytes(DIM))[0])
    twins.backward()
    twins.update()
    twins.forward(1, BRIGHT)
    twins.backward()

    twins.zero_grad()
    twins.load([0.125] * len(twins.engine.data))
    assert math.isfinite(twins.forward(2, DIM))
    twins.backward()
    del other


def test_a_healed_weight_is_skipped_again(twins):
    number = 3 * 13 + BLACK_PIXEL
    view = twins.write(twins.module.state_dict, number, math.nan)
    assert math.isnan(twins.forward(2, DIM))
    view[3, BLACK_PIXEL] = twins.engine.data[number] = 0.5
    assert math.isfinite(twins.forward(2, DIM))
    view[3, BLACK_PIXEL] = twins.engine.data[number] = math.inf
    del view
    assert math.isnan(twins.forward(2, DIM))
    twins.write(twins.module.state_dict, number, 0.5)
    assert math.isfinite(twins.forward(2, DIM))


@pytest.mark.parametrize("viewed", [False, True], ids=["view dropped", "view alive"])
def test_a_written_gradient_of_minus_zero_counts(twins, viewed):
    """It equals 0, but -0.0 - rate * -0.0 is 0.0, and zero_grad() makes it 0.0."""
    number = 3 * 13 + BLACK_PIXEL
    twins.write(twins.module.state_dict, number, -0.0)
    view = twins.write(twins.module.grad_dict, number, -0.0)
    if not viewed:
        del view
    twins.update()
    assert math.copysign(1, twins.module.data(number)) == 1
    twins.zero_grad()
    twins.forward(2, DIM)
    twins.backward()
    assert math.copysign(1, twins.module.grad(number)) == 1


@pytest.mark.parametrize("rate", [0.1, -0.1, -0.0])
@pytest.mark.parametrize("images", [0, 1, 2])
def test_the_step_of_a_negative_rate_moves_rows_without_gradients(twins, images, rate):
    """-0.0 - rate * 0.0 is 0.0 then."""
    number = 3 * 13 + BLACK_PIXEL
    twins.load([-0.0 if i == number else x for i, x in enumerate(twins.engine.data)])
    for _ in range(images):
        twins.forward(2, DIM)
        twins.backward()
    twins.update(max(images, 1), rate)
    assert math.copysign(1, twins.module.data(number)) == (-1 if rate > 0 else 1)
    twins.load([-0.0 if i == number else x for i, x in enumerate(twins.engine.data)])
    twins.module.train(bytes(DIM), bytes([2]), learning_rate=rate)
    assert math.copysign(1, twins.module.data(number)) == (-1 if rate > 0 else 1)
    twins.module.zero_grad()


@pytest.mark.parametrize("viewed", [False, True], ids=["no view", "view alive"])
def test_a_weight_that_an_update_overflows_poisons_the_loss(twins, viewed):
    """The update also makes all hidden units dead and every number but those weights finite: only 0 * inf is nan."""
    start = {"layers.0.weight": np.full((7, 12), 0.1), "layers.0.bias": np.zeros(7), "layers.1.bias": np.zeros(5)}
    start["layers.1.weight"] = np.where(np.arange(5)[:, None] == 2, -0.5, np.zeros((5, 7)))
    numbers = [float(start[name][index]) for _, (name, index) in sorted(twins.places.items())]
    twins.load(numbers)
    twins.forward(2, BRIGHT)
    twins.backward()
    for j in range(7):
        assert twins.engine.grads[13 * j + BLACK_PIXEL] > 0
        numbers[13 * j + BLACK_PIXEL] = -1.7976931348623157e308
    twins.load(numbers)
    view = twins.module.state_dict() if viewed else None
    assert math.isfinite(twins.forward(2, DIM))
    twins.update(rate=1e296)
    assert twins.engine.data[BLACK_PIXEL] == -math.inf
    assert sum(map(math.isinf, twins.engine.data)) == 7
    assert math.isnan(twins.forward(2, DIM))
    twins.backward()
    del view


WEIGHT, BIAS = 7 * 13 + 2 * 8 + 3, 7 * 13 + 7  # of the second layer


@pytest.mark.parametrize(
    ("place", "value"), [*itertools.product([WEIGHT], NON_FINITE), (BIAS, math.nan), (BIAS, math.inf)]
)
@pytest.mark.parametrize("looks", [True, False])
def test_a_non_finite_upstream_gradient_reaches_every_row(twins, place, value, looks):
    twins.looks = lambda: looks
    numbers = list(twins.engine.data)
    numbers[place] = value
    twins.load(numbers)
    twins.forward(2, DIM)
    twins.backward()
    dark = [twins.engine.grads[13 * j + BLACK_PIXEL] for j in range(7)]
    assert any(map(math.isnan, dark))  # 0 * nan
    twins.update()
    twins.zero_grad()

    twins.load([0.125] * len(numbers))
    twins.forward(2, DIM)
    twins.backward()
    twins.update()


@pytest.mark.parametrize("keep", [True, False], ids=["view alive", "view dropped"])
@pytest.mark.parametrize("value", [2.0, -1e-300, *NON_FINITE])
@pytest.mark.parametrize("call", ["update", "zero_grad", "both", "backward first", "train"])
def test_a_gradient_written_to_an_untouched_row_counts(twins, call, value, keep):
    twins.forward(2, DIM)
    twins.backward()
    view = twins.write(twins.module.grad_dict, 3 * 13 + BLACK_PIXEL, value)
    if not keep:
        del view
    twins.agree()
    if call == "backward first":
        twins.backward()
    if call in ("update", "both", "backward first"):
        twins.update(3)
        assert bits([twins.model.data[3 * 13 + BLACK_PIXEL]]) != bits([0.0])
    if call in ("zero_grad", "both"):
        twins.zero_grad()
        assert set(twins.model.grads) == {0.0}
    if call == "train":
        twins.engine.zero_grad()
        loss = twins.engine.forward(2, DIM)
        twins.engine.backward()
        twins.engine.update()
        assert twins.module.train(bytes(DIM), b"\x02") == [loss]
        twins.agree()
    twins.forward(1, DIM)
    twins.backward()
    twins.update()


@pytest.mark.parametrize("keep", [True, False], ids=["view alive", "view dropped"])
@pytest.mark.parametrize("call", ["zero_grad", "reset"])
def test_a_gradient_written_through_a_view_from_before_zero_grad_counts(twins, call, keep):
    view = np.asarray(twins.module.grad_dict()["layers.0.weight"])
    if call == "zero_grad":
        twins.zero_grad()
    else:
        twins.module.reset(5)
        twins.engine.data = list(twins.model.data)
    view[3, BLACK_PIXEL] = twins.engine.grads[3 * 13 + BLACK_PIXEL] = 2.0
    if not keep:
        del view
    twins.looks = lambda: False
    twins.update()
    twins.zero_grad()
    assert set(twins.model.grads) == {0.0}


def gated() -> Program:
    """relu(w x + b) * sigmoid(v x + c): two row tensors that share the inputs, which are float64."""
    rng = random.Random(9)
    x, y = values(6), values(3)
    w, v, b, c = weights(rng, 3, 6), weights(rng, 3, 6), weights(rng, 3), weights(rng, 3)
    out = [h.relu() * g.sigmoid() for h, g in zip(affine(w, b, x), affine(v, c, x), strict=True)]
    return Program(Floats(x), Floats(y), {"w": w, "v": v, "b": b, "c": c}, loss=mse(out, y), outputs={"out": out})


@pytest.fixture(scope="module")
def gated_model(tmp_path_factory) -> Extension:
    return Extension(gated(), tmp_path_factory.mktemp("gated"), "loops", flags=["-O0"])


@pytest.fixture
def gated_twins(gated_model) -> Twins:
    gated_model.module.reset()
    gated_model.module.zero_grad()
    return Twins(gated_model)


INPUTS, TARGETS = [1.0, 0.5, 0.0, 0.3, 0.0, 0.2], [0.1, 0.2, 0.3]


@pytest.mark.parametrize("value", NON_FINITE)
@pytest.mark.parametrize("way", ["view alive", "view dropped", "load_state_dict"])
@pytest.mark.parametrize("name", ["w", "v"])
def test_a_non_finite_weight_in_one_of_two_row_tensors_poisons_the_loss(gated_twins, name, way, value):
    assert math.isfinite(gated_twins.forward(TARGETS, INPUTS))
    number = next(i for i, place in gated_twins.places.items() if place == (name, (1, 2)))
    if way == "load_state_dict":
        gated_twins.load([value if i == number else x for i, x in enumerate(gated_twins.engine.data)])
    else:
        view = gated_twins.write(gated_twins.module.state_dict, number, value)
        if way == "view dropped":
            del view
    assert math.isnan(gated_twins.forward(TARGETS, INPUTS))
    gated_twins.backward()
    gated_twins.update()


@pytest.mark.parametrize("looks", [True, False])
def test_a_non_finite_gradient_in_one_of_two_row_tensors_reaches_its_rows(gated_twins, looks):
    """relu(huge) * sigmoid(40) and a steep loss: the gradients of w are finite, those of v are inf * 0 = nan."""
    gated_twins.looks = lambda: looks
    start = weights_of(gated_twins.program, gated_twins.engine.data)
    start |= {"w": abs(start["w"]), "b": np.full(3, 1e10), "c": np.full(3, 40.0)}
    gated_twins.load([float(start[name][index]) for _, (name, index) in sorted(gated_twins.places.items())])
    gated_twins.forward([-1e300, 0.0, 0.0], INPUTS)
    gated_twins.backward()
    gated_twins.update()
    slopes = weights_of(gated_twins.program, gated_twins.engine.grads)
    assert np.isnan(slopes["v"][:, 2]).any()
    assert np.isfinite(slopes["w"]).all()


def wide_rows(pixels: bool) -> Program:
    """130 sums over 156 inputs: the rows of 64 inputs fill a tile, and the last tile is a part of one."""
    rng = random.Random(2)
    x, y = values(156), values(130)
    w, b = weights(rng, 130, 156), weights(rng, 130)
    inputs = Pixels(x, scale=1 / 255) if pixels else Floats(x)
    out = [h.relu() for h in affine(w, b, x)]
    return Program(inputs, Floats(y), {"w": w, "b": b}, loss=mse(out, y), outputs={"out": out})


@pytest.mark.parametrize("pixels", nightly_but([True], [True, False]))
def test_a_block_of_images_adds_tiles_of_rows_in_order(pixels, tmp_path):
    rng = np.random.default_rng(3)
    inputs = rng.integers(1, 256, (21, 156), dtype=np.uint8) if pixels else rng.normal(size=(21, 156))
    inputs[rng.random((21, 156)) < 0.6] = 0
    inputs[4], inputs[5, 64:128], inputs[6, :155] = 0, 0, 0
    data = inputs, rng.normal(size=(21, 130))
    model = Extension(wide_rows(pixels), tmp_path, "loops", flags=["-O0"])
    loss = train_by_hand(model.module, *data, 20, 0.01)
    expected = state(model.module)
    for threads in (1, 2):
        model.module.reset()
        model.module.zero_grad()
        assert model.module.train(*data, batch_size=20, learning_rate=0.01, threads=threads) == [loss]
        assert state(model.module) == expected, threads


@pytest.mark.slow
def test_a_block_of_several_groups_of_images(tmp_path):
    """A block has a word of bits for each group of 64 images: one that ends within a group, whole ones, and more."""
    rng = np.random.default_rng(4)
    inputs = rng.integers(1, 256, (600, 156), dtype=np.uint8)
    inputs[rng.random((600, 156)) < 0.6] = 0
    inputs[:, 7] = 0  # a row that no image needs
    inputs[:300, 8] = 0  # and one that some groups do not
    inputs[64:, 9] = 0
    data = inputs, rng.normal(size=(600, 130))
    model = Extension(wide_rows(True), tmp_path, "loops", flags=["-O0"])
    for batch_size in (130, 256, 257, 600):
        model.module.reset()
        loss = train_by_hand(model.module, *data, batch_size, 0.01)
        expected = state(model.module)
        for threads in (1, 2, 3):
            model.module.reset()
            assert model.module.train(*data, batch_size=batch_size, learning_rate=0.01, threads=threads) == [loss]
            assert state(model.module) == expected, (batch_size, threads)


ODD_NUMBERS = [0.0, -0.0, 1.5, -2.0, 1e308, -1e308, 5e-324, *NON_FINITE]
RATES = [None, None, 0.5, -0.1, 0.0, 1e-300, 1e300]


def random_calls(twins: Twins, rng: random.Random, count: int) -> None:
    """Any calls in any order, with views that come and go; whatever can be observed agrees after each.

    What is not finite spreads until nothing else is left to see, so it is soon taken back.
    """
    alive: list[np.ndarray] = []
    size = len(twins.engine.data)
    takes_floats = isinstance(twins.program.inputs, Floats)

    def some_example() -> tuple[object, list]:
        target, inputs = example(twins.program, rng)
        if takes_floats and rng.random() < 0.2:
            inputs[rng.randrange(len(inputs))] = rng.choice(ODD_NUMBERS)
        return target, inputs

    def write(views: Callable) -> None:
        view = twins.write(views, rng.randrange(size), rng.choice(ODD_NUMBERS))
        if rng.random() < 0.5:
            alive.append(view)

    def heal() -> None:
        twins.load([rng.uniform(-0.7, 0.7) for _ in range(size)])
        twins.zero_grad()

    def drop() -> None:
        if alive:
            alive.pop(rng.randrange(len(alive)))

    def step() -> None:
        if rng.random() < 0.7:
            twins.zero_grad()
        twins.forward(*some_example())
        twins.backward()
        twins.update(rng.choice([1, 2, 3]), rng.choice(RATES))

    def infer() -> None:
        """Outputs of an image, then back to the last forward()."""
        last, (_, inputs) = twins.model.pixels, some_example()
        twins.model.pixels = bytes(inputs) if not takes_floats else array("d", inputs)
        twins.model.outputs()
        twins.model.pixels = last

    twins.forward(*some_example())
    calls: list[Callable[[], object]] = [
        lambda: twins.forward(*some_example()),
        lambda: twins.forward(*some_example()),
        lambda: twins.forward(*some_example()),
        twins.backward,
        twins.zero_grad,
        lambda: twins.update(rng.choice([1, 2, 3, 64]), rng.choice(RATES)),
        step,
        step,
        lambda: write(twins.module.state_dict),
        lambda: write(twins.module.grad_dict),
        drop,
        drop,
        lambda: alive.append(np.asarray(twins.module.grad_dict()[twins.program.tensors[0].name])),
        heal,
        infer,
    ]
    for _ in range(count):
        rng.choice(calls)()
        twins.agree()
        if rng.random() < 0.3 and not all(map(math.isfinite, [*twins.engine.data, *twins.engine.grads])):
            heal()


@pytest.mark.parametrize("seed", slow_but([0], range(4)))
@pytest.mark.parametrize("name", ["mlp", "deep_mlp", "shared_weights", "xor"])
def test_random_calls_agree_with_the_engine(compiled, name, seed):
    rng = random.Random(seed)
    random_calls(Twins(compiled(name), looks=lambda: rng.random() < 0.2), rng, 150)


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_agree_with_two_row_tensors_and_odd_inputs(gated_model, seed):
    rng = random.Random(seed)
    gated_model.module.reset()
    random_calls(Twins(gated_model, looks=lambda: rng.random() < 0.2), rng, 150)
