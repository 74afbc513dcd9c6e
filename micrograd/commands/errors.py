"""How the command line reports errors: one line for each mistake of the user, with file and line where there are any.

Example: of a model.py whose third line uses a name that is missing comes

    error: model.py:3: NameError: name 'y' is not defined

`--traceback` shows the traceback too. An error that is nobody's mistake but this program's keeps its traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from micrograd.errors import UserError, is_own, one_line, place_in

USER_ERROR = 2  # the exit code after a user error
INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended

OF_THE_MODEL = (ValueError, TypeError, ArithmeticError)  # what the compiler raises for a Program that it does not take


class UsageError(UserError):
    """A mistake on the command line, or in what it names."""


def run(command: Callable[[], int], is_traceback_shown: bool = False) -> int:
    """Runs a command and returns the exit code: its own, 2 after a user error, 130 after Ctrl-C."""
    try:
        with warnings_in_a_line():
            code = command()
        if sys.stdout is not None:  # else it was closed before the start
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has closed the pipe. Python must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (UserError, OSError, ImportError) as error:
        if is_traceback_shown:
            traceback.print_exception(error)
        print(f"error: {one_line(error)}", file=sys.stderr)
    return USER_ERROR


@contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """Shows what this project warns about as `warning: ...`; the line that warns is not the user's."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], filename: str, *place: Any, **more: Any) -> None:
            if category.__module__.partition(".")[0] == "codegen" or is_own(Path(filename).resolve()):
                print(f"warning: {message}", file=sys.stderr)
            else:
                shown(message, category, filename, *place, **more)

        warnings.showwarning = show
        yield


@contextmanager
def in_model(model: str, file: Path | None, is_loading: bool) -> Iterator[None]:
    """Explains what a user's model raises, by a UsageError.

    model       as the user names it
    file        where its Python is
    is_loading  whether the user's own code runs, and every error is its fault
    """
    try:
        yield
    except (UserError, OSError, KeyboardInterrupt):
        raise
    except BaseException as error:
        place = place_in(error, file)
        if place is not None:
            raise UsageError(f"{place}: {type(error).__name__}: {one_line(error)}".removesuffix(": ")) from error
        if isinstance(error, OF_THE_MODEL):
            raise UsageError(f"{model}: {one_line(error)}") from error
        if is_loading:
            raise UsageError(f"{model}: {type(error).__name__}: {one_line(error)}".removesuffix(": ")) from error
        raise
