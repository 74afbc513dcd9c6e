"""Program -> importable extension, or plain C: writes the sources and runs the C compiler through setuptools."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from codegen import checks
from codegen.files import csrc, write_if_changed
from codegen.ir.graph import graph_lines
from codegen.passes.freeze import frozen_program
from codegen.pipeline import Compiled, compile_program
from codegen.program import Program

if TYPE_CHECKING:
    import numpy.typing as npt

# Contraction to fused multiply-add would round differently from the interpreted engine, and with -std=c11 gcc for s390x
# computes float32 in float64. gcc makes no vectors of a selection that might trap. The rest is hygiene and speed.
UNIX_FLAGS = [
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-g0",
]
MSVC_FLAGS = ["/std:c11", "/O2", "/fp:precise"]


def compile_flags(compiler_type: str) -> list[str]:
    """What every module is compiled with. The environment's CFLAGS come before, so these win."""
    return MSVC_FLAGS if compiler_type == "msvc" else UNIX_FLAGS


def write_sources(compiled: Compiled, directory: Path, name: str) -> Path:
    """Writes the generated files and NAME.ir to a folder and returns the path of the main source."""
    write_if_changed(directory / f"{name}.ir", "\n".join(graph_lines(compiled.graph)) + "\n")
    for file, text in compiled.files.items():
        write_if_changed(directory / file, text)
    return directory / next(file for file in compiled.files if not file.endswith(".h"))


def build(
    program: Program,
    directory: str | os.PathLike[str],
    name: str = "nn",
    lowering: str | None = None,
    *,
    target: str = "extension",
    compiler: str | None = None,
    flags: list[str] | None = None,
) -> Path:
    """Builds a Program in `directory` and returns the path of the result.

    target     "extension": a compiled module; "python": NAME.py; "c": NAME.c and NAME.h, for a Program without a loss
    name       of the module
    lowering   "loops", or "straightline" for one statement a node
    compiler   the command of a C compiler other than Python's own; `flags` come after the default ones

    Raises ValueError as compile_program() does, RuntimeError with the compiler's output if it fails.
    """
    if isinstance(flags, str) or not isinstance(flags, list | tuple | None):
        raise TypeError(f"flags must be a list of strings, not {checks.shown(flags)}")
    flags = [checks.text("a flag", flag) for flag in flags or []]
    compiler = None if compiler is None else checks.name("the compiler", compiler)
    folder = checks.folder("the folder", directory).resolve()
    if target != "extension" and (compiler is not None or flags):
        raise ValueError(f"compiler and flags are for target='extension'; target={target!r} compiles nothing")
    source = write_sources(compile_program(program, name, lowering, target), folder, str.__str__(name))
    return compile_extension(source, str.__str__(name), compiler, flags) if target == "extension" else source


def freeze(
    program: Program,
    weights: Mapping[str, npt.ArrayLike],
    directory: str | os.PathLike[str],
    name: str = "nn_infer",
    lowering: str | None = None,
    *,
    target: str = "extension",
    compiler: str | None = None,
    flags: list[str] | None = None,
) -> Path:
    """Builds a Program with its trained weights as constants: it only predicts. Returns the path of the result.

    `weights` maps the Program's parameter names to buffers of their shapes, as state_dict() does. The other arguments
    are those of build(). Raises ValueError for weights that do not fit the Program or are not finite.
    """
    frozen = frozen_program(program, weights)
    return build(frozen, directory, name, lowering, target=target, compiler=compiler, flags=flags)


# Run in a separate Python process: setuptools works in the current folder, reads its pyproject.toml and prints.
_SETUP = """
import json, sys
from setuptools import Extension, setup
options = json.loads(sys.argv[1])
setup(
    name=options["name"],
    py_modules=[],
    ext_modules=[Extension(**options)],
    script_args=["--quiet", "build_ext", "--build-lib", "built", "--build-temp", "temporary"],
)
"""


def compile_extension(source: Path, name: str, compiler: str | None, flags: list[str]) -> Path:
    """Runs the C compiler on one generated file and puts the module beside it."""
    options = {
        "name": name,
        "sources": [str(source)],
        "include_dirs": [str(csrc())],
        "extra_compile_args": [*_default_flags(), *flags],
        "libraries": ["m"] if os.name == "posix" else [],  # for the C of registered ops, and tcc's sqrt()
    }
    if importlib.util.find_spec("setuptools") is None:
        raise RuntimeError("compiling a model needs setuptools: pip install 'micrograd-nn[compile]'")
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        run = subprocess.run(
            [sys.executable, "-c", _SETUP, json.dumps(options)],
            cwd=folder,
            env=os.environ | _compiler_settings(compiler),
            capture_output=True,
            text=True,
            check=False,
        )
        built = list(Path(folder, "built").glob(f"{name}.*"))
        if run.returncode or not built:
            raise RuntimeError(f"compiling {source} failed:\n{run.stdout}{run.stderr}")
        target = source.parent / built[0].name
        os.replace(built[0], target)
    return target


def load_extension(path: Path, name: str = "nn") -> ModuleType:
    """Imports a built module from its path. A process has one instance of each."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _default_flags() -> list[str]:
    return compile_flags("msvc" if sys.platform == "win32" and "GCC" not in sys.version else "unix")


def _compiler_settings(compiler: str | None) -> dict[str, str]:
    """CC and LDSHARED for a compiler other than the one that built Python."""
    if compiler is None:
        return {}
    linker = str(sysconfig.get_config_var("LDSHARED") or "cc -shared").split()
    return {"CC": compiler, "LDSHARED": " ".join([compiler, *linker[1:]])}
