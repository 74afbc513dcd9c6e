"""Exact values of the functions, by the standard library's `decimal`: 60 digits, and as many as large angles take.

    error_of("exp", (1.0,), ieee.exp(1.0))      0.40

is the error in ulp, units in the last place of the exact value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache

PRECISION = 60


@cache
def pi() -> Decimal:
    """400 digits, by Machin's formula."""

    def arctangent_of_inverse(n: int) -> int:
        total, power, k = 0, one // n, 0
        while power:
            total += (-1) ** k * (power // (2 * k + 1))
            power, k = power // (n * n), k + 1
        return total

    one = 10**410
    with localcontext() as context:
        context.prec = 400
        return Decimal(16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)) / one


def expm1(x: Decimal) -> Decimal:
    return x + x * x / 2 + x * x * x / 6 if abs(x) < Decimal("1e-20") else x.exp() - 1


def log1p(x: Decimal) -> Decimal:
    return x - x * x / 2 + x * x * x / 3 if abs(x) < Decimal("1e-20") else (1 + x).ln()


def softplus(x: Decimal) -> Decimal:
    return x + log1p((-x).exp()) if x > 0 else log1p(x.exp())


def sigmoid(x: Decimal) -> Decimal:
    t = (-abs(x)).exp()
    return (t if x < 0 else 1) / (1 + t)


def tanh(x: Decimal) -> Decimal:
    t = expm1(-2 * abs(x))
    return (-t / (2 + t)).copy_sign(x)


def series(first: Decimal, next_term: Callable[[Decimal, int], Decimal]) -> Decimal:
    """first + next_term(first, 1) + ..., until nothing changes."""
    total, term, k = first, first, 1
    while term:
        term = next_term(term, k)
        if total + term == total:
            break
        total, k = total + term, k + 1
    return total


def sine(x: Decimal, quarters: int = 0) -> Decimal:
    """sin(x + quarters * pi/2)."""
    with localcontext() as context:
        context.prec = 400
        count = (x / (pi() / 2)).to_integral_value()
        r = x - count * (pi() / 2)
    quadrant = (int(count) + quarters) % 4
    first, start = (Decimal(1), 0) if quadrant % 2 else (+r, 1)
    result = series(first, lambda term, k: -term * r * r / ((2 * k + start) * (2 * k + start - 1)))
    return -result if quadrant > 1 else result


def erfc(x: Decimal) -> Decimal:
    """For x >= 2, by Laplace's continued fraction."""
    fraction = x
    for k in range(500, 0, -1):
        fraction = x + Decimal(k) / 2 / fraction
    return (-x * x).exp() / pi().sqrt() / fraction


def erf(x: Decimal) -> Decimal:
    if abs(x) > 2:
        return (1 - erfc(abs(x))).copy_sign(x)
    return 2 * series(x * (-x * x).exp(), lambda term, k: term * 2 * x * x / (2 * k + 1)) / pi().sqrt()


def gelu(x: Decimal) -> Decimal:
    a = -x / Decimal(2).sqrt()
    return x * (erfc(a) if a > 2 else 1 - erf(a)) / 2


EXACT: dict[str, Callable[..., Decimal]] = {
    "exp": Decimal.exp, "expm1": expm1, "log": Decimal.ln, "log1p": log1p, "tanh": tanh,
    "sigmoid": sigmoid, "softplus": softplus, "sin": sine, "cos": lambda x: sine(x, 1),
    "erf": erf, "gelu": gelu, "power": lambda x, y: (y * x.ln()).exp(),
}  # fmt: skip


def error_of(name: str, operands: tuple[float, ...], y: float) -> float:
    """The error of y in ulp."""
    with localcontext() as context:
        context.prec = PRECISION
        return _ulps(y, EXACT[name](*map(Decimal, operands)))


def _ulps(y: float, exact: Decimal) -> float:
    below = abs(float(exact))
    if Decimal(below) > abs(exact):
        below = math.nextafter(below, 0.0)
    return float(abs(Decimal(y) - exact) / Decimal(math.ulp(below)))
