"""Where the constants of micrograd.ieee.float32 come from."""

from __future__ import annotations

from mpmath import mp, mpf

from tools.functions.remez import below, fit, round_bits, split

BITS = 24
GELU_CENTER = mpf("2.5")  # any would do: the smaller, the less v varies, and the more slowly the polynomials converge
GELU_END = mpf("14.5")  # gelu(-GELU_END) rounds to 0
TWO_OVER_PI_WORDS = 7
# power divides by a center; starts, centers and ends of the intervals are short or arbitrary.
POWER_START = mpf("0.77")
POWER_CENTERS = [mpf("0.84375"), mpf(1), mpf("1.1875"), mpf("1.40625")]
LARGEST = (2 - mpf(2) ** -23) * mpf(2) ** 127
Constants = dict[str, mpf]


def derived() -> dict[str, float]:
    parts = [roundings, exponential, tangent_and_sigmoid, logarithm, logarithm_of_pairs, circle, error_function, normal]
    found = {name: float(round_bits(value, BITS)) for part in parts for name, value in part().items()}
    digits = int(mp.floor(2 / mp.pi * mpf(2) ** (32 * TWO_OVER_PI_WORDS)))
    for i in range(TWO_OVER_PI_WORDS):
        found[f"TWO_OVER_PI_{i}"] = digits >> 32 * (TWO_OVER_PI_WORDS - 1 - i) & 0xFFFFFFFF
    return found


def on_grid(value: mpf, bits: int) -> mpf:
    """value rounded to a multiple of 2**-bits."""
    return mp.nint(value * 2**bits) / 2**bits


def roundings() -> Constants:
    log2 = mp.log(2)
    high = on_grid(log2, 16)
    half_pi = mp.pi / 2
    half_pi_high = mp.floor(half_pi * 2**11) / 2**11
    return {
        "INVERSE_LN2": 1 / log2,
        "LN2_HIGH": high,
        "LN2_LOW": log2 - high,
        "EXP_LARGEST": below(mp.log(LARGEST + mpf(2) ** 103), BITS),
        "EXP_SMALLEST": -below(150 * log2, BITS),
        "EXPM1_SMALLEST": -below(25 * log2, BITS),
        "HALF_PI": half_pi,
        "HALF_PI_HIGH": half_pi_high,
        "HALF_PI_LOW": half_pi - half_pi_high,
        **dict(zip(("HALF_PI_1", "HALF_PI_2", "HALF_PI_3"), split(half_pi, 18, 18, BITS), strict=True)),
        "TWO_OVER_PI": 1 / half_pi,
        "ERF_LARGEST": below(mp.erfinv(1 - mpf(2) ** -25), BITS),
    }


def exponential() -> Constants:
    """The error is relative to e**x - 1, so that expm1 may use it."""
    found = fit(mp.exp, -0.3475, 0.3475, range(8), weight=lambda x: 1 / mp.expm1(x), forced={0: 1, 1: 1}, bits=BITS)
    return found.named("EXP", range(3, 8))


def tangent_and_sigmoid() -> Constants:
    """tanh's series up to a seam, the error relative to tanh; and e**r - 1 for both, the error relative to e**r."""
    seam = mpf("0.8125")

    def series(z: mpf) -> mpf:
        root = mp.sqrt(z)
        return (mp.tanh(root) / root - 1) / z

    near = fit(series, 0, seam**2, range(6), weight=lambda z: z * mp.sqrt(z) / mp.tanh(mp.sqrt(z)), bits=BITS)
    far = fit(mp.exp, -0.3475, 0.3475, range(7), weight=lambda x: 1 / mp.exp(x), forced={0: 1, 1: 1}, bits=BITS)
    odd = {f"TANH_{2 * i + 3}": near.coefficients[i] for i in range(6)}
    return {"TANH_SEAM": seam, **odd, **far.named("NEAR_EXP", range(2, 7))}


def logarithm() -> Constants:
    start, end = mp.sqrt(0.5) - 1, mp.sqrt(2) - 1
    powers = range(3, 12)
    found = fit(mp.log1p, start, end, powers, weight=lambda x: 1 / mp.log1p(x), forced={1: 1, 2: -0.5}, bits=BITS)
    return found.named("LOG", powers)


def logarithm_of_pairs() -> Constants:
    """power's: near one of four centers, by the inverse hyperbolic tangent of a quotient."""
    found: Constants = {}
    start, largest = POWER_START, mpf(0)
    for i, center in enumerate(POWER_CENTERS):
        end = mp.sqrt(center * POWER_CENTERS[i + 1]) if i < 3 else 2 * POWER_START
        largest = max(largest, (center - start) / (center + start), (end - center) / (end + center))
        start = end
        high = on_grid(mp.log(center), 16)  # as LN2_HIGH: their sums are exact
        if center != 1:
            found |= {f"CENTER_{i}": center, f"CENTER_{i}_LOG": high, f"CENTER_{i}_LOG_LOW": mp.log(center) - high}
        if i < 3:
            found[f"CENTER_{i}_END"] = round_bits(end, 14)
    tangent = fit(mp.atanh, 0, largest, (3, 5), weight=lambda s: 1 / mp.atanh(s), forced={1: 1}, bits=BITS)
    return found | tangent.named("ATANH", (3, 5))


def circle() -> Constants:
    end = mp.pi / 4 * mpf("1.0005")
    odd, even = range(3, 10, 2), range(4, 9, 2)
    sine = fit(mp.sin, 0, end, odd, weight=lambda x: 1 / mp.sin(x), forced={1: 1}, bits=BITS)
    cosine = fit(mp.cos, 0, end, even, weight=lambda x: 1 / mp.cos(x), forced={0: 1, 2: -0.5}, bits=BITS)
    return {**sine.named("SIN", odd), **cosine.named("COS", even)}


def error_function() -> Constants:
    seam = mpf("0.8125")

    def near(z: mpf) -> mpf:
        return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1

    def far(a: mpf) -> mpf:
        return mp.log(mp.erfc(a)) + a + a * a

    first = fit(near, 0, seam**2, range(7), weight=lambda z: 1 / (near(z) + 1), bits=BITS)
    second = fit(far, seam, 3.93, range(7), weight=mp.erfc, bits=BITS)
    return {"ERF_SEAM": seam, **first.named("ERF_NEAR", range(7)), **second.named("ERF_FAR", range(7))}


def normal() -> Constants:
    """gelu's polynomial; the two lowest coefficients are sums."""

    def v(u: mpf) -> mpf:
        a = GELU_CENTER * (1 + u) / (1 - u)
        return (a + GELU_CENTER) * mp.erfc(a / mp.sqrt(2)) * mp.exp(a * a / 2) / 2

    end = (GELU_END - GELU_CENTER) / (GELU_END + GELU_CENTER)
    powers = range(2, 12)
    found = fit(v, -1, end, range(12), weight=lambda u: 1 / v(u), bits=dict.fromkeys(powers, BITS))
    first, first_low = split(found.coefficients[0], BITS, BITS)
    second, second_low = split(found.coefficients[1], 7, BITS)
    return {
        "GELU_0": first,
        "GELU_0_LOW": first_low,
        "GELU_1": second,
        "GELU_1_LOW": second_low,
        **found.named("GELU", powers),
    }
