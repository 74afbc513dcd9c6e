"""Checks of a Program's noise: lists of leaves, and distributions of plain floats."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from codegen import checks
from codegen.kinds import leaves
from micrograd.initial import Normal
from micrograd.noise import Bernoulli, Noise, Randomness


def checked_noise(noise: object, dtype: str) -> tuple[Noise, ...]:
    """Noise, or a list of Noises, of plain lists and floats. Raises TypeError or ValueError for all else."""
    listed = [noise] if isinstance(noise, Noise) else noise
    if not isinstance(listed, Sequence) or not all(isinstance(one, Noise) for one in listed):
        raise TypeError(f"noise must be a Noise or a list of them, not {checks.shown(noise)}")
    return tuple(_checked(f"noise[{i}]", one, dtype) for i, one in enumerate(listed))


def _checked(what: str, noise: Noise, dtype: str) -> Noise:
    found = leaves(what, noise.values)
    if not found:
        raise ValueError(f"{what} must have at least one Value")
    return Noise(found, _distribution(what, noise.distribution, dtype))


def _distribution(what: str, given: object, dtype: str) -> Randomness:
    if isinstance(given, Bernoulli):
        probability = checks.number(f"{what}: the probability", given.probability)
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"{what}: the probability must be 0..1, got {probability}")
        return Bernoulli(probability, checks.number(f"{what}: the value", given.value, dtype))
    if isinstance(given, Normal):
        center = checks.number(f"{what}: the mean", given.mean, dtype)
        deviation = checks.number(f"{what}: the deviation", given.deviation, dtype)
        limit = inf if given.limit == inf else checks.number(f"{what}: the limit", given.limit)
        if deviation <= 0.0 or limit < 0.01:  # a number within a tighter limit takes too many draws
            raise ValueError(f"{what}: the deviation must be above 0 and the limit 0.01 or more, got {given}")
        return Normal(center, deviation, limit)
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        low, high = (checks.number(f"{what}: an end of the range", end, dtype) for end in given)
        if not (low < high and isfinite(high - low)):
            raise ValueError(f"{what}: (low, high) must be a range of finite width, got ({low}, {high})")
        return low, high
    raise TypeError(f"{what}: the distribution must be (low, high), a Normal or a Bernoulli, not {checks.shown(given)}")
