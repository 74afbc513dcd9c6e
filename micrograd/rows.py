"""The op table as the engine runs it: for each symbol, what computes a node and what passes its gradient on.

Example: for out = a * b,

    FORWARD["*"](out)     is a.data * b.data
    BACKWARD["*"](out)    adds b.data * out.grad to a.grad, and a.data * out.grad to b.grad

Each function is made on the first use of its symbol. There are few, unless a program has powers of a thousand
exponents: "**3" is a symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from micrograd import ops

if TYPE_CHECKING:
    from micrograd.engine import Value

MOST = 1000  # functions that are kept


class _Forward(dict[str, "Callable[[Value], float]"]):
    def __missing__(self, symbol: str) -> Callable[[Value], float]:
        function = _forward_of(ops.BY_SYMBOL[symbol])
        return self.setdefault(symbol, function) if len(self) < MOST else function


class _Backward(dict[str, "Callable[[Value], None]"]):
    def __missing__(self, symbol: str) -> Callable[[Value], None]:
        function = _backward_of(ops.BY_SYMBOL[symbol])
        return self.setdefault(symbol, function) if len(self) < MOST else function


def _forward_of(op: ops.Row) -> Callable[[Value], float]:
    function = op.function

    def binary(out: Value) -> float:
        a, b = out._prev
        return function(a.data, b.data)

    def power(out: Value) -> float:
        return binary(out) if out._exponent is None else function(out._prev[0].data, out._exponent)

    if op is ops.power:
        return power
    return binary if op.arity == 2 else lambda out: function(out._prev[0].data)


def _backward_of(op: ops.Row) -> Callable[[Value], None]:
    slopes = [_slope_function(partial) for partial in op.partials]

    def unary(out: Value) -> None:
        (slope,) = slopes
        (a,) = out._prev
        a.grad += slope(out.data, a.data) * out.grad

    def binary(out: Value) -> None:
        by_left, by_right = slopes
        a, b = out._prev
        y, x, z, g = out.data, a.data, b.data, out.grad
        a.grad += by_left(y, x, z) * g
        b.grad += by_right(y, x, z) * g

    def power(out: Value) -> None:
        exponent = out._exponent
        if exponent is None:
            binary(out)
        elif exponent != 0.0:  # x**0 is 1 everywhere: its gradient is 0, at x = 0 too
            (a,) = out._prev
            a.grad += slopes[0](out.data, a.data, exponent) * out.grad

    def partly(out: Value) -> None:
        y, g, data = out.data, out.grad, [x.data for x in out._prev]
        for x, partial, slope in zip(out._prev, op.partials, slopes, strict=True):
            if partial is not None:
                x.grad += slope(y, *data) * g

    if op is ops.power:
        return power
    if None in op.partials:
        return partly
    return binary if op.arity == 2 else unary


def _slope_function(partial: ops.Partial) -> Callable[..., float]:
    return partial if callable(partial) else lambda *_: partial or 0.0


def _add_backward(out: Value) -> None:  # the most frequent one
    a, b = out._prev
    a.grad += out.grad
    b.grad += out.grad


FORWARD = _Forward()
BACKWARD = _Backward({"+": _add_backward})
