"""Decisions -> arguments for a compiled module: buffers in every form, right and wrong ones, and hostile objects.

The same decisions give equal objects each time, so that two modules can be asked the same.
"""

from __future__ import annotations

import ctypes
import math
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tools.fuzz.choices import Choices

MOST = 60_000  # numbers in one buffer
INTS = [0, 1, 2, 3, -1, 7, 12, 255, 256, 2**31 - 1, 2**31, 2**32 + 3, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.5, 1e-3, math.nan, math.inf, -math.inf, 5e-324, 1e308, -1e308, 1e-310, 3e38, 1e39]
OTHERS: list[object] = [None, True, "", "0", "\ud800", b"", [], (1,), {}, {1: 2}, ..., 1j, range(3), 10**5000]
DTYPES = ["u1", "i1", "?", "<u2", ">u2", "<f4", ">f4", "<f8", ">f8", "f2", "<i8", "c16", "S3", "u1,f8", "M8[s]", "O"]
SHAPES = [(), (0,), (1,), (2,), (5,), (12,), (3, 4), (7, 12), (2, 2), (0, 12), (1, 1, 1), (2, 3, 4), (24,), (784,)]


LONG = 2**16  # elements


class Hostile(Exception):
    """Raised by an object of ours in the middle of a call."""


ERRORS = [Hostile, TypeError, ValueError, OverflowError, KeyError, AttributeError, IndexError, BufferError, MemoryError]


class Trap:
    """Whatever Python asks of it, `act` decides: it may raise, call the module again, or give any answer."""

    def __init__(self, act: Callable[[], object], called: Callable[[], None]) -> None:
        self.act, self.called = act, called

    def __index__(self) -> int:
        return self.act()  # type: ignore[return-value]

    def __float__(self) -> float:
        return self.act()  # type: ignore[return-value]

    def __repr__(self) -> str:
        return self.act()  # type: ignore[return-value]

    def __call__(self, *arguments: object) -> object:
        self.called()
        return self.act()

    def __len__(self) -> int:
        """Not so long that who believes it asks for all memory. Python itself refuses what is longer than maxsize."""
        answer = self.act()
        is_long = isinstance(answer, int) and LONG < answer <= sys.maxsize
        return answer % LONG if is_long else answer  # type: ignore[operator, return-value]

    def __getitem__(self, key: object) -> object:
        return self.act()

    def keys(self) -> object:
        return self.act()


def plain(c: Choices) -> object:
    """Something of a type that no argument has, or of the right one and out of range."""
    kind = c.below(12)
    if kind < 4:
        return c.one_of(INTS)
    if kind < 6:
        return c.one_of(FLOATS)
    if kind < 8:
        return buffer(c)
    return c.one_of(OTHERS)


def buffer(c: Choices) -> object:
    """A buffer of any format, shape and layout; some have none to give."""
    kind = c.below(8)
    if kind == 0:
        return bytes(c.below(32))
    if kind == 1:
        return bytearray(c.below(32))
    if kind == 2:
        view = memoryview(bytearray(c.below(32)))
        view.release()
        return view
    if kind == 3:
        return array(c.one_of("bBhHiIlLqQfd"), [0] * c.below(32))
    if kind == 4:
        floats: list[Any] = [ctypes.c_double, ctypes.c_float]
        scalar = c.one_of(floats)
        return (c.one_of([scalar, scalar.__ctype_be__]) * c.below(16))()
    return strided(np.zeros(c.one_of(SHAPES), dtype=c.one_of(DTYPES)), c)


def strided(dense: np.ndarray, c: Choices) -> np.ndarray:
    """The same numbers in another layout: turned over, spread out, at an odd address, all in one place."""
    kind = c.below(7)
    if kind == 1:
        return dense.T
    if kind == 2 and dense.ndim:
        return dense[::-1].copy()[::-1]
    if kind == 3 and dense.ndim:
        spread = np.zeros((*dense.shape[:-1], 2 * dense.shape[-1]), dense.dtype)
        spread[..., ::2] = dense
        return spread[..., ::2]
    if kind == 4 and not dense.dtype.hasobject:
        memory = bytearray(dense.nbytes + 1)
        odd = np.frombuffer(memory, np.uint8)[1:].view(dense.dtype).reshape(dense.shape)
        odd[...] = dense
        return odd
    if kind == 5:
        return np.broadcast_to(dense.ravel()[:1].reshape((1,) * dense.ndim), dense.shape) if dense.size else dense
    if kind == 6:
        return np.asfortranarray(dense)
    return dense


def content(c: Choices, count: int, typecode: str) -> bytes:
    """The bytes of `count` numbers, many of them 0, some of the floats not finite."""
    numbers = _numbers(c.below(16), typecode)
    return numbers[: count * (len(numbers) // MOST)]


@cache
def _numbers(kind: int, typecode: str) -> bytes:
    """MOST numbers of a kind."""
    draw = np.random.default_rng(kind)
    zero = draw.random(MOST) < (0.8 if kind & 1 else 0.2)
    if typecode == "B":
        pixels = np.full(MOST, 255) if kind == 1 else np.where(zero, 0, draw.integers(0, 256, MOST))
        return (pixels * (kind > 0)).astype("u1").tobytes()
    numbers = np.where(zero, 0.0, draw.uniform(-1, 1, MOST)) * (kind > 0)
    if kind > 8:
        numbers = np.where(draw.random(MOST) < 0.05, draw.choice(FLOATS, MOST), numbers)
    with np.errstate(over="ignore"):
        return numbers.astype(typecode).tobytes()


def wrapped(c: Choices, numbers: bytes, typecode: str) -> object:
    """A right buffer around these numbers, of one of the types that are documented, or one like it."""
    kinds: Sequence[Callable[[], object]] = [
        lambda: numbers if typecode == "B" else array(typecode, numbers),
        lambda: memoryview(bytearray(numbers)).cast(typecode),  # type: ignore[call-overload]
        lambda: np.frombuffer(numbers, typecode),
        lambda: bytearray(numbers) if typecode == "B" else np.frombuffer(bytearray(numbers), typecode),
        lambda: strided(np.frombuffer(numbers, typecode), c),
        lambda: np.frombuffer(b"odd" + numbers, np.uint8)[3:].view(typecode),
        lambda: numbers[:-1],
        lambda: numbers + b"\0",
    ]
    return kinds[c.below(16) % len(kinds) if c.chance(96) else 0]()
