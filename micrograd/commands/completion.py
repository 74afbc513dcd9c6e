"""micrograd completion SHELL: a script that completes commands, options, choices and names of files."""

import argparse
import re
from pathlib import Path
from typing import Any

from micrograd.commands.command_line import PROGRAM

SHELLS = {
    "bash": f'eval "$({PROGRAM} completion bash)" in ~/.bashrc',
    "zsh": f'eval "$({PROGRAM} completion zsh)" in ~/.zshrc, after compinit',
    "fish": f"{PROGRAM} completion fish > ~/.config/fish/completions/{PROGRAM}.fish",
}

FOLDERS = ("DIR", "RUN")  # names of arguments; those whose type is Path are files
FILES = ("MODEL", "PATH")


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        description="Print a script for a shell, which then completes commands, options, choices and names of files. "
        "It takes the package shtab (pip install 'micrograd-nn[completion]'). "
        + "; ".join(f"{shell}: {how}" for shell, how in SHELLS.items()),
    )
    parser.set_defaults(command=complete)
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="|".join(SHELLS), help="whose script to print")


def complete(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ImportError("completion needs shtab: pip install 'micrograd-nn[completion]'") from error
    from micrograd.commands.tree import COMMANDS, tree

    top = tree()
    for name, parser in parsers(top).items():
        parser.description = COMMANDS[name][1] if name in COMMANDS else None
        for action in parser._actions:
            action.help = "a model" if action.metavar == "MODEL" else first_words(action.help)
            if action.metavar in FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif action.type is Path or action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(top, options.shell))
    return 0


def parsers(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of a program and those of its commands, by their names."""
    found = {top.prog: top}
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def first_words(text: str | None) -> str | None:
    """What a shell shows beside an option: its help without defaults and what else is said."""
    return None if text is None else re.split(r"[;:(]", text)[0].strip()
