"""micrograd import: an ONNX file becomes model.py, which makes the Program, with its weights beside it."""

import argparse
import io
from pathlib import Path
from typing import Any

from micrograd.commands.command_line import positive
from micrograd.commands.inputs import compiler
from micrograd.errors import UsageError
from micrograd.files import write_whole
from micrograd.neighbours import NAMES

LOSSES = ("cross_entropy", "nll", "binary_cross_entropy", "mse")


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "import",
        description="Make a model of an ONNX file: MODEL.py, readable Python, whose program() every command takes, and "
        "MODEL.safetensors with its weights; constants too long for a line are in MODEL.npz. Then `micrograd freeze "
        "MODEL.py MODEL.safetensors` compiles it.",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="MODEL.onnx", help="a trained model, of any tool that exports ONNX")
    add("-o", "--output", type=Path, metavar="MODEL.py", help="default: in this folder, with the name of the ONNX file")
    add("--loss", choices=LOSSES, help="for a model that trains (default: it only predicts)")
    add(
        "--dimension",
        action="append",
        default=[],
        metavar="NAME=LENGTH",
        help="of a dimension that may vary; the first one is that of examples, and is 1",
    )
    add(
        "--pixels",
        type=positive,
        nargs="?",
        const=1 / 255,
        metavar="SCALE",
        help="the input is images, whose unsigned bytes are multiplied by this (1 / 255 if none is given)",
    )
    add("--limit", type=int, metavar="COUNT", help="refuse models of more scalar operations and weights")
    add("--force", action="store_true", help="write over files that exist")
    parser.set_defaults(command=import_model)


def import_model(options: argparse.Namespace) -> int:
    compiler()
    from codegen.onnx.module import Module
    from codegen.onnx.program import imported_file, program_of
    from codegen.onnx.reader import read
    from codegen.onnx.tensors import LIMIT

    output = options.output or Path(f"{options.file.stem}.py")
    if output.suffix != ".py" or not output.stem.isidentifier():
        raise UsageError(f"{output}: the name of a module is letters and digits, and .py: -o model.py")
    if output.stem in (*NAMES, "numpy"):
        raise UsageError(f"{output} would hide the module {output.stem}: -o model.py")
    limit = LIMIT if options.limit is None else options.limit
    dimensions = dict(map(_dimension, options.dimension))
    model = imported_file(read(options.file), dimensions, options.pixels, limit)
    program = program_of(model, options.loss)  # so that no file is written of what is no Program
    module = Module(model, output.stem, options.loss)
    files = {output: module.text.encode()}
    if module.weights:
        files[output.with_suffix(".safetensors")] = _safetensors(module.weights)
    if module.constants:
        files[output.with_suffix(".npz")] = _npz(module.constants)
    there = [file for file in files if file.exists()]
    if there and not options.force:
        raise UsageError(f"{there[0]} exists: --force writes over it")
    for file, content in files.items():
        write_whole(file, content)
        print(file)
    print(f"{len(model.graph.steps)} operations, {len(program.parameter_values):,} parameters")
    return 0


def _dimension(text: str) -> tuple[str, int]:
    name, _, length = text.rpartition("=")
    if not name or not length.isdecimal():
        raise UsageError(f"--dimension {text}: expected NAME=LENGTH, as --dimension sequence=16")
    return name, int(length)


def _safetensors(tensors: dict[str, Any]) -> bytes:
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise ImportError(f"writing weights needs safetensors: pip install 'micrograd-nn[onnx]' ({error})") from error
    return bytes(save({name: tensor.copy(order="C") for name, tensor in tensors.items()}))


def _npz(arrays: dict[str, Any]) -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()
