"""Two runs of tools/cross/driver.py, number by number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass
class Run:
    """What a module is, and its numbers, stage by stage."""

    info: dict[str, Any]
    byteorder: str
    stages: dict[str, Floats]

    @property
    def count(self) -> int:
        return sum(len(numbers) for numbers in self.stages.values())


def read_run(path: Path) -> Run:
    with path.open("rb") as file:
        about = json.loads(file.readline())
        stages = {}
        while header := file.readline():
            stage, count = header.decode().rsplit("\t", 1)
            numbers = file.read(8 * int(count))
            if len(numbers) != 8 * int(count):
                raise ValueError(f"{path} ends in the middle of {stage!r}")
            stages[stage] = np.frombuffer(numbers, dtype="<f8")
    return Run(about["info"], about["byteorder"], stages)


def differing(expected: Floats, found: Floats) -> npt.NDArray[np.bool_]:
    """Where the bits differ. The sign and payload of a nan are no number's business."""
    same: npt.NDArray[np.bool_] = expected.view(np.int64) == found.view(np.int64)
    return ~(same | np.isnan(expected) & np.isnan(found))


def distance(expected: Floats, found: Floats) -> float:
    """The largest difference, relative to the largest finite number; inf where only one of the two is finite."""
    finite = np.isfinite(expected) & np.isfinite(found)
    if differing(expected[~finite], found[~finite]).any():
        return np.inf
    if not finite.any():
        return 0.0
    expected, found = expected[finite], found[finite]
    return float(np.abs(expected - found).max() / max(np.abs(expected).max(), 1e-30))


def compare(expected: Run, found: Run, bound: float = 0.0) -> list[str]:
    """What is wrong with `found`, a line each. Without a bound bits must agree, else distance() must be below it."""
    wrong = []
    if expected.info["digest"] != found.info["digest"]:
        wrong.append(f"another model: {found.info['digest'][:12]} instead of {expected.info['digest'][:12]}")
    if list(expected.stages) != list(found.stages):
        odd = sorted(set(expected.stages) ^ set(found.stages))
        wrong.append(f"other stages: {', '.join(odd[:3]) or 'in another order'}")
        return wrong
    for stage, numbers in expected.stages.items():
        other = found.stages[stage]
        if len(numbers) != len(other):
            wrong.append(f"{stage}: {len(other)} numbers instead of {len(numbers)}")
        elif bound and not (far := distance(numbers, other)) < bound:
            wrong.append(f"{stage}: off by {far:.1e} of the largest number, allowed is {bound:.0e}")
        elif not bound and (where := np.flatnonzero(differing(numbers, other))).size:
            i = where[0]
            first = f"number {i} is {float(other[i]).hex()} instead of {float(numbers[i]).hex()}"
            wrong.append(f"{stage}: {where.size} of {len(numbers)} differ, {first}")
    return wrong


# What tools/cross/library.c prints in a row.
FUNCTIONS = ("exp", "log", "pow", "tanh", "expf", "logf", "powf", "tanhf")


def read_library(printed: bytes) -> Floats:
    """A row for each argument, a column for each function."""
    return np.frombuffer(printed, dtype="<f8").reshape(-1, len(FUNCTIONS))


@dataclass(frozen=True)
class Difference:
    """Of one library function between two processors."""

    count: int
    units: int  # in the last place, at most


def library_differences(expected: Floats, found: Floats) -> dict[str, Difference]:
    """For each function, how many of its results differ in bits."""
    differences = {}
    for name, a, b in zip(FUNCTIONS, expected.T, found.T, strict=True):
        real, integer = (np.float32, np.int32) if name.endswith("f") else (np.float64, np.int64)
        one, other = a.astype(real).view(integer).astype(np.int64), b.astype(real).view(integer).astype(np.int64)
        units = np.abs(one - other)
        differences[name] = Difference(int(np.count_nonzero(units)), int(units.max(initial=0)))
    return differences
