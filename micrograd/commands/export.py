"""micrograd export: a model becomes plain C or a web page, which predict or train without Python."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from micrograd.commands.build import program_of
from micrograd.commands.errors import UsageError
from micrograd.commands.export_page import add_page_options, add_storage, check_no_page_options, export_page
from micrograd.commands.freeze import weights_of
from micrograd.commands.inputs import add_matching, add_model_argument, compiler, compiling
from micrograd.commands.train_model import DTYPES


def add_parsers(commands: Any) -> None:
    """`commands`: what the tree adds parsers to."""
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
    add("-o", "--output", type=Path, default=Path("build"), metavar="DIR", help="where the files go (default: build)")
    add("--dtype", choices=DTYPES, help="of the numbers (default: what the model says)")
    add_storage(add)
    add_matching(add)
    add_page_options(parser)
    parser.set_defaults(command=export)


def export(options: argparse.Namespace) -> int:
    options.name = options.name or name_of(options.model)
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
            if options.storage is not None:
                program = replace(program, storage=options.storage, dtype=options.dtype or "float32")
            program = frozen_program(program, weights)
        path = codegen.build(program, options.output, options.name, target="c", gradients_of=options.input_gradients)
    print(path.with_suffix(".h"))
    print(path)
    return 0


def name_of(model: str) -> str:
    """The name of a model as C can have it: `my-model.py:small` is my_model_small."""
    from codegen import loading

    return re.sub(r"\W", "_", loading.named(model).title, flags=re.ASCII)
