"""Which small models are measured in which columns, and whether every system arrives at the same parameters."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.measure import Different, Result, Turns
from benchmarks.small import Named
from benchmarks.small.models import WIDE
from benchmarks.tasks import Task
from benchmarks.worker import Worker

OURS = "small.ours"
PEERS = ("small.peers_jax", "small.peers_torch", "small.peers_numpy")
EXAMPLES, WIDE_EXAMPLES = 2048, 512  # an epoch
# How far parameters may be from those of strict float64, as a share of the way that training took them.
DISTANCE = {"f64": 1e-10, "f32": 2e-2}


def tasks(names: Iterable[str], dtypes: Iterable[str], batches: Iterable[int]) -> list[Task]:
    """A column for each model, type and batch size, in this order."""
    count = {name: WIDE_EXAMPLES if name in WIDE else EXAMPLES for name in names}
    return [Task("small", d, b, name, images) for name, images in count.items() for d in dtypes for b in batches]


def check_parameters(task: Task, start: Named, expected: Named, found: Named) -> float:
    """The largest distance of a tensor, as a share of the way it went. Raises Different if it is too large."""
    if expected.keys() != found.keys():
        raise Different(f"its parameters are {sorted(found)}, ours {sorted(expected)}")
    distance = 0.0
    for name, goal in expected.items():
        way = float(np.abs(goal - start[name]).max())
        if not way > 0:
            raise Different(f"nothing to compare: training left {name} where it was")
        share = float(np.abs(found[name] - goal).max()) / way
        if not share <= DISTANCE[task.dtype]:
            raise Different(f"its {name} differs from ours by {share:.0e} of what it learned")
        distance = max(distance, share)
    return distance


class SmallBench(Turns):
    """Every library with `threads` threads; other checkouts are measured as systems of their own."""

    def __init__(
        self, folder: Path, threads: int, systems: str, rounds: int, peers: Iterable[str] = PEERS,
        checkouts: Iterable[Path] = (),
    ) -> None:  # fmt: skip
        super().__init__(systems, rounds)
        self.starts: dict[str, Named] = {}
        self.expected: dict[tuple[str, int, int], Named] = {}
        self.ours = Worker(OURS, threads, folder)
        self.start(self.ours)
        for checkout in checkouts:
            self.start(Worker(OURS, threads, folder, checkout))
        for library in peers:
            self.start(Worker(library, threads, folder))

    def start_weights(self, task: Task) -> Named:
        """Those that the graph has; our own system is the first to be opened, and has not run yet."""
        if task.model not in self.starts:
            self.open_reference(Task("small", "f64", task.batch, task.model, task.batch))
            self.starts[task.model] = self.ours.weights("reference")
        return self.starts[task.model]

    def open_reference(self, task: Task) -> None:
        [name] = self.ours.names(task)
        self.ours.open_as("reference", name)

    def trained(self, task: Task) -> Named:
        """The parameters after so many examples in strict float64, from the start."""
        key = task.model, task.batch, task.images
        if key not in self.expected:
            self.open_reference(task)
            self.ours.run("reference", self.starts[task.model])
            self.expected[key] = self.ours.weights("reference")
        return self.expected[key]

    def check(self, worker: Worker, result: Result) -> None:
        """One run, the first, from the same weights."""
        task, start = result.task, self.start_weights(result.task)
        worker.run(result.name, start)
        expected = self.trained(Task("small", "f64", task.batch, task.model, result.images))
        result.distance = check_parameters(task, start, expected, worker.weights(result.name))
