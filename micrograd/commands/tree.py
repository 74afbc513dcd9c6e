"""All commands, in one tree of parsers: `micrograd COMMAND ...`, which `python -m micrograd` is too.

A command's file is imported when it is asked for: the list of commands comes at once, without NumPy.
"""

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from micrograd import __version__
from micrograd.commands.command_line import PROGRAM, Parser, did_you_mean
from micrograd.errors import USER_ERROR

# Of each command the file of micrograd.commands that has it, and what it does
COMMANDS = {
    "train": ("train", "train the model and test it after each epoch"),
    "eval": ("predict", "test saved weights, or those of the module"),
    "predict": ("predict", "show images and what the model makes of them"),
    "report": ("report", "write a page about a training run"),
    "import": ("import_model", "make a model of an ONNX file"),
    "build": ("build", "compile a model to a module that trains and predicts"),
    "freeze": ("freeze", "compile a model with its weights: it only predicts"),
    "export": ("export", "write a model as plain C or as a web page"),
    "explain": ("build", "print the loops that are found in a model"),
    "draw": ("draw", "draw a model's graph, its ir or its loops"),
    "check": ("check", "compare the modules with the interpreted engine by bits"),
    "cache": ("cache", "show or empty the folder of compiled models"),
    "completion": ("completion", "print a script that completes commands in a shell"),
}


# What others call them, for "did you mean"
OTHER_NAMES = {
    "compile": "build",
    "convert": "import",
    "onnx": "import",
    "test": "eval",
    "evaluate": "eval",
    "infer": "predict",
    "plot": "draw",
}


class Commands:
    """What a command's file adds its parsers to. Of those that are not asked for only the line in the list is made."""

    def __init__(self, top: Parser, asked: Sequence[str]) -> None:
        self.choices = top.add_subparsers(title="commands", metavar="COMMAND")
        self.asked = asked
        for name, (_, what) in COMMANDS.items():
            if name not in asked:
                self.choices.add_parser(name, help=what)

    def add_parser(self, name: str, **settings: Any) -> Any:
        if name not in self.asked:
            return Parser()  # of the same file, and not needed
        parser = self.choices.add_parser(name, help=COMMANDS[name][1], **settings)
        parser.add_argument(*TRACEBACK, **TRACEBACK_SETTINGS)
        return parser


TRACEBACK = ("--traceback",)
TRACEBACK_SETTINGS: dict[str, Any] = {
    "action": "store_true",
    "default": argparse.SUPPRESS,  # it may stand before the command too
    "help": "show where an error comes from",
}


def tree(asked: Sequence[str] = tuple(COMMANDS)) -> Parser:
    """The parser of `micrograd`, with all options of the commands that are asked for."""
    top = Parser(prog=PROGRAM, description="Train the compiled model, use it and check it; compile and draw models.")
    top.add_argument("-V", "--version", action="version", version=f"micrograd-nn {__version__}")
    top.add_argument(*TRACEBACK, **TRACEBACK_SETTINGS)
    commands = Commands(top, asked)
    for module in dict.fromkeys(COMMANDS[name][0] for name in asked):
        importlib.import_module(f"micrograd.commands.{module}").add_parsers(commands)
    return top


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command. Exits with a usage, or with one line for an error."""
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        near = [OTHER_NAMES[name]] if name in OTHER_NAMES else difflib.get_close_matches(name, COMMANDS, n=1)
        tree([]).error(f"unknown command {name!r}: {did_you_mean(near) or f'{PROGRAM} --help lists them'}")
    top = tree([] if name is None else [name])
    options = top.parse_args(arguments)
    if name is None:
        top.print_help(sys.stderr)
        top.exit(USER_ERROR)
    return options
