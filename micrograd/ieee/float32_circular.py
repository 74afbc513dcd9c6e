"""Sine and cosine of float32 numbers, in float32 operations and 32-bit integers: see `float32`."""

import math

from micrograd.ieee.float32_operations import fabs, from_bits, to_bits

INF = math.inf
NAN = math.nan
MASK = 0xFFFFF000
ROUND = 12582912.0  # 1.5 * 2**23: a number plus this ends with the bits of the nearest integer, and << 23 leaves those
TWO_23 = 8388608.0
TWO_23_BITS = 0x4B000000  # plus an integer below 2**23: the bits of TWO_23 + that integer
SIN_3 = -0.16666667
SIN_5 = 0.008333379
SIN_7 = -0.00019853064
SIN_9 = 2.8325642e-06
COS_4 = 0.041666646
COS_6 = -0.001388731
COS_8 = 2.443235e-05
HALF_PI = 1.5707964
HALF_PI_HIGH = 1.5703125
HALF_PI_LOW = 0.0004838268
NEAR = 100.0
# pi / 2 in 18, 18 and 24 bits: products of the first two with integers up to 64 are exact
HALF_PI_1 = 1.5707932
HALF_PI_2 = 3.1749369e-06
HALF_PI_3 = 2.563344e-12
TWO_OVER_PI = 0.63661975
TWO_OVER_PI_0 = 0xA2F9836E
TWO_OVER_PI_1 = 0x4E441529
TWO_OVER_PI_2 = 0xFC2757D1
TWO_OVER_PI_3 = 0xF534DDC0
TWO_OVER_PI_4 = 0xDB629599
TWO_OVER_PI_5 = 0x3C439041
TWO_OVER_PI_6 = 0xFE5163AB


def _reduced(a: float) -> tuple[float, float, float]:
    """a >= 0 as q * pi / 2 + r, r as value + tail in [-pi / 4, pi / 4]; q modulo 4 in the lowest bits of the third."""
    if a > NEAR:
        return _large_reduced(a)
    return _near_reduced(a)


def _near_reduced(a: float) -> tuple[float, float, float]:
    """The same for a up to NEAR, by Cody and Waite's method."""
    turns = a * TWO_OVER_PI + ROUND
    n = turns - ROUND
    first = a - n * HALF_PI_1
    partial = first - n * HALF_PI_2
    rest = ((first - partial) - n * HALF_PI_2) - n * HALF_PI_3
    r = partial + rest
    return r, (partial - r) + rest, turns


def _large_reduced(a: float) -> tuple[float, float, float]:
    """The same for a above pi / 4, by Payne and Hanek's.

    The integer m of a = m * 2**(exponent - 150) times 96 bits of 2 / pi, those above having multiples of 4 as products.
    """
    bits = to_bits(a)
    m = bits & 0x007FFFFF | 0x00800000
    place = (bits >> 23) + 136 & 0xFF  # of the first of the 96 bits, if 32 zeros precede those of 2 / pi
    index = place >> 5
    is_odd = index & 1 == 1
    is_upper = index & 2 == 2
    is_last = index == 4
    word_0 = TWO_OVER_PI_1 if is_upper else 0
    word_1 = TWO_OVER_PI_2 if is_upper else TWO_OVER_PI_0
    word_2 = TWO_OVER_PI_3 if is_upper else TWO_OVER_PI_1
    word_3 = TWO_OVER_PI_4 if is_upper else TWO_OVER_PI_2
    word_4 = TWO_OVER_PI_5 if is_upper else TWO_OVER_PI_3
    word_0 = TWO_OVER_PI_3 if is_last else (word_1 if is_odd else word_0)
    word_1 = TWO_OVER_PI_4 if is_last else (word_2 if is_odd else word_1)
    word_2 = TWO_OVER_PI_5 if is_last else (word_3 if is_odd else word_2)
    word_3 = TWO_OVER_PI_6 if is_last else (word_4 if is_odd else word_3)
    left = place & 31
    right = left ^ 31
    word_0 = (word_0 << left & 0xFFFFFFFF) | word_1 >> 1 >> right
    word_1 = (word_1 << left & 0xFFFFFFFF) | word_2 >> 1 >> right
    word_2 = (word_2 << left & 0xFFFFFFFF) | word_3 >> 1 >> right
    # The product modulo 4: two bits before the point and 62 after it, in two words.
    m_high = m >> 8
    m_low = m & 0xFF
    high = word_2 >> 16
    low = word_2 & 0xFFFF
    carried = m_high * high + (m_low * high + (m_high * low >> 8) >> 8) >> 8
    high = word_1 >> 16
    low = word_1 & 0xFFFF
    upper = m_high * high + (m_low * high + (m_high * low + (m_low * low >> 8) >> 8) >> 8) >> 8
    lower = m * word_1 + carried & 0xFFFFFFFF
    upper = m * word_0 + upper + (1 if lower < carried else 0) + 0x20000000 & 0xFFFFFFFF
    # The fraction, from -1/2 on, as three floats: 22, 22 and 18 bits.
    first = from_bits((upper >> 8 & 0x003FFFFF) + TWO_23_BITS) - 10485760.0
    second = from_bits(((upper & 0xFF) << 14 | lower >> 18) + TWO_23_BITS) - TWO_23
    third = from_bits((lower & 0x0003FFFF) + TWO_23_BITS) - TWO_23
    first = first * 2.384185791015625e-07
    second = second * 5.684341886080802e-14
    y = first + second
    y_low = (second - (y - first)) + third * 2.168404344971009e-19
    # Times pi / 2.
    part = from_bits(to_bits(y) & MASK)
    product = part * HALF_PI_HIGH
    product_low = part * HALF_PI_LOW + ((y - part) + y_low) * HALF_PI
    value = product + product_low
    return value, product_low - (value - product), from_bits((upper >> 30) + TWO_23_BITS)


def _sine(quadrant: int, r: float, low: float) -> float:
    """sin(r + low) in quadrants 0 and 2, cos(r + low) in the others, negative in quadrants 2 and 3."""
    square = r * r
    half = 0.5 * square
    fall = 1.0 - half
    cube = SIN_5 + square * (SIN_7 + square * SIN_9)
    sine = r + (r * square * (SIN_3 + square * cube) + low * fall)
    fourth = COS_4 + square * (COS_6 + square * COS_8)
    cosine = fall + (((1.0 - fall) - half) + (square * square * fourth - r * low))
    result = cosine if quadrant & 1 == 1 else sine
    return from_bits(to_bits(result) ^ (quadrant & 2) << 30)


def sin(x: float) -> float:
    """Sine; nan at either infinity."""
    a = fabs(x)
    if not a < INF:
        return NAN
    if a < 0.000244140625:
        return x
    r, low, quadrant = _reduced(a)
    return from_bits(to_bits(_sine(to_bits(quadrant), r, low)) ^ to_bits(x) & 0x80000000)


def cos(x: float) -> float:
    """Cosine; nan at either infinity."""
    a = fabs(x)
    if not a < INF:
        return NAN
    r, low, quadrant = _reduced(a)
    return _sine(to_bits(quadrant) + 1, r, low)


def near_sin(x: float) -> float:
    """sin(x) for |x| up to NEAR, and of nan."""
    a = fabs(x)
    if a < 0.000244140625:
        return x
    r, low, quadrant = _near_reduced(a)
    y = from_bits(to_bits(_sine(to_bits(quadrant), r, low)) ^ to_bits(x) & 0x80000000)
    return y if a == a else NAN


def near_cos(x: float) -> float:
    """cos(x) for |x| up to NEAR, and of nan."""
    a = fabs(x)
    r, low, quadrant = _near_reduced(a)
    y = _sine(to_bits(quadrant) + 1, r, low)
    return y if a == a else NAN
