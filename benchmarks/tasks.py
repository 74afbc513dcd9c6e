"""What is measured, and on what: tasks, data and weights, the same for every system."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np

from micrograd.nn import MLP

Array = np.ndarray[Any, np.dtype[Any]]
Weights = list[tuple[Array, Array]]  # of each layer: weight (out, in) and bias (out,), float64

PIXELS = 784
SMALL, DEEP = "784-50-10", "784-200-100-10"
# Plain SGD needs a rate for each batch size; these are sane, and the same for everybody.
RATES = {1: 0.008, 64: 0.1, 1000: 0.5}
MANY = 10_000
TRIAL = 3_000


@dataclass(frozen=True)
class Task:
    """One column of a table.

    dtype is "f64" or "f32". kind "train": `images` images, `batch` a step. kind "infer": `batch` images a call. `parts`
    is how many pieces of that many images a job must hold ready. `optimizer` is "" for plain SGD, "momentum" or "adam".
    """

    kind: str
    dtype: str
    batch: int
    model: str = SMALL
    images: int = 60_000
    rate: float = 0.0
    parts: int = 1
    optimizer: str = ""

    @property
    def sizes(self) -> list[int]:
        return [int(size) for size in self.model.split("-")]

    @property
    def floats(self) -> type[np.floating[Any]]:
        return np.float64 if self.dtype == "f64" else np.float32

    @property
    def calls(self) -> tuple[int, int]:
        """Of inference: how many images of the test set, and how often, in one run."""
        return (2_000, 1) if self.batch == 1 else (self.batch, 10)

    @property
    def learning_rate(self) -> float:
        return self.rate or RATES[self.batch]


class Job(Protocol):
    """A system that is ready for one task.

    `note` says how it runs: the variant that turned out fastest, seconds of compilation. `images` is what one `run`
    gets through, slow systems less than others. Only `run` is timed.
    """

    note: str
    images: int

    def load(self, weights: Weights) -> None: ...
    def run(self, part: int = 0) -> None: ...


class Trainer(Job, Protocol):
    """`run` trains on the `part`-th piece of the data."""

    def weights(self) -> Weights: ...


class Predictor(Job, Protocol):
    """`run` infers."""

    def classes(self) -> Array:
        """What the first images of the test set are taken for."""


MOMENTUM = 0.9


class Missing(Exception):
    """A system that cannot take part, and why."""


class Data:
    """MNIST as arrays of bytes; the worker processes map the driver's files."""

    FILES = ("images", "labels", "test_images", "test_labels")

    def __init__(self, images: Array, labels: Array, test_images: Array, test_labels: Array) -> None:
        self.images, self.labels, self.test_images, self.test_labels = images, labels, test_images, test_labels

    @classmethod
    def of(cls, digits: Any) -> Data:
        """From what micrograd.data.mnist.load returns."""
        images, test_images = (
            np.frombuffer(part, np.uint8).reshape(-1, PIXELS) for part in (digits.train_images, digits.test_images)
        )
        labels, test_labels = (np.frombuffer(part, np.uint8) for part in (digits.train_labels, digits.test_labels))
        return cls(images, labels, test_images, test_labels)

    def save(self, folder: Path) -> None:
        for name in self.FILES:
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> Data | None:
        """None in a folder without data: other models bring their own."""
        if not (folder / f"{cls.FILES[0]}.npy").exists():
            return None
        return cls(*(np.load(folder / f"{name}.npy") for name in cls.FILES))

    def parts(self, task: Task, most: int = 0) -> Iterator[tuple[Array, Array]]:
        """The training data in pieces of whole batches: pixels and labels. `most` images a piece, where it is given."""
        wanted = min(task.images, most or task.images, len(self.images))
        count = wanted // task.batch * task.batch
        for part in range(task.parts):
            yield self.images[part * count : (part + 1) * count], self.labels[part * count : (part + 1) * count]


@cache
def initial(model: str, seed: int = 1) -> Weights:
    """The weights that nn.reset(seed) gives: every system starts from these."""
    sizes = [int(size) for size in model.split("-")]
    random.seed(seed)
    layers = MLP(sizes[0], sizes[1:], init="fan_in").layers
    return [
        (np.array([[w.data for w in n.w] for n in layer.neurons]), np.array([n.b.data for n in layer.neurons]))
        for layer in layers
    ]


def logits(weights: Weights, images: Array) -> Array:
    """In NumPy and float64: what the systems are judged by."""
    h = images / 255.0
    for i, (w, b) in enumerate(weights):
        h = h @ w.T + b
        if i < len(weights) - 1:
            h = np.maximum(h, 0.0)
    return h


def loss(weights: Weights, images: Array, labels: Array) -> float:
    z = logits(weights, images)
    z = z - z.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), labels]))


def accuracy(weights: Weights, images: Array, labels: Array) -> float:
    return float((logits(weights, images).argmax(1) == labels).mean())


J = TypeVar("J", bound=Job)


def fastest(kind: Callable[..., J], task: Task, data: Data, choices: Iterable[tuple[Any, ...]]) -> J:
    """kind(task, data, *choice) of the choice that takes least in a short trial: three runs, the first one unseen."""
    trial = replace(task, images=max(TRIAL, 2 * task.batch), parts=1)
    weights = initial(task.model)

    def seconds(choice: tuple[Any, ...]) -> float:
        job = kind(trial, data, *choice)
        times = []
        for _ in range(3):
            job.load(weights)
            start = perf_counter()
            job.run()
            times.append(perf_counter() - start)
        return min(times[1:]) / job.images

    return kind(task, data, *min(choices, key=seconds))
