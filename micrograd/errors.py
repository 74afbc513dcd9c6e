"""Errors that are the user's to mend: the command line prints their message alone, as one line."""

from __future__ import annotations

import traceback
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[1]  # the folder of micrograd and codegen


class UserError(Exception):
    """A mistake of the user, explained in the message. Classes that name the kind of mistake derive from it."""


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
