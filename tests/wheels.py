"""Wheels as pip builds them, without isolation and without a network: what they are built with is here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run(*command: object, cwd: Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def wheel_of(source: Path, out: Path, prefix: Sequence[object] = (), **environment: str) -> Path:
    """The wheel of a project, built into a folder. `prefix`: a command that runs pip."""
    flags = ("--no-build-isolation", "--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "wheel", *flags)
    run(*prefix, *pip, "-w", out, source, cwd=out.parent, **environment)
    (wheel,) = out.glob("*.whl")
    return wheel
