"""Arguments that hold many numbers. Real numbers of any type are converted to float64, and labels from any ints."""

from __future__ import annotations

import math
import operator
import struct
import sys
from array import array
from typing import Any, NamedTuple

BYTE_ORDER = "<" if sys.byteorder == "little" else ">"
NOUNS = {"B": "unsigned bytes", "d": "float64", "i": "ints"}
LONG_SEQUENCE = 2**16  # elements, of which a wrong count is refused before they are converted: memory may not suffice


class Elements(NamedTuple):
    """Elements of a buffer that are read as they are, and what is converted to them: numbers that are `things`."""

    format: str
    convertible: str = ""
    things: str = ""
    classes: int = 0  # of labels and tokens
    one: str = ""  # what messages call one of those
    shape: tuple[int, ...] = ()  # of an example that was declared with two or more dimensions

    @property
    def noun(self) -> str:
        return NOUNS[self.format]


PIXELS = Elements("B")
REALS = Elements("d", "?bBhHiIlLqQnNefd", "real numbers")


def labels_below(count: int) -> Elements:
    return Elements("B", "?bBhHiIlLqQnN", "ints", count, "label")


def classes_below(count: int, one: str) -> Elements:
    return Elements("i", "?bBhHiIlLqQnN", "ints", count, one)


def has_format(view: memoryview[Any], form: str) -> bool:
    return view.format in (form, "@" + form, "=" + form, BYTE_ORDER + form)


def check_rows(what: str, shape: Any, per_row: int, declared: Any = ()) -> None:
    """With two or more dimensions, the first one counts rows, if they are not one: others would be scrambled rows."""
    if declared and len(shape) > 1:
        numbers = math.prod(declared)
        if declared not in (tuple(shape), tuple(shape[1:])) and tuple(shape[1:]) != (numbers,):
            sizes = ", ".join(map(str, declared))
            expected = f"(n, {sizes}) or (n, {numbers})" if per_row else f"({sizes}) or ({numbers},)"
            raise ValueError(f"{what} must have the shape {expected}, got the shape {tuple(shape)}")
        return
    if per_row and len(shape) > 1 and shape[0] and per_row not in (math.prod(shape[1:]), math.prod(shape)):
        raise ValueError(f"{what} must have {per_row} numbers in each row, got the shape {shape}")


def check_classes(found: Any, elements: Elements) -> None:
    for i, number in enumerate(found):
        if not 0 <= number < elements.classes:
            raise ValueError(f"{elements.one} {i} must be 0..{elements.classes - 1}, got {number}")


def get_buffer(thing: Any, what: str, elements: Elements, count: int = -1, per_row: int = 0) -> Any:
    """The elements, copied, as bytes or as an array; `count` of them, if given. `per_row`: those of an image."""
    view = _lent_view(thing)
    if view is not None and has_format(view, elements.format) and (view.c_contiguous or elements.convertible):
        check_rows(what, view.shape, per_row, elements.shape)
        content = view.tobytes()
        return _counted(content if elements.format == "B" else array(elements.format, content), what, elements, count)
    if not elements.convertible:
        if view is None or has_format(view, elements.format):
            raise TypeError(f"{what} must be a C-contiguous buffer of {elements.noun}, got {type(thing)!r}")
        expected = f"a buffer of {elements.noun} (format {elements.format!r})"
        raise TypeError(f"{what} must be {expected}, got format {view.format!r}")
    if not elements.classes and isinstance(thing, (bytes, bytearray)):
        raise TypeError(f"{what} must be {elements.things}, got {type(thing)!r}")
    if view is not None:
        check_rows(what, view.shape, per_row, elements.shape)
        found = _numbers_in(view, what, elements)
    else:
        shape = _shape_of(thing)
        if math.prod(shape) > LONG_SEQUENCE:
            _check_count(math.prod(shape), what, elements, count)
        found = []
        _flatten(thing, shape, what, elements, found)
        check_rows(what, shape, per_row, elements.shape)
    if elements.classes:
        check_classes(found, elements)
    converted = bytes(found) if elements.format == "B" else array(elements.format, found)
    return _counted(converted, what, elements, count)


def get_tensor(thing: Any, name: str, shape: tuple[int, ...]) -> array[float]:
    view = _lent_view(thing)
    numbers: array[float] = get_buffer(thing, name, REALS, -1 if view is not None else math.prod(shape))
    got = view.shape if view is not None else _shape_of(thing)
    if got != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {got}")
    return numbers


def _counted(numbers: Any, what: str, elements: Elements, count: int) -> Any:
    _check_count(len(numbers), what, elements, count)
    return numbers


def _check_count(got: int, what: str, elements: Elements, count: int) -> None:
    if count not in (-1, got):
        raise ValueError(f"{what} must hold {count} {elements.noun}, got {got}")


def _lent_view(thing: Any) -> memoryview[Any] | None:
    """The memory of a buffer, or of the array that another library lends."""
    try:
        return memoryview(thing)
    except (TypeError, ValueError, BufferError):
        pass
    try:
        return memoryview(thing.__array__())
    except (AttributeError, TypeError, BufferError):
        return None


def _numbers_in(view: memoryview[Any], what: str, elements: Elements) -> list[Any]:
    form = view.format
    order, letter = (form[0], form[1:]) if form[0] in "@=<>!" else ("@", form)
    if len(letter) != 1 or letter not in elements.convertible or struct.calcsize(order + letter) != view.itemsize:
        raise TypeError(f"{what} must be {elements.things}, got a buffer with format {form!r}")
    return [*struct.unpack(f"{order}{view.nbytes // view.itemsize}{letter}", view.tobytes())]


def _length(thing: Any) -> int:
    """The length of a sequence of numbers, or -1."""
    if isinstance(thing, (str, bytes, bytearray, dict)) or not hasattr(type(thing), "__getitem__"):
        return -1
    try:
        return len(thing)
    except Exception:
        return -1


def _shape_of(thing: Any) -> tuple[int, ...]:
    """The shape that the first elements have, of as many dimensions as a buffer may."""
    shape: tuple[int, ...] = ()
    while len(shape) < 64 and (length := _length(thing)) >= 0:
        shape += (length,)
        if not length:
            break
        thing = thing[0]
    return shape


def _flatten(thing: Any, shape: tuple[int, ...], what: str, elements: Elements, found: list[Any]) -> None:
    if not shape:
        found.append(_one_number(thing, what, elements, len(found)))
        return
    length = _length(thing)
    if length < 0:
        raise TypeError(f"{what} must be {elements.things}, got {type(thing)!r}")
    if length != shape[0]:
        raise ValueError(f"{what} must have rows of one length, got {shape[0]} and {length}")
    for i in range(length):
        _flatten(thing[i], shape[1:], what, elements, found)


def _one_number(thing: Any, what: str, elements: Elements, i: int) -> Any:
    try:
        if elements.classes:
            return operator.index(thing)
        return math.ldexp(thing, 0)  # takes what C's double takes: no strings, unlike float()
    except TypeError:
        raise TypeError(f"{what} must be {elements.things}, got {type(thing)!r}") from None
    except OverflowError:
        raise ValueError(f"{what}: number {i} is an int beyond the range of float64") from None


def new_room(images: int, count: int) -> memoryview[Any]:
    """Memory for one output of all images."""
    return memoryview(bytearray(8 * images * count)).cast("d", [images, count])


def take_room(out: Any, name: str, elements: int) -> memoryview[Any]:
    """The caller's memory for one output."""
    try:
        view = memoryview(out)
    except (TypeError, ValueError, BufferError):
        view = memoryview(b"")
    if view.readonly or not view.c_contiguous:
        raise TypeError(f"out for {name!r} must be a writable C-contiguous buffer of float64, got {type(out)!r}")
    if not has_format(view, "d"):
        raise TypeError(f"out for {name!r} must be a buffer of float64 (format 'd'), got format {view.format!r}")
    if view.nbytes != 8 * elements:
        raise ValueError(f"out for {name!r} must hold {elements} float64, got {view.nbytes // 8}")
    return view
