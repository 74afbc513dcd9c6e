"""Inputs of the commands that use the compiled model: the module, its weights, the images."""

from __future__ import annotations

import argparse
import importlib
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from micrograd.commands import checkpoint
from micrograd.commands.command_line import Parser, UsageError
from micrograd.data import mnist

if TYPE_CHECKING:
    from codegen import Program


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
    """nn, which trains, or nn_infer, whose weights are constants. Raises ImportError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"the compiled module {name} is not installed: pip install micrograd-nn, or in a source tree pip install ."
        ) from error


def load_weights(nn: Any, path: Path) -> None:
    put_weights(nn, checkpoint.load(path, shapes(nn)))


def put_weights(model: Any, tensors: Mapping[str, Any]) -> None:
    """float64 tensors into a model of any dtype."""
    dtype = model.info()["dtype"]
    model.load_state_dict({name: tensor.astype(dtype) for name, tensor in tensors.items()})


def shapes(nn: Any) -> dict[str, tuple[int, ...]]:
    """The name and shape of each parameter tensor."""
    return {name: view.shape for name, view in nn.state_dict().items()}


def load_program(model: Path) -> Program:
    """The Program of a Python file. Raises UsageError for a file that has none, and OSError."""
    from codegen import load

    with model.open("rb"):  # an unreadable file is not a fault of the model
        pass
    try:
        return load(model)
    except (Exception, SystemExit) as error:
        where = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(model)]
        line = error.lineno if isinstance(error, SyntaxError) else where[-1] if where else None
        message = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
        place = model if line is None else f"{model}, line {line}"
        raise UsageError(f"{place}: {type(error).__name__}: {message}") from error
