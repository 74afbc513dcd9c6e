"""What compiling costs: `python -m benchmarks.compile_time [--rounds N] [--output FILE]`.

    perceptron 784-50-10     pixels, hidden layers, classes
    convolution 28x28x12     3x3 convolution to 12 channels, relu, 2x2 max-pooling, a linear layer

Models of two kinds, each kind from 10,000 to four million nodes, each model in a process of its own: the seconds that
Python takes for the Values, seconds and peak memory from the Program to the C text, its length, and the seconds that C
compilers take for it. Below the table stands how time and memory grow: the exponent e of a fit nodes**e.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import processor
from codegen import Label, Pixels, Program
from codegen.pipeline import Compiled, compile_program
from codegen.toolchain import UNIX_FLAGS, csrc
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax, total
from micrograd.nn import MLP, Layer

MODELS = {
    "perceptron": ["64-20-10", "784-10-10", "784-50-10", "784-200-10", "784-512-512-10"],
    "convolution": ["12x12x2", "18x18x6", "28x28x12", "50x50x12", "66x66x16"],
}
COMPILERS = [("gcc", "-O3"), ("clang", "-O1"), ("clang", "-O3")]
HEADING = (
    "# What compiling costs\n\nWritten by `python -m benchmarks.compile_time --output benchmarks/compile_time.md`.\n\n"
)


# The models


def perceptron(name: str) -> Program:
    sizes = [int(size) for size in name.split("-")]
    random.seed(1)
    model = MLP(sizes[0], sizes[1:], init="fan_in")
    pixels, one_hot = [Value(0) for _ in range(sizes[0])], [Value(0) for _ in range(sizes[-1])]
    logits = model(pixels)
    return Program(
        inputs=Pixels(pixels, scale=1 / 255),
        targets=Label(one_hot),
        parameters=model.named_parameters(),
        order=model.parameters(),
        initial=model.initial(),
        loss=cross_entropy(logits, one_hot),
        outputs={"logits": logits, "probabilities": softmax(logits)},
    )


def convolution(name: str) -> Program:
    height, width, channels = (int(size) for size in name.split("x"))
    pixels, one_hot = [Value(0) for _ in range(height * width)], [Value(0) for _ in range(10)]
    kernels = [[Value(0.0) for _ in range(9)] for _ in range(channels)]
    features = []
    for kernel in kernels:
        rows = [[_window(kernel, pixels, width, r, c).relu() for c in range(width - 2)] for r in range(height - 2)]
        for upper, lower in zip(rows[::2], rows[1::2], strict=True):
            features += [upper[c].max(upper[c + 1], lower[c], lower[c + 1]) for c in range(0, width - 2, 2)]
    linear = Layer(len(features), 10, nonlin=False)
    logits = linear(features)
    parameters = {"kernels": kernels, **linear.named_parameters()}
    return Program(
        inputs=Pixels(pixels, scale=1 / 255),
        targets=Label(one_hot),
        parameters=parameters,
        initial=dict.fromkeys(parameters, (-0.1, 0.1)),
        loss=cross_entropy(logits, one_hot),
        outputs={"logits": logits},
    )


def _window(kernel: list[Value], pixels: list[Value], width: int, row: int, column: int) -> Value:
    return total([kernel[3 * i + j] * pixels[(row + i) * width + column + j] for i in range(3) for j in range(3)])


# Measuring


def measure(kind: str, name: str, run_compilers: bool) -> dict[str, object]:
    """One model, in this process."""
    empty = peak_mib()
    start = time.process_time()  # not the time that others take from it
    program = {"perceptron": perceptron, "convolution": convolution}[kind](name)
    declared = time.process_time()
    compiled = compile_program(program, "model")
    done = time.process_time()
    row: dict[str, object] = {
        "model": f"{kind} {name}",
        "nodes": len(compiled.graph),
        "values": declared - start,
        "to_c": done - declared,
        "peak": peak_mib(),
        "empty": empty,
        "lines": compiled.text.count("\n"),
    }
    if run_compilers:
        row["compilers"] = {f"{name} {level}": c_seconds(compiled, name, level) for name, level in found_compilers()}
    return row


def peak_mib() -> float:
    """The most memory that this process has had."""
    if sys.platform == "linux":  # where ru_maxrss also counts what the process that started this one had
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def found_compilers() -> list[tuple[str, str]]:
    return [(name, level) for name, level in COMPILERS if shutil.which(name)]


def c_seconds(compiled: Compiled, compiler: str, level: str) -> float:
    flags = [flag for flag in UNIX_FLAGS if flag != "-O3"]
    includes = [f"-I{csrc()}", f"-I{sysconfig.get_path('include')}"]
    with tempfile.TemporaryDirectory() as folder:
        for file, text in compiled.files.items():
            Path(folder, file).write_text(text)
        command = [compiler, *flags, level, "-fPIC", "-shared", *includes, "model.c", "-o", "model.so"]
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True)
        return time.perf_counter() - start


def in_new_process(kind: str, name: str, run_compilers: bool) -> dict:
    command = [sys.executable, "-m", "benchmarks.compile_time", "--one", kind, name]
    command += ["--compilers"] if run_compilers else []
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def best(kind: str, name: str, rounds: int) -> dict:
    """The first round's row, with the shortest times of all rounds. Memory hardly changes from one to the next."""
    rows = [in_new_process(kind, name, run_compilers=i == 0) for i in range(rounds)]
    return rows[0] | {column: min(row[column] for row in rows) for column in ("values", "to_c", "peak")}


# The table


def header() -> str:
    compilers = "".join(f" {name} {level}, s |" for name, level in found_compilers())
    columns = "| model | ir nodes | Values, s | to C, s | µs a node | peak MiB | lines of C |"
    return f"{columns}{compilers}\n|---{'|---:' * (6 + len(found_compilers()))}|"


def line(row: dict) -> str:
    compilers = "".join(f" {seconds:.1f} |" for seconds in row["compilers"].values())
    micros = row["to_c"] / row["nodes"] * 1e6
    return (
        f"| {row['model']} | {row['nodes']:,} | {row['values']:.2f} | {row['to_c']:.2f} | {micros:.1f} "
        f"| {row['peak']:,.0f} | {row['lines']} |{compilers}"
    )


def exponent(nodes: list[int], costs: list[float]) -> float:
    """The e of cost = c * nodes**e that fits best: least squares on the logarithms."""
    return float(np.polyfit(np.log(nodes), np.log(costs), 1)[0])


def growth(kind: str, rows: list[dict]) -> str:
    nodes = [row["nodes"] for row in rows]
    time_exponent = exponent(nodes, [row["to_c"] for row in rows])
    memory_exponent = exponent(nodes, [row["peak"] - row["empty"] for row in rows])
    return f"* {kind}: time to C grows as nodes^{time_exponent:.2f}, memory as nodes^{memory_exponent:.2f}"


def version(compiler: str) -> str:
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition("\n")[0]


def machine(rounds: int) -> str:
    versions = [f"CPython {platform.python_version()}", f"NumPy {np.__version__}"]
    versions += [version(name) for name in dict.fromkeys(name for name, _ in found_compilers())]
    return (
        f"{processor()}, {platform.system()} {platform.machine()}, {', '.join(versions)}. "
        f"The best of {rounds} processes. Time to C is from the Program to the C text; peak memory is that of the "
        "whole process, Values included."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="processes for each model, of which the best counts")
    parser.add_argument("--output", type=Path, help="also write the table to this Markdown file")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "NAME"), help="measure one model in this process, as JSON")
    parser.add_argument("--compilers", action="store_true", help="with --one: run the C compilers too")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.compilers)))
        return
    parts = []

    def show(text: str) -> None:
        parts.append(text)
        print(text, flush=True)

    show(f"{machine(options.rounds)}\n\n{header()}")
    found = {kind: [] for kind in MODELS}
    for kind, names in MODELS.items():
        for name in names:
            row = best(kind, name, options.rounds)
            found[kind].append(row)
            show(line(row))
    show("\nFitted by least squares on the logarithms, memory without that of the empty process:\n")
    for kind, rows in found.items():
        show(growth(kind, rows))
    if options.output:
        options.output.write_text(HEADING + "\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
