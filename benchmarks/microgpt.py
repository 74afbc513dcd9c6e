"""The loss of microgpt against seconds: python -m benchmarks.microgpt [--steps 10000] [--systems NAMES]

examples/microgpt.py trains on the same names in the same order, from the same weights, in batches of one: interpreted,
compiled, and written for PyTorch and JAX (peers_microgpt.py). Every system is a process of its own with one thread, and
they take turns: so many steps each, and again. Writes microgpt.md and microgpt.svg beside this file. A system that is
not installed is left out. On a busy machine BENCH_CLOCK=process_time counts processor time instead.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plots import COLOURS, OTHER, save
from benchmarks.report import number, processor
from benchmarks.worker import CLOCK, WALL

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 500  # steps between two points of a curve
INTERPRETED = "micrograd, interpreted"
OURS = "codegen, strict float64"
LOSS = {"float64": 1e-6, "float32": 0.05}  # how far the mean loss of the first chunk may be from OURS, relatively


def example() -> Any:
    sys.path.insert(0, str(ROOT / "examples"))
    return importlib.import_module("microgpt")


class Interpreted:
    """One step where the others take many; how many is said by `few`."""

    few = 3

    def __init__(self, gpt: Any, names: Sequence[str]) -> None:
        self.losses = gpt.train_interpreted(names)

    def train(self, start: int, stop: int) -> float:
        return statistics.mean(next(self.losses) for _ in range(start, stop))


class Compiled:
    few = 0

    def __init__(self, gpt: Any, names: Sequence[str], **options: Any) -> None:
        import codegen

        with tempfile.TemporaryDirectory() as cache:
            os.environ["MICROGRAD_CACHE"] = cache  # which is empty: the C compiler runs
            self.model = codegen.compile(gpt.program(), **options)
        self.tokens, self.following, self.weights = data(gpt, names)

    def train(self, start: int, stop: int) -> float:
        targets = {"following": self.following[start:stop], "weights": self.weights[start:stop]}
        return float(self.model.train(self.tokens[start:stop], targets)[0])


def data(gpt: Any, names: Sequence[str]) -> list[np.ndarray]:
    """Tokens, those that follow, and weights: a row for each name."""
    return [np.array(column) for column in zip(*map(gpt.example, names), strict=True)]


def peer(form: str, dtype: str) -> Any:
    def make(gpt: Any, names: Sequence[str]) -> Any:
        from benchmarks import peers_microgpt

        return getattr(peers_microgpt, form)(gpt, data(gpt, names), dtype)

    return make


def ours(**options: Any) -> Any:
    return lambda gpt, names: Compiled(gpt, names, **options)


SYSTEMS: dict[str, Any] = {
    INTERPRETED: Interpreted,
    "PyTorch, eager, float64": peer("Eager", "float64"),
    "PyTorch, eager, float32": peer("Eager", "float32"),
    "JAX, a jitted call a step, float32": peer("Jitted", "float32"),
    "JAX, jitted scan, float64": peer("Scanned", "float64"),
    "JAX, jitted scan, float32": peer("Scanned", "float32"),
    OURS: ours(),
    "codegen, float32, fma, reorder": ours(dtype="float32", fma=True, reorder=True),
}
NEEDS = {"PyTorch": "torch", "JAX": "jax"}


@dataclass
class Curve:
    """What a system did: seconds and mean losses of its chunks."""

    name: str
    process: subprocess.Popen[str]
    few: int = 0
    build: float = 0.0
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def ask(self, *request: int) -> list[Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended: its message is above")
        answer: list[Any] = json.loads(line)
        return answer

    def run(self, start: int, stop: int) -> None:
        seconds, loss = self.ask(start, stop)
        self.steps.append(stop - start)
        self.seconds.append(seconds)
        self.losses.append(loss)

    def step(self) -> float:
        """Microseconds, the median of all chunks."""
        return 1e6 * statistics.median(s / n for s, n in zip(self.seconds, self.steps, strict=True))


def processor_time() -> float:
    """Of this process and of compilers that it has run."""
    return sum(os.times()[:4])


def serve(name: str, steps: int) -> None:
    """A system's process: builds it, then trains as it is asked."""
    gpt = example()
    names = random.Random(1).choices(gpt.CITIES, k=steps)
    clock = time.perf_counter if CLOCK == WALL else processor_time
    start = clock()
    system = SYSTEMS[name](gpt, names)
    build = clock() - start
    for line in sys.stdin:
        request = json.loads(line)
        if request:
            start = clock()
            loss = system.train(*request)
            answer = [clock() - start, loss]
        else:
            answer = [build, system.few]
        print(json.dumps(answer), flush=True)


def measured(names: Sequence[str], steps: int) -> list[Curve]:
    curves = []
    for name in names:
        print(f"builds {name}", flush=True)
        command = [sys.executable, "-m", "benchmarks.microgpt", "--serve", name, "--steps", str(steps)]
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        one["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | one, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        curve = Curve(name, process)
        curve.build, curve.few = curve.ask()
        curves.append(curve)
    for start in range(0, steps, CHUNK):
        for curve in curves:
            first = sum(curve.steps)
            curve.run(*((first, first + curve.few) if curve.few else (start, min(start + CHUNK, steps))))
        print(f"{min(start + CHUNK, steps):,} steps", flush=True)
    for curve in curves:
        curve.process.communicate()
    expected = next((c.losses[0] for c in curves if c.name == OURS), None)
    for curve in curves if expected else ():
        allowed = LOSS["float32" if "float32" in curve.name else "float64"]
        if not curve.few and abs(curve.losses[0] / expected - 1) > allowed:
            raise RuntimeError(f"{curve.name} has a loss of {curve.losses[0]}, expected {expected}")
    return curves


def document(curves: Sequence[Curve], steps: int) -> str:
    at_one = next((c.step() for c in curves if c.name == OURS), curves[-1].step())
    lines = [
        "# microgpt",
        "",
        f"Written by `python -m benchmarks.microgpt`: {steps:,} steps, one thread, medians of turns of {CHUNK}"
        f"{'' if CLOCK == WALL else f', {CLOCK}'}. "
        f"{processor()}, {platform.system()}, CPython {platform.python_version()}.",
        "",
        f"| system | built in | a step | times ours | loss of the last {CHUNK} |",
        "|---|---:|---:|---:|---:|",
    ]
    for curve in curves:
        step = curve.step()
        last = "" if curve.few else f"{curve.losses[-1]:.3f}"
        unit = f"{number(step)} µs" if step < 1e5 else f"{step / 1e6:.2f} s"
        built = "" if curve.few else f"{curve.build:.1f} s"
        lines.append(f"| {curve.name} | {built} | {unit} | {number(step / at_one)} | {last} |")
    return "\n".join(lines) + "\n"


def picture(curves: Sequence[Curve], folder: Path) -> None:
    """The loss over seconds of training, which begin after building."""
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 8, "svg.hashsalt": "micrograd-nn", "svg.fonttype": "none"})
    figure, axis = plt.subplots(figsize=(6.2, 2.8))
    styles: dict[str, int] = {}
    for curve in curves:
        family = next((c for name, c in COLOURS.items() if curve.name.startswith(name)), COLOURS["nn"])
        family = OTHER if curve.few else family
        styles[family] = styles.get(family, -1) + 1
        seconds = np.cumsum(curve.seconds)
        label = (
            f"{curve.name}: {number(curve.step())} µs" if not curve.few else f"{curve.name}: {curve.step() / 1e6:.2f} s"
        )
        axis.plot(
            seconds, curve.losses, label=label, color=family, lw=1.3, ls=("-", "--", ":", "-.")[styles[family] % 4]
        )
    axis.set_xscale("log")
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("loss, nats a letter")
    axis.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, title="a step takes")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    save(figure, folder, "microgpt")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.microgpt", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--systems", nargs="*", default=[*SYSTEMS], choices=[*SYSTEMS], metavar="NAME")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    parser.add_argument("--serve", choices=[*SYSTEMS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.steps)
        return
    missing = [name for name in NEEDS.values() if importlib.util.find_spec(name) is None]
    chosen = [name for name in options.systems if NEEDS.get(name.split(",")[0]) not in missing]
    for name in missing:
        print(f"{name} is not installed, and left out")
    curves = measured(chosen, options.steps)
    text = document(curves, options.steps)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "microgpt.md").write_text(text, encoding="utf-8")
    print(text)
    picture(curves, options.output)


if __name__ == "__main__":
    main()
