"""A Program from a Python file, which may import what lies beside it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from codegen import checks
from codegen.program import Program

KEPT = {"codegen", "micrograd", "nn", "nn_infer"} | sys.stdlib_module_names  # never those of the file's folder


def load(path: str | os.PathLike[str]) -> Program:
    """The Program that a Python file declares by a function `program()`. Runs that file."""
    path = checks.folder("the path of a model", path)
    namespace: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    with imports_from(path.resolve().parent):
        exec(code, namespace)
        return declared(namespace, str(path))


def declared(namespace: Mapping[str, object], where: str) -> Program:
    """The Program that program() in a namespace returns. Raises ValueError or TypeError where there is none."""
    make = namespace.get("program")
    if not isinstance(make, Callable):  # type: ignore[arg-type]
        raise ValueError(f"{where} must define a function program() that returns a codegen.Program")
    program = make()  # type: ignore[operator]
    if not isinstance(program, Program):
        raise TypeError(f"program() in {where} returned a {type(program).__name__}, not a codegen.Program")
    return program


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
    """The imported modules of these names or in packages of these names, packages last."""
    return sorted((name for name in sys.modules if name.partition(".")[0] in packages), reverse=True)


def _is_from(name: str, folder: Path) -> bool:
    """Whether a module, or the package that it is in, lies in the folder itself."""
    top = name.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and Path(file).resolve() in (folder / f"{top}.py", folder / top / "__init__.py")
