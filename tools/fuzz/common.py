"""What all targets need."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path


class Wrong(AssertionError):
    """Something that must not happen."""


def memory() -> str | None:
    """A place in memory for files, where the system has such a thing."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def scratch_folder() -> Path:
    """A folder that goes away with the process, unless libFuzzer ends it: then with run.py."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
