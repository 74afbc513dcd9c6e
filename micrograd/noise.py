"""Randomness that is part of a model: leaves whose numbers are drawn for every training example.

    mask = Noise([Value(1.0) for _ in hidden], Bernoulli(0.8, 1.25))      dropout of one unit in five
    hidden = [h * m for h, m in zip(hidden, mask.values)]

In training each example draws new numbers, in the order of the Values. Wherever nothing is trained, in a prediction or
an evaluation, they are the means of their distributions. draw() sets the Values of an interpreted model; the modules of
codegen draw the same numbers after the same seed, since both use Python's generator, MT19937.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from micrograd.engine import Value
from micrograd.initial import Normal, draw


@dataclass(frozen=True)
class Bernoulli:
    """`value` with this probability, else 0."""

    probability: float
    value: float = 1.0


Randomness: TypeAlias = "tuple[float, float] | Normal | Bernoulli"  # (low, high) is uniform


@dataclass(frozen=True)
class Noise:
    """Leaves that are drawn from one distribution: (low, high), a Normal or a Bernoulli.

    `values` are a list of Values, or nested lists, or an array; they are drawn in C order.
    """

    values: Any
    distribution: Randomness

    def draw(self, source: random.Random | None = None) -> None:
        """Draws a number for each Value, from `source` or from the module `random`."""
        for value in leaves_of(self.values):
            value.data = drawn(self.distribution, source)

    def rest(self) -> None:
        """Sets each Value to the mean of the distribution, as predictions have it."""
        for value in leaves_of(self.values):
            value.data = mean(self.distribution)


def leaves_of(nested: Any) -> Iterator[Value]:
    """The Values of a list of any depth, or of an array, in C order."""
    if isinstance(nested, Iterable) and not isinstance(nested, str):
        for item in nested:
            yield from leaves_of(item)
    else:
        yield nested


def drawn(distribution: Randomness, source: random.Random | None = None) -> float:
    """One number, as Python's `random` draws it."""
    if isinstance(distribution, Bernoulli):
        rng: Any = random if source is None else source
        return distribution.value if rng.random() < distribution.probability else 0.0
    return draw(distribution, source)


def mean(distribution: Randomness) -> float:
    if isinstance(distribution, Bernoulli):
        return distribution.probability * distribution.value
    if isinstance(distribution, Normal):
        return distribution.mean
    low, high = distribution
    return low + (high - low) * 0.5


def moved(
    image: Sequence[float], shift: tuple[int, int, int] | None, source: random.Random | None = None
) -> list[float]:
    """An image moved at random, as a Program with Pixels(shift=...) does it in training.

    `shift` is the most pixels, the height and the width; planes of such images follow one another. The move down is
    drawn first, then the one to the right.
    """
    if shift is None:
        return list(image)
    rng: Any = random if source is None else source
    reach, height, width = shift
    down, right = (rng.randrange(2 * reach + 1) - reach for _ in range(2))
    found = [0.0] * len(image)
    for i, x in enumerate(image):
        row, column = i // width % height + down, i % width + right
        if 0 <= row < height and 0 <= column < width:
            found[i + down * width + right] = x
    return found
