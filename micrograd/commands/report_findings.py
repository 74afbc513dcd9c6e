"""What a report shows: read from the folder of a run, and measured once more with its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands.errors import UsageError
from micrograd.commands.inputs import compiler, load_data, load_weights
from micrograd.commands.run_log import SETTINGS, TABLE, WEIGHTS, Table
from micrograd.commands.train_model import Recipe
from micrograd.data import mnist
from micrograd.training import Epoch

if TYPE_CHECKING:
    import argparse

    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Bytes = npt.NDArray[np.uint8]


@dataclass
class Findings:
    """What the page shows."""

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
        raise UsageError(f"{path}: not what micrograd train --log has written ({error!r})") from error


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
