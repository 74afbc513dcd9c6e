"""Sine and cosine, with a reduced argument that is exact enough for every float."""

import math

from micrograd.ieee.arithmetic import INF, NAN, from_bits, to_bits
from micrograd.ieee.exponential import MASK, ROUND

# sin(r) / r = 1 + SIN_1 z + SIN_2 z**2 + ..., z = r * r, |r| <= pi / 4; error 2**-63.2
SIN_1 = -0.16666666666666666
SIN_2 = 0.008333333333333042
SIN_3 = -0.00019841269840962467
SIN_4 = 2.755731907397926e-06
SIN_5 = -2.5052070921322667e-08
SIN_6 = 1.6054311306016186e-10
SIN_7 = -7.389447889092928e-13
# cos(r) = 1 - z / 2 + COS_2 z**2 + ..., z = r * r, |r| <= pi / 4; error 2**-64.2
COS_2 = 0.0416666666666666
COS_3 = -0.0013888888888874457
COS_4 = 2.4801587289653e-05
COS_5 = -2.755731439397295e-07
COS_6 = 2.0875728134801287e-09
COS_7 = -1.1359866728422778e-11
NEAR = 100000.0
# pi / 2 in 37, 37 and 53 bits: products of the first two with integers below 2**16 are exact
HALF_PI_1 = 1.5707963267923333
HALF_PI_2 = 2.5633441515839558e-12
HALF_PI_3 = 1.0562999066987428e-23
TWO_OVER_PI = 0.6366197723675814
# pi / 2 in 26 bits and the rest, and as a float
HALF_PI_HIGH = 1.5707963407039642
HALF_PI_LOW = -1.3909067614167116e-08
HALF_PI = 1.5707963267948966
# 2 / pi = TURN_1 * 2**-52 + TURN_2 * 2**-104 + ... + TURN_23 * 2**-1196, multiples of 4 up to 2**53
TURN_1 = 2867080569611328.0
TURN_2 = 5957137479487988.0
TURN_3 = 5433632075688280.0
TURN_4 = 7103135298485840.0
TURN_5 = 6257036865852956.0
TURN_6 = -2493218947969580.0
TURN_7 = -5066117618949988.0
TURN_8 = 4945727824194332.0
TURN_9 = 3116679323093028.0
TURN_10 = -2826643684686616.0
TURN_11 = 7255687621375972.0
TURN_12 = 344773503845204.0
TURN_13 = -3484035455780676.0
TURN_14 = -570473744172904.0
TURN_15 = -2334960582924.0
TURN_16 = -4765784395322080.0
TURN_17 = -2582306456699728.0
TURN_18 = 2734825899255456.0
TURN_19 = -7319849020523604.0
TURN_20 = 2229697668398344.0
TURN_21 = -3483834181407064.0
TURN_22 = -5634586098823844.0
TURN_23 = 4650247846653896.0
# Adding and subtracting UNIT_k rounds to multiples of 2**k.
UNIT_28 = float.fromhex("0x1.8p80")
UNIT_26 = float.fromhex("0x1.8p78")
UNIT_MINUS_24 = float.fromhex("0x1.8p28")
UNIT_MINUS_26 = float.fromhex("0x1.8p26")
UNIT_MINUS_76 = float.fromhex("0x1.8p-24")
UNIT_MINUS_128 = float.fromhex("0x1.8p-76")
# Powers of 2: BITS_k is 2**k
BITS_832 = float.fromhex("0x1p832")
BITS_416 = float.fromhex("0x1p416")
BITS_208 = float.fromhex("0x1p208")
BITS_104 = float.fromhex("0x1p104")
BITS_52 = float.fromhex("0x1p52")
BITS_MINUS_52 = float.fromhex("0x1p-52")
BITS_MINUS_104 = float.fromhex("0x1p-104")
BITS_MINUS_156 = float.fromhex("0x1p-156")
BITS_MINUS_208 = float.fromhex("0x1p-208")
BITS_MINUS_416 = float.fromhex("0x1p-416")
BITS_MINUS_832 = float.fromhex("0x1p-832")


def _large_reduced(x: float) -> tuple[float, float, float]:
    """x - n pi/2 as a sum of two, and n in the low bits of the third; for 1 <= |x| < inf. Payne and Hanek's method."""
    # |x| = size * 2**(52 j) with 1 <= size < 2**52. The bits of j select the words w0, ..., w4 of 2/pi, from the j-th
    # on: earlier ones contribute multiples of 4 to the product, later ones less than 2**-120.
    size = math.fabs(x)
    far = size >= BITS_832
    size = size * BITS_MINUS_832 if far else size
    w0 = TURN_16 if far else 0.0
    w1 = TURN_17 if far else TURN_1
    w2 = TURN_18 if far else TURN_2
    w3 = TURN_19 if far else TURN_3
    w4 = TURN_20 if far else TURN_4
    w5 = TURN_21 if far else TURN_5
    w6 = TURN_22 if far else TURN_6
    w7 = TURN_23 if far else TURN_7
    far = size >= BITS_416
    size = size * BITS_MINUS_416 if far else size
    w0 = TURN_8 if far else w0
    w1 = TURN_9 if far else w1
    w2 = TURN_10 if far else w2
    w3 = TURN_11 if far else w3
    w4 = TURN_12 if far else w4
    w5 = TURN_13 if far else w5
    w6 = TURN_14 if far else w6
    w7 = TURN_15 if far else w7
    w8 = TURN_16 if far else TURN_8
    w9 = TURN_17 if far else TURN_9
    w10 = TURN_18 if far else TURN_10
    w11 = TURN_19 if far else TURN_11
    far = size >= BITS_208
    size = size * BITS_MINUS_208 if far else size
    w0 = w4 if far else w0
    w1 = w5 if far else w1
    w2 = w6 if far else w2
    w3 = w7 if far else w3
    w4 = w8 if far else w4
    w5 = w9 if far else w5
    w6 = w10 if far else w6
    w7 = w11 if far else w7
    far = size >= BITS_104
    size = size * BITS_MINUS_104 if far else size
    w0 = w2 if far else w0
    w1 = w3 if far else w1
    w2 = w4 if far else w2
    w3 = w5 if far else w3
    w4 = w6 if far else w4
    w5 = w7 if far else w5
    far = size >= BITS_52
    size = size * BITS_MINUS_52 if far else size
    w0 = w1 if far else w0
    w1 = w2 if far else w1
    w2 = w3 if far else w2
    w3 = w4 if far else w3
    w4 = w5 if far else w4
    w1 = w1 * BITS_MINUS_52
    w2 = w2 * BITS_MINUS_104
    w3 = w3 * BITS_MINUS_156
    w4 = w4 * BITS_MINUS_208
    # The digits of both, to the base 2**26 and between -2**25 and 2**25.
    x0 = math.copysign(size, x)
    x3 = x0 + UNIT_26 - UNIT_26
    x0 = x0 - x3
    x2 = x0 + ROUND - ROUND
    x0 = x0 - x2
    x1 = x0 + UNIT_MINUS_26 - UNIT_MINUS_26
    x0 = x0 - x1
    d0 = w0 + UNIT_28 - UNIT_28
    d1 = w0 - d0
    d2 = w1 + UNIT_MINUS_24 - UNIT_MINUS_24
    d3 = w1 - d2
    d4 = w2 + UNIT_MINUS_76 - UNIT_MINUS_76
    d5 = w2 - d4
    d6 = w3 + UNIT_MINUS_128 - UNIT_MINUS_128
    d7 = w3 - d6
    # The columns of the product. a, b, c, d are exact: multiples of 2**-24, 2**-50, 2**-76, 2**-102 up to 2**28, 2**2,
    # 2**-24, 2**-50. Multiples of 4 do not matter.
    a = (x0 * d0 + x1 * d1) + (x2 * d2 + x3 * d3)
    b = (x0 * d1 + x1 * d2) + (x2 * d3 + x3 * d4)
    c = (x0 * d2 + x1 * d3) + (x2 * d4 + x3 * d5)
    d = (x0 * d3 + x1 * d4) + (x2 * d5 + x3 * d6)
    e = (x0 * d4 + x1 * d5) + (x2 * d6 + x3 * d7)
    f = (x0 * d5 + x1 * d6) + (x2 * d7 + x3 * w4)
    quarters = (a - (a + 27021597764222976.0 - 27021597764222976.0)) + b
    turns = quarters + ROUND
    quarters = quarters - (turns - ROUND)
    partial = quarters + c
    rest = (c - (partial - quarters)) + d
    high = partial + rest
    low = (rest - (high - partial)) + (e + f)
    # From quarter turns to radians.
    masked = from_bits(to_bits(high) & MASK)
    first = masked * HALF_PI_HIGH
    second = masked * HALF_PI_LOW + ((high - masked) + low) * HALF_PI
    r = first + second
    return r, (first - r) + second, turns


def _near_reduced(x: float) -> tuple[float, float, float]:
    """The same for |x| up to NEAR, by Cody and Waite's method."""
    turns = x * TWO_OVER_PI + ROUND
    n = turns - ROUND
    first = x - n * HALF_PI_1
    partial = first - n * HALF_PI_2
    rest = ((first - partial) - n * HALF_PI_2) - n * HALF_PI_3
    r = partial + rest
    return r, (partial - r) + rest, turns


def _reduced(x: float) -> tuple[float, float, float]:
    if math.fabs(x) > NEAR:
        return _large_reduced(x)
    return _near_reduced(x)


def _sine(r: float, rest: float, quadrant: int) -> float:
    """sin(r + rest + quadrant * pi/2)."""
    z = r * r
    half = 0.5 * z
    z2 = z * z
    r_high = from_bits(to_bits(r) & MASK)
    half_high = 0.5 * (r_high * r_high)
    head = 1.0 - half_high
    value = (
        head
        + (
            (((1.0 - head) - half_high) - (0.5 * (r - r_high) * (r + r_high) + r * rest))
            + z2 * ((COS_2 + COS_3 * z) + z2 * ((COS_4 + COS_5 * z) + z2 * (COS_6 + COS_7 * z)))
        )
        if quadrant & 1 == 1
        else r
        + (
            (rest - rest * half)
            + r * z * (SIN_1 + z * ((SIN_2 + SIN_3 * z) + z2 * ((SIN_4 + SIN_5 * z) + z2 * (SIN_6 + SIN_7 * z))))
        )
    )
    return from_bits(to_bits(value) ^ ((quadrant & 2) << 62))


def sin(x: float) -> float:
    """Sine; nan at the infinities. Error below 0.8 ulp."""
    if math.fabs(x) < 1e-8:
        return x
    if not math.fabs(x) < INF:
        return NAN
    r, rest, turns = _reduced(x)
    return _sine(r, rest, to_bits(turns))


def cos(x: float) -> float:
    """Cosine; nan at the infinities. Error below 0.8 ulp."""
    if not math.fabs(x) < INF:
        return NAN
    r, rest, turns = _reduced(x)
    return _sine(r, rest, to_bits(turns) + 1)


def near_sin(x: float) -> float:
    """sin(x) for |x| up to NEAR, and of nan."""
    if math.fabs(x) < 1e-8:
        return x
    r, rest, turns = _near_reduced(x)
    return _sine(r, rest, to_bits(turns)) if x == x else NAN


def near_cos(x: float) -> float:
    """cos(x) for |x| up to NEAR, and of nan."""
    r, rest, turns = _near_reduced(x)
    return _sine(r, rest, to_bits(turns) + 1) if x == x else NAN
