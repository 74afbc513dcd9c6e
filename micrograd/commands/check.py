"""micrograd check: the installed modules have the bits of the interpreted engine, on this machine.

It needs only the engine and the standard library. Each SIMD level and number of threads has a process of its own,
because a module chooses its level when it is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from micrograd import __version__
from micrograd.commands.errors import UsageError
from micrograd.commands.inputs import compiled_model
from micrograd.commands.observations import FROZEN_WEIGHTS, Interpreted, expected_of_frozen, observe

LEVELS = ("baseline", "avx2", "avx512")
THREADS = (1, 3)
PATIENCE = 120  # seconds; a process takes a fraction of one
DIFFERENT = 1  # the exit code

Numbers = Mapping[str, Sequence[float]]


def add_parsers(commands: Any) -> None:
    """`commands`: what the tree adds parsers to."""
    parser = commands.add_parser(
        "check",
        description="Runs the net as a graph of Values, and nn at every SIMD level of this processor with one thread "
        "and with several, and compares every loss, output, gradient and parameter, bit by bit; and the outputs of "
        "nn_infer. It takes some seconds. The exit code is 0 where all are equal, else 1.",
    )
    parser.set_defaults(command=check)


def check(_options: argparse.Namespace) -> int:
    nn, nn_infer = compiled_model("nn"), compiled_model("nn_infer")
    info = nn.info()
    if info["mode"] != "strict":
        raise UsageError(f"this nn was built with {info['dtype']} and fast arithmetic: only strict mode has these bits")
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"machine   {platform.platform()}, {implementation}")
    print(f"package   micrograd-nn {__version__}, compiled by {info['compiler']}")
    print(f"model     {info['architecture']}, digest {info['digest'][:16]}")
    problems = [
        f"{module.__name__} is of version {module.__version__}, micrograd of {__version__}"
        for module in (nn, nn_infer)
        if module.__version__ != __version__
    ]
    if not nn_infer.info()["weights"].startswith(FROZEN_WEIGHTS):
        problems.append(f"nn_infer has the weights {nn_infer.info()['weights'][:16]}, expected {FROZEN_WEIGHTS}")
    start = time.perf_counter()
    expected = dict(observe(Interpreted()))
    print(f"engine    {count(expected):,} numbers in {time.perf_counter() - start:.1f} s", flush=True)
    compared = 0
    for name, numbers in (("nn", expected), ("nn_infer", dict(expected_of_frozen()))):
        for level in LEVELS:
            found = compare(name, level, numbers)
            if found is None:
                print(f"{name:9} {level}: not on this processor")
                continue
            problems += found
            compared += count(numbers) * len(THREADS)
            verdict = "different" if found else "equal"
            threads = " and ".join(map(str, THREADS))
            print(f"{name:9} {level}, with {threads} threads: {count(numbers):,} numbers, {verdict}", flush=True)
    for problem in problems:
        print(f"DIFFERENT: {problem}")
    if not problems:
        print(f"OK: {compared:,} numbers have the bits of the interpreted engine")
    return DIFFERENT if problems else 0


def compare(name: str, level: str, expected: Numbers) -> list[str] | None:
    """The differences as text; None if the processor does not have the level."""
    problems = []
    for threads in THREADS:
        where = f"{name} at {level} with {threads} thread{'s' if threads > 1 else ''}"
        try:
            seen = observed(name, level, threads)
        except RuntimeError as error:
            problems.append(f"{where}: {error}")
            continue
        if seen is None:
            return None
        found = difference(expected, seen)
        if found is not None:
            problems.append(f"{where}: {found}")
    return problems


def observed(name: str, level: str, threads: int) -> Numbers | None:
    """What a module computes in a process of its own; None without that level. Raises RuntimeError if it fails."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # what this process would import
    try:
        done = subprocess.run(
            [sys.executable, "-m", "micrograd.commands.observations", name, str(threads)],
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
    shown = json.loads(done.stdout)
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
