"""Program -> importable extension: writes the C and runs the machine's C compiler through setuptools."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

from codegen.ir.graph import graph_lines
from codegen.pipeline import Compiled, compile_program
from codegen.program import Program

# Contraction to fused multiply-add would round differently from the interpreted engine, and with -std=c11 gcc for s390x
# computes float32 in float64. The rest is hygiene and speed.
UNIX_FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-g0"]
MSVC_FLAGS = ["/std:c11", "/O2", "/fp:precise"]


def compile_flags(compiler_type: str) -> list[str]:
    """What every module is compiled with. The environment's CFLAGS come before, so these win."""
    return MSVC_FLAGS if compiler_type == "msvc" else UNIX_FLAGS


def csrc() -> Path:
    """The folder of the hand-written C: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "csrc", here.parent / "csrc"):
        if (folder / "module.h").is_file():
            return folder
    raise FileNotFoundError(f"the C sources of codegen are neither in {here / 'csrc'} nor beside {here}")


def write_if_changed(path: Path, text: str) -> None:
    """Writes by way of a temporary file, and not at all where the file holds this text already."""
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def write_sources(compiled: Compiled, directory: Path, name: str) -> Path:
    """Puts NAME.c, NAME_kernels.h and NAME.ir into a folder, all to be read, and returns the path of the first."""
    write_if_changed(directory / f"{name}.ir", "\n".join(graph_lines(compiled.graph)) + "\n")
    for file, text in compiled.files.items():
        write_if_changed(directory / file, text)
    return directory / f"{name}.c"


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
