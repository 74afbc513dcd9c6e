"""micrograd freeze: a model with its weights becomes a module that only predicts, plain C, or a wheel."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands.build import WRITTEN, program_of, shared
from micrograd.commands.command_line import from_zero
from micrograd.commands.inputs import add_matching, compiler, compiling, matching_of, shapes_of
from micrograd.data.shards import npy_header
from micrograd.errors import UsageError, one_line
from micrograd.files import identity
from micrograd.matching import matched
from micrograd.neighbours import NAMES

if TYPE_CHECKING:
    import numpy.typing as npt

    from codegen import Program

    Array = npt.NDArray[Any]

STORAGES = ("float16", "bfloat16", "int8")
NOTHING_COMPILED = ("standalone", "wheel")
TOLERANCE = 1e-4  # of outputs, where weights are not narrow
PROJECT = """\
[build-system]
requires = ["setuptools", "micrograd-nn[compile]"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "A trained model that only predicts"
requires-python = ">=3.11"

[tool.micrograd-nn.models]
{name} = {{ program = "the-model.py", weights = "weights.safetensors"{storage}, dtype = "{dtype}" }}
"""
# In the user's folder, whose files the model may read. The file's name is that of no module.
MODEL = """\
from contextlib import chdir
from codegen import load

def program():
    with chdir({folder!r}):
        return load({model!r})
"""


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "freeze",
        parents=[shared("nn_infer")],
        description="Compile a model with trained weights as constants: a module that only predicts, without labels "
        "and gradients, or with --standalone a C file, or with --wheel a wheel.",
    )
    add = parser.add_argument
    add("weights", type=Path, metavar="WEIGHTS", help="a safetensors file with the parameters")
    form = parser.add_mutually_exclusive_group().add_argument
    form("--standalone", action="store_true", help="NAME.h and NAME.c for C programs, instead of a Python module")
    form("--wheel", action="store_true", help="a wheel with the module and its type stubs, for pip install")
    add("--wheel-version", metavar="VERSION", help="of the wheel (default: 0.1.0)")
    narrow = parser.add_mutually_exclusive_group().add_argument
    for storage in STORAGES:
        what = (
            "one byte for each weight, and a scale for each row" if storage == "int8" else "two bytes for each weight"
        )
        narrow(f"--{storage}", dest="storage", action="store_const", const=storage, help=f"{what}; computes in float32")
    add(
        "--check",
        nargs=2,
        type=Path,
        metavar=("X.npy", "Y.npy"),
        help="compare with these outputs of these inputs, or, where Y has whole numbers, with these classes",
    )
    add("--check-output", metavar="OUTPUT", help="that Y has the numbers of (default: the prediction, or what fits)")
    add(
        "--tolerance",
        type=from_zero,
        metavar="T",
        help="exit with 1 if an output differs by more, or if narrow weights lose more accuracy, as 0.001 for 0.1 %% "
        f"(default: {TOLERANCE} for outputs of weights that are not narrow, else any)",
    )
    add_matching(add)
    parser.set_defaults(command=freeze)


def freeze(options: argparse.Namespace) -> int:
    for form in NOTHING_COMPILED:
        if getattr(options, form) and options.compiler is not None:
            why = "compiles nothing" if form == "standalone" else "takes that of CC"
            raise UsageError(f"--{form} excludes --compiler: it {why}")
    if options.wheel and options.ir:
        raise UsageError("--wheel excludes --ir: no folder stays")
    if options.wheel_version is not None and not options.wheel:
        raise UsageError("--wheel-version needs --wheel")
    if options.wheel and options.name in NAMES:
        raise UsageError(f"--wheel needs --name NAME: {options.name} is a module of micrograd-nn itself")
    if options.wheel and options.name.strip("_") != options.name:
        raise UsageError(f"--wheel needs a --name without _ at its ends, got {options.name}")
    codegen = compiler()
    program = program_of(options)
    weights = weights_of(options, program)
    check = Check.of(options, program)
    if options.storage is not None and check is not None and check.has_classes:
        check.before = check.classes_of(_compiled(options, program, weights))
    program = narrowed(options, program)
    if options.wheel:
        path = wheel(options, program, weights)
    else:
        target = "c" if options.standalone else "extension"
        with compiling(options.model):
            path = codegen.freeze(
                program,
                weights,
                options.output,
                options.name,
                target=target,
                compiler=options.compiler,
                ir=options.ir,
            )
    if options.storage is not None:
        print(f"weights   {weight_bytes(program):,} bytes ({options.storage})")
    is_module = not (options.standalone or options.wheel)
    passed = True
    if check is not None:
        model = codegen.load_extension(path) if is_module else _compiled(options, program, weights)
        passed = check.report(model, options)
    if options.standalone:
        print(path.with_suffix(".h"))
    print(path)
    return 0 if passed else 1


def narrowed(options: argparse.Namespace, program: Program) -> Program:
    """The Program with weights of the type that is asked for, to compute with in float32."""
    if options.storage is None:
        return program
    return replace(program, storage=options.storage, dtype=options.dtype or "float32")


def _compiled(options: argparse.Namespace, program: Program, weights: dict[str, Any]) -> Any:
    """The frozen model in this process."""
    from codegen.passes.freeze import frozen_program

    with compiling(options.model):
        return compiler().compile(frozen_program(program, weights))


def weights_of(options: argparse.Namespace, program: Program) -> dict[str, Any]:
    """The tensors of a file. Raises UsageError for one that is damaged, or that would be written over."""
    from codegen.weights import read_weights

    if identity(options.weights) in (identity(options.output / f"{options.name}{end}") for end in WRITTEN):
        raise UsageError(f"the weights must be no file that is written, got {options.weights}")
    try:
        tensors = read_weights(options.weights)
    except ValueError as error:
        raise UsageError(str(error)) from error
    how = matching_of(options, options.weights, "WEIGHTS")
    return matched(tensors, shapes_of(program), how, str(options.weights))


def weight_bytes(program: Program) -> int:
    """What the weights take: two bytes each, or one each and a float32 for each row."""
    count = len(program.parameter_values)
    if program.storage != "int8":
        return 2 * count
    return count + 4 * sum(tensor.shape[0] if len(tensor.shape) > 1 else 1 for tensor in program.tensors)


# --check: a frozen model beside the outputs, or the classes, that it should have


class Check:
    """Inputs, and the outputs or the classes that a model should have for them."""

    def __init__(self, program: Program, inputs: Array, expected: Array, output: str | None) -> None:
        from codegen.program import Floats, Pixels

        self.expected = expected
        self.before: Array | None = None  # the classes of weights that are not narrow
        self.has_classes = expected.dtype.kind in "iu" and output is None
        self.count = len(program.input_values)
        if not isinstance(program.inputs, Pixels | Floats):
            raise UsageError("--check takes a model with one array of Pixels or Floats")
        is_bytes = isinstance(program.inputs, Pixels)
        if inputs.ndim == 0 or expected.ndim == 0 or len(inputs) != len(expected) or len(inputs) == 0:
            raise UsageError(f"--check takes as many inputs as outputs, got {inputs.shape} and {expected.shape}")
        if inputs[0].size != self.count or (is_bytes and inputs.dtype != "u1") or inputs.dtype.kind not in "fiu":
            kind = "bytes (uint8)" if is_bytes else "numbers"
            got = f"{inputs.dtype} of the shape {inputs.shape}"
            raise UsageError(f"--check takes rows of {self.count} {kind} as inputs, got {got}")
        self.inputs = inputs.reshape(len(inputs), -1).astype("u1" if is_bytes else "f8", "C")
        if self.has_classes:
            if expected.size != len(inputs) or program.prediction is None:
                raise UsageError(
                    f"--check takes one class for each input of a model with a prediction, got {expected.shape}"
                )
            return
        self.output = self._output(program, output)

    def _output(self, program: Program, asked: str | None) -> str:
        size = self.expected[0].size
        names = [name for name in (asked, program.prediction, *program.outputs) if name is not None]
        fits = next((name for name in names if len(program.outputs.get(name, ())) == size), None)
        if fits is None or (asked is not None and fits != asked) or self.expected.dtype.kind not in "fiu":
            has = ", ".join(f"{name} ({len(values)})" for name, values in program.outputs.items())
            got = f"{self.expected.dtype} of the shape {self.expected.shape}" + (f" for {asked}" if asked else "")
            raise UsageError(f"--check takes rows of numbers of one of the outputs {has}, got {got}")
        return fits

    @classmethod
    def of(cls, options: argparse.Namespace, program: Program) -> Check | None:
        if options.check is None:
            for name in ("check_output", "tolerance"):
                if getattr(options, name) is not None:
                    raise UsageError(f"--{name.replace('_', '-')} needs --check X.npy Y.npy")
            return None
        inputs, expected = map(array_of, options.check)
        return cls(program, inputs, expected, options.check_output)

    def classes_of(self, model: Any) -> Array:
        import numpy as np

        found = model.predict_batch(self.inputs)
        return np.frombuffer(found, np.uint8) if isinstance(found, bytes) else np.asarray(found)

    def report(self, model: Any, options: argparse.Namespace) -> bool:
        """Prints how a model does, and returns whether that is good enough."""
        import numpy as np

        rows = f"of {len(self.inputs):,} rows"
        if self.has_classes:
            expected = self.expected.ravel()
            after = float((self.classes_of(model) == expected).mean())
            if self.before is None:
                print(f"check     accuracy {after:.2%} {rows}")
                return True
            before = float((self.before == expected).mean())
            print(f"check     accuracy {before:.2%}, with {options.storage} {after:.2%} {rows}")
            return options.tolerance is None or before - after <= options.tolerance
        found = np.asarray(model.outputs_batch(self.inputs)[self.output], dtype=np.float64).reshape(
            len(self.inputs), -1
        )
        wanted = self.expected.reshape(found.shape).astype(np.float64)
        with np.errstate(invalid="ignore"):
            differences = np.where(found == wanted, 0.0, np.abs(found - wanted))
        differences[np.isnan(found) & np.isnan(wanted)] = 0
        largest = float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max())
        most = options.tolerance if options.tolerance is not None else None if options.storage else TOLERANCE
        row = int(differences.argmax()) // found.shape[1]
        print(f"check     largest difference {largest:.3g} {rows} of {self.output}, in row {row}")
        if most is not None and not largest <= most:
            print(f"check     that is more than {most:g}")
            return False
        return True


def array_of(path: Path) -> Array:
    """The numbers of a .npy file, as numpy.save() writes it. Raises UsageError for anything else, and OSError.

    Only the header is parsed, as a literal, and no more is read than the file has.
    """
    import numpy as np

    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a file")
    try:
        with path.open("rb") as file:
            shape, is_fortran, dtype = npy_header(file)
            content = file.read()
        if dtype.kind not in "fiu" or len(content) != prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
            raise ValueError(f"{len(content):,} bytes of {dtype} for the shape {shape}")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{path}: not an array of numbers, as numpy.save() writes it: {error}") from error


# --wheel: that of a project that has nothing but a frozen model, made in a temporary folder


def wheel(options: argparse.Namespace, program: Program, weights: dict[str, Any]) -> Path:
    """Builds the wheel of a Program with these weights in the folder of --output. Raises UsageError."""
    import setuptools  # noqa: F401 - which has packaging, if nothing else has
    from packaging.version import InvalidVersion, Version

    from codegen.loading import named
    from codegen.pipeline import checked_name
    from codegen.weights import write_weights

    try:
        version = str(Version(options.wheel_version or "0.1.0"))
    except InvalidVersion as error:
        raise UsageError(f"--wheel-version must be one as 1.2.0, got {options.wheel_version!r}") from error
    with compiling(options.model):
        name = checked_name(options.name, "python")
    output = Path(os.path.abspath(options.output))
    output.mkdir(parents=True, exist_ok=True)
    storage = f', storage = "{program.storage}"' if program.storage else ""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        text = PROJECT.format(name=name, version=version, storage=storage, dtype=program.dtype)
        (project / "pyproject.toml").write_text(text, encoding="utf-8")
        text = MODEL.format(folder=os.getcwd(), model=named(options.model).whole)
        (project / "the-model.py").write_text(text, encoding="utf-8")
        write_weights(project / "weights.safetensors", weights)
        with compiling(options.model), chdir(project):
            return output / _built(output)


def _built(output: Path) -> str:
    """The name of the wheel of the project in the current folder. Raises UsageError."""
    from setuptools import build_meta
    from setuptools.errors import BaseError

    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            return str(build_meta.build_wheel(str(output)))
    except (BaseError, SystemExit) as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise UsageError(one_line(error).removeprefix("error: ")) from error
