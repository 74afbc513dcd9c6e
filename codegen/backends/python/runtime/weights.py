"""Parameters as what state_dict() and grad_dict() return: memoryviews, which pickle and deep-copy in a dict of this
kind alone. And in a safetensors file: a JSON header with its length before it, then the numbers, little-endian."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.model import load_state_dict, state_dict
    from codegen.backends.python.runtime.state import PARAMETER_COUNT

MAX_HEADER = 1 << 24


class StateDict(dict[str, Any]):
    """A copy has numbers of its own."""

    def __reduce__(self) -> tuple[Any, ...]:
        views = {name: memoryview(buffer) for name, buffer in self.items()}
        return restore_state, ({name: (array(v.format, v.tobytes()), v.shape) for name, v in views.items()},)


def restore_state(copies: dict[str, tuple[array[Any], tuple[int, ...]]]) -> StateDict:
    return StateDict({name: shaped(numbers, shape) for name, (numbers, shape) in copies.items()})


def shaped(numbers: array[Any], shape: tuple[int, ...]) -> memoryview[Any]:
    flat = memoryview(numbers)
    # PyPy cannot read a cast to one axis.
    return flat if len(shape) == 1 else flat.cast("B").cast(numbers.typecode, shape)  # type: ignore[arg-type]


def save_weights(path: Any, /) -> None:
    """Writes all parameters to a safetensors file. An existing one is replaced when the new one is whole."""
    name, header, numbers, begin = os.fsdecode(path), {}, b"", 0
    name = os.path.realpath(name) if os.path.islink(name) else name  # a link stays one
    if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
        raise ValueError(f"{name} is not a file")
    for tensor, view in state_dict().items():
        end = begin + view.nbytes
        header[tensor] = {"dtype": "F64", "shape": view.shape, "data_offsets": (begin, end)}
        flat = array("d", view.tobytes())
        if sys.byteorder == "big":
            flat.byteswap()
        numbers, begin = numbers + flat.tobytes(), end
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    temporary = f"{name}.{os.urandom(8).hex()}.tmp"
    file = open(temporary, "xb")
    try:
        with file:
            file.write(len(text).to_bytes(8, "little") + text + numbers)
            file.flush()
            os.fsync(file.fileno())
        if os.path.isfile(name):
            shutil.copymode(name, temporary)
        os.replace(temporary, name)
    except BaseException:
        os.unlink(temporary)
        raise


def load_weights(path: Any, /) -> None:
    """Copies all parameters from a safetensors file of floats of 64, 32 or 16 bits."""
    name = os.fsdecode(path)
    if os.path.exists(name) and not os.path.isfile(name):
        raise ValueError(f"{name} is not a file")
    with open(name, "rb") as file:
        content = file.read(8 + MAX_HEADER + 8 * PARAMETER_COUNT + 1)
    try:
        tensors = _parsed(content)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{name} is not a whole safetensors file: {error}") from None
    load_state_dict(tensors)


def _parsed(content: bytes) -> dict[str, Any]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, MAX_HEADER):
        raise ValueError(f"{len(content)} bytes with a header of {length}")
    header = json.loads(content[8 : 8 + length].decode())
    header.pop("__metadata__", None)
    found, place, numbers = {}, 0, content[8 + length :]
    entries = [(*entry["data_offsets"], name, entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()]
    for begin, end, name, dtype, shape in sorted(entries):
        if dtype not in ("F64", "F32", "F16", "BF16"):
            raise ValueError(f"{name!r} has the dtype {dtype!r}, expected F64, F32, F16 or BF16")
        if begin != place or not begin <= end <= len(numbers):
            raise ValueError(f"{name!r} is not where the header says")
        flat = _widened(dtype, numbers[begin:end])
        if len(flat) != math.prod(shape):
            raise ValueError(f"{name!r} has {len(flat)} numbers, but the shape {shape}")
        found[name], place = shaped(array("d", flat), shape), end
    if place != len(numbers):
        raise ValueError(f"{len(numbers)} bytes of numbers, expected {place}")
    return found


def _widened(dtype: str, stored: bytes) -> array[float]:
    """The numbers of a tensor. Those of two bytes are float16, or the upper halves of floats."""
    if dtype == "F16":
        if len(stored) % 2:
            raise ValueError(f"{len(stored)} bytes for numbers of two")
        return array("d", [number for (number,) in struct.iter_unpack("<e", stored)])
    flat: array[Any] = array({"F64": "d", "F32": "f", "BF16": "H"}[dtype], stored)
    if sys.byteorder == "big":
        flat.byteswap()
    return flat if dtype != "BF16" else array("f", array("I", [half << 16 for half in flat]).tobytes())
