"""What is known of each function: its exact value, and where its definition deserves a closer look."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpfr, mpz

from tools.functions.compiled import Floats

INF = math.inf
LN2 = math.log(2)
PRECISION = 160  # bits of exact values
gmpy2.get_context().precision = PRECISION


def exact_gelu(x: Any) -> Any:
    return x * gmpy2.erfc(-x / gmpy2.sqrt(mpfr(2))) / 2


def exact_softplus(x: Any) -> Any:
    return gmpy2.log1p(gmpy2.exp(x)) if x < 100 else x + gmpy2.exp(-x)


def halves(count: int, scale: float = 1.0) -> list[float]:
    """Where the reduced argument of an exponential changes its sign."""
    return [(k + 0.5) * LN2 * scale for k in range(-count, count)]


def roots(count: int) -> list[float]:
    """Where the exponent that a logarithm takes out changes, and the powers of 2."""
    return [2.0**k * c for k in range(-count, count) for c in (1.0, 1.375, math.sqrt(2.0))]


def nearest_multiples() -> Iterator[float]:
    """For each exponent, the floats that are nearest to multiples of pi / 2: by continued fractions of their quotients.

    The remainder of these loses the most bits; 61 at worst.
    """
    with gmpy2.context(precision=3000):
        digits = mpz(gmpy2.floor(gmpy2.mul_2exp(gmpy2.const_pi(), 2499)))  # of pi / 2
    for exponent in range(-52, 971):
        p, q = digits << max(-exponent, 0), mpz(1) << (2500 + max(exponent, 0))
        above, numerator = mpz(0), mpz(1)
        while q and numerator < 2**53:
            if numerator >= 2**40:
                yield math.ldexp(float(numerator), exponent)
            (quotient, rest) = divmod(p, q)
            p, q = q, rest
            above, numerator = numerator, quotient * numerator + above


@dataclass(frozen=True)
class Subject:
    exact: Callable[..., Any]  # of gmpy2's numbers
    dense: Sequence[tuple[float, float]]
    seams: Sequence[float] = ()
    hard: Sequence[float] = ()  # where errors are largest, or results nearly half-way between two floats
    domain: tuple[float, float] = (-INF, INF)
    rising: tuple[float, float] | None = (-INF, INF)


EXP_SEAMS = [*halves(1075), -708.3964185322641, 709.782712893384, -745.1332191019411, -38.0, 40.0, 45.0, 0.0]
CIRCULAR = [k * math.pi / 4 for k in range(-40, 40)] + [100000.0, -100000.0, 1e-8]
MULTIPLES = list(nearest_multiples())

SUBJECTS = {
    "exp": Subject(
        gmpy2.exp,
        [(-746.0, 710.0), (-746.0, -708.0), (-1.0, 1.0), (-0.36, 0.36)],
        EXP_SEAMS,
        [float.fromhex(x) for x in ("0x1.83d4bcdebb3f4p2", "0x1.9e9cbbfd6080bp-31", "0x1.62f71c4656b61p-1")],
    ),
    "expm1": Subject(
        gmpy2.expm1, [(-40.0, 710.0), (-1.1, 1.1), (-0.36, 0.36), (30.0, 50.0), (-40.0, -30.0)], EXP_SEAMS
    ),
    "log": Subject(
        gmpy2.log,
        [(0.5, 2.0), (0.99, 1.01), (0.0, 100.0), (0.0, 2.3e-308), (0.70, 0.72), (1.40, 1.42)],
        [*roots(1022), 1.375 * 2.0**1023],
        [float.fromhex("0x1.62a88613629b6p+678")],
        domain=(0.0, INF),
    ),
    "log1p": Subject(
        gmpy2.log1p,
        [(-1.0, 1.0), (-0.3, 0.42), (-0.01, 0.01), (1.0, 100.0), (1e15, 1e17), (-0.33, -0.25), (0.40, 0.45)],
        [*[c - 1 for c in roots(60)], *roots(1022), 1.375 * 2.0**1023, 1e18],
        domain=(-1.0, INF),
    ),
    "tanh": Subject(
        gmpy2.tanh,
        [(-20.0, 20.0), (-1.0, 1.0), (-0.2, 0.2), (18.0, 19.5)],
        [*halves(60, 0.5), 20.0, -20.0, 4e-9, -4e-9],
        [float.fromhex("0x1.63002a33750d9p-3")],
    ),
    "sigmoid": Subject(
        lambda x: 1 / (1 + gmpy2.exp(-x)),
        [(-746.0, 40.0), (-746.0, -708.0), (-5.0, 5.0), (-0.36, 0.36), (-40.0, -25.0), (30.0, 40.0)],
        EXP_SEAMS,
        [float.fromhex("-0x1.627401e25c1edp+9")],
    ),
    "softplus": Subject(
        exact_softplus,
        [(-746.0, 41.0), (-746.0, -708.0), (-5.0, 5.0), (-1.0, 1.0), (-40.0, -30.0), (30.0, 40.0)],
        [*EXP_SEAMS, 0.98, -0.98, math.log(0.375), -math.log(0.375)],
    ),
    "sin": Subject(gmpy2.sin, [(-0.8, 0.8), (-10.0, 10.0), (-1e3, 1e3), (-2e5, 2e5)], CIRCULAR, MULTIPLES, rising=None),
    "cos": Subject(gmpy2.cos, [(-0.8, 0.8), (-10.0, 10.0), (-1e3, 1e3), (-2e5, 2e5)], CIRCULAR, MULTIPLES, rising=None),
    "erf": Subject(
        gmpy2.erf,
        [(-6.5, 6.5), (-1.0, 1.0), (0.8, 0.95), (0.004, 0.03), (9e-7, 2e-6)],
        [0.875, -0.875, 6.0, -6.0, 0.0],
        [float.fromhex("0x1.9e5c0f56b9666p-20")],
    ),
    "gelu": Subject(
        exact_gelu,
        [(-1.0, 1.0), (-0.36, -0.28), (-5.0, 5.0), (-37.0, -5.0), (-38.7, -37.4)],
        [0.375, -0.375, 3.0, -3.0, 39.0, -39.0],
        [float.fromhex("-0x1.55b31f33758fap-2")],
        rising=(-0.7517, INF),
    ),
    "power": Subject(lambda x, y: x**y, [], domain=(0.0, INF)),
}


def arguments(name: str, count: int, seed: int) -> list[Floats]:
    """Some `count` arguments, an array for each operand, at which the exact result is finite."""
    rng = np.random.default_rng(seed)
    if name == "power":
        return _pairs(rng, count)
    subject = SUBJECTS[name]
    low, high = subject.domain
    bits = rng.integers(0, 2**64, count // 2, dtype=np.uint64)
    # Most functions are trivial at most exponents: three quarters have exponents from -60 to 11.
    middle = rng.integers(1023 - 60, 1023 + 12, len(bits), dtype=np.uint64) << np.uint64(52)
    bits = np.where(rng.random(len(bits)) < 0.75, (bits & np.uint64(0x800FFFFFFFFFFFFF)) | middle, bits)
    everywhere: Floats = bits.view(np.float64)
    parts = [np.abs(everywhere) if low == 0.0 else everywhere]
    near = [neighbours(seam, 3) for seam in subject.seams]
    parts += [np.array(subject.hard), *near]
    parts += [rng.uniform(a, b, (count - count // 2) // len(subject.dense)) for a, b in subject.dense]
    x = np.concatenate(parts)
    return [x[np.isfinite(x) & (x > low) & (x < high)]]


def _pairs(rng: np.random.Generator, count: int) -> list[Floats]:
    n = count // 10
    wide = np.exp(rng.uniform(-709.0, 709.0, n))
    octave = rng.uniform(0.5, 2.0, n)
    near_1 = 1.0 + rng.choice([-1.0, 1.0], n) * 2.0 ** rng.uniform(-52.0, -1.0, n)
    near_roots = rng.choice([2.0**0.5, 0.5**0.5], n) * (1.0 + rng.uniform(-0.01, 0.01, n))
    denormal = rng.integers(1, 2**52, n, dtype=np.int64).view(np.float64)
    pairs = [(x, rng.uniform(-745.0, 709.7, n) / np.log(x)) for x in (wide, octave, near_1, denormal)]
    pairs.append((near_roots, rng.choice([-1.0, 1.0], n) * rng.uniform(600.0, 709.0, n) / np.log(near_roots)))
    pairs.append((wide, rng.uniform(-745.2, -708.0, n) / np.log(wide)))  # denormal results
    pairs.append((rng.uniform(0.0, 10.0, n), rng.uniform(-5.0, 5.0, n)))
    pairs.append((wide, rng.uniform(-1.0, 1.0, n) * 2.0 ** -rng.uniform(0.0, 70.0, n)))
    pairs.append((rng.uniform(1.0, 30.0, n).round(), rng.uniform(-200.0, 200.0, n).round()))
    pairs.append((rng.uniform(0.0, 1e6, n), rng.choice([2.5, 1.5, -1.5, 1 / 3, 0.25, 5.0, -7.0, 0.1], n)))
    x, y = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    chosen = np.isfinite(y) & (x > 0.0) & ~np.isin(np.abs(y), [0.0, 0.5, 1.0, 2.0, 3.0, 4.0])
    return [x[chosen], y[chosen]]


def neighbours(x: float, count: int) -> Floats:
    """x and `count` floats on either side, ascending."""
    middle = int(np.float64(abs(x)).view(np.int64)) * (-1 if x < 0 else 1)
    numbers = np.arange(middle - count, middle + count + 1, dtype=np.int64)
    values = np.abs(numbers).view(np.float64)
    return np.where(numbers < 0, -values, values)
