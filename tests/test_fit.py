"""training.fit(): other numbers than those of the loop by hand, on nn and on compiled models of other kinds."""

from __future__ import annotations

import dataclasses
import inspect
import math
import pickle
import random
import re
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import models
import nn
import numpy as np
import pytest
from harness import Generated, bits, many, state

import codegen
from codegen import Floats, Program, Tokens
from micrograd import optim, schedules, training
from micrograd.data import shift
from micrograd.engine import Value

COUNT, BATCH = 200, 7
TWO = [[1.0], [2.0]], [[1.0], [1.0]]  # inputs and targets


@pytest.fixture(autouse=True)
def fresh() -> None:
    nn.reset(1)


@pytest.fixture(scope="module")
def data(digits: Callable[..., tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    return digits(COUNT)


def weights(model: Any) -> list[str]:
    return [word for view in model.state_dict().values() for word in bits(np.asarray(view).ravel().tolist())]


def rows(images: bytes, first: int, end: int) -> bytes:
    return images[first * 784 : end * 784]


def test_it_is_train_epoch_by_epoch(data: tuple[bytes, bytes]) -> None:
    steps = -(-COUNT // BATCH)
    schedule = schedules.cosine(0.1, 3 * steps)
    history = training.fit(nn, *data, epochs=3, batch_size=BATCH, learning_rate=schedule, seed=5, threads=2)
    found = weights(nn)
    nn.reset(1)
    for epoch, row in enumerate(history.epochs):
        rates = schedules.rates(schedule, 3 * steps)[epoch * steps : (epoch + 1) * steps]
        assert nn.train(*data, batch_size=BATCH, learning_rate=rates, seed=5 + epoch) == [row.loss]
        assert (row.number, row.learning_rate) == (epoch + 1, rates[-1])
        assert math.isnan(row.validation_loss)
    assert weights(nn) == found
    assert not history.stopped_early
    assert history.best_epoch == 0


def test_without_a_seed_the_order_is_kept(data: tuple[bytes, bytes]) -> None:
    start = time.perf_counter()
    history = training.fit(nn, *data, epochs=2, batch_size=BATCH, seed=None)
    assert 0 < history.epochs[0].seconds < history.epochs[1].seconds < time.perf_counter() - start
    nn.reset(1)
    assert nn.train(*data, batch_size=BATCH, epochs=2) == [epoch.loss for epoch in history.epochs]


def test_a_training_has_the_defaults_of_fit() -> None:
    options = inspect.signature(training.fit).parameters
    shared = [each for each in dataclasses.fields(training.Training) if each.name in options.keys() - {"model"}]
    shared = [each for each in shared if each.default is not dataclasses.MISSING]
    assert [each.default for each in shared] == [options[each.name].default for each in shared]
    assert {"batch_size", "seed", "threads", "check_finite"} <= {each.name for each in shared}


def test_pauses_and_progress(data: tuple[bytes, bytes]) -> None:
    """A run that goes on from the middle of a piece pauses where the uninterrupted one would have."""
    pauses: list[int] = []
    losses: list[float] = []
    job = training.Training(nn, *data, COUNT, 10, every=60, progress=losses.append, run=training.Run(1, 80))
    job.pause = lambda: pauses.append(job.run.images)
    list(job.epochs(1))
    assert pauses == [120, 180]
    assert losses


def test_a_rate_for_each_step(data: tuple[bytes, bytes]) -> None:
    steps = 2 * -(-COUNT // BATCH)
    schedule = schedules.one_cycle(0.1, steps)
    training.fit(nn, *data, epochs=2, batch_size=BATCH, learning_rate=schedule)
    found = weights(nn)
    nn.reset(1)
    rates = schedules.rates(schedule, steps)
    training.fit(nn, *data, epochs=2, batch_size=BATCH, learning_rate=rates)
    assert weights(nn) == found
    with pytest.raises(ValueError, match=f"one rate for each of the {steps} steps, got {steps - 1}"):
        training.fit(nn, *data, epochs=2, batch_size=BATCH, learning_rate=rates[1:])


@pytest.mark.parametrize("make", [bytes, lambda x: np.frombuffer(x, np.uint8)])
def test_validation_images_are_held_out(make: Callable[[bytes], Any], data: tuple[bytes, bytes]) -> None:
    images, labels = map(make, data)
    history = training.fit(nn, images, labels, epochs=2, validation=0.1, test=(images, labels))
    found = weights(nn)
    nn.reset(1)
    kept = COUNT - COUNT // 10
    for row in history.epochs:
        nn.train(rows(data[0], 0, kept), data[1][:kept], seed=row.number)
        assert (row.validation_loss, row.validation_accuracy) == nn.evaluate(rows(data[0], kept, COUNT), data[1][kept:])
        assert (row.test_loss, row.test_accuracy) == nn.evaluate(*data)
    assert weights(nn) == found


def test_a_two_dimensional_array_and_a_pair(data: tuple[bytes, bytes]) -> None:
    images = np.frombuffer(data[0], np.uint8).reshape(COUNT, 784)
    held = (images[:50], data[1][:50])
    one = training.fit(nn, images, data[1], epochs=1, validation=held)
    nn.reset(1)
    other = training.fit(nn, *data, epochs=1, validation=(rows(data[0], 0, 50), data[1][:50]))
    assert one.epochs[0].validation_loss == other.epochs[0].validation_loss
    nn.reset(1)
    assert training.fit(nn, images, list(data[1]), epochs=1, validation=0.25).epochs[0].validation_accuracy >= 0


def test_early_stopping_and_the_best_weights() -> None:
    """Labels at random: what is learned of some says nothing of others, so the first epochs are the best."""
    rng = random.Random(1)
    images, labels = rng.randbytes(300 * 784), bytes(rng.randrange(10) for _ in range(300))
    seen: list[tuple[float, list[str]]] = []

    def each(epoch: training.Epoch) -> None:
        seen.append((epoch.validation_accuracy, weights(nn)))

    options: dict[str, Any] = {"epochs": 50, "learning_rate": 0.01, "validation": 0.3}
    options |= {"early_stopping": 3, "keep_best": True}
    history = training.fit(nn, images, labels, each_epoch=each, **options)
    scores = [score for score, _ in seen]
    best = scores.index(max(scores))
    assert history.stopped_early
    assert history.best_epoch == best + 1
    assert len(history.epochs) == best + 1 + 3
    assert weights(nn) == seen[best][1] != seen[-1][1]
    nn.reset(1)
    options["epochs"] = len(history.epochs)
    assert not training.fit(nn, images, labels, **options).stopped_early  # it has done what it was asked for


def test_each_epoch_may_end_the_run() -> None:
    x, y, w = Value(0.0), Value(0.0), Value(0.5)
    model = codegen.compile(Program(Floats([x]), Floats([y]), {"w": w}, (w * x - y) ** 2), optimize=0)

    def each(epoch: training.Epoch) -> None:
        if epoch.number == 2:
            raise StopIteration

    history = training.fit(model, *TWO, epochs=5, each_epoch=each)
    assert (len(history.epochs), history.stopped_early) == (2, True)
    assert not training.fit(model, *TWO, epochs=2, each_epoch=each).stopped_early


@pytest.mark.parametrize("error", [KeyboardInterrupt, training.DivergedError])
def test_the_best_weights_are_kept_if_an_exception_ends_the_run(error: type[BaseException]) -> None:
    x, y, w = Value(0.0), Value(0.0), Value(0.5)
    model = codegen.compile(Program(Floats([x]), Floats([y]), {"w": w}, (w * x - y) ** 2), optimize=0)
    seen: list[float] = []

    def each(epoch: training.Epoch) -> None:
        seen.append(model.data(0))
        if epoch.number == 3 and error is KeyboardInterrupt:
            raise KeyboardInterrupt

    rates = [0.1] * 4 + [100.0] * 2 + [1e300] * 34  # two steps an epoch, of which the third is worse
    with pytest.raises(error):
        training.fit(model, *TWO, epochs=20, learning_rate=rates, validation=TWO, keep_best=True, each_epoch=each)
    assert len(seen) == 3
    assert model.data(0) == min(seen, key=lambda w: (w - 1) ** 2 + (2 * w - 1) ** 2) != seen[-1]


@pytest.mark.parametrize("test", [None, TWO])
def test_a_validation_loss_that_is_nan_is_never_the_best(test: training.Pair | None) -> None:
    """The examples of the test do not stand in for those held out."""
    x, y, w = Value(0.0), Value(0.0), Value(0.5)
    model = codegen.compile(Program(Floats([x]), Floats([y]), {"w": w}, (w * x - y) ** 2), optimize=0)
    unknown = [[math.nan]], [[1.0]]
    options: dict[str, Any] = {"validation": unknown, "test": test, "early_stopping": 2, "keep_best": True}
    history = training.fit(model, *TWO, epochs=5, learning_rate=0.1, **options)
    assert (history.best_epoch, history.stopped_early, len(history.epochs)) == (0, True, 2)


@pytest.mark.parametrize("inputs", [map(float, [1]), 3.0, {1.0}, np.array(3.0), re.match("", "")])
def test_inputs_that_are_no_rows(inputs: object) -> None:
    with pytest.raises(TypeError, match=f"inputs must be rows or a buffer, not {type(inputs).__name__}"):
        training.fit(nn, inputs, b"")


def test_a_run_that_diverges_says_so(data: tuple[bytes, bytes]) -> None:
    hint = "a smaller learning_rate may help, if no input or target is nan"
    message = rf"^the training loss of epoch 1 is (nan|inf): {hint}$"
    with pytest.raises(training.DivergedError, match=message) as raised:
        training.fit(nn, *data, learning_rate=1e300)
    again = pickle.loads(pickle.dumps(raised.value))  # as another process sees it
    assert (str(again), again.is_rolled_back) == (str(raised.value), False)
    nn.reset(1)
    with pytest.raises(training.DivergedError, match=r"epoch 1: train\(\) stopped before step 2 .* makes layers\."):
        training.fit(nn, *data, learning_rate=1e300, check_finite=True)
    assert np.isfinite(np.asarray(nn.state_dict()["layers.0.weight"])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"early_stopping": 2}, "early_stopping needs validation examples"),
        ({"keep_best": True}, "keep_best needs validation examples"),
        ({"early_stopping": 0, "validation": 0.5}, "early_stopping must be at least 1, got 0"),
        ({"validation": 0.0}, "a share of 200 examples that leaves some on both sides, got 0.0"),
        ({"validation": 1}, "a share of 200 examples that leaves some on both sides, got 1"),
        ({"validation": 0.001}, "got 0.001"),
        ({"validation": math.nan}, "a share of 200 examples that leaves some on both sides, got nan"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"learning_rate": math.nan}, "learning_rate must be finite, got nan"),
        ({"learning_rate": 10**400}, "learning_rate must be finite, got inf"),
    ],
)
def test_wrong_uses_change_nothing(options: dict[str, Any], message: str, data: tuple[bytes, bytes]) -> None:
    before = weights(nn)
    with pytest.raises(ValueError, match=message):
        training.fit(nn, *data, **options)
    assert weights(nn) == before


def test_a_model_of_numbers_without_classes(tmp_path: Path) -> None:
    """The best epoch is that of the smallest loss."""
    x, y, w = Value(0), Value(0), Value(0.1)
    line = Program(Floats([x]), Floats([y]), {"w": w}, (w * x - y) ** 2, learning_rate=0.1)
    model = Generated(line, tmp_path).module
    inputs = np.linspace(-1, 1, 40)
    history = training.fit(model, inputs, 2 * inputs, epochs=3, batch_size=4, validation=(inputs, 2 * inputs))
    losses = [epoch.validation_loss for epoch in history.epochs]
    assert losses == sorted(losses, reverse=True)
    assert history.best_epoch == 3
    assert math.isnan(history.epochs[0].validation_accuracy)
    assert history.epochs[0].learning_rate == 0.1
    model.reset()
    means = [model.train(inputs, 2 * inputs, batch_size=4, seed=epoch.number)[0] for epoch in history.epochs]
    assert bits([epoch.loss for epoch in history.epochs]) == bits(means)


@pytest.mark.parametrize("name", ["mlp", "mlp_of_floats", "shared_weights"])
def test_examples_are_counted_and_held_out_in_rows_of_any_kind(name: str, tmp_path: Path) -> None:
    program = getattr(models, name)()
    model = Generated(program, tmp_path).module
    images, targets = many(program, 30, seed=2)
    assert training.count_examples(model, images, targets) == 30
    history = training.fit(model, images, targets, epochs=2, batch_size=4, validation=0.2)
    assert len(history.epochs) == 2
    width, height = len(program.input_values), len(program.target_values)
    height = 1 if program.label is not None else height
    pair = (images[24 * width :], None if targets is None else targets[24 * height :])
    assert model.evaluate(*pair)[0] == history.epochs[-1].validation_loss


# Images that move


def test_every_move_is_that_of_a_picture() -> None:
    """Moved by NumPy's slices, in two dimensions."""
    side, reach, count = 5, 2, 400
    images = random.Random(3).randbytes(count * side * side)
    moved = np.frombuffer(shift.moved(images, reach, 7, side), np.uint8).reshape(count, side, side)
    padded = np.pad(
        np.frombuffer(images, np.uint8).reshape(count, side, side), ((0, 0), (reach, reach), (reach, reach))
    )
    found = set()
    for picture, around in zip(moved, padded, strict=True):
        places = [(y, x) for y in range(2 * reach + 1) for x in range(2 * reach + 1)]
        fits = [(y, x) for y, x in places if (around[y : y + side, x : x + side] == picture).all()]
        assert len(fits) == 1
        found |= set(fits)
    assert len(found) == 25  # each move comes up


def test_moves_depend_on_the_seed_alone() -> None:
    images = bytes(range(196)) * 40
    assert shift.moved(images, 1, 3) == shift.by(1)(images, 3) == shift.moved(bytearray(images), 1, 3)
    assert shift.moved(images, 1, 3) != shift.moved(images, 1, 4)
    assert shift.moved(b"", 1, 3) == b""
    assert shift.moved(np.frombuffer(images, np.uint8).reshape(-1, 784), 1, 3) == shift.moved(images, 1, 3)
    # The first moves of seed 3, on every platform.
    assert hash_of(shift.moved(images, 1, 3)) == "331ddb848ff8243c"


def hash_of(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()[:16]


def test_moves_that_cannot_be(data: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match=r"28 x 28 pixels move by 1\.\.27 pixels, got 28"):
        shift.by(28)
    with pytest.raises(ValueError, match=r"move by 1\.\.27 pixels, got 0"):
        shift.by(0)
    with pytest.raises(ValueError, match="a multiple of 784 bytes, got 783"):
        shift.moved(data[0][:783], 1, 1)


def test_fit_moves_the_images_of_each_epoch(data: tuple[bytes, bytes]) -> None:
    history = training.fit(nn, *data, epochs=2, batch_size=BATCH, seed=4, augment=shift.by(1))
    found = weights(nn)
    nn.reset(1)
    losses = [nn.train(shift.moved(data[0], 1, seed), data[1], batch_size=BATCH, seed=seed)[0] for seed in (4, 5)]
    assert losses == [epoch.loss for epoch in history.epochs]
    assert weights(nn) == found


def test_a_model_with_noise_repeats_an_epoch_to_the_bit():
    """Numbers that are drawn come from the seed of the epoch, also where the run would pause within it."""
    from test_noise import dropout

    program = dropout()
    data = many(program, 60)
    states = []
    for every in (None, 20):
        model = codegen.compile(program, optimize=0)
        job = training.Training(model, *data, 60, batch_size=10, learning_rate=0.1, every=every)
        list(job.epochs(2))
        states.append(state(model))
    model = codegen.compile(program, optimize=0)
    list(training.Training(model, *data, 60, batch_size=10, learning_rate=0.1).epochs(1))
    resumed = training.Training(model, *data, 60, batch_size=10, learning_rate=0.1, run=training.Run(2, 0))
    list(resumed.epochs(2))
    assert states == [state(model)] * 2
    model = codegen.compile(program, optimize=0)
    for seed in (1, 2):
        model.train(*data, batch_size=10, learning_rate=0.1, seed=seed)
    assert states == [state(model)] * 2


def named_program() -> Program:
    x, a, b, w = [models.values(2) for _ in range(4)]
    loss = (w[0] * x[0] + w[1] * x[1] - a[0] - a[1] - b[0]) ** 2
    return Program({"x": Floats(x)}, {"a": Floats(a), "b": Floats(b[:1])}, {"w": w}, loss)


def test_examples_are_counted_by_rows_or_by_the_models_width():

    model = codegen.compile(named_program(), optimize=0)
    x, a, b = np.ones((200, 2)), np.ones((200, 2)), np.ones(200)
    count = training.count_examples
    assert count(model, {"x": x}, {"a": a.ravel(), "b": b}) == 200
    assert count(model, {"x": x.tolist()}, {"a": a.ravel(), "b": b}) == 200
    assert count(model, {"x": x[:1]}, {"a": a[0], "b": b[:1]}) == 1
    history = training.fit(model, {"x": x}, {"a": a.ravel(), "b": b}, epochs=2, learning_rate=[1e-3] * 400)
    assert [epoch.number for epoch in history.epochs] == [1, 2]
    with pytest.raises(
        ValueError, match=r"inputs\['x'\], targets\['a'\], targets\['b'\] are flat: pass one of them as rows"
    ):
        count(model, {"x": x.ravel()}, {"a": a.ravel(), "b": b})
    with pytest.raises(ValueError, match=r"targets\['a'\] has 199 examples, but inputs\['x'\] has 200"):
        count(model, {"x": x}, {"a": a[:199], "b": b})
    with pytest.raises(
        ValueError, match=r"targets\['b'\] must hold a multiple of 200 numbers for 200 examples, got 260"
    ):
        training.fit(model, {"x": x}, {"a": a, "b": np.ones(260)}, validation=0.2, learning_rate=1e-3)


def test_flat_tokens_are_as_many_as_an_example_has_or_not_counted(tmp_path: Path) -> None:
    words, y, w = models.values(6), Value(0.0), Value(0.5)
    loss = (w * sum(words[1:], words[0]) - y) ** 2
    program = Program(Tokens([words[:3], words[3:]]), Floats([y]), {"w": w}, loss)
    model = Generated(program, tmp_path).module
    assert training.count_examples(model, [0, 1, 2, 0], [[1.0], [2.0]]) == 2
    w = Value(0.5)
    model = Generated(Program(Floats([]), None, {"w": w}, (w - 3.0) ** 2), tmp_path).module
    assert training.count_examples(model, None, None) == 1  # there is nothing to tell them apart


class Frame:
    """As pandas' DataFrame: its keys are columns, len() counts rows, and NumPy sees an array."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns

    def keys(self) -> list[str]:
        return [*self.columns]

    def __getitem__(self, name: str) -> Series:
        return Series(self.columns[name])

    def __len__(self) -> int:
        return len(np.asarray(self))

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.stack([*self.columns.values()], axis=1)


class Series:
    """As pandas', with an index that does not begin at 0."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def __getitem__(self, label: int) -> float:
        return {7 + place: number for place, number in enumerate(self.numbers)}[label]

    def __len__(self) -> int:
        return len(self.numbers)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.numbers


def test_tables_of_columns_are_rows_or_named_parts():
    rows, t = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60.0) / 60
    columns = {"a": rows[:, 0], "b": rows[:, 1]}
    (x, y), target, w = models.values(2), Value(0), models.values(2)
    loss = (w[0] * x + w[1] * y - target) ** 2
    row_model = codegen.compile(Program(Floats([x, y]), Floats([target]), {"w": w}, loss), optimize=0)
    parts = {"a": Floats([x]), "b": Floats([y])}
    part_model = codegen.compile(Program(parts, {"t": Floats([target])}, {"w": w}, loss), optimize=0)
    found = []
    for model, inputs, targets in (
        (row_model, rows, t),
        (row_model, Frame(columns), Series(t)),
        (part_model, columns, {"t": t}),
        (part_model, Frame(columns), {"t": Series(t)}),
        (part_model, Frame(columns), Frame({"t": t})),
    ):
        model.reset()
        history = training.fit(model, inputs, targets, epochs=2, batch_size=8, learning_rate=0.1, validation=0.25)
        found.append([(epoch.loss, epoch.validation_loss) for epoch in history.epochs])
    assert found == 5 * found[:1]


@pytest.mark.parametrize("surplus", [1, 50])
def test_surplus_targets_are_no_part_of_a_validation(surplus):
    images, labels = many_digits(40)
    with pytest.raises(ValueError, match=f"targets has {40 + surplus} examples, but inputs has 40"):
        training.fit(nn, images, labels + bytes(surplus), validation=0.2)
    with pytest.raises(ValueError, match="inputs must hold 31360 numbers for 40 examples, got 31363"):
        training.fit(nn, images + bytes(3), labels, validation=0.2)


def many_digits(count: int) -> tuple[bytes, bytes]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, 784 * count, dtype=np.uint8).tobytes(), rng.integers(
        0, 10, count, dtype=np.uint8
    ).tobytes()


@pytest.mark.parametrize("rate", [np.float32(0.5), np.array(0.5), np.int64(1), 1, [Decimal("0.5")] * 8])
def test_a_rate_of_any_kind_of_number(rate):
    images, labels = many_digits(8)
    expected = float(rate[0] if isinstance(rate, list) else rate)
    assert training.fit(nn, images, labels, epochs=1, learning_rate=rate).epochs[0].learning_rate == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"learning_rate": "0.1"},
            TypeError,
            "learning_rate must be a number, one for each step, or a schedule, not str",
        ),
        ({"epochs": "3"}, TypeError, "epochs must be an int, not str"),
        ({"epochs": 1.5}, TypeError, "epochs must be an int, not float"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1, got 0"),
        ({"batch_size": "4"}, TypeError, "batch_size must be an int, not str"),
        ({"validation": 0.5, "early_stopping": True}, TypeError, "early_stopping must be an int, not bool"),
        ({"validation": np.float32(2.0)}, ValueError, "validation must be a share"),
        ({"validation": ".1"}, TypeError, r"validation must be \(inputs, targets\), not str"),
        ({"test": (bytes(784),)}, TypeError, r"test must be \(inputs, targets\), not tuple"),
        ({"test": (bytes(3 * 784), bytes(2))}, ValueError, "labels must hold 3 unsigned bytes, got 2"),
        ({"validation": (bytes(784), [11])}, ValueError, "label 0 must be 0..9, got 11"),
        ({"seed": "a"}, TypeError, "seed must be an int, not str"),
        (
            {"seed": 2**64 - 9},
            ValueError,
            r"seed \+ epochs - 1 must be below 2\*\*64, got the seed 18446744073709551607",
        ),
        ({"augment": 1}, TypeError, "augment must be a function of inputs and a seed, not int"),
        ({"each_epoch": 3}, TypeError, "each_epoch must be a function of an Epoch, not int"),
        (
            {"learning_rate": [0.1] * 79 + [math.inf]},
            ValueError,
            r"learning_rate\[79\] must be a finite number, got inf",
        ),
    ],
)
def test_wrong_options_say_what_is_wrong(options, error, message):
    images, labels = many_digits(8)
    before = state(nn)
    with pytest.raises(error, match=message):
        training.fit(nn, images, labels, **options)
    assert state(nn) == before


def test_it_takes_a_compiled_model():
    with pytest.raises(TypeError, match=r"fit\(\) trains a compiled model, of codegen.compile\(\), not NoneType"):
        training.fit(None, b"", b"")


def test_a_schedule_that_fails_in_a_later_epoch_names_the_step_of_the_run():
    images, labels = many_digits(8)
    with pytest.raises(ValueError, match=r"learning_rate\(11\) must be finite, got nan"):
        training.fit(nn, images, labels, epochs=2, learning_rate=lambda step: 0.1 if step < 11 else math.nan)
    with pytest.raises(TypeError, match=r"learning_rate\(3\) must be a number, not <class 'str'>"):
        training.fit(nn, images, labels, epochs=2, learning_rate=lambda step: 0.1 if step < 3 else "0.1")


def test_the_best_epoch_has_its_own_state_of_the_optimizer():

    program = models.mlp(update=optim.adam())
    model = codegen.compile(program, optimize=0)
    images, labels = many(program, 60)
    held = many(program, 20, seed=9)
    history = training.fit(
        model, images, labels, epochs=6, batch_size=10, learning_rate=0.5, validation=held, keep_best=True
    )
    assert np.asarray(model.optimizer_state()["step"]) == 6 * history.best_epoch
