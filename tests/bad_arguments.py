"""What each parameter of each function refuses: a table by the kind of parameter, for tests/test_bad_input.py."""

from __future__ import annotations

import ctypes
import fractions
import math
import re
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX = sys.maxsize
OTHER_ENDIAN = ">" if sys.byteorder == "little" else "<"
NOUNS = {"B": "unsigned bytes", "d": "float64", "f": "float32"}


@dataclass(frozen=True)
class Bad:
    """A value that is refused, with the error and what its message must say: what came and what was expected."""

    make: Callable[[], Any]
    error: type[Exception]
    message: str  # a regular expression


class Index:
    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Raising:
    """Whatever it is asked for, it raises."""

    def __index__(self) -> int:
        raise ZeroDivisionError("asked for an index")

    def __float__(self) -> float:
        raise ZeroDivisionError("asked for a float")


class NoInt:
    def __index__(self) -> Any:
        return "1"


def released(content: Any) -> memoryview:
    view = memoryview(content)
    view.release()
    return view


def in_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def of_type(value: object) -> str:
    return re.escape(repr(type(value)))


def ints(what: str, low: int, high: int) -> Iterator[Bad]:
    for wrong in (1.0, 1.5, "1", b"\x01", None, [], [1], 1j, object(), np.float64(1), np.array([1, 2]), NoInt()):
        yield Bad(lambda x=wrong: x, TypeError, f"{what} must be an int, not {of_type(wrong)}")
    yield Bad(lambda: fractions.Fraction(1), TypeError, f"{what} must be an int, not <class 'fractions.Fraction'>")
    yield Bad(Raising, ZeroDivisionError, "asked for an index")
    for far in (low - 1, -1, -(2**31), -(2**63), -(2**64), high + 1, 2**31, 2**32 + 3, 2**63, 2**64, 2**64 + 3, 10**40):
        if not low <= far <= high:
            yield Bad(lambda x=far: x, ValueError, f"{what} must be .*{low}.* got {far}$")
            yield Bad(lambda x=far: Index(x), ValueError, f"{what} must be .*{low}.* got {far}$")
    for far in (np.int64(low - 1), np.int8(low - 1)):
        yield Bad(lambda x=far: x, ValueError, f"{what} must be .* got {low - 1}$")
    yield Bad(lambda: 10**5000, ValueError, f"{what} must be .* got an int of very many digits$")
    yield Bad(lambda: -(10**5000), ValueError, f"{what} must be .* got an int of very many digits$")


def optional_ints(what: str, low: int, high: int) -> Iterator[Bad]:
    return (bad for bad in ints(what, low, high) if bad.make() is not None)


def seeds() -> Iterator[Bad]:
    for wrong in (1.0, 1.5, "1", b"\x01", [], 1j, object(), np.float64(1), np.array([1, 2]), NoInt()):
        yield Bad(lambda x=wrong: x, TypeError, f"seed must be an int or None, not {of_type(wrong)}")
    yield Bad(Raising, ZeroDivisionError, "asked for an index")
    for far in (-1, -(2**63), -(2**64), 2**64, 2**64 + 3, 10**40):
        for wrap in (int, Index):
            yield Bad(lambda x=far, w=wrap: w(x), ValueError, rf"seed must be 0\.\.2\*\*64-1, got {far}$")
    yield Bad(lambda: np.int64(-1), ValueError, r"seed must be 0\.\.2\*\*64-1, got -1$")
    for far in (10**5000, -(10**5000)):
        yield Bad(lambda x=far: x, ValueError, r"seed must be 0\.\.2\*\*64-1, got an int of very many digits$")


def rates(dtype: str) -> Iterator[Bad]:
    for wrong in ("0.1", b"0.1", bytearray(b"1"), {}, {0: 0.1}, 1j, object(), np.array(1j)):
        yield Bad(lambda x=wrong: x, TypeError, f"learning_rate must be a number, not {of_type(wrong)}")
    yield Bad(Raising, ZeroDivisionError, "asked for")
    for far in ("nan", "inf", "-inf"):
        for wrap in (float, np.float64, np.float32):
            yield Bad(lambda x=far, w=wrap: w(x), ValueError, f"learning_rate must be finite, got {far}$")
    for far in (10**400, -(10**400), 10**5000):
        yield Bad(lambda x=far: x, ValueError, "learning_rate must be finite, got an int beyond the range of float64")
    if dtype == "f":
        for far in (1e39, -1e300):
            text = re.escape(f"learning_rate must be finite in float32, got {far}")
            yield Bad(lambda x=far: x, ValueError, text)


def rates_of_steps(dtype: str, steps: int) -> Iterator[Bad]:
    """Sequences and schedules, for the last of so many steps or for all of them."""
    for count in (0, 1, steps - 1):
        refused = rf"learning_rate (must hold one rate for each of the {steps} steps, got|holds) {count}"
        for make in (list, tuple, np.array, lambda x: array("d", x), lambda x: memoryview(array("d", x))):
            yield Bad(lambda n=count, m=make: m([0.1] * n), ValueError, refused)
    last = steps - 1
    wrongs = ("0.1", None, [], {}, 1j)
    for wrong in wrongs:
        refused = rf"learning_rate\[{last}\] must be a number, not {of_type(wrong)}"
        yield Bad(lambda x=wrong: [0.1] * last + [x], TypeError, refused)
        refused = rf"learning_rate\({last}\) must be a number, not {of_type(wrong)}"
        yield Bad(lambda x=wrong: lambda step: x if step == last else 0.1, TypeError, refused)
    for far in ("nan", "inf", "-inf"):
        refused = rf"learning_rate\[{last}\] must be finite, got {far}$"
        yield Bad(lambda x=far: np.array([0.1] * last + [float(x)]), ValueError, refused)
        refused = rf"learning_rate\({last}\) must be finite, got {far}$"
        yield Bad(lambda x=far: lambda step: float(x) if step == last else 0.1, ValueError, refused)
    yield Bad(lambda: lambda: 0.1, TypeError, "takes 0 positional arguments but 1 was given")
    yield Bad(lambda: lambda step: 1 / 0, ZeroDivisionError, "division")
    if dtype == "f":
        refused = rf"learning_rate\[{last}\] must be finite in float32, got 1e\+39"
        yield Bad(lambda: [0.1] * last + [1e39], ValueError, refused)


def callables() -> Iterator[Bad]:
    for wrong in (0, 3, "print", b"", [], {}, 1.0, object(), True):
        yield Bad(lambda x=wrong: x, TypeError, f"progress must be callable, not {of_type(wrong)}")


def bools() -> Iterator[Bad]:
    for wrong in (0, 1, None, "", "no", 1.0, np.True_, [], Raising()):
        yield Bad(lambda x=wrong: x, TypeError, f"check_finite must be True or False, not {of_type(wrong)}")


LABELS = "labels"  # a kind of its own: bytes that are converted from any ints


def format_of(kind: str) -> str:
    return "B" if kind == LABELS else kind


def noun(kind: str) -> str:
    return NOUNS[format_of(kind)]


def no_buffers(what: str, kind: str) -> Iterator[Bad]:
    """Things that are no C-contiguous buffer of that format, whatever their size."""
    expected = f"{what} must be a C-contiguous buffer of {NOUNS[kind]}, got "
    for wrong in (None, 0, 784, 1.5, 1j, "x" * 784, [], [0] * 784, (0, 1), {}, set(), object(), print, range(9)):
        yield Bad(lambda x=wrong: x, TypeError, expected + of_type(wrong))
    yield Bad(lambda: released(bytes(8)), TypeError, expected + "<class 'memoryview'>")
    yield Bad(lambda: array, TypeError, expected + "<class 'type'>")


def no_numbers(what: str, kind: str, count: int) -> Iterator[Bad]:
    """Things that cannot be converted to numbers."""
    things = "ints" if kind == LABELS else "real numbers"
    expected = f"{what} must be {things}, got "
    for wrong in (None, 1j, "x" * count, {}, set(), object(), print):
        yield Bad(lambda x=wrong: x, TypeError, expected + of_type(wrong))
        yield Bad(lambda x=wrong: [x] * count, TypeError, expected + of_type(wrong) if wrong != {} else expected)
        yield Bad(lambda x=wrong: [[0, x]], TypeError, expected + of_type(wrong))
    yield Bad(lambda: ["0"] * count, TypeError, expected + "<class 'str'>")
    yield Bad(lambda: [b"0"] * count, TypeError, expected + "<class 'bytes'>")
    yield Bad(lambda: [0, [0]], TypeError, expected + "<class 'list'>")
    yield Bad(lambda: [[0], 0], TypeError, expected + "<class 'int'>")
    yield Bad(lambda: [[0, 0], [0]], ValueError, f"{what} must have rows of one length, got 2 and 1$")
    yield Bad(in_itself, TypeError, expected + "<class 'list'>")
    yield Bad(lambda: [Raising()] * count, ZeroDivisionError, "asked for")
    yield Bad(lambda: released(bytes(8)), TypeError, expected + "<class 'memoryview'>")
    yield Bad(lambda: array, TypeError, expected + "<class 'type'>")
    for other in ("S1", "U1", "c16", "V8", "B,B", "g", *(() if kind != LABELS else "efd")):
        yield Bad(lambda o=other: np.zeros(count, o), TypeError, expected + "a buffer with format '")
    yield Bad(lambda: memoryview(bytes(count)).cast("c"), TypeError, expected + "a buffer with format 'c'")
    if kind == LABELS:
        yield Bad(lambda: [0.0] * count, TypeError, expected + "<class 'float'>")
    else:
        yield Bad(lambda: [10**400] * count, ValueError, f"{what}: number 0 is an int beyond the range of float64")
        for wrap in (bytes, bytearray):  # of what?
            yield Bad(lambda w=wrap: w(8 * count), TypeError, expected + re.escape(repr(wrap)))


def buffers(what: str, kind: str, shape: tuple[int, ...]) -> Iterator[Bad]:
    """All that is no buffer of that shape and format, and cannot be converted to one."""
    if kind != "B":
        yield from no_numbers(what, kind, int(np.prod(shape)))
        return
    yield from no_buffers(what, kind)
    count = int(np.prod(shape))
    good = np.zeros(count, kind)
    expected = f"{what} must be a C-contiguous buffer of {NOUNS[kind]}, got "
    if count > 1:
        yield Bad(lambda: np.zeros(2 * count, kind)[::2], TypeError, expected + ".*ndarray")
        yield Bad(lambda: good[::-1], TypeError, expected + ".*ndarray")
        yield Bad(lambda: memoryview(np.zeros(2 * count, kind))[::2], TypeError, expected + "<class 'memoryview'>")
        yield Bad(lambda: memoryview(good)[::-1], TypeError, expected + "<class 'memoryview'>")
        yield Bad(lambda: np.broadcast_to(np.zeros(1, kind), count), TypeError, expected + ".*ndarray")
    for axis in range(2, 8):
        if count % axis == 0 and count > axis:
            by = (axis, count // axis)
            yield Bad(lambda b=by: np.zeros(b, kind, "F"), TypeError, expected + ".*ndarray")
            yield Bad(lambda b=by: np.zeros(b[::-1], kind).T, TypeError, expected + ".*ndarray")
            yield Bad(lambda b=by: np.zeros((b[0], 2 * b[1]), kind)[:, ::2], TypeError, expected + ".*ndarray")
    letter = rf"{what} must be a buffer of {NOUNS[kind]} \(format '{kind}'\), got format '"
    for other in "?bBhHiIlLqQefdg":
        if np.dtype(other) != good.dtype:
            yield Bad(lambda o=other: np.zeros(count, o), TypeError, letter)
    for other in (f"{OTHER_ENDIAN}f8", f"{OTHER_ENDIAN}f4", f"{OTHER_ENDIAN}i4", "S1", "U1", "c16", "V8", "B,B"):
        yield Bad(lambda o=other: np.zeros(count, o), TypeError, letter)
    yield Bad(lambda: memoryview(bytes(count)).cast("c"), TypeError, letter + "c'")
    yield Bad(lambda: memoryview(bytes(count)).cast("b"), TypeError, letter + "b'")
    yield Bad(lambda: array("h", bytes(2 * count)), TypeError, letter + "h'")
    yield Bad(lambda: (ctypes.c_short * count)(), TypeError, letter)
    yield Bad(lambda: (ctypes.c_char * count)(), TypeError, letter)


def sized(what: str, kind: str, count: int) -> Iterator[Bad]:
    """One image, one target, the labels: exactly so many elements."""
    yield from buffers(what, kind, (count,))
    form = format_of(kind)
    sizes = {0, 1, count - 1, count + 1, 2 * count, 2**16 + count} - {count}
    for size in sorted(size for size in sizes if size >= 0):
        text = f"{what} must hold {count} {noun(kind)}, got {size}$"
        yield Bad(lambda n=size: np.zeros(n, form), ValueError, text)
        yield Bad(lambda n=size: array(form, bytes(n * np.dtype(form).itemsize)), ValueError, text)
        if form == "B":
            yield Bad(lambda n=size: bytes(n), ValueError, text)
            yield Bad(lambda n=size: bytearray(n), ValueError, text)
            yield Bad(lambda n=size: memoryview(bytes(n)), ValueError, text)
        if kind != "B" and size < 100:
            for other in "bhlLq?":
                yield Bad(lambda n=size, o=other: np.zeros(n, o), ValueError, text)
            yield Bad(lambda n=size: [0] * n, ValueError, text)
            yield Bad(lambda n=size: (0,) * n, ValueError, text)
            yield Bad(lambda n=size: range(n) if n < 2 else [0] * n, ValueError, text)
    if count > 1:
        yield Bad(lambda: np.zeros((), form), ValueError, f"{what} must hold {count} {noun(kind)}, got 1$")
        if kind != "B":
            yield Bad(lambda: 0, ValueError, f"{what} must hold {count} {noun(kind)}, got 1$")


def multiples(what: str, kind: str, count: int) -> Iterator[Bad]:
    """Many images: some multiple of so many elements, but not none."""
    yield from buffers(what, kind, (3, count))
    for size in sorted({0, count - 1, count + 1, 3 * count - 1} - {count, 3 * count, 2 * count}):
        if size == 0 or size % count:
            text = f"{what} must hold a multiple of {count} {NOUNS[kind]}, and at least one {what[:-1]}, got {size}$"
            yield Bad(lambda n=size: np.zeros(n, kind), ValueError, text)
            yield Bad(lambda n=size: array(kind, bytes(n * np.dtype(kind).itemsize)), ValueError, text)
    yield from rows(what, kind, count)


def rows(what: str, kind: str, count: int) -> Iterator[Bad]:
    """Arrays whose rows are not images, although they may hold as many elements."""
    form = format_of(kind)
    for shape in ((count, 3), (3, count + 1), (count + 1, count + 2), (1, count, 2), (3, 1, 3 * count)):
        if count in (np.prod(shape[1:]), np.prod(shape)):
            continue
        text = re.escape(f"{what} must have {count} numbers in each row, got the shape {shape}")
        yield Bad(lambda s=shape: np.zeros(s, form), ValueError, text)
        if kind != "B":
            yield Bad(lambda s=shape: np.zeros(s, "h"), ValueError, text)
            yield Bad(lambda s=shape: np.zeros(s, form, "F"), ValueError, text)
            yield Bad(lambda s=shape: np.zeros(s, "b").tolist(), ValueError, text)


def label_buffers(classes: int, count: int) -> Iterator[Bad]:
    yield from sized("labels", LABELS, count)
    yield from rows("labels", LABELS, 1)
    for wrong in (-1, classes, 256, 257, -(2**31)):
        text = rf"label 0 must be 0\.\.{classes - 1}, got {wrong}$"
        for wrap in (lambda x: x, list, tuple, lambda x: np.array(x), lambda x: np.array(x, ">i4")):
            yield Bad(lambda x=wrong, w=wrap: w([x] * count), ValueError, text)
    for at, wrong in ((0, classes), (count - 1, 255), (count // 2, classes + 1)):
        labels = bytearray(count)
        labels[at] = wrong
        text = rf"label {at} must be 0\.\.{classes - 1}, got {wrong}$"
        for wrap in (bytes, bytearray, memoryview, lambda x: np.frombuffer(x, np.uint8)):
            yield Bad(lambda x=labels, w=wrap: w(x), ValueError, text)


def nones(what: str, absent: str = "targets") -> Iterator[Bad]:
    for wrong in (0, 3, False, b"", b"\x00\x00\x00", "", [], array("d", [1.0]), np.zeros(3), object()):
        yield Bad(lambda x=wrong: x, TypeError, f"{what} must be None: this model has no {absent}")


def paths() -> Iterator[Bad]:
    """What is no path, or no path of a file that could be there."""
    expected = "expected str, bytes or os.PathLike object, not "
    for wrong in (None, 0, 3, -1, True, 1.5, 1j, [], ["w"], (), {}, set(), object(), print, bytearray(b"w"), range(2)):
        yield Bad(lambda x=wrong: x, TypeError, expected + type(wrong).__name__)
    yield Bad(lambda: memoryview(b"w"), TypeError, expected + "memoryview")
    for wrong in ("w\0", b"w\0"):
        yield Bad(lambda x=wrong: x, ValueError, "embedded null")
    for nowhere in ("/nowhere/w", b"/nowhere/w", ""):
        yield Bad(lambda x=nowhere: x, FileNotFoundError, "No such file or directory")
    yield Bad(lambda: "w" * 5000, OSError, "too long")


def mappings(
    shapes: dict[str, tuple[int, ...]], kind: str, function: str = "load_state_dict", what: str = "a parameter"
) -> Iterator[Bad]:
    """What is no mapping of the names to numbers of these shapes."""

    def good(**other: Any) -> dict[str, Any]:
        return {name: np.zeros(shape, kind) for name, shape in shapes.items()} | other

    def keys(thing: dict[Any, Any]) -> dict[Any, Any]:
        return good() | thing

    refused = rf"{function}\(\) takes a mapping of names to buffers, not "
    for wrong in (None, 3, 1.5, "w", b"w", bytearray(8), [], [("w", 1)], (), range(3), memoryview(b"ab"), np.zeros(3)):
        yield Bad(lambda x=wrong: x, TypeError, refused + of_type(wrong))
    for name in shapes:
        yield Bad(
            lambda n=name: {k: v for k, v in good().items() if k != n}, ValueError, f"parameter '{name}' is missing"
        )
    for key in ("nonsense", "", "ß", "\ud800", "w\0", 1, None, b"w", (), 1.5):
        yield Bad(lambda k=key: keys({k: 1}), ValueError, re.escape(repr(key)) + f" is not {what} of this model")
    if not shapes:
        return
    last, shape = list(shapes.items())[-1]
    for bad in no_numbers(last, kind, math.prod(shape)):
        yield Bad(lambda b=bad: good(**{last: b.make()}), bad.error, bad.message)
    rows = np.zeros(shape).tolist()
    if len(shape) > 1:  # as many numbers, but flat
        text = re.escape(f"{last} must have the shape {shape}, got ({math.prod(shape)},)")
        yield Bad(lambda: good(**{last: [0.0] * math.prod(shape)}), ValueError, text)
    if shape:
        text = f"{last} must hold {math.prod(shape)} {NOUNS[kind]}, got "
        yield Bad(lambda: good(**{last: rows + rows[:1]}), ValueError, text)
        yield Bad(lambda: good(**{last: rows[1:]}), ValueError, text)
        yield Bad(lambda: good(**{last: 0.5}), ValueError, text if math.prod(shape) != 1 else f"{last} must have the")
    longer, shorter = tuple(n + 1 for n in shape) or (1,), tuple(n - 1 for n in shape) or (2,)
    for other in ((*shape, 1), (1, *shape), longer, shorter, (0,)):
        text = re.escape(f"{last} must have the shape {shape}, got {other}")
        yield Bad(lambda s=other: good(**{last: np.zeros(s, kind)}), ValueError, text)


def room(name: str, count: int, kind: str) -> Iterator[Bad]:
    """What is no memory for an output of all images."""
    text = f"out for '{name}' must be a writable C-contiguous buffer of {NOUNS[kind]}, got "
    for wrong in (3, 1.5, "x" * count, [0.0] * count, object(), bytes(8), memoryview(bytes(8))):
        yield Bad(lambda x=wrong: x, TypeError, text + of_type(wrong))
    yield Bad(lambda: np.zeros(2 * count + 2, kind)[::2], TypeError, text + ".*ndarray")
    yield Bad(lambda: released(bytearray(8)), TypeError, text + "<class 'memoryview'>")
    for other in "bBhHiIlLqQefd":
        if np.dtype(other) != np.dtype(kind):
            yield Bad(lambda o=other: np.zeros(count, o), TypeError, rf"out for '{name}' must be .*got format '")
    for size in (0, count - 1, count + 1, 2 * count):
        if size != count:
            text = f"out for '{name}' must hold {count} {NOUNS[kind]}, got {size}$"
            yield Bad(lambda n=size: np.zeros(n, kind), ValueError, text)


def rooms(sizes: dict[str, int], kind: str) -> Iterator[Bad]:
    """What is no mapping of outputs to memory for them."""
    for wrong in (
        3,
        1.5,
        "out",
        b"out",
        [],
        [1],
        (),
        np.zeros(8),
        np.float32(1),
        memoryview(bytearray(8)),
        object(),
        range(3),
    ):
        yield Bad(lambda x=wrong: x, TypeError, f"out must map names of outputs to buffers, not {of_type(wrong)}")
    for key in ("nonsense", "", "\ud800", 1, b"w", ()):
        yield Bad(lambda k=key: {k: np.zeros(8, kind)}, ValueError, "out must name outputs of this model, of .*, got ")
    for name, count in list(sizes.items())[:1]:
        for each in room(name, count, kind):
            yield Bad(lambda e=each, n=name: {n: e.make()}, each.error, each.message)
