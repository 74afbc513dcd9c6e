"""scikit-learn's MLPClassifier: solver sgd without momentum or penalty, one partial_fit an epoch.

partial_fit over all images goes through them in batches by itself; that is faster than a call for each batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sklearn
from sklearn.neural_network import MLPClassifier

from benchmarks.tasks import Data, Job, Task, Weights

VERSION = f"scikit-learn {sklearn.__version__}"
STEPS = 1_000


class Classifier:
    note = "partial_fit"

    def __init__(self, task: Task, data: Data) -> None:
        self.parts = [((x / 255).astype(task.floats), y) for x, y in data.parts(task, STEPS * task.batch)]
        self.images = len(self.parts[0][0])
        self.model = MLPClassifier(
            tuple(task.sizes[1:-1]),
            solver="sgd",
            momentum=0.0,
            nesterovs_momentum=False,
            alpha=0.0,
            batch_size=task.batch,
            learning_rate_init=task.learning_rate,
            shuffle=False,
        )
        x, y = self.parts[0]
        self.model.partial_fit(x[: task.batch], y[: task.batch], classes=np.arange(10))

    def load(self, weights: Weights) -> None:
        for i, (w, b) in enumerate(weights):
            self.model.coefs_[i][...] = w.T
            self.model.intercepts_[i][...] = b

    def run(self, part: int = 0) -> None:
        self.model.partial_fit(*self.parts[part])

    def weights(self) -> Weights:
        return [
            (w.T.astype(np.float64), b.astype(np.float64))
            for w, b in zip(self.model.coefs_, self.model.intercepts_, strict=True)
        ]


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Job]]:
    return {"scikit-learn": lambda: Classifier(task, data)} if task.kind == "train" else {}
