"""A ModelSpec -> C, and the type stub of its module, made again only if something that they depend on has changed."""

import ast
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from codegen.build import write_sources
from codegen.loading import KEPT, load
from codegen.models import generator_version
from codegen.passes.freeze import frozen_program
from codegen.pipeline import compile_program
from codegen.program import Program
from codegen.weights import read_weights
from codegen.wheels.stubs import stub_text
from codegen.wheels.table import ModelSpec
from micrograd.files import write_if_changed


@dataclass(frozen=True)
class Generated:
    """NAME.c, its two files of kernels, NAME.pyi and NAME.inputs, the digest of what they were made from."""

    source: Path
    is_new: bool = False

    @property
    def kernels(self) -> tuple[Path, Path]:
        stem = self.source.stem
        return self.source.with_name(f"{stem}_kernels.h"), self.source.with_name(f"{stem}_kernels_narrow.h")

    @property
    def stub(self) -> Path:
        return self.source.with_suffix(".pyi")

    @property
    def stamp(self) -> Path:
        return self.source.with_suffix(".inputs")

    def is_from(self, digest: str) -> bool:
        files = (self.source, *self.kernels, self.stub, self.stamp)
        return all(path.is_file() for path in files) and self.stamp.read_text() == digest


def inputs_of(spec: ModelSpec, root: Path) -> list[str]:
    """The project's own files that a module is made from: what a source distribution needs."""
    weights = [] if spec.weights is None else [spec.weights]
    return sorted({*files_of(spec.program, root), *weights, *spec.files})


def generate(spec: ModelSpec, root: Path, folder: Path, version: str) -> Generated:
    """The C and the stub in a folder, with the ir beside them. Raises whatever the program raises."""
    found = Generated(folder / f"{spec.stem}.c")
    digest = digest_of(spec, root, version)
    if found.is_from(digest):
        return found
    program = program_of(spec, root)
    found.stamp.unlink(missing_ok=True)  # what is interrupted is not taken for finished
    write_sources(compile_program(program, spec.stem, version=version), folder, spec.stem, ir=True)
    write_if_changed(found.stub, stub_text(program, spec.name))
    write_if_changed(found.stamp, digest)
    return replace(found, is_new=True)


def program_of(spec: ModelSpec, root: Path) -> Program:
    """The Program as the table has it: with these weights, in this dtype."""
    path = root / spec.program
    program = load(path if spec.function == "program" else f"{path}:{spec.function}")
    dtype = spec.dtype or ("float32" if spec.storage else None)
    changes = {"dtype": dtype, "fma": spec.fma, "reorder": spec.reorder, "storage": spec.storage}
    changes = {name: value for name, value in changes.items() if value is not None}
    program = replace(program, **changes) if changes else program  # type: ignore[arg-type]
    return program if spec.weights is None else frozen_program(program, read_weights(root / spec.weights))


def digest_of(spec: ModelSpec, root: Path, version: str) -> str:
    """SHA-256 of everything that the C is made from, and of what compiles it: a change of either makes it again."""
    flags = [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
    found = hashlib.sha256(repr((spec, version, generator_version(), flags)).encode())
    for file in inputs_of(spec, root):
        content = (root / file).read_bytes()
        found.update(f"{file} {len(content)}\n".encode() + content)
    return found.hexdigest()


def files_of(program: str, root: Path) -> list[str]:
    """The files that a model's file is made of: itself, and what it imports from its own folder, relative to the root.

    Example: model.py with `import layers` and `from data import iris` is made of model.py, layers.py, data/__init__.py
    and data/iris.py, and of what those import in turn. Imports are read, not run, so a name that is computed is not
    seen. A file that is no Python stands for itself: loading it will say so.
    """
    folder = PurePosixPath(program).parent
    found: set[str] = set()
    waiting = [PurePosixPath(program)]
    while waiting:
        path = waiting.pop()
        if path.as_posix() in found:
            continue
        found.add(path.as_posix())
        waiting += [file for name in _imported(path, folder, root) for file in _beside(name, folder, root)]
    return sorted(found)


def _imported(path: PurePosixPath, folder: PurePosixPath, root: Path) -> Iterator[str]:
    """The dotted names that a file imports, from the folder's point of view."""
    try:
        tree = ast.parse((root / path).read_bytes())
    except (SyntaxError, ValueError):
        return
    package = path.parent.relative_to(folder).parts  # of a helper in a package; () for what lies in the folder itself
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" if module else alias.name for alias in node.names)


def _beside(name: str, folder: PurePosixPath, root: Path) -> Iterator[PurePosixPath]:
    """The files of the folder that importing a dotted name runs: packages on the way, and the module."""
    parts = name.split(".")
    if not parts[0] or parts[0] in KEPT:
        return
    for end in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:end])
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if (root / file).is_file():
                yield file
