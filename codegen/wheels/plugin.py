"""A setuptools Distribution gets an extension module for each model of its pyproject.toml.

setuptools calls add_models() before it has read pyproject.toml itself, through micrograd/plugin.py. What is only known
later, as the packages and the version, is for codegen/wheels/build.py.
"""

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from setuptools import Distribution, Extension
from setuptools.discovery import FlatLayoutModuleFinder, FlatLayoutPackageFinder
from setuptools.errors import SetupError

from codegen.backends.shared import csrc
from codegen.wheels.build import BuildModels, ModelExtension
from codegen.wheels.generate import inputs_of
from codegen.wheels.table import ModelSpec, TableError, read_models, read_project

OLDEST = 11  # the minor version of the first Python whose limited API has buffers
HEADERS = sorted(str(path) for path in csrc().glob("*.h"))


def add_models(dist: Distribution) -> None:
    """Adds the models of the project in the current folder. A second call changes nothing. Raises SetupError."""
    root = Path(dist.src_root or os.curdir).resolve()
    others = list(dist.ext_modules or ())
    if any(hasattr(extension, "micrograd_model") for extension in others):
        return
    try:
        project = read_project(root)
        specs = read_models(project, root)
        tool = _table(_table(project, "tool"), "setuptools")
        listed = tool.get("ext-modules")
        declared = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        names = [extension.name for extension in others] + [each.get("name") for each in declared]
        _expect_no_namesakes(specs, names, root)
    except TableError as error:
        raise SetupError(str(error)) from error
    if not specs:
        return
    abi3 = limited_api(project) if _allow_limited_api([*others, *declared]) else None
    dist.ext_modules = [*others, *(_extension(spec, root, abi3) for spec in specs)]
    base = dist.get_command_class("build_ext")
    bases = (BuildModels,) if issubclass(BuildModels, base) else (BuildModels, base)
    dist.cmdclass["build_ext"] = type("build_ext", bases, {"project_root": root})
    if abi3 is not None:
        _default(dist, "bdist_wheel", "py_limited_api", f"cp3{abi3}")
    if not os.access(root, os.W_OK):  # setuptools would write metadata and results beside the sources
        elsewhere = tempfile.mkdtemp(prefix="micrograd-nn-")
        atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        _default(dist, "egg_info", "egg_base", elsewhere)
        _default(dist, "build", "build_base", elsewhere)
    if dist.packages is None and dist.py_modules is None and not {"packages", "py-modules"} & set(tool):
        _ship_no_programs(dist, specs, root)


def limited_api(project: Mapping[str, object]) -> int | None:
    """The minor version of the Python that one wheel is for, with all later ones; None for a wheel for this Python.

    Only the oldest Python of a project builds such a wheel. Newer ones may name the file in a way that it does not
    import.
    """
    asked = _table(project, "project").get("requires-python", "")
    try:
        wanted = SpecifierSet(asked) if isinstance(asked, str) else None
    except InvalidSpecifier:
        wanted = None
    if wanted is None:
        return None  # setuptools itself is about to say what is wrong
    oldest = next((minor for minor in range(OLDEST, 100) if wanted.contains(f"3.{minor}.99")), None)
    is_builder = sys.version_info[:2] == (3, oldest) and sys.implementation.name == "cpython"
    return oldest if is_builder and not sysconfig.get_config_var("Py_GIL_DISABLED") else None


def _table(tables: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """A table within another one; empty where it is missing or none, of which setuptools itself says what is wrong."""
    found = tables.get(name)
    return found if isinstance(found, Mapping) else {}


def _allow_limited_api(others: list[Any]) -> bool:
    """Whether the project's other modules are for the limited API, as all of a wheel must be. Those that
    pyproject.toml declares are dicts."""
    return all(
        other.get("py-limited-api", False) if isinstance(other, dict) else other.py_limited_api for other in others
    )


def _extension(spec: ModelSpec, root: Path, abi3: int | None) -> Extension:
    return ModelExtension(
        spec,
        # sdist takes those that are relative, the project's own
        depends=[*inputs_of(spec, root), *HEADERS],
        include_dirs=[str(csrc())],
        py_limited_api=abi3 is not None,
        define_macros=[("Py_LIMITED_API", f"0x03{abi3:02x}0000")] if abi3 is not None else [],
    )


def _expect_no_namesakes(specs: list[ModelSpec], others: list[Any], root: Path) -> None:
    """Refuses modules that another one would hide."""
    for spec in specs:
        if spec.name in others:
            raise TableError(f"{spec.name!r} is a model of pyproject.toml and another extension module of the project")
        place = Path(*spec.name.split("."))
        for folder in (root, root / "src"):
            for file in (folder / place.with_suffix(".py"), folder / place / "__init__.py"):
                if file.is_file():
                    raise TableError(f"{spec.name!r} is a model of pyproject.toml, but {file} is a module of that name")


def _default(dist: Distribution, command: str, option: str, value: str) -> None:
    dist.get_option_dict(command).setdefault(option, ("micrograd-nn", value))


def _ship_no_programs(dist: Distribution, specs: list[ModelSpec], root: Path) -> None:
    """Keeps setuptools from taking model.py for the one module of a project that has no package."""
    if (root / "src").is_dir() or FlatLayoutPackageFinder.find(str(root)):
        return
    made_from = {file for spec in specs for file in inputs_of(spec, root)}
    modules = [name for name in FlatLayoutModuleFinder.find(str(root)) if f"{name}.py" not in made_from]
    if len(modules) <= 1:  # of more it says what to do
        dist.py_modules = modules
