"""What a caller passes -> plain ints, floats and strings, or an error that says what came and what was expected.

Example: of a seed `True`, an enumeration's member Seed.FIRST and 10**400 come

    TypeError: the seed must be an int, not bool        1        ValueError: the seed must be 0..2**64-1, got an int ...

A wrong type is a TypeError, a wrong value a ValueError. What comes out has none of the methods that a subclass may
override, so that generated text shows the number itself.
"""

import operator
import os
import struct
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

MAX_TEXT = 4000  # bytes of a description: a C compiler must take 4095 in a string
MAX_NAME = 1000  # characters of a name of a parameter or an output


def flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, not {shown(value)}")
    return value


def whole(what: str, value: object, end: int, bound: str) -> int:
    """An int from 0 to below `end`, or what has an __index__, but no bool. `bound` is `end` as text."""
    if _is_bool(value) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    try:
        number = int.__add__(operator.index(value), 0)
    except TypeError:  # an array of several
        raise TypeError(f"{what} must be an int, not {type(value).__name__}") from None
    if not 0 <= number < end:
        raise ValueError(f"{what} must be 0..{bound}-1, got {shown(number)}")
    return number


def number(what: str, value: object, dtype: str = "float64") -> float:
    """A finite float of a dtype, from whatever has a __float__, but no bool."""
    if isinstance(value, float):
        plain = float.__pos__(value)
    elif _is_bool(value) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{what} must be a number, not {type(value).__name__}")
    elif getattr(value, "shape", ()) != ():
        raise TypeError(f"{what} must be a number, not an array of the shape {value.shape}")  # type: ignore[attr-defined]
    else:
        try:
            plain = float.__pos__(float(int.__add__(value, 0) if isinstance(value, int) else value))  # type: ignore[arg-type]
        except OverflowError:
            raise ValueError(f"{what} must be finite, got a number beyond the range of float64") from None
    if not isfinite(plain):
        raise ValueError(f"{what} must be finite, got {plain}")
    if dtype == "float32":
        try:
            struct.pack("<f", plain)  # native floats are not checked
        except OverflowError:
            raise ValueError(f"{what} must be finite in float32, got {plain}") from None
    return plain


def text(what: str, value: object, most: int = MAX_TEXT) -> str:
    """A string of at most so many bytes of UTF-8, without NUL and without half of a surrogate pair."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {shown(value)}")
    plain = str.__str__(value)
    if "\0" in plain:
        raise ValueError(f"{what} must not hold NUL, got {shown(plain)}")
    try:
        size = len(plain.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid Unicode, got a lone surrogate in {shown(plain)}") from None
    if size > most:
        raise ValueError(f"{what} must have at most {most} bytes, got {size}")
    return plain


def name(what: str, value: object) -> str:
    plain = text(what, value, MAX_NAME)
    if not plain:
        raise ValueError(f"{what} must not be empty or hold NUL, got ''")
    return plain


def choice(what: str, value: object, choices: Sequence[str]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {shown(value)}")
    plain = str.__str__(value)
    if plain not in choices:
        raise ValueError(f"{what} must be one of {', '.join(choices)}, got {shown(plain)}")
    return plain


def folder(what: str, value: object) -> Path:
    """A path. The file system says whether there is such a folder."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{what} must be a string or a path, not {type(value).__name__}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"{what} must be a string or a path of one, not of {type(path).__name__}")
    if "\0" in path:
        raise ValueError(f"{what} must not hold NUL, got {shown(path)}")
    return Path(str.__str__(path))


def _is_bool(value: object) -> bool:
    """Whether it is True or False, NumPy's included."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", None) == "b"


def shown(value: object) -> str:
    """A value in a message: on one line of bounded length."""
    if isinstance(value, int) and value.bit_length() > 1000:
        return "an int of very many digits"
    line = repr(value)
    return line if len(line) <= 100 else f"{line[:100]}..."
