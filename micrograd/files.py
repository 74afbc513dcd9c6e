"""Files that are written whole: whatever happens, a name belongs to the old content or to the new one.

Example: write_whole("w", new) where w exists writes `.w.0123456789abcdef`, syncs it to disk, and renames it to w. If
the disk is full, the error is raised, the new file deleted, and w is as it was.
"""

import contextlib
import os
import re
import secrets
import shutil
import sys
import unicodedata
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes, keep: Path | None = None, is_synced: bool = True) -> None:
    """Replaces a file, or what a link to it leads to; permissions stay. With `keep` the old file gets that name, in the
    same folder, and for a moment only that name exists. Unless it `is_synced`, the machine itself must not fail. A
    device or a pipe gets the content. Raises OSError."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        Path(path).write_bytes(content)
        return
    target = Path(os.path.realpath(path))  # a link stays a link
    new = temporary(target)
    try:
        with new.open("xb") as file:
            file.write(content)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        if target.is_file():
            shutil.copymode(target, new)
        if keep is not None and target.exists():
            os.replace(target, keep)
        os.replace(new, target)
    except OSError as error:  # which names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
    if is_synced:
        _sync_folder(target.parent)


def write_if_changed(path: Path, text: str) -> None:
    """Does not touch a file that already holds this text."""
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, is_synced=False)


def temporary(target: Path) -> Path:
    """An unused name in the same folder: os.replace is one step only within a file system."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}")


def is_temporary(name: str, target: Path) -> bool:
    """Whether a file's name is one that temporary(target) may have returned."""
    return re.fullmatch(re.escape(f".{target.name}.") + "[0-9a-f]{16}", name) is not None


def identity(path: str | os.PathLike[str]) -> str:
    """Equal for two paths that lead to one file, whether or not it exists."""
    real = os.path.normcase(os.path.realpath(path))
    return unicodedata.normalize("NFD", real).casefold() if sys.platform == "darwin" else real


def _sync_folder(folder: Path) -> None:
    """Syncs a rename to disk, if folders can be synced: not on Windows, nor on some network file systems."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
