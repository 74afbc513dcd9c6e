"""micrograd export: a model becomes one HTML file that runs it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from micrograd.commands.errors import UsageError
from micrograd.commands.inputs import add_model_argument, compiler, compiling, load_program
from micrograd.commands.train_model import DTYPES
from micrograd.files import identity

STORED = ("float16",)


def add_parsers(commands: Any) -> None:
    """`commands`: what the tree adds parsers to."""
    parser = commands.add_parser(
        "export",
        description="Write a model as one HTML file that needs no server and no network: pictures are drawn, other "
        "inputs have a form. It takes clang with wasm-ld, or the package ziglang.",
    )
    add_model_argument(parser.add_argument, "model")
    add = parser.add_argument
    add("--load", type=Path, metavar="FILE", help="a safetensors file with the weights (default: the model's own)")
    add("--dtype", choices=DTYPES, help="of the numbers (default: what the model says)")
    add_page_options(parser)
    parser.set_defaults(command=export)


def add_page_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("web page").add_argument
    add("--html", type=Path, metavar="FILE", required=True, help="the page to write")
    for kind in STORED:
        add(f"--{kind}", action="store_const", dest="stored", const=kind, help=f"store the weights as {kind}")
    add("--title", help="of the page (default: the model's description)")
    add("--classes", type=names, metavar="NAME,...", help="what the classes are called")
    add("--features", type=names, metavar="NAME,...", help="what the inputs of a form are called")
    add("--data", type=Path, metavar="X.npy", help="examples of the inputs, which give sliders their ranges")
    add("--compiler", metavar="COMMAND", help="a compiler like clang that knows wasm32")


def names(text: str) -> list[str]:
    """The type of an argument that is a list of names."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"expected names with commas between them, got {text!r}")
    return found


def export(options: argparse.Namespace) -> int:
    compiler()
    from codegen.pages.page import write_page
    from codegen.weights import read_weights

    for given in (options.load, options.data):
        if given is not None and identity(given) == identity(options.html):
            raise UsageError(f"the page must be another file than {given}, which is read")
    program = load_program(options.model)
    try:
        weights = None if options.load is None else read_weights(options.load)
    except ValueError as error:
        raise UsageError(str(error)) from error
    data = None if options.data is None else read_array(options.data)
    with compiling(options.model):
        program = program if options.dtype is None else replace(program, dtype=options.dtype)
        path = write_page(
            program,
            options.html,
            weights,
            stored=options.stored or "exact",
            title=options.title,
            classes=options.classes,
            features=options.features,
            data=data,
            compiler=options.compiler,
        )
    print(f"{path} {path.stat().st_size:,} bytes")
    return 0


def read_array(path: Path) -> Any:
    """The array of a .npy file, of numbers."""
    import numpy as np

    try:
        with path.open("rb") as file:
            found = np.lib.format.read_array(file)  # which refuses pickles
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path}: not an array of NumPy: {error}") from error
    if found.dtype.kind not in "fiu":
        raise UsageError(f"{path}: expected one array of numbers")
    return found
