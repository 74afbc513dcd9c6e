"""Models on platforms where no Python runs: musl and WebAssembly, each as a program around the same C.

Example: xor.c includes "module.h". With plain/ in front of csrc/ that is plain/module.h, whose main() takes the inputs
and first parameters from a run of the Python module, and trains step by step as tools/cross/driver.py does:

    clang --target=wasm32-wasi ... -Iplain -Icsrc xor.c -o xor
    node plain/wasi.mjs xor < "numbers/this machine/xor"

With another argument it goes through an epoch.

The frozen model is the plain C of codegen.freeze(target="c"), with plain/predict.c around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from codegen.backends.shared import csrc
from codegen.toolchain import UNIX_FLAGS
from tools.cross import emulate, epoch
from tools.cross.builds import WARNINGS, run
from tools.cross.compare import Reference, Run, read_run
from tools.cross.driver import EPOCH, EPOCH_END
from tools.cross.report import Row, compared
from tools.cross.sources import Case

PLAIN = Path(__file__).with_name("plain")
# Of driver.py, what the programs go through.
STAGES = ("fresh, image ", "fresh: classes, 1 threads", "step ", EPOCH_END)


@dataclass(frozen=True)
class Platform:
    name: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()

    def compile(self, case: Case, sources: Path, program: Path) -> None:
        """Raises Failed."""
        if case.frozen:
            frozen = sources / "standalone"
            files, includes = [PLAIN / "predict.c", frozen / f"{case.name}.c"], [frozen]
        else:
            files, includes = [sources / f"{case.name}.c"], [PLAIN, csrc()]
        flags = [*UNIX_FLAGS, *WARNINGS, "-Wno-unused"]  # without the Python module not all of csrc/ is used
        run([*self.compiler, *flags, *(f"-I{folder}" for folder in includes), *map(str, files), "-o", str(program)])

    def measure(self, cases: Sequence[Case], native: Future[dict[str, Run]], work: Path) -> dict[str, Run]:
        """Compiles a program for each case, and runs it on what this machine's module has written. Raises Failed."""
        folder = work / self.name
        folder.mkdir()
        for case in cases:
            self.compile(case, work / "sources", folder / case.name)
        here = native.result()
        runs = {}
        for case in cases:
            given = (emulate.numbers(work, emulate.NATIVE) / case.name).read_bytes()
            runs[case.name] = read_run(run([*self.runner, str(folder / case.name)], given=given))
        if EPOCH in here:
            given = epoch.given(here[EPOCH], work / "digits")
            runs[EPOCH] = read_run(run([*self.runner, str(folder / "nn"), EPOCH], given=given))
        return runs


PLATFORMS = (
    Platform("Linux with musl, x86-64, no Python", ("musl-gcc", "-static")),
    Platform(
        "WebAssembly, WASI, no Python",
        ("clang", "--target=wasm32-wasi", "--sysroot=/usr"),
        ("node", "--no-warnings", str(PLAIN / "wasi.mjs")),
    ),
)
Runs = dict[Platform, "Future[dict[str, Run]]"]


def start(pool: Executor, work: Path, cases: Sequence[Case], native: Future[dict[str, Run]]) -> Runs:
    """Compiles and runs all programs, once this machine's own runs are there."""
    return {platform: pool.submit(platform.measure, cases, native, work) for platform in PLATFORMS}


def rows(runs: Runs, expected: Reference) -> list[Row]:
    """A row for each platform."""
    return [compared(platform.name, future, expected, STAGES) for platform, future in runs.items()]
