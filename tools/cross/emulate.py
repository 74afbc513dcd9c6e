"""Runs everything on processors that this machine is not, and compares it with what this machine computes.

Example: nn.c, compiled by aarch64-linux-gnu-gcc, trains under qemu-aarch64-static; its losses, gradients, parameters
and outputs must have the bits of nn.c compiled by gcc and run natively.

Of x86-64 there are two kinds. glibc has exp, log, pow and tanh twice: with fused multiply-add for processors that have
it, and, rounding otherwise, without. A processor without is compared with this machine, told to leave its own unused.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from tools.cross.builds import Build, Failed, Target, version
from tools.cross.compare import Difference, Floats, Run, compare, library_differences
from tools.cross.report import Row
from tools.cross.sources import Case

ARGUMENTS = 1_000_000  # of each library function
PROCESSORS = {"aarch64": "arm64", "s390x": "s390x"}  # gcc's and qemu's name, Debian's name
WITHOUT_FMA = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2", "NN_SIMD": "baseline"}

X86 = Build("x86-64", "gcc", (Path(sysconfig.get_paths()["include"]),))
NATIVE = Target("this machine", X86)
NATIVE_WITHOUT_FMA = Target("this machine without FMA", X86, "baseline", settings=WITHOUT_FMA)


@dataclass(frozen=True)
class Measured:
    """All numbers of a target."""

    runs: dict[str, Run]
    library: Floats


def targets(cache: Path) -> dict[Target, Target]:
    """What is emulated -> which of this machine's two runs it must equal."""
    emulator = "qemu-x86_64-static"
    found = {
        Target("x86-64 without AVX (Nehalem)", X86, "baseline", (emulator, "-cpu", "Nehalem")): NATIVE_WITHOUT_FMA,
        Target("x86-64 with AVX2 (Haswell)", X86, "avx2", (emulator, "-cpu", "Haswell")): NATIVE,
    }
    for name, package in PROCESSORS.items():
        usr = cache / package / "usr"
        build = Build(name, f"{name}-linux-gnu-gcc", (usr / "include" / "python3.11", usr / "include"))
        emulated = (f"qemu-{name}-static", "-L", str(usr.parent))
        found[Target(name, build, "baseline", emulated, str(usr / "bin" / "python3.11"))] = NATIVE
    return found


def measure(target: Target, compiled: Future[None], modules: Path, names: Sequence[str], numbers: Path) -> Measured:
    """Waits until the modules are there, and runs them. Raises Failed."""
    compiled.result()
    return Measured(target.measure(modules, names, numbers), target.library(modules, ARGUMENTS))


def start(pool: Executor, cache: Path, work: Path, cases: Sequence[Case]) -> dict[Target, Future[Measured]]:
    """Compiles work/sources for every architecture and runs it on every target, this machine included."""
    everything = [NATIVE, NATIVE_WITHOUT_FMA, *targets(cache)]
    names = [case.name for case in cases]
    compiled: dict[Build, Future[None]] = {}
    for build in dict.fromkeys(target.build for target in everything):
        compiled[build] = pool.submit(build.compile, work / "sources", names, work / build.architecture)
    return {
        target: pool.submit(
            measure, target, compiled[target.build], work / target.build.architecture, names, work / f"numbers{i}"
        )
        for i, target in enumerate(everything)
    }


def check(target: Target, expected: Measured, found: Measured, modules: Path, cases: Sequence[Case]) -> list[str]:
    """What is wrong, a line each: programs, library functions, and a SIMD level that the processor lacks."""
    wrong = []
    for case in cases:
        differences = compare(expected.runs[case.name], found.runs[case.name], case.bound)
        wrong += [f"{case.name}: {line}" for line in differences]
    for name, difference in library_differences(expected.library, found.library).items():
        if difference.count and name != "tanhf":
            wrong.append(f"the C library's {name} has other bits for {difference.count} arguments")
    level = "avx512" if target.level == "avx2" else "avx2"
    refusal = target.refusal(modules, "nn", level)
    if not refusal.startswith(f"NN_SIMD={level}, but the levels of this module on this processor are: baseline"):
        wrong.append(f"NN_SIMD={level} is not refused: {refusal!r}")
    return wrong


def rows(measured: Mapping[Target, Future[Measured]], cache: Path, work: Path, cases: Sequence[Case]) -> list[Row]:
    """A row for each emulated target."""
    found = []
    for target, reference in targets(cache).items():
        row = Row(target.name, version(target.build.compiler), f"{len(cases)} programs", "same bits")
        try:
            expected, got = measured[reference].result(), measured[target].result()
            row.compared += f", {sum(run.count for run in got.runs.values()):,} numbers"
            row.wrong = check(target, expected, got, work / target.build.architecture, cases)
        except Failed as error:
            row.wrong = [str(error)]
        found.append(row)
    return found


def libraries(measured: Mapping[Target, Future[Measured]]) -> dict[str, dict[str, Difference]]:
    """How the C library's functions of each target differ from this machine's."""
    own = measured[NATIVE].result().library
    done = {target.name: future.result().library for target, future in measured.items() if not future.exception()}
    return {name: library_differences(own, results) for name, results in done.items() if name != NATIVE.name}
