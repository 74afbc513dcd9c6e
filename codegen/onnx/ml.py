"""ai.onnx.ml: what scikit-learn's scalers and linear models are written as."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from codegen.onnx.elementwise import Abs, Add, Div, Equal, Mul, Sigmoid, Sub
from codegen.onnx.linear import MatMul
from codegen.onnx.norms import LpNormalization, ReduceMax, Softmax
from codegen.onnx.shapes import Concat, Gather
from codegen.onnx.tensors import Tensor, tensor


def Scaler(x: Any, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Tensor:
    x = tensor(x)
    for given in (offset, scale):
        if len(given) not in (0, 1, x.shape[-1]):
            raise ValueError(f"{len(given)} numbers for {x.shape[-1]} features")
    x = Sub(x, np.array(offset, float)) if len(offset) else x
    return Mul(x, np.array(scale, float)) if len(scale) else x


def Normalizer(x: Any, *, norm: str = "MAX") -> Tensor:
    if norm == "MAX":
        most = ReduceMax(Abs(x), [-1])
        return Div(x, Add(most, Equal(most, 0.0)))  # x / 0 is x
    if norm not in ("L1", "L2"):
        raise ValueError(f"the norm is {norm!r}, expected MAX, L1 or L2")
    return LpNormalization(x, p=int(norm[1]))


def FeatureVectorizer(*given: Any, inputdimensions: Sequence[int] = ()) -> Tensor:
    return Concat(*map(_rows, given), axis=1)


def ArrayFeatureExtractor(x: Any, indices: Any) -> Tensor:
    return Gather(_rows(x), tensor(indices).ravel(), axis=-1)


def LinearRegressor(
    x: Any, coefficients: Any, intercepts: Any = None, *, targets: int = 1, post_transform: str = "NONE"
) -> Tensor:
    return _transformed(_affine(x, coefficients, intercepts, targets), post_transform)


def LinearClassifier(
    x: Any,
    coefficients: Any,
    intercepts: Any = None,
    *,
    classes: int,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Tensor:
    """The scores; the reader makes a prediction of them. `classes`: how many labels there are."""
    rows = tensor(coefficients).size // max(1, tensor(x).shape[-1])
    scores = _affine(x, coefficients, intercepts, rows)
    if rows == 1 and classes == 2:  # of the second class
        p = _transformed(scores, post_transform)
        other = Sub(1.0, p) if post_transform != "NONE" else Mul(p, -1.0)
        return Concat(other, p, axis=1)
    return _transformed(scores, post_transform)


def _rows(x: Any) -> Tensor:
    """What has one dimension is one row."""
    return np.atleast_2d(tensor(x))


def _affine(x: Any, coefficients: Any, intercepts: Any, rows: int) -> Tensor:
    x, weights = _rows(x), tensor(coefficients)
    if rows < 1 or weights.size != rows * x.shape[-1]:
        raise ValueError(f"{weights.size} coefficients for {x.shape[-1]} features and {rows} scores")
    found = MatMul(x, weights.reshape(rows, -1).T)
    return found if intercepts is None or not tensor(intercepts).size else Add(found, intercepts)


def _transformed(scores: Tensor, name: str) -> Tensor:
    if name == "LOGISTIC":
        return Sigmoid(scores)
    if name == "SOFTMAX":
        return Softmax(scores)
    if name != "NONE":
        raise ValueError(f"the post_transform {name!r} is not supported: NONE, LOGISTIC or SOFTMAX")
    return scores
