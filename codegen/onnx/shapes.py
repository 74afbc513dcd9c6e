"""Ops that move elements without looking at them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codegen.onnx.tensors import (
    Tensor,
    axes_of,
    axis_of,
    elements,
    integers,
    is_graph,
    number,
    numbers,
    spend,
    tensor,
)

MAX_DIMENSIONS = 32

# The numbers of ONNX's TensorProto.DataType
INTEGERS: dict[int, Any] = {2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64}
INTEGERS |= {9: np.bool_, 12: np.uint32, 13: np.uint64}
FLOATS: dict[int, Any] = dict.fromkeys((1, 10, 11, 16), np.float64)  # constants too are computed in float64
TYPES = INTEGERS | FLOATS
ZERO = np.zeros(1)


def Identity(x: Any) -> Tensor:
    return tensor(x)


def Dropout(x: Any, ratio: Any = 0.5, training_mode: Any = False, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """As in a prediction: nothing is dropped."""
    x = tensor(x)
    if number("training_mode", training_mode) and number("ratio", ratio):
        raise ValueError("dropout in training mode draws random numbers: export the model for inference")
    return x, np.broadcast_to(np.True_, x.shape)


def Cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Of Values between types of floats, which stay float64; of constants as NumPy does."""
    x = tensor(x)
    if to not in TYPES:
        raise ValueError(f"a cast to the type {to} is not supported")
    if not is_graph(x):
        spend(x.size)
        with np.errstate(all="ignore"):
            return x.astype(TYPES[to])
    if to not in FLOATS:
        raise ValueError(f"a cast of computed numbers to {np.dtype(TYPES[to])} would be decided when the graph is made")
    return x


def CastLike(x: Any, target: Any, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    x, target = tensor(x), tensor(target)
    if is_graph(x) and (is_graph(target) or target.dtype.kind == "f"):
        return x
    return numbers("what is cast", x).astype(float if is_graph(target) else target.dtype)


def Constant(**value: Any) -> Tensor:
    """The reader has made an array of whichever attribute it was."""
    if len(value) != 1:
        raise ValueError(f"a Constant has one value, not {len(value)}")
    return np.asarray(next(iter(value.values())))


def ConstantOfShape(shape: Any, *, value: Any = ZERO) -> Tensor:
    sizes = _sizes(integers("the shape", shape))
    spend(*sizes)
    return np.full(sizes, np.asarray(value).reshape(-1)[0], np.asarray(value).dtype)


def Shape(x: Any, *, start: int = 0, end: int | None = None) -> Tensor:
    return np.array(tensor(x).shape[start:end], np.int64)


def Size(x: Any) -> Tensor:
    return np.array(tensor(x).size, np.int64)


def Range(start: Any, limit: Any, delta: Any) -> Tensor:
    first, last, step = (numbers(name, x) for name, x in (("start", start), ("limit", limit), ("delta", delta)))
    a, b, c = (number("a bound", x) for x in (first, last, step))
    if not c or not all(map(math.isfinite, (a, b, c))):
        raise ValueError(f"a range from {a} to {b} in steps of {c}")
    spend(max(0, math.ceil((b - a) / c)))
    return np.arange(first.item(), last.item(), step.item(), dtype=first.dtype)


def ArgMax(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Of constants: that of Values is a prediction."""
    x = numbers("what ArgMax looks at", x)
    axis = axis_of(axis, x.ndim)
    found = x.shape[axis] - 1 - np.flip(x, axis).argmax(axis) if select_last_index else x.argmax(axis)
    return np.expand_dims(found, axis) if keepdims else found


def Reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Tensor:
    x = tensor(x)
    sizes = integers("the shape", shape)
    if not allowzero:
        sizes = [x.shape[i] if size == 0 and i < x.ndim else size for i, size in enumerate(sizes)]
    if sizes.count(-1) > 1 or min(sizes, default=0) < -1:
        raise ValueError(f"no shape: {sizes}")
    known = math.prod(size for size in sizes if size != -1)
    if (known != x.size) if -1 not in sizes else (not known or x.size % known):
        raise ValueError(f"{x.size} elements of the shape {list(x.shape)} cannot have the shape {sizes}")
    return _reshaped(x, [x.size // known if size == -1 else size for size in sizes])


def _reshaped(x: Tensor, sizes: Sequence[int]) -> Tensor:
    if not x.flags.c_contiguous:
        spend(x.size)  # which copies it
    return x.reshape(_sizes(sizes))


def _sizes(sizes: Sequence[int]) -> list[int]:
    if len(sizes) > MAX_DIMENSIONS or min(sizes, default=0) < 0:
        raise ValueError(f"no shape: {list(sizes)[:MAX_DIMENSIONS]}")
    return list(sizes)


def Flatten(x: Any, *, axis: int = 1) -> Tensor:
    x = tensor(x)
    axis = axis_of(axis, x.ndim, x.ndim + 1)
    return _reshaped(x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


def Transpose(x: Any, *, perm: Sequence[int] | None = None) -> Tensor:
    x = tensor(x)
    if perm is not None and sorted(perm) != list(range(x.ndim)):
        raise ValueError(f"no order of {x.ndim} axes: {list(perm)}")
    return x.transpose(perm)


def Squeeze(x: Any, axes: Any = None) -> Tensor:
    x = tensor(x)
    which = range(x.ndim) if axes is None else axes_of(integers("axes", axes), x.ndim)
    at = [i for i in which if axes is not None or x.shape[i] == 1]
    if any(x.shape[i] != 1 for i in at):
        raise ValueError(f"the axes {at} of the shape {list(x.shape)} are not all of length 1")
    return x.reshape([size for i, size in enumerate(x.shape) if i not in at])


def Unsqueeze(x: Any, axes: Any) -> Tensor:
    x = tensor(x)
    given = integers("axes", axes)
    new = axes_of(given, _dimensions(x.ndim + len(given)))
    return np.expand_dims(x, tuple(new))


def _dimensions(count: int) -> int:
    if count > MAX_DIMENSIONS:
        raise ValueError(f"{count} dimensions are more than {MAX_DIMENSIONS}")
    return count


def Concat(*given: Any, axis: int) -> Tensor:
    tensors = [tensor(x) for x in given]
    spend(sum(x.size for x in tensors))
    if any(map(is_graph, tensors)):
        tensors = [elements(x) for x in tensors]
    return np.concatenate(tensors, axis_of(axis, tensors[0].ndim))


def Split(x: Any, split: Any = None, *, axis: int = 0, num_outputs: int = 1) -> tuple[Tensor, ...]:
    """`num_outputs`: that of the node, if it has neither."""
    x = tensor(x)
    axis = axis_of(axis, x.ndim)
    length = x.shape[axis]
    if split is None:
        if not 1 <= num_outputs <= max(1, length):
            raise ValueError(f"{length} elements cannot be split into {num_outputs} parts")
        part = -(-length // num_outputs)
        sizes = [max(0, min(part, length - i * part)) for i in range(num_outputs)]
    else:
        sizes = _lengths(integers("split", split))
    if sum(sizes) != length:
        raise ValueError(f"parts of {sizes} are not {length} elements")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def _lengths(sizes: list[int]) -> list[int]:
    if min(sizes, default=0) < 0:
        raise ValueError(f"no lengths: {sizes}")
    return sizes


def Slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    x = tensor(x)
    first, last = integers("starts", starts), integers("ends", ends)
    at = list(range(len(first))) if axes is None else [axis_of(i, x.ndim) for i in integers("axes", axes)]
    by = [1] * len(first) if steps is None else integers("steps", steps)
    if not len(first) == len(last) == len(at) == len(by) or len(first) > x.ndim or 0 in by:
        raise ValueError(f"no slice of {x.ndim} axes: starts {first}, ends {last}, axes {at}, steps {by}")
    index = [slice(None)] * x.ndim
    for axis, a, b, step in zip(at, first, last, by, strict=True):
        size = x.shape[axis]
        a, b = max(0, a + size if a < 0 else a), max(-1, b + size if b < 0 else b)
        if step > 0:
            index[axis] = slice(a, max(0, b), step)
        else:  # to the very first, which Python writes as None
            index[axis] = slice(min(a, size - 1), None if b < 0 else b, step)
    return x[tuple(index)]


def Gather(x: Any, indices: Any, *, axis: int = 0) -> Tensor:
    x, at = tensor(x), numbers("the indices", indices)
    axis = axis_of(axis, x.ndim)
    _check_indices(at, x.shape[axis])
    _dimensions(x.ndim + at.ndim)
    spend(x.size // max(1, x.shape[axis]), at.size)
    return np.take(x, at, axis)


def GatherElements(x: Any, indices: Any, *, axis: int = 0) -> Tensor:
    x, at = tensor(x), numbers("the indices", indices)
    axis = axis_of(axis, x.ndim)
    _check_indices(at, x.shape[axis])
    spend(at.size)
    if at.ndim != x.ndim or any(n > x.shape[i] for i, n in enumerate(at.shape) if i != axis):
        raise ValueError(f"indices of the shape {list(at.shape)} for elements of the shape {list(x.shape)}")
    x = x[tuple(slice(None if i == axis else n) for i, n in enumerate(at.shape))]  # or it would be broadcast
    return np.take_along_axis(x, at, axis)


def _check_indices(at: Tensor, length: int) -> None:
    if at.dtype.kind not in "iu":
        raise ValueError(f"the indices must be integers, not {at.dtype}")
    if at.size and not -length <= int(at.min()) <= int(at.max()) < length:
        raise ValueError(f"an index is outside of {length} elements")


def Pad(x: Any, pads: Any, constant_value: Any = None, axes: Any = None, *, mode: str = "constant", value: float = 0.0
        ) -> Tensor:  # fmt: skip
    """`value`: as the first versions of this op have it. A negative pad cuts."""
    x = tensor(x)
    given = integers("pads", pads)
    at = list(range(x.ndim)) if axes is None else [axis_of(i, x.ndim) for i in integers("axes", axes)]
    if len(given) != 2 * len(at) or len(set(at)) < len(at):
        raise ValueError(f"{len(given)} pads for the axes {at} of {x.ndim}")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ValueError(f"the mode {mode!r} is none of constant, edge, reflect and wrap")
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(at):
        before[axis], after[axis] = given[i], given[i + len(at)]
    cut = [slice(max(0, -a), max(0, size + min(0, b))) for a, b, size in zip(before, after, x.shape, strict=True)]
    x = x[tuple(cut)]
    width = [(max(0, a), max(0, b)) for a, b in zip(before, after, strict=True)]
    spend(*(size + a + b for size, (a, b) in zip(x.shape, width, strict=True)))
    if mode != "constant":
        if not x.size:
            raise ValueError(f"nothing to pad: the shape is {list(x.shape)}")
        return np.pad(x, width, mode)  # type: ignore[call-overload]
    fill = tensor(value if constant_value is None else constant_value)
    if fill.size != 1:
        raise ValueError(f"the padding must be one number, not {fill.size}")
    if is_graph(x) or is_graph(fill):
        x, fill = elements(x), elements(fill)
    sizes = [size + a + b for size, (a, b) in zip(x.shape, width, strict=True)]
    found = np.full(sizes, fill.item(), x.dtype)
    found[tuple(slice(a, a + size) for size, (a, _) in zip(x.shape, width, strict=True))] = x
    return found


def Expand(x: Any, shape: Any) -> Tensor:
    x = tensor(x)
    sizes = np.broadcast_shapes(x.shape, tuple(_sizes(integers("the shape", shape))))
    spend(*sizes)
    return np.broadcast_to(x, sizes)


def Tile(x: Any, repeats: Any) -> Tensor:
    x, by = tensor(x), integers("repeats", repeats)
    if len(by) != x.ndim or min(by, default=0) < 0:
        raise ValueError(f"the repeats {by} are not for {x.ndim} axes")
    spend(x.size, *by)
    return np.tile(x, by)


def Trilu(x: Any, k: Any = 0, *, upper: int = 1) -> Tensor:
    x = tensor(x)
    if x.ndim < 2:
        raise ValueError(f"no matrices: the shape is {list(x.shape)}")
    spend(x.size)
    at = int(number("k", k))
    below = np.arange(x.shape[-2])[:, None] + at
    columns = np.arange(x.shape[-1])
    zero = np.zeros((), float if is_graph(x) else x.dtype)
    return np.where(columns >= below if upper else columns <= below, x, elements(zero) if is_graph(x) else zero)


def Resize(x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *, mode: str = "nearest",
           coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
           axes: Sequence[int] = (), **cubic: Any) -> Tensor:  # fmt: skip
    """Of the nearest elements alone."""
    x, options = tensor(x), (coordinate_transformation_mode, nearest_mode)
    at = [axis_of(axis, x.ndim) for axis in axes] or list(range(x.ndim))
    if mode != "nearest" or options[0] not in COORDINATES or options[1] not in NEAREST or cubic.get("antialias"):
        raise ValueError(f"a resize by {mode}, {', '.join(options)} is not supported")
    if cubic.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError("a resize that keeps the aspect ratio is not supported")
    by = [] if scales is None else [*numbers("scales", scales).ravel().astype(np.float32)]  # in which runtimes multiply
    made = [math.floor(np.float32(x.shape[i]) * scale) for i, scale in zip(at, by, strict=False)]
    lengths = made if by else integers("sizes", sizes)
    for j, (i, count) in enumerate(zip(at, _lengths(lengths), strict=True)):
        size = x.shape[i]
        spend(x.size // max(1, size), count)
        scale = by[j] if by else np.float32(count / max(1, size))
        where = NEAREST[options[1]](COORDINATES[options[0]](np.arange(count, dtype=np.float32), scale, size, count))
        x = np.take(x, np.clip(where, 0, size - 1).astype(int), i)
    return x


# Of outputs, by the scale and the lengths of input and output, where they lie in the input
COORDINATES: dict[str, Callable[..., Tensor]] = {
    "asymmetric": lambda i, scale, size, count: i / scale,
    "half_pixel": lambda i, scale, size, count: (i + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda i, scale, size, count: (i + 0.5) / scale - 0.5 if count > 1 else i * 0.0,
    "align_corners": lambda i, scale, size, count: i * (size - 1) / max(1, count - 1),
}
NEAREST: dict[str, Callable[[Tensor], Tensor]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def DepthToSpace(x: Any, *, blocksize: int, mode: str = "DCR") -> Tensor:
    x = tensor(x)
    n, c, h, w = x.shape
    b, rest = blocksize, c // max(1, blocksize**2)
    if b < 1 or rest * b * b != c or mode not in ("DCR", "CRD"):
        raise ValueError(f"{c} channels are no blocks of {b} x {b}, or the mode is not DCR or CRD: {mode!r}")
    spend(x.size)
    if mode == "DCR":
        parts = x.reshape(n, b, b, rest, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, rest, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, rest, h * b, w * b)


def SpaceToDepth(x: Any, *, blocksize: int, mode: str = "DCR") -> Tensor:
    x = tensor(x)
    n, c, h, w = x.shape
    b = blocksize
    if b < 1 or h % b or w % b or mode not in ("DCR", "CRD"):
        raise ValueError(f"an image of {h} x {w} is no blocks of {b} x {b}, or the mode is not DCR or CRD: {mode!r}")
    spend(x.size)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)
