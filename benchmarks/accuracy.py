"""Time to 97 % of MNIST's test set: each system with the batch size that gets it there first.

Everybody starts from the same weights, goes through the file in the same order and takes the learning rates of
benchmarks/grid.md; the test set is looked at every 6,000 images, outside the clock. How many images a batch size needs
is in that file, so a short trial of each batch size says which one a system should take; that one is then run, in
turns with the others', from several initialisations. Peers run in float32, which is their fastest.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field

from benchmarks.measure import Bench, say
from benchmarks.tasks import Missing, Task, accuracy, initial
from benchmarks.worker import Worker

GOAL, PART, MOST = 0.97, 6_000, 600_000
# batch size: (learning rate, thousands of images to 97 %), the best of benchmarks/grid.md
GRID: dict[int, tuple[float, float]] = {
    1: (0.008, 216.0),
    2: (0.008, 264.0),
    4: (0.02, 258.0),
    8: (0.05, 216.0),
    16: (0.08, 258.0),
    30: (0.12, 258.0),
    60: (0.2, 258.0),
    120: (0.5, 258.0),
    240: (0.5, 366.0),
}
ENTRANTS = ("nn strict, train", "nn fast, train", "JAX, epoch", "PyTorch, Sequential", "PyTorch, by hand")


@dataclass
class Race:
    """One system at its best batch size. `curves` are (seconds, accuracy) of each initialisation."""

    name: str
    threads: int
    dtype: str
    worker: Worker
    trials: dict[int, float]  # batch size: seconds that the trial promises
    curves: list[list[tuple[float, float]]] = field(default_factory=list)

    @property
    def batch(self) -> int:
        return min(self.trials, key=self.trials.__getitem__)

    @property
    def seconds(self) -> list[float]:
        """To the goal; infinite where it was not reached."""
        return [curve[-1][0] if curve[-1][1] >= GOAL else float("inf") for curve in self.curves]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def task(self, batch: int) -> Task:
        return Task("train", self.dtype, batch, images=PART, rate=GRID[batch][0], parts=10)

    def run(self, bench: Bench, seed: int) -> None:
        curve, seconds, images = [(0.0, 0.1)], 0.0, 0
        while curve[-1][1] < GOAL and images < MOST:
            weights = initial("784-50-10", seed) if images == 0 else None
            seconds += self.worker.run(self.name, weights, images // PART % 10)
            images += PART
            data = bench.data
            curve.append((seconds, accuracy(self.worker.weights(self.name), data.test_images, data.test_labels)))
        self.curves.append(curve)


def trials(bench: Bench, worker: Worker, dtype: str) -> list[Race]:
    """What each batch size promises, for every system of a worker."""
    found: dict[str, Race] = {}
    for batch, (rate, thousands) in GRID.items():
        try:
            names = worker.names(Task("train", dtype, batch, images=PART, rate=rate))
        except Missing:
            return []
        for name in names:
            if not name.startswith(ENTRANTS) or not re.search(bench.systems, name):
                continue
            try:
                _, images = worker.open(name)
                seconds = min(worker.run(name, initial("784-50-10")) for _ in range(3)) / images
            except Missing:
                continue
            race = found.setdefault(name, Race(name, worker.threads, dtype, worker, {}))
            race.trials[batch] = seconds * thousands * 1000
        worker.close()
    return list(found.values())


def race(bench: Bench, seeds: int) -> list[Race]:
    """Every entrant with its best batch size, the fastest first; of a peer's numbers of threads the better one."""
    say("time to 97 %")
    races: dict[str, Race] = {}
    for worker in bench.workers:
        for dtype in ("f64", "f32") if worker.library == "ours" else ("f32",):
            for entrant in trials(bench, worker, dtype):
                key = f"{entrant.name} {dtype}"
                say(f"  {key}, {entrant.threads}: " + ", ".join(f"{b}: {s:.3f} s" for b, s in entrant.trials.items()))
                if key not in races or min(entrant.trials.values()) < min(races[key].trials.values()):
                    races[key] = entrant
    for entrant in races.values():
        entrant.worker.names(entrant.task(entrant.batch))
        entrant.worker.open(entrant.name)
    ready: list[Race] = list(races.values())
    for seed in range(1, seeds + 1):
        for entrant in ready:
            entrant.run(bench, seed)
    for worker in bench.workers:
        worker.close()
    return sorted(ready, key=lambda r: r.median)
