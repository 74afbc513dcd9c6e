"""Errors that are the user's to mend: the command line reports each in one line, with file and line if there are any.

Example: of a model.py whose third line uses a name that is missing comes

    error: model.py:3: NameError: name 'y' is not defined

`--traceback` shows the traceback too. An error that is nobody's mistake but this program's keeps its traceback.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).resolve().parents[1]  # the folder of micrograd and codegen
USER_ERROR = 2  # the exit code after a user error
INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended

OF_THE_MODEL = (ValueError, TypeError, ArithmeticError)  # what the compiler raises for a Program that it does not take


class UserError(Exception):
    """A mistake of the user, explained in the message. Classes that name the kind of mistake derive from it."""


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


def one_line(error: BaseException) -> str:
    """The message of an error, with the file of an OSError first."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}"
    try:
        return " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    except Exception:  # of a class of the user's
        return ""


def place_in(error: BaseException, file: Path | None) -> str | None:
    """FILE:LINE of the innermost frame in the user's file, or in one beside it; None without such a frame."""
    if file is None:
        return None
    if isinstance(error, SyntaxError) and error.filename is not None and is_users(error.filename, file):
        return error.filename if error.lineno is None else f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename, file)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def is_users(name: str, file: Path) -> bool:
    """Whether a source file is the model's, or lies beside it; this project's own are nobody's fault but its."""
    if name.startswith("<"):  # no file: <frozen codecs>, <string>
        return False
    path, model = Path(name).resolve(), file.resolve()
    return path == model or (path.parent == model.parent and not is_own(path))


def is_own(path: Path) -> bool:
    """Whether it is a file of this project."""
    return any(path.is_relative_to(PACKAGES / package) for package in ("micrograd", "codegen"))
