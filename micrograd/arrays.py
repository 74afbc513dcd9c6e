"""NumPy's notation for `Value`s: arrays of them that know `@`, einsum, ufuncs, sum, mean, max, where and the like.

    W, x = array(rng.normal(size=(50, 784))), array(np.zeros(784))
    hidden = np.maximum(W @ x, 0)

An array of objects in NumPy has most of this already, but compares its elements to find a maximum, and a comparison of
Values would be fixed when the graph is traced. So an Array is a subclass of ndarray that says what each function
means in terms of Value's own operators, and refuses the others by name.

The order of operations decides bits, so it is defined here, whatever the memory looks like: reductions and einsum run
over their indices in C order, from left to right, and begin with the first term. This module alone needs NumPy.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from numbers import Real
from typing import Any, TypeAlias

try:
    import numpy as np
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("micrograd.arrays needs numpy: pip install numpy", name="numpy") from error

from micrograd import ops
from micrograd.engine import Value, value_of

Axis: TypeAlias = "int | Sequence[int] | None"
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


def array(elements: Any) -> Any:
    """An Array of Values: numbers become leaves, one for each element; Values stay what they are.

    `elements` is anything that NumPy makes an array of; of a single number it is a Value.
    Raises TypeError for an element that is neither a Value nor a real number.
    """
    return _each(lambda x: x if isinstance(x, Value) else Value(x), np.asarray(elements, dtype=object))


def data(values: Any) -> Numbers:
    """The numbers that an array of Values holds now, as an ordinary array of floats."""
    numbers: Numbers = np.vectorize(lambda x: x.data if isinstance(x, Value) else x, otypes=[float])(_plain(values))
    return numbers


def grad(values: Any) -> Numbers:
    """Their gradients, as an ordinary array; 0 for a number."""
    numbers: Numbers = np.vectorize(lambda x: x.grad if isinstance(x, Value) else 0.0, otypes=[float])(_plain(values))
    return numbers


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Array) else x


def _operand(x: Any) -> Any:
    """An array of objects whose numbers, if there are some among the Values, compute as IEEE says: 1 / 0 is inf."""
    x = _plain(x)
    if isinstance(x, np.ndarray) and x.dtype == object and not {Value}.issuperset(map(type, x.ravel().tolist())):
        return np.frompyfunc(lambda one: np.float64(one) if isinstance(one, Real) else one, 1, 1)(x)
    return x


def _wrapped(result: Any) -> Any:
    """Arrays of objects as Arrays; what is in a list or tuple, too."""
    if isinstance(result, list | tuple) and type(result) in (list, tuple):
        return type(result)(map(_wrapped, result))
    return result.view(Array) if isinstance(result, np.ndarray) and result.dtype == object else result


def _each(function: Callable[..., Any], *arrays: Any) -> Any:
    """A function of elements, applied to whole arrays that are broadcast together."""
    found = np.frompyfunc(function, len(arrays), 1)(*map(_plain, arrays))
    return _wrapped(found)


def _function_of(op: ops.Row) -> np.ufunc:
    """An op of the engine as a ufunc. Numbers that stand among the Values become constants."""
    function: np.ufunc = np.frompyfunc(lambda x, *others: value_of(x).apply(op, *others), op.arity, 1)
    return function


# What each ufunc of NumPy means. Those on the right that are NumPy's own call Value's operators.
MEANINGS: dict[np.ufunc, np.ufunc] = {
    **{f: f for f in (np.add, np.subtract, np.multiply, np.divide, np.power, np.negative, np.square, np.matmul)},
    np.reciprocal: np.reciprocal,
    np.positive: np.frompyfunc(lambda x: x, 1, 1),
    np.absolute: _function_of(ops.absolute),
    np.maximum: _function_of(ops.maximum),
    np.minimum: _function_of(ops.minimum),
    np.exp: _function_of(ops.exp),
    np.expm1: _function_of(ops.expm1),
    np.log: _function_of(ops.log),
    np.log1p: _function_of(ops.log1p),
    np.sqrt: _function_of(ops.sqrt),
    np.sin: _function_of(ops.sin),
    np.cos: _function_of(ops.cos),
    np.tanh: _function_of(ops.tanh),
}
REDUCTIONS: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: operator.add,
    np.multiply: operator.mul,
    np.maximum: lambda a, b: value_of(a).max(b),
    np.minimum: lambda a, b: value_of(a).min(b),
}
COMPARISONS = "would be decided once, when the graph is traced: "
INSTEAD = {
    **dict.fromkeys(
        ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "sign", "isnan", "isfinite", "isinf"),
        f"{COMPARISONS}use np.maximum, np.minimum, np.abs or relu(), or compare micrograd.arrays.data(array)",
    ),
    **dict.fromkeys(
        ("argmax", "argmin", "argsort", "sort", "argpartition", "partition", "median", "unique", "isin"),
        f"{COMPARISONS}use max(), min() or np.maximum, declare the array as an output, whose largest element the "
        "compiled model's predict() finds, or take it of micrograd.arrays.data(array)",
    ),
    **dict.fromkeys(
        ("array_equal", "array_equiv", "nan_to_num"), f"{COMPARISONS}take it of micrograd.arrays.data(array)"
    ),
    "vdot": "is not defined: use np.dot",
    "fmax": "ignores nan: use np.maximum",
    "fmin": "ignores nan: use np.minimum",
}
NUMBERS_ONLY = {
    *("numpy.linalg", "numpy.fft", "corrcoef", "cov", "interp", "percentile", "quantile", "round"),
    *("around", "rint", "gradient", "insert"),
}


def _refuse(name: str) -> TypeError:
    known = f"is not defined: there are {', '.join(sorted(f.__name__ for f in MEANINGS))}, and the methods of an Array"
    return TypeError(f"{name} of an array of Values {INSTEAD.get(name, known)}")


class Array(np.ndarray[Any, np.dtype[np.object_]]):
    """An ndarray of Values, and of numbers among them, which are constants. Make one with array()."""

    @np.errstate(all="ignore")  # leaves are often 0 while a graph is traced
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc.__name__ == "clip":
            return np.minimum(np.maximum(inputs[0], inputs[1]), inputs[2], **options)
        meaning = MEANINGS.get(ufunc)
        if meaning is None:
            raise _refuse(ufunc.__name__)
        if method == "reduce" and ufunc in REDUCTIONS:
            return _reduced(REDUCTIONS[ufunc], *inputs, **options)
        own = (inputs[0],) if method == "at" else options.pop("out", None)
        operands = [*map(_operand, inputs)]
        if own is None:
            return _wrapped(getattr(meaning, method)(*operands, **options))
        results = tuple(_plain(x).copy() for x in own)  # so that one that fails midway changes nothing
        if method == "at":
            meaning.at(results[0], *operands[1:])
        else:
            getattr(meaning, method)(*operands, out=results, **options)
        _plain(own[0])[...] = results[0]
        return own[0]

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if func is np.einsum:
            return _einsum(*args, **kwargs)
        if func is np.linalg.norm:
            return _norm(*args, **kwargs)
        if func.__name__ in INSTEAD:
            raise _refuse(func.__name__)
        try:
            return _wrapped(super().__array_function__(func, types, args, kwargs))
        except (AttributeError, TypeError) as error:
            if func.__module__ in NUMBERS_ONLY or func.__name__ in NUMBERS_ONLY:
                raise _refuse(func.__name__) from error
            raise

    def var(  # type: ignore[override]
        self,
        axis: Axis = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: Any = False,
        **others: Any,
    ) -> Any:
        """The mean of the squared distances from the mean; with `ddof`, their sum over n - ddof."""
        if others or not dtype is out is None:
            raise TypeError("var and std of an array of Values take axis, ddof and keepdims alone")
        distance = self - self.mean(axis=axis, keepdims=True)
        squares = _reduced(operator.add, distance * distance, axis, keepdims=keepdims)
        count = self.size / max(1, np.size(squares))
        if not ddof < count:
            raise ValueError(f"ddof must be below the number of Values, {count:.0f}, got {ddof}")
        return squares / (count - ddof)

    def std(self, *args: Any, **options: Any) -> Any:
        return np.sqrt(self.var(*args, **options))

    def apply(self, op: str | ops.Row, *others: Any) -> Any:
        """Any op of the engine's table, on each element: `x.apply("erf")`."""
        return _each(lambda x, *y: value_of(x).apply(op, *y), self, *others)

    def relu(self) -> Any:
        """max(x, 0) of each element. The gradient at 0 is 0; that of np.maximum(x, 0) is 1."""
        return self.apply(ops.relu)

    def sigmoid(self) -> Any:
        return self.apply(ops.sigmoid)

    def softplus(self) -> Any:
        return self.apply(ops.softplus)

    def gelu(self) -> Any:
        return self.apply(ops.gelu)

    def detach(self) -> Any:
        """The same numbers, through which no gradient flows."""
        return self.apply(ops.detach)

    def argmax(self, *_: Any, **__: Any) -> Any:
        raise _refuse("argmax")

    def argmin(self, *_: Any, **__: Any) -> Any:
        raise _refuse("argmin")

    def argsort(self, *_: Any, **__: Any) -> Any:
        raise _refuse("argsort")

    def sort(self, *_: Any, **__: Any) -> Any:
        raise _refuse("sort")


def _reduced(
    function: Callable[[Any, Any], Any],
    operand: Any,
    axis: Axis = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = np._NoValue,
    where: Any = True,
) -> Any:
    """A reduction from left to right over the indices of some axes, in C order."""
    out = out[0] if isinstance(out, tuple) else out
    if not (dtype is out is None and initial is np._NoValue and where is True):
        raise TypeError("a reduction of an array of Values takes axis and keepdims: index it for anything else")
    operand = _operand(np.asarray(operand))
    if operand.ndim == 0 and axis in (0, -1):
        axis = None
    given: Any = range(operand.ndim) if axis is None else axis if isinstance(axis, tuple | list) else [axis]
    axes = [operator.index(i) for i in given]
    at = sorted(range(operand.ndim)[i] if -operand.ndim <= i < operand.ndim else i for i in axes)
    rows = np.moveaxis(operand, at, range(-len(at), 0))  # which raises AxisError for one that is not there
    kept = rows.shape[: rows.ndim - len(at)]
    terms = np.prod(rows.shape[len(kept) :], dtype=int)
    if 0 not in kept and not terms:
        raise ValueError(f"a reduction of no Values: the shape is {operand.shape}")
    rows = rows.reshape(np.prod(kept, dtype=int), terms)
    found = np.empty(len(rows), dtype=object)
    found[:] = [reduce(function, row) for row in rows]
    if keepdims:
        return found.reshape([1 if i in at else n for i, n in enumerate(operand.shape)]).view(Array)
    return found.reshape(kept).view(Array) if kept else found[0]


def _norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """np.linalg.norm: the root of the sum of squares over some axes."""
    axes = x.ndim if axis is None else np.size(axis)
    if ord is not None and (ord != 2 or axes != 1):
        raise TypeError(f"norm of an array of Values is the root of a sum of squares, without an ord, got {ord!r}")
    if axis is not None and axes not in (1, 2):
        raise ValueError(f"norm takes one axis or two, got {axis}")
    return np.sqrt((x * x).sum(axis=axis, keepdims=keepdims))


def _einsum(subscripts: Any, *operands: Any, optimize: Any = False, **others: Any) -> Any:
    """np.einsum: products of the operands from left to right, added up over the indices that are not in the result.

    They run in the order in which they are first written. With `optimize`, three operands or more are taken two by two,
    in the order of np.einsum_path(): fewer operations.
    """
    if others or not isinstance(subscripts, str):
        raise TypeError("einsum of an array of Values takes its subscripts as a string, and optimize alone")
    arrays = [np.asarray(_operand(x)) for x in operands]
    arrays = [x if x.dtype == object else x.astype(float) for x in arrays]
    terms, result = _subscripts(subscripts, [x.ndim for x in arrays])
    if optimize and len(arrays) > 2:
        return _two_by_two([*zip(terms, arrays, strict=True)], result, optimize)
    letters = result + "".join(dict.fromkeys(c for c in chain(*terms) if c not in result))
    factors = []
    for term, x in zip(terms, arrays, strict=True):
        own = "".join(c for c in letters if c in term)
        view = np.asarray(np.einsum(f"{term}->{own}", x))  # transposed, or the diagonal of repeated letters
        factors.append(view[tuple(slice(None) if c in term else np.newaxis for c in letters)])
    product = np.asarray(reduce(np.multiply, np.broadcast_arrays(*factors)), dtype=object).view(Array)
    summed = tuple(range(len(result), len(letters)))
    return product.sum(axis=summed) if summed else product[()]


def _two_by_two(operands: list[tuple[str, Any]], result: str, optimize: Any) -> Any:
    """An einsum as several, each of which replaces operands by their product."""
    subscripts = f"{','.join(term for term, _ in operands)}->{result}"
    shapes = [np.broadcast_to(0.0, np.shape(x)) for _, x in operands]
    for places in np.einsum_path(subscripts, *shapes, optimize=optimize)[0][1:]:
        taken = [operands[place] for place in places]
        operands = [x for i, x in enumerate(operands) if i not in places]
        needed = "".join([result, *(term for term, _ in operands)])
        kept = "".join(dict.fromkeys(c for term, _ in taken for c in term if c in needed)) if operands else result
        product = _einsum(f"{','.join(term for term, _ in taken)}->{kept}", *(x for _, x in taken))
        operands.append((kept, product))
    return operands[0][1]


def _subscripts(text: str, dimensions: list[int]) -> tuple[list[str], str]:
    """The letters of each operand, and of the result. `...` becomes letters that are not used otherwise."""
    left, arrow, result = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(dimensions):
        raise ValueError(f"einsum: {text!r} has {len(terms)} operands, got {len(dimensions)}")
    unused = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    hidden = [n - len(t.replace("...", "")) if "..." in t else 0 for t, n in zip(terms, dimensions, strict=True)]
    spare = "".join(unused[: max(hidden)])
    terms = [term.replace("...", spare[len(spare) - n :]) for term, n in zip(terms, hidden, strict=True)]
    for term, n in zip(terms, dimensions, strict=True):
        if len(term) != n:
            raise ValueError(f"einsum: {text!r} gives an operand {len(term)} indices, but it has {n}")
    if not arrow:
        written = "".join(terms)
        result = "..." + "".join(sorted(c for c in set(written) if written.count(c) == 1 and c not in spare))
    if spare and "..." not in result:
        raise ValueError(f"einsum: {text!r} has ... in an operand, but not in the result")
    result = result.replace("...", spare)
    if len(set(result)) < len(result) or not set(result) <= set(chain(*terms)):
        raise ValueError(
            f"einsum: each index of the result must be one of the operands', and stand there once: {text!r}"
        )
    return terms, result
