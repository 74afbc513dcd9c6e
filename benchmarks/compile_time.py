"""What compiling costs: `python -m benchmarks.compile_time`.

Perceptrons of growing width, each in a process of its own: seconds and peak memory from the Program to the C text, its
length, and the seconds that C compilers take for it.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from codegen import Label, Pixels, Program
from codegen.build import UNIX_FLAGS, csrc
from codegen.pipeline import compile_program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP

SIZES = ["784-50-10", "784-200-10", "784-512-10", "784-512-512-10"]
COMPILERS = [("gcc", "-O3"), ("clang", "-O1"), ("clang", "-O3")]


def perceptron(sizes: list[int]) -> Program:
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


def measure(name: str, folder: Path) -> None:
    """Prints one row of the table."""
    start = time.perf_counter()
    program = perceptron([int(size) for size in name.split("-")])
    traced = time.perf_counter()
    compiled = compile_program(program, "model")
    done = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    (folder / "model.c").write_text(compiled.text)
    columns = [name, f"{len(compiled.graph):,}", f"{traced - start:.2f}", f"{done - traced:.2f}", f"{memory:.2f}"]
    columns.append(str(compiled.text.count("\n")))
    for compiler, level in COMPILERS:
        columns.append(f"{compile_seconds(compiler, level, folder):.2f}" if shutil.which(compiler) else "")
    print(f"| {' | '.join(columns)} |", flush=True)


def compile_seconds(compiler: str, level: str, folder: Path) -> float:
    flags = [flag for flag in UNIX_FLAGS if flag != "-O3"]
    includes = [f"-I{csrc()}", f"-I{sysconfig.get_path('include')}"]
    command = [compiler, *flags, level, "-fPIC", "-shared", *includes, "model.c", "-o", "model.so"]
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__.splitlines()[0])
    parser.add_argument("--one", metavar="SIZES", help="measure one model in this process, as in --one 784-50-10")
    one = parser.parse_args().one
    if one:
        with tempfile.TemporaryDirectory() as folder:
            measure(one, Path(folder))
        return
    compilers = " | ".join(f"{compiler} {level}, s" for compiler, level in COMPILERS)
    print(f"| model | ir nodes | Values, s | to C, s | peak GiB | lines of C | {compilers} |", flush=True)
    print("|---" + "|---:" * (5 + len(COMPILERS)) + "|", flush=True)
    for name in SIZES:
        subprocess.run([sys.executable, "-m", "benchmarks.compile_time", "--one", name], check=True)


if __name__ == "__main__":
    main()
