"""Bits, the quotient, and the functions with a kink: comparisons and selections.

Nothing raises. Where Python would, for 1 / 0, the result is C's.
"""

import math
import struct

INF = math.inf
NAN = math.nan


def to_bits(x: float) -> int:
    """The bit pattern of x as an unsigned integer."""
    bits: int = struct.unpack("<Q", struct.pack("<d", x))[0]
    return bits


def from_bits(n: int) -> float:
    """The number with this bit pattern, modulo 2**64."""
    x: float = struct.unpack("<d", struct.pack("<Q", n & 0xFFFFFFFFFFFFFFFF))[0]
    return x


def divide(a: float, b: float) -> float:
    """a / b; infinite at b = 0, nan for 0 / 0."""
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a:
        return NAN
    return math.copysign(INF, a) * math.copysign(1.0, b)


def square_root(x: float) -> float:
    """The square root; nan below zero, and -0.0 at -0.0."""
    if x < 0.0:
        return NAN
    return math.sqrt(x)


def absolute(x: float) -> float:
    """x without its sign."""
    return math.fabs(x)


def relu(x: float) -> float:
    """0 below zero, else x: nan stays nan, as it does not with C's fmax."""
    if x < 0.0:
        return 0.0
    return x


def positive(x: float) -> float:
    """relu's slope: 1 above zero, 0 at zero, below it and at nan."""
    return 1.0 if x > 0.0 else 0.0


# Of two selections: processors have an instruction for the first, and C compilers make vectors of chains of them.
def maximum(a: float, b: float) -> float:
    """The larger; a on a tie; nan when either is nan."""
    larger = b if b > a else a
    return b if b != b else larger


def minimum(a: float, b: float) -> float:
    """The smaller; a on a tie; nan when either is nan."""
    smaller = b if b < a else a
    return b if b != b else smaller


def takes_left(a: float, b: float) -> float:
    """1 where maximum(a, b) is a, else 0."""
    return 1.0 if a >= b or a != a else 0.0


def takes_right(a: float, b: float) -> float:
    """1 where maximum(a, b) is b, else 0."""
    return 0.0 if a >= b or a != a else 1.0
