"""The C of the programs that run everywhere: made once, here, and compiled for each processor."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from codegen.build import freeze, write_sources
from codegen.mnist import program
from codegen.passes.freeze import frozen_program
from codegen.pipeline import compile_program
from codegen.program import Program
from codegen.weights import read_weights

ROOT = Path(__file__).resolve().parent.parent.parent
WEIGHTS = ROOT / "weights" / "mnist.safetensors"


@dataclass(frozen=True)
class Case:
    """A program, and how far it may be from the same program on this machine: not by a bit if `bound` is 0."""

    name: str
    make: Callable[[], Program]
    bound: float = 0.0


def model(name: str) -> Callable[[], Program]:
    """A program of tests/models.py."""
    make: Callable[[], Program] = runpy.run_path(str(ROOT / "tests" / "models.py"))["REGULAR"][name]
    return make


def cases() -> list[Case]:
    """Strict programs with and without library functions, the frozen one, and fast ones.

    tanhf is another one on another processor: see docs/architecture.md. Its bound is the one of tests/test_fast.py.
    """
    return [
        Case("nn", program),
        Case("nn_infer", lambda: frozen_program(program(), read_weights(WEIGHTS))),
        Case("nn_float32", lambda: program(dtype="float32")),
        Case("nn_fused", lambda: program(fma=True, reorder=True)),
        *(Case(name, model(name)) for name in ("convolution", "xor", "recurrence", "residual", "attention", "edges")),
        Case("recurrence_float32", lambda: replace(model("recurrence")(), dtype="float32"), bound=2e-5),
    ]


def write(folder: Path, chosen: list[Case]) -> None:
    """NAME.c for each case, and nn_infer once more as C without Python, in folder/standalone."""
    for case in chosen:
        write_sources(compile_program(case.make(), case.name), folder, case.name)
    freeze(program(), read_weights(WEIGHTS), folder / "standalone", target="c")
