"""A ModelSpec -> C, and the type stub of its module, made again only if something that they depend on has changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from codegen.build import write_sources
from codegen.files import write_if_changed
from codegen.loading import load
from codegen.models import generator_version
from codegen.passes.freeze import frozen_program
from codegen.pipeline import compile_program
from codegen.program import Program
from codegen.weights import read_weights
from codegen.wheels.sources import files_of
from codegen.wheels.stubs import stub_text
from codegen.wheels.table import ModelSpec


@dataclass(frozen=True)
class Generated:
    """NAME.c, its two files of kernels, NAME.pyi and NAME.inputs, the digest of what they were made from."""

    source: Path

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
    return found


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
    """SHA-256 of everything that the C is made from."""
    found = hashlib.sha256(repr((spec, version, generator_version())).encode())
    for file in inputs_of(spec, root):
        content = (root / file).read_bytes()
        found.update(f"{file} {len(content)}\n".encode() + content)
    return found.hexdigest()
