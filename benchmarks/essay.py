"""The essay's table: one training step of the same graph, batch size 1, from interpreted Values to loops.

    micrograd           the Value graph, interpreted: rebuilt for each image, or built once and recomputed
    generated Python    what codegen.build_python writes
    straight-line C     one statement a node and a gradient, under each compiler that is there
    loops               what the wheel carries, under each compiler that is there

The first two run on CPython and on PyPy. Before anything is timed, every system takes the same three steps and must
arrive at the same bits.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import codegen
from benchmarks.essay_worker import digest
from benchmarks.measure import say
from benchmarks.report import number
from benchmarks.tasks import Data
from codegen.mnist import program
from micrograd.model import SEED

Step = Callable[[int, bytes], float]
Examples = list[tuple[int, bytes]]
ROOT = Path(__file__).resolve().parent.parent
CHECKED = 3  # steps
EPOCH = 60_000

# name, lowering, command, flags, images a round
COMPILED = [
    ("loops, gcc", "loops", "gcc", [], 20_000),
    ("loops, clang", "loops", "clang", [], 20_000),
    ("loops, tcc", "loops", "tcc", [], 5_000),
    ("straight-line C, clang -O0", "straightline", "clang", ["-O0"], 500),
    ("straight-line C, tcc", "straightline", "tcc", [], 500),
    ("straight-line C, gcc -O0", "straightline", "gcc", ["-O0"], 500),
]
SLOW = [("straight-line C, clang -O1", "straightline", "clang", ["-O1"], 1_000)]
# name, kind of worker, command, images before the first round, images a round
PYTHONS = [
    ("generated Python, PyPy", "generated", "pypy3", 3_000, 3_000),
    ("generated Python, CPython", "generated", sys.executable, 0, 200),
    ("micrograd, graph recomputed, PyPy", "recomputed", "pypy3", 20, 10),
    ("micrograd, graph rebuilt, PyPy", "rebuilt", "pypy3", 20, 10),
    ("micrograd, graph recomputed, CPython", "recomputed", sys.executable, 0, 2),
    ("micrograd, graph rebuilt, CPython", "rebuilt", sys.executable, 0, 2),
]


class System:
    """Something that trains, one image a step. `seconds` are of each round, for one image."""

    name: str
    images: int
    built: float  # seconds from Values to something that runs
    lines: int  # of generated code
    note: str

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def bits(self, examples: Examples) -> tuple[list[str], str]:
        """Takes a step for each example; returns the losses' bits and a digest of the parameters'."""
        raise NotImplementedError

    def run(self, examples: Examples) -> None:
        """Trains on the first `images` examples."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends what runs elsewhere."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Compiled(System):
    """A C extension in this process."""

    def __init__(self, folder: Path, name: str, lowering: str, command: str, flags: list[str], images: int) -> None:
        super().__init__()
        module = "essay_" + "".join(c for c in name if c.isalnum())
        made = program()
        start = time.perf_counter()
        path = codegen.build(made, folder / module, module, lowering, compiler=command, flags=flags)
        self.nn = codegen.load_extension(path, module)
        self.built = time.perf_counter() - start
        self.step = calls(self.nn)
        self.name, self.images, self.note = name, images, version(command)
        self.lines = count_lines(path.with_name(f"{module}.c"))

    def bits(self, examples: Examples) -> tuple[list[str], str]:
        losses = [self.step(*example).hex() for example in examples]
        return losses, digest(map(self.nn.data, range(self.nn.info()["parameters"])))

    def run(self, examples: Examples) -> None:
        step, part = self.step, examples[: self.images]
        start = time.perf_counter()
        for label, pixels in part:
            step(label, pixels)
        self.seconds.append((time.perf_counter() - start) / len(part))


class Worker(System):
    """essay_worker.py under some Python."""

    def __init__(self, name: str, command: str, warm_up: int, images: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.name, self.warm_up, self.images = name, warm_up, images
        script = str(Path(__file__).with_name("essay_worker.py"))
        self.process = subprocess.Popen(
            [command, script, json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        told = self.answer()
        self.built, self.note, self.lines = told["built"], told["version"], 0

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.process.communicate()
            raise RuntimeError(f"{self.name}: its process ended with {self.process.returncode}")
        result: dict[str, Any] = json.loads(line)
        return result

    def ask(self, images: int, bits: bool) -> dict[str, Any]:
        assert self.process.stdin
        print(json.dumps({"images": images, "bits": bits}), file=self.process.stdin, flush=True)
        return self.answer()

    def bits(self, examples: Examples) -> tuple[list[str], str]:
        losses, parameters = self.ask(len(examples), True)["bits"]
        if self.warm_up:
            self.ask(self.warm_up, False)
        return losses, parameters

    def run(self, examples: Examples) -> None:
        self.seconds.append(self.ask(self.images, False)["seconds"])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def calls(nn: ModuleType) -> Step:
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
    for option in ("--version", "-v"):
        text = subprocess.run([command, option], capture_output=True, text=True, check=False).stdout
        if text:
            return text.splitlines()[0]
    return command


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def compiled_systems(folder: Path, slow: bool) -> list[System]:
    found: list[System] = []
    for name, lowering, command, flags, images in [*COMPILED, *(SLOW if slow else [])]:
        if not shutil.which(command):
            say(f"  missing: {name}, as there is no {command}")
            continue
        found.append(Compiled(folder, name, lowering, command, flags, images))
        say(f"  {name}: {found[-1].built:.1f} s")
    return found


def python_systems(folder: Path, examples: Examples) -> list[System]:
    """Generated Python and micrograd itself, each as a process that reads the first images from a file."""
    most = max(max(warm_up, images) for *_, warm_up, images in PYTHONS)
    data = folder / "examples.bin"
    data.write_bytes(b"".join(bytes([label]) + pixels for label, pixels in examples[:most]))
    made = program()
    start = time.perf_counter()
    path = codegen.build_python(made, folder, "essay_generated")
    generated = time.perf_counter() - start
    options = {
        "checkout": str(ROOT),
        "data": str(data),
        "path": str(path),
        "rate": made.learning_rate,
        "scale": 1 / 255,
        "seed": SEED,
        "sizes": [784, 50, 10],
    }
    found: list[System] = []
    for name, kind, command, warm_up, images in PYTHONS:
        if not shutil.which(command):
            say(f"  missing: {name}, as there is no {command}")
            continue
        system = Worker(name, command, warm_up, images, options | {"kind": kind})
        if kind == "generated":
            system.built += generated
            system.lines = count_lines(path)
        found.append(system)
        say(f"  {name}: {system.built:.1f} s")
    return found


def table(found: list[System]) -> str:
    """Systems down, the fastest first."""
    fastest = min(system.median for system in found)
    lines = [
        "| one training step, batch size 1 | µs an image | spread | epoch of 60,000, s | times slower "
        "| from Values to something that runs, s | lines of generated code | |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for system in sorted(found, key=lambda system: system.median):
        low, high = min(system.seconds) * 1e6, max(system.seconds) * 1e6
        cells = [
            system.name,
            number(system.median * 1e6),
            f"{number(low)} to {number(high)}",
            number(system.median * EPOCH),
            number(system.median / fastest),
            f"{system.built:.1f}",
            f"{system.lines:,}" if system.lines else "",
            system.note,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def essay(data: Data, rounds: int, slow: bool) -> str:
    """The table. Raises RuntimeError where the systems do not compute the same bits."""
    say("the essay's table")
    examples = [(int(label), pixels.tobytes()) for label, pixels in zip(data.labels, data.images, strict=True)]
    found: list[System] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            found += compiled_systems(Path(folder), slow)
            found += python_systems(Path(folder), examples)
            bits = {system.name: system.bits(examples[:CHECKED]) for system in found}
            if len({(*losses, parameters) for losses, parameters in bits.values()}) != 1:
                raise RuntimeError(f"the systems do not compute the same bits: {bits}")
            for _ in range(rounds):
                for system in found:
                    system.run(examples)
        finally:
            for system in found:
                system.end()
    warm = {name: warm_up for name, _, _, warm_up, _ in PYTHONS if warm_up}
    words = (
        "After the same three steps the bits of losses and parameters are the same in all of them. Strict float64, one "
        f"thread; medians of {rounds} interleaved rounds. Before the first round PyPy has trained on "
        f"{warm[PYTHONS[0][0]]:,} images in generated Python and on {warm[PYTHONS[2][0]]} in micrograd."
    )
    return f"{words}\n\n{table(found)}"
