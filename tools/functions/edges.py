"""The functions' results at the edges, as Annex F of C99 has them. Those of float32 are the same, rounded."""

from __future__ import annotations

import math

INF, NAN = math.inf, math.nan

EDGES: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0), (1e38, INF), (-1e38, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1e4, INF), (-1e4, -1.0), (-100.0, -1.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (-1e-40, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-INF, NAN), (-1.5, NAN), (1e-40, 1e-40)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (100.0, 1.0), (-100.0, -1.0), (-1e-40, -1e-40)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (1e4, 1.0), (-1e4, 0.0), (100.0, 1.0)],
    "softplus": [(INF, INF), (-INF, 0.0), (1e4, 1e4), (-1e4, 0.0), (100.0, 100.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (1e-40, 1e-40), (-1e-40, -1e-40)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (1e-40, 1.0)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (100.0, 1.0), (-1e38, -1.0)],
    "gelu": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (100.0, 100.0), (-100.0, -0.0), (-1e38, -0.0)],
}
# Operands and the result of powers.
ANY = (0.0, -0.0, 0.3, 1.0, -1.0, -2.5, 7.0, INF, -INF, NAN)
POWERS: list[tuple[float, float, float]] = [
    *[(x, zero, 1.0) for x in ANY for zero in (0.0, -0.0)],
    *[(1.0, y, 1.0) for y in ANY],
    *[(NAN, y, NAN) for y in ANY if y != 0.0],
    *[(x, NAN, NAN) for x in ANY if x != 1.0],
    *[(-1.0, y, 1.0) for y in (INF, -INF, 6.0, -6.0)],
    *[(-1.0, y, -1.0) for y in (5.0, -5.0, 7.0)],
    *[(x, y, NAN) for x in (-0.3, -1.0, -7.0) for y in (0.3, -0.3, 1.5, -2.25, 0.5, -0.5)],
    *[(zero, y, 0.0) for zero in (0.0, -0.0) for y in (6.0, 0.3, 2.0, INF)],
    *[(zero, -y, INF) for zero in (0.0, -0.0) for y in (6.0, 0.3, 2.0, INF)],
    *[(sign * 0.0, y, sign * 0.0) for sign in (1.0, -1.0) for y in (1.0, 3.0, 5.0, 8388607.0)],
    *[(sign * 0.0, -y, sign * INF) for sign in (1.0, -1.0) for y in (1.0, 3.0, 5.0, 8388607.0)],
    *[(sign * x, INF, 0.0) for sign in (1.0, -1.0) for x in (0.3, 0.99)],
    *[(sign * x, -INF, INF) for sign in (1.0, -1.0) for x in (0.3, 0.99)],
    *[(sign * x, INF, INF) for sign in (1.0, -1.0) for x in (1.01, 7.0, INF)],
    *[(sign * x, -INF, 0.0) for sign in (1.0, -1.0) for x in (1.01, 7.0, INF)],
    *[(INF, y, INF) for y in (0.3, 1.0, 2.0, 5.0, 6.0, 0.5)],
    *[(INF, -y, 0.0) for y in (0.3, 1.0, 2.0, 5.0, 6.0, 0.5)],
    *[(-INF, y, -INF) for y in (1.0, 3.0, 5.0)],
    *[(-INF, y, INF) for y in (0.3, 2.0, 6.0, 7.5)],
    *[(-INF, -y, -0.0) for y in (1.0, 3.0, 5.0)],
    *[(-INF, -y, 0.0) for y in (0.3, 2.0, 6.0, 7.5)],
    *[(10.0, 400.0, INF), (10.0, -400.0, 0.0), (-10.0, 401.0, -INF), (-10.0, -401.0, -0.0), (-2.0, 5.0, -32.0)],
    *[(-2.0, 6.0, 64.0), (-1.0, 2.0**60, 1.0), (-3.0, 2.0**60, INF), (0.25, 1.5, 0.125), (2.0, 10.0, 1024.0)],
]
