"""The sources of the programs that run everywhere: made once, here, and compiled for each platform."""

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
from tools.cross import functions

ROOT = Path(__file__).resolve().parent.parent.parent
WEIGHTS = ROOT / "weights" / "mnist.safetensors"


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Program]
    in_python: bool = False  # whether it is generated as Python too, which is strict and trains
    frozen: bool = False
    is_quick: bool = False  # whether it is one of the few of `make cross ARGS=--quick`


def model(name: str) -> Callable[[], Program]:
    """A program of tests/models.py."""
    make: Callable[[], Program] = runpy.run_path(str(ROOT / "tests" / "models.py"))["REGULAR"][name]
    return make


def narrow() -> Program:
    """nn_infer's, which stores its weights as pyproject.toml says."""
    return replace(program(), storage="int8")


def cases() -> list[Case]:
    """Strict programs, among them one with every op; the frozen one; fast ones."""
    models = ("convolution", "xor", "recurrence", "residual", "attention", "edges")
    return [
        Case("nn", program, in_python=True, is_quick=True),
        Case(
            "nn_infer",
            lambda: frozen_program(replace(program(), storage="int8"), read_weights(WEIGHTS)),
            frozen=True,
            is_quick=True,
        ),
        Case("nn_float32", lambda: program(dtype="float32")),
        Case("nn_fused", lambda: program(fma=True, reorder=True), is_quick=True),
        *(Case(name, model(name), in_python=True, is_quick=name == "convolution") for name in models),
        Case("functions", functions.program, in_python=True, is_quick=True),
        Case("recurrence_float32", lambda: replace(model("recurrence")(), dtype="float32")),
        Case("functions_float32", lambda: replace(functions.program(), dtype="float32"), is_quick=True),
    ]


def write(folder: Path, chosen: list[Case]) -> None:
    """NAME.c for each case, python/NAME.py for some, and nn_infer once more as C without Python, in standalone/."""
    for case in chosen:
        made = case.make()
        write_sources(compile_program(made, case.name), folder, case.name)
        if case.in_python:
            write_sources(compile_program(made, case.name, target="python"), folder / "python", case.name)
    freeze(narrow(), read_weights(WEIGHTS), folder / "standalone", target="c")
