"""One training step on MNIST, three ways: `python -m benchmarks [--images N] [--rounds N] [--output FILE]`.

    micrograd           the Value graph, interpreted
    straight-line C     one statement a node and a gradient, under each compiler that is there
    loops               what the wheel carries, once a call from Python and once as train()

All run interleaved, so that a slow minute of the machine meets each of them; the table has medians and the spread.
Before anything is timed, every system takes the same three steps and must arrive at the same bits.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import codegen
from codegen.mnist import program
from codegen.reference import Engine
from micrograd import mnist

PIXELS = 784
HEADING = """# Speed of one training step on MNIST

Written by `make bench`; the systems arrive at the same bits."""


class System:
    """Something that trains, one image a step. `epoch` returns the seconds that `images` steps took."""

    def __init__(self, name: str, step: Callable[[int, bytes], float], images: int, note: str = "") -> None:
        self.name, self.step, self.images, self.note = name, step, images, note
        self.seconds: list[float] = []

    def run(self, data: list[tuple[int, bytes]]) -> None:
        step = self.step
        part = data[: self.images]
        start = time.perf_counter()
        for label, pixels in part:
            step(label, pixels)
        self.seconds.append((time.perf_counter() - start) / len(part))

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def calls(nn: ModuleType) -> Callable[[int, bytes], float]:
    """The four calls that a training loop makes for each image."""
    zero_grad, forward, backward, update = nn.zero_grad, nn.forward, nn.backward, nn.update

    def step(label: int, pixels: bytes) -> float:
        zero_grad()
        loss: float = forward(label, pixels)
        backward()
        update()
        return loss

    return step


def interpreted() -> Callable[[int, bytes], float]:
    engine = Engine(program())

    def step(label: int, pixels: bytes) -> float:
        engine.zero_grad()
        loss = engine.forward(label, pixels)
        engine.backward()
        engine.update()
        return loss

    return step


class Train(System):
    """Whole epochs in C."""

    def __init__(self, nn: ModuleType, images: int) -> None:
        super().__init__("loops, train()", lambda label, pixels: nn.train(pixels, bytes([label]))[0], images)
        self.nn = nn

    def run(self, data: list[tuple[int, bytes]]) -> None:
        labels, images = bytes(label for label, _ in data), b"".join(pixels for _, pixels in data)
        start = time.perf_counter()
        self.nn.train(images, labels)
        self.seconds.append((time.perf_counter() - start) / len(data))


def compilers() -> list[tuple[str, str, list[str], int]]:
    """(name, command, flags, images a round) of what can compile the straight-line C in a few seconds."""
    candidates = [
        ("tcc", "tcc", [], 2000),
        ("gcc -O0", "gcc", ["-O0"], 2000),
        ("clang -O0", "clang", ["-O0"], 2000),
        ("clang -O1", "clang", ["-O1"], 5000),
    ]
    return [c for c in candidates if shutil.which(c[1])]


def version(command: str) -> str:
    text = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    return text.splitlines()[0] if text else subprocess.run([command, "-v"], capture_output=True, text=True).stdout


def build(folder: Path, name: str, lowering: str, compiler: str | None, flags: list[str]) -> tuple[ModuleType, float]:
    """The module, and the seconds from the Values to it."""
    start = time.perf_counter()
    path = codegen.build(program(), folder / name, name, lowering, compiler=compiler, flags=flags)
    seconds = time.perf_counter() - start
    return codegen.load_extension(path, name), seconds


def systems(folder: Path, images: int) -> list[System]:
    loops, seconds = build(folder, "loops", "loops", None, [])
    info = loops.info()
    result = [
        System(
            "loops, four calls", calls(loops), images, f"{info['compiler']}, {info['simd']}; built in {seconds:.1f} s"
        )
    ]
    whole, _ = build(folder, "whole", "loops", None, [])
    result.append(Train(whole, images))
    for label, command, flags, count in compilers():
        name = "straight_" + label.replace(" ", "").replace("-", "")
        module, seconds = build(folder, name, "straightline", command, flags)
        note = f"{version(command)}; built in {seconds:.1f} s"
        result.append(System(f"straight-line C, {label}", calls(module), min(count, images), note))
    result.append(
        System("micrograd, interpreted", interpreted(), min(3, images), f"CPython {platform.python_version()}")
    )
    return result


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(found: list[System], source: str, rounds: int) -> str:
    fastest = found[0].median
    lines = [
        f"{processor()}, {platform.system()} {platform.machine()}, CPython {platform.python_version()}. "
        f"One thread. Data: {source}. Median of {rounds} interleaved rounds.",
        "",
        "| one step: forward, backward, update | µs an image | spread | epoch of 60,000 | slower by | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for system in found:
        low, high = min(system.seconds), max(system.seconds)
        lines.append(
            f"| {system.name} | {system.median * 1e6:,.2f} | {low * 1e6:,.2f} to {high * 1e6:,.2f} "
            f"| {system.median * 60_000:,.2f} s | {system.median / fastest:,.1f} | {system.note} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the MNIST files")
    parser.add_argument("--images", type=int, default=60_000, help="images a round for the fast systems")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the table to this Markdown file")
    options = parser.parse_args()
    digits = mnist.load(options.data)
    pixels = digits.train_images
    data = [
        (label, pixels[i * PIXELS : (i + 1) * PIXELS]) for i, label in enumerate(digits.train_labels[: options.images])
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = systems(Path(folder), len(data))
        losses = {tuple(system.step(*example).hex() for example in data[:3]) for system in found}
        if len(losses) != 1:
            print(f"the systems do not compute the same bits: {losses}", file=sys.stderr)
            return 1
        for _ in range(options.rounds):
            for system in found:
                system.run(data)
        text = table(found, "the built-in digits" if "built-in" in digits.source else "MNIST", options.rounds)
    print(text)
    if options.output:
        options.output.write_text(f"{HEADING}\n\n{text}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
