"""Plain C on a Cortex-M4 and on this machine: flash, RAM and time, beside emlearn's C.

    python -m benchmarks.microcontrollers            prints the table of docs/plain_c.md
    python -m benchmarks.microcontrollers --nets 64-32-10 --rows trains

Times and instructions are those of a prediction / a training step, of one image. Flash and RAM are what a program for a
Cortex-M4 with hardware for floats grows by, compiled with -Os; its instructions are counted by qemu. emlearn, if
installed, converts scikit-learn's MLPClassifier of the same layers. onnx2c is in no package index; neither can train.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import codegen
from codegen.passes.freeze import weights_of
from micrograd import optim
from micrograd.data import mnist
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP
from tools.cross.trained import BOARD, CORTEX_M4, PLAIN

NODE = """
const { readFileSync } = require("fs");
WebAssembly.instantiate(readFileSync(process.argv[2]), {}).then(({ instance }) => {
    const { prepare, predict, train } = instance.exports;
    prepare();
    const shortest = (once) => {
        let best = 1e9;
        for (let round = 0; round < 50; round++) {
            const start = process.hrtime.bigint();
            for (let i = 0; i < 1000; i++)
                once();
            best = Math.min(best, Number(process.hrtime.bigint() - start) / 1e6);
        }
        return best;
    };
    console.log(shortest(predict), shortest(train));
});
"""
WASM = ("--target=wasm32-wasi", "--sysroot=/usr", "-O3", "-msimd128", "-nostartfiles", "-Wl,--no-entry")
EXPORTS = tuple(f"-Wl,--export={name}" for name in ("prepare", "predict", "train"))
NETS = ("784-50-10", "64-32-10", "16-16-4")
BOARD_FLAGS = ("--specs=rdimon.specs", "-T", str(PLAIN / "cortex.ld"), str(PLAIN / "cortex.c"))
SMALL = ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")
ROUNDS = 5
TICK = 40  # instructions: qemu runs 1e9 a second, and the board's timer has 25 MHz

COMMON = """
extern const unsigned char image[];
extern float scaled[];
extern volatile int result;
void prepare(void);
void predict(void);
void train(void);
"""
HERE = """
#include <time.h>
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double shortest(void (*once)(void))
{
    double best = 1e9;
    for (int round = 0; round < 50; round++) {
        const double start = seconds();
        for (int i = 0; i < 100; i++)
            once();
        const double took = (seconds() - start) / 100;
        best = took < best ? took : best;
    }
    return 1e6 * best;
}
"""
ON_BOARD = """
static double shortest(void (*once)(void))
{
    volatile unsigned *const timer = (volatile unsigned *)0xE000E010;
    timer[1] = 0xFFFFFF;
    timer[2] = 0;
    timer[0] = 5;
    const unsigned start = timer[2];
    once();
    return (start - timer[2]) & 0xFFFFFF;
}
"""
MAIN = """
#include <stdio.h>
int main(void)
{
    for (int i = 0; i < %d; i++)
        scaled[i] = (float)image[i] / 255.0f;
    prepare();
    printf("%%f", shortest(predict));
    printf(" %%f\\n", shortest(train));
    return 0;
}
"""


@dataclass(frozen=True)
class Row:
    """C between the harness and a model: what it is called, and how it is written."""

    name: str
    write: Callable[[tuple[int, ...], Path], tuple[str, list[str]]]  # layers, folder -> the C, other sources
    trains: bool = False


def program(layers: Sequence[int], is_drawn: bool = False, **options: Any) -> codegen.Program:
    random.seed(1)
    net = MLP(layers[0], layers[1:], init="fan_in")
    x, t = ([Value(0.0) for _ in range(n)] for n in (layers[0], layers[-1]))
    logits = net(x)
    return codegen.Program(
        codegen.Pixels(x, scale=1 / 255),
        codegen.Label(t),
        net.named_parameters(),
        cross_entropy(logits, t),
        {"logits": logits, "probabilities": softmax(logits)},
        dtype="float32",
        initial=net.initial() if is_drawn else None,
        order=net.parameters(),
        **options,
    )


def trains(
    update: optim.Rule | None = None, stored: bool = False
) -> Callable[[tuple[int, ...], Path], tuple[str, list[str]]]:
    def write(layers: tuple[int, ...], folder: Path) -> tuple[str, list[str]]:
        codegen.build(program(layers, is_drawn=not stored, update=update), folder, "model", target="c")
        return (
            '#include "model.h"\nstatic struct model_model model;\n'
            "void prepare(void) { model_init(&model); }\n"
            "void predict(void) { result = model_predict(&model, image); }\n"
            "void train(void) { unsigned char label = 3; model_train_batch(&model, image, &label, 1, 0.01); }\n",
            ["model.c"],
        )

    return write


def predicts(**options: Any) -> Callable[[tuple[int, ...], Path], tuple[str, list[str]]]:
    def write(layers: tuple[int, ...], folder: Path) -> tuple[str, list[str]]:
        made = program(layers)
        codegen.freeze(made, weights_of(made), folder, "model", target="c", **options)
        return (
            '#include "model.h"\nstatic struct model_workspace model;\nvoid prepare(void) {}\n'
            "void predict(void) { result = model_predict(&model, image); }\nvoid train(void) {}\n",
            ["model.c"],
        )

    return write


def by_emlearn(layers: tuple[int, ...], folder: Path) -> tuple[str, list[str]]:
    import emlearn
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(1)
    x, y = rng.random((20 * layers[-1], layers[0]), np.float32), np.arange(20 * layers[-1]) % layers[-1]
    net = MLPClassifier(layers[1:-1], max_iter=2).fit(x, y)
    with chdir(folder):  # it leaves files there
        converted = emlearn.convert(net, method="inline")
    converted.save(file=str(folder / "emodel.h"), name="emodel")
    return (
        '#include "emodel.h"\nvoid prepare(void) {}\n'
        f"void predict(void) {{ result = emodel_predict(scaled, {layers[0]}); }}\nvoid train(void) {{}}\n",
        [f"-I{emlearn.includedir}"],
    )


EMPTY = Row(
    "nothing", lambda layers, folder: ("void prepare(void) {}\nvoid predict(void) {}\nvoid train(void) {}\n", [])
)


def rows() -> list[Row]:
    found = [
        Row("trains", trains(), True),
        Row("trains, with stored weights", trains(stored=True), True),
        Row("trains with Adam", trains(optim.adam()), True),
        Row("predicts", predicts()),
    ]
    if "storage" in inspect.signature(codegen.freeze).parameters:
        found += [Row(f"predicts, {name} weights", predicts(storage=name)) for name in ("float16", "int8")]
    if importlib.util.find_spec("emlearn") and importlib.util.find_spec("sklearn"):
        found.append(Row(f"emlearn {package_version('emlearn')}", by_emlearn))
    return found


def package_version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


@cache
def digit() -> bytes:
    return bytes(mnist.load(source="digits").test_images[:784])


def image_of(size: int) -> bytes:
    """The digit, or the middle of it."""
    pixels = np.frombuffer(digit(), np.uint8)
    return pixels[392 - size // 2 : 392 + size // 2].tobytes()


def compiled(row: Row, layers: tuple[int, ...], folder: Path) -> tuple[Path, Path]:
    """The programs for this machine and for the board."""
    folder.mkdir()
    text, more = row.write(layers, folder)
    data = ", ".join(map(str, image_of(layers[0])))
    shared = f"const unsigned char image[] = {{{data}}};\nfloat scaled[{layers[0]}];\nvolatile int result;\n"
    (folder / "row.c").write_text(COMMON + text)
    for name, harness in (("here", HERE), ("board", ON_BOARD)):
        (folder / f"{name}.c").write_text(COMMON + shared + harness + MAIN % layers[0])
    gcc = ["-std=gnu11", "-ffp-contract=off", "-fno-math-errno"]
    run(["gcc", "-O2", *gcc, "row.c", "here.c", *more, "-lm", "-o", "here"], folder)
    board = ["arm-none-eabi-gcc", *CORTEX_M4, *SMALL, *gcc, *BOARD_FLAGS]
    run([*board, "row.c", "board.c", *more, "-lm", "-o", "board"], folder)
    if has_wasm():
        (folder / "data.c").write_text(shared)
        (folder / "run.js").write_text(NODE)
        run(["clang", *WASM, *EXPORTS, "-w", "row.c", "data.c", *more, "-lm", "-o", "row.wasm"], folder)
    return folder / "here", folder / "board"


def has_wasm() -> bool:
    return all(map(shutil.which, ("clang", "wasm-ld", "node")))


def run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}\n{done.stderr[:2000]}")
    return done.stdout


def sizes(board: Path) -> tuple[int, int]:
    """Flash and RAM of a program, in bytes."""
    text, data, bss, *_ = map(int, run(["arm-none-eabi-size", board.name], board.parent).splitlines()[1].split()[:3])
    return text + data, data + bss


def measured(net: str, chosen: Sequence[Row], folder: Path) -> list[str]:
    layers = tuple(map(int, net.split("-")))
    made = {row.name: compiled(row, layers, folder / f"{net}_{i}") for i, row in enumerate([EMPTY, *chosen])}
    flash, ram = sizes(made[EMPTY.name][1])
    took: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(ROUNDS):  # in turns
        for name, (here, _) in made.items():
            found = run([str(here)], here.parent).split()
            found += run(["node", "run.js", "row.wasm"], here.parent).split() if has_wasm() else ["nan"] * 2
            took.setdefault(name, []).append(tuple(map(float, found)))
    lines = []
    for row in chosen:
        here, board = made[row.name]
        more, memory = sizes(board)
        ticks = [float(x) for x in run([*BOARD[:-1], "-icount", "shift=0", BOARD[-1], str(board)], folder).split()]
        best = [min(column) for column in zip(*took[row.name], strict=True)]
        numbers = [f"{best[0]:.2f}", f"{best[2]:.2f}", f"{ticks[0] * TICK:,.0f}"]
        steps = [f"{best[1]:.1f}", f"{best[3]:.1f}", f"{ticks[1] * TICK:,.0f}"]
        cells = [f"{one} / {step}" if row.trains else one for one, step in zip(numbers, steps, strict=True)]
        lines.append(f"| {net} | {row.name} | {more - flash:,} | {memory - ram:,} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", default=NETS, metavar="NET")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="those whose names contain one of these")
    options = parser.parse_args()
    missing = [tool for tool in ("gcc", "arm-none-eabi-gcc", "qemu-system-arm") if not shutil.which(tool)]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}")
    digit()  # before emlearn, which makes NumPy raise where numbers underflow
    chosen = [row for row in rows() if not options.rows or any(part in row.name for part in options.rows)]
    for tool in ("gcc", "arm-none-eabi-gcc", "qemu-system-arm", *(("clang", "node") if has_wasm() else ())):
        print(run([tool, "--version"], Path()).splitlines()[0])
    print("\n| net, float32 | | flash | RAM | µs here | µs, WebAssembly | instructions |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for net in options.nets:
            print("\n".join(measured(net, chosen, Path(folder))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
