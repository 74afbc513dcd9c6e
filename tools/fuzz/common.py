"""What all targets need."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path


class Wrong(AssertionError):
    """Something that must not happen."""


def scratch_folder() -> Path:
    """A folder in memory, where the system has such a thing, that goes away with the process."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
