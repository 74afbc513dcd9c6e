"""What --log writes, a table with a row for each epoch, alone or in a folder; and what `micrograd report` reads of it.

run/log.csv              epoch, loss, learning_rate, validation_loss, ..., seconds
run/run.json             what was trained, on what, and how
run/weights.safetensors  the last weights, or with --save-best the best ones
run/events.out.tfevents.*    the table again for TensorBoard, if that package is installed
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands import checkpoint
from micrograd.commands.inputs import compiler, load_data, load_weights
from micrograd.commands.train_model import Recipe
from micrograd.data import mnist
from micrograd.errors import UsageError
from micrograd.files import write_whole
from micrograd.training import Epoch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Bytes = npt.NDArray[np.uint8]

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
        write_whole(self.path, b"".join([csv_row(COLUMNS), *map(cells, kept)]), is_synced=False)

    def add(self, epoch: Epoch) -> None:
        """Raises OSError, and leaves no part of a row."""
        size = self.path.stat().st_size
        try:
            with self.path.open("ab") as file:
                file.write(cells(epoch))
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self.path, size)
            raise

    def rows(self) -> list[Epoch]:
        """Raises UsageError for another file, and OSError."""
        try:
            with self.path.open(encoding="utf-8", newline="") as file:
                header, *lines = list(csv.reader(line for line in file if line.endswith("\n"))) or [[]]
            if header != COLUMNS:
                raise ValueError
            return [Epoch(int(line[0]), *(float(text or "nan") for text in line[1:])) for line in lines]
        except (ValueError, TypeError, IndexError, csv.Error):
            raise UsageError(f"{self.path}: not a table that micrograd train --log has written") from None


def cells(epoch: Epoch) -> bytes:
    return csv_row(["" if math.isnan(x) else x for x in asdict(epoch).values()])


def csv_row(row: Sequence[object]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(row)
    return text.getvalue().encode()


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


@dataclass
class Findings:
    """What the page of a report shows: of the folder of a run, and measured once more with its weights."""

    settings: dict[str, Any]
    info: dict[str, Any]
    source: str  # of the data, in words
    epochs: list[Epoch]
    images: Bytes  # of the test, a row each
    labels: Bytes
    predictions: Bytes
    probabilities: Floats | None  # a row for each image; None if the model has no output of that name
    weights: tuple[str, Floats] | None  # the name of the first layer's weights, and a row for each unit
    explanation: str  # of the model's loops


def findings(options: argparse.Namespace) -> Findings:
    """Reads the run, and tests its weights again."""
    import numpy as np

    settings = read_settings(options.run / SETTINGS)
    epochs = Table(options.run / TABLE).rows()
    if not (options.run / WEIGHTS).exists():
        raise UsageError(f"{options.run}: no {WEIGHTS}: the run has not come to an end")
    recipe = recipe_of(settings, options.run / SETTINGS)
    model = recipe.compiled()
    load_weights(model, options.run / WEIGHTS)
    if options.data is None and not options.digits:
        options.data = None if settings["data"] is None else Path(settings["data"])
        options.digits = settings["digits"]
    data = load_data(options)
    images = np.frombuffer(data.test_images, np.uint8).reshape(len(data.test_labels), -1)
    has_probabilities = "probabilities" in model.info()["outputs"]
    return Findings(
        settings={**settings, "recipe": recipe},
        info=model.info(),
        source=data.source,
        epochs=epochs,
        images=images,
        labels=np.frombuffer(data.test_labels, np.uint8),
        predictions=np.frombuffer(model.predict_batch(data.test_images), np.uint8),
        probabilities=np.asarray(model.probabilities_batch(data.test_images), float) if has_probabilities else None,
        weights=first_layer(model),
        explanation=explanation(recipe),
    )


def read_settings(path: Path) -> dict[str, Any]:
    """Raises UsageError for a folder that is no run's."""
    if not path.exists():
        raise UsageError(f"{path.parent}: not a folder that micrograd train --log has written: no {path.name}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {**found, "data": found["data"], "digits": found["digits"], "recipe": dict(found["recipe"])}
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path}: not what micrograd train --log has written ({error})") from error


def recipe_of(settings: dict[str, Any], path: Path) -> Recipe:
    described = settings["recipe"]
    if set(described) != {field.name for field in fields(Recipe)}:
        raise UsageError(f"{path}: not what micrograd train --log has written: its recipe has {sorted(described)}")
    return Recipe(**{**described, "hidden": tuple(described["hidden"])})


def first_layer(model: Any) -> tuple[str, Floats] | None:
    """The first tensor of parameters that has a row of pixels for each unit, or a column."""
    import numpy as np

    for name, view in model.state_dict().items():
        weights = np.array(view, dtype=np.float64)
        if weights.ndim == 2 and mnist.SIDE**2 in weights.shape:
            return name, weights if weights.shape[1] == mnist.SIDE**2 else weights.T
    return None


def explanation(recipe: Recipe) -> str:
    """What `micrograd explain` prints."""
    return str(compiler().compile_program(recipe.program()).explanation())
