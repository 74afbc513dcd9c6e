"""What compiled modules need from a library: no mathematical function, on any platform.

Example: a module that calls exp() would have the bits of whatever C library it meets. Nothing in csrc/ does, but a
compiler may: for an expression that it recognises, or where the processor has no square root or fused multiply-add.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tools.cross.builds import Build, Failed, run, version
from tools.cross.report import Row


@cache
def mathematics() -> set[str]:
    """What glibc's libm has. libc has frexp and the like too, which only move bits."""
    libm, libc = (run(["gcc", f"-print-file-name={name}.so.6"]).decode().strip() for name in ("libm", "libc"))
    return _listed("--defined-only", libm) - _listed("--defined-only", libc)


def needed(module: Path) -> list[str]:
    """The mathematical functions that a module expects of a library."""
    return sorted(_listed("--undefined-only", str(module)) & mathematics())


def row(build: Build, folder: Path) -> Row:
    """The modules that a build has put into a folder."""
    modules = sorted(folder.glob("*.so"))
    found = Row(f"{build.architecture}, symbols", version(build.compiler[0]), f"{len(modules)} modules", "no libm")
    try:
        needs = {module.name: needed(module) for module in modules}
        found.wrong = [f"{name} needs {', '.join(functions)}" for name, functions in needs.items() if functions]
    except Failed as error:
        found.wrong = [str(error)]
    return found


def _listed(kind: str, library: str) -> set[str]:
    """Symbols without their versions."""
    lines = run(["nm", "--dynamic", "--format=posix", kind, library]).decode().splitlines()
    return {line.split()[0].partition("@")[0] for line in lines}
