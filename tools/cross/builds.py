"""C for one kind of processor: compiled, and run natively or by an emulator, with its own Python and C library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codegen.backends.shared import csrc
from codegen.toolchain import SMALL_FLAGS, UNIX_FLAGS
from tools.cross.compare import Run, read_run
from tools.cross.driver import EPOCH

DRIVER = Path(__file__).with_name("driver.py")
LIMITED_API = "-DPy_LIMITED_API=0x030b0000"  # as in setup.py: one module for CPython 3.11 and all later ones
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


class Failed(Exception):
    """A compiler, an emulator or a run that did not do what it should."""


@dataclass(frozen=True)
class Build:
    """Modules for one architecture by one compiler."""

    architecture: str
    compiler: tuple[str, ...]
    includes: tuple[Path, ...]  # of Python

    @property
    def name(self) -> str:
        return f"{self.architecture}, {self.compiler[0]}"

    def compile(self, sources: Path, names: Sequence[str], folder: Path) -> None:
        """Puts NAME.abi3.so for each name into a folder. Raises Failed."""
        folder.mkdir(parents=True, exist_ok=True)
        includes = [f"-I{path}" for path in (csrc(), *self.includes)]
        for name in names:
            modes = [*UNIX_FLAGS, *SMALL_FLAGS, *WARNINGS, LIMITED_API, "-shared", "-fPIC", *includes]
            run([*self.compiler, *modes, str(sources / f"{name}.c"), "-o", str(folder / f"{name}.abi3.so")])


@dataclass(frozen=True)
class Target:
    """A Python on a processor, real or emulated, that runs modules."""

    name: str
    level: str = ""  # the SIMD level that modules must choose by themselves, if it is known
    emulator: tuple[str, ...] = ()
    python: str = sys.executable
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def measure(self, modules: Path, names: Sequence[str], folder: Path, data: Path | None = None) -> dict[str, Run]:
        """Runs tools/cross/driver.py and reads what it wrote. With data there is an epoch too."""
        folder.mkdir(parents=True, exist_ok=True)
        self._python([str(DRIVER), str(modules), str(folder), str(data or ""), *names])
        runs = {name: read_run((folder / name).read_bytes()) for name in (*names, *([EPOCH] if data else []))}
        for name, found in runs.items():
            if found.info["simd"] != (self.level or found.info["simd"]):
                raise Failed(f"{name} runs at the level {found.info['simd']}, expected {self.level}")
        return runs

    def refusal(self, modules: Path, name: str, level: str) -> str:
        """What the ImportError says where NN_SIMD asks for a level; empty where the import works."""
        script = f"import sys\nsys.path.insert(0, {str(modules)!r})\n"
        script += f"try:\n    import {name}\nexcept ImportError as error:\n    print(error)"
        return self._python(["-c", script], {"NN_SIMD": level}).strip()

    def _python(self, arguments: Sequence[str], settings: Mapping[str, str] | None = None) -> str:
        command = [*self.emulator, self.python, "-I", "-S", *arguments]
        return run(command, {**self.settings, **(settings or {})}).decode()


def run(command: Sequence[str], settings: Mapping[str, str] | None = None, given: bytes = b"") -> bytes:
    """What a command prints. Raises Failed with what it says about its failure."""
    environment = {**os.environ, **(settings or {})}
    done = subprocess.run(command, env=environment, input=given, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise Failed(f"{Path(command[0]).name} failed ({done.returncode}): {' '.join(command)}\n{said}")
    return done.stdout


def version(compiler: str) -> str:
    """Name and number, as gcc 12.2.0."""
    name = "clang" if compiler == "clang" else "gcc"
    options = ["-dumpversion"] if name == "clang" else ["-dumpfullversion", "-dumpversion"]
    return f"{name} {run([compiler, *options]).decode().strip()}"
