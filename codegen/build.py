"""Program -> importable extension, or plain C: writes the sources and runs the C compiler."""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy.typing as npt

from codegen import checks
from codegen.ir.graph import graph_lines
from codegen.passes.freeze import frozen_program
from codegen.pipeline import TARGETS, Compiled, compile_program
from codegen.program import Program
from codegen.toolchain import compile_extension
from micrograd.files import write_if_changed


def write_sources(compiled: Compiled, directory: Path, name: str, *, ir: bool = False) -> Path:
    """Writes the generated files, and NAME.ir if asked for, to a folder; returns the path of the main source."""
    if ir:
        write_if_changed(directory / f"{name}.ir", "\n".join(graph_lines(compiled.graph)) + "\n")
    for file, text in compiled.files.items():
        write_if_changed(directory / file, text)
    return directory / next(file for file in compiled.files if not file.endswith(".h"))


def build(
    program: Program,
    directory: str | os.PathLike[str],
    name: str = "nn",
    lowering: str | None = None,
    *,
    target: str = "extension",
    compiler: str | None = None,
    flags: list[str] | None = None,
    ir: bool = False,
    gradients_of: str | None = None,
) -> Path:
    """Builds a Program in `directory` and returns the path of the result.

    target     "extension": a compiled module; "python": NAME.py; "c": NAME.c and NAME.h, plain C, which trains if the
               Program has a loss
    name       of the module
    lowering   "loops", or "straightline" for one statement a node
    compiler   the command of a C compiler other than Python's own; `flags` come after the default ones
    ir         whether to write NAME.ir too: one line for each scalar operation
    gradients_of   of plain C that trains: an output whose gradients by the inputs it computes too

    Raises ValueError as compile_program() does, RuntimeError with the compiler's output if it fails.
    """
    if isinstance(flags, str) or not isinstance(flags, list | tuple | None):
        raise TypeError(f"flags must be a list of strings, not {checks.shown(flags)}")
    flags = [checks.text("a flag", flag) for flag in flags or []]
    compiler = None if compiler is None else checks.name("the compiler", compiler)
    folder = checks.folder("the folder", directory).resolve()
    target = checks.choice("target", target, TARGETS)
    if target != "extension" and (compiler is not None or flags):
        raise ValueError(f"compiler and flags are for target='extension'; target={target!r} compiles nothing")
    compiled = compile_program(program, name, lowering, target, gradients_of=gradients_of)
    source = write_sources(compiled, folder, str.__str__(name), ir=ir)
    return compile_extension(source, str.__str__(name), compiler, flags) if target == "extension" else source


def freeze(
    program: Program,
    weights: Mapping[str, npt.ArrayLike],
    directory: str | os.PathLike[str],
    name: str = "nn_infer",
    lowering: str | None = None,
    *,
    target: str = "extension",
    compiler: str | None = None,
    flags: list[str] | None = None,
    ir: bool = False,
    storage: str | None = None,
) -> Path:
    """Builds a Program with its trained weights as constants: it only predicts. Returns the path of the result.

    `weights` maps the Program's parameter names to buffers of their shapes, as state_dict() does. `storage` is
    "float16", "bfloat16" or "int8": the weights are rounded to that and stored so, and computed with in float32. (For
    float64 set Program.storage.) The other arguments are those of build(). Raises ValueError for weights that do not
    fit the Program or are not finite.
    """
    frozen = frozen_program(narrowed(program, storage), weights)
    return build(frozen, directory, name, lowering, target=target, compiler=compiler, flags=flags, ir=ir)


def narrowed(program: Program, storage: str | None) -> Program:
    """The Program with weights of this type, to compute with in float32."""
    return program if storage is None else replace(program, storage=storage, dtype="float32")


def load_extension(path: str | os.PathLike[str], name: str | None = None) -> ModuleType:
    """Imports a built module from its path. A process has one instance of each; see codegen.compile() for more.

    The name is that of the file, which a module must have been built with.
    """
    path = Path(path)
    name = path.name.split(".")[0] if name is None else name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
