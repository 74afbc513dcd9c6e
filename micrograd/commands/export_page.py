"""micrograd export --html: a model becomes one HTML file that runs and trains it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from micrograd.commands.build import program_of
from micrograd.commands.errors import UsageError
from micrograd.commands.freeze import STORAGES, array_of, weights_of
from micrograd.commands.inputs import compiler, compiling
from micrograd.files import identity

PAGE_OPTIONS = ("title", "classes", "features", "picture", "data", "compiler")


def add_storage(add: Callable[..., Any]) -> None:
    for storage in STORAGES:
        about = f"store weights as {storage}, and compute in float32"
        add(f"--{storage}", action="store_const", dest="storage", const=storage, help=about)


def check_no_page_options(options: argparse.Namespace) -> None:
    """Raises UsageError for an option that plain C would ignore."""
    for name in PAGE_OPTIONS:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} needs --html")
    if options.storage is not None and (options.train or options.weights is None):
        raise UsageError(f"--{options.storage} is for WEIGHTS that become constants, or for --html")


def add_page_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("web page").add_argument
    add(
        "--html",
        type=Path,
        metavar="FILE",
        help="the page to write: no server, no network; pictures are drawn, other inputs have a form",
    )
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

    for given in (options.weights, options.data):
        if given is not None and identity(given) == identity(options.html):
            raise UsageError(f"the page must be another file than {given}, which is read")
    program = program_of(options)
    weights = None if options.weights is None else weights_of(options, program)
    data = None if options.data is None else array_of(options.data)
    with compiling(options.model):
        if options.storage is not None:
            program = replace(program, storage=options.storage, dtype=options.dtype or "float32")
        path = write_page(
            program,
            options.html,
            weights,
            title=options.title,
            classes=options.classes,
            features=options.features,
            picture=options.picture,
            data=data,
            compiler=options.compiler,
        )
    print(f"{path} {path.stat().st_size:,} bytes")
    return 0
