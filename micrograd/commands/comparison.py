"""The comparison of a compiled module with expected numbers: at every SIMD level, with one thread and with several.

Each level and number of threads has a process of its own, because a module chooses its level when it is imported.
"""

import importlib
import json
import os
import struct
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

LEVELS = ("baseline", "avx2", "avx512")
THREADS = (1, 3)
PATIENCE = 120  # seconds; a process takes a fraction of one
DIFFERENT = 1  # the exit code
SCRIPT = "micrograd.commands.observations"  # prints what nn or nn_infer computes

Numbers = Mapping[str, Sequence[float]]


def compare_levels(name: str, expected: Numbers, problems: list[str], script: str = SCRIPT) -> int:
    """Compares a module at each level and says so. Adds differences to the problems; returns how many were compared."""
    compared = 0
    for level in LEVELS:
        found = compare(name, level, expected, script)
        if found is None:
            print(f"{name:9} {level}: not on this processor")
            continue
        problems += found
        compared += count(expected) * len(THREADS)
        verdict = "different" if found else "equal"
        threads = " and ".join(map(str, THREADS))
        print(f"{name:9} {level}, with {threads} threads: {count(expected):,} numbers, {verdict}", flush=True)
    return compared


def conclude(problems: list[str], compared: int, source: str) -> int:
    """Says how it ended and returns the exit code."""
    for problem in problems:
        print(f"DIFFERENT: {problem}")
    if not problems:
        print(f"OK: {compared:,} numbers have the bits of {source}")
    return DIFFERENT if problems else 0


def compare(name: str, level: str, expected: Numbers, script: str = SCRIPT) -> list[str] | None:
    """The differences as text; None if the processor does not have the level."""
    problems = []
    for threads in THREADS:
        where = f"{name} at {level} with {threads} thread{'s' if threads > 1 else ''}"
        try:
            seen = observed(name, level, threads, script)
        except RuntimeError as error:
            problems.append(f"{where}: {error}")
            continue
        if seen is None:
            return None
        found = difference(expected, seen)
        if found is not None:
            problems.append(f"{where}: {found}")
    return problems


def observed(name: str, level: str, threads: int, script: str = SCRIPT) -> Numbers | None:
    """What a module computes in a process of its own; None without that level. Raises RuntimeError if it fails."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # what this process would import
    try:
        done = subprocess.run(
            [sys.executable, "-m", script, name, str(threads)],
            env=os.environ | {"NN_SIMD": level, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"timed out after {PATIENCE} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise RuntimeError(f"the process ended with {done.returncode}: {lines[-1]}")
    return answered(done.stdout)


def answer(observe: Callable[[Any, int], Iterable[tuple[str, Sequence[float]]]]) -> None:
    """What the script prints for observed(): the numbers of a module, or null without the level."""
    name, threads = sys.argv[1], int(sys.argv[2])
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if not str(error).startswith("NN_SIMD="):
            raise
        print("null")
        return
    seen = observe(module, threads)
    json.dump({what: array("d", numbers).tobytes().hex() for what, numbers in seen}, sys.stdout)


def answered(text: str) -> Numbers | None:
    """What answer() printed."""
    shown = json.loads(text)
    return None if shown is None else {what: array("d", bytes.fromhex(digits)) for what, digits in shown.items()}


def difference(expected: Numbers, seen: Numbers) -> str | None:
    """The first number with different bits, as text, and how many differ. None if all are equal."""
    if [(what, len(numbers)) for what, numbers in expected.items()] != [(w, len(n)) for w, n in seen.items()]:
        return "a model of another shape"
    first = None
    total = 0
    for what, numbers in expected.items():
        if array("d", numbers) == seen[what]:
            continue
        wrong = [i for i, pair in enumerate(zip(numbers, seen[what], strict=True)) if bits(pair[0]) != bits(pair[1])]
        total += len(wrong)
        if wrong and first is None:
            i = wrong[0]
            place = f", number {i} of {len(numbers):,}," if len(numbers) > 1 else ""
            first = f"{what}{place} is {seen[what][i].hex()}, expected {numbers[i].hex()}"
    return None if first is None else f"{first}; {total:,} of {count(expected):,} numbers differ"


def bits(number: float) -> bytes:
    """The bits that are compared: not the sign of a zero, nor the payload of a nan."""
    return b"nan" if number != number else struct.pack("<d", 0.0 if number == 0.0 else number)


def count(numbers: Numbers) -> int:
    return sum(map(len, numbers.values()))
