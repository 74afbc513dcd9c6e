"""Losses and the functions around them, on lists or arrays of `Value`s. Everything is made of Value's own operators."""

import operator
from collections.abc import Sequence
from typing import cast

from micrograd.engine import Value, value_of


def total(values: Sequence[Value]) -> Value:
    """The sum, from left to right. Unlike the built-in `sum` it does not start from a constant 0."""
    if not len(values):
        raise ValueError("a sum of no Values")
    out = values[0]
    for value in values[1:]:
        out = out + value
    return out


def log_softmax(logits: Sequence[Value]) -> list[Value]:
    """log(exp(x_i) / sum_j exp(x_j)), computed as (x_i - m) - log(sum_j exp(x_j - m)) with m the largest logit.

    No exp overflows and no log sees 0. m is detached: its gradient is zero in exact arithmetic.
    """
    shifted = _shifted(logits)
    norm = total([x.exp() for x in shifted]).log()
    return [x - norm for x in shifted]


def softmax(logits: Sequence[Value]) -> list[Value]:
    """exp(x_i - m) / sum_j exp(x_j - m) with m the largest logit."""
    exps = [x.exp() for x in _shifted(logits)]
    norm = total(exps) ** -1
    return [x * norm for x in exps]


def cross_entropy(logits: Sequence[Value], target: int | Sequence[Value | float]) -> Value:
    """-sum_i target_i * log_softmax(logits)_i. `target` is a class index or one weight per class (one-hot, say).

    Raises ValueError for an index outside the logits or a wrong number of weights.
    """
    logp = log_softmax(logits)
    if not is_sequence(target):
        label = operator.index(cast(int, target))
        if not 0 <= label < len(logp):
            raise ValueError(f"target must be 0..{len(logp) - 1}, got {label}")
        return -logp[label]
    weights = cast("Sequence[Value | float]", target)
    if len(weights) != len(logp):
        raise ValueError(f"{len(logp)} logits need {len(logp)} target weights, got {len(weights)}")
    return -total([p * t for p, t in zip(logp, weights, strict=True)])


def mse(predictions: Sequence[Value], targets: Sequence[Value | float]) -> Value:
    """The mean of (prediction - target)**2. Raises ValueError for different lengths."""
    if len(predictions) != len(targets):
        raise ValueError(f"{len(predictions)} predictions, but {len(targets)} targets")
    errors = with_constants([p - t for p, t in zip(predictions, targets, strict=True)])
    return total([e**2 for e in errors]) / len(errors)


def argmax(values: Sequence[Value | float]) -> int:
    """The index of the largest; the first one on a tie; nan is never larger. Raises ValueError for no values."""
    if not len(values):
        raise ValueError("the argmax of no values")
    data = [v.data if isinstance(v, Value) else v for v in values]
    best = 0
    for i, x in enumerate(data):
        if x > data[best]:
            best = i
    return best


def accuracy(predictions: Sequence[int], labels: Sequence[int]) -> float:
    """The share of equal pairs, 0 to 1. Raises ValueError for no predictions or different lengths."""
    if len(predictions) != len(labels):
        raise ValueError(f"{len(predictions)} predictions, but {len(labels)} labels")
    if not len(labels):
        raise ValueError("the accuracy of no predictions")
    return sum(int(p == q) for p, q in zip(predictions, labels, strict=True)) / len(labels)


def is_sequence(x: object) -> bool:
    """Whether x has elements. An array is no Sequence, and has a length even if it is a single number."""
    return hasattr(x, "__len__") and getattr(x, "shape", None) != () and not isinstance(x, str)


def with_constants(row: Sequence[Value | float]) -> list[Value]:
    """The Values; numbers among them become constants. Raises TypeError for a row of rows."""
    return [value_of(x) for x in row]


def _shifted(logits: Sequence[Value]) -> list[Value]:
    logits = with_constants(logits)
    if not logits:
        raise ValueError("a softmax of no logits")
    if len(logits) == 1:
        return [logits[0] - logits[0].detach()]
    largest = logits[0].max(*logits[1:]).detach()
    return [x - largest for x in logits]
