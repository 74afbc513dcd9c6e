"""Small ONNX files for tests, written with onnx.helper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    weights: Mapping[str, Any] = {},
    kind: int = TensorProto.FLOAT,
    opsets: Sequence[Any] = OPSETS,
) -> Any:
    """A ModelProto. Arrays of floats are stored as float32."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(_stored(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=list(opsets), producer_name="test", ir_version=8)


def _stored(array: Any) -> Any:
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def saved(folder: Path, found: Any, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(found.SerializeToString())
    return path


def perceptron(softmax: bool = True) -> Any:
    """4-8-3, as PyTorch exports it, with an input of the shape ["batch", 4]."""
    rng = np.random.default_rng(1)
    weights = {
        "0.weight": rng.normal(size=(8, 4)),
        "0.bias": rng.normal(size=8),
        "2.weight": rng.normal(size=(3, 8)),
        "2.bias": rng.normal(size=3),
    }
    nodes = [
        node("Gemm", ["x", "0.weight", "0.bias"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("Gemm", ["r", "2.weight", "2.bias"], ["logits"], transB=1),
        *([node("Softmax", ["logits"], ["p"])] if softmax else []),
    ]
    return model(nodes, {"x": ["batch", 4]}, ["p" if softmax else "logits"], weights)


def image_net() -> Any:
    """A convolution, batch normalisation, pooling, and a head whose shape is computed by nodes."""
    rng = np.random.default_rng(2)
    weights = {
        "conv.weight": rng.normal(size=(4, 2, 3, 3)) / 4,
        "bn.weight": rng.uniform(0.5, 1.5, 4),
        "bn.bias": rng.normal(size=4),
        "bn.mean": rng.normal(size=4),
        "bn.var": rng.uniform(0.5, 1.5, 4),
        "fc.weight": rng.normal(size=(16, 3)),
        "fc.bias": rng.normal(size=3),
        "zero": np.array(0),
        "rest": np.array([-1]),
        "half": np.array(0.5),
    }
    nodes = [
        node("Conv", ["x", "conv.weight"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"]),
        node("LeakyRelu", ["b"], ["r"], alpha=0.125),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["m"], ["shape"]),
        node("Gather", ["shape", "zero"], ["count"]),
        node("Unsqueeze", ["count", "axes"], ["counts"]),
        node("Concat", ["counts", "rest"], ["flat_shape"], axis=0),
        node("Reshape", ["m", "flat_shape"], ["flat"]),
        node("MatMul", ["flat", "fc.weight"], ["product"]),
        node("Add", ["product", "fc.bias"], ["sum"]),
        node("Mul", ["sum", "half"], ["logits"]),
    ]
    return model(nodes, {"x": ["N", 2, 8, 8]}, ["logits"], {**weights, "axes": np.array([0])})
