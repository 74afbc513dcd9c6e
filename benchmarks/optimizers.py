"""Training with momentum and with Adam: the MNIST net, ours compiled from a rule, against optax and PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmarks import report
from benchmarks.measure import Column
from benchmarks.tasks import Task

RATES = {"momentum": {1: 0.001, 64: 0.01, 1000: 0.05}, "adam": {1: 1e-4, 64: 1e-3, 1000: 3e-3}}
SYSTEMS = "^(nn|JAX|PyTorch)"
WANTED = 2.0  # times the best peer, at batch 64


def tasks(columns: str, images: int) -> list[Task]:
    """The columns whose names, like "optimizers adam f64 64", have what is searched. Few images of batches of one."""
    return [
        Task("train", dtype, batch, images=min(images, 12_800 if batch == 1 else images), rate=rate, optimizer=name)
        for name, rates in RATES.items()
        for dtype in ("f64", "f32")
        for batch, rate in rates.items()
        if re.search(columns, f"optimizers {name} {dtype} {batch}")
    ]


def document(head: Iterable[str], columns: list[Column], missing: Iterable[str]) -> str:
    """The whole of optimizers.md."""
    lines = ["# Optimisers", "Written by `make bench`. Training of 784-50-10, µs an image.", *head]
    for name in RATES:
        found = [column for column in columns if column.task.optimizer == name]
        if found:
            lines += [f"## {name}", report.table(found), *filter(None, map(verdict, found))]
    lines += ["Missing: " + "; ".join(missing)] if missing else []
    return "\n\n".join(lines) + "\n"


def verdict(column: Column) -> str:
    """Whether batch 64 is as much faster as wanted."""
    ours, peer = column.best(True), column.best(False)
    if column.task.batch != 64 or ours is None or peer is None:
        return ""
    ratio = peer.median / ours.median
    return f"{report.title(column.task)}: the best peer takes {ratio:.1f} times as long; wanted are {WANTED:g}."
