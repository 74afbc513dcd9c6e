"""Exponentials and logarithms of float64 in IEEE operations alone: the same bits from Python and from C.

An unevaluated sum of floats, `high + low`, stands for a value that needs more than 53 bits. A product is exact if its
factors have 26 bits, as MASK leaves them. tools/functions derives the constants and measures the errors.
"""

import math

from micrograd.ieee.arithmetic import INF, NAN, from_bits, to_bits

ROUND = 6755399441055744.0  # 0x1.8p52: adding it rounds to an integer, which the low bits of the sum then hold
ROUND_LESS_1074 = 6755399441054670.0
ROUND_LESS_53 = 6755399441055691.0
ROUND_PLUS_1087 = 6755399441056831.0
EXPONENT_64 = 0x0400000000000000  # 64 in the exponent
MASK = 0xFFFFFFFFF8000000  # keeps 26 bits of a significand
SHORT_MASK = 0xFFFFFF8000000000  # keeps 14 bits
SHORT_HALF = 0x0000004000000000  # half of the last of these, for rounding to nearest
MANTISSA_BITS = 0x000FFFFFFFFFFFFF
ONE_BITS = 0x3FF0000000000000  # 1
HALF_BITS = 0x3FE0000000000000  # 1 / 2
INFINITY_BITS = 0x7FF0000000000000
LEAST_NORMAL_BITS = 0x0010000000000000  # 2**-1022
LEAST_NORMAL = 2.2250738585072014e-308
# The mantissa of 2**52 + n is the integer n; a logarithm's is k + 1024.
INTEGER_BITS = 0x4330000000000000  # 2**52
INTEGER_ZERO = 4503599627371520.0  # 2**52 + 1024
INTEGER_54 = 4503599627371574.0  # 2**52 + 1024 + 54
LN2_HIGH = 0.6931471805598903
LN2_LOW = 5.497923018708371e-14
HALF_LN2_HIGH = 0.34657359027994517
HALF_LN2_LOW = 2.7489615093541856e-14
RATIO_STEPS = -2.8853900817779268
# tanh(r) = r (1 + ODD_1 z + ODD_2 z**2) / (1 + EVEN_1 z + EVEN_2 z**2), z = r * r, |r| <= ln(2) / 4; error 2**-57.3
ODD_1 = 0.11109938299775887
ODD_2 = 0.0010574197468147405
EVEN_1 = 0.44443271633108644
EVEN_2 = 0.015868325192373238
INVERSE_LN2 = 1.4426950408889634
EXP_MAX = 709.782712893384
EXP_NORMAL = -708.3964185322641
EXP_ZERO = -745.1332191019412
# error 2**-61.6
EXP_TAIL_3 = 0.16666666666666677
EXP_TAIL_4 = 0.04166666666666669
EXP_TAIL_5 = 0.008333333333321459
EXP_TAIL_6 = 0.001388888888886988
EXP_TAIL_7 = 0.0001984126988635346
EXP_TAIL_8 = 2.480158735658775e-05
EXP_TAIL_9 = 2.755724417042157e-06
EXP_TAIL_10 = 2.7557244800075466e-07
EXP_TAIL_11 = 2.5108997044025817e-08
EXP_TAIL_12 = 2.092412809356687e-09
# error 2**-59.9
LOG_TAIL_1 = 0.6666666666667092
LOG_TAIL_2 = 0.39999999997490837
LOG_TAIL_3 = 0.28571429111118457
LOG_TAIL_4 = 0.22222164921679832
LOG_TAIL_5 = 0.1818514981755286
LOG_TAIL_6 = 0.15276804598634822
LOG_TAIL_7 = 0.15141253013828776
# error 2**-6.6
INVERSE_0 = 1.002724528312683
INVERSE_1 = -1.090362310409546
INVERSE_2 = 1.0021030902862549
START_BITS = 0x3FE6000000000000  # 0.6875
LOG_OFFSET = 0x001A000000000000  # 1024 in the exponent, less START_BITS


def exp(x: float) -> float:
    """e**x within 0.60 ulp; inf on overflow, 0 on underflow."""
    if not x <= EXP_MAX:
        return x + INF
    if x <= EXP_ZERO:
        return 0.0
    high, _low = _exp_sum(x)
    return high


def expm1(x: float) -> float:
    """e**x - 1 within 0.62 ulp, near 0 too."""
    if not x <= EXP_MAX:
        return x + INF
    if x < -38.0:
        return -1.0
    high, _low, half = _expm1_sum(x)
    return math.copysign(high * 2.0 * half, x)


def log(x: float) -> float:
    """The natural logarithm within 0.63 ulp; -inf at either zero, nan below zero."""
    if not x > 0.0:
        return -INF if x == 0.0 else NAN
    if x == INF:
        return INF
    n = to_bits(x * 18014398509481984.0 if x < LEAST_NORMAL else x) + LOG_OFFSET
    k = from_bits((n >> 52) | INTEGER_BITS) - (INTEGER_54 if x < LEAST_NORMAL else INTEGER_ZERO)
    high, middle, low = _log_sum(k, from_bits((n & MANTISSA_BITS) + START_BITS) - 1.0)
    return high + (middle + low)


def log1p(x: float) -> float:
    """log(1 + x) within 0.63 ulp, near 0 too; -inf at -1, nan below."""
    if not x > -1.0:
        return -INF if x == -1.0 else NAN
    if x == INF:
        return INF
    u = 1.0 + x
    v = u - 1.0
    rest = (1.0 - (u - v)) + (x - v)  # u + rest = 1 + x, exactly
    n = to_bits(u) + LOG_OFFSET
    k = from_bits((n >> 52) | INTEGER_BITS) - INTEGER_ZERO
    f = x if k == 0.0 else from_bits((n & MANTISSA_BITS) + START_BITS) - 1.0
    scale = from_bits(INFINITY_BITS - (n & INFINITY_BITS)) if x < 1e18 and k != 0.0 else 0.0  # 2**-k
    high, middle, low = _log_sum(k, f)
    low = low + rest * scale * (INVERSE_0 + f * (INVERSE_1 + f * INVERSE_2))
    return math.copysign(high + (middle + low), x)


def tanh(x: float) -> float:
    """The hyperbolic tangent within 0.58 ulp: (1 - t) / (1 + t) with t = e**(-2|x|)."""
    size = math.fabs(x)
    if size < 4e-9:
        return x
    shifted, even, odd, head, tail = _exp_ratio(size)
    scale = from_bits((to_bits(shifted) << 52) - EXPONENT_64)
    above = (1.0 + even) + odd
    below = scale * ((1.0 + even) - odd)
    inverse = 1.0 / (above + below)
    start = from_bits((to_bits((above - below) * inverse) + SHORT_HALF) & SHORT_MASK)
    # Corrected by the remainder, above - below - start * (above + below): its first two terms are exact, as start has
    # 14 bits and head 26.
    left = 1.0 - start
    right = scale * (1.0 + start)
    difference = left - right
    total = left + right
    y = start + ((difference + head * total) + (difference * even + total * tail)) * inverse
    return math.copysign(1.0 if size > 20.0 else y, x)


def sigmoid(x: float) -> float:
    """1 / (1 + e**-x) within 0.80 ulp; 0 on underflow. With t = e**-|x|, it is 1 / (1 + t), or t / (1 + t) below 0."""
    size = math.fabs(x)
    if size > 746.0:
        return 0.0 if x < 0.0 else 1.0
    shifted, even, odd, head, tail = _exp_ratio(0.5 * size)
    scale = from_bits(to_bits(shifted) << 52) * 5.421010862427522e-20  # 2**-64: the product may be denormal
    sign = math.copysign(1.0, x)
    one = 1.0 + even
    inverse = 1.0 / ((one + odd) + scale * (one - odd))
    start = from_bits((to_bits((one + sign * odd) * inverse) + SHORT_HALF) & SHORT_MASK)
    # Corrected by the remainder, as in tanh: one + sign * odd - start * (one + odd + scale * (one - odd)).
    # In this order, only the difference is rounded, for a scale below 2**-40.
    share = scale * start
    difference = (1.0 - start) - share
    total = sign - start
    rest = difference * even + (total + share) * tail
    y = start + (((difference + head * total) + head * share) + rest) * inverse
    return y * (scale if x < 0.0 else 1.0)


def softplus(x: float) -> float:
    """log(1 + e**x) within 0.65 ulp; 0 on underflow. It is max(x, 0) + log(1 + t) with t = e**-|x|."""
    if not x <= 40.0:
        return x
    distance = math.fabs(x)
    t, t_low = _exp_sum(-distance)
    if x < -40.0:
        return t if x > EXP_ZERO else 0.0
    t = t if t > 1e-18 else 1e-18  # it is, from here on; but C computes this for every x, and denormals are slow
    # 1 + f + f_low = (1 + t + t_low) / 2**k; k = 1 for t > 0.375 = e**-0.98.
    v = t - 1.0
    k = 1.0 if distance < 0.98 else 0.0
    f = v * 0.5 if distance < 0.98 else t
    f_low = (t_low + (t - (v + 1.0))) * 0.5 if distance < 0.98 else t_low
    high, middle, low = _log_sum(k, f)
    low = low + f_low * (INVERSE_0 + f * (INVERSE_1 + f * INVERSE_2))
    base = x if x > 0.0 else 0.0
    y = base + high
    v = y - base
    return y + (middle + (((base - (y - v)) + (high - v)) + low))


def _exp_sum(x: float) -> tuple[float, float]:
    """e**x as high + low, high being the sum rounded; x from EXP_ZERO to EXP_MAX.

    x = k ln 2 + r, and e**x = 2**k * (1 + r + r*r/2 + tail). For a denormal result to be rounded only once, its sum
    starts with 1 + 2**(-1022-k) instead of 1: the last addition then rounds at the last bit of a denormal. Times 2**k,
    that is the result plus 2**-1022, which is subtracted from the bits.
    """
    shifted = x * INVERSE_LN2 + ROUND
    shifted = shifted if shifted > ROUND_LESS_1074 else ROUND_LESS_1074  # k >= -1074
    k = shifted - ROUND
    exponent = to_bits(shifted) << 52  # k in the exponent's place
    main = x - k * LN2_HIGH
    product = k * LN2_LOW
    r = main - product
    r_low = (main - r) - product
    r2 = r * r
    one = 1.0 + (from_bits(LEAST_NORMAL_BITS - exponent) if x < EXP_NORMAL else 0.0)
    main = one + r
    rest = r2 * 0.5 + (_exp_tail(r, r2) + ((r - (main - one)) + (r_low + r_low * r)))
    y = main + rest
    high = from_bits(to_bits(y) + exponent - (LEAST_NORMAL_BITS if x < EXP_NORMAL else 0))
    low = (rest - (y - main)) * (from_bits(ONE_BITS + exponent) if x > -45.0 else 0.0)
    return high, low


def _exp_ratio(x: float) -> tuple[float, float, float, float, float]:
    """shifted, even, odd, head, tail: e**(2x) = 2**k (1 + even + odd) / (1 + even - odd), and odd = head + tail.

    For x from 0 to 373. x = k ln(2) / 2 + r, and tanh(r) = odd / (1 + even); head is 26 bits of r. The low bits of
    shifted are the exponent of 2**(64 - k), which is normal for all k.
    """
    shifted = x * RATIO_STEPS + ROUND_PLUS_1087
    k = shifted - ROUND_PLUS_1087  # negative, here alone
    main = x + k * HALF_LN2_HIGH
    low = k * HALF_LN2_LOW
    r = main + low
    z = r * r
    curved = (r * z) * (ODD_1 + ODD_2 * z)
    head = from_bits(to_bits(main) & MASK)
    return shifted, z * (EVEN_1 + EVEN_2 * z), r + curved, head, ((main - head) + low) + curved


def _expm1_sum(x: float) -> tuple[float, float, float]:
    """high, low and 2**(k-1), the parts of e**x - 1 = (high + low) * 2**k, high being the sum rounded.

    For x from -39 to EXP_MAX. x = k ln 2 + r, and high + low = (1 - 2**-k) + r + r*r/2 + tail, where the sum of
    the first three is exact.
    """
    shifted = x * INVERSE_LN2 + ROUND
    shifted = shifted if shifted > ROUND_LESS_53 else ROUND_LESS_53  # k >= -53: 1 - 2**-k is exact
    k = shifted - ROUND
    exponent = to_bits(shifted) << 52
    main = x - k * LN2_HIGH
    product = k * LN2_LOW
    r = main - product
    r_low = (main - r) - product
    r_high = from_bits(to_bits(r) & MASK)
    square = r_high * r_high * 0.5  # exact
    power = from_bits(ONE_BITS - exponent) if x < 45.0 else 0.0  # 2**-k
    base = 1.0 - power
    main = base + r
    high = main + square
    low = ((1.0 - base) - power) + (r - (main - base)) + (square - (high - main)) + (r_low + r_low * r)
    low = _exp_tail(r, r * r) + ((r - r_high) * (r + r_high) * 0.5 + low)
    y = high + low
    return y, low - (y - high), from_bits(HALF_BITS + exponent)


def _exp_tail(r: float, r2: float) -> float:
    """e**r - 1 - r - r*r/2 for |r| up to ln(2) / 2, given r and its square."""
    r4 = r2 * r2
    end = ((EXP_TAIL_7 + EXP_TAIL_8 * r) + (EXP_TAIL_9 + EXP_TAIL_10 * r) * r2) + (EXP_TAIL_11 + EXP_TAIL_12 * r) * r4
    return r2 * (r * (EXP_TAIL_3 + (EXP_TAIL_4 * r + ((EXP_TAIL_5 + EXP_TAIL_6 * r) * r2 + end * r4))))


def _log_sum(k: float, f: float) -> tuple[float, float, float]:
    """k ln 2 + log(1 + f) as high + middle + low; f from -5/16 to 3/8, where the errors at both ends are similar.

    log(1 + f) = f - f*f/2 + s * (f*f/2 + R(s*s)), s = f / (2 + f); high and low hold k ln 2 + f - f*f/2, exact but for
    the rounding of k * LN2_LOW and of square_low.
    """
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    f_high = from_bits(to_bits(f) & MASK)
    square = f_high * f_high * 0.5  # exact
    square_low = (f - f_high) * (f + f_high) * 0.5
    end = (LOG_TAIL_3 + LOG_TAIL_4 * z) + w * ((LOG_TAIL_5 + LOG_TAIL_6 * z) + w * LOG_TAIL_7)
    series = z * (LOG_TAIL_1 + (LOG_TAIL_2 * z + w * end))
    tail = s * (square + (square_low + series))
    base = k * LN2_HIGH
    main = base + f
    high = main - square
    low = (f - (main - base)) + ((main - high) - square)
    return high, tail, (k * LN2_LOW - square_low) + low
