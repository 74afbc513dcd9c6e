"""Plain C that trains, on processors and in WebAssembly: the bits of this machine's modules, without Python.

Example: codegen.build(xor(), folder, "xor", target="c") writes xor.h and xor.c, and run.h beside them says what
plain/trains.c has to know. For a Cortex-M4,

    arm-none-eabi-gcc -mcpu=cortex-m4 ... -T cortex.ld cortex.c trains.c xor.c -o xor
    qemu-system-arm -M mps2-an386 ... -kernel xor < "numbers/this machine/xor"

trains it step by step, as tools/cross/driver.py does with the module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from codegen.build import write_sources
from codegen.pipeline import compile_program
from codegen.program import Label, Pixels, Program
from codegen.reroll.names import c_identifier
from tools.cross import emulate, epoch
from tools.cross.builds import WARNINGS, run
from tools.cross.compare import Reference, Run, read_run
from tools.cross.driver import EPOCH
from tools.cross.report import Row, compared
from tools.cross.sources import Case
from tools.cross.without_python import PLAIN, STAGES

FLAGS = ("-std=c11", "-pedantic", *WARNINGS)
CORTEX_M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-Os")
ON_BOARD = (
    *CORTEX_M4,
    "-Wl,--wrap=__aeabi_dadd,--wrap=__aeabi_dsub",
    "--specs=rdimon.specs",
    "-T",
    str(PLAIN / "cortex.ld"),
    str(PLAIN / "cortex.c"),
)
BOARD = (
    *("qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none"),
    *("-semihosting-config", "enable=on,target=native", "-kernel"),
)
S390X = ("s390x-linux-gnu-gcc", "-O2", "-fexcess-precision=fast", "-static")
LEFT_OUT = ("nn_infer", "nn_fused")  # which does not train, and is not strict


@dataclass(frozen=True)
class Platform:
    name: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()
    has_epoch: bool = False

    def measure(self, cases: Sequence[Case], native: Future[dict[str, Run]], work: Path) -> dict[str, Run]:
        """Compiles a program for each case, and runs it on what this machine's module has written. Raises Failed."""
        folder = work / re.sub(r"\W+", "-", self.name)  # newlib's main() takes a path with spaces for arguments
        folder.mkdir()
        for case in cases:
            source = work / "sources" / "trains" / case.name
            files = [str(PLAIN / "trains.c"), str(source / f"{case.name}.c")]
            run([*self.compiler, *FLAGS, f"-I{source}", f"-I{PLAIN}", *files, "-o", str(folder / case.name)])
        here = native.result()
        runs = {}
        for case in cases:
            given = (emulate.numbers(work, emulate.NATIVE) / case.name).read_bytes()
            runs[case.name] = read_run(run([*self.runner, str(folder / case.name)], given=given))
        if EPOCH in here and self.has_epoch:
            given = epoch.given(here[EPOCH], work / "digits")
            runs[EPOCH] = read_run(run([*self.runner, str(folder / "nn"), EPOCH], given=given))
        return runs


PLATFORMS = (
    Platform("plain C, x86-64", ("gcc", "-O2"), has_epoch=True),
    Platform("plain C, x86-64, AVX2 and FMA", ("clang", "-O3", "-march=haswell"), has_epoch=True),
    Platform("plain C, aarch64", ("aarch64-linux-gnu-gcc", "-O3", "-static"), ("qemu-aarch64-static",)),
    Platform("plain C, s390x", S390X, ("qemu-s390x-static",)),
    Platform("plain C, Cortex-M4", ("arm-none-eabi-gcc", *ON_BOARD), BOARD),
    Platform(
        "plain C, WebAssembly with SIMD",
        ("clang", "--target=wasm32-wasi", "--sysroot=/usr", "-O3", "-msimd128"),
        ("node", "--no-warnings", str(PLAIN / "wasi.mjs")),
        has_epoch=True,
    ),
)
Runs = dict[Platform, "Future[dict[str, Run]]"]


def trained(cases: Sequence[Case]) -> list[Case]:
    """Those that plain C trains as the module does."""
    return [case for case in cases if case.name not in LEFT_OUT]


def write(folder: Path, cases: Sequence[Case]) -> None:
    """FOLDER/NAME with the plain C of each case, and run.h."""
    for case in cases:
        program = case.make()
        compiled = compile_program(program, case.name, target="c")
        write_sources(compiled, folder / case.name, case.name)
        (folder / case.name / "run.h").write_text(about(program, case.name, compiled.digest))


def about(program: Program, name: str, digest: str) -> str:
    """run.h: what plain/trains.c has to know about a model with one kind of inputs and of targets."""
    real = "float" if program.dtype == "float32" else "double"
    outputs = [f'X("{o}", {name}_{c_identifier(o).lower()}, {len(v)})' for o, v in program.outputs.items()]
    has_labels = isinstance(program.targets, Label)
    lines = [
        f'#include "{name}.h"',
        f"#define CALL(function) {name}_##function",
        f"#define MODEL struct {name}_model",
        f'#define DIGEST "{digest}"',
        f"#define LEARNING_RATE {program.rate!r}",
        f"#define HAS_LABELS {int(has_labels)}",
        f"#define TARGETS_OF(image) {', targets[image]' if program.target_values else ''}",
        f"#define EACH_OUTPUT(X) {' '.join(outputs)}",
        "enum {",
        f"    INPUTS = {len(program.input_values)},",
        f"    TARGETS = {1 if has_labels else len(program.target_values)},",
        f"    PARAMETERS = {len(program.parameter_values)},",
        f"    MOST_OUTPUTS = {max(map(len, program.outputs.values()), default=0)},",
        "};",
        f"typedef {real} real;",
        f"typedef {'unsigned char' if isinstance(program.inputs, Pixels) else real} input_type;",
        f"typedef {'unsigned char' if has_labels else real} target_type;",
    ]
    return "\n".join(lines) + "\n"


def start(pool: Executor, work: Path, cases: Sequence[Case], native: Future[dict[str, Run]]) -> Runs:
    """Compiles and runs all programs, once this machine's own runs are there."""
    return {platform: pool.submit(platform.measure, trained(cases), native, work) for platform in PLATFORMS}


def rows(runs: Runs, expected: Reference) -> list[Row]:
    """A row for each platform."""
    return [compared(platform.name, future, expected, STAGES) for platform, future in runs.items()]
