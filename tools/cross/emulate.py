"""Runs everything on processors that this machine is not, and compares it with what this machine computes.

Example: nn.c, compiled by aarch64-linux-gnu-gcc, trains under qemu-aarch64-static; its losses, gradients, parameters
and outputs must have the bits of nn.c compiled by gcc and run natively.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from tools.cross import symbols
from tools.cross.builds import Build, Target
from tools.cross.compare import Reference, Run
from tools.cross.report import Row, compared

DEBIAN = {"aarch64": "arm64", "s390x": "s390x"}  # gcc's and qemu's name of a processor -> Debian's
NATIVE = Target("this machine")
BASELINE = Target("x86-64 with NN_SIMD=baseline", "baseline", settings={"NN_SIMD": "baseline"})

Runs = Mapping[Target, "Future[dict[str, Run]]"]


def targets(cache: Path) -> dict[Target, Build]:
    """What runs, and the modules that it runs. All must equal the first."""
    here = (Path(sysconfig.get_paths()["include"]),)
    gcc, clang = (Build("x86-64", (compiler,), here) for compiler in ("gcc", "clang"))
    emulator = "qemu-x86_64-static"
    found = {
        NATIVE: gcc,
        BASELINE: gcc,
        Target("x86-64 without AVX (Nehalem)", "baseline", (emulator, "-cpu", "Nehalem")): gcc,
        Target("x86-64 with AVX2 (Haswell)", "avx2", (emulator, "-cpu", "Haswell")): gcc,
        Target("x86-64, by clang"): clang,
    }
    for name, package in DEBIAN.items():
        usr = cache / package / "usr"
        headers = (usr / "include" / "python3.11", usr / "include")
        machine = ("baseline", (f"qemu-{name}-static", "-L", str(usr.parent)), str(usr / "bin" / "python3.11"))
        found[Target(name, *machine)] = Build(name, (f"{name}-linux-gnu-gcc",), headers)
        if name == "aarch64":
            found[Target(f"{name}, by clang", *machine)] = Build(name, ("clang", f"--target={name}-linux-gnu"), headers)
    return found


def numbers(work: Path, target: Target) -> Path:
    """The folder of a target's runs."""
    return work / "numbers" / target.name


def measure(target: Target, compiled: Future[None], modules: Path, names: Sequence[str], work: Path) -> dict[str, Run]:
    """Waits until the modules are there, and runs them. Raises Failed."""
    compiled.result()
    return target.measure(modules, names, numbers(work, target), work / "digits")


def start(pool: Executor, cache: Path, work: Path, names: Sequence[str]) -> Runs:
    """Compiles work/sources for every architecture and runs it on every target, this machine included."""
    everything = targets(cache)
    compiled = {
        build: pool.submit(build.compile, work / "sources", names, work / build.name)
        for build in dict.fromkeys(everything.values())
    }
    return {
        target: pool.submit(measure, target, compiled[build], work / build.name, names, work)
        for target, build in everything.items()
    }


def reference(runs: Runs) -> Reference:
    """What everything is compared with. Raises Failed."""
    return Reference([runs[NATIVE].result(), runs[BASELINE].result()])


def refused(target: Target, modules: Path) -> list[str]:
    """What is wrong with how a module refuses a SIMD level that the processor lacks."""
    level = "avx512" if target.level == "avx2" else "avx2"
    said = target.refusal(modules, "nn", level)
    if said.startswith(f"NN_SIMD={level}, but the levels of this module on this processor are: baseline"):
        return []
    return [f"NN_SIMD={level} is not refused: {said!r}"]


def rows(runs: Runs, expected: Reference, cache: Path, work: Path) -> list[Row]:
    """A row for each target, then one for the modules of each compiler."""
    found = []
    everything = targets(cache)
    for target, build in everything.items():
        if target == NATIVE:
            continue
        row = compared(target.name, runs[target], expected)
        if target.emulator and not row.wrong:
            row.wrong = refused(target, work / build.name)
        found.append(row)
    return found + [symbols.row(build, work / build.name) for build in dict.fromkeys(everything.values())]
