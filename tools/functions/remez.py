"""Minimax polynomials: weighted fits with forced coefficients, and coefficients rounded one after the other.

    fit(mp.exp, -0.35, 0.35, range(12), forced={0: 1, 1: 1}, bits=53).coefficients      {power: mpf}

minimises the largest |weight(x) * (function(x) - sum of c[p] * x**p)| over an interval, by Remez's exchange on a grid
of Chebyshev points. Rounding all coefficients of an optimal polynomial loses much of its accuracy; `bits` rounds the
lowest coefficient, forces it, fits the others anew, and so on. The arithmetic is mpmath's; importing this module sets
mp.prec to PRECISION, so that what is passed in, such as mp.log(2), is as accurate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mpmath import mp, mpf

PRECISION = 300
mp.prec = PRECISION
DENSITY = 60  # grid points per free coefficient; the error between two of them is some 0.1% larger at most

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    coefficients: dict[int, mpf]  # by power
    error: mpf  # the largest weighted error on the grid

    def named(self, name: str, powers: Iterable[int], shift: int = 0) -> dict[str, float]:
        """Coefficients as constants of a module: NAME_3 for the third power."""
        return {f"{name}_{power - shift}": float(self.coefficients[power]) for power in powers}


def fit(
    function: Function,
    low: float | mpf,
    high: float | mpf,
    powers: Iterable[int],
    *,
    weight: Function | None = None,
    forced: Mapping[int, object] | None = None,
    bits: int | Mapping[int, int] | None = None,
) -> Fit:
    """The minimax polynomial of the given powers of x for function on [low, high].

    weight: the error's factor at x; 1 by default, lambda x: 1 / function(x) for the relative error. A pole of it at 0
        is fine if the powers start high enough to cancel it, as 0 itself is not evaluated.
    forced: values of coefficients that are not fitted, by power; they need not occur in powers. Force those that are
        known exactly, such as exp's 1 and 1: a rounded constant term limits the accuracy at 0.
    bits: round coefficients to so many significant bits (53 for float64, 24 for float32), lowest power first; a
        mapping from powers to bits rounds those alone, in its own order.

    The free powers must allow alternation (Haar's condition): consecutive ones, or any on an interval of one sign.
    For odd or even functions, give the odd or even powers and [0, high].
    """
    with mp.workprec(max(mp.prec, PRECISION)):
        known = {power: mp.mpmathify(value) for power, value in (forced or {}).items()}
        free = sorted(set(powers) - set(known))
        grid = _grid(mp.mpf(low), mp.mpf(high), DENSITY * (len(free) + 1))
        values = [function(x) for x in grid]
        weights = [mp.fabs(weight(x)) if weight else mp.mpf(1) for x in grid]
        if bits is None:
            rounding = {}
        elif isinstance(bits, int):
            rounding = dict.fromkeys(free, bits)
        else:
            rounding = dict(bits)
        best = _exchange(grid, values, weights, free, known)
        for power, width in rounding.items():
            known[power] = round_bits(best.coefficients[power], width)
            free.remove(power)
            best = _exchange(grid, values, weights, free, known)
        return best


def fit_ratio(function: Function, high: float | mpf, count: int) -> tuple[Fit, Fit]:
    """Polynomials p and q with p(0) = q(0) = 1 and so many more terms each, for p / q near function on [0, high].

    The largest relative error of p / q is least. function(x) q(x) - p(x) is linear in the coefficients, and its weight
    1 / (q(x) function(x)) is the last round's.
    """
    with mp.workprec(max(mp.prec, PRECISION)):
        size = 2 * count
        powers = range(1, count + 1)
        grid = _grid(mp.mpf(0), mp.mpf(high), DENSITY * (size + 1))
        values = [function(x) for x in grid]
        solution = [mp.mpf(0)] * size
        reference = [round((len(grid) - 1) * (i + 0.5) / (size + 1)) for i in range(size + 1)]

        def value(coefficients: list[mpf], x: mpf) -> mpf:
            return 1 + mp.fsum(c * x**power for c, power in zip(coefficients, powers, strict=True))

        for _ in range(20):
            matrix = mp.matrix(size + 1, size + 1)
            for row, i in enumerate(reference):
                x, y = grid[i], values[i]
                terms = [x**power for power in powers]
                matrix[row, :] = mp.matrix(
                    [[*terms, *(-y * term for term in terms), (-1) ** row * y * value(solution[count:], x)]]
                )
            *solution, level = mp.lu_solve(matrix, mp.matrix([values[i] - 1 for i in reference]))
            errors = [
                value(solution[:count], x) / value(solution[count:], x) / y - 1
                for x, y in zip(grid, values, strict=True)
            ]
            largest = max(map(mp.fabs, errors))
            if largest <= mp.fabs(level) * mp.mpf("1.0001"):
                break
            reference = _alternation(errors, size + 1)
        halves = solution[:count], solution[count:]
        p, q = ({0: mp.mpf(1), **dict(zip(powers, half, strict=True))} for half in halves)
        return Fit(p, largest), Fit(q, largest)


def round_bits(value: object, bits: int) -> mpf:
    """value rounded to so many significant bits."""
    with mp.workprec(bits):
        return +mp.mpmathify(value)


def split(value: object, *bits: int) -> list[mpf]:
    """value as an unevaluated sum: its first bits[0] bits, the first bits[1] of the rest, and so on."""
    parts = []
    with mp.workprec(max(mp.prec, PRECISION)):
        rest = mp.mpmathify(value)
        for width in bits:
            parts.append(round_bits(rest, width))
            rest -= parts[-1]
    return parts


def below(value: object, bits: int = 53) -> mpf:
    """The largest float of so many bits that is at most value."""
    with mp.workprec(bits):
        return mp.fadd(value, 0, rounding="f")


def above(value: object, bits: int = 53) -> mpf:
    """The smallest float of so many bits that is at least value."""
    with mp.workprec(bits):
        return mp.fadd(value, 0, rounding="c")


def _grid(low: mpf, high: mpf, count: int) -> list[mpf]:
    """Chebyshev's points and both ends, ascending; 0 is replaced by a neighbour."""
    middle, radius = (low + high) / 2, (high - low) / 2
    points = [middle - radius * mp.cospi(mp.mpf(i) / (count - 1)) for i in range(count)]
    points[0], points[-1] = low, high
    nearest_zero = (high - low) / 2**16
    return [x if mp.fabs(x) > nearest_zero else (-nearest_zero if high <= 0 else nearest_zero) for x in points]


def _exchange(grid: list[mpf], values: list[mpf], weights: list[mpf], free: list[int], known: Mapping[int, mpf]) -> Fit:
    """Remez's exchange, on the points of the grid."""
    # The lowest free power is divided out, so that the others are a Chebyshev system on both sides of 0:
    # weight * (rest - sum c x**p) = (weight * x**lowest) * (rest / x**lowest - sum c x**(p - lowest)).
    lowest = free[0] if free else 0
    scales = [w * mp.fabs(x) ** lowest for x, w in zip(grid, weights, strict=True)]
    targets = [
        (y - mp.fsum(c * x**power for power, c in known.items())) / x**lowest for x, y in zip(grid, values, strict=True)
    ]
    count = len(free)
    errors = [s * t for s, t in zip(scales, targets, strict=True)]
    solution: list[mpf] = []
    largest = max(map(mp.fabs, errors))
    if count:
        largest = mp.inf
        # The first reference: Chebyshev's points of the grid.
        reference = [round((len(grid) - 1) * i / count) for i in range(count + 1)]
        reference = [i if scales[i] else i + 1 for i in reference]
        seen = set()
        while tuple(reference) not in seen:
            seen.add(tuple(reference))
            matrix = mp.matrix(count + 1, count + 1)
            for row, i in enumerate(reference):
                for column, power in enumerate(free):
                    matrix[row, column] = grid[i] ** (power - lowest)
                matrix[row, count] = (-1) ** row / scales[i]
            *trial, level = mp.lu_solve(matrix, mp.matrix([targets[i] for i in reference]))
            errors = [s * (t - _horner(trial, free, x)) for s, t, x in zip(scales, targets, grid, strict=True)]
            if max(map(mp.fabs, errors)) < largest:
                largest, solution = max(map(mp.fabs, errors)), trial
            if largest <= mp.fabs(level) * mp.mpf("1.0001") or len(seen) == 50:
                break  # optimal; or nearly so, where a forced coefficient's own error at 0 hinders the convergence
            reference = _alternation(errors, count + 1)
    coefficients = dict(sorted({**known, **dict(zip(free, solution, strict=True))}.items()))
    return Fit(coefficients, largest)


def _horner(solution: list[mpf], free: list[int], x: mpf) -> mpf:
    """The sum of solution[i] * x**(free[i] - free[0])."""
    total = mp.mpf(0)
    above = free[-1]
    for c, power in zip(reversed(solution), reversed(free), strict=True):
        total = total * x ** (above - power) + c
        above = power
    return total


def _alternation(errors: list[mpf], count: int) -> list[int]:
    """The indices of count extremes of alternating sign, the largest among them."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if peaks and (error > 0) == (errors[peaks[-1]] > 0):
            if mp.fabs(error) > mp.fabs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    if len(peaks) < count:
        raise ArithmeticError(f"{len(peaks)} alternations instead of {count}: is Haar's condition met?")
    while len(peaks) > count:
        sizes = [mp.fabs(errors[i]) for i in peaks]
        if len(peaks) == count + 1:
            del peaks[0 if sizes[0] < sizes[-1] else -1]
        else:  # two neighbours, so that the signs still alternate
            smallest = min(range(len(peaks) - 1), key=lambda i: max(sizes[i], sizes[i + 1]))
            del peaks[smallest : smallest + 2]
    return peaks
