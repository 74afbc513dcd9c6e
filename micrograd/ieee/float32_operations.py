"""The float32 operations that are not operators in Python, on numpy.float32 scalars: what C's sqrtf and so on do."""

from typing import cast

import numpy


def to_bits(x: float) -> int:
    """The bit pattern of x as an unsigned integer."""
    return int(numpy.float32(x).view(numpy.uint32))


def from_bits(n: int) -> float:
    """The float32 whose bit pattern is n modulo 2**32."""
    return cast(float, numpy.uint32(n & 0xFFFFFFFF).view(numpy.float32))


def sqrt(x: float) -> float:
    """The square root; nan below zero, and -0.0 at -0.0."""
    return cast(float, numpy.sqrt(numpy.float32(x)))


def fabs(x: float) -> float:
    """x without its sign."""
    return cast(float, numpy.fabs(numpy.float32(x)))


def copysign(x: float, y: float) -> float:
    """The magnitude of x with the sign of y."""
    return cast(float, numpy.copysign(numpy.float32(x), numpy.float32(y)))


def divide(a: float, b: float) -> float:
    """a / b as IEEE defines it: inf or nan at b == 0, no exception."""
    return cast(float, numpy.float32(a) / numpy.float32(b))
