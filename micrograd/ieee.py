"""The library functions on IEEE doubles, as C defines them: no exceptions, no complex numbers.

Python raises where C returns inf or nan (`math.log(0)`, `math.exp(1000)`, `0.0 ** -1`) and turns `(-2.0) ** 0.5`
into a complex number. The engine, the ir interpreter and the generated C must agree by bits, so the engine takes
C's side. Every finite result below is the C library's own: `math` calls the function that the generated code calls.
"""

import math

INF = math.inf
NAN = math.nan


def exp(x: float) -> float:
    """e**x; inf on overflow."""
    try:
        return math.exp(x)
    except OverflowError:
        return INF


def log(x: float) -> float:
    """Natural logarithm; -inf at either zero, nan below zero."""
    if x > 0.0:
        return math.log(x)
    return -INF if x == 0.0 else NAN


def power(x: float, y: float) -> float:
    """x**y as C99's pow: nan for a negative base with a fractional exponent, inf on overflow and for 0**negative.

    By definition here, x**1 is x itself and x**0 is 1, so that neither depends on the quality of a C library.
    """
    if y == 1.0:
        return x
    if y == 0.0:
        return 1.0
    try:
        return math.pow(x, y)
    except OverflowError:
        return -INF if x < 0.0 and _odd(y) else INF
    except ValueError:
        if x != 0.0:
            return NAN
        return math.copysign(INF, x) if _odd(y) else INF


def sigmoid(x: float) -> float:
    """1 / (1 + e**-x); 0 where e**-x overflows."""
    return 1.0 / (1.0 + exp(-x))


def relu(x: float) -> float:
    """0 below zero, else x: nan stays nan, as it does not with C's fmax."""
    return 0.0 if x < 0.0 else x


def maximum(a: float, b: float) -> float:
    """The larger; a on a tie; nan when either is nan."""
    return a if takes_left(a, b) else b


def minimum(a: float, b: float) -> float:
    """The smaller; a on a tie; nan when either is nan."""
    return a if a <= b or a != a else b


def sqrt(x: float) -> float:
    """The square root; nan below zero, and -0.0 at -0.0."""
    return NAN if x < 0.0 else math.sqrt(x)


def sin(x: float) -> float:
    """Sine; nan at either infinity."""
    return math.sin(x) if -INF < x < INF else NAN


def cos(x: float) -> float:
    """Cosine; nan at either infinity."""
    return math.cos(x) if -INF < x < INF else NAN


def absolute(x: float) -> float:
    """x without its sign."""
    return math.fabs(x)


def softplus(x: float) -> float:
    """log(1 + e**x), without overflow: x itself where it is large."""
    return relu(x) + math.log1p(exp(-math.fabs(x)))


def positive(x: float) -> float:
    """relu's slope: 1 above zero, 0 at zero, below it and at nan."""
    return 1.0 if x > 0.0 else 0.0


def takes_left(a: float, b: float) -> float:
    """1 where maximum(a, b) is a, else 0."""
    return 1.0 if a >= b or a != a else 0.0


def takes_right(a: float, b: float) -> float:
    """1 where maximum(a, b) is b, else 0."""
    return 0.0 if a >= b or a != a else 1.0


def _odd(y: float) -> bool:
    return math.isfinite(y) and math.fmod(y, 2.0) in (1.0, -1.0)  # PyPy's pow raises for 0**-inf too
