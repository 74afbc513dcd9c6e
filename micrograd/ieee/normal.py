"""The error function, and GELU: a number times the normal distribution function."""

import math

from micrograd.ieee.arithmetic import from_bits, to_bits
from micrograd.ieee.exponential import MASK
from micrograd.ieee.power import _exp_of_pair

# erf(x) = x + x (ERF_0 + ERF_1 w + ...), w = x**2 - 0.375, for |x| <= 0.875; error 2**-61.1
ERF_0 = 0.001880119786359478
ERF_1 = -0.301809621107369
ERF_2 = 0.08660397291084956
ERF_3 = -0.02011485003392485
ERF_4 = 0.003850044303824399
ERF_5 = -0.0006231851741451782
ERF_6 = 8.718801124333364e-05
ERF_7 = -1.0729332696113389e-05
ERF_8 = 1.177729220782422e-06
ERF_9 = -1.1663467275273854e-07
ERF_10 = 1.0546939163660618e-08
ERF_11 = -8.665428213088466e-10
# log(erfc(x)) = ERFC_0 + ERFC_1 (x - 0.875) + ... for x >= 0.875; absolute in erfc; error 2**-56.5
ERFC_0 = -1.5328244365985517
ERFC_1 = -2.4302197229548224
ERFC_2 = -0.8265416933347787
ERFC_3 = -0.04689605453938956
ERFC_4 = 0.011323339444175478
ERFC_5 = -0.002143996128549858
ERFC_6 = 0.00020078089402040665
ERFC_7 = 5.929888908473871e-05
ERFC_8 = -3.939846007812174e-05
ERFC_9 = 1.2198598107481093e-05
ERFC_10 = -2.0769080313633305e-06
ERFC_11 = -1.0642224481797328e-07
ERFC_12 = 2.1863253027508836e-07
ERFC_13 = -8.735500722169788e-08
ERFC_14 = 2.1934093480775927e-08
ERFC_15 = -3.794800905140125e-09
ERFC_16 = 4.4127733502569147e-10
ERFC_17 = -3.111420070313845e-11
ERFC_18 = 1.0034275836645296e-12
# Phi(x) = 0.5 + x (NORMAL_0 + NORMAL_1 x**2 + ...) for |x| <= 0.375; error 2**-58.9
NORMAL_0 = 0.3989422804014327
NORMAL_1 = -0.06649038006691205
NORMAL_2 = 0.009973557010541435
NORMAL_3 = -0.001187328232549827
NORMAL_4 = 0.00011543498316310714
NORMAL_5 = -9.447391571119983e-06
NORMAL_6 = 6.787989129930236e-07
NORMAL_7 = -6.481615114244404e-08
TAIL_0_LOW = 2.4042449063159495e-17
# exp(a**2 / 2) (1 - Phi(a)) (a + 0.8125) = TAIL_0 + TAIL_1 t + ..., t = (a - 6) / (a + 6); error 2**-56.6
TAIL_0 = 0.44130907883529413
TAIL_1 = -0.061925974782579656
TAIL_2 = 0.019968019540467813
TAIL_3 = 0.010983995682755586
TAIL_4 = -0.026795858451287388
TAIL_5 = 0.029165193280076593
TAIL_6 = -0.023326669026770313
TAIL_7 = 0.014905570891402951
TAIL_8 = -0.007700680940369806
TAIL_9 = 0.0031256777897412697
TAIL_10 = -0.0009028144832629542
TAIL_11 = 0.00011716956229629961
TAIL_12 = 4.163999525366964e-05
TAIL_13 = -2.7382303967723357e-05
TAIL_14 = 4.323972064180541e-06
TAIL_15 = 1.9191754055424766e-06
TAIL_16 = -1.0222405209815087e-06
TAIL_17 = -1.3800599683931984e-08
TAIL_18 = 1.3777853162718591e-07
TAIL_19 = -1.754972294093905e-08
TAIL_20 = -1.6172735607861062e-08
TAIL_21 = 2.2406795411559764e-09
TAIL_22 = 1.3788233778138458e-09


def erf(x: float) -> float:
    """The error function; error below 0.95 ulp."""
    size = math.fabs(x)
    w = x * x - 0.375
    w2 = w * w
    w4 = w2 * w2
    tail = ((ERF_2 + ERF_3 * w) + w2 * (ERF_4 + ERF_5 * w)) + w4 * (
        ((ERF_6 + ERF_7 * w) + w2 * (ERF_8 + ERF_9 * w)) + w4 * (ERF_10 + ERF_11 * w)
    )
    if size < 0.875:
        return x + x * (ERF_0 + w * (ERF_1 + w * tail))
    u = (6.0 if size > 6.0 else size) - 0.875
    u2 = u * u
    u4 = u2 * u2
    tail = (
        ((ERFC_2 + ERFC_3 * u) + u2 * (ERFC_4 + ERFC_5 * u)) + u4 * ((ERFC_6 + ERFC_7 * u) + u2 * (ERFC_8 + ERFC_9 * u))
    ) + u4 * u4 * (
        ((ERFC_10 + ERFC_11 * u) + u2 * (ERFC_12 + ERFC_13 * u))
        + u4 * ((ERFC_14 + ERFC_15 * u) + u2 * ((ERFC_16 + ERFC_17 * u) + u2 * ERFC_18))
    )
    product = u * (ERFC_1 + u * tail)
    high = ERFC_0 + product
    a, b, shifted = _exp_of_pair(high, product - (high - ERFC_0))
    scale = from_bits(to_bits(shifted) << 52)
    high = 1.0 - a * scale
    return math.copysign(high + (((1.0 - high) - a * scale) - b * scale), x)


def gelu(x: float) -> float:
    """x Phi(x) with the normal distribution function Phi; -0 at -inf. Error below 1 ulp."""
    size = math.fabs(x)
    z = x * x
    z2 = z * z
    rest = (NORMAL_3 + NORMAL_4 * z) + z2 * ((NORMAL_5 + NORMAL_6 * z) + z2 * NORMAL_7)
    rest = z * ((NORMAL_1 + NORMAL_2 * z) + z2 * rest)
    half = 0.5 * x
    step = z * NORMAL_0
    high = half + step
    if size < 0.375:
        return math.copysign(high + ((step - (high - half)) + z * rest), x)
    if size > 39.0:
        return x if x > 0.0 else -0.0

    # The tail beyond size is e**(-size**2 / 2) f / (size + 0.8125), where f is between 0.4 and 0.48.
    offset = size + 0.8125
    inverse = 1.0 / (offset * (size + 6.0))
    ratio = offset * inverse
    inverse = (size + 6.0) * inverse
    # t = (size - 6) / (size + 6), but accurate near -1, where f's slope is 0.53: the rounding error of t counts.
    near = size < 3.0
    v = 2.0 * size * ratio
    t = v - 1.0 if near else (size - 6.0) * ratio
    error = v - (t + 1.0) if near else 0.0
    t2 = t * t
    t4 = t2 * t2
    t8 = t4 * t4
    lower = ((TAIL_2 + TAIL_3 * t) + t2 * (TAIL_4 + TAIL_5 * t)) + t4 * (
        (TAIL_6 + TAIL_7 * t) + t2 * (TAIL_8 + TAIL_9 * t)
    )
    upper = ((TAIL_10 + TAIL_11 * t) + t2 * (TAIL_12 + TAIL_13 * t)) + t4 * (
        (TAIL_14 + TAIL_15 * t) + t2 * (TAIL_16 + TAIL_17 * t)
    )
    upper = upper + t8 * (((TAIL_18 + TAIL_19 * t) + t2 * (TAIL_20 + TAIL_21 * t)) + t4 * TAIL_22)
    step = t * (TAIL_1 + t * (lower + t8 * upper))
    f = TAIL_0 + step
    f_low = (step - (f - TAIL_0)) + (TAIL_0_LOW + 0.53 * t4 * error)
    # The quotient as high + low. The masks leave 26 bits, so that products of high parts are exact.
    high = from_bits(to_bits(f * inverse) & MASK)
    offset_high = from_bits(to_bits(offset) & MASK)
    low = (((f - high * offset_high) + f_low) - high * (size - (offset_high - 0.8125))) * inverse
    size_high = from_bits(to_bits(size) & MASK)
    a, b, shifted = _exp_of_pair(-0.5 * (size_high * size_high), -0.5 * (size - size_high) * (size + size_high))
    a_high = from_bits(to_bits(a) & MASK)
    product = a_high * high
    low = a_high * low + ((a - a_high) + b) * (high + low)
    high = product + low
    low = (product - high) + low
    # 2**n in two factors, as n may reach -1098.
    biased = (to_bits(shifted) + 1023) & 0xFFF
    part = biased >> 1
    first = from_bits(part << 52)
    second = from_bits((biased - part) << 52)
    tail = high * first * second
    low = (1.0 - (1.0 - tail) - tail) - low * first * second if x > 0.0 else low
    high = 1.0 - tail if x > 0.0 else high
    product = _times_pair(x, high, low)
    return product if x > 0.0 else product * first * second


def _times_pair(x: float, high: float, low: float) -> float:
    """x (high + low), rounded once up to a small error."""
    x_high = from_bits(to_bits(x) & MASK)
    first = from_bits(to_bits(high) & MASK)
    return x_high * first + (x_high * ((high - first) + low) + (x - x_high) * high)
