"""Inputs of the commands that use the compiled model: the module, its weights, the images."""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from micrograd import neighbours
from micrograd.commands import checkpoint
from micrograd.commands.command_line import Parser, did_you_mean
from micrograd.data import mnist
from micrograd.errors import UsageError, in_model
from micrograd.files import identity
from micrograd.matching import EXACT, Matching, parsed_map

if TYPE_CHECKING:
    from codegen import Program

MODEL_HELP = (
    "model.py, model.py:function, or a module as codegen.mnist; the function, program() if none is named, takes no "
    "arguments and returns a codegen.Program"
)


def data_options() -> Parser:
    """The options that say which images, as a parent of a command's parser; load_data() takes them."""
    parser = Parser(add_help=False)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder with MNIST's four idx files, plain or .gz (default: $MICROGRAD_MNIST, else a download kept in "
        "the user's cache, else the built-in digits)",
    )
    where.add_argument("--digits", action="store_true", help="the built-in digits instead of MNIST")
    return parser


def load_data(options: argparse.Namespace) -> mnist.Data:
    return mnist.load(options.data, "digits" if options.digits else "auto")


def compiled_model(name: str = "nn") -> ModuleType:
    """nn, which trains, or nn_infer, whose weights are constants. Raises ImportError if it is not there."""
    return our_module(
        name,
        "info",
        f"the compiled module {name} is not installed: pip install micrograd-nn, or in a source tree pip install .",
    )


def compiler() -> Any:
    """The package codegen. Raises ImportError without it or NumPy."""
    return our_module("codegen", "compile_program", "the package codegen is not installed: pip install micrograd-nn")


def our_module(name: str, sign: str, missing: str) -> ModuleType:
    """A module of this project, which has an attribute `sign`. Raises ImportError, which says what hides it.

    Another project's file of this name is not run.
    """
    if name not in sys.modules and (hidden := neighbours.explanation(name)) is not None:
        raise ImportError(hidden)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(missing) from error
    if not hasattr(module, sign):
        raise ImportError(f"{name} is {getattr(module, '__file__', None)}, which is not that of micrograd-nn")
    return module


def load_weights(nn: Any, path: Path, how: Matching = EXACT) -> None:
    nn.load_state_dict(checkpoint.load(path, shapes(nn), how))


def add_matching(add: Callable[..., Any]) -> None:
    """Options for weights with other names or layouts than the model's, for a parser whose add_argument() is `add`."""
    add(
        "--map",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the weights OLD of the file are the model's NEW; OLD= leaves them out; can be given again and again",
    )
    add(
        "--transpose",
        action="append",
        default=[],
        metavar="NAME",
        help="the file has the model's weights NAME transposed, as Keras does; NAME may be a pattern, as '*.weight'",
    )
    add("--match", action="store_true", help="take names and layouts that shapes leave one way for")


def matching_of(options: argparse.Namespace, path: Path | None, option: str) -> Matching:
    """Raises UsageError for options that are for a file, the `option`'s, where there is none."""
    if path is None and (options.map or options.transpose or options.match):
        raise UsageError(f"--map, --transpose and --match are for {option} FILE")
    return Matching(parsed_map(options.map), options.transpose, options.match)


def is_model(path: Path, model: str | None) -> bool:
    """Whether a path is that of the model's Python, which writing would replace. Raises ImportError."""
    if model is None:
        return False
    compiler()
    from codegen import loading

    file = loading.file_of(loading.named(model))
    return file is not None and identity(path) == identity(file)


def shapes(nn: Any) -> dict[str, tuple[int, ...]]:
    """The name and shape of each parameter tensor."""
    return {name: view.shape for name, view in nn.state_dict().items()}


def shapes_of(program: Program) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in program.tensors}


def add_model_argument(add: Callable[..., Any], *names: str, what: str = "", **settings: Any) -> None:
    """Adds the argument that names a model to a parser or group, whose add_argument() is `add`."""
    add(*names, metavar="MODEL", help=f"{what}{MODEL_HELP}", **settings)


def load_program(model: str) -> Program:
    """The Program of a model, as MODEL_HELP names it. Raises UserError, which says where, OSError, and ImportError."""
    compiler()
    from codegen import loading

    name = loading.named(model)
    file = loading.file_of(name)
    if name.is_file:
        check_file(Path(name.place))
    elif file is None and name.place not in sys.modules:
        near = near_files(Path(f"{name.place}.py"))
        raise UsageError(f"{name.place}: no such module; {near or 'a file is named with its ending, as model.py'}")
    with in_model(model, file, is_loading=True):
        return loading.load(model)


@contextmanager
def compiling(model: str) -> Iterator[None]:
    """Explains what the compiler does not take about a model, by a UsageError."""
    codegen = compiler()
    from codegen import loading

    try:
        with in_model(model, loading.file_of(loading.named(model)), is_loading=False):
            yield
    except codegen.CompilerError as error:
        first, _, rest = str(error).partition("\n")
        if "pip install" in rest:
            hint = "pip install 'micrograd-nn[compiler]' brings one"
        else:
            hint = next(
                (line.strip() for line in rest.splitlines() if "error" in line), "--traceback shows what it said"
            )
        raise UsageError(f"{first.rstrip('.:')}: {hint}") from error


def check_file(path: Path) -> None:
    """Raises the OSError of a file that cannot be read, with the names that are near where there is none."""
    try:
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        near = near_files(path)
        raise UsageError(f"{path}: {error.strerror}{near and f': {near}'}") from error


def near_files(path: Path) -> str:
    """The question whether a Python file with nearly this name was meant, if there is one."""
    there = [file.name for file in sorted(path.parent.glob("*.py"))]
    return did_you_mean([str(path.parent / name) for name in difflib.get_close_matches(path.name, there)])
