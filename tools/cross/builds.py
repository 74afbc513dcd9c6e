"""C for one kind of processor: compiled, and run natively or by an emulator, with its own Python and C library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codegen.build import UNIX_FLAGS
from codegen.files import csrc
from tools.cross.compare import Floats, Run, read_library, read_run

DRIVER = Path(__file__).with_name("driver.py")
LIBRARY = Path(__file__).with_name("library.c")
LIMITED_API = "-DPy_LIMITED_API=0x030b0000"  # as in setup.py: one module for CPython 3.11 and all later ones
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


class Failed(Exception):
    """A compiler, an emulator or a run that did not do what it should."""


@dataclass(frozen=True)
class Build:
    """Modules for one architecture."""

    architecture: str
    compiler: str
    includes: tuple[Path, ...]  # of Python

    def compile(self, sources: Path, names: Sequence[str], folder: Path) -> None:
        """Puts NAME.abi3.so for each name, and the program `library`, into a folder. Raises Failed."""
        folder.mkdir(parents=True, exist_ok=True)
        includes = [f"-I{path}" for path in (csrc(), *self.includes)]
        for name in names:
            modes = [*WARNINGS, LIMITED_API, "-shared", "-fPIC", *includes]
            command = [self.compiler, *UNIX_FLAGS, *modes, str(sources / f"{name}.c"), "-lm"]
            run([*command, "-o", str(folder / f"{name}.abi3.so")])
        run([self.compiler, *UNIX_FLAGS, *WARNINGS, str(LIBRARY), "-lm", "-o", str(folder / "library")])


@dataclass(frozen=True)
class Target:
    """A processor, real or emulated."""

    name: str
    build: Build
    level: str = ""  # the SIMD level that its modules must choose by themselves, if it is known
    emulator: tuple[str, ...] = ()
    python: str = sys.executable
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def measure(self, modules: Path, names: Sequence[str], folder: Path) -> dict[str, Run]:
        """Runs tools/cross/driver.py and reads what it wrote."""
        folder.mkdir(parents=True, exist_ok=True)
        self._python([str(DRIVER), str(modules), str(folder), *names])
        runs = {name: read_run(folder / name) for name in names}
        for name, found in runs.items():
            if found.info["simd"] != (self.level or found.info["simd"]):
                raise Failed(f"{name} runs at the level {found.info['simd']}, expected {self.level}")
        return runs

    def library(self, modules: Path, count: int) -> Floats:
        """What the functions of the C library give for `count` arguments: compare.read_library() says how."""
        command = [*self.emulator, str(modules / "library"), str(count)]
        return read_library(run(command, self.settings))

    def refusal(self, modules: Path, name: str, level: str) -> str:
        """What the ImportError says where NN_SIMD asks for a level; empty where the import works."""
        script = f"import sys\nsys.path.insert(0, {str(modules)!r})\n"
        script += f"try:\n    import {name}\nexcept ImportError as error:\n    print(error)"
        return self._python(["-c", script], {"NN_SIMD": level}).strip()

    def _python(self, arguments: Sequence[str], settings: Mapping[str, str] | None = None) -> str:
        command = [*self.emulator, self.python, "-I", "-S", *arguments]
        return run(command, {**self.settings, **(settings or {})}).decode()


def run(command: Sequence[str], settings: Mapping[str, str] | None = None) -> bytes:
    """What a command prints. Raises Failed with what it says about its failure."""
    done = subprocess.run(command, env={**os.environ, **(settings or {})}, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise Failed(f"{Path(command[0]).name} failed ({done.returncode}): {' '.join(command)}\n{said}")
    return done.stdout


def version(compiler: str) -> str:
    """Name and number, as gcc 12.2.0."""
    name = "clang" if compiler == "clang" else "gcc"
    options = ["-dumpversion"] if name == "clang" else ["-dumpfullversion", "-dumpversion"]
    return f"{name} {run([compiler, *options]).decode().strip()}"
