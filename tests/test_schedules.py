"""Learning rates that change from step to step: the schedules' formulas, and training by them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import models
import nn
import numpy as np
import pytest
from harness import Extension, Generated, bits, many

from micrograd import schedules

COUNT, BATCH, EPOCHS = 23, 5, 3  # the last step of an epoch is a smaller one
STEPS = 5 * EPOCHS
MAKES: dict[str, Callable[[], Any]] = {
    "C": lambda folder: Extension(models.mlp_of_floats(), folder, "loops", flags=["-O0"]).module,
    "float32": lambda folder: Extension(models.mlp_of_floats(dtype="float32"), folder, "loops", flags=["-O0"]).module,
    "Python": lambda folder: Generated(models.mlp_of_floats(), folder).module,
}


@pytest.fixture(scope="module", params=list(MAKES))
def trained(request, tmp_path_factory) -> Callable[..., tuple[list[float], list[str]]]:
    """Trains a fresh model; returns the losses and the bits of its parameters."""
    module = MAKES[request.param](tmp_path_factory.mktemp("rates"))
    program = models.mlp_of_floats(dtype="float32" if request.param == "float32" else "float64")
    images, targets = many(program, COUNT, seed=3)

    def run(rate: Any, by_hand: bool = False, **options: Any) -> tuple[list[float], list[str]]:
        module.reset()
        if by_hand:
            losses = loop_by_hand(module, program, images, targets, rate)
        else:
            losses = module.train(images, targets, batch_size=BATCH, epochs=EPOCHS, learning_rate=rate, **options)
        return losses, bits([module.data(i) for i in range(module.info()["parameters"])])

    return run


def loop_by_hand(module: Any, program: Any, images: Any, targets: Any, rate: Any) -> list[float]:
    """The same epochs through forward(), backward() and update(step)."""
    step, losses = 0, []
    width, height = len(program.input_values), len(program.target_values)
    for _ in range(EPOCHS):
        total = 0.0
        for first in range(0, COUNT, BATCH):
            batch = range(first, min(first + BATCH, COUNT))
            module.zero_grad()
            for i in batch:
                total += module.forward(targets[i * height : (i + 1) * height], images[i * width : (i + 1) * width])
                module.backward()
            module.update(step, len(batch), learning_rate=rate)
            step += 1
        losses.append(total / COUNT)
    return losses


RATES = [0.3 / (1 + i) for i in range(STEPS)]


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda x: array("d", x), lambda x: memoryview(array("d", x))])
def test_one_rate_a_step_is_the_loop_by_hand(make, trained):
    expected = trained(make(RATES), by_hand=True)
    assert trained(make(RATES)) == expected
    assert trained(make(RATES), check_finite=True, threads=2) == expected
    assert trained(make(RATES[::-1])) != expected  # in this order


def test_equal_rates_are_that_rate(trained):
    expected = trained(0.07)
    assert trained([0.07] * STEPS) == trained(lambda step: 0.07) == trained(schedules.constant(0.07)) == expected
    assert trained(np.array(0.07)) == expected  # without dimensions: a number


def test_a_schedule_is_the_loop_by_hand(trained):
    schedule = schedules.linear_warmup(schedules.cosine(0.4, STEPS - 4, lowest=0.01), 4)
    expected = trained(schedule, by_hand=True)
    assert trained(schedule) == trained(schedules.rates(schedule, STEPS)) == expected


def test_a_schedule_is_called_for_every_step_before_the_first(trained):
    seen: list[Any] = []

    def rate(step: int) -> float:
        seen.append(step)
        return 0.01

    trained(rate, progress=lambda *_: seen.append("progress"))
    assert seen[:STEPS] == list(range(STEPS))
    assert set(seen[STEPS:]) == {"progress"}


def test_a_schedule_may_use_the_model(digits):
    """It is called before the training begins, which starts from what it has left."""
    images, labels = digits(30)
    seen = []

    def rate(step: int) -> float:
        if step == 1:
            nn.train(images, labels, learning_rate=[0.5] * 30)
            nn.reset(2)
        seen.append(nn.evaluate(images, labels)[0])
        return 0.1

    nn.reset(1)
    found = nn.train(images, labels, batch_size=10, learning_rate=rate)
    nn.reset(2)
    assert seen[1] == seen[2] == nn.evaluate(images, labels)[0] != seen[0]
    assert nn.train(images, labels, batch_size=10, learning_rate=0.1) == found


# The formulas, against what the classes of torch.optim.lr_scheduler do from step to step


def test_step_multiplies_by_gamma():
    found = schedules.rates(schedules.step(0.5, every=3, gamma=0.2), 10)
    expected = accumulate(range(1, 10), lambda rate, i: rate * 0.2 if i % 3 == 0 else rate, initial=0.5)
    assert found.tolist() == pytest.approx(list(expected), rel=1e-14)


def test_a_rate_near_the_largest_number_does_not_overflow():
    largest = schedules.cosine(1.7e308, 4)
    assert schedules.rates(largest, 5)[0] == 1.7e308
    assert all(map(math.isfinite, schedules.rates(schedules.linear_warmup(largest, 3), 9)))


def test_cosine_is_the_recursion_of_pytorch():
    steps, lowest = 20, 0.002
    found = schedules.rates(schedules.cosine(0.15, steps, lowest), steps + 5)
    assert found[0] == 0.15
    for t, (before, after) in enumerate(pairwise(found[: steps + 1])):
        factor = (1 + math.cos(math.pi * (t + 1) / steps)) / (1 + math.cos(math.pi * t / steps))
        assert after == pytest.approx(lowest + (before - lowest) * factor, abs=1e-15)
    assert found[steps:].tolist() == [lowest] * 5


def test_warmup_is_a_line_and_then_the_schedule():
    after = schedules.cosine(0.15, 20)
    found = schedules.rates(schedules.linear_warmup(after, 5, start=0.2), 12)
    assert found[:5].tolist() == pytest.approx([0.03, 0.054, 0.078, 0.102, 0.126], rel=1e-14)
    assert found[5:].tolist() == [after(i) for i in range(7)]
    assert schedules.linear_warmup(0.5, 2)(0) == 0.0
    assert schedules.linear_warmup(0.5, 2)(2) == 0.5


def test_one_cycle():
    # The rates of torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=10, pct_start=0.3).
    expected = [0.020000000000000018, 0.26, 0.5, 0.47524231600673683, 0.40587282697488153, 0.30563101096814466]
    expected += [0.19437098903185537, 0.09412917302511849, 0.024759683993263143, 2e-06]
    found = schedules.rates(schedules.one_cycle(0.5, 10), 12)
    assert found[:10].tolist() == pytest.approx(expected, rel=1e-14)
    assert found[10:].tolist() == [found[9]] * 2
    assert found[9] == pytest.approx(0.5 / 25 / 1e4, rel=1e-12)
    other = schedules.rates(schedules.one_cycle(1.0, 21, pct_start=0.5, div_factor=4, final_div_factor=2), 21)
    assert (other[0], other[20]) == (0.25, 0.125)
    assert max(other) < 1.0  # the top, 9.5, lies between two steps


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.step(0.1, 0), "every must be at least 1, got 0"),
        (lambda: schedules.cosine(0.1, 0), "steps must be at least 1, got 0"),
        (lambda: schedules.linear_warmup(0.1, -1), "steps must be at least 1, got -1"),
        (lambda: schedules.one_cycle(0.1, 3), "pct_start=0.3 and steps=3, it is at step -0.1"),
        (lambda: schedules.one_cycle(0.1, 10, pct_start=1.0), "it is at step 9$"),
        (lambda: schedules.one_cycle(0.1, 10, div_factor=0), "must not be 0, got 0 and 10000.0"),
        (lambda: schedules.cosine(math.nan, 4), "rate must be finite, got nan"),
        (lambda: schedules.rates(0.1, -1), "steps must be at least 0, got -1"),
    ],
)
def test_schedules_that_make_no_rates_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.cosine("0.1", 4), "rate must be a number, not str"),
        (lambda: schedules.cosine(0.1, "4"), "steps must be an int, not str"),
        (lambda: schedules.cosine(0.1, 4.0), "steps must be an int, not float"),
        (lambda: schedules.step(True, 4), "rate must be a number, not bool"),
        (lambda: schedules.constant(None), "rate must be a number, not NoneType"),
        (lambda: schedules.linear_warmup("x", 3), "rate must be a number, not str"),
    ],
)
def test_schedules_of_anything_but_numbers_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_numbers_of_numpy_count_as_pythons():
    """A uint8 would overflow, and a float32 round."""
    warm = schedules.linear_warmup(schedules.cosine(np.float32(0.5), np.uint8(200)), np.uint8(10))
    assert schedules.rates(warm, 300) == schedules.rates(
        schedules.linear_warmup(schedules.cosine(0.5, 200), 10), np.int64(300)
    )


def test_a_schedule_of_more_steps_than_there_is_memory_for(tmp_path) -> None:
    generated = Generated(models.xor(), tmp_path).module
    for module, data in ((nn, (bytes(784), bytes(1))), (generated, (array("d", [0.0, 0.0]), array("d", [0.0])))):
        with pytest.raises(ValueError, match=r"rates of all 1000000000 steps before the first one, .* several times"):
            module.train(*data, epochs=10**9, learning_rate=lambda step: 0.1)


def test_the_defaults_are_pytorchs():
    assert schedules.rates(schedules.step(1.0, 1), 3).tolist() == pytest.approx([1.0, 0.1, 0.01], rel=1e-14)
    assert schedules.rates(schedules.cosine(0.5, 4), 6)[4:].tolist() == [0.0, 0.0]
    assert schedules.rates(0.5, 3).tolist() == [0.5] * 3


def test_a_short_cycle():
    """The top may lie between the first two steps, but not on the first one, nor on the last one."""
    found = schedules.rates(schedules.one_cycle(1.0, 5), 5)
    assert found[0] == pytest.approx(1.0 / 25, rel=1e-14)
    assert found[1] == max(found) < 1.0
    for steps, share in ((4, 0.25), (2, 1.0)):
        with pytest.raises(ValueError, match="a top between the first and the last step"):
            schedules.one_cycle(1.0, steps, pct_start=share)
    with pytest.raises(ValueError, match=r"must not be 0, got 25\.0 and 0"):
        schedules.one_cycle(0.1, 10, final_div_factor=0)


def test_a_bool_is_no_number_of_steps():
    with pytest.raises(TypeError, match="steps must be an int, not bool"):
        schedules.cosine(0.1, True)


def test_a_single_step():
    assert schedules.cosine(0.5, 1)(0) == 0.5
    assert schedules.rates(schedules.linear_warmup(0.5, 1), 2).tolist() == [0.0, 0.5]
