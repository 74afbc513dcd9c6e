"""A Program from a Python file, which may import what lies beside it, or from a module."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os.path import splitdrive
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

from codegen import checks
from codegen.program import Program
from micrograd.errors import UserError

FUNCTION = "program"  # makes the Program where none is named
KEPT = {"codegen", "micrograd", "nn", "nn_infer"} | sys.stdlib_module_names  # never those of the file's folder


class ModelError(UserError, ValueError):
    """A model file or module without the function that makes the Program."""


class NotAProgramError(UserError, TypeError):
    """The function returned something else."""


class Name(NamedTuple):
    """A model as users name it: `model.py`, `codegen.mnist`, and with `:function` the one that makes the Program."""

    place: str  # the path of a file, or a dotted module
    function: str
    is_file: bool

    @property
    def title(self) -> str:
        """For files that are written about the model."""
        title = Path(self.place).stem if self.is_file else self.place.rpartition(".")[2]
        return title if self.function == FUNCTION else f"{title}.{self.function}"

    @property
    def whole(self) -> str:
        """The name that means the same from any folder."""
        place = str(Path(self.place).resolve()) if self.is_file else self.place
        return place if self.function == FUNCTION else f"{place}:{self.function}"


def named(model: str | os.PathLike[str]) -> Name:
    """What a model's name means. A path may begin with a drive (C:), and an existing file may have any name."""
    text = os.fspath(checks.folder("the name of a model", model))
    drive, rest = splitdrive(text)
    place, _, function = rest.rpartition(":")
    has_function = bool(place) and function.isidentifier() and not Path(text).is_file()
    place = drive + (place if has_function else rest)
    is_dotted = all(part.isidentifier() for part in place.split("."))
    is_file = isinstance(model, os.PathLike) or place.endswith(".py") or not is_dotted or Path(place).is_file()
    return Name(place, function if has_function else FUNCTION, is_file)


def load(model: str | os.PathLike[str]) -> Program:
    """The Program that a Python file or a module declares. Runs that file.

    model   "model.py" or a path, or "package.module"; its function program(), or that of "model.py:function", without
            arguments, returns the Program

    Raises OSError, ModelError, and whatever the file raises.
    """
    name = named(model)
    if not name.is_file:
        with searched_last(Path.cwd()):
            return declared(vars(importlib.import_module(name.place)), name)
    path = Path(name.place)
    namespace: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    code = compile(path.read_bytes(), str(path), "exec")
    with imports_from(path.resolve().parent):
        exec(code, namespace)
        return declared(namespace, name)


def file_of(name: Name) -> Path | None:
    """Where the Python of a model is."""
    if name.is_file:
        return Path(name.place)
    loaded = sys.modules.get(name.place)
    origin = getattr(loaded, "__file__", None)
    if loaded is None:
        with searched_last(Path.cwd()), suppress(Exception):  # the packages around it may fail to import
            spec = importlib.util.find_spec(name.place)
            origin = None if spec is None else spec.origin
    return None if origin is None else Path(origin)


def declared(namespace: Mapping[str, object], name: Name) -> Program:
    """The Program that the function returns. Raises ModelError where there is none."""
    make = namespace.get(name.function)
    if not callable(make):
        must = f"{name.place} must define a function {name.function}() that returns a codegen.Program"
        functions = [each for each, found in namespace.items() if is_function(found, namespace)]
        if functions:
            must += f"; it has {', '.join(f'{each}()' for each in functions)}: {name.place}:{functions[0]}"
        raise ModelError(must)
    if needed := arguments(make):
        raise ModelError(f"{name.function}() in {name.place} must take no arguments, but needs {', '.join(needed)}")
    program = make()
    if not isinstance(program, Program):
        found = type(program).__name__
        raise NotAProgramError(f"{name.function}() in {name.place} returned a {found}, not a codegen.Program")
    return program


def arguments(make: Callable[..., object]) -> list[str]:
    """The names of what a function must be called with, if it says so."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in kinds]


def is_function(found: object, namespace: Mapping[str, object]) -> bool:
    """Whether a file's name is that of a function that it defines itself."""
    is_own = isinstance(found, FunctionType) and found.__module__ == namespace["__name__"]
    return is_own and not getattr(found, "__name__", "_").startswith("_")


@contextmanager
def searched_last(folder: Path) -> Iterator[None]:
    """Modules of this folder can be imported, as `python -m` has it, also by the console script; after all others."""
    before = list(sys.path)
    if not sys.flags.safe_path and str(folder) not in (os.path.abspath(entry) for entry in sys.path):
        sys.path.append(str(folder))
    try:
        yield
    finally:
        if sys.path[-1:] == [str(folder)] and sys.path[:-1] == before:
            sys.path.pop()


@contextmanager
def imports_from(folder: Path) -> Iterator[None]:
    """Modules of this folder can be imported, and come before others; afterwards nothing of them is left.

    So a second model file finds its own helpers, also where they have the names of the first one's.
    """
    beside = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    beside -= KEPT | {"__main__"}
    hidden = {name: sys.modules.pop(name) for name in _of(beside) if not _is_from(name, folder)}
    before = set(sys.modules)
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        for name in [name for name in _of(beside) if name not in before and _is_from(name, folder)]:
            del sys.modules[name]
        sys.modules.update(hidden)


def _of(packages: set[str]) -> list[str]:
    """The imported modules of these names or in packages of these names."""
    return [name for name in sys.modules if name.partition(".")[0] in packages]


def _is_from(name: str, folder: Path) -> bool:
    """Whether a module, or the package that it is in, lies in the folder itself."""
    top = name.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and Path(file).resolve() in (folder / f"{top}.py", folder / top / "__init__.py")
