"""x**y, by a logarithm and an exponential of unevaluated sums."""

import math

from micrograd.ieee.arithmetic import INF, NAN, divide, from_bits, square_root, to_bits
from micrograd.ieee.exponential import INVERSE_LN2, LN2_HIGH, LN2_LOW, MASK

# e**r = 1 + r + EXP_2 r**2 + ... for |r| <= ln(2) / 2; relative; error 2**-57.9
EXP_2 = 0.5000000000000011
EXP_3 = 0.16666666666666458
EXP_4 = 0.04166666666652788
EXP_5 = 0.008333333333471084
EXP_6 = 0.0013888888943994109
EXP_7 = 0.00019841269548394853
EXP_8 = 2.4801492857788925e-05
EXP_9 = 2.7557554886429597e-06
EXP_10 = 2.7630306011642827e-07
EXP_11 = 2.500862154027576e-08
# 3 atanh(s) / s = 3 + z + LOG_2 z**2 + ..., z = s * s < 0.02944; error 2**-71.0
LOG_2 = 0.5999999999999996
LOG_3 = 0.428571428571688
LOG_4 = 0.33333333326048836
LOG_5 = 0.27272728333277674
LOG_6 = 0.2307683368522633
LOG_7 = 0.20004527440636768
LOG_8 = 0.17511412660481607
LOG_9 = 0.1798844698153455


def _exp_of_pair(high: float, low: float) -> tuple[float, float, float]:
    """e**(high + low) as (a + b) * 2**n with n + 1023 in the low bits of the third result; a >= 0.7, |b| < 0.07.

    For |high| < 1400 and a much smaller low. The relative error of a + b is 2**-57.
    """
    shifted = high * INVERSE_LN2 + 6755399441056767.0  # 1.5 * 2**52 + 1023: rounds to an integer
    n = shifted - 6755399441056767.0
    first = high - n * LN2_HIGH
    rest = low - n * LN2_LOW
    r = first + rest
    rest = (first - r) + rest
    r2 = r * r
    r4 = r2 * r2
    q = ((EXP_2 + EXP_3 * r) + r2 * (EXP_4 + EXP_5 * r)) + r4 * (
        ((EXP_6 + EXP_7 * r) + r2 * (EXP_8 + EXP_9 * r)) + r4 * (EXP_10 + EXP_11 * r)
    )
    a = 1.0 + r
    b = (r - (a - 1.0)) + (rest * a + r2 * q)
    return a, b, shifted


def _product(x: float, size: float) -> float:
    """x**size for a size of 1, 2, 3, 4, 0.5 or 1.5."""
    if size == 2.0:
        return x * x
    if size == 1.0:
        return x
    if size == 3.0:
        return x * x * x
    if size == 4.0:
        return (x * x) * (x * x)
    root = square_root(x)
    return x * root if size == 1.5 else root


def power(x: float, y: float) -> float:
    """x**y. For y of -4, ..., 4, and ±0.5, ±1.5, it is what one would write by hand: products, roots, a division.

    For other y it is within 0.9 ulp, at the edges as C99's pow.
    """
    size = math.fabs(y)
    if size == 2.0 or size == 1.0 or size == 0.5 or size == 1.5 or size == 3.0 or size == 4.0:
        return divide(1.0, _product(x, size)) if y < 0.0 else _product(x, size)
    if y == 0.0 or x == 1.0:
        return 1.0

    # |y| minus the nearest even number is 1 if y is odd, 0 if it is even, else a fraction; from 2**53 on, all are even.
    countable = size if size < 9007199254740992.0 else 0.0
    distance = math.fabs((countable + 9007199254740992.0 - 9007199254740992.0) - countable)
    fractional = 1.0 if x >= 0.0 or x == -INF else NAN
    sign = 1.0 if distance == 0.0 else math.copysign(1.0, x) if distance == 1.0 else fractional

    # |x| = 2**k * m with m in [sqrt(1/2), sqrt(2)).
    magnitude = math.fabs(x)
    denormal = magnitude < 2.2250738585072014e-308
    bits = to_bits(magnitude * 18014398509481984.0 if denormal else magnitude) + 0x00095F6200000000
    m = from_bits((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E00000000)
    k = from_bits((bits >> 52) | 0x4330000000000000) - (4503599627371573.0 if denormal else 4503599627371519.0)

    # log m = s (3 + z + LOG_2 z**2 + ...) with s = (2 / 3) (m - 1) / (m + 1) and z = 9 / 4 s**2. The masks leave 24
    # bits, so that products of high parts are exact.
    m_high = from_bits(to_bits(m) & 0xFFFFFFFFE0000000)
    inverse = 1.0 / (1.5 * m + 1.5)
    s = (m - 1.0) * inverse
    s_high = from_bits(to_bits(s) & 0xFFFFFFFFE0000000)
    s_low = (((m - 1.0) - s_high * (1.5 * m_high + 1.5)) - s_high * (1.5 * (m - m_high))) * inverse
    z_high = 2.25 * s_high * s_high
    z_low = 2.25 * s_low * (s + s_high)
    z = z_high + z_low
    z2 = z * z
    tail = ((LOG_3 + LOG_4 * z) + z2 * (LOG_5 + LOG_6 * z)) + z2 * z2 * ((LOG_7 + LOG_8 * z) + z2 * LOG_9)
    rest = z2 * (LOG_2 + z * tail)
    t_high = from_bits(to_bits(3.0 + (z + rest)) & 0xFFFFFFFFE0000000)
    t_low = ((z_high - (t_high - 3.0)) + rest) + z_low
    product = s_high * t_high
    whole = k * LN2_HIGH
    log_high = whole + product
    log_low = (product - (log_high - whole)) + ((s_low * t_high + s * t_low) + k * LN2_LOW)
    log = log_high + log_low
    log = -INF if magnitude == 0.0 else log if magnitude < INF else magnitude

    y = math.copysign(1e300 if size > 1e300 else size, y)
    exponent = y * log
    if math.fabs(exponent) > 746.0:
        return sign * (INF if exponent > 0.0 else 0.0)
    y_high = from_bits(to_bits(y) & MASK)
    first = from_bits(to_bits(log) & MASK)
    second = (log_high - first) + log_low
    a, b, shifted = _exp_of_pair(y_high * first, y * second + (y - y_high) * first)
    # 2**n in two factors, as n may lie between -1077 and 1025.
    biased = (to_bits(shifted) + 1023) & 0xFFF
    half = biased >> 1
    return sign * (a + b) * from_bits(half << 52) * from_bits((biased - half) << 52)
