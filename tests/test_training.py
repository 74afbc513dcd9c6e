"""Whole epochs that compute something other than the loop by hand: train, evaluate, predict_batch, initial weights."""

from __future__ import annotations

import random
import sys
import threading
import time
from array import array
from collections.abc import Callable

import nn
import pytest
from harness import many, slow_but, state, train_by_hand

from codegen import Floats, Pixels, Program, build, load_extension
from micrograd.engine import Value
from micrograd.functional import total
from micrograd.nn import MLP

PARAMETERS = 39760
COUNT = 2000  # more than two chunks: between chunks the module looks at signals and calls progress


@pytest.fixture(autouse=True)
def fresh():
    nn.reset(1)


@pytest.fixture(scope="module")
def data(digits) -> tuple[bytes, bytes]:
    return digits(COUNT)


# train


@pytest.mark.parametrize("batch_size", [1, 3, 64, COUNT - 1, COUNT, COUNT + 1, 10**9])
def test_train_is_the_loop_over_batches_by_bits(batch_size, data):
    expected = [train_by_hand(nn, *data, batch_size), train_by_hand(nn, *data, batch_size)]
    by_hand = state(nn)
    nn.reset(1)
    assert nn.train(*data, batch_size=batch_size, epochs=2) == expected
    assert state(nn) == by_hand


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 + 5, 2**64 - 1])
def test_a_seed_shuffles_as_random_shuffle_does_epoch_after_epoch(seed, data):
    order, rng = list(range(COUNT)), random.Random(seed)
    expected = []
    for _ in range(3):
        rng.shuffle(order)
        expected.append(train_by_hand(nn, *data, 7, order=order))
    by_hand = state(nn)
    nn.reset(1)
    assert nn.train(*data, batch_size=7, epochs=3, seed=seed) == expected
    assert state(nn) == by_hand


def test_without_a_seed_the_images_stay_in_order(data):
    first = nn.train(*data, learning_rate=0.0, epochs=2)
    assert nn.train(*data, learning_rate=0.0, epochs=2, seed=None) == first
    assert first[0] == first[1]
    shuffled = nn.train(*data, learning_rate=0.0, epochs=2, seed=1)
    assert shuffled == pytest.approx(first)
    assert len({first[0], *shuffled}) > 1  # the same losses, added in another order


@pytest.mark.parametrize("rate", [0.0, 0.5, 3, -0.01])
def test_the_learning_rate_may_be_given(rate, data):
    expected = train_by_hand(nn, *data, 5, rate=rate)
    by_hand = state(nn)
    nn.reset(1)
    assert nn.train(*data, batch_size=5, learning_rate=rate) == [expected]
    assert state(nn) == by_hand


def test_every_option_has_the_documented_default(data):
    losses = nn.train(*data)
    trained = state(nn)
    nn.reset(1)
    options = {"learning_rate": nn.info()["learning_rate"], "epochs": 1, "seed": None, "threads": 1, "progress": None}
    assert nn.train(*data, batch_size=1, **options) == losses
    assert state(nn) == trained


def test_gradients_from_before_do_not_count(data):
    losses = nn.train(*data, batch_size=3)
    trained = state(nn)
    nn.reset(1)
    nn.forward(5, data[0][:784])
    nn.backward()
    assert nn.train(*data, batch_size=3) == losses
    assert state(nn) == trained


def test_no_epoch_changes_nothing(data):
    nn.forward(5, data[0][:784])
    nn.backward()
    before = state(nn)
    assert nn.train(*data, epochs=0, progress=pytest.fail) == []
    assert state(nn) == before


def test_after_train_backward_goes_back_from_the_last_image(data):
    nn.train(*data, batch_size=3)
    nn.zero_grad()
    nn.backward()
    gradients = state(nn)[1]
    nn.reset(1)
    train_by_hand(nn, *data, 3)
    nn.zero_grad()
    nn.backward()
    assert state(nn)[1] == gradients


def test_training_learns(digits):
    images, labels = digits(50)
    losses = nn.train(images, labels, batch_size=5, learning_rate=0.1, epochs=40)
    assert losses[-1] < 0.1 < losses[0]
    assert nn.evaluate(images, labels)[1] == 1.0


# reset


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 + 5, 2**64 - 1])
def test_reset_gives_the_weights_of_the_micrograd_model_with_that_seed(seed):
    nn.reset(seed)
    random.seed(seed)
    model = MLP(784, [50, 10], init="fan_in")
    assert [nn.data(i).hex() for i in range(PARAMETERS)] == [p.data.hex() for p in model.parameters()]


def test_reset_clears_gradients_and_forgets_the_last_forward(data):
    images, labels = data
    nn.reset(seed=4)
    expected = state(nn)
    nn.train(images, labels)
    nn.reset(4)
    assert state(nn) == expected
    assert not any(expected[1])
    with pytest.raises(RuntimeError, match="forward"):
        nn.backward()


def test_reset_without_a_seed_is_different_each_time():
    drawn = set()
    for arguments in ((), (None,), ()):
        nn.reset(*arguments)
        drawn.add(state(nn)[0])
        weights, biases = nn.state_dict()["layers.0.weight"], nn.state_dict()["layers.0.bias"]
        assert 0.06 < max(map(max, weights.tolist())) <= (3 / 784) ** 0.5
        assert set(biases.tolist()) == {0.0}
    assert len(drawn) == 3


# progress


@pytest.mark.parametrize("batch_size", [1, 64, 1000])
def test_train_reports_its_progress(batch_size, data):
    calls = []
    losses = nn.train(*data, batch_size=batch_size, epochs=3, progress=lambda *report: calls.append(report))
    done = [report[0] for report in calls]
    assert [type(x) for x in calls[0]] == [int, int, float]
    assert done == sorted(set(done))
    assert len(done) > 3
    assert {report[1] for report in calls} == {3 * COUNT}
    assert done[-1] == 3 * COUNT
    assert [report[2] for report in calls if report[0] % COUNT == 0] == losses


def test_evaluate_and_predict_batch_report_their_progress(data):
    images, labels = data
    calls = []
    loss, _ = nn.evaluate(images, labels, progress=lambda *report: calls.append(report))
    assert calls[-1] == (COUNT, COUNT, loss)
    done, _, so_far = calls[0]
    assert 0 < done < COUNT
    assert so_far == nn.evaluate(images[: done * 784], labels[:done])[0]

    calls.clear()
    nn.predict_batch(images, progress=lambda *report: calls.append(report))
    assert calls[-1] == (COUNT, COUNT, None)
    assert [report[0] for report in calls] == sorted({report[0] for report in calls})


class Stop(Exception):
    pass


def stop_at(call: int) -> Callable:
    calls = iter(range(1, 10**9))

    def progress(done: int, total: int, loss: float | None) -> None:
        if next(calls) == call:
            raise Stop(done)

    return progress


@pytest.mark.parametrize("batch_size", slow_but([1, 7, 1000], [1, 7, 50, 1000]))
@pytest.mark.parametrize("call", slow_but([1, 2, 5], [1, 2, 3, 5]))
def test_an_exception_in_progress_stops_training_after_a_whole_step(call, batch_size, data):
    with pytest.raises(Stop) as stopped:
        nn.train(*data, batch_size=batch_size, epochs=2, progress=stop_at(call))
    stopped_with = state(nn)[0]
    (done,) = stopped.value.args
    nn.reset(1)
    epoch, within = divmod(done, COUNT)
    for _ in range(epoch):
        train_by_hand(nn, *data, batch_size)
    train_by_hand(nn, *data, batch_size, steps=within // batch_size)
    assert state(nn)[0] == stopped_with

    after = nn.train(*data, batch_size=batch_size)
    nn.load_state_dict(restored(stopped_with))
    assert nn.train(*data, batch_size=batch_size) == after


def restored(parameters: bytes) -> dict[str, array | memoryview]:
    """A state_dict from parameters in a row."""
    p = memoryview(parameters).cast("d").tolist()
    rows, split = [p[785 * j : 785 * j + 785] for j in range(50)], 785 * 50
    last = [p[split + 51 * j : split + 51 * j + 51] for j in range(10)]

    def tensor(values: list[float], *shape: int) -> memoryview:
        return memoryview(array("d", values)).cast("B").cast("d", shape)

    return {
        "layers.0.weight": tensor([w for row in rows for w in row[:784]], 50, 784),
        "layers.0.bias": tensor([row[784] for row in rows], 50),
        "layers.1.weight": tensor([w for row in last for w in row[:50]], 10, 50),
        "layers.1.bias": tensor([row[50] for row in last], 10),
    }


def test_an_exception_in_progress_stops_evaluate_and_predict_batch(data):
    images, labels = data
    expected, before = nn.evaluate(images, labels), state(nn)
    for call in (1, 2):
        with pytest.raises(Stop):
            nn.evaluate(images, labels, progress=stop_at(call))
        with pytest.raises(Stop):
            nn.predict_batch(images, progress=stop_at(call))
    assert nn.evaluate(images, labels) == expected
    assert state(nn) == before


# Threads


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def long_enough(data: tuple[bytes, bytes], seconds: float) -> int:
    """Epochs that take about so many seconds."""
    start = time.perf_counter()
    nn.train(*data, epochs=5)
    return max(int(5 * seconds / (time.perf_counter() - start)), 5)


def test_other_threads_run_while_one_trains(data):
    epochs = long_enough(data, 0.5)
    thread = in_thread(lambda: nn.train(*data, epochs=epochs))
    ticks = 0
    while thread.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 50


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda image: nn.data(0), id="data"),
        pytest.param(nn.predict, id="predict", marks=pytest.mark.slow),
        pytest.param(lambda image: nn.state_dict(), id="state_dict", marks=pytest.mark.slow),
    ],
)
def test_other_threads_read_the_model_while_one_trains(read, digits):
    """They take turns: without, a thread that trains has the lock again before another one is awake."""
    data = digits(2000)
    epochs = long_enough(data, 0.8)
    thread = in_thread(lambda: nn.train(*data, epochs=epochs))
    began, waits = time.perf_counter(), []
    while thread.is_alive():
        start = time.perf_counter()
        read(data[0][:784])
        waits.append(time.perf_counter() - start)
        time.sleep(0.001)
    whole = time.perf_counter() - began  # of which a busy machine takes its share in both threads
    assert len(waits) > 20
    assert max(waits) < whole / 3


def test_other_threads_wait_to_change_the_model_until_a_whole_training_is_done(data):
    epochs = long_enough(data, 0.3)
    nn.reset(1)
    nn.train(*data, epochs=epochs)
    trained = state(nn)
    nn.reset(1)
    started = threading.Event()
    thread = in_thread(lambda: nn.train(*data, epochs=epochs, progress=lambda *_: started.set()))
    started.wait()
    nn.update(learning_rate=0.0)
    assert state(nn) == trained
    thread.join()


def test_two_trainings_at_once_happen_one_after_the_other(data):
    expected = nn.train(*data, epochs=30) + nn.train(*data, epochs=30)
    after = state(nn)
    nn.reset(1)
    results: list[list[float]] = []
    threads = [in_thread(lambda: results.append(nn.train(*data, epochs=30))) for _ in range(2)]
    for thread in threads:
        thread.join()
    assert [*results[0], *results[1]] == expected
    assert state(nn) == after


def test_many_threads_at_once_neither_crash_nor_change_a_constant_model(digits):
    """Everything is called at once, with a learning rate of 0: each answer stays the same, to the last bit."""
    images, labels = digits(100)
    weights = restored(state(nn)[0])
    parameters = state(nn)[0]
    end = time.perf_counter() + 1.5
    failures: list[BaseException] = []

    def answers(image: bytes, label: int) -> list[object]:
        return [
            *(nn.forward(label, image), nn.predict(image), nn.probabilities(image), nn.outputs(image)),
            *(nn.evaluate(images, labels), nn.predict_batch(images), nn.train(images, labels, learning_rate=0.0)),
            *(nn.data(17), nn.state_dict()["layers.1.bias"].tolist(), nn.info()),
        ]

    def work(i: int) -> None:
        image, label = images[784 * i : 784 * (i + 1)], labels[i]
        rng = random.Random(i)
        nothing = [
            nn.backward,
            nn.zero_grad,
            nn.grad_dict,
            lambda: nn.update(learning_rate=0.0),
            lambda: nn.load_state_dict(weights),
            lambda: nn.load_state_dict(nn.state_dict()),
            lambda: nn.train(images, labels, learning_rate=0.0, batch_size=7, progress=lambda *_: nn.predict(image)),
            lambda: nn.evaluate(images, labels, progress=lambda *_: nn.grad_dict()),
            lambda: nn.grad(3),
        ]
        try:
            expected = answers(image, label)
            while time.perf_counter() < end:
                assert nn.forward(label, image) == expected[0]
                rng.choice(nothing)()
                if rng.random() < 0.2:
                    assert answers(image, label) == expected
        except BaseException as error:
            failures.append(error)

    nn.forward(3, images[:784])
    threads = [in_thread(lambda i=i: work(i)) for i in range(8)]
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures
    assert state(nn)[0] == parameters


# Models of other kinds


def test_a_model_with_float_targets_has_no_accuracy(compiled):
    model = compiled("xor")
    inputs, targets = many(model.program, 30)
    loss, accuracy = model.module.evaluate(inputs, targets)
    assert accuracy is None
    expected = 0.0  # sum() of floats rounds less in newer Pythons
    for i, target in enumerate(targets):
        expected += model.module.forward(array("d", [target]), inputs[2 * i : 2 * i + 2])
    assert loss == expected / 30


def test_a_model_without_targets_takes_none(compiled, digits):
    model = compiled("shared_weights")
    images, labels = digits(30, pixels=9)
    before = state(model.module)
    assert model.module.evaluate(images, None)[1] is None
    for call in (
        lambda: model.module.forward(3, images[:9]),
        lambda: model.module.train(images, labels),
        lambda: model.module.evaluate(images, labels),
    ):
        with pytest.raises(TypeError, match="must be None: this model has no targets"):
            call()
    assert state(model.module) == before


def test_inputs_at_an_odd_address_are_read_as_well(compiled):
    module = compiled("xor").module
    aligned = array("d", [0.5, -0.25])
    odd = memoryview(bytearray(b"?" + aligned.tobytes()))[1:].cast("d")
    assert module.forward(odd[1:], odd) == module.forward(aligned[1:], aligned)
    assert module.evaluate(odd, odd[1:]) == module.evaluate(aligned, aligned[1:])


@pytest.mark.slow
def test_a_model_without_outputs_or_distributions_says_so(tmp_path):
    w, x = Value(2.0), Value(0.0)
    description = 'no outputs */ at all, "quoted" \\ %s ä'
    program = Program(Floats([x]), None, {"w": w}, loss=w * x, description=description)
    module = load_extension(build(program, tmp_path, "bare", flags=["-O0"]), "bare")
    one = array("d", [1.0])
    assert module.info()["architecture"] == description
    for call in (lambda: module.predict(one), lambda: module.predict_batch(one)):
        with pytest.raises(RuntimeError, match="declares no prediction"):
            call()
    with pytest.raises(RuntimeError, match="no output named 'probabilities'"):
        module.probabilities(one)
    with pytest.raises(ValueError, match=r"no initial distribution: reset\(\) takes no seed"):
        module.reset(1)
    assert module.outputs(one) == {}
    assert module.train(one, None, learning_rate=0.5) == [2.0]
    assert module.data(0) == 1.5
    module.reset()
    assert module.data(0) == 2.0


@pytest.mark.slow
def test_predict_batch_has_one_byte_for_a_class(tmp_path):
    w, x = [Value(float(i)) for i in range(257)], [Value(0.0)]
    out = [wi * x[0] for wi in w]
    program = Program(
        Pixels(x), None, {"w": w}, loss=total(out), outputs={"few": out[:256], "many": out}, prediction="few"
    )
    module = load_extension(build(program, tmp_path, "few", flags=["-O0"]), "few")
    assert module.predict_batch(b"\x01\x00") == b"\xff\x00"
    program.prediction = "many"
    module = load_extension(build(program, tmp_path, "many", flags=["-O0"]), "many")
    with pytest.raises(RuntimeError, match=r"returns bytes, but this model has 257 classes"):
        module.predict_batch(b"\x01\x00")
    assert module.predict(b"\x01") == 256


BILLIONS = """
import mmap, sys
from codegen import load_extension

module = load_extension(sys.argv[1], sys.argv[2])
count = 2**33 + 2**31
images = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | 0x4000)  # MAP_NORESERVE: pages that nobody writes take no memory
for epochs in (10**9, 2**63 // count + 1):
    try:
        module.train(images, None, epochs=epochs)
        sys.exit("trained")
    except ValueError as error:
        print(error)
seen = []
def progress(done, total, loss):
    seen.append(total == count * epochs)
    raise KeyError
epochs = (2**63 - 1) // count
try:
    module.train(images, None, epochs=epochs, progress=progress)
except KeyError:
    print(*seen)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="maps ten billion bytes that are not there")
def test_more_images_in_all_epochs_than_can_be_counted(tmp_path, run_python):
    x, w = Value(0.0), Value(0.5)
    path = build(
        Program(Pixels([x]), None, {"w": w}, (w * x - 1.0) ** 2, {"out": [w * x]}), tmp_path, "counted", flags=["-O0"]
    )
    first, second, seen = run_python(BILLIONS, str(path), "counted").splitlines()
    assert first == (
        "1000000000 epochs of 10737418240 images are more than train() can count: at most 9223372036854775807 images"
    )
    assert second.startswith("858993460 epochs of 10737418240 images are more")
    assert seen == "True"
