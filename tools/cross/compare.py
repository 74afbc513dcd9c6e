"""Two runs of one model, number by number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
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

    def only(self, beginnings: tuple[str, ...]) -> Run:
        """The same run with the stages whose names begin so."""
        return Run(self.info, self.byteorder, {k: x for k, x in self.stages.items() if k.startswith(beginnings)})


def read_run(data: bytes) -> Run:
    """What tools/cross/driver.py wrote. Raises ValueError for anything else."""
    file = BytesIO(data)
    about = json.loads(file.readline())
    stages = {}
    while header := file.readline():
        stage, count = header.decode().rsplit("\t", 1)
        numbers = file.read(8 * int(count))
        if len(numbers) != 8 * int(count):
            raise ValueError(f"the run ends in the middle of {stage!r}")
        stages[stage] = np.frombuffer(numbers, dtype="<f8")
    return Run(about["info"], about["byteorder"], stages)


def differing(expected: Floats, found: Floats) -> npt.NDArray[np.bool_]:
    """Where the bits differ. The sign and payload of a nan do not count."""
    same: npt.NDArray[np.bool_] = expected.view(np.int64) == found.view(np.int64)
    return ~(same | np.isnan(expected) & np.isnan(found))


def compare(expected: Run, found: Run) -> list[str]:
    """What is wrong with `found`, a line each: another model, other stages, or a number with other bits."""
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
        elif (where := np.flatnonzero(differing(numbers, other))).size:
            i = where[0]
            first = f"number {i} is {float(other[i]).hex()} instead of {float(numbers[i]).hex()}"
            wrong.append(f"{stage}: {where.size} of {len(numbers)} differ, {first}")
    return wrong


@dataclass(frozen=True)
class Reference:
    """This machine's runs, by name: at its best SIMD level, and at the baseline, which has no fused multiply-add."""

    levels: Sequence[Mapping[str, Run]]

    def of(self, name: str, found: Run) -> Run:
        """What `found` must equal: the run that fuses as it does. Only a model that asks for it is fused anywhere."""
        return next(runs[name] for runs in self.levels if runs[name].info["fma"] == found.info["fma"])

    def differences(self, found: Mapping[str, Run], stages: tuple[str, ...] = ("",)) -> list[str]:
        """What is wrong, a line each, where the stages whose names begin so are expected."""
        pairs = [(name, self.of(name, run).only(stages), run) for name, run in found.items()]
        return [f"{name}: {line}" for name, expected, run in pairs for line in compare(expected, run)]
