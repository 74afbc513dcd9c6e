"""NumPy by hand: as few calls as the step allows, in place, pixels converted and labels one-hot beforehand.

A batch is seven products and some elementwise calls; weights as (out, in) or (in, out), whichever is faster. A single
image goes through matrix-vector products and BLAS's rank-one update (scipy), three times faster than the batch's code.
Threads are OpenBLAS's. Inference stops at the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.tasks import Array, Data, Job, Task, Weights, fastest

VERSION = f"NumPy {np.__version__}"
STEPS = 10_000


class Batches:
    """Steps over matrices."""

    def __init__(self, task: Task, data: Data, out_in: bool) -> None:
        self.task, self.out_in = task, out_in
        self.parts = [self.cut(x, y) for x, y in data.parts(task, STEPS * task.batch)]
        self.images = len(self.parts[0]) * task.batch
        self.note = "weights (out, in)" if out_in else "weights (in, out)"

    def cut(self, images: Array, labels: Array) -> list[tuple[Array, Array]]:
        x = (images / 255).astype(self.task.floats)
        y = np.eye(10, dtype=self.task.floats)[labels]
        shape = (-1, self.task.batch)
        return list(zip(x.reshape(*shape, 784), y.reshape(*shape, 10), strict=True))

    def load(self, weights: Weights) -> None:
        floats = self.task.floats
        self.layers = [((w if self.out_in else w.T).astype(floats, order="C"), b.astype(floats)) for w, b in weights]

    def run(self, part: int = 0) -> None:
        layers, out_in, scale = self.layers, self.out_in, self.task.learning_rate / self.task.batch
        last = len(layers) - 1
        for x, y in self.parts[part]:
            h = [x]
            for i, (w, b) in enumerate(layers):
                z = h[-1] @ (w.T if out_in else w)
                z += b
                if i < last:
                    np.maximum(z, 0, out=z)
                    h.append(z)
            z -= z.max(1, keepdims=True)
            np.exp(z, out=z)
            z /= z.sum(1, keepdims=True)
            z -= y
            z *= scale
            for i in range(last, -1, -1):
                w, b = layers[i]
                if i:
                    below = z @ (w if out_in else w.T)
                    below *= h[i] > 0
                w -= z.T @ h[i] if out_in else h[i].T @ z
                b -= z.sum(0)
                z = below

    def weights(self) -> Weights:
        return [((w if self.out_in else w.T).astype(np.float64), b.astype(np.float64)) for w, b in self.layers]


class Single(Batches):
    """Steps over vectors."""

    def __init__(self, task: Task, data: Data) -> None:
        from scipy.linalg.blas import dger, sger

        super().__init__(task, data, out_in=True)
        self.rank_one = dger if task.dtype == "f64" else sger
        self.note = "gemv and ger"

    def cut(self, images: Array, labels: Array) -> list[tuple[Array, Array]]:
        return [(x[0], y[0]) for x, y in super().cut(images, labels)]

    def run(self, part: int = 0) -> None:
        layers, rate, rank_one = self.layers, self.task.learning_rate, self.rank_one
        last = len(layers) - 1
        for x, y in self.parts[part]:
            h = [x]
            for i, (w, b) in enumerate(layers):
                z = w @ h[-1]
                z += b
                if i < last:
                    np.maximum(z, 0, out=z)
                    h.append(z)
            z -= z.max()
            np.exp(z, out=z)
            z /= z.sum()
            z -= y
            z *= rate
            for i in range(last, -1, -1):
                w, b = layers[i]
                if i:
                    below = z @ w
                    below *= h[i] > 0
                rank_one(-1, h[i], z, a=w.T, overwrite_a=1)  # w.T is the Fortran order that BLAS works on in place
                b -= z
                z = below


class Predict:
    """Images of the test set, `batch` a call."""

    def __init__(self, task: Task, data: Data, out_in: bool) -> None:
        self.task, self.out_in = task, out_in
        count, repeat = task.calls
        x = (data.test_images[:count] / 255).astype(task.floats)
        self.calls: list[Any] = (list(x) if task.batch == 1 else [x]) * repeat
        self.images = count * repeat
        self.note = "weights (out, in)" if out_in else "weights (in, out)"

    def load(self, weights: Weights) -> None:
        """Each weight as (in, out), whatever its layout in memory."""
        floats = self.task.floats
        self.layers = [
            (w.astype(floats, order="C").T if self.out_in else w.T.astype(floats, order="C"), b.astype(floats))
            for w, b in weights
        ]

    def logits(self, x: Array) -> Array:
        *hidden, (w2, b2) = self.layers
        for w, b in hidden:
            x = x @ w
            x += b
            np.maximum(x, 0, out=x)
        x = x @ w2
        x += b2
        return x

    def run(self, part: int = 0) -> None:
        logits = self.logits
        for x in self.calls:
            logits(x)

    def classes(self) -> Array:
        calls = self.calls if self.task.batch == 1 else self.calls[:1]
        return np.concatenate([self.logits(x).reshape(-1, 10).argmax(1) for x in calls])


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Job]]:
    if task.kind == "infer":
        return {"NumPy": lambda: fastest(Predict, task, data, [(True,), (False,)])}
    if task.batch == 1:
        return {"NumPy, by hand": lambda: Single(task, data)}
    return {"NumPy, by hand": lambda: fastest(Batches, task, data, [(True,), (False,)])}
