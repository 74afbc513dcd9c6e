"""Runs one Program everywhere and compares the bits of everything that can be observed."""

from __future__ import annotations

import itertools
import os
import random
from contextlib import suppress
from pathlib import Path

from codegen import Program, build
from codegen.backends.python.module import generate_python
from codegen.pipeline import build_graph
from tools.fuzz_compiler.reference import Engine, Interpreter
from tools.fuzz_compiler.systems import LEVELS, Module, System, bits, example, images
from tools.fuzz_compiler.systems import compare as systems_agree

__all__ = ["LEVELS", "WARNINGS", "Extension", "Generated", "bits", "compare", "example", "many", "use_threads"]

_names = (f"model_{i}" for i in itertools.count(1))

WARNINGS = [] if os.name == "nt" else ["-Wall", "-Wextra", "-Werror"]


class Extension(Module):
    """A compiled module behind the interface of a Reference."""

    def __init__(self, program: Program, folder: Path, lowering: str, **options: object) -> None:
        name = next(_names)
        flags = [*WARNINGS, *options.pop("flags", [])]
        super().__init__(program, build(program, folder / name, name, lowering, flags=flags, **options), name)

    def reset(self) -> None:
        """The parameters that it was imported with."""
        self.module.reset(*([] if self.program.initial is None else [self.module.info()["seed"]]))


class Generated(Module):
    """A generated Python module. With `lowering` in loops or in statements, else as the compiler chooses."""

    def __init__(self, program: Program, folder: Path, lowering: str | None = None) -> None:
        name = next(_names)
        path = folder / f"{name}.py"
        path.write_text(generate_python(program, name, lowering), encoding="utf-8")
        super().__init__(program, path, name)


def many(program: Program, count: int, seed: int = 0) -> tuple[object, object]:
    """Images and labels, as train() and evaluate() take them."""
    return images(program, [example(program, random.Random(seed + i)) for i in range(count)])


def use_threads(program: Program, folder: Path, flags: list[str]) -> None:
    """Trains and evaluates with several threads, for a sanitizer to watch. A model without inputs has no images."""
    if not len(program.inputs.values):
        return
    module = Extension(program, folder, "loops", flags=flags).module
    data = many(program, 150)
    for batch_size in (1, 64, 100):
        module.train(*data, batch_size=batch_size, threads=3, learning_rate=1e-6)
        views = module.grad_dict()
        module.train(*data, batch_size=batch_size, threads=2, learning_rate=1e-6)
        del views
        module.evaluate(*data, threads=3)


def compare(program: Program, folder: Path, steps: int = 5, seed: int = 0, odd: float = 0.0, **options: object) -> None:
    """Engine = ir interpreter = Python = straight-line C = loops C at every SIMD level, over some steps of training."""
    systems: dict[str, System] = {
        "engine": Engine(program),
        "interpreter": Interpreter(program, build_graph(program)),
        "Python, loops": Generated(program, folder, "loops"),
        "Python, statements": Generated(program, folder, "straightline"),
        "straightline": Extension(program, folder, "straightline", flags=["-O0"]),
        "loops": Extension(program, folder, "loops", **options),
    }
    for level in LEVELS:
        with suppress(ImportError):  # an older processor, or not an x86 one
            systems[f"loops at {level}"] = systems["loops"].at_level(level)
    assert "loops at baseline" in systems
    assert systems_agree(systems, random.Random(seed), steps, odd)
