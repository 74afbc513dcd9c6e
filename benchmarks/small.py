"""Small models of many kinds, in this checkout and in others: python -m benchmarks.small [FOLDER ...]

A FOLDER is another checkout of this project, an older state for example, with a virtual environment .venv. Each
checkout builds the models of this one with its own compiler; then they take turns, and the table has the medians of
microseconds per example of train().
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

EXAMPLES = 512
SECONDS = 0.05
RATE = 1e-6

ROOT = Path(__file__).resolve().parent.parent


class Checkout:
    """A process that has built the models and trains one on demand."""

    def __init__(self, folder: Path, names: list[str], dtype: str) -> None:
        python = folder / ".venv" / "bin" / "python"
        command = [str(python if python.exists() else sys.executable), __file__, "--worker", dtype, *names]
        environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
        )
        self.answer()  # all models are built

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def train(self, name: str, batch: int) -> float:
        """Microseconds an example."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, batch]) + "\n")
        self.process.stdin.flush()
        return float(self.answer())


def work(dtype: str, names: list[str]) -> None:
    """Builds models, and then trains those whose names arrive on stdin."""
    import numpy as np

    from codegen import Label, build, load_extension

    models = runpy_models()
    ready = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(names):
            program = models[name]()
            program.dtype = dtype
            module = load_extension(build(program, Path(folder, str(i)), f"model_{i}"), f"model_{i}")
            rng = np.random.default_rng(0)
            inputs = rng.uniform(-1, 1, (EXAMPLES, len(program.inputs.values))).astype(dtype)
            targets = None
            if isinstance(program.targets, Label):
                targets = rng.integers(0, len(program.target_values), EXAMPLES, dtype=np.uint8)
            elif program.targets is not None:
                targets = rng.uniform(-1, 1, (EXAMPLES, len(program.target_values))).astype(dtype)
            ready[name] = module, inputs, targets
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            name, batch = json.loads(line)
            module, inputs, targets = ready[name]
            start, rounds = perf_counter(), 0
            while perf_counter() - start < SECONDS:
                module.train(inputs, targets, batch_size=batch, learning_rate=RATE)
                rounds += 1
            print(1e6 * (perf_counter() - start) / rounds / EXAMPLES, flush=True)


def runpy_models() -> dict[str, Any]:
    """This checkout's models, made by the micrograd and codegen of the one that runs."""
    import runpy

    found: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "small_models.py"))["MODELS"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--models", nargs="+", default=list(runpy_models()))
    options = parser.parse_args()
    folders = [*(folder.resolve() for folder in options.folders), ROOT]
    checkouts = [Checkout(folder, options.models, options.dtype) for folder in folders]
    print(f"us an example, {options.dtype}, one thread; median of {options.rounds} rounds")
    print(f"{'':26}{'batch':>6}" + "".join(f"{folder.name:>12}" for folder in folders))
    for name in options.models:
        for batch in options.batch:
            times: list[list[float]] = [[] for _ in checkouts]
            for _ in range(options.rounds):
                for checkout, found in zip(checkouts, times, strict=True):
                    found.append(checkout.train(name, batch))
            print(f"{name:26}{batch:6}" + "".join(f"{median(found):12.2f}" for found in times), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], sys.argv[3:])
    else:
        main()
