"""Elementary functions of float32 numbers, in float32 operations alone, within 1 ulp of the exact value.

A pair (value, tail) is an unevaluated sum. Clearing the lower half of the 24 bits of numbers (& MASK) makes their
product exact; what was cleared is kept apart. tools/functions derives the constants and tries all arguments.

In Python these take numpy.float32 of NumPy 2. A constant that starts a computation passes through fabs or copysign, as
float32 and not as float.
"""

from micrograd.ieee.float32_circular import INF, MASK, NAN, ROUND, TWO_23, TWO_23_BITS
from micrograd.ieee.float32_circular import cos as cos
from micrograd.ieee.float32_circular import sin as sin
from micrograd.ieee.float32_operations import copysign, divide, fabs, from_bits, sqrt, to_bits

ONE = 0x3F800000  # the bits of 1.0
TWO_23_127 = 8388735.0  # TWO_23 + 127
TWO_23_150 = 8388758.0  # TWO_23 + 150
SMALLEST_NORMAL = 1.1754944e-38
SQRT_HALF_BITS = 0x3F3504F3
ABOVE_SQRT_HALF = 0x004AFB0D  # ONE - SQRT_HALF_BITS
POWER_START_BITS = 0x3F451EB8  # of 0.77, where power's intervals start
ABOVE_POWER_START = 0x003AE148  # ONE - POWER_START_BITS
INVERSE_LN2 = 1.442695
LN2_HIGH = 0.69314575
LN2_LOW = 1.4286068e-06
EXP_LARGEST = 88.72283
EXP_SMALLEST = -103.97208
EXPM1_SMALLEST = -17.328678
EXP_3 = 0.16666666
EXP_4 = 0.041666493
EXP_5 = 0.008333543
EXP_6 = 0.001393238
EXP_7 = 0.00019764387
TANH_SEAM = 0.8125
TANH_3 = -0.3333329
TANH_5 = 0.1333203
TANH_7 = -0.053837553
TANH_9 = 0.021253947
TANH_11 = -0.007336296
TANH_13 = 0.0015442128
NEAR_EXP_2 = 0.49999994
NEAR_EXP_3 = 0.16666521
NEAR_EXP_4 = 0.041668292
NEAR_EXP_5 = 0.008368716
NEAR_EXP_6 = 0.0013818704
LOG_3 = 0.33333313
LOG_4 = -0.2500001
LOG_5 = 0.20002072
LOG_6 = -0.16667989
LOG_7 = 0.14220358
LOG_8 = -0.12406233
LOG_9 = 0.11883549
LOG_10 = -0.11670114
LOG_11 = 0.06749297
CENTER_0 = 0.84375
CENTER_0_LOG = -0.16990662
CENTER_0_LOG_LOW = 7.5794155e-06
CENTER_0_END = 0.9185791
CENTER_1_END = 1.0897217
CENTER_2 = 1.1875
CENTER_2_LOG = 0.17184448
CENTER_2_LOG_LOW = 5.7745046e-06
CENTER_2_END = 1.2922363
CENTER_3 = 1.40625
CENTER_3_LOG = 0.34092712
CENTER_3_LOG_LOW = -5.3705287e-07
ATANH_3 = 0.33333308
ATANH_5 = 0.20041034
ERF_LARGEST = 3.9192057
ERF_SEAM = 0.8125
ERF_NEAR_0 = 0.12837917
ERF_NEAR_1 = -0.3761263
ERF_NEAR_2 = 0.11283623
ERF_NEAR_3 = -0.026855368
ERF_NEAR_4 = 0.005190982
ERF_NEAR_5 = -0.0008027679
ERF_NEAR_6 = 7.879364e-05
ERF_FAR_0 = -7.695913e-05
ERF_FAR_1 = -0.12818013
ERF_FAR_2 = 0.36369017
ERF_FAR_3 = -0.104716614
ERF_FAR_4 = 0.022614278
ERF_FAR_5 = -0.0031425362
ERF_FAR_6 = 0.0002062706
GELU_0 = 0.70665663
GELU_0_LOW = 2.2069248e-08
GELU_1 = -0.43359375
GELU_1_LOW = -9.837626e-05
GELU_2 = 0.13198727
GELU_3 = 0.00923863
GELU_4 = -0.01638996
GELU_5 = -0.0016195925
GELU_6 = 0.0025388084
GELU_7 = 0.00073654245
GELU_8 = -0.00033239374
GELU_9 = -0.00021921171
GELU_10 = 7.717197e-06
GELU_11 = 2.3860905e-05


def _exponential(x: float, low: float) -> tuple[float, float, float]:
    """e**(x + low) as 2**k * (value + tail); k is in the lowest bits of the third result."""
    shifted = x * INVERSE_LN2 + ROUND
    k = shifted - ROUND
    high = x - k * LN2_HIGH
    rest = low - k * LN2_LOW
    r = high + rest
    square = r * r
    third = EXP_3 + r * EXP_4
    fifth = EXP_5 + r * EXP_6 + square * EXP_7
    value = 1.0 + r
    lost = (r - (value - 1.0)) + ((high - r) + rest)
    return value, square * 0.5 + (square * r * (third + square * fifth) + lost), shifted


def _exponential_minus_one(x: float) -> tuple[float, float, float, float]:
    """e**x as 2**k * (1 + high - low + curved), high being exact; k is in the lowest bits of the fourth result."""
    shifted = x * INVERSE_LN2 + ROUND
    k = shifted - ROUND
    high = x - k * LN2_HIGH
    low = k * LN2_LOW
    r = high - low
    square = r * r
    curved = square * ((NEAR_EXP_2 + r * NEAR_EXP_3) + square * ((NEAR_EXP_4 + r * NEAR_EXP_5) + square * NEAR_EXP_6))
    return high, low, curved, shifted


def _quotient(dividend: float, divisor: float, divisor_low: float) -> tuple[float, float]:
    """dividend / (divisor + divisor_low): 12 bits of it, and the rest."""
    inverse = divide(1.0, divisor)
    quotient = from_bits(to_bits(dividend * inverse) & MASK)
    part = from_bits(to_bits(divisor) & MASK)
    remainder = (dividend - quotient * part) - quotient * (divisor - part)
    return quotient, (remainder - quotient * divisor_low) * inverse


def exp(x: float) -> float:
    """e**x; inf on overflow, 0 on underflow."""
    if x > EXP_LARGEST:
        return INF
    if x < EXP_SMALLEST:
        return 0.0
    value, tail, shifted = _exponential(x, 0.0)
    k = to_bits(shifted)
    half = k >> 1
    return (value + tail) * from_bits((half << 23) + ONE) * from_bits(((k - half) << 23) + ONE)


def expm1(x: float) -> float:
    """e**x - 1, accurate near 0 too; inf on overflow."""
    if x > EXP_LARGEST:
        return INF
    if x == 0.0:
        return x
    argument = copysign(17.0, x) if x < -17.0 else x
    shifted = argument * INVERSE_LN2 + ROUND
    k = shifted - ROUND
    high = argument - k * LN2_HIGH
    rest = k * LN2_LOW
    r = high - rest
    square = r * r
    third = EXP_3 + r * EXP_4
    fifth = EXP_5 + r * EXP_6 + square * EXP_7
    exponent = to_bits(shifted) << 23
    unit = 0.5 * from_bits(0x40000000 - exponent)  # 2**-k
    base = 1.0 - unit
    value = base + r
    lost = (r - (value - base)) + ((high - r) - rest) + ((1.0 - base) - unit)
    tail = square * 0.5 + (square * r * (third + square * fifth) + lost)
    if x < EXPM1_SMALLEST:
        return -1.0
    return (value + tail) * 2.0 * from_bits(exponent + 0x3F000000)


def tanh(x: float) -> float:
    """Hyperbolic tangent: its series where |x| is below TANH_SEAM, and 1 - 2 / (e**(2 |x|) + 1).

    The second is 1 - 2 * unit / (1 + unit + (e**r - 1)), with 2 |x| = k log(2) + r and unit = 2**-k.
    """
    a = fabs(x)
    z = a * a
    fourth = z * z
    rest = (TANH_5 + z * TANH_7) + fourth * ((TANH_9 + z * TANH_11) + fourth * TANH_13)
    near = a + z * (a * (TANH_3 + z * rest))
    high, low, curved, shifted = _exponential_minus_one(fabs(9.2 if a > 9.2 else a) * 2.0)  # tanh(9.2) rounds to 1
    unit = from_bits(ONE - (to_bits(shifted) << 23))
    base = 1.0 + unit
    start = base + high
    divisor = start + ((curved - low) + ((base - start) + high))
    far = 1.0 - divide(2.0 * unit, divisor)
    return copysign(near if a < TANH_SEAM else far, x)


def sigmoid(x: float) -> float:
    """1 / (1 + e**-x), which is unit / (1 + unit + (e**r - 1)) with -x = k log(2) + r and unit = 2**-k."""
    if x > 17.4:  # it rounds to 1
        return 1.0
    if x < EXP_SMALLEST:
        return 0.0
    high, low, curved, shifted = _exponential_minus_one(-x)
    k = to_bits(shifted)
    half = k >> 1
    scale = from_bits(ONE - (half << 23))
    scale_2 = from_bits(ONE - ((k - half) << 23))
    unit = scale * scale_2
    base = 1.0 + unit
    start = base + high
    rest = (curved - low) + ((base - start) + high) + ((1.0 - base) + unit)
    divisor = start + rest
    divisor_low = (start - divisor) + rest
    quotient, rest = _quotient(1.0, divisor, divisor_low)
    return (quotient + rest) * scale * scale_2


def _logarithm(k: float, f: float, low: float) -> tuple[float, float]:
    """k * log(2) + log(1 + f) + low as value + tail, for 1 + f in [sqrt(1/2), sqrt(2)]."""
    square = f * f
    third = LOG_3 + f * LOG_4
    fifth = LOG_5 + f * LOG_6
    seventh = LOG_7 + f * LOG_8
    ninth = LOG_9 + f * LOG_10 + square * LOG_11
    cube = square * f * ((third + square * fifth) + square * square * (seventh + square * ninth))
    part = from_bits(to_bits(f) & MASK)
    half = part * part * 0.5  # with the next line's part, f * f / 2 exactly
    half_low = (f - part) * (f + part) * 0.5
    high = k * LN2_HIGH
    start = high + f
    value = start - half
    lost = ((start - value) - half) + ((f - (start - high)) + (low + k * LN2_LOW))
    return value, cube + (lost - half_low)


def log(x: float) -> float:
    """Natural logarithm; -inf at either zero, nan below zero."""
    if x == 0.0:
        return -INF
    if x < 0.0:
        return NAN
    if not x < INF:
        return x
    is_small = x < SMALLEST_NORMAL
    bits = to_bits(x * TWO_23 if is_small else x) + ABOVE_SQRT_HALF
    k = from_bits((bits >> 23) + TWO_23_BITS) - (TWO_23_150 if is_small else TWO_23_127)
    value, tail = _logarithm(k, from_bits((bits & 0x007FFFFF) + SQRT_HALF_BITS) - 1.0, 0.0)
    return value + tail


def log1p(x: float) -> float:
    """log(1 + x), accurate near 0 too; -inf at -1, nan below it."""
    if x == 0.0:
        return x
    if x <= -1.0:
        return -INF if x == -1.0 else NAN
    if not x < INF:
        return x
    whole = 1.0 + x
    rest = x - (whole - 1.0) if x < 1.0 else 1.0 - (whole - x)  # 1 + x = whole + rest
    bits = to_bits(whole) + ABOVE_SQRT_HALF
    k = from_bits((bits >> 23) + TWO_23_BITS) - TWO_23_127
    m = from_bits((bits & 0x007FFFFF) + SQRT_HALF_BITS) - 1.0
    rest = rest * (from_bits(0x7F000000 - (bits & 0x7F800000)) if x < 1e30 else 0.0)  # times 2**-k
    f = m + rest
    low = rest - (f - m)
    value, tail = _logarithm(k, f, low - f * low)
    return value + tail


def softplus(x: float) -> float:
    """log(1 + e**x): x itself where it is large."""
    if x > 17.5:
        return x
    if x < EXP_SMALLEST:
        return 0.0
    value, tail, shifted = _exponential(-fabs(x), 0.0)
    k = to_bits(shifted)
    half = k >> 1
    scale = from_bits((half << 23) + ONE)
    scale_2 = from_bits(((k - half) << 23) + ONE)
    power = value + tail
    low = (tail - (power - value)) * scale * scale_2
    power = power * scale * scale_2
    # log1p of power + low <= 1
    whole = 1.0 + power
    is_large = whole > 1.4142135
    unit = 0.5 if is_large else 1.0
    rest = (power - (whole - 1.0)) * unit
    m = whole * unit - 1.0
    f = m + rest
    low = (rest - (f - m)) + low * unit
    value, tail = _logarithm(1.0 if is_large else 0.0, f, low - f * low)
    start = x if x > 0.0 else 0.0
    result = start + value
    back = result - start
    return result + (((start - (result - back)) + (value - back)) + tail)


def erf(x: float) -> float:
    """The error function."""
    a = fabs(x)
    if a > ERF_LARGEST:
        return copysign(1.0, x)
    square = x * x
    fourth = square * square
    first = ERF_NEAR_0 + square * ERF_NEAR_1
    third = ERF_NEAR_2 + square * ERF_NEAR_3
    fifth = ERF_NEAR_4 + square * ERF_NEAR_5 + fourth * ERF_NEAR_6
    near = x + x * (first + fourth * (third + fourth * fifth))
    if a < ERF_SEAM:
        return near
    # log(1 - erf(a)) + a + a * a
    first = ERF_FAR_0 + a * ERF_FAR_1
    third = ERF_FAR_2 + a * ERF_FAR_3
    fifth = ERF_FAR_4 + a * ERF_FAR_5 + square * ERF_FAR_6
    power = first + square * (third + square * fifth)
    part = from_bits(to_bits(a) & MASK)
    high = part * part
    start = power - a
    total = start - high
    back = total - start
    lost = (power - (start + a)) + ((start - (total - back)) - (high + back))
    value, tail, shifted = _exponential(total, lost - (a - part) * (a + part))
    scale = from_bits((to_bits(shifted) << 23) + ONE)
    value = value * scale
    far = 1.0 - value
    return copysign(far + (((1.0 - far) - value) - tail * scale), x)


def _product(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    """(a + a_low) * (b + b_low) as an exact product of 12 bits each, and the rest."""
    first = from_bits(to_bits(a + a_low) & MASK)
    second = from_bits(to_bits(b) & MASK)
    rest = (a - first) + a_low
    return first * second, first * ((b - second) + b_low) + rest * (b + b_low)


def gelu(x: float) -> float:
    """x * Phi(x), Phi being the distribution function of the normal distribution."""
    if fabs(x) < 1e-20:
        return 0.5 * x
    if x > 14.5:
        return x
    # With a = |x|: a * Phi(-a) = e**(-a * a / 2) * (a * inverse) * v, inverse being 1 / (a + 5 / 2) and v a polynomial
    # in u = (a - 5 / 2) / (a + 5 / 2) = 1 - 5 * inverse. All of them are pairs.
    a = fabs(14.5 if x < -14.5 else x)
    part = from_bits(to_bits(a) & MASK)
    rest = a - part
    value, tail, shifted = _exponential(-0.5 * (part * part), -0.5 * (rest * (a + part)))
    divisor = a + 2.5
    back = divisor - a
    inverse, inverse_low = _quotient(1.0, divisor, (a - (divisor - back)) + (2.5 - back))
    u_high = 1.0 - 5.0 * inverse
    u_low = -5.0 * inverse_low
    u = u_high + u_low
    square = u * u
    third = GELU_3 + u * GELU_4
    fifth = GELU_5 + u * GELU_6
    seventh = GELU_7 + u * GELU_8
    ninth = GELU_9 + u * GELU_10 + square * GELU_11
    higher = square * u * ((third + square * fifth) + square * square * (seventh + square * ninth))
    linear = GELU_1 * u_high
    v = GELU_0 + linear
    lost = (linear - (v - GELU_0)) + (GELU_0_LOW + GELU_1_LOW * u)
    v_low = GELU_2 * square + (higher + (lost + GELU_1 * u_low))
    product, product_low = _product(part * inverse, rest * inverse + a * inverse_low, v, v_low)
    product, product_low = _product(product, product_low, value, tail)
    k = to_bits(shifted)
    half = k >> 1
    scale = from_bits((half << 23) + ONE)
    scale_2 = from_bits(((k - half) << 23) + ONE)
    if x < 0.0:
        return (product + product_low) * scale * -scale_2
    product = product * scale * scale_2
    result = x - product
    return result + (((x - result) - product) - product_low * scale * scale_2)


def _logarithm_pair(a: float) -> tuple[float, float]:
    """log(a) to some 2**-34 of it, for 0 < a < inf."""
    is_small = a < SMALLEST_NORMAL
    bits = to_bits(a * TWO_23 if is_small else a) + ABOVE_POWER_START
    k = from_bits((bits >> 23) + TWO_23_BITS) - (TWO_23_150 if is_small else TWO_23_127)
    m = from_bits((bits & 0x007FFFFF) + POWER_START_BITS)
    # a = 2**k * m, m being near one of four centers, whose logarithms are sums.
    is_first = m < CENTER_0_END
    is_second = m < CENTER_1_END
    is_third = m < CENTER_2_END
    center = CENTER_0 if is_first else (1.0 if is_second else (CENTER_2 if is_third else CENTER_3))
    start = CENTER_0_LOG if is_first else (0.0 if is_second else (CENTER_2_LOG if is_third else CENTER_3_LOG))
    start_low = (
        CENTER_0_LOG_LOW if is_first else (0.0 if is_second else (CENTER_2_LOG_LOW if is_third else CENTER_3_LOG_LOW))
    )
    # log(m / center) = 2 * atanh(s)
    divisor = m + center
    s, s_low = _quotient(m - center, divisor, m - (divisor - center))
    whole = s + s_low
    square = whole * whole
    cube = whole * square * (ATANH_3 + square * ATANH_5)
    base = k * LN2_HIGH + start
    value = base + 2.0 * s
    low = (2.0 * s - (value - base)) + (2.0 * (s_low + cube) + (start_low + k * LN2_LOW))
    result = value + low
    return result, low - (result - value)


def power(x: float, y: float) -> float:
    """x**y as C99's pow. The exponents 0, 1/2, 1, 3/2, 2, 3, 4 and their negatives are products, roots and quotients.

    At most four values are merged at the end: gcc does not vectorise the merging of more.
    """
    a = fabs(x)
    size = fabs(y)
    square = x * x
    root = sqrt(x)
    factor = 1.0 if size == 0.0 else (root if size == 0.5 else (square if size == 2.0 or size == 4.0 else x))
    product = factor * (square if size == 3.0 or size == 4.0 else (root if size == 1.5 else 1.0))
    is_integer = size >= TWO_23 or size + TWO_23 - TWO_23 == size
    if size == 0.5 or size == 1.5 or (is_integer and size <= 4.0):
        return divide(1.0, product) if y < 0.0 else product
    if x == 1.0 or (a == 1.0 and size == INF):
        return 1.0
    if x != x or y != y or (x < 0.0 and a != INF and not is_integer):
        return NAN
    half = 0.5 * size
    is_odd = is_integer and half < TWO_23 and half + TWO_23 - TWO_23 != half
    value, low = _logarithm_pair(a)
    part = from_bits(to_bits(y) & MASK)
    value_part = from_bits(to_bits(value) & MASK)
    product = part * value_part
    product_low = part * ((value - value_part) + low) + (y - part) * (value + low)
    total = product + product_low
    value, tail, shifted = _exponential(total, product_low - (total - product))
    k = to_bits(shifted)
    half_k = k >> 1
    result = (value + tail) * from_bits((half_k << 23) + ONE) * from_bits(((k - half_k) << 23) + ONE)
    is_edge = a == 0.0 or a == INF or size == INF or total > 89.0 or total < -104.0
    edge = INF if (a > 1.0) == (y > 0.0) else 0.0
    return copysign(edge if is_edge else result, x if is_odd else a)
