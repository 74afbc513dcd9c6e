"""One column of a table: every system that can do a task, checked, then run in turns."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.tasks import Data, Missing, Task, Weights, initial, logits, loss
from benchmarks.worker import Worker

OURS = "ours"
PEERS = ("peers_jax", "peers_torch", "peers_numpy", "peers_sklearn", "peers_onnx")
REFERENCE = "nn strict, train, 1 thread"
# How far a loss on the test set may be from that of strict float64, relatively, after the same steps; and how many of
# the classes may differ. In float32 a relu whose input is nearly 0 falls on the other side now and then, and from that
# step on two runs drift apart; the same code in float64 does not.
LOSS = {"f64": 1e-6, "f32": 0.1}
CLASSES = {"f64": 1e-4, "f32": 1e-3}


@dataclass
class Result:
    """A system in a column. `distance` is how far from strict float64 it arrived."""

    task: Task
    library: str
    name: str
    threads: int
    note: str
    images: int
    distance: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        return self.library.rpartition(".")[2] == OURS

    @property
    def label(self) -> str:
        return self.name if self.ours else f"{self.name} ·{self.threads}"

    @property
    def micros(self) -> list[float]:
        """µs an image, of each round."""
        return sorted(s / self.images * 1e6 for s in self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.micros)


@dataclass
class Column:
    task: Task
    results: list[Result]
    missing: list[str]

    def best(self, ours: bool, pattern: str = "") -> Result | None:
        """The fastest of our systems, or of the peers, whose names match."""
        found = [r for r in self.results if r.ours == ours and re.search(pattern, r.name)]
        return min(found, key=lambda r: r.median, default=None)


class Different(Exception):
    """A system that learned or recognised something else, so that its time means nothing."""


def check_loss(task: Task, before: float, expected: float, found: float) -> float:
    """The relative distance of two losses. Raises Different where it is too far, or where nothing was learned."""
    if not before - expected > 0.1 * before:
        raise Different(f"nothing to compare: the loss went from {before:.4f} to {expected:.4f}")
    distance = abs(found - expected) / expected
    if not distance <= LOSS[task.dtype]:
        raise Different(f"its loss is {found:.6f}, ours {expected:.6f}: it does not learn the same")
    return distance


def check_classes(task: Task, expected: Sequence[int], found: Sequence[int]) -> float:
    """The share of images that are taken for something else. Raises Different where there are too many."""
    if len(expected) != len(found):
        raise Different(f"it classified {len(found)} images of {len(expected)}")
    share = sum(int(a) != int(b) for a, b in zip(expected, found, strict=True)) / len(expected)
    if not share <= CLASSES[task.dtype]:
        raise Different(f"{share:.2%} of its classes differ from ours")
    return share


def hopeless(result: Result, others: Sequence[Result]) -> bool:
    """Whether it took twice as long as the same system with another number of threads, which is what will be shown."""
    return any(r.name == result.name and 2 * r.micros[0] < result.micros[0] for r in others)


class Turns:
    """Workers that take turns. Subclasses say what they start from, and what they must arrive at."""

    def __init__(self, systems: str, rounds: int) -> None:
        self.rounds, self.systems = rounds, systems
        self.versions: list[str] = []
        self.missing: list[str] = []
        self.workers: list[Worker] = []

    def start(self, worker: Worker) -> None:
        try:
            version = worker.version()
        except Missing as error:
            worker.end()
            name = worker.title.rpartition(".")[2].removeprefix("peers_")
            if f"{name}: " not in "".join(self.missing):
                self.missing.append(f"{name}: {error}")
            return
        if version not in self.versions:
            self.versions.append(version)
        self.workers.append(worker)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()

    def column(self, task: Task, only: str = "") -> Column:
        """Opens, checks and measures every system for a task."""
        say(f"{task.kind} {task.model} {task.dtype} batch {task.batch} {task.optimizer}".rstrip())
        column = Column(task, [], [])
        runs: list[tuple[Result, Callable[[], float]]] = []
        for worker in self.workers:
            try:
                names = worker.names(task)
            except Missing as error:
                column.missing.append(f"{worker.title}: {error}")
                continue
            for name in names:
                if not re.search(only, name) or not re.search(self.systems, name):
                    continue
                try:
                    note, images = worker.open(name)
                    result = Result(task, worker.title, name, worker.threads, note, images)
                    self.check(worker, result)
                    runs.append((result, partial(worker.run, name, self.start_weights(task))))
                except (Missing, Different) as error:
                    label = Result(task, worker.library, name, worker.threads, "", 0).label
                    column.missing.append(f"{label}: {error}")
                    say(f"  missing: {column.missing[-1]}")
        for i in range(self.rounds):
            for result, run in runs:
                if i == 0 or not hopeless(result, [r for r, _ in runs]):
                    result.seconds.append(run())
        for worker in self.workers:
            worker.close()
        column.results = [result for result, _ in runs]
        for result in sorted(column.results, key=lambda r: r.median):
            say(f"  {result.median:10.2f}  {result.label}  {result.note}")
        return column

    def start_weights(self, task: Task) -> Any:
        raise NotImplementedError

    def check(self, worker: Worker, result: Result) -> None:
        """Sets the distance of a result, or raises Different."""
        raise NotImplementedError


class Bench(Turns):
    """The MNIST nets, and what all columns need."""

    def __init__(self, data: Data, folder: Path, threads: int, systems: str, rounds: int) -> None:
        super().__init__(systems, rounds)
        self.data = data
        self.expected: dict[tuple[str, int, int, str], float] = {}
        self.trained: Weights = []
        data.save(folder)
        for library in (OURS, *PEERS):
            for count in [threads] if library == OURS else sorted({1, threads}):
                self.start(Worker(library, count, folder))

    def start_weights(self, task: Task) -> Weights:
        return self.trained or initial(task.model) if task.kind == "infer" else initial(task.model)

    def check(self, worker: Worker, result: Result) -> None:
        """One run, the first, from the same weights."""
        task, tests = result.task, self.data.test_images
        weights = self.start_weights(task)
        if task.kind == "infer":
            found = worker.classes(result.name, weights)
            expected = logits(weights, tests[: task.calls[0]]).argmax(1)
            result.distance = check_classes(task, expected.tolist(), found.tolist())
            return
        worker.run(result.name, weights)
        found = loss(worker.weights(result.name), tests, self.data.test_labels)
        before = loss(weights, tests, self.data.test_labels)
        result.distance = check_loss(task, before, self.reference(task, result.images), found)

    def reference(self, task: Task, images: int) -> float:
        """The loss on the test set after so many images in strict float64."""
        key = task.model, task.batch, images, task.optimizer
        if key not in self.expected:
            ours = next((w for w in self.workers if w.library == OURS), None)
            if ours is None:
                raise Missing("our own module is missing, so there is nothing to compare with")
            ours.names(replace(task, dtype="f64", images=images))
            ours.open_as("reference", REFERENCE)
            ours.run("reference", initial(task.model))
            weights = ours.weights("reference")
            self.expected[key] = loss(weights, self.data.test_images, self.data.test_labels)
            if task.model == "784-50-10" and not task.optimizer:
                self.trained = weights
            ours.names(task)
        return self.expected[key]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
