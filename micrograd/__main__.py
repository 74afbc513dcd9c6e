"""python -m micrograd train | eval | predict | report | draw | check | cache: the compiled model at work; pictures."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from micrograd import __version__
from micrograd.commands import cache as cache_command
from micrograd.commands import check as check_command
from micrograd.commands import draw as draw_command
from micrograd.commands import predict as predict_command
from micrograd.commands import report as report_command
from micrograd.commands import train as train_command
from micrograd.commands.checkpoint import CheckpointError
from micrograd.commands.command_line import INTERRUPTED, USER_ERROR, Parser, UsageError
from micrograd.data.mnist import DataError
from micrograd.dot import DrawError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0, 2 after a user error, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    options = parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has closed the pipe. Python must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        print(f"error: {error.filename}: {error.strerror}" if named else f"error: {error}", file=sys.stderr)
    except (UsageError, DataError, CheckpointError, DrawError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
    return USER_ERROR


def parser() -> Parser:
    top = Parser(prog="python -m micrograd", description="Train the compiled model, use it and check it; draw models.")
    top.add_argument("--version", action="version", version=f"micrograd-nn {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    train_command.add_parser(commands)
    predict_command.add_parsers(commands)
    report_command.add_parser(commands)
    draw_command.add_parser(commands)
    check_command.add_parser(commands)
    cache_command.add_parser(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
