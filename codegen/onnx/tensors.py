"""Tensors while a graph is imported: NumPy arrays of numbers, which are constants, or of `Value`s and floats.

Example: `each(operator.add, x, b)`, with x of the Values a and b and the constant 1, has the Values a + 1 and b + 1. Of
two constants it is one again. Before anything is made, its elements are counted: `spend`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

from micrograd.arrays import Array
from micrograd.engine import Value
from micrograd.errors import UserError

Tensor: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
LIMIT = 20_000_000  # scalars: some gigabytes

_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)  # of a limit, and the limit


class OnnxError(UserError, ValueError):
    """An ONNX file that cannot be read, or that has something this project does not compute.

    The message is one line, whatever control characters the names in the file have.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else "?" for c in message))


class TooLarge(OnnxError):
    """A model of more scalars than the limit."""


@contextmanager
def limited(limit: int) -> Iterator[None]:
    """Inside, at most so many scalars are made."""
    token = _left.set([limit, limit])
    try:
        yield
    finally:
        _left.reset(token)


def spend(*counts: int) -> None:
    """Counts the product of some numbers as scalars that will be made. Raises TooLarge."""
    left = _left.get()
    if left is not None:
        count = math.prod(max(1, int(count)) for count in counts)  # also of no elements: their shape is a number too
        if count > left[0]:
            raise TooLarge(f"would make {count:,} scalars, but {left[0]:,} are left of the limit of {left[1]:,}")
        left[0] -= count


def tensor(x: Any) -> Tensor:
    """An array of what an op is given: lists and numbers are constants."""
    if isinstance(x, np.ndarray):
        return x.view(np.ndarray)
    if not isinstance(x, int | float | list | tuple | np.generic | Value):
        raise ValueError(f"an input is {'left out' if x is None else type(x).__name__}")
    return np.asarray(x, object) if isinstance(x, Value) else np.asarray(x)


def is_graph(x: Tensor) -> bool:
    """Whether there are Values in it."""
    return x.dtype == object


def elements(x: Tensor) -> Tensor:
    """With floats in place of a constant's numbers."""
    return x if is_graph(x) else x.astype(float).astype(object)


def numbers(what: str, x: Any) -> Tensor:
    """A constant. Raises ValueError for Values."""
    x = tensor(x)
    if is_graph(x):
        raise ValueError(f"{what} must be constant, but depends on inputs or weights")
    return x


def integers(what: str, x: Any) -> list[int]:
    """The elements of a constant of integers."""
    x = numbers(what, x)
    if x.dtype.kind not in "iu" and x.size:
        raise ValueError(f"{what} must be integers, not {x.dtype}")
    return [int(i) for i in x.ravel().tolist()]


def number(what: str, x: Any) -> float:
    """A constant of one element."""
    x = numbers(what, x)
    if x.size != 1:
        raise ValueError(f"{what} must be one number, not {x.size}")
    return float(x.item())


def axis_of(axis: int, dimensions: int, most: int | None = None) -> int:
    """Counted from the front. Raises ValueError for one that is not there."""
    most = dimensions if most is None else most
    if not -dimensions <= axis < most:
        raise ValueError(f"there is no axis {axis} of {dimensions}")
    return axis + dimensions if axis < 0 else axis


def axes_of(axes: Iterable[int], dimensions: int) -> list[int]:
    found = sorted(axis_of(axis, dimensions) for axis in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"an axis is named twice: {list(axes)}")
    return found


def like(found: Tensor, *sources: Tensor) -> Tensor:
    """A result with the type of the constants that it was computed from; or of Values, if there are any."""
    if any(map(is_graph, sources)):
        return found
    with np.errstate(all="ignore"):
        return found.astype(sources[0].dtype)


def each(function: Callable[..., Any], *given: Any, cost: int = 1) -> Tensor:
    """A function of elements, of tensors that are broadcast together. `cost`: the scalars that one call makes."""
    tensors = [tensor(x) for x in given]
    spend(*np.broadcast_shapes(*(x.shape for x in tensors)), cost)
    with np.errstate(all="ignore"):
        found = np.frompyfunc(function, len(tensors), 1)(*map(elements, tensors))
    return like(np.asarray(found, object), *tensors)


def array(x: Tensor) -> Any:
    """Values with the methods of an Array: sum(), max()."""
    return elements(x).view(Array)


def filled(items: Sequence[Any], shape: Sequence[int]) -> Tensor:
    """A tensor of these elements in C order."""
    found = np.empty(len(items), object)
    found[:] = items
    return found.reshape(shape)
