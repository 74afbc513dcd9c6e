"""Products and windows: Gemm, MatMul, Einsum, convolutions and pooling, in any number of dimensions.

Example: a convolution along an axis of 4 elements with a kernel of 3, a pad of 1 at both ends and a stride of 2 has the
places [[(1, 0), (2, 1)], [(0, 1), (1, 2), (2, 3)]]: of each output, which element of the kernel meets which one of the
input. Padding is with zeros, whose terms the sums leave out. A transposed convolution has places too, and pooling.
"""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from codegen.onnx.elementwise import Add, Mul
from codegen.onnx.tensors import Tensor, array, elements, filled, is_graph, like, spend, tensor
from micrograd import ops

Places: TypeAlias = list[list[tuple[int, int]]]  # of one axis


def MatMul(a: Any, b: Any) -> Tensor:
    a, b = tensor(a), tensor(b)
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(f"the shapes {list(a.shape)} and {list(b.shape)} cannot be multiplied")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1
    spend(*batch, rows, columns, 2 * a.shape[-1])
    if not a.shape[-1]:
        raise ValueError("a sum of no products")
    if is_graph(a) or is_graph(b):
        a, b = elements(a), elements(b)
    return tensor(np.matmul(a, b))


def Gemm(a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
         ) -> Tensor:  # fmt: skip
    a, b = tensor(a), tensor(b)
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"matrices of the shapes {list(a.shape)} and {list(b.shape)}")
    found = MatMul(a.T if transA else a, b.T if transB else b)
    if alpha != 1.0:
        found = Mul(found, np.array(alpha, float if is_graph(found) else found.dtype))
    if c is None or beta == 0.0:
        return found
    c = tensor(c)
    return Add(found, c if beta == 1.0 else Mul(c, np.array(beta, float if is_graph(c) else c.dtype)))


def Einsum(*given: Any, equation: str) -> Tensor:
    tensors = [tensor(x) for x in given]
    if "..." in equation:
        raise ValueError("an einsum with ... is not supported")
    terms, _, _ = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, x in zip(terms.split(","), tensors, strict=True):
        if len(term) != x.ndim or any(sizes.setdefault(c, n) != n for c, n in zip(term, x.shape, strict=True)):
            raise ValueError(f"{equation!r} does not fit a tensor of the shape {list(x.shape)}")
    spend(*sizes.values(), len(tensors) + 1)
    if not sizes:
        return reduce(Mul, tensors)
    return like(tensor(np.einsum(equation, *map(array, tensors))), *tensors)


def Conv(x: Any, w: Any, b: Any = None, *, group: int = 1, **window: Any) -> Tensor:
    x, w = tensor(x), tensor(w)
    places = _places(x.shape, w.shape[2:], **window)
    return _correlated(x, w, b, group, places)


def ConvTranspose(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    group: int = 1,
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    **window: Any,
) -> Tensor:
    x, w = tensor(x), tensor(w)
    axes = x.ndim - 2
    kernel, strides, dilations, pads, auto = _window(x.shape, w.shape[2:], **window)
    more, wanted = _each_axis(output_padding, axes, 0), list(output_shape)[-axes:]
    places = []
    for i, size in enumerate(x.shape[2:]):
        before, after = pads[i], pads[i + axes]
        whole = strides[i] * (size - 1) + more[i] + (kernel[i] - 1) * dilations[i] + 1
        if wanted or auto.startswith("SAME"):
            total = whole - (wanted[i] if wanted else size * strides[i])
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after = total - before
        count = whole - before - after
        if not 0 <= more[i] < max(strides[i], dilations[i]) or count < 1:
            raise ValueError(f"an axis of {size} elements would have {count} outputs")
        spend(count)
        rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        spend(kernel[i], size)
        for u, j in itertools.product(range(kernel[i]), range(size)):
            if 0 <= (at := j * strides[i] + u * dilations[i] - before) < count:
                rows[at].append((u, j))
        places.append(rows)
    if group < 1 or w.shape[0] % group:
        raise ValueError(f"{w.shape[0]} channels are no {group} groups")
    parts = w.reshape(group, w.shape[0] // group, *w.shape[1:])  # group, in, out, kernel
    return _correlated(x, np.concatenate(list(parts.swapaxes(1, 2))), b, group, places)


def _correlated(x: Tensor, w: Tensor, bias: Any, group: int, places: list[Places]) -> Tensor:
    """For each output the products of the weights (out, in, *kernel) with what they meet, added to the bias."""
    channels, wanted = x.shape[1], w.shape[0]
    if group < 1 or wanted % group or w.shape[1] * group != channels:
        raise ValueError(f"a kernel of the shape {list(w.shape)} in {group} groups is not for {channels} channels")
    starts = None if bias is None else tensor(bias)
    if starts is not None and starts.shape != (wanted,):
        raise ValueError(f"a bias of the shape {list(starts.shape)} for {wanted} channels")
    terms = math.prod(sum(map(len, axis)) for axis in places)
    spend(x.shape[0], wanted, w.shape[1], terms, 2)
    spend(x.shape[0], wanted, *map(len, places))
    sources = (x, w) if starts is None else (x, w, starts)
    rows = [_rows(channel) for channel in elements(w)]
    begins = [[]] * wanted if starts is None else [[b] for b in elements(starts)]
    out, size = wanted // group, w.shape[1]
    found = []
    for image in elements(x):
        planes = _rows(image)
        for o in range(wanted):
            mine = planes[o // out * size :][:size]
            for met in itertools.product(*places):
                pairs = _pairs(met, w.shape[2:], x.shape[2:])
                products = [a[k] * b[i] for a, b in zip(rows[o], mine, strict=True) for k, i in pairs]
                found.append(reduce(operator.add, [*begins[o], *products]) if products or begins[o] else 0.0)
    return like(filled(found, (x.shape[0], wanted, *map(len, places))), *sources)


def _rows(x: Tensor) -> list[list[Any]]:
    """The channels of an image, each as one list."""
    return [channel.ravel().tolist() for channel in x]


def _pairs(met: Sequence[list[tuple[int, int]]], kernel: Sequence[int], image: Sequence[int]) -> list[tuple[int, int]]:
    """Of one output, the numbers in C order of what meets: in the kernel, in the image."""
    found = [(0, 0)]
    for pairs, k, i in zip(met, kernel, image, strict=True):
        found = [(a * k + u, b * i + j) for a, b in found for u, j in pairs]
    return found


def _each_axis(given: Sequence[int], axes: int, default: int) -> list[int]:
    found = list(given) if given else [default] * axes
    if len(found) != axes or min(found) < 0:
        raise ValueError(f"{found} is not one number for each of {axes} axes")
    return found


def _window(
    shape: Sequence[int],
    kernel: Sequence[int],
    *,
    kernel_shape: Sequence[int] = (),
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
) -> tuple[list[int], list[int], list[int], list[int], str]:
    """Kernel, strides, dilations and pads of each axis after the first two."""
    axes = len(shape) - 2
    kernel = list(kernel_shape or kernel) if axes > 0 else []
    if axes < 1 or len(kernel) != axes or (kernel_shape and list(kernel_shape) != list(kernel)):
        raise ValueError(f"a kernel of the shape {list(kernel)} is not for a tensor of the shape {list(shape)}")
    by, apart = _each_axis(strides, axes, 1), _each_axis(dilations, axes, 1)
    ends = _each_axis(pads, 2 * axes, 0)
    if min(*kernel, *by, *apart) < 1 or min(shape) < 1:
        raise ValueError(f"a kernel of {kernel}, strides {by}, dilations {apart} over {list(shape)}: all must be >= 1")
    if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad is {auto_pad!r}")
    return list(kernel), by, apart, [0] * (2 * axes) if auto_pad != "NOTSET" else ends, auto_pad


def _places(shape: Sequence[int], kernel: Sequence[int] = (), *, ceil_mode: int = 0, **window: Any) -> list[Places]:
    kernel, strides, dilations, pads, auto = _window(shape, kernel, **window)
    return [
        [
            [pair for pair in row if 0 <= pair[1] < size]
            for row in _windows(k, s, d, before, after, size, auto, ceil_mode)
        ]
        for k, s, d, before, after, size in zip(kernel, strides, dilations, *_ends(pads), shape[2:], strict=True)
    ]


def _ends(pads: list[int]) -> tuple[list[int], list[int]]:
    """What is before each axis, and behind it."""
    return pads[: len(pads) // 2], pads[len(pads) // 2 :]


def _windows(
    kernel: int, stride: int, dilation: int, before: int, after: int, size: int, auto: str, ceil: int
) -> Places:
    """The places along one axis, those in the padding included."""
    span = (kernel - 1) * dilation + 1
    if auto.startswith("SAME"):
        count = -(-size // stride)
        total = max(0, (count - 1) * stride + span - size)
        before = total // 2 if auto == "SAME_UPPER" else total - total // 2
    else:
        room = size + before + after - span
        count = (-(-room // stride) if ceil else room // stride) + 1
        if ceil and (count - 1) * stride >= size + before:  # a window that begins in the padding behind
            count -= 1
    if count < 1:
        raise ValueError(f"a kernel that spans {span} does not fit {size} elements with pads of {before} and {after}")
    spend(count, kernel)
    return [[(u, n * stride - before + u * dilation) for u in range(kernel)] for n in range(count)]


def _pooled(x: Tensor, places: list[Places], function: Callable[[list[Any], int], Any]) -> Tensor:
    """A function of each window: of the elements in it, and the number of the window in C order."""
    inside = math.prod(sum(map(len, axis)) for axis in places)
    spend(*x.shape[:2], inside)
    spend(*x.shape[:2], *map(len, places), 2)
    windows = [_pairs(met, x.shape[2:], x.shape[2:]) for met in itertools.product(*places)]
    found = []
    for image in elements(x):
        for plane in _rows(image):
            found += [function([plane[i] for _, i in pairs], n) for n, pairs in enumerate(windows)]
    return like(filled(found, (*x.shape[:2], *map(len, places))), x)


def MaxPool(x: Any, *, storage_order: int = 0, **window: Any) -> Tensor:
    x = tensor(x)
    return _pooled(x, _places(x.shape, **window), lambda items, _: reduce(ops.maximum, items))


def AveragePool(x: Any, *, count_include_pad: int = 0, ceil_mode: int = 0, **window: Any) -> Tensor:
    x = tensor(x)
    places = _places(x.shape, ceil_mode=ceil_mode, **window)
    kernel, strides, dilations, pads, auto = _window(x.shape, (), **window)
    counts = [math.prod(map(len, met)) for met in itertools.product(*places)]
    if count_include_pad:  # what is beyond the padding does not count
        is_same = auto.startswith("SAME")  # of which nothing is
        edges = [
            [
                sum(is_same or j < size + after for _, j in row)
                for row in _windows(k, s, d, before, after, size, auto, ceil_mode)
            ]
            for k, s, d, before, after, size in zip(kernel, strides, dilations, *_ends(pads), x.shape[2:], strict=True)
        ]
        counts = [math.prod(met) for met in itertools.product(*edges)]
    return _pooled(x, places, lambda items, n: ops.divide(reduce(operator.add, items), float(counts[n])))


def GlobalAveragePool(x: Any) -> Tensor:
    return _global(x, lambda items: ops.divide(reduce(operator.add, items), float(len(items))))


def GlobalMaxPool(x: Any) -> Tensor:
    return _global(x, lambda items: reduce(ops.maximum, items))


def _global(x: Any, function: Callable[[list[Any]], Any]) -> Tensor:
    x = tensor(x)
    if x.ndim < 3 or not x.size:
        raise ValueError(f"no image: the shape is {list(x.shape)}")
    spend(x.size, 2)
    found = [function(plane) for image in elements(x) for plane in _rows(image)]
    return like(filled(found, (*x.shape[:2], *[1] * (x.ndim - 2))), x)
