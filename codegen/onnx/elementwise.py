"""Ops of one element at a time: arithmetic, activations, comparisons."""

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from codegen.onnx.tensors import Tensor, each, elements, is_graph, number, numbers, spend, tensor
from micrograd import ops
from micrograd.engine import Value

SELU = 1.67326319217681884765625, 1.05070102214813232421875


def _of_two(
    function: Callable[[Any, Any], Any], of_numbers: Callable[..., Any], cost: int = 1
) -> Callable[..., Tensor]:
    def op(a: Any, b: Any) -> Tensor:
        a, b = tensor(a), tensor(b)
        if is_graph(a) or is_graph(b):
            return each(function, a, b, cost=cost)
        spend(*np.broadcast_shapes(a.shape, b.shape))
        with np.errstate(all="ignore"):
            return np.asarray(of_numbers(a, b))

    return op


def _quotient(a: Tensor, b: Tensor) -> Any:
    """Integers are cut, not rounded down."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    rest = np.fmod(a, b)
    return (a - rest) // b


def _power(a: Any, b: Any) -> Any:
    return a**b if isinstance(a, Value) or isinstance(b, Value) else ops.power(a, b)


Add = _of_two(operator.add, np.add)
Sub = _of_two(operator.sub, np.subtract, 2)
Mul = _of_two(operator.mul, np.multiply)
Div = _of_two(ops.divide, _quotient)
Pow = _of_two(_power, lambda a, b: np.power(a.astype(np.result_type(a, b)), b).astype(a.dtype))


def _fold(function: Callable[[Any, Any], Any], of_numbers: Callable[..., Any]) -> Callable[..., Tensor]:
    pair = _of_two(function, of_numbers)

    def op(*given: Any) -> Tensor:
        return reduce(pair, map(tensor, given))

    return op


Max = _fold(ops.maximum, np.maximum)
Min = _fold(ops.minimum, np.minimum)
Sum = _fold(operator.add, np.add)


def Mean(*given: Any) -> Tensor:
    return Div(Sum(*given), float(len(given)))


def _of_one(function: Callable[[Any], Any], cost: int = 1) -> Callable[[Any], Tensor]:
    def op(x: Any) -> Tensor:
        return each(function, x, cost=cost)

    return op


Neg = _of_one(operator.neg)
Abs = _of_one(ops.absolute)
Sqrt = _of_one(ops.sqrt)
Exp = _of_one(ops.exp)
Log = _of_one(ops.log)
Erf = _of_one(ops.erf)
Sin = _of_one(ops.sin)
Cos = _of_one(ops.cos)
Tanh = _of_one(ops.tanh)
Relu = _of_one(ops.relu)
Sigmoid = _of_one(ops.sigmoid)
Softplus = _of_one(ops.softplus)
Reciprocal = _of_one(lambda x: ops.divide(1.0, x), 2)
Softsign = _of_one(lambda x: ops.divide(x, 1.0 + ops.absolute(x)), 4)
Sign = _of_one(lambda x: ops.step(x) - ops.step(-x), 5)
Mish = _of_one(lambda x: x * ops.tanh(ops.softplus(x)), 3)


def LeakyRelu(x: Any, *, alpha: float = 0.01) -> Tensor:
    choose = ops.maximum if alpha <= 1 else ops.minimum
    return each(lambda a: choose(a * alpha, a), x, cost=3)


def PRelu(x: Any, slope: Any) -> Tensor:
    return each(lambda a, s: ops.relu(a) + s * ops.minimum(a, 0.0), x, slope, cost=5)


def Elu(x: Any, *, alpha: float = 1.0) -> Tensor:
    return each(lambda a: ops.relu(a) + alpha * ops.expm1(ops.minimum(a, 0.0)), x, cost=7)


def Celu(x: Any, *, alpha: float = 1.0) -> Tensor:
    return each(lambda a: ops.relu(a) + alpha * ops.expm1(ops.minimum(a, 0.0) / alpha), x, cost=9)


def Selu(x: Any, *, alpha: float = SELU[0], gamma: float = SELU[1]) -> Tensor:
    return each(lambda a: gamma * (ops.relu(a) + alpha * ops.expm1(ops.minimum(a, 0.0))), x, cost=9)


def ThresholdedRelu(x: Any, *, alpha: float = 1.0) -> Tensor:
    return each(lambda a: ops.maximum(a, alpha) * ops.step(a - alpha), x, cost=5)


def Gelu(x: Any, *, approximate: str = "none") -> Tensor:
    if approximate == "none":
        return each(ops.gelu, x)
    if approximate != "tanh":
        raise ValueError(f"approximate must be none or tanh, got {approximate!r}")
    scale = math.sqrt(2 / math.pi)
    return each(lambda a: a * 0.5 * (ops.tanh((a + a * a * a * 0.044715) * scale) + 1.0), x, cost=12)


def HardSigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return each(lambda a: ops.minimum(ops.maximum(a * alpha + beta, 0.0), 1.0), x, cost=8)


def HardSwish(x: Any) -> Tensor:
    return Mul(x, HardSigmoid(x, alpha=1 / 6, beta=0.5))


def Swish(x: Any, *, alpha: float = 1.0) -> Tensor:
    return Mul(x, Sigmoid(x if alpha == 1.0 else Mul(x, alpha)))


def Clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """What is no bound, infinite or the largest float32, makes no ops."""
    x = tensor(x)
    for bound, choose in ((min, Max), (max, Min)):
        if bound is not None:
            bound = tensor(bound)
            if is_graph(bound) or not is_graph(x) or abs(number("a bound", bound)) < 3.4e38:
                x = choose(x, bound)
    return x


def Where(condition: Any, x: Any, y: Any) -> Tensor:
    condition, x, y = tensor(condition), tensor(x), tensor(y)
    if is_graph(condition):
        return each(_chosen, condition, x, y, cost=7)
    condition = condition.astype(bool)
    spend(*np.broadcast_shapes(condition.shape, x.shape, y.shape))
    return np.where(condition, elements(x), elements(y)) if is_graph(x) or is_graph(y) else np.where(condition, x, y)


def _chosen(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition is 1, y where it is 0, also if the other one is inf; nan in either of them is nan."""
    end = ops.divide(condition - 0.5, 0.0)
    return ops.maximum(ops.minimum(x, end), ops.minimum(y, -end))


# Comparisons of Values are Values, 1 or 0, through which no gradient flows.
Greater = _of_two(lambda a, b: ops.step(a - b), np.greater, 3)
Less = _of_two(lambda a, b: ops.step(b - a), np.less, 3)
GreaterOrEqual = _of_two(lambda a, b: 1.0 - ops.step(b - a), np.greater_equal, 5)
LessOrEqual = _of_two(lambda a, b: 1.0 - ops.step(a - b), np.less_equal, 5)
Equal = _of_two(lambda a, b: 1.0 - ops.step(ops.absolute(a - b)), np.equal, 6)
And = _of_two(operator.mul, np.logical_and)
Or = _of_two(ops.maximum, np.logical_or)
Xor = _of_two(lambda a, b: ops.absolute(a - b), np.logical_xor, 3)


def Not(x: Any) -> Tensor:
    x = tensor(x)
    return each(lambda a: 1.0 - a, x, cost=2) if is_graph(x) else np.logical_not(x)


def _of_numbers(function: Callable[..., Any], count: int = 1) -> Callable[..., Tensor]:
    """An op of constants alone, as those are that compute shapes."""

    def op(*given: Any, fmod: int = 0) -> Tensor:
        if len(given) != count:  # NumPy would write the result into the next one
            raise ValueError(f"{len(given)} inputs, expected {count}")
        tensors = [numbers("what is rounded", x) for x in given]
        spend(*np.broadcast_shapes(*(x.shape for x in tensors)))
        with np.errstate(all="ignore"):
            return np.asarray((np.fmod if fmod else function)(*tensors))

    return op


Floor = _of_numbers(np.floor)
Ceil = _of_numbers(np.ceil)
Round = _of_numbers(np.round)
Mod = _of_numbers(np.mod, 2)
