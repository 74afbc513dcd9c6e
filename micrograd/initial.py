"""Distributions of initial weights: uniform, normal, constant, and those that PyTorch and Keras have names for.

    "kaiming_uniform", shape (50, 784)      becomes     (-0.0874..., 0.0874...)
    "he_normal", the same                   becomes     Normal(0.0, 0.0574..., limit=2.0)

A name stands for a spread that follows from the shape of the tensor, which is read as in PyTorch: (outputs, inputs),
and for a convolution (outputs, inputs, height, width). fan-in is the number of inputs of one output, fan-out the number
of outputs that see one input, each times the size of the kernel.

    xavier, glorot   variance 2 / (fan-in + fan-out)    Glorot and Bengio, Understanding the difficulty of training deep
                                                        feedforward neural networks, 2010
    kaiming, he      variance 2 / fan-in                He et al., Delving deep into rectifiers, 2015
    lecun            variance 1 / fan-in                LeCun et al., Efficient BackProp, 1998
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, prod, sqrt
from numbers import Real
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Normal:
    """A normal distribution; numbers further than `limit` standard deviations from the mean are drawn again."""

    mean: float = 0.0
    deviation: float = 1.0
    limit: float = inf


Distribution: TypeAlias = "tuple[float, float] | Normal"  # (low, high) of a uniform one; (c, c) is the constant c
Initial: TypeAlias = "Distribution | float | str"

TIGHTEST = 0.01  # of the limits: within a tighter one, each number takes too many draws

# The standard deviation of a standard normal number within two of its own, by which Keras divides.
WITHIN_TWO = 0.87962566103423978
GAINS = {"xavier": 1.0, "glorot": 1.0, "kaiming": 2.0, "he": 2.0, "lecun": 1.0}
FIXED: dict[str, Distribution] = {
    "zeros": (0.0, 0.0),
    "ones": (1.0, 1.0),
    "random_uniform": (-0.05, 0.05),  # these two as in Keras
    "random_normal": Normal(0.0, 0.05),
    "trunc_normal": Normal(0.0, 1.0, 2.0),  # PyTorch's bounds are -2 and 2
    "truncated_normal": Normal(0.0, 0.05, 2.0),
}
NAMES = (*FIXED, *(f"{author}_{shape}" for author in GAINS for shape in ("uniform", "normal")))


def resolved(what: str, initial: Initial, shape: Sequence[int]) -> Distribution:
    """The distribution of a tensor. `what` is its name in messages.

    Raises TypeError or ValueError for a distribution that is none, and for a name that the shape has no meaning for.
    """
    if isinstance(initial, str):
        return _named(what, initial, shape)
    if isinstance(initial, Normal):
        is_finite = isfinite(initial.mean) and isfinite(initial.deviation)
        if not (is_finite and initial.deviation > 0 and initial.limit >= TIGHTEST):
            must = f"must be finite, deviation > 0 and limit >= {TIGHTEST}"
            raise ValueError(f"the initial distribution of {what} {must}: {initial}")
        return initial
    if isinstance(initial, Real):
        initial = (initial, initial)
    if not isinstance(initial, tuple | list) or len(initial) != 2 or not all(isinstance(x, Real) for x in initial):
        raise TypeError(
            f"the initial distribution of {what} must be (low, high), a constant, a Normal or a name, got {initial!r}"
        )
    low, high = initial
    if not (isfinite(low) and isfinite(high) and low <= high):
        raise ValueError(f"the initial range of {what} must be finite and ordered, got ({low}, {high})")
    return low, high


def draw(distribution: Distribution, source: random.Random | None = None) -> float:
    """A number from the distribution, by `source` or the module `random`. A constant draws nothing."""
    rng: Any = random if source is None else source
    if isinstance(distribution, Normal):
        while True:
            z = float(rng.normalvariate(0.0, 1.0))
            if abs(z) <= distribution.limit:
                return distribution.mean + z * distribution.deviation
    low, high = distribution
    return low if low == high else float(rng.uniform(low, high))


def _named(what: str, name: str, shape: Sequence[int]) -> Distribution:
    plain = name.removesuffix("_")  # PyTorch's functions work in place, and end with it
    if plain in FIXED:
        return FIXED[plain]
    if plain not in NAMES:
        raise ValueError(f"the initial distribution of {what} must be one of {', '.join(NAMES)}, got {name!r}")
    if len(shape) < 2:
        raise ValueError(f"{name!r} needs two dimensions, but {what} has the shape {tuple(shape)}")
    author, kind = plain.split("_")
    kernel = prod(shape[2:])
    fan_in, fan_out = shape[1] * kernel, shape[0] * kernel
    fan = (fan_in + fan_out) / 2 if author in ("xavier", "glorot") else fan_in
    variance = GAINS[author] / fan
    if kind == "uniform":
        return -sqrt(3 * variance), sqrt(3 * variance)
    if author in ("xavier", "kaiming"):  # PyTorch's
        return Normal(0.0, sqrt(variance))
    return Normal(0.0, sqrt(variance) / WITHIN_TWO, 2.0)  # Keras's have no tails
