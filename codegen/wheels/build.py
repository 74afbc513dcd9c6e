"""setuptools' build_ext, which makes the C of models first and puts type stubs beside the modules.

For the model "irisnet.net", build/temp.PLATFORM/irisnet/ gets net.c, its kernels, net.pyi and net.ir, and the wheel
irisnet/net.abi3.so, irisnet/net.pyi and irisnet/py.typed. The stub of a module outside a package, "net", is the package
net-stubs, as PEP 561 asks.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, SetupError
from setuptools.modified import newer_group

from codegen.toolchain import (
    HOW_TO_GET_A_COMPILER,
    SMALL_FLAGS,
    CompilerError,
    compile_to,
    wheel_flags,
    zig_toolchain,
)
from codegen.wheels.generate import Generated, generate
from codegen.wheels.stubs import MARK
from codegen.wheels.table import ModelSpec
from micrograd.errors import one_line, place_in

NO_COMPILER = """
{name} is compiled while it is installed, and the C compiler failed: {error}
{help} The C itself is {source}."""


class ModelExtension(Extension):  # type: ignore[misc]
    """An extension module without sources: they are made when it is built."""

    def __init__(self, model: ModelSpec, **options: Any) -> None:
        super().__init__(model.name, sources=[], **options)
        self.micrograd_model = model


class BuildModels(build_ext):  # type: ignore[misc]
    """build_ext for projects with models."""

    project_root: Path

    def finalize_options(self) -> None:
        super().finalize_options()
        # An editable install would build in a folder that is deleted afterwards. The C and net.ir are there to be read,
        # and what has not changed is not made again.
        abi = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
        if os.access(self.project_root, os.W_OK):
            self.build_temp = str(self.project_root / "build" / f"temp.{self.plat_name}-{abi}")

    def run(self) -> None:
        packages = self.distribution.packages or []
        for ext in self.extensions:
            package = ext.micrograd_model.package if isinstance(ext, ModelExtension) else ""
            if package and package not in packages:
                raise SetupError(f"the model {ext.name} is to be in a package of this project, which has {packages}")
        super().run()

    def build_extension(self, ext: Extension) -> None:
        if not isinstance(ext, ModelExtension):
            super().build_extension(ext)
            return
        made = self.generate(ext.micrograd_model)
        target = Path(self.get_ext_fullpath(ext.name))
        if made.is_new:
            target.unlink(missing_ok=True)  # it is older, whatever the clock says
        declared = ext.sources, ext.depends
        headers = [path for path in ext.depends if os.path.isabs(path)]
        ext.sources, ext.depends = [str(made.source)], [*headers, *map(str, made.kernels), str(made.stamp)]
        try:
            self.compile(ext, made.source)
            if not target.is_file():
                raise CompilerError("it wrote no module.")
        except (CompileError, LinkError, CompilerError) as error:
            kind = CompileError if isinstance(error, CompilerError) else type(error)
            text = NO_COMPILER.format(name=ext.name, error=error, help=HOW_TO_GET_A_COMPILER, source=made.source)
            raise kind(text) from error
        finally:
            ext.sources, ext.depends = declared
        for other in target.parent.glob(f"{ext.name.rpartition('.')[2]}.*"):
            if other.suffix == target.suffix and other.name != target.name:
                other.unlink()  # of another ABI: it would be imported first
        self.write_types(ext.micrograd_model, made.stub)

    def generate(self, model: ModelSpec) -> Generated:
        """The C of a model, in a folder for its package: modules of other packages may have the same name."""
        folder = Path(self.build_temp, *model.name.split(".")[:-1])
        made_from = model.program if model.weights is None else f"{model.program} and {model.weights}"
        try:
            return generate(model, self.project_root, folder, self.distribution.get_version())
        except (Exception, SystemExit) as error:
            place = place_in(error, self.project_root / model.program)
            said = f"{f'{place}: ' if place else ''}{type(error).__name__}: {one_line(error)}"
            raise SetupError(f"the C of {model.name} could not be made from {made_from}: {said}") from error

    def compile(self, ext: Extension, source: Path) -> None:
        """By setuptools' compiler, or, where there is no other, by zig's."""
        toolchain = zig_toolchain()
        if toolchain is None:
            ext.extra_compile_args, ext.extra_link_args = wheel_flags(self.compiler.compiler_type)
            super().build_extension(ext)
            return
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        if self.force or newer_group([*ext.sources, *ext.depends], str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            macros = [f"-D{name}={value}" for name, value in ext.define_macros]
            compile_to(toolchain, source, target, [*SMALL_FLAGS, "-s", *macros])

    def write_types(self, model: ModelSpec, made: Path) -> None:
        """Puts the stub where type checkers look for it, unless the project has its own."""
        for path in self.type_files(model):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".pyi":
                path.touch()
            elif not path.is_file() or _is_generated(path):
                shutil.copyfile(made, path)

    def type_files(self, model: ModelSpec) -> list[Path]:
        """In the folder of the build: the stub, and py.typed, which is for a package and all that are in it."""
        top, *rest = model.name.split(".")
        if rest:
            return [Path(self.build_lib, top, *rest).with_suffix(".pyi"), Path(self.build_lib, top, "py.typed")]
        name = f"{top}-stubs"
        return [] if name in (self.distribution.packages or ()) else [Path(self.build_lib, name, "__init__.pyi")]

    # Editable installs, and build_ext --inplace

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        for built, inplace in self.types_in_place().items():
            if not os.path.exists(inplace) or _is_generated(Path(inplace)):
                self.copy_file(built, inplace, level=self.verbose)

    def types_in_place(self) -> dict[str, str]:
        """Built file -> its place among the sources. A module outside a package has none: mypy looks for stub packages
        only where packages are installed."""
        found: dict[str, str] = {}
        package_dir = self.get_finalized_command("build_py").get_package_dir
        for ext in self.extensions:
            if isinstance(ext, ModelExtension) and ext.micrograd_model.package:
                for path in self.type_files(ext.micrograd_model):
                    package = ".".join(path.relative_to(self.build_lib).parent.parts)
                    found[str(path)] = os.path.join(package_dir(package), path.name)
        return found

    def get_output_mapping(self) -> dict[str, str]:
        return {**super().get_output_mapping(), **(self.types_in_place() if self.inplace else {})}

    def get_outputs(self) -> list[str]:
        if self.inplace:
            return list(self.get_output_mapping())
        models = [ext.micrograd_model for ext in self.extensions if isinstance(ext, ModelExtension)]
        return [*super().get_outputs(), *(str(path) for model in models for path in self.type_files(model))]


def _is_generated(path: Path) -> bool:
    """Whether it is a stub that no one has written."""
    return path.suffix == ".pyi" and path.read_text(encoding="utf-8").startswith(MARK)
