"""Losses that compute another formula: against NumPy and autograd, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from micrograd.arrays import array
from micrograd.engine import Value
from micrograd.functional import accuracy, argmax, cross_entropy, log_softmax, mse, softmax, total

NAN = math.nan
RELATIVE = 1e-12
LOGITS = [
    [0.0],
    [1.0, 2.0, 3.0],
    [0.5, -0.25, 0.5],
    [1000.0, -1000.0, 0.0],
    [-1000.0, -1001.0],
    [1000.0, 1000.0, 999.0],
    [1e5, -1e5, 3.0, 1e-5],
    [0.0] * 10,
]
logit_lists = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)


def values(numbers: list[float]) -> list[Value]:
    return [Value(x) for x in numbers]


def data(nodes: list[Value]) -> list[float]:
    return [node.data for node in nodes]


def gradients(function: Callable[[list[Value]], Value], numbers: list[float]) -> list[float]:
    leaves = values(numbers)
    function(leaves).backward()
    return [leaf.grad for leaf in leaves]


def assert_close(found: list[float] | float, expected: np.ndarray | float) -> None:
    """Equal up to a relative error, by the largest element."""
    found, expected = np.atleast_1d(found), np.atleast_1d(expected)
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= RELATIVE * np.abs(expected).max()


def reference_log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - anp.max(x)
    return shifted - anp.log(anp.sum(anp.exp(shifted)))


# total


def test_total_adds_from_left_to_right_and_starts_from_the_first():
    a, b, c = values([1.0, 1e16, -1e16])
    assert total([a]) is a
    out = total([a, b, c])
    assert out.data == (1.0 + 1e16) + -1e16
    assert out._prev[1] is c
    assert out._prev[0]._prev[0] is a
    assert len(out.topo()) == 5


# softmax


@pytest.mark.parametrize("logits", LOGITS)
def test_softmax_and_log_softmax_equal_numpy(logits):
    expected = reference_log_softmax(np.array(logits))
    assert_close(data(log_softmax(values(logits))), expected)
    assert_close(data(softmax(values(logits))), np.exp(expected))


@given(logit_lists)
@settings(deadline=None, max_examples=100)
def test_softmax_is_a_distribution_and_log_softmax_its_logarithm(logits):
    shares = data(softmax(values(logits)))
    assert math.fsum(shares) == pytest.approx(1.0, rel=RELATIVE)
    assert all(0.0 <= share <= 1.0 for share in shares)
    logs = data(log_softmax(values(logits)))
    assert all(x <= 0.0 for x in logs)
    assert_close([math.exp(x) for x in logs], np.array(shares))


def test_softmax_of_logits_that_are_infinitely_small():
    assert data(softmax(values([-math.inf, 0.0]))) == [0.0, 1.0]
    assert data(log_softmax(values([-math.inf, 0.0]))) == [-math.inf, 0.0]


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize(
    ("function", "reference"),
    [(log_softmax, reference_log_softmax), (softmax, lambda x: anp.exp(reference_log_softmax(x)))],
    ids=["log_softmax", "softmax"],
)
def test_softmax_gradients_equal_autograd(function, reference, logits):
    weights = np.linspace(-1.0, 2.0, len(logits))
    found = gradients(lambda x: total([p * w for p, w in zip(function(x), weights, strict=True)]), logits)
    expected = autograd.grad(lambda x: anp.sum(reference(x) * weights))(np.array(logits))
    # A gradient of a few tiny terms is a difference of terms as large as the weights.
    assert np.abs(np.array(found) - expected).max() <= RELATIVE * np.abs(weights).sum()


# cross_entropy


@pytest.mark.parametrize("logits", LOGITS)
def test_cross_entropy_equals_autograd_for_every_class(logits):
    for target in range(len(logits)):
        loss, slope = autograd.value_and_grad(lambda x, t=target: -reference_log_softmax(x)[t])(np.array(logits))
        assert_close(cross_entropy(values(logits), target).data, loss)
        found = gradients(lambda x, t=target: cross_entropy(x, t), logits)
        assert np.abs(np.array(found) - slope).max() <= RELATIVE


@given(logit_lists, st.data())
@settings(deadline=None, max_examples=100)
def test_a_class_index_equals_its_one_hot_weights(logits, draw):
    target = draw.draw(st.integers(0, len(logits) - 1))
    one_hot = [float(i == target) for i in range(len(logits))]
    by_index = cross_entropy(values(logits), target).data
    assert cross_entropy(values(logits), one_hot).data == by_index
    assert cross_entropy(values(logits), values(one_hot)).data == by_index
    slopes = gradients(lambda x: cross_entropy(x, target), logits)
    assert gradients(lambda x: cross_entropy(x, one_hot), logits) == slopes


def test_the_gradient_of_cross_entropy_is_softmax_minus_target():
    logits = [0.3, -1.2, 2.0]
    shares = data(softmax(values(logits)))
    assert_close(gradients(lambda x: cross_entropy(x, 1), logits), np.array([shares[0], shares[1] - 1.0, shares[2]]))


def test_soft_targets_weigh_every_class():
    logits, weights = [0.5, -0.5, 1.5], [0.2, 0.7, 0.1]
    expected = -np.dot(weights, reference_log_softmax(np.array(logits)))
    assert_close(cross_entropy(values(logits), weights).data, expected)


def test_huge_logits_neither_overflow_nor_saturate():
    assert cross_entropy(values([1000.0, -1000.0]), 1).data == 2000.0
    assert gradients(lambda x: cross_entropy(x, 1), [1000.0, -1000.0]) == [1.0, -1.0]


def test_a_certain_and_right_answer_costs_nothing():
    """log(p + epsilon) would make it something else."""
    assert cross_entropy(values([800.0, 0.0]), 0).data == 0.0
    assert cross_entropy(values([5.0]), 0).data == 0.0
    assert gradients(lambda x: cross_entropy(x, 0), [5.0]) == [0.0]
    assert cross_entropy(values([0.0, 0.0]), 0).data == math.log(2.0)


# mse


def test_mse_is_the_mean_of_squares():
    predictions, targets = [1.0, -2.0, 0.5], [0.0, 1.0, 0.75]
    expected = np.mean((np.array(predictions) - np.array(targets)) ** 2)
    assert_close(mse(values(predictions), targets).data, expected)
    assert mse(values(predictions), values(targets)).data == mse(values(predictions), targets).data
    slopes = gradients(lambda x: mse(x, targets), predictions)
    assert_close(slopes, 2 * (np.array(predictions) - np.array(targets)) / 3)


def test_mse_flows_to_targets_that_are_values():
    target = Value(1.0)
    mse([Value(3.0)], [target]).backward()
    assert target.grad == -4.0


# argmax and accuracy


@pytest.mark.parametrize(
    ("numbers", "index"),
    [
        ([3.0], 0),
        ([1.0, 3.0, 2.0], 1),
        ([2.0, 2.0, 1.0], 0),
        ([1.0, 2.0, 2.0], 1),
        ([0.0, -0.0], 0),
        ([-0.0, 0.0], 0),
        ([1.0, NAN, 2.0], 2),
        ([1.0, NAN], 0),
        ([NAN, 1.0], 0),
        ([-math.inf, -math.inf], 0),
        ([1.0, math.inf, math.inf], 1),
    ],
)
def test_argmax_is_the_first_of_the_largest_and_nan_is_never_larger(numbers, index):
    assert argmax(numbers) == index
    assert argmax(values(numbers)) == index


def test_accuracy_is_the_share_of_equal_pairs():
    assert accuracy([1, 2, 3, 4], [1, 2, 0, 0]) == 0.5
    assert accuracy([1], [1]) == 1.0
    assert accuracy(b"\x01\x02", [2, 1]) == 0.0
    assert accuracy(np.array([1, 2]), np.array([1, 2])) == 1.0


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: total([]), "no Values"),
        (lambda v: softmax([]), "no logits"),
        (lambda v: log_softmax([]), "no logits"),
        (lambda v: cross_entropy([], 0), "no logits"),
        (lambda v: cross_entropy([v, v], 2), "0..1, got 2"),
        (lambda v: cross_entropy([v, v], -1), "0..1, got -1"),
        (lambda v: cross_entropy([v, v], [1.0]), "2 target weights, got 1"),
        (lambda v: cross_entropy([v], [1.0, 0.0]), "1 target weights, got 2"),
        (lambda v: mse([v], [1.0, 2.0]), "1 predictions, but 2 targets"),
        (lambda v: mse([v, v], [1.0]), "2 predictions, but 1 targets"),
        (lambda v: mse([], []), "no Values"),
        (lambda v: accuracy([1], [1, 2]), "1 predictions, but 2 labels"),
        (lambda v: accuracy([1, 2], [1]), "2 predictions, but 1 labels"),
        (lambda v: accuracy([], []), "no predictions"),
    ],
)
def test_wrong_lengths_and_ranges_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(Value(1.0))


@pytest.mark.parametrize("function", [softmax, lambda x: cross_entropy(x, 0), lambda x: mse(x, x)])
def test_rows_of_rows_are_refused(function):
    with pytest.raises(TypeError, match="a Value holds a real number, not Array"):
        function(array([[1.0, 2.0], [3.0, 4.0]]))


def test_numbers_among_the_values_are_constants():
    x = [1.0, np.float32(2.0), Value(3.0), np.int64(4)]
    assert [p.data for p in softmax(x)] == [p.data for p in softmax([*map(Value, (1, 2, 3, 4))])]
    assert cross_entropy(x, np.array(1)).data == cross_entropy(x, 1).data


def test_there_is_no_largest_of_nothing():
    with pytest.raises(ValueError, match="the argmax of no values"):
        argmax([])
