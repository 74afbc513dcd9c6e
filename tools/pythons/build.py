"""CPython, compiled once for each kind, without what lacks headers, as zlib and ssl may."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.cross.builds import Failed, run
from tools.pythons import source

CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "pythons"
# musl-gcc says that it is glibc's gcc, which configure refuses; and pkg-config knows only glibc's libraries.
MUSL_CC = """#!/bin/sh
case "$*" in *print-multiarch*) exit 0 ;; esac
exec musl-gcc "$@"
"""
OPTIONS = ["--without-ensurepip", "CFLAGS=-O1 -g0"]  # nothing is timed there


def python(kind: str) -> Path:
    """The interpreter of a kind, free-threaded or musl. Raises Failed."""
    prefix = CACHE / kind
    if not prefix.is_dir():
        _compile(kind, prefix)
    return prefix / "bin" / "python3"


def _options(kind: str, folder: Path) -> list[str]:
    if kind == "free-threaded":
        return ["--disable-gil"]
    if not shutil.which("musl-gcc"):
        raise Failed("musl-gcc is not installed: apt install musl-tools")
    compiler = folder / "musl-cc"
    compiler.write_text(MUSL_CC)
    compiler.chmod(0o755)
    return [f"CC={compiler}", "PKG_CONFIG=/bin/false"]


def _compile(kind: str, prefix: Path) -> None:
    configure = source.fetch(CACHE) / "configure"
    folder, installed = CACHE / f"{kind}.build", CACHE / f"{kind}.installed"
    for path in (folder, installed):
        shutil.rmtree(path, ignore_errors=True)
    folder.mkdir()
    print(f"compiling CPython, {kind}: some minutes", flush=True)
    options = " ".join(f"'{x}'" for x in [*OPTIONS, *_options(kind, folder), f"--prefix={prefix}"])
    steps = f"'{configure}' {options} && make -j{os.cpu_count()} && make install DESTDIR='{installed}'"
    run(["sh", "-c", f"cd '{folder}' && {{ {steps}; }} > log 2>&1 || {{ tail -n 20 log >&2; exit 1; }}"])
    (installed / str(prefix).lstrip("/")).rename(prefix)
    for path in (folder, installed):
        shutil.rmtree(path)
