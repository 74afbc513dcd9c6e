"""Builds `nn` and `nn_infer`: traces the program of codegen/mnist.py, writes C into the build folder, compiles it.

nn_infer is the same program with the weights of weights/mnist.safetensors. Everything else is in pyproject.toml.
"""

import hashlib
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

ROOT = Path(__file__).resolve().parent
WEIGHTS = ROOT / "weights" / "mnist.safetensors"
# The inputs of the generated C, which is made again only if one of them changes.
GENERATORS = sorted([*ROOT.glob("codegen/**/*.py"), *ROOT.glob("micrograd/**/*.py"), WEIGHTS])
HEADERS = sorted(ROOT.glob("csrc/*.h"))
# One wheel for CPython 3.11 and all later ones that have a GIL. Only the oldest of them can build it: newer
# setuptools would name the file in a way that 3.11 does not import.
ABI3 = sys.version_info[:2] == (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
IS_WRITABLE = os.access(ROOT, os.W_OK)
OPTIONS: dict[str, dict[str, str]] = {"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {}
if not IS_WRITABLE:  # setuptools would write metadata and results beside the sources
    elsewhere = tempfile.mkdtemp(prefix="micrograd-nn-")
    OPTIONS |= {"egg_info": {"egg_base": elsewhere}, "build": {"build_base": elsewhere}}

NO_COMPILER = """
{name} is compiled while it is installed, and the C compiler failed: {error}
{help} The C itself is {source}."""


class BuildExtension(build_ext):  # type: ignore[misc]
    """build_ext that makes the C first."""

    def finalize_options(self) -> None:
        super().finalize_options()
        # An editable install would build in a folder that is deleted afterwards. The C and nn.ir are there to be read,
        # and what has not changed is not made again.
        abi = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
        if IS_WRITABLE:
            self.build_temp = str(ROOT / "build" / f"temp.{self.plat_name}-{abi}")

    def build_extension(self, ext: Extension) -> None:
        # Under PEP 517 the project's folder is not on sys.path.
        sys.path.insert(0, str(ROOT))
        from codegen.toolchain import HOW_TO_GET_A_COMPILER, compile_flags

        try:
            source = self.generate(ext.name)
        except Exception as error:
            raise RuntimeError(f"the C of {ext.name} could not be made from codegen/mnist.py: {error!r}") from error
        declared, headers = ext.sources, ext.depends
        ext.sources, ext.depends = [str(source)], [*headers, str(source.with_name(f"{ext.name}_kernels.h"))]
        ext.extra_compile_args = compile_flags(self.compiler.compiler_type)
        try:
            super().build_extension(ext)
        except (CompileError, LinkError) as error:
            help = HOW_TO_GET_A_COMPILER
            raise type(error)(NO_COMPILER.format(name=ext.name, error=error, help=help, source=source)) from error
        finally:
            ext.sources, ext.depends = declared, headers
            sys.path.remove(str(ROOT))

    def generate(self, name: str) -> Path:
        folder = Path(self.build_temp)
        source, kernels, stamp = (folder / f"{name}{end}" for end in (".c", "_kernels.h", ".inputs"))
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in GENERATORS)).hexdigest()
        if source.is_file() and kernels.is_file() and stamp.is_file() and stamp.read_text() == digest:
            return source
        from codegen.build import write_sources
        from codegen.mnist import program
        from codegen.passes.freeze import frozen_program
        from codegen.pipeline import compile_program
        from codegen.weights import read_weights

        model = program() if name == "nn" else frozen_program(program(), read_weights(WEIGHTS))
        folder.mkdir(parents=True, exist_ok=True)
        write_sources(compile_program(model, name), folder, name, ir=True)
        stamp.write_text(digest)
        return source


setup(
    ext_modules=[
        Extension(
            name,
            sources=[],
            include_dirs=[str(ROOT / "csrc")],
            depends=[str(path) for path in HEADERS],
            py_limited_api=ABI3,
            define_macros=[("Py_LIMITED_API", "0x030b0000")] if ABI3 else [],
        )
        for name in ("nn", "nn_infer")
    ],
    cmdclass={"build_ext": BuildExtension},
    options=OPTIONS,
)
