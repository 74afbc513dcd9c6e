"""accumulate(): gradients other than those of forward and backward for each image in order, or a step by accident."""

from __future__ import annotations

import nn
import numpy as np
import pytest
from harness import TYPES, bits, many, slow_but, state

COUNTS = [1, 2, 7, 16, 63, 64, 65, 255, 256, 257, 600]


def by_hand(module, images, labels) -> float:
    info = module.info()
    rows = np.frombuffer(images, TYPES[info["input_type"]]).reshape(-1, info["inputs"])
    targets = [None] * len(rows)
    if labels is not None:
        numbers = np.frombuffer(labels, TYPES[info["target_type"]])
        targets = numbers.tolist() if info["target_type"] == "label" else numbers.reshape(len(rows), -1)
    total = 0.0
    for target, row in zip(targets, rows, strict=True):
        total += module.forward(target, row)
        module.backward()
    return total


MODELS = ["mlp", "deep_mlp", "xor", "convolution", "shared_weights", "attention", "wide"]


@pytest.mark.parametrize("name", slow_but(["convolution"], MODELS, nightly=MODELS))
def test_the_bits_are_those_of_forward_and_backward(name, compiled):
    model = compiled(name)
    module = model.module
    for count in COUNTS:
        data = many(model.program, count, seed=count)
        model.reset()
        expected = []
        for _ in range(2):  # the second time on top of the first
            expected += [bits([by_hand(module, *data)]), state(module)]
        module.update(0, count)
        module.backward()
        expected.append(state(module))
        for threads in (1, 2, 3):
            model.reset()
            found = []
            for _ in range(2):
                found += [bits([module.accumulate(*data, threads=threads)]), state(module)]
            module.update(0, count)
            module.backward()  # of the last image
            found.append(state(module))
            assert found == expected, (count, threads)


@pytest.mark.parametrize("batch_size", [1, 3, 64, 300, 1000, 2500])
@pytest.mark.parametrize("threads", [1, 2])
def test_accumulate_and_update_are_a_step_of_train(batch_size, threads, digits):
    """2,500 images take several chunks."""
    images, labels = digits(2500)
    nn.reset(1)
    count = 10 * batch_size if batch_size < 100 else 2500
    expected = nn.train(images[: 784 * count], labels[:count], batch_size=batch_size, learning_rate=0.01), state(nn)
    nn.reset(1)
    total = 0.0
    for first in range(0, count, batch_size):
        end = min(first + batch_size, count)
        nn.zero_grad()
        batch = nn.accumulate(images[784 * first : 784 * end], labels[first:end], threads=threads)
        total += batch
        nn.update(0, end - first, learning_rate=0.01)
    assert state(nn) == expected[1]
    assert total / count == pytest.approx(expected[0][0], rel=1e-12)


def test_weights_stay_and_gradients_add_up(digits):
    images, labels = digits(100)
    nn.reset(1)
    before = [nn.data(i) for i in range(39760)]
    first = nn.accumulate(images, labels)
    gradients = np.array(nn.grad_dict()["layers.0.weight"])
    assert gradients.any()
    assert nn.accumulate(images, labels) == first
    assert np.allclose(np.array(nn.grad_dict()["layers.0.weight"]), 2 * gradients)
    assert [nn.data(i) for i in range(39760)] == before
    assert first / 100 == pytest.approx(nn.evaluate(images, labels)[0])


def test_progress_reports_mean_losses_and_may_stop(digits):
    images, labels = digits(2000)
    nn.reset(1)
    calls: list[tuple] = []
    total = nn.accumulate(images, labels, progress=lambda *report: calls.append(report))
    assert [done for done, _, _ in calls] == sorted({done for done, _, _ in calls})
    assert len(calls) > 1
    assert calls[-1] == (2000, 2000, total / 2000)
    done, _, mean = calls[0]
    nn.zero_grad()
    assert nn.accumulate(images[: 784 * done], labels[:done]) / done == mean
    expected = state(nn)
    nn.zero_grad()

    def stop(*_: object) -> None:
        with pytest.raises(RuntimeError, match="cannot be changed from inside a progress callback"):
            nn.accumulate(images, labels)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nn.accumulate(images, labels, progress=stop)
    assert state(nn) == expected
