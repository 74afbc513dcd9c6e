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

from codegen.backends.c.standalone import standalone_text
from codegen.files import csrc, write_if_changed
from codegen.ir.graph import graph_lines
from codegen.passes.freeze import frozen_program
from codegen.pipeline import Compiled, compile_program
from codegen.program import Program

if TYPE_CHECKING:
    import numpy.typing as npt

# Contraction to fused multiply-add would round differently from the interpreted engine, and with -std=c11 gcc for s390x
# computes float32 in float64. The rest is hygiene and speed.
UNIX_FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-g0"]
MSVC_FLAGS = ["/std:c11", "/O2", "/fp:precise"]


def compile_flags(compiler_type: str) -> list[str]:
    """What every module is compiled with. The environment's CFLAGS come before, so these win."""
    return MSVC_FLAGS if compiler_type == "msvc" else UNIX_FLAGS


def write_sources(compiled: Compiled, directory: Path, name: str) -> Path:
    """Puts NAME.c and NAME.ir into a folder, both to be read, and returns the path of the C."""
    write_if_changed(directory / f"{name}.ir", "\n".join(graph_lines(compiled.graph)) + "\n")
    source = directory / f"{name}.c"
    write_if_changed(source, compiled.text)
    return source


def build(
    program: Program,
    directory: str | os.PathLike[str],
    name: str = "nn",
    lowering: str = "loops",
    *,
    compiler: str | None = None,
    flags: list[str] | None = None,
) -> Path:
    """Compiles a Program into an extension module in `directory` and returns its path.

    `name` is the module's name. `lowering` is "loops", or "straightline" for one statement a node. `compiler` is the
    command of another C compiler than Python's own, `flags` come after the default ones.
    Raises ValueError for a bad name or lowering, RuntimeError with the compiler's output where it fails.
    """
    folder = Path(directory).resolve()
    source = write_sources(compile_program(program, name, lowering), folder, name)
    return compile_extension(source, name, compiler, flags or [])


def freeze(
    program: Program,
    weights: Mapping[str, npt.ArrayLike],
    directory: str | os.PathLike[str],
    name: str = "nn_infer",
    lowering: str = "loops",
    *,
    compiler: str | None = None,
    flags: list[str] | None = None,
) -> Path:
    """Compiles a Program with its trained weights into an inference-only extension module and returns its path.

    `weights` maps the Program's parameter names to buffers of their shapes, as state_dict() does. The other arguments
    are those of build(). Raises ValueError for weights that do not fit the Program or are not finite.
    """
    return build(frozen_program(program, weights), directory, name, lowering, compiler=compiler, flags=flags)


def freeze_standalone(
    program: Program, weights: Mapping[str, npt.ArrayLike], directory: str | os.PathLike[str], name: str = "nn_infer"
) -> tuple[Path, Path]:
    """The same as plain C for programs without Python: writes NAME.h and NAME.c and returns their paths."""
    frozen = frozen_program(program, weights)
    compiled = compile_program(frozen, name)
    paths = Path(directory, f"{name}.h"), Path(directory, f"{name}.c")
    for path, text in zip(paths, standalone_text(frozen, compiled.kernels, name, compiled.digest), strict=True):
        write_if_changed(path, text)
    return paths


# Run by a Python of its own: setuptools works in the current folder, reads its pyproject.toml and prints.
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
    """Runs the C compiler on one generated file; the module comes to lie beside it."""
    options = {
        "name": name,
        "sources": [str(source)],
        "include_dirs": [str(csrc())],
        "extra_compile_args": [*_default_flags(), *flags],
        "libraries": ["m"] if os.name == "posix" else [],
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
    """CC and LDSHARED for another compiler than the one that Python was built with."""
    if compiler is None:
        return {}
    linker = str(sysconfig.get_config_var("LDSHARED") or "cc -shared").split()
    return {"CC": compiler, "LDSHARED": " ".join([compiler, *linker[1:]])}
