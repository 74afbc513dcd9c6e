"""micrograd draw: pictures of a model, from its scalar graph to the loops of its C."""

import argparse
from pathlib import Path
from typing import Any

from micrograd import dot
from micrograd.commands.inputs import add_model_argument, compiler, compiling, is_model, load_program
from micrograd.files import write_whole

KINDS = ("graph", "ir", "loops")
STDOUT = Path("-")
SUFFIXES = [".dot", *(f".{format}" for format in dot.FORMATS)]


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "draw",
        description="Draw what a model is made of, and what the compiler makes of it. A graph of many nodes is drawn "
        "as its groups: nodes whose expressions have equal shape are one box. Every picture but a .dot file needs "
        "the package graphviz (pip install 'micrograd-nn[draw]') and Graphviz's program dot.",
    )
    parser.set_defaults(command=draw)
    add_model_argument(parser.add_argument, "model")
    parser.add_argument(
        "--what",
        choices=KINDS,
        default="graph",
        help="the scalar graph of the loss, the ir after each pass, or the loops of the C (default: graph)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"where the picture goes: {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or - for DOT text on stdout "
        "(default: MODEL.WHAT.svg in the current folder)",
    )


def draw(options: argparse.Namespace) -> int:
    compiler()
    from codegen.loading import named

    name = named(options.model)
    path = options.output if options.output is not None else Path(f"{name.title}.{options.what}.svg")
    if path != STDOUT and path.suffix not in SUFFIXES:
        raise dot.DrawError(f"--output must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or be -, got {path}")
    if path != STDOUT and is_model(path, options.model):
        raise dot.DrawError(f"--output must not be the model itself, got {path}")
    lines = statements(options.model, options.what)
    if path == STDOUT:
        print(dot.text(lines), end="")
        return 0
    is_text = path.suffix == ".dot"
    picture = dot.text(lines).encode() if is_text else dot.render(lines, path.suffix[1:])
    write_whole(path, picture, is_synced=False)
    print(f"{options.what} of {options.model}: {path}")
    return 0


def statements(model: str, what: str) -> list[str]:
    """The picture of a model, as DOT statements. Raises UserError for a name that is no model's, OSError."""
    program = load_program(model)
    from codegen.backends import pictures

    with compiling(model):
        if what == "graph":
            return pictures.scalars(program)
        return pictures.ir(program) if what == "ir" else pictures.loops(program)
