"""The folder of compiled models, which codegen.compile() fills and `micrograd cache` shows and empties.

Example: the model of key 0a1b... is the file 0a1b....model: a line that names the format, the SHA-256 of the rest, and
the rest, an extension module. Files appear by os.replace(), so that several processes may write one at a time, and a
file that is cut off or damaged counts as absent.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

HEADER = b"micrograd-nn model 1\n"
SUFFIX = ".model"
STALE = 24 * 60 * 60  # seconds after which an unfinished file belongs to no one


def folder() -> Path:
    """models in home(). It need not exist."""
    return home() / "models"


def home() -> Path:
    """$MICROGRAD_CACHE, or where the system keeps a user's caches, as platformdirs has it; MNIST's files are in it.

    Raises OSError for a user without a home.
    """
    if named := os.environ.get("MICROGRAD_CACHE"):
        return Path(named).absolute()
    try:
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
            return Path(local, "micrograd-nn", "micrograd-nn", "Cache")
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "micrograd-nn"
        named = os.environ.get("XDG_CACHE_HOME", "").strip()
        return (Path(named) if named else Path.home() / ".cache") / "micrograd-nn"
    except RuntimeError as error:
        raise OSError("the user has no home folder, and $MICROGRAD_CACHE names none for the cache") from error


def read(place: Path, key: str) -> bytes | None:
    """The extension module of a key; None if there is no whole one."""
    try:
        content = (place / f"{key}{SUFFIX}").read_bytes()
    except OSError:
        return None
    start = len(HEADER) + hashlib.sha256().digest_size
    module = content[start:]
    return module if content[:start] == HEADER + hashlib.sha256(module).digest() else None


def write(place: Path, key: str, module: bytes) -> None:
    """Raises OSError if the folder cannot be written."""
    place.mkdir(parents=True, exist_ok=True)
    remove_stale(place)
    target = place / f"{key}{SUFFIX}"
    descriptor, temporary = tempfile.mkstemp(dir=place, suffix=".tmp")
    try:
        with open(descriptor, "wb") as file:
            file.write(HEADER + hashlib.sha256(module).digest() + module)
        try:
            os.replace(temporary, target)
        except PermissionError:  # on Windows, while another process reads the same model
            if read(place, key) is None:
                raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def remove_stale(place: Path) -> None:
    """Removes what killed processes have left behind, and on Windows what was in use until its process ended."""
    for path in place.glob(f"{tempfile.gettempprefix()}*"):
        if path.suffix != SUFFIX:
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - STALE:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def models(place: Path) -> list[Path]:
    return sorted(place.glob("[0-9a-f]" * 64 + SUFFIX))


def size(place: Path) -> int:
    """Bytes of all models."""
    return sum(path.stat().st_size for path in models(place))


def clear(place: Path) -> int:
    """Removes all models and returns how many there were. Raises OSError if one cannot be removed."""
    found = models(place)
    for path in found:
        path.unlink(missing_ok=True)
    remove_stale(place)
    return len(found)
