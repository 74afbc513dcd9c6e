"""python -m micrograd draw: pictures of a model, from its scalar graph to the loops of its C."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from micrograd import dot
from micrograd.commands.inputs import load_program
from micrograd.files import identity, write_whole

KINDS = ("graph", "ir", "loops")
STDOUT = Path("-")
SUFFIXES = [".dot", *(f".{format}" for format in dot.FORMATS)]


def add_parser(commands: Any) -> None:
    """`commands`: what add_subparsers() returned."""
    parser = commands.add_parser(
        "draw",
        help="draw a model's graph, its ir or its loops",
        description="Draw what a model is made of, and what the compiler makes of it. A graph of many nodes is drawn "
        "as its groups: nodes whose expressions have equal shape are one box. Every picture but a .dot file needs "
        "the package graphviz (pip install 'micrograd-nn[draw]') and Graphviz's program dot.",
    )
    parser.set_defaults(command=draw)
    parser.add_argument(
        "model", type=Path, metavar="MODEL.py", help="a Python file whose function program() returns a codegen.Program"
    )
    parser.add_argument(
        "--what",
        choices=KINDS,
        default="graph",
        help="the scalar graph of the loss, the ir after each pass, or the loops of the C (default: graph)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=f"where the picture goes: {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or - for DOT text on stdout "
        "(default: MODEL.WHAT.svg in the current folder)",
    )


def draw(options: argparse.Namespace) -> int:
    path = options.output if options.output is not None else Path(f"{options.model.stem}.{options.what}.svg")
    if path != STDOUT and path.suffix not in SUFFIXES:
        raise dot.DrawError(f"--output must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or be -, got {path}")
    if path != STDOUT and identity(path) == identity(options.model):
        raise dot.DrawError(f"--output must not be the model itself, got {path}")
    lines = statements(options.model, options.what)
    if path == STDOUT:
        sys.stdout.write(dot.text(lines))
        return 0
    is_text = path.suffix == ".dot"
    picture = dot.text(lines).encode() if is_text else dot.render(lines, path.suffix[1:])
    write_whole(path, picture, is_synced=False)
    print(f"{options.what} of {options.model}: {path}")
    return 0


def statements(model: Path, what: str) -> list[str]:
    """The picture of a model file, as DOT statements. Raises DrawError for a file that is no model, OSError."""
    from codegen.backends import pictures

    program = load_program(model)
    try:
        if what == "graph":
            return pictures.scalars(program)
        return pictures.ir(program) if what == "ir" else pictures.loops(program)
    except ValueError as error:
        raise dot.DrawError(f"{model}: {error}") from error
