"""Where the constants of micrograd.ieee come from: derived again, and compared with those that the modules have.

Polynomials are remez.py's, the other constants are roundings of mathematical ones. What is not derived here are masks,
bit patterns, and powers of 2 with a sum or two.
"""

from __future__ import annotations

import struct

import numpy as np
from mpmath import mp, mpf

from micrograd.translate import library
from tools.functions import constants_float32
from tools.functions.remez import above, below, fit, fit_ratio, split

LN2 = mp.log(2)
Constants = dict[str, float]


def check() -> bool:
    """Prints each constant that differs from the derived one. Whether there is none."""
    is_good = True
    for dtype, derived in [("float64", float64()), ("float32", constants_float32.derived())]:
        known = library(is_float32=dtype == "float32").constants
        for name, number in derived.items():
            found = known.get(name)
            if isinstance(found, float):  # with as many digits as the type needs
                found = float(np.dtype(dtype).type(found))
            if found != number:
                print(f"{dtype}: {name} is {known.get(name)!r}, but derived it is {number!r}")
                is_good = False
        print(f"{dtype}: {len(derived)} constants derived")
    return is_good


def float64() -> Constants:
    parts = [roundings, exponential, hyperbolic_tangent, exponential_of_pairs, logarithm, logarithm_of_pairs]
    parts += [circle, angles, error_function, normal]
    return {name: number for part in parts for name, number in part().items()}


def roundings() -> Constants:
    high, low = split(LN2, 42, 53)  # products of k and LN2_HIGH are exact: 42 bits and the 11 of k
    return {
        "LN2_HIGH": float(high),
        "LN2_LOW": float(low),
        "INVERSE_LN2": float(1 / LN2),
        "HALF_LN2_HIGH": float(high / 2),
        "HALF_LN2_LOW": float(low / 2),
        "RATIO_STEPS": float(-2 / LN2),
        # The last argument with a finite exp, rounded to nearest; the first whose exp is at least 2**-1022; and the
        # last whose exp is 0: at most 2**-1075, the middle between 0 and the least denormal.
        "EXP_MAX": float(below(1024 * LN2 + mp.log1p(-(mpf(2) ** -54)))),
        "EXP_NORMAL": float(above(-1022 * LN2)),
        "EXP_ZERO": float(below(-1075 * LN2)),
    }


def exponential() -> Constants:
    """e**r's terms from r**3 on. An error at r counts in units of e**r - 1, which is about r for small r."""
    edge = LN2 / 2 * (1 + mpf(2) ** -20)  # the reduction may round k the wrong way near a tie
    forced = {0: 1, 1: 1, 2: mpf(1) / 2}
    return fit(mp.exp, -edge, edge, range(13), weight=lambda r: 1 / r, forced=forced, bits=53).named(
        "EXP_TAIL", range(3, 13)
    )


def hyperbolic_tangent() -> Constants:
    """tanh(r) / r as a ratio of polynomials in r * r."""
    edge = LN2 / 4 * (1 + mpf(2) ** -20)
    odd, even = fit_ratio(lambda z: mp.tanh(mp.sqrt(z)) / mp.sqrt(z), edge**2, 2)
    return {**odd.named("ODD", range(1, 3)), **even.named("EVEN", range(1, 3))}


def exponential_of_pairs() -> Constants:
    edge = LN2 / 2 * mpf("1.0005")
    found = fit(mp.exp, -edge, edge, range(2, 12), weight=lambda r: 1 / mp.exp(r), forced={0: 1, 1: 1}, bits=53)
    return found.named("EXP", range(2, 12))


def logarithm() -> Constants:
    """log(1 + f) = f - f*f/2 + s * (f*f/2 + R(s*s)), s = f / (2 + f), 1 + f from START to 2 START.

    log(1 + f) = 2 atanh(s), hence R(z) = 2 atanh(s) / s - 2, whose lowest term is 2/3 z.
    """
    start = 0.6875
    s = (start - 1) / (start + 1)
    tail = fit(lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2, 0, s * s, range(1, 8), weight=mp.sqrt, bits=53)
    inverse = fit(lambda f: 1 / (1 + f), start - 1, 2 * start - 1, range(3), weight=lambda f: 1 + f, bits=24)
    bits = struct.unpack("<Q", struct.pack("<d", start))[0]
    return {
        **tail.named("LOG_TAIL", range(1, 8)),
        **inverse.named("INVERSE", range(3)),
        "START_BITS": bits,
        "LOG_OFFSET": (1024 << 52) - bits,
    }


def logarithm_of_pairs() -> Constants:
    s = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mpf("1.000001")
    powers = range(2, 10)
    found = fit(
        lambda z: 3 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z), 0, s * s, range(10), forced={0: 3, 1: 1},
        bits=dict.fromkeys(powers, 53),
    )  # fmt: skip
    return found.named("LOG", powers)


def circle() -> Constants:
    edge = mp.pi / 4 * mpf("1.0005")
    sine = fit(
        lambda z: mp.sinc(mp.sqrt(z)), 0, edge**2, range(8), weight=lambda z: 1 / mp.sinc(mp.sqrt(z)), forced={0: 1},
        bits=53,
    )  # fmt: skip
    cosine = fit(lambda z: mp.cos(mp.sqrt(z)), 0, edge**2, range(8), forced={0: 1, 1: mpf(-0.5)}, bits=53)
    return {**sine.named("SIN", range(1, 8)), **cosine.named("COS", range(2, 8))}


def angles() -> Constants:
    first, second, third = split(mp.pi / 2, 37, 37, 53)
    (high,) = split(mp.pi / 2, 26)
    found = {
        "HALF_PI_1": float(first),
        "HALF_PI_2": float(second),
        "HALF_PI_3": float(third),
        "TWO_OVER_PI": float(2 / mp.pi),
        "HALF_PI_HIGH": float(high),
        "HALF_PI_LOW": float(mp.pi / 2 - high),
        "HALF_PI": float(mp.pi / 2),
    }
    with mp.workprec(2000):
        rest = 2 / mp.pi * 2**50
        for i in range(1, 24):
            word = mp.nint(rest)
            found[f"TURN_{i}"] = 4 * float(word)
            rest = (rest - word) * 2**52
    for k in (28, 26, -24, -26, -76, -128):
        found[f"UNIT_{k}".replace("-", "MINUS_")] = 1.5 * 2.0 ** (k + 52)
    for k in (832, 416, 208, 104, 52, -52, -104, -156, -208, -416, -832):
        found[f"BITS_{k}".replace("-", "MINUS_")] = 2.0**k
    return found


def error_function() -> Constants:
    seam, center = mpf("0.875"), mpf("0.375")

    def excess(w: mpf) -> mpf:
        x = mp.sqrt(w + center)
        return mp.erf(x) / x - 1 if x else 2 / mp.sqrt(mp.pi) - 1

    near = fit(excess, -center, seam**2 - center, range(12), weight=lambda w: 1 / (1 + excess(w)), bits=53)
    far = fit(
        lambda u: mp.log(mp.erfc(u + seam)), 0, 6 - seam, range(19), weight=lambda u: mp.erfc(u + seam), bits=53
    )  # fmt: skip
    return {**near.named("ERF", range(12)), **far.named("ERFC", range(19))}


def normal() -> Constants:
    """gelu's: the normal distribution function near 0, and its tail, which is the greater part of the work."""
    near = fit(
        lambda z: mp.erf(mp.sqrt(z / 2)) / mp.sqrt(z) / 2, 0, mpf(0.375) ** 2, range(8),
        weight=lambda z: 3 * mp.sqrt(z), bits=53,
    )  # fmt: skip
    offset, center, top = mpf("0.8125"), mpf(6), mpf("38.7")
    known: dict[mpf, mpf] = {}

    def scaled_tail(a: mpf) -> mpf:
        """exp(a**2 / 2) times the tail beyond a."""
        if a < 30:
            return mp.erfc(a / mp.sqrt(2)) * mp.exp(a * a / 2) / 2
        return mp.fsum((-1) ** i * mp.fac2(2 * i - 1) / a ** (2 * i) for i in range(40)) / a / mp.sqrt(2 * mp.pi)

    def near_constant(t: mpf) -> mpf:
        if t not in known:
            a = center * (1 + t) / (1 - t)
            known[t] = scaled_tail(a) * (a + offset)
        return known[t]

    # If all were rounded in turn, the last ones could not make good for the others.
    tail = fit(
        near_constant, -1, (top - center) / (top + center), range(23), weight=lambda t: 1 / near_constant(t),
        bits=dict.fromkeys(range(1, 5), 53),
    )  # fmt: skip
    return {
        **near.named("NORMAL", range(8)),
        "TAIL_0_LOW": float(tail.coefficients[0] - float(tail.coefficients[0])),
        **tail.named("TAIL", range(23)),
    }
