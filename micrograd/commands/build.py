"""micrograd build | explain: a model becomes an extension module, or an explanation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands.command_line import Parser
from micrograd.commands.inputs import add_model_argument, compiler, compiling, load_program
from micrograd.commands.train_model import DTYPES

if TYPE_CHECKING:
    from codegen import Program

WRITTEN = (".c", ".h", ".ir", "_kernels.h", "_kernels_narrow.h")  # the ends of the files of a module


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "build",
        parents=[shared("nn")],
        description="Compile a model to an extension module with forward, backward and update, and print its path. It "
        "takes a C compiler.",
    )
    parser.set_defaults(command=build)

    parser = commands.add_parser(
        "explain", description="Print the loops that are found in a model, as formulas, and what they cost."
    )
    add_model_argument(parser.add_argument, "model")
    parser.set_defaults(command=explain, dtype=None)


def shared(name: str) -> Parser:
    """What `build` and `freeze` take; `name` is that of the module if none is given."""
    parser = Parser(add_help=False)
    add_model_argument(parser.add_argument, "model")
    add = parser.add_argument
    add("--name", default=name, help=f"of the module (default: {name})")
    add_output(add)
    add("--ir", action="store_true", help="write NAME.ir too: one line for each scalar operation")
    add("--compiler", metavar="COMMAND", help="a C compiler other than Python's own")
    return parser


def add_output(add: Callable[..., Any]) -> None:
    add("-o", "--output", type=Path, default=Path("build"), metavar="DIR", help="where the files go (default: build)")
    add("--dtype", choices=DTYPES, help="of the numbers (default: what the model says)")


def build(options: argparse.Namespace) -> int:
    codegen = compiler()
    program = program_of(options)
    with compiling(options.model):
        print(codegen.build(program, options.output, options.name, compiler=options.compiler, ir=options.ir))
    return 0


def explain(options: argparse.Namespace) -> int:
    codegen = compiler()
    program = program_of(options)
    with compiling(options.model):
        print(codegen.compile_program(program).explanation())
    return 0


def program_of(options: argparse.Namespace) -> Program:
    program = load_program(options.model)
    with compiling(options.model):
        return program if options.dtype is None else replace(program, dtype=options.dtype)
