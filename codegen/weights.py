"""Weight files: safetensors, read with NumPy alone.

Building a wheel reads one, and must need no more than NumPy and a C compiler on any platform. The format
(https://huggingface.co/docs/safetensors) is eight bytes with the length of a JSON header, little-endian; the header,
which maps each name to its dtype, shape and place; then the numbers. Training reads and writes such files with the
safetensors package, in micrograd/commands/checkpoint.py, and modules with their own C, in csrc/weights.h.
"""

import io
import json
import os
import stat
from collections.abc import Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from micrograd.matching import CHECKSUM, DTYPES, EXPECTED_DTYPES, MAX_HEADER, difference, widened

MAX_DEPTH = 127  # brackets within brackets, likewise


def read_weights(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[np.floating[Any]]]:
    """The tensors of a file: float64 as it is stored, all others as float32.

    Raises OSError if it cannot be read and ValueError for anything that is not a whole safetensors file of floats, or
    whose checksum, if it has one, is not that of its bytes.
    """
    if not isinstance(path, str | os.PathLike):  # a number would be an open file
        raise TypeError(f"the path of a weight file must be a string or a path, not {type(path).__name__}")
    if stat.S_ISCHR(mode := os.stat(path).st_mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise ValueError(f"{path}: not a file but a device or a pipe, which may have no end")
    content = Path(path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or not 2 <= length <= min(len(content) - 8, MAX_HEADER):
        raise ValueError(f"{path}: not a safetensors file: {len(content)} bytes with a header of {length}")
    try:
        header = json.loads(content[8 : 8 + length].decode(), object_pairs_hook=_members)
        _check_json(header)
        metadata = _metadata(header.pop("__metadata__", None))
        entries = {str(name): _entry(entry) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path}: not a safetensors file: its header is damaged ({error!r})") from error
    if wrong := difference(io.BytesIO(content), metadata.get(CHECKSUM)):
        raise ValueError(f"{path}: {wrong}")
    numbers = memoryview(content)[8 + length :]
    place = 0
    tensors = {}
    for name, (dtype, shape, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != place or end - begin != prod(shape) * np.dtype(DTYPES[dtype]).itemsize or end > len(numbers):
            raise ValueError(f"{path}: the tensor {name!r} is not where the header says")
        try:
            tensors[name] = widened(dtype, numbers[begin:end]).reshape(shape)
        except ValueError as error:  # an empty tensor of more, or longer, dimensions than an array can have
            raise ValueError(f"{path}: the tensor {name!r} has the shape {shape}: {error}") from error
        place = end
    if place != len(numbers):
        raise ValueError(f"{path}: {len(numbers) - place} bytes too many")
    return tensors


def write_weights(path: str | os.PathLike[str], tensors: Mapping[str, npt.ArrayLike]) -> None:
    """Writes a file of float64 tensors, which read_weights() reads."""
    header, content = {}, b""
    for name, tensor in tensors.items():
        numbers = np.asarray(tensor, dtype="<f8")
        begin, content = len(content), content + numbers.tobytes()
        header[name] = {"dtype": "F64", "shape": numbers.shape, "data_offsets": (begin, len(content))}
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + content)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError for a repeated name, which the format forbids."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"a name that stands there twice, among {[name for name, _ in pairs]}")
    return members


def _check_json(value: object, depth: int = MAX_DEPTH) -> None:
    """Raises ValueError or OverflowError for what Python reads as JSON and the format's own reader does not.

    That is NaN, numbers beyond all floats, halves of surrogate pairs and more brackets within brackets.
    """
    if isinstance(value, dict | list):
        if not depth:
            raise ValueError(f"more than {MAX_DEPTH} brackets within brackets")
        for member in value:
            _check_json(member, depth - 1)
        if isinstance(value, dict):
            _check_json(list(value.values()), depth)
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, int | float) and not isfinite(value):
        raise ValueError(f"{value} is no number of JSON")


def _metadata(metadata: object) -> dict[str, str]:
    """The metadata, texts by their names. Raises ValueError for anything else."""
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError(f"__metadata__ must be an object of texts, got {metadata!r}")
    return metadata


def _entry(entry: dict[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, begin and end of a tensor. Raises one of the errors that read_weights() expects."""
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"dtype {entry['dtype']!r}, expected {EXPECTED_DTYPES}")
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if any(type(number) is not int or number < 0 for number in (*shape, begin, end)):
        raise ValueError(f"a shape or offset that is not a natural number: {shape}, {begin}, {end}")
    return entry["dtype"], shape, begin, end
