"""Training versus inference: what a model gains when its weights are constants.

The wheel's weights in modules of several kinds: the one that trains, frozen ones with the weights in a table, and a
frozen straight-line one with the weights in its statements, which is what the essay wanted to try. All that compute in
strict float64 must give the same bits first. Then they predict, in turns, one image a call and many.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from types import ModuleType

import numpy as np

import codegen
from benchmarks.measure import say
from benchmarks.report import number
from benchmarks.tasks import Data
from codegen import mnist
from codegen.weights import read_weights

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = ROOT / "weights" / "mnist.safetensors"
CHECKED = 200  # images
ONE_BY_ONE = 2_000  # images a round
STRAIGHT = ["-O0", "-O1"]  # of clang

Weights = dict[str, np.ndarray]


@dataclass
class System:
    name: str
    module: ModuleType
    size: int  # bytes of the module
    built: float  # seconds from Values to a module
    one: list[float] = field(default_factory=list)  # seconds an image, of each round
    many: list[float] = field(default_factory=list)

    def run(self, images: np.ndarray, singles: list[bytes]) -> None:
        predict = self.module.predict
        start = perf_counter()
        for pixels in singles:
            predict(pixels)
        between = perf_counter()
        self.module.predict_batch(images)
        self.one.append((between - start) / len(singles))
        self.many.append((perf_counter() - between) / len(images))

    def accuracy(self, data: Data) -> float:
        found = np.frombuffer(self.module.predict_batch(data.test_images), np.uint8)
        return float((found == data.test_labels).mean())


def made(name: str, make: Callable[[str], Path], weights: Weights | None = None) -> System:
    """Builds and loads a module; a trainable one gets its weights then."""
    module_name = "frozen_" + "".join(c for c in name if c.isalnum())
    start = perf_counter()
    path = make(module_name)
    built = perf_counter() - start
    module = codegen.load_extension(path, module_name)
    if weights is not None:
        module.load_state_dict(weights)
    say(f"  {name}: {built:.1f} s")
    return System(name, module, path.stat().st_size, built)


def systems(folder: Path) -> tuple[list[System], list[System]]:
    """Those that must agree by bits, and the others."""
    weights = {name: np.float64(tensor) for name, tensor in read_weights(WEIGHTS).items()}
    singles = {name: np.float32(tensor) for name, tensor in weights.items()}
    # Numbers that float32 does not hold, so that the table must be one of doubles.
    doubles = {name: tensor * (1 + 2**-40) for name, tensor in weights.items()}
    program, single = mnist.program, lambda: replace(mnist.program(), dtype="float32")
    strict = [
        made("trainable, float64", lambda name: codegen.build(program(), folder, name), weights),
        made(
            "frozen, float64, weights stored as float32", lambda name: codegen.freeze(program(), weights, folder, name)
        ),
    ]
    if shutil.which("clang"):
        for flag in STRAIGHT:

            def straight(name: str, flag: str = flag) -> Path:
                return codegen.freeze(program(), weights, folder, name, "straightline", compiler="clang", flags=[flag])

            strict.append(made(f"frozen, float64, straight-line, clang {flag}", straight))
    others = [
        made(
            "frozen, float64, weights stored as float64", lambda name: codegen.freeze(program(), doubles, folder, name)
        ),
        made("trainable, float32", lambda name: codegen.build(single(), folder, name), singles),
        made("frozen, float32", lambda name: codegen.freeze(single(), weights, folder, name)),
    ]
    return strict, others


def median(seconds: list[float]) -> str:
    return f"{number(statistics.median(seconds) * 1e6)} ({number(min(seconds) * 1e6)} to {number(max(seconds) * 1e6)})"


def frozen(data: Data, rounds: int) -> str:
    """The table. Raises RuntimeError where strict modules do not compute the same bits."""
    say("training versus inference")
    images = data.test_images
    singles = [image.tobytes() for image in images[:ONE_BY_ONE]]
    with tempfile.TemporaryDirectory() as folder:
        strict, others = systems(Path(folder))
        for pixels in singles[:CHECKED]:
            if len({system.module.outputs(pixels)["logits"] for system in strict}) != 1:
                raise RuntimeError("the strict modules do not compute the same bits")
        found = [*strict, *others]
        for _ in range(rounds):
            for system in found:
                system.run(images, singles)
        lines = [
            "| | µs, one image a call | µs, 10,000 a call | accuracy | module | from Values to a module |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for system in found:
            lines.append(
                f"| {system.name} | {median(system.one)} | {median(system.many)} | {system.accuracy(data):.2%} "
                f"| {system.size / 1000:,.0f} KB | {system.built:.1f} s |"
            )
    words = (
        f"784-50-10 with the wheel's weights, one thread, SIMD level {found[0].module.info()['simd']}; medians of "
        f"{rounds} interleaved rounds, in brackets the lowest and the highest. The first {len(strict)} agree by bits."
    )
    return "\n".join([words, "", *lines])
