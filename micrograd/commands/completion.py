"""micrograd completion SHELL: a script that completes commands, options, choices and names of files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from micrograd.commands.command_line import PROGRAM

SHELLS = {
    "bash": f'eval "$({PROGRAM} completion bash)" in ~/.bashrc',
    "zsh": f'eval "$({PROGRAM} completion zsh)" in ~/.zshrc, after compinit',
    "fish": f"{PROGRAM} completion fish > ~/.config/fish/completions/{PROGRAM}.fish",
}


def add_parsers(commands: Any) -> None:
    """`commands`: what the tree adds parsers to."""
    parser = commands.add_parser(
        "completion",
        description="Print a script for a shell, which then completes commands, options, choices and names of files. "
        "It takes the package shtab (pip install 'micrograd-nn[completion]'). "
        + "; ".join(f"{shell}: {how}" for shell, how in SHELLS.items()),
    )
    parser.set_defaults(command=complete)
    parser.add_argument("shell", choices=SHELLS, help="whose script to print")


def complete(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ImportError("completion needs shtab: pip install 'micrograd-nn[completion]'") from error
    from micrograd.commands.tree import tree

    top = tree()
    for parser in parsers(top):
        for action in parser._actions:
            if action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif action.type is Path or action.metavar in ("MODEL", "PATH"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(top, options.shell))
    return 0


def parsers(top: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    found = [top]
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += action.choices.values()
    return found
