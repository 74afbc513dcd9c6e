"""Plain C that trains, compiled to a library and called through ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from codegen import Program
from codegen.pipeline import compile_program

COMPILERS = [name for name in ("gcc", "clang", "tcc") if shutil.which(name)]
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
REALS = {"float64": np.float64, "float32": np.float32}
NUMBERS = {"pixels": np.uint8, "label": np.uint8, "tokens": np.int32}
SIZE = """
#include "{name}.h"
size_t size_of_model(void);
size_t size_of_model(void) {{ return sizeof(struct {name}_model); }}
"""


def written(program: Program, folder: Path, name: str = "plain", **options: Any) -> Path:
    """The folder with the files of a model, and size.c."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in compile_program(program, name, target="c", **options).files.items():
        (folder / file).write_text(text)
    (folder / "size.c").write_text(SIZE.format(name=name))
    return folder


class PlainC:
    """A model of a Program, in memory of its own. Numbers go in and out as arrays."""

    def __init__(
        self,
        program: Program,
        folder: Path,
        name: str = "plain",
        compiler: str = "gcc",
        flags: Sequence[str] = ("-O1",),
        **options: Any,
    ) -> None:
        self.program, self.name = program, name
        written(program, folder, name, **options)
        library = folder / f"{name}_{compiler}.so"
        sources = [str(folder / f"{name}.c"), str(folder / "size.c")]
        command = [compiler, *FLAGS, *flags, "-shared", "-fPIC", *sources, "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        self.library = ctypes.CDLL(str(library))
        self.library.size_of_model.restype = ctypes.c_size_t
        self.memory = bytearray(b"\xff" * self.library.size_of_model())  # whatever is there first
        self.address = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        self.real = REALS[program.dtype]
        self("init")

    def __call__(self, function: str, *arguments: Any, result: Any = None) -> Any:
        call = self.library[f"{self.name}_{function}"]
        call.restype = result
        return call(
            self.address, *[a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else a for a in arguments]
        )

    def parts(self, kind: str, example: Any) -> list[np.ndarray]:
        """What an example is in C: an array for each part."""
        parts = self.program.input_parts if kind == "inputs" else self.program.target_parts
        values = example.values() if isinstance(example, dict) else [example][: len(parts)]
        return [
            np.array([*value] if isinstance(value, bytes) else value, dtype=NUMBERS.get(part.kind, self.real)).ravel()
            for value, part in zip(values, parts, strict=True)
        ]

    def example(self, inputs: Any, targets: Any) -> list[np.ndarray]:
        return [*self.parts("inputs", inputs), *self.parts("targets", targets)]

    def forward(self, inputs: Any, targets: Any) -> float:
        return self("forward", *self.example(inputs, targets), result=ctypes.c_double)

    def backward(self) -> None:
        self("backward")

    def zero_grad(self) -> None:
        self("zero_grad")

    def update(self, rate: float, batch_size: int) -> None:
        self("update", ctypes.c_double(rate), ctypes.c_double(batch_size))

    def train_batch(self, inputs: Any, targets: Any, count: int, rate: float) -> float:
        return self("train_batch", *self.example(inputs, targets), count, ctypes.c_double(rate), result=ctypes.c_double)

    def numbers(self, function: str, count: int, *arguments: Any) -> np.ndarray:
        found = np.full(count, np.nan, self.real)
        self(function, *arguments, found)
        return found

    def parameters(self) -> np.ndarray:
        return self.numbers("get_parameters", len(self.program.parameter_values))

    def gradients(self) -> np.ndarray:
        return self.numbers("get_gradients", len(self.program.parameter_values))

    def output(self, name: str, inputs: Any) -> np.ndarray:
        return self.numbers(name, len(self.program.outputs[name]), *self.parts("inputs", inputs))

    def predict(self, inputs: Any) -> int:
        return self("predict", *self.parts("inputs", inputs), result=ctypes.c_int)


def in_python(program: Program) -> ModuleType:
    """The same model as generated Python, which is strict."""
    (text,) = compile_program(program, "in_python", target="python").files.values()
    module = ModuleType("in_python")
    exec(compile(text, "in_python.py", "exec"), module.__dict__)
    return module


def flat(state: Any, program: Program) -> np.ndarray:
    """The numbers of a state_dict() or grad_dict() in the order of the Program's tensors."""
    arrays = [np.asarray(state[tensor.name]).ravel() for tensor in program.tensors]
    return np.concatenate(arrays) if arrays else np.array(array("d"))
