"""Platforms whose C library, Python or emulator is not to be had here: the C is compiled for them, and nothing is run.

This shows that the C is valid for the compiler, the object format and the sizes of types (`long` has 32 bits on
Windows), with the branches that the preprocessor takes there. It shows nothing about results. Where a platform's own
headers are missing, stand_ins/libc.h declares what csrc/ needs of its C library; Python's headers are those of Linux,
as far as the limited API goes, with stand_ins/pyconfig.h.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from codegen.backends.shared import csrc
from codegen.toolchain import UNIX_FLAGS
from tools.cross.builds import LIMITED_API, WARNINGS, Failed, run, version
from tools.cross.report import Row

STAND_INS = Path(__file__).with_name("stand_ins")
STANDARD_HEADERS = (
    *("assert", "ctype", "errno", "fenv", "intrin", "inttypes", "io", "malloc", "math", "pthread", "stdio", "stdlib"),
    *("string", "sys/select", "sys/stat", "sys/time", "sys/types", "time", "unistd", "wchar", "wctype"),
)
SOURCES = (
    *("nn.c", "nn_fused.c", "nn_infer.c", "functions.c", "functions_float32.c", "standalone/nn_infer.c"),
    *("trains/functions/functions.c", "trains/functions_float32/functions_float32.c"),
)


@dataclass(frozen=True)
class System:
    name: str
    compiler: str
    flags: tuple[str, ...] = ()
    has_headers: bool = False  # of its own C library


def clang(name: str, triple: str, *flags: str) -> System:
    return System(name, "clang", (f"--target={triple}", *flags))


# Without its own name clang takes the branches that are written for MSVC, which has no variable-length arrays.
# Python's macro for unused parameters is empty then, and plain C allows unused functions in MSVC's way.
AS_MSVC = ("-U__clang__", "-U__GNUC__", "-Wvla", "-Wno-unused-parameter", "-Wno-unused-function")
SYSTEMS = (
    clang("macOS, x86-64", "x86_64-apple-macos11"),
    clang("macOS, arm64", "arm64-apple-macos11"),
    System("Windows, x86-64, mingw-w64", "x86_64-w64-mingw32-gcc", has_headers=True),
    clang("Windows, x86-64, as clang-cl", "x86_64-pc-windows-msvc"),
    clang("Windows, x86-64, as MSVC", "x86_64-pc-windows-msvc", *AS_MSVC),
    clang("Windows, arm64, as MSVC", "aarch64-pc-windows-msvc", *AS_MSVC),
    System("Linux with musl, x86-64", "musl-gcc", has_headers=True),
)


def prepare(python_headers: Path, folder: Path) -> None:
    """Puts Python's headers and those of stand_ins/ into a folder each."""
    shutil.copytree(python_headers, folder / "python", ignore=shutil.ignore_patterns("internal", "pyconfig.h"))
    shutil.copy(STAND_INS / "pyconfig.h", folder / "python")
    for name in STANDARD_HEADERS:
        header = folder / "libc" / f"{name}.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(f'#include "{STAND_INS / "libc.h"}"\n')


def row(system: System, sources: Path, headers: Path, folder: Path) -> Row:
    """Compiles all SOURCES; the object comes to lie in a folder of its own."""
    found = Row(system.name, version(system.compiler), f"{len(SOURCES)} files", "compiles")
    own = () if system.has_headers else ("-nostdlibinc", f"-isystem{headers / 'libc'}")
    includes = (*own, f"-I{headers / 'python'}", f"-I{csrc()}")
    level = "-O1" if "mingw" in system.compiler else "-O0"  # where gcc for Windows has an internal error
    flags = (*UNIX_FLAGS, level, *WARNINGS, LIMITED_API, *system.flags, *includes)
    folder.mkdir(parents=True)
    for name in SOURCES:
        try:
            run([system.compiler, *flags, "-c", str(sources / name), "-o", str(folder / "object.o")])
        except Failed as error:
            found.wrong.append(str(error))
    return found
