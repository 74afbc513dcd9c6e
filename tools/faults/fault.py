"""What a planted fault is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
    seed: int = 1  # of the first Program; for a fault that few Programs show, shortly before one that does
    kind: str = ""  # of the Programs, for a fault that only one kind shows
    test: str = ""  # that must fail, where it is none that a Program shows
    level: str = ""  # of SIMD, which the processor needs for a fault in code of that level alone
