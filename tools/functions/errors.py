"""The errors of the float64 functions, in ulp of the exact value by MPFR, and whether all builds give the same bits."""

from __future__ import annotations

import math
import random
import re
import shutil
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from gmpy2 import mpfr

from tools.functions.compiled import NAMES, Compiled, Floats, levels, python_function
from tools.functions.edges import EDGES, POWERS
from tools.functions.exact import error_of
from tools.functions.subjects import INF, SUBJECTS, Subject, arguments, neighbours

IN_PYTHON = 10_000
Evaluate = Callable[..., Floats]


def measure(folder: Path, names: Sequence[str], count: int, seed: int) -> bool:
    """Prints a table. Whether all errors are within the functions' bounds and nothing else is wrong."""
    compilers = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
    builds = {
        f"{compiler} {level}": Compiled(folder, level, compiler=compiler)
        for compiler in compilers
        for level in levels()
    }
    print(f"{'function':9}{'arguments':>10}{'ulp':>8}{'bound':>7}  {'at':47}{'> 0.5 ulp':>9}  notes")
    is_good = True
    for name in names or NAMES:
        operands = arguments(name, count, seed)
        evaluate = list(builds.values())[-1]
        y = evaluate(name, *operands)
        error = errors(SUBJECTS[name], operands, y)
        worst = int(error.argmax())
        wrong = differences(name, builds, operands, seed) + wrong_edges(name)
        wrong += wrong_references(name, operands, y, error, seed)
        if error[worst] > bound(name):
            wrong.append("ABOVE THE BOUND")
        places = descents(SUBJECTS[name], name, evaluate, operands)
        note = f"{len(places)} descents, such as at {places[0].hex()}" if places else "monotone"
        notes = wrong if SUBJECTS[name].rising is None else [note, *wrong]
        at = " ".join(float(x[worst]).hex() for x in operands)
        share = f"{float((error > 0.5).mean()):9.3%}"
        print(f"{name:9}{len(y):10}{error[worst]:8.4f}{bound(name):7}  {at:47}{share}  {'; '.join(notes)}", flush=True)
        is_good = is_good and not wrong
    return is_good


def bound(name: str) -> float:
    """The error that a function's docstring admits."""
    (found,) = re.findall(r"(?:within|error below) ([\d.]+) ulp", python_function(name).__doc__, re.IGNORECASE)
    return float(found)


def errors(subject: Subject, operands: Sequence[Floats], y: Floats) -> Floats:
    """The errors in ulp of the exact values; inf where only one of y and the rounded exact value is infinite."""
    nearest = np.empty_like(y)
    rest = np.empty_like(y)  # the exact value less the nearest float, in that float's ulp
    exact, ulp = subject.exact, math.ulp
    for i, numbers in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
        value = exact(*map(mpfr, numbers))
        rounded = float(value)
        nearest[i] = rounded
        rest[i] = (value - rounded) / ulp(rounded) if -INF < rounded < INF else 0.0
    with np.errstate(all="ignore"):
        error = np.abs((y - nearest) / np.spacing(np.abs(nearest)) - rest)
    # Just below a power of 2, an ulp is half of the power's.
    is_power = np.frexp(np.abs(nearest))[0] == 0.5
    is_below = is_power & (np.sign(rest) == -np.sign(nearest)) & (np.abs(nearest) > sys.float_info.min)
    error = np.where(is_below, error * 2, error)
    return np.where(np.isinf(nearest) | np.isinf(y), np.where(nearest == y, 0.0, INF), error)


def same(a: float, b: float) -> bool:
    """Equal by bits, but for the bits of a nan."""
    return (a != a and b != b) or struct.pack("<d", a) == struct.pack("<d", b)


def differences(name: str, builds: dict[str, Compiled], operands: Sequence[Floats], seed: int) -> list[str]:
    """The builds that do not give Python's bits: at some arguments, at any bits, and at the edges."""
    rng = np.random.default_rng(seed)
    count = min(IN_PYTHON, len(operands[0]))
    chosen = rng.choice(len(operands[0]), count, replace=False)
    anything = [rng.integers(0, 2**64, 2000, dtype=np.uint64).view(np.float64) for _ in operands]
    rows: Sequence[tuple[float, ...]] = POWERS if name == "power" else EDGES[name]
    edges = [np.array([row[i] for row in rows]) for i in range(len(operands))]
    tested = [np.concatenate([x[chosen], y, z]) for x, y, z in zip(operands, anything, edges, strict=True)]
    function = python_function(name)
    expected = [function(*numbers) for numbers in zip(*(x.tolist() for x in tested), strict=True)]
    found = []
    for build, compiled in builds.items():
        pairs = zip(expected, compiled(name, *tested).tolist(), strict=True)
        wrong = [i for i, (a, b) in enumerate(pairs) if not same(a, b)]
        if wrong:
            at = ", ".join(float(x[wrong[0]]).hex() for x in tested)
            found.append(f"{build.upper()} DIFFERS FROM PYTHON at {at} and {len(wrong) - 1} more")
    # The builds among each other, at all arguments.
    every = [compiled(name, *operands) for compiled in builds.values()]
    for build, y in zip(builds, every, strict=True):
        if not np.array_equal(y.view(np.uint64), every[0].view(np.uint64)):
            found.append(f"{build.upper()} DIFFERS")
    return found


def wrong_edges(name: str) -> list[str]:
    """Where the function is not what C99 wants."""
    function = python_function(name)
    rows: Sequence[tuple[float, ...]] = POWERS if name == "power" else [*EDGES[name], (math.nan, math.nan)]
    found = [(row, function(*row[:-1])) for row in rows]
    return [f"{name}{row[:-1]} = {y!r}" for row, y in found if not same(y, row[-1])]


def wrong_references(name: str, operands: Sequence[Floats], y: Floats, error: Floats, seed: int) -> list[str]:
    """Where MPFR does not agree with `decimal` about the error."""
    found = []
    for i in random.Random(seed).sample(range(len(y)), 200):
        numbers = tuple(float(x[i]) for x in operands)
        if math.isfinite(y[i]) and abs(error_of(name, numbers, float(y[i])) - error[i]) > 1e-6:
            found.append(f"MPFR AND DECIMAL DIFFER at {numbers}")
    return found[:1]


def descents(subject: Subject, name: str, evaluate: Evaluate, operands: Sequence[Floats]) -> list[float]:
    """Where a result is smaller than that of a smaller neighbour: at seams, and at the arguments.

    For power it is the base that grows, and what is expected depends on the sign of the exponent.
    """
    if subject.rising is None:
        return []
    low, high = subject.rising
    x, *others = operands
    direction = np.sign(others[0]) if others else np.ones_like(x)
    y = evaluate(name, *operands)
    found: list[float] = []
    following = x
    for _ in range(3):
        following = np.nextafter(following, INF)
        with np.errstate(invalid="ignore"):
            falls = (evaluate(name, following, *others) - y) * direction < 0.0
        found += x[falls & (x > low) & (x < high)].tolist()
    for seam in [] if others else subject.seams:
        near = neighbours(seam, 200)
        near = near[(near > max(low, subject.domain[0])) & (near < min(high, subject.domain[1]))]
        values = np.clip(evaluate(name, near), -sys.float_info.max, sys.float_info.max)
        found += near[1:][np.diff(values) < 0.0].tolist()
    return found
