"""micrograd export --html: a model becomes one HTML file that runs and trains it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from micrograd.commands.build import program_of
from micrograd.commands.errors import UsageError
from micrograd.commands.inputs import compiler, compiling
from micrograd.files import identity

STORAGES = ("float16", "bfloat16", "int8")


def add_page_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("web page").add_argument
    add(
        "--html",
        type=Path,
        metavar="FILE",
        help="the page to write: no server, no network; pictures are drawn, other inputs have a form",
    )
    for kind in STORAGES:
        add(f"--{kind}", action="store_const", dest="storage", const=kind, help=f"store the weights as {kind}")
    add("--title", help="of the page (default: the model's description)")
    add("--classes", type=names, metavar="NAME,...", help="what the classes are called")
    add("--features", type=names, metavar="NAME,...", help="what the inputs of a form are called")
    add("--picture", type=size, metavar="HxW", help="the inputs are a picture of this height and width")
    add("--data", type=Path, metavar="X.npy", help="examples of the inputs, which give sliders their ranges")
    add("--compiler", metavar="COMMAND", help="a compiler like clang that knows wasm32")


def names(text: str) -> list[str]:
    """The type of an argument that is a list of names."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"expected names with commas between them, got {text!r}")
    return found


def size(text: str) -> tuple[int, int]:
    """The type of an argument that is a height and a width."""
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise argparse.ArgumentTypeError(f"expected a height and a width as 28x28, got {text!r}")
    return int(height), int(width)


def export_page(options: argparse.Namespace) -> int:
    if options.train or options.input_gradients is not None:
        raise UsageError("--html excludes --train and --input-gradients: a page has both")
    compiler()
    from codegen.pages.page import write_page
    from codegen.weights import read_weights

    for given in (options.weights, options.data):
        if given is not None and identity(given) == identity(options.html):
            raise UsageError(f"the page must be another file than {given}, which is read")
    try:
        weights = None if options.weights is None else read_weights(options.weights)
    except ValueError as error:
        raise UsageError(str(error)) from error
    data = None if options.data is None else read_array(options.data)
    program = program_of(options)
    with compiling(options.model):
        path = write_page(
            program,
            options.html,
            weights,
            storage=options.storage,
            title=options.title,
            classes=options.classes,
            features=options.features,
            picture=options.picture,
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
