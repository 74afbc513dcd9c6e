"""What --log writes: a table with a row for each epoch, alone or in a folder that `micrograd report` reads.

run/log.csv              epoch, loss, learning_rate, validation_loss, ..., seconds
run/run.json             what was trained, on what, and how
run/weights.safetensors  the last weights, or with --save-best the best ones
run/events.out.tfevents.*    the table again for TensorBoard, if that package is installed
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from micrograd.commands import checkpoint
from micrograd.commands.errors import UsageError
from micrograd.commands.train_model import Recipe
from micrograd.files import write_whole
from micrograd.training import Epoch

TABLE, SETTINGS, WEIGHTS = "log.csv", "run.json", "weights.safetensors"
NUMBER = fields(Epoch)[0].name  # the column of the epoch's number
COLUMNS = ["epoch", *(field.name for field in fields(Epoch)[1:])]
KEPT = ("batch_size", "epochs", "learning_rate", "schedule", "seed", "shift", "limit", "validation", "data", "digits")


@dataclass
class Table:
    """A CSV file."""

    path: Path

    def begin(self, first: int) -> None:
        """Leaves the rows of epochs before `first`, or none. Raises OSError."""
        kept = [row for row in self.rows() if row.number < first] if first > 1 and self.path.exists() else []
        with self.path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(COLUMNS)
        for row in kept:
            self.add(row)

    def add(self, epoch: Epoch) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow("" if math.isnan(x) else x for x in asdict(epoch).values())

    def rows(self) -> list[Epoch]:
        """Raises UsageError for another file, and OSError."""
        with self.path.open(encoding="utf-8", newline="") as file:
            header, *lines = list(csv.reader(file)) or [[]]
        try:
            if header != COLUMNS:
                raise ValueError
            return [Epoch(int(line[0]), *(float(text or "nan") for text in line[1:])) for line in lines]
        except (ValueError, TypeError, IndexError):
            raise UsageError(f"{self.path}: not a table that micrograd train --log has written") from None


class Log:
    """Where a run writes its epochs."""

    def __init__(self, path: str) -> None:
        is_table = path.endswith(".csv") and not Path(path).is_dir()
        self.folder = None if is_table else Path(path)
        self.table = Table(Path(path) if is_table else Path(path) / TABLE)
        self.events: Any = None

    def begin(self, options: argparse.Namespace, recipe: Recipe, rate: float, first: int) -> None:
        """Before the epoch `first`. Raises OSError if nothing can be written there."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoint.check_writable(self.folder / WEIGHTS)
            described = {"recipe": with_whole_path(recipe), **settings(options), "learning_rate": rate}
            write_whole(self.folder / SETTINGS, json.dumps(described, indent=1).encode() + b"\n", is_synced=False)
            self.events = event_writer(self.folder)
        self.table.begin(first)

    def add(self, epoch: Epoch) -> None:
        self.table.add(epoch)
        if self.events is not None:
            numbers = asdict(epoch)
            number = numbers.pop(NUMBER)
            add_events(self.events, number, {name: x for name, x in numbers.items() if not math.isnan(x)})

    def save(self, model: Any) -> None:
        if self.folder is not None:
            checkpoint.save(self.folder / WEIGHTS, model.state_dict(), about(model))

    def close(self) -> None:
        if self.events is not None:
            self.events.close()


def with_whole_path(recipe: Recipe) -> dict[str, Any]:
    """So that a report finds the model's file from any folder."""
    found = asdict(recipe)
    if recipe.model is not None:
        from codegen.loading import named

        found["model"] = named(recipe.model).whole
    return found


def about(model: Any) -> dict[str, str]:
    """The metadata of a file with a model's weights."""
    info = model.info()
    return {key: str(info[key]) for key in ("architecture", "digest", "version")}


def settings(options: argparse.Namespace) -> dict[str, Any]:
    found = {name: getattr(options, name) for name in KEPT}
    return found | {"data": None if options.data is None else str(options.data.resolve())}


def event_writer(folder: Path) -> Any:
    """TensorBoard's, or None if it is not installed."""
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        return None
    return EventFileWriter(str(folder))


def add_events(writer: Any, step: int, numbers: Mapping[str, float]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=number) for name, number in numbers.items()]
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
    writer.flush()
