"""python -m codegen build | freeze | explain: a Program becomes an extension module, plain C, or an explanation."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codegen.build import build, freeze
from codegen.pipeline import compile_program
from codegen.program import DTYPES, Program, declared, load
from codegen.weights import read_weights
from micrograd.commands.command_line import USER_ERROR, Parser
from micrograd.files import identity


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0, or 2 after a user error."""
    options = parser().parse_args(arguments)
    try:
        for path in options.command(options):
            print(path)
    except Exception as error:  # the Program is the user's own code, which may raise anything
        lines = str(error).splitlines() or [""]
        print(f"error: {type(error).__name__}: {lines[0]}", *lines[1:], sep="\n", file=sys.stderr)
        return USER_ERROR
    return 0


def parser() -> Parser:
    top = Parser(prog="python -m codegen", description=__doc__)
    commands = top.add_subparsers(required=True, parser_class=Parser)
    shared = Parser(add_help=False)
    shared.add_argument(
        "program", metavar="PROGRAM", help="a Python file, or a module as codegen.mnist, with a function program()"
    )
    shared.add_argument("--output", type=Path, default=Path("build"), metavar="DIR", help="default: build")
    shared.add_argument("--dtype", choices=DTYPES, help="default: what the program says")
    shared.add_argument("--compiler", metavar="COMMAND", help="a C compiler other than Python's own")

    build_parser = commands.add_parser("build", parents=[shared], help="compile a program: forward, backward, update")
    build_parser.add_argument("--name", default="nn", help="of the module; default: nn")
    build_parser.set_defaults(command=run_build)

    explain_parser = commands.add_parser("explain", help="print the loops that are found in a program")
    explain_parser.add_argument("program", metavar="PROGRAM", help="as for build")
    explain_parser.set_defaults(command=run_explain, dtype=None)

    freeze_parser = commands.add_parser(
        "freeze",
        parents=[shared],
        help="compile a program with trained weights: it only predicts",
        description="The weights become constants. There are no labels and no gradients.",
    )
    freeze_parser.add_argument("weights", type=Path, metavar="WEIGHTS", help="a safetensors file with the parameters")
    freeze_parser.add_argument("--name", default="nn_infer", help="of the module; default: nn_infer")
    freeze_parser.add_argument(
        "--standalone", action="store_true", help="NAME.h and NAME.c for C programs, instead of a Python module"
    )
    freeze_parser.set_defaults(command=run_freeze)
    return top


def run_build(options: argparse.Namespace) -> list[Path]:
    return [build(read_program(options), options.output, options.name, compiler=options.compiler)]


def run_explain(options: argparse.Namespace) -> list[str]:
    return [compile_program(read_program(options)).explanation()]


def run_freeze(options: argparse.Namespace) -> list[Path]:
    program = read_program(options)
    weights = read_weights(options.weights)
    written = (options.output / f"{options.name}{end}" for end in (".c", ".h", ".ir", "_kernels.h"))
    if identity(options.weights) in map(identity, written):
        raise ValueError(f"the weights must be no file that is written, got {options.weights}")
    if options.standalone:
        source = freeze(program, weights, options.output, options.name, target="c")
        return [source.with_suffix(".h"), source]
    return [freeze(program, weights, options.output, options.name, compiler=options.compiler)]


def read_program(options: argparse.Namespace) -> Program:
    """The Program of a file or module. Raises ValueError or TypeError where there is none."""
    text: str = options.program
    program = load(Path(text)) if text.endswith(".py") else declared(vars(importlib.import_module(text)), text)
    return program if options.dtype is None else replace(program, dtype=options.dtype)


if __name__ == "__main__":
    sys.exit(main())
