"""Functions of IEEE numbers: the same bits on every platform, in Python and in C.

Everything here is made of operations that IEEE 754 defines to the bit: sums, products, quotients, square roots,
comparisons, and selections. No function of a C library is called, and nothing is looked up or contracted. The engine
calls these functions, generated Python contains their source, and generated C contains them in translation: see
`micrograd.translate`, which also says how they have to be written. `float32` has the same functions for float32.

Nothing raises. Where Python would, for 1 / 0 or an overflow, the result is C's: inf or nan. Errors are in ulp, units
in the last place of the exact result. docs/functions.md has the measurements, tools/functions derives the constants.
"""

from micrograd.ieee.arithmetic import (
    INF,
    NAN,
    absolute,
    divide,
    from_bits,
    maximum,
    minimum,
    positive,
    relu,
    square_root,
    takes_left,
    takes_right,
    to_bits,
)
from micrograd.ieee.circular import cos, sin
from micrograd.ieee.exponential import exp, expm1, log, log1p, sigmoid, softplus, tanh
from micrograd.ieee.normal import erf, gelu
from micrograd.ieee.power import power

__all__ = [
    "INF",
    "NAN",
    "absolute",
    "cos",
    "divide",
    "erf",
    "exp",
    "expm1",
    "from_bits",
    "gelu",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "positive",
    "power",
    "relu",
    "sigmoid",
    "sin",
    "softplus",
    "square_root",
    "takes_left",
    "takes_right",
    "tanh",
    "to_bits",
]
