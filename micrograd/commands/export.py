"""micrograd export: a model becomes plain C or a web page, which predict or train without Python."""

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from micrograd.commands.build import add_output, program_of
from micrograd.commands.freeze import STORAGES, array_of, narrowed, weights_of
from micrograd.commands.inputs import add_matching, add_model_argument, compiler, compiling, is_model, matching_of
from micrograd.errors import UsageError
from micrograd.files import identity

PAGE_OPTIONS = ("title", "classes", "features", "picture", "data", "compiler")


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "export",
        description="Write a model as plain C, NAME.h and NAME.c, and print their paths. It needs no Python and no "
        "allocation; with --train no C library either. With --html, write it as one web page that runs and trains it.",
    )
    add_model_argument(parser.add_argument, "model")
    add = parser.add_argument
    add(
        "weights",
        type=Path,
        nargs="?",
        metavar="WEIGHTS",
        help="a safetensors file with the parameters; a model that trains, or has no loss, needs none",
    )
    add("--train", action="store_true", help="with forward, backward and update, instead of predictions alone")
    add(
        "--input-gradients",
        metavar="OUTPUT",
        help="with --train: a function for the gradients of an output by the inputs, which shows what a net looks at",
    )
    add("--name", help="of the files and the functions (default: that of the model)")
    add_output(add)
    add_storage(parser.add_mutually_exclusive_group().add_argument)
    add_matching(add)
    add_page_options(parser)
    parser.set_defaults(command=export)


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


def export(options: argparse.Namespace) -> int:
    options.name = options.name or name_of(options.model)
    matching_of(options, options.weights, "the WEIGHTS of a")
    if options.html is not None:
        return export_page(options)
    check_no_page_options(options)
    codegen = compiler()
    from codegen.passes.freeze import frozen_program, set_weights

    program = program_of(options)
    weights = None if options.weights is None else weights_of(options, program)
    if program.loss is None and options.train:
        raise UsageError(f"{options.model} has no loss, so there is nothing to train: leave out --train")
    if options.input_gradients is not None and not options.train:
        raise UsageError("--input-gradients needs --train")
    if program.loss is not None and weights is None and not options.train:
        raise UsageError("a model that only predicts needs WEIGHTS; with --train it starts from its own")
    with compiling(options.model):
        if weights is not None and options.train:
            set_weights(program, weights)
            program = replace(program, initial=None)
        elif weights is not None:
            program = frozen_program(narrowed(options, program), weights)
        path = codegen.build(program, options.output, options.name, target="c", gradients_of=options.input_gradients)
    print(path.with_suffix(".h"))
    print(path)
    return 0


def export_page(options: argparse.Namespace) -> int:
    if options.train or options.input_gradients is not None:
        raise UsageError("--html excludes --train and --input-gradients: a page has both")
    compiler()
    from codegen.pages.page import write_page

    for given in (options.weights, options.data):
        if given is not None and identity(given) == identity(options.html):
            raise UsageError(f"the page must be another file than {given}, which is read")
    if is_model(options.html, options.model):
        raise UsageError(f"the page must not be the model itself, got {options.html}")
    program = program_of(options)
    weights = None if options.weights is None else weights_of(options, program)
    data = None if options.data is None else array_of(options.data)
    with compiling(options.model):
        path = write_page(
            narrowed(options, program),
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


def name_of(model: str) -> str:
    """The name of a model as C can have it: `my-model.py:small` is my_model_small."""
    from codegen import loading

    return re.sub(r"\W", "_", loading.named(model).title, flags=re.ASCII)
