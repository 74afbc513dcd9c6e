"""The small models, compiled by this checkout or by another one: strict float64, and fast float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

import codegen
from benchmarks.small import Named
from benchmarks.small.models import SMALL
from benchmarks.tasks import Data, Task

VERSION = "nn, this checkout"
OPTIONS: dict[str, dict[str, Any]] = {"f64": {}, "f32": {"dtype": "float32", "fma": True, "reorder": True}}
folder = Path("build/benchmarks")


@cache
def module(model: str, dtype: str) -> tuple[ModuleType, str]:
    """The built module, and how long that took."""
    start = perf_counter()
    program = SMALL[model]()
    for option, value in OPTIONS[dtype].items():
        setattr(program, option, value)
    number = list(SMALL).index(model)
    name = f"small_{number}_{dtype}"
    built = codegen.load_extension(codegen.build(program, folder / name, name), name)
    return built, f"built in {perf_counter() - start:.1f} s"


class Train:
    """An epoch a call."""

    def __init__(self, task: Task, threads: int) -> None:
        self.nn, self.note = module(task.model, task.dtype)
        model = SMALL[task.model]
        x, y = model.examples(task.images)
        self.floats, self.images = task.floats, task.images
        self.data = x.astype(task.floats), y if model.labels or y is None else y.astype(task.floats)
        self.settings = {"batch_size": task.batch, "learning_rate": model.rate}
        if threads > 1:
            self.settings["threads"] = threads

    def load(self, weights: Named) -> None:
        if weights:  # without them it starts from those of the graph
            self.nn.load_state_dict({name: np.ascontiguousarray(w, self.floats) for name, w in weights.items()})

    def run(self, part: int = 0) -> None:
        self.nn.train(*self.data, **self.settings)

    def weights(self) -> Named:
        return {name: np.array(view, np.float64) for name, view in self.nn.state_dict().items()}


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Any]]:
    return {"nn strict" if task.dtype == "f64" else "nn fast": partial(Train, task, threads)}
