"""The losses that have names: of which tensor each is, and what its target is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.onnx.tensors import OnnxError
from codegen.program import Floats, Label
from micrograd.arrays import array
from micrograd.functional import cross_entropy, mse, total

if TYPE_CHECKING:
    from codegen.onnx.program import Imported

LOSSES = ("cross_entropy", "nll", "binary_cross_entropy", "mse")
LAST = {"cross_entropy": "Softmax", "binary_cross_entropy": "Sigmoid"}  # what is left out


def checked(loss: object) -> str:
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"the loss must be None, a function, or one of {', '.join(LOSSES)}, not {loss!r}")
    return loss


def place(loss: str, model: Imported) -> tuple[str, str]:
    """The output, and the tensor that the loss is computed of: the output itself, or its logits."""
    output = model.prediction or next(iter(model.outputs))
    last = model.graph.maker(output)
    is_left_out = last is not None and last.op.removesuffix("_1") == LAST.get(loss)
    return output, last.arguments[0] if is_left_out and last is not None else output


def probabilities(loss: object, model: Imported) -> tuple[str, bool] | None:
    """The output that is `probabilities` too, if the file has none of this name: that of a Softmax over one row; or
    logits that a cross-entropy is of, and True, since they need a softmax."""
    output = model.prediction or next(iter(model.outputs))
    last, values = model.graph.maker(output), model.outputs[output]
    rows = None if last is None or not last.op.startswith("Softmax") else model.graph.values(last.results[0])
    is_softmax = rows is not None and max(rows.shape) == values.size
    if "probabilities" in model.outputs or not (is_softmax or loss == "cross_entropy"):
        return None
    return output, not is_softmax


def of(loss: str, model: Imported) -> dict[str, Any]:
    """What Program takes: loss, targets, prediction, and for two classes the threshold."""
    output, name = place(loss, model)
    values: Any = np.ravel(array(model.graph.values(name)))
    if loss == "binary_cross_entropy":
        if len(values) != 1:
            raise OnnxError(f"binary_cross_entropy is of one element, but {output!r} has {len(values)}")
        threshold = 0.0 if name == output else 0.5
        target = array(np.zeros(1))
        made = {"loss": binary_cross_entropy(values[0], target[0]), "targets": Floats(target), "threshold": threshold}
        return made
    target = array(np.zeros(len(values)))
    if loss == "mse":
        return {"loss": mse(values, target), "targets": Floats(target)}
    last = model.graph.maker(output)
    if loss == "nll" and last is not None and last.op.startswith("LogSoftmax"):
        raise OnnxError(f"nll is of probabilities, but {output!r} has their logarithms, of which cross_entropy is")
    found = cross_entropy(values, target) if loss == "cross_entropy" else nll(values, target)
    return {"loss": found, "targets": Label(target)}


def nll(probabilities: Any, target: Any) -> Any:
    """-sum_i target_i * log(probabilities_i)."""
    return -total([p.log() * t for p, t in zip(probabilities, target, strict=True)])


def binary_cross_entropy(logit: Any, target: Any) -> Any:
    """-target * log(p) - (1 - target) * log(1 - p) with p = sigmoid(logit), without overflow."""
    return logit.softplus() - logit * target
