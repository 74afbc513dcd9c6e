"""The essay's table: one training step of the same graph, batch size 1, from interpreted Values to loops.

    micrograd           the Value graph, interpreted
    straight-line C     one statement a node and a gradient, under each compiler that is there
    loops               what the wheel carries, under gcc and clang

Before anything is timed, every system takes the same three steps and must arrive at the same bits.
"""

from __future__ import annotations

import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import codegen
from benchmarks.measure import say
from benchmarks.report import number
from benchmarks.tasks import Data
from codegen.mnist import program
from codegen.reference import Engine

Step = Callable[[int, bytes], float]
# name, lowering, command, flags, images a round
COMPILERS = [
    ("loops, gcc", "loops", "gcc", [], 60_000),
    ("loops, clang", "loops", "clang", [], 60_000),
    ("straight-line C, tcc", "straightline", "tcc", [], 1_000),
    ("straight-line C, clang -O0", "straightline", "clang", ["-O0"], 1_000),
    ("straight-line C, gcc -O0", "straightline", "gcc", ["-O0"], 1_000),
]
SLOW = [("straight-line C, clang -O1", "straightline", "clang", ["-O1"], 3_000)]


class System:
    """Something that trains, one image a step. `seconds` are of each round, for one image."""

    def __init__(self, name: str, step: Step, images: int, built: float, note: str) -> None:
        self.name, self.step, self.images, self.built, self.note = name, step, images, built, note
        self.seconds: list[float] = []

    def run(self, data: list[tuple[int, bytes]]) -> None:
        step, part = self.step, data[: self.images]
        start = time.perf_counter()
        for label, pixels in part:
            step(label, pixels)
        self.seconds.append((time.perf_counter() - start) / len(part))

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def calls(nn: ModuleType | Engine) -> Step:
    """The four calls that a training loop makes for each image."""
    zero_grad, forward, backward, update = nn.zero_grad, nn.forward, nn.backward, nn.update

    def step(label: int, pixels: bytes) -> float:
        zero_grad()
        loss: float = forward(label, pixels)
        backward()
        update()
        return loss

    return step


def version(command: str) -> str:
    text = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    return text.splitlines()[0] if text else subprocess.run([command, "-v"], capture_output=True, text=True).stdout


def systems(folder: Path, slow: bool) -> list[System]:
    found = []
    for name, lowering, command, flags, images in [*COMPILERS, *(SLOW if slow else [])]:
        if not shutil.which(command):
            say(f"  missing: {command}")
            continue
        module = "essay_" + "".join(c for c in name if c.isalnum())
        start = time.perf_counter()
        path = codegen.build(program(), folder / module, module, lowering, compiler=command, flags=flags)
        seconds = time.perf_counter() - start
        found.append(System(name, calls(codegen.load_extension(path, module)), images, seconds, version(command)))
        say(f"  {name}: built in {seconds:.1f} s")
    start = time.perf_counter()
    engine = Engine(program())
    seconds = time.perf_counter() - start
    note = f"CPython {platform.python_version()}"
    return [*found, System("micrograd, interpreted", calls(engine), 3, seconds, note)]


def table(found: list[System]) -> str:
    fastest = found[0].median
    lines = [
        "| one step from Python: zero_grad, forward, backward, update | µs an image | spread | epoch of 60,000 "
        "| slower by | from Values to a module | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for system in found:
        low, high = min(system.seconds) * 1e6, max(system.seconds) * 1e6
        epoch, slower = number(system.median * 60_000), number(system.median / fastest)
        lines.append(
            f"| {system.name} | {number(system.median * 1e6)} | {number(low)} to {number(high)} "
            f"| {epoch} s | {slower} | {system.built:.1f} s | {system.note} |"
        )
    return "\n".join(lines)


def essay(data: Data, rounds: int, slow: bool) -> str:
    """The table. Raises RuntimeError where the systems do not compute the same bits."""
    say("the graph without its loops")
    examples = [(int(label), pixels.tobytes()) for label, pixels in zip(data.labels, data.images, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        found = systems(Path(folder), slow)
        losses = {tuple(system.step(*example).hex() for example in examples[:3]) for system in found}
        if len(losses) != 1:
            raise RuntimeError(f"the systems do not compute the same bits: {losses}")
        for _ in range(rounds):
            for system in found:
                system.run(examples)
        words = "All of them arrive at the same bits. Strict float64, one thread, batch size 1."
        return f"{words}\n\n{table(found)}"
