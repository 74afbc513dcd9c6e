"""python -m micrograd as its users run it: in a process of its own, on a few images."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from micrograd.commands.resume import Checkpoints
from micrograd.data import digits

TRAIN, TEST = 300, 100  # images of write_data()


def write_data(folder: Path, train: int = TRAIN, test: int = TEST) -> Path:
    """Built-in digits as MNIST's four files."""
    for name, count, seed in (("train", train, 1), ("t10k", test, 2)):
        images, labels = digits.generate(count, seed)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels)
    return folder


def environment(**variables: str) -> dict[str, str]:
    """The tests' own, but nothing of the user's: neither data nor cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MICROGRAD_")}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**kept, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "MICROGRAD_CACHE": "no-such-folder", **variables}


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "micrograd", *map(str, arguments)]
    return subprocess.run(command, env=environment(**variables), capture_output=True, encoding="utf-8", timeout=60)


def good(*arguments: object, **variables: str) -> str:
    result = run(*arguments, **variables)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def error(*arguments: object, **variables: str) -> str:
    """The one line that explains an error of the user's."""
    result = run(*arguments, **variables)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def same_bits(one: Path, other: Path) -> bool:
    a, b = load_file(one), load_file(other)
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


# Runs that are resumed; the fixtures are in conftest.py.


@dataclass
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def epochs(self) -> list[str]:
        return re.findall(r"^epoch .*$", self.out, re.M)


# Gradient descent without anything else, as nn.train() does it by itself. Epochs may be added: no schedule ends.
PLAIN = ("--batch-size", 1, "--learning-rate", 0.008, "--schedule", "constant", "--shift", 0)

Train = Callable[..., Result]
COMMON = ("--batch-size", 4, "--epochs", 2)


def previous(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def half(train: Train, path: Path, *options: object) -> Result:
    """A run like the plain one that ends after its first epoch."""
    done = train("--batch-size", 4, "--epochs", 1, "--checkpoint", path, *options)
    assert done.code == 0, done.err
    return done


def stop_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Ctrl-C comes after so many checkpoints."""
    write, count = Checkpoints.write, 0

    def write_and_stop(*arguments: object) -> None:
        nonlocal count
        write(*arguments)  # type: ignore[arg-type]
        count += 1
        if count == writes:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "write", write_and_stop)
