"""A Program from an ONNX file: its weights are the parameters, and with a loss it trains.

Example: a file with the input x of the shape ["batch", 4], the weights fc.weight and fc.bias, and the output logits

    from_onnx("iris.onnx", loss="cross_entropy")

has inputs=Floats(4 Values), parameters={"fc.weight": ..., "fc.bias": ...}, outputs={"logits": 3 Values} and
targets=Label(3 Values).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from codegen.checks import number, shown
from codegen.kinds import Targets
from codegen.onnx import losses
from codegen.onnx.graph import Decision, Graph, run
from codegen.onnx.prepare import prepared, weights_of
from codegen.onnx.reader import File, Input, read, sizes_of
from codegen.onnx.tensors import LIMIT, OnnxError, Tensor, limited, spend
from codegen.pipeline import no_garbage_collection
from codegen.program import Floats, Pixels, Program, Tokens
from micrograd.arrays import Array, array
from micrograd.engine import Value
from micrograd.functional import softmax

OwnLoss: TypeAlias = "Callable[[dict[str, Any]], tuple[Value, Targets]]"


@dataclass
class Imported:
    """What a file became, before it is a Program."""

    file: File
    weights: list[str]
    inputs: dict[str, list[int]]  # name -> shape
    outputs: dict[str, Tensor]
    prediction: str | None
    graph: Graph
    leaves: dict[str, Any]  # the Values of weights and inputs
    pixels: float | None  # the scale of inputs that are bytes

    @property
    def title(self) -> str:
        by = f", made by {self.file.producer}" if self.file.producer else ""
        return "".join(c for c in f"{self.file.path.name}{by}" if c.isprintable())[:200]


def from_onnx(
    path: str | os.PathLike[str],
    loss: str | OwnLoss | None = None,
    *,
    dimensions: Mapping[str, int] | None = None,
    pixels: float | None = None,
    limit: int = LIMIT,
) -> Program:
    """The Program of an ONNX file.

    path        of the .onnx file; tensors that it keeps in other files must be in its folder
    loss        None for a model that only predicts; "cross_entropy" or "nll" with a Label as the target, "mse" with
                as many Floats as the output has elements, "binary_cross_entropy" with one. They are of the prediction,
                or of the first output. A last Softmax or Sigmoid is left out of cross-entropies, which take logits.
                Or a function: of the outputs by name, arrays of Values, it returns the loss and the targets
    dimensions  name -> length of dimensions that may vary, except that of examples, which is 1
    pixels      a scale, as 1 / 255, for images that come as unsigned bytes, as Pixels; else inputs are Floats
    limit       how many scalars may be made; an operation, a weight and a constant count as one each

    Weights are parameters of their ONNX names: what ops like Gemm, Conv and LSTM take as weights and biases, and arrays
    that are added or multiplied. Other initializers, as the statistics of a BatchNormalization, are constants.

    Raises OSError, OnnxError (a ValueError) for a file that is damaged, too large or has an op that is not supported,
    which it names with its node, and ImportError without the package onnx.
    """
    return program_of(imported_file(read(path), dimensions, pixels, limit), loss)


def imported_file(
    file: File, dimensions: Mapping[str, int] | None = None, pixels: float | None = None, limit: int = LIMIT
) -> Imported:
    """Computes a file's graph. Raises OnnxError."""
    pixels = None if pixels is None else number("the scale of pixels", pixels)
    try:
        file = prepared(file)
        with limited(limit), no_garbage_collection():
            weights = weights_of(file)
            inputs = {each.name: sizes_of(each, _checked(dimensions, file)) for each in file.inputs}
            spend(sum(file.initializers[name].size for name in weights))
            for each in file.inputs:
                spend(*inputs[each.name])
            leaves = {name: values_of(file.initializers[name]) for name in weights}
            leaves |= {name: values_of(np.zeros(sizes)) for name, sizes in inputs.items()}
            own = {name: values.view(np.ndarray) for name, values in leaves.items()}
            with np.errstate(all="ignore"):
                graph = run(file, {**file.initializers, **own})
        outputs, prediction = _outputs(file, graph)
    except OnnxError as error:
        told = str(error)
        raise error if told.startswith(f"{file.path}: ") else type(error)(f"{file.path}: {told}") from error
    return Imported(file, weights, inputs, outputs, prediction, graph, leaves, pixels)


def values_of(x: Tensor) -> Any:
    """An Array of Values, also of a tensor without dimensions."""
    return np.asarray(array(x), object).view(Array)


def _checked(dimensions: Mapping[str, int] | None, file: File) -> dict[str, int]:
    given = dict(dimensions or {})
    known = {size for each in file.inputs for size in each.shape if isinstance(size, str)}
    for name, length in given.items():
        if name not in known:
            raise OnnxError(f"no dimension is called {name!r}: there are {', '.join(sorted(known)) or 'none'}")
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise OnnxError(f"the dimension {name!r} must be an int, at least 1, not {shown(length)}")
    return given


def _outputs(file: File, graph: Graph) -> tuple[dict[str, Tensor], str | None]:
    """The outputs of Values, and the name of the one whose largest element is the prediction."""
    found: dict[str, Tensor] = {}
    prediction = None
    for name in file.outputs:
        known = graph.tensors[name]
        at = known.scores if isinstance(known, Decision) else name
        if isinstance(known, Decision):
            same = graph.ranked_as(at)
            at = next((own for own in file.outputs if own in same), at)
            prediction = prediction or at
        values = graph.values(at)
        if values is not None and values.size:
            found[at] = values
    if not found:
        raise OnnxError("no output depends on the inputs or weights")
    return found, prediction


def program_of(model: Imported, loss: str | OwnLoss | None) -> Program:
    """The Program, with one of the known losses or with that of a function."""
    outputs = {name: values_of(values) for name, values in model.outputs.items()}
    parts = {each.name: _part(each, model.leaves[each.name], model.pixels) for each in model.file.inputs}
    made: dict[str, Any] = {"loss": None, "targets": None}
    if callable(loss):
        found = loss(dict(outputs))
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(f"the loss function must return (loss, targets), not {type(found).__name__}")
        made["loss"], made["targets"] = found
    elif loss is not None:
        losses.checked(loss)
    try:
        if isinstance(loss, str):
            made = losses.of(loss, model)
        prediction = model.prediction
        if (source := losses.probabilities(loss, model)) is not None:
            prediction, is_logits = source
            values = outputs[prediction].ravel()
            outputs["probabilities"] = np.array(softmax(values)) if is_logits else values
        return Program(
            inputs=next(iter(parts.values())) if len(parts) == 1 else parts,
            parameters={name: model.leaves[name] for name in model.weights},
            outputs={name: values.ravel() for name, values in outputs.items()},
            prediction=prediction,
            description=model.title,
            **made,
        )
    except (ValueError, TypeError) as error:
        raise OnnxError(f"{model.file.path}: {error}") from error


def _part(given: Input, values: Any, pixels: float | None) -> Floats | Pixels | Tokens:
    """Without the dimension of the examples, which has one."""
    if given.words:
        return Tokens(values.reshape(-1, given.words))
    example = values[0] if values.ndim > 1 and len(values) == 1 else np.atleast_1d(values)
    return Floats(example) if pixels is None else Pixels(example, pixels)
