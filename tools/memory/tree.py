"""A copy of the checkout with modules compiled in another way, so that all tests find these and no others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "memory"
# It compares times, which no tool leaves alone.
TIMED = "tests/test_training.py::test_other_threads_read_the_model_while_one_trains"
WHOLE_SUITE = ["-q", "-n", "auto", "--dist", "worksteal"]


class Failed(Exception):
    """Something is not installed, or could not be built."""


def files() -> list[str]:
    """What belongs to the checkout, as git knows it."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def copy(name: str) -> Path:
    """build/memory/NAME as a copy of the checkout; what was built there before stays."""
    folder, wanted = FOLDER / name, files()
    for source in wanted:
        target = folder / source
        if target.is_file() and target.read_bytes() == (ROOT / source).read_bytes():
            continue  # not to be taken for newer than what was built from it
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, target)
    kept = {"build", ".venv"}
    for path in folder.rglob("*.py"):
        relative = path.relative_to(folder)
        if relative.parts[0] not in kept and str(relative) not in wanted:
            path.unlink()
    return folder


def build(folder: Path, python: str, environment: Mapping[str, str]) -> None:
    """nn and nn_infer in the folder of a copy, by that Python. Raises Failed."""
    run([python, "setup.py", "--quiet", "build_ext", "--inplace"], folder, environment)


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Raises Failed with what the command said where it fails."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(command)} failed in {folder}:\n{done.stdout}{done.stderr}")


def test(
    python: list[str], folder: Path, arguments: list[str], environment: Mapping[str, str], without: Iterable[str]
) -> int:
    """Runs pytest in a copy, with its modules before all others, without some tests; the exit code."""
    command = [*python, "-m", "pytest", *(f"--deselect={name}" for name in without), *arguments]
    return subprocess.call(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder), **environment})
