"""Weights -> the nearest numbers that a narrow type holds, which a frozen model stores in one or two bytes each.

Example: of a tensor with the row 1.0, -0.3, 0.001, int8 stores the scale 0x1.02050p-7, which is 1/127 rounded up to 17
bits, and the integers 127, -38, 0. The weights are integer * scale, -0.2992 for -38; the program computes with these.

A scale has 17 bits, so that its product with an integer is exact in float32 and in float64: the weights are the same
numbers wherever they are widened. Rounding them again changes nothing, so a Program needs the weights, and no scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Weights = npt.NDArray[np.float64]

FLOATS = {"float16": (11, -24, 65504.0), "bfloat16": (8, -133, float.fromhex("0x1.fep127"))}  # bits, smallest, largest
SCALE_BITS, SMALLEST_SCALE, LARGEST_INT = 17, -149, 127


class Narrow(NamedTuple):
    """A tensor as it is stored: the bits or integers, and a scale for each row, the elements of its first axis."""

    numbers: npt.NDArray[Any]
    scales: npt.NDArray[np.float32]  # none but of int8


def rounded(storage: str, weights: Weights) -> Weights:
    """The nearest numbers of a type, ties to even. Those beyond its range become infinite."""
    if storage == "int8":
        integers, scales = _quantised(weights)
        return (integers * scales[:, None]).reshape(weights.shape)
    bits, smallest, largest = FLOATS[storage]
    found = np.ldexp(*_units(weights, bits, smallest, np.rint))
    return np.asarray(found * np.where(np.abs(found) > largest, np.inf, 1.0), dtype=np.float64)


def narrow(storage: str, weights: Weights) -> Narrow:
    """How weights are stored that rounded() has returned."""
    if storage == "int8":
        integers, scales = _quantised(weights)
        return Narrow(integers.astype(np.int8).reshape(weights.shape), scales.astype(np.float32))
    if storage == "float16":
        return Narrow(weights.astype(np.float16).view(np.uint16), np.zeros(0, np.float32))
    bits = weights.astype(np.float32).view(np.uint32) >> 16
    return Narrow(bits.astype(np.uint16), np.zeros(0, np.float32))


def _units(numbers: Weights, bits: int, smallest: int, rounding: Any) -> tuple[Weights, npt.NDArray[Any]]:
    """Numbers as integers of so many bits, and the exponents of their units, none less than `smallest`."""
    exponents = np.maximum(np.frexp(numbers)[1] - bits, smallest)
    return rounding(np.ldexp(numbers, -exponents)), exponents


def _quantised(weights: Weights) -> tuple[Weights, Weights]:
    """Integers from -127 to 127, a row for each element of the first axis, and the scales of the rows."""
    rows = weights.reshape(weights.shape[0] if weights.ndim > 1 else 1, -1)
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scales = np.ldexp(*_units(largest / LARGEST_INT, SCALE_BITS, SMALLEST_SCALE, np.ceil))
    return np.rint(rows / np.where(scales == 0, 1.0, scales)[:, None]) + 0.0, scales  # + 0.0: integers have no -0
