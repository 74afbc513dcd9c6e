"""One thread and two, on a quiet machine and on a busy one: python -m benchmarks.threads [FOLDER ...]

A FOLDER is another checkout of this project, an older state for example, with a virtual environment .venv and its `nn`
built. Each checkout trains in a process of its own, and all of them take turns: one thread, two threads, the next
checkout. A busy machine has further processes that do nothing but compute.

Other work on the machine disturbs the quiet rows, so these compare the fastest calls, of 1,000 images each: those
during which nothing else ran. On a machine that is never quiet, as root, `chrt -f 10` before the command has the same
effect. The busy rows compare medians of the rounds, because the disturbance is what they measure.

With --predictions, Python threads call predict_batch on 100 images each instead, of this checkout alone: how many calls
a second several threads make, against one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

IMAGES = 1000  # a call
SMALL = "logistic regression, L2"  # less than a microsecond an example
SYSTEMS = [("mnist", 16), ("mnist", 64), ("mnist", 256), ("mnist", 1000), (SMALL, 16), (SMALL, 256)]
RATE = 1e-6
THREADS = (1, 2)

ROOT = Path(__file__).resolve().parent.parent


class Checkout:
    """A process that trains on demand."""

    def __init__(self, folder: Path) -> None:
        python = folder / ".venv" / "bin" / "python"
        command = [str(python if python.exists() else sys.executable), __file__, "--worker"]
        environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
        )
        self.answer()  # the small model is built

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def train(self, name: str, batch: int, threads: int, seconds: float) -> list[float]:
        """Microseconds an image: of the fastest call, and of all."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, batch, threads, seconds]) + "\n")
        self.process.stdin.flush()
        found: list[float] = self.answer()
        return found


def work() -> None:
    """Trains what arrives on stdin."""
    with tempfile.TemporaryDirectory() as folder:
        models = {"mnist": mnist(), SMALL: small(Path(folder))}
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            name, batch, threads, seconds = json.loads(line)
            print(json.dumps(timed(models[name], batch, threads, seconds)), flush=True)


def timed(train: Callable[..., object], batch: int, threads: int, seconds: float) -> tuple[float, float]:
    start = end = perf_counter()
    fastest, calls = seconds, 0
    while end - start < seconds:
        begin = end
        train(batch_size=batch, threads=threads, learning_rate=RATE)
        end = perf_counter()
        fastest, calls = min(fastest, end - begin), calls + 1
    return 1e6 * fastest / IMAGES, 1e6 * (end - start) / calls / IMAGES


def mnist() -> Callable[..., object]:
    import nn

    from micrograd.data.digits import generate

    images, labels = generate(IMAGES)
    return lambda **options: nn.train(images, labels, **options)


def small(folder: Path) -> Callable[..., object]:
    import numpy as np

    from benchmarks.small.models import MODELS
    from codegen import build, load_extension

    program = MODELS[SMALL]()
    module = load_extension(build(program, folder, "small"), "small")
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (IMAGES, len(program.input_values)))
    labels = rng.integers(0, len(program.target_values), IMAGES, dtype=np.uint8)
    return lambda **options: module.train(inputs, labels, **options)


def predictions(rounds: int, seconds: float) -> None:
    """Throughput of Python threads that predict at the same time."""
    import nn
    import nn_infer

    from micrograd.data.digits import generate

    images, _ = generate(100)
    calls = {"nn": nn.predict_batch, "nn_infer": nn_infer.predict_batch}

    def rate(call: Callable[[bytes], bytes], threads: int) -> float:
        counts, end = [0] * threads, perf_counter() + seconds

        def work(number: int) -> None:
            while perf_counter() < end:
                call(images)
                counts[number] += 1

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        start = perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts) / (perf_counter() - start)

    for name, call in calls.items():
        rates = {threads: [rate(call, threads) for _ in range(rounds)] for threads in (1, 2, 8)}
        one = median(rates[1])
        others = ", ".join(f"{threads} threads {median(rates[threads]) / one:.2f} times" for threads in (2, 8))
        print(f"{name:10}{one:9.0f} calls a second; {others}", flush=True)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        sleep(0.2 * bool(others))
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    from benchmarks.report import processor

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="further processes")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each measurement")
    parser.add_argument("--predictions", action="store_true", help="of several Python threads")
    options = parser.parse_args()
    if options.predictions:
        predictions(options.rounds, options.seconds)
        return
    folders = [*(folder.resolve() for folder in options.folders), ROOT]
    checkouts = [Checkout(folder) for folder in folders]
    print(f"{processor()}, {os.cpu_count()} CPUs; us an image, float64, {options.rounds} rounds of {options.seconds} s")
    print(f"{'':24}{'busy':>5}{'batch':>7}{'1 thread':>11}{'2 threads':>11}{'ratio':>7}  checkout")
    for others in options.busy:
        for name, batch in SYSTEMS:
            times: dict[tuple[Path, int], list[float]] = {(f, t): [] for f in folders for t in THREADS}
            with busy(others):
                for _ in range(options.rounds):
                    for folder, checkout in zip(folders, checkouts, strict=True):
                        for threads in THREADS:
                            fastest, mean = checkout.train(name, batch, threads, options.seconds)
                            times[folder, threads].append(mean if others else fastest)
            for folder in folders:
                one, two = ((median if others else min)(times[folder, threads]) for threads in THREADS)
                row = f"{name:24}{others:5}{batch:7}{one:11.2f}{two:11.2f}{one / two:7.2f}"
                print(f"{row}  {folder.name}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    else:
        main()
