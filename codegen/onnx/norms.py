"""Sums over axes, and what is divided by them: reductions, softmax and normalisations."""

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from codegen.onnx.elementwise import Abs, Add, Div, Exp, Log, Max, Mul, Sqrt, Sub
from codegen.onnx.tensors import (
    Tensor,
    array,
    axes_of,
    axis_of,
    each,
    elements,
    filled,
    integers,
    is_graph,
    like,
    spend,
    tensor,
)
from micrograd import ops


def _reduction(
    reduced: Callable[[Any, tuple[int, ...]], Any], before: Any = None, after: Any = None, empty: float | None = None
) -> Callable[..., Tensor]:
    """`reduced`: of an Array and axes, which keeps them. `before` and `after`: ops of what goes in and comes out."""

    def op(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        x = tensor(x)
        named = [] if axes is None else axes_of(integers("axes", axes), x.ndim)
        at = tuple(named or range(0 if noop_with_empty_axes else x.ndim))
        spend(x.size, 2)
        inner = x if before is None else before(x)
        if at and not x.size:
            if empty is None:
                raise ValueError(f"a reduction of no elements: the shape is {list(x.shape)}")
            found = np.full([1 if i in at else n for i, n in enumerate(x.shape)], _of_none(empty, x.dtype))
        else:
            found = like(tensor(reduced(array(inner) if is_graph(x) else inner, at)) if at else inner, x)
        found = found if after is None else after(found)
        return found if keepdims else found.reshape([n for i, n in enumerate(x.shape) if i not in at])

    return op


def _of_none(empty: float, dtype: Any) -> Any:
    """What the sum, or the largest, of no elements is."""
    if dtype.kind in "iu" and not math.isfinite(empty):
        bounds = np.iinfo(dtype)
        return np.array(bounds.max if empty > 0 else bounds.min, dtype)
    return float(empty) if dtype.kind == "O" else np.array(empty > 0 if dtype.kind == "b" else empty, dtype)


def _square(x: Tensor) -> Tensor:
    return Mul(x, x)


def _sum(x: Any, at: tuple[int, ...]) -> Any:
    return x.sum(axis=at, keepdims=True)


ReduceSum = _reduction(_sum, empty=0)
ReduceProd = _reduction(lambda x, at: x.prod(axis=at, keepdims=True), empty=1)
ReduceMean = _reduction(lambda x, at: _sum(x, at) / float(math.prod(x.shape[i] for i in at)))
ReduceMax = _reduction(lambda x, at: x.max(axis=at, keepdims=True), empty=-math.inf)
ReduceMin = _reduction(lambda x, at: x.min(axis=at, keepdims=True), empty=math.inf)
ReduceSumSquare = _reduction(_sum, _square, empty=0)
ReduceL1 = _reduction(_sum, Abs, empty=0)
ReduceL2 = _reduction(_sum, _square, Sqrt, empty=0)
ReduceLogSum = _reduction(_sum, None, Log, empty=0)


def ReduceLogSumExp(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
    """With the largest element taken out, so that no exp overflows."""
    x = tensor(x)
    if noop_with_empty_axes and (axes is None or not tensor(axes).size):
        return x
    if not x.size:
        return ReduceLogSum(x, axes, keepdims=keepdims)
    top = each(ops.detach, ReduceMax(x, axes))
    found = Add(ReduceLogSum(Exp(Sub(x, top)), axes), top)
    return found if keepdims else ReduceSum(found, axes, keepdims=0)


def _along(x: Any, axis: int, function: Callable[[list[Any]], list[Any]], cost: int) -> Tensor:
    """A function of each row along an axis."""
    x = tensor(x)
    axis = axis_of(axis, x.ndim)
    spend(x.size, cost)
    if not x.size:
        return x
    moved = np.moveaxis(elements(x), axis, -1)
    rows = moved.reshape(-1, x.shape[axis]).tolist()
    found = filled([item for row in rows for item in function(row)], moved.shape)
    return like(np.moveaxis(found, -1, axis), x)


def _shifted(row: list[Any]) -> list[Any]:
    """Less the largest, so that no exp overflows. Its gradient is 0 in exact arithmetic."""
    top = ops.detach(reduce(ops.maximum, row))
    return [x - top for x in row]


def _softmax(row: list[Any]) -> list[Any]:
    exps = [ops.exp(x) for x in _shifted(row)]
    norm = reduce(operator.add, exps)
    return [ops.divide(x, norm) for x in exps]


def _log_softmax(row: list[Any]) -> list[Any]:
    shifted = _shifted(row)
    norm = ops.log(reduce(operator.add, [ops.exp(x) for x in shifted]))
    return [x - norm for x in shifted]


def Softmax(x: Any, *, axis: int = -1) -> Tensor:
    return _along(x, axis, _softmax, 6)


def LogSoftmax(x: Any, *, axis: int = -1) -> Tensor:
    return _along(x, axis, _log_softmax, 7)


def Softmax_1(x: Any, *, axis: int = 1) -> Tensor:
    """Up to version 12: over all axes from `axis` on."""
    return _flattened(Softmax, x, axis)


def LogSoftmax_1(x: Any, *, axis: int = 1) -> Tensor:
    return _flattened(LogSoftmax, x, axis)


def _flattened(function: Callable[..., Tensor], x: Any, axis: int) -> Tensor:
    x = tensor(x)
    axis = axis_of(axis, x.ndim, x.ndim + 1)
    flat = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return function(flat).reshape(x.shape)


def BatchNormalization(
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Tensor:
    """x * factor + shift, with a factor and a shift of each channel."""
    x = tensor(x)
    if training_mode or not spatial:
        raise ValueError("batch normalisation in training mode looks at other examples: export the model for inference")
    if x.ndim < 2 or any(tensor(each).shape != (x.shape[1],) for each in (scale, bias, mean, var)):
        raise ValueError(f"the statistics are not for the channels of a tensor of the shape {list(x.shape)}")
    factor = Div(scale, Sqrt(Add(var, _epsilon(var, epsilon))))
    shift = Sub(bias, Mul(mean, factor))
    shape = [-1, *[1] * (x.ndim - 2)]
    return Add(Mul(x, factor.reshape(shape)), shift.reshape(shape))


def _epsilon(x: Any, epsilon: float) -> Tensor:
    return np.array(epsilon, float if is_graph(tensor(x)) else tensor(x).dtype)


def LayerNormalization(
    x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    x = tensor(x)
    at = list(range(axis_of(axis, x.ndim), x.ndim))
    mean = ReduceMean(x, at)
    centred = Sub(x, mean)
    deviation = Sqrt(Add(ReduceMean(Mul(centred, centred), at), _epsilon(x, epsilon)))
    found = Mul(Div(centred, deviation), scale)
    return found if bias is None else Add(found, bias), mean, each(lambda a: ops.divide(1.0, a), deviation, cost=2)


def RMSNormalization(x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    x = tensor(x)
    at = list(range(axis_of(axis, x.ndim), x.ndim))
    return Mul(Div(x, Sqrt(Add(ReduceMean(Mul(x, x), at), _epsilon(x, epsilon)))), scale)


def InstanceNormalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Tensor:
    return GroupNormalization(x, scale, bias, num_groups=tensor(x).shape[1], epsilon=epsilon)


def GroupNormalization(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    x = tensor(x)
    channels = x.shape[1] if x.ndim > 2 else 0
    if not channels or num_groups < 1 or channels % num_groups:
        raise ValueError(f"a tensor of the shape {list(x.shape)} has no {num_groups} groups of channels")
    if tensor(scale).shape != (channels,):
        raise ValueError(f"a scale of the shape {list(tensor(scale).shape)} for {channels} channels")
    rows = x.reshape(x.shape[0], num_groups, -1)
    normal = LayerNormalization(rows, np.ones(1, float if is_graph(x) else x.dtype), epsilon=epsilon)[0]
    shape = [-1, *[1] * (x.ndim - 2)]
    return Add(Mul(normal.reshape(x.shape), tensor(scale).reshape(shape)), tensor(bias).reshape(shape))


def LpNormalization(x: Any, *, axis: int = -1, p: int = 2) -> Tensor:
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, got {p}")
    norm = (ReduceL1 if p == 1 else ReduceL2)(x, [axis])
    return Div(x, Max(norm, np.array(1e-30, float if is_graph(norm) else norm.dtype)))  # 0 / 0 is 0
