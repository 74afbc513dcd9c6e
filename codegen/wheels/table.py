"""The table of models in a project's pyproject.toml -> a list of ModelSpec, or an error that says what to write.

Example input

    [tool.micrograd-nn.models]
    "irisnet.net" = { program = "model.py" }
    "irisnet.frozen" = { program = "model.py:small", weights = "trained.safetensors", dtype = "float32" }

becomes

    ModelSpec("irisnet.net", "model.py", "program", ...)
    ModelSpec("irisnet.frozen", "model.py", "small", weights="trained.safetensors", dtype="float32", ...)

Paths are relative to the project's folder and inside it, so that source distributions can have the files.
"""

import difflib
import keyword
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from codegen import checks
from codegen.pipeline import MAX_NAME
from codegen.program import DTYPES, STORAGES
from codegen.reroll.names import DEVICES

TABLE = "[tool.micrograd-nn.models]"
KEYS = ("program", "weights", "storage", "dtype", "fma", "reorder", "files")
EXAMPLE = '"package.net" = { program = "model.py" }'
PYTHON_SUFFIX = ".py"


class TableError(ValueError):
    """A table that no modules can be built from. The message says what came and what was expected."""


@dataclass(frozen=True)
class ModelSpec:
    """An extension module: its dotted name, and what it is made from. Paths are as in the table, with slashes."""

    name: str
    program: str
    function: str = "program"
    weights: str | None = None
    dtype: str | None = None
    fma: bool | None = None
    reorder: bool | None = None
    files: tuple[str, ...] = ()  # that the program reads, besides the modules that it imports
    storage: str | None = None

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def stem(self) -> str:
        """The module's own name, without its package."""
        return self.name.rpartition(".")[2]


def read_project(folder: Path) -> dict[str, object]:
    """The pyproject.toml of a folder; empty if there is none. Raises TableError for what is no TOML."""
    path = folder / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: {error}") from error


def read_models(project: Mapping[str, object], folder: Path) -> list[ModelSpec]:
    """The models that a pyproject.toml declares, in its order. Raises TableError."""
    tool = _table("[tool]", project.get("tool", {}))
    own = tool.get("micrograd-nn")
    if "micrograd_nn" in tool:
        raise TableError("[tool.micrograd_nn] is to be called [tool.micrograd-nn]")
    if own is None:
        return []
    tables = _table("[tool.micrograd-nn]", own)
    _expect_keys("[tool.micrograd-nn]", tables, ("models",))
    models = _table(TABLE, tables.get("models", {}))
    specs = [_spec(name, entry, folder) for name, entry in models.items()]
    _expect_different([spec.name for spec in specs])
    return specs


def _spec(name: str, entry: object, folder: Path) -> ModelSpec:
    where = f"{TABLE}: {checks.shown(name)}"
    _expect_module_name(where, name)
    if not isinstance(entry, Mapping):
        raise TableError(f"{where} must be a table as {EXAMPLE}, not {checks.shown(entry)}")
    inner = next((key for key, value in entry.items() if isinstance(value, Mapping)), None)
    if inner is not None and inner not in KEYS:
        raise TableError(f'{where} holds the table {inner!r}. A dotted name needs quotes: "{name}.{inner}" = ...')
    _expect_keys(where, entry, KEYS)
    if "program" not in entry:
        raise TableError(f"{where} needs a program: {EXAMPLE}")
    program, function = _program(where, entry["program"], folder)
    weights = entry.get("weights")
    files = entry.get("files", [])
    if not isinstance(files, list):
        raise TableError(f"{where}: files must be a list of paths, not {checks.shown(files)}")
    dtype = entry.get("dtype")
    if dtype is not None and dtype not in DTYPES:
        raise TableError(f"{where}: dtype must be one of {', '.join(DTYPES)}, got {checks.shown(dtype)}")
    storage = entry.get("storage")
    if storage is not None and (storage not in STORAGES or weights is None):
        expected = f"one of {', '.join(STORAGES)}, for a model with weights"
        raise TableError(f"{where}: storage must be {expected}, got {checks.shown(storage)}")
    flags = {key: entry.get(key) for key in ("fma", "reorder")}
    for key, value in flags.items():
        if not isinstance(value, bool | None):
            raise TableError(f"{where}: {key} must be true or false, got {checks.shown(value)}")
    return ModelSpec(
        name,
        program,
        function,
        None if weights is None else _file(where, "weights", weights, folder),
        None if dtype is None else str(dtype),
        flags["fma"],
        flags["reorder"],
        tuple(_file(where, "files", file, folder) for file in files),
        None if storage is None else str(storage),
    )


def _program(where: str, text: object, folder: Path) -> tuple[str, str]:
    """The file and the function of "model.py" or "model.py:function"."""
    if not isinstance(text, str):
        raise TableError(
            f'{where}: program must be a path as "model.py" or "model.py:function", not {checks.shown(text)}'
        )
    path, colon, function = text.rpartition(":") if f"{PYTHON_SUFFIX}:" in text else (text, "", "program")
    if colon and not (function.isidentifier() and not keyword.iskeyword(function)):
        raise TableError(f"{where}: program must name a function after the colon, got {checks.shown(text)}")
    if not path.endswith(PYTHON_SUFFIX):
        raise TableError(f"{where}: program must be a Python file, as model.py, got {checks.shown(text)}")
    return _file(where, "program", path, folder), function


def _file(where: str, key: str, text: object, folder: Path) -> str:
    """A path with slashes. Raises TableError if it is not that of a file in the project's folder."""
    if not isinstance(text, str) or not text or "\0" in text:
        raise TableError(f"{where}: {key} must be the path of a file, got {checks.shown(text)}")
    path = PurePosixPath(text.replace("\\", "/"))
    if path.is_absolute() or PureWindowsPath(text).drive or ".." in path.parts:
        raise TableError(f"{where}: {key} must be a path inside the project's folder, got {checks.shown(text)}")
    if not (folder / path).is_file():
        raise TableError(f"{where}: {key} is {text!r}, but there is no file {folder / path}")
    real = (folder / path).resolve()
    if not real.is_relative_to(folder.resolve()):
        raise TableError(f"{where}: {key} must be a file inside the project's folder, but {text!r} is a link to {real}")
    return path.as_posix()


def _expect_module_name(where: str, name: str) -> None:
    parts = name.split(".")
    for part in parts:
        if not (part.isidentifier() and part.isascii()) or keyword.iskeyword(part):
            expected = "a module's name, ASCII identifiers with dots between them"
            raise TableError(f"{where} must be {expected}, but {part!r} is not one")
        if len(part) > MAX_NAME:
            raise TableError(f"{where} must be names of at most {MAX_NAME} characters, got one of {len(part)}")
        if part.lower() in DEVICES:
            raise TableError(f"{where} must be a name that files can have: {part!r} is a device on Windows")
    if len(parts) == 1 and name in sys.stdlib_module_names:
        raise TableError(f"{where} must not be the name of a module of the standard library")


def _expect_different(names: list[str]) -> None:
    """Names of which some file systems make one, and modules that are packages of others, are refused."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise TableError(f"{TABLE}: {other!r} and {name!r} are one file on Windows and macOS")
    for name in names:
        inner = next((other for other in names if other.startswith(f"{name}.")), None)
        if inner is not None:
            raise TableError(f"{TABLE}: {name!r} cannot be a module and, for {inner!r}, a package")


def _table(where: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TableError(f"{where} must be a table, not {checks.shown(value)}")
    return value


def _expect_keys(where: str, table: Mapping[str, object], known: Iterable[str]) -> None:
    known = tuple(known)
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TableError(f"{where}: unknown key {checks.shown(key)}, expected {', '.join(known)}{hint}")
