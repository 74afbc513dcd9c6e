"""Program and trained weights -> a Program that only predicts: the weights are constants, and nothing trains.

Example input, with the weights w = 2.0, b = -3.0, an input x and a target y:

    out = (w * x + b).relu()      loss = (out - y) ** 2

becomes

    out = (2.0 * x + -3.0).relu()

What a caller can observe keeps its bits. A frozen model may store its weights in one or two bytes each, rounded to the
nearest numbers that a narrow type holds: of a tensor with the row 1.0, -0.3, 0.001, int8 stores the scale 0x1.02050p-7,
which is 1/127 rounded up to 17 bits, and the integers 127, -38, 0. The weights are integer * scale, -0.2992 for -38;
the program computes with these.

A scale has 17 bits, so that its product with an integer is exact in float32 and in float64: the weights are the same
numbers wherever they are widened. Rounding them again changes nothing, so a Program needs the weights, and no scales.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codegen.passes.mistakes import expect_program
from codegen.program import Pixels, Program
from micrograd.engine import Value

Weights = npt.NDArray[np.float64]

FLOATS = {"float16": (11, -24, 65504.0), "bfloat16": (8, -133, float.fromhex("0x1.fep127"))}  # bits, smallest, largest
SCALE_BITS, SMALLEST_SCALE, LARGEST_INT = 17, -149, 127


def frozen_program(program: Program, weights: Mapping[str, npt.ArrayLike]) -> Program:
    """The Program with these weights, without loss, metrics and targets.

    Raises ValueError as set_weights() does, and for an output that depends on a target.
    """
    expect_program(program, "freeze")
    targets = set(map(id, program.target_values))
    if targets and not targets.isdisjoint(_reachable(chain.from_iterable(program.outputs.values()))):
        name = next(name for name, values in program.outputs.items() if not targets.isdisjoint(_reachable(values)))
        raise ValueError(f"the output {name!r} depends on a target, but a prediction has none")
    set_weights(program, weights, program.storage)
    for noise in program.noises:
        noise.rest()
    inputs = replace(program.inputs, shift=0) if isinstance(program.inputs, Pixels) else program.inputs
    return replace(
        program,
        inputs=inputs,
        targets=None,
        loss=None,
        order=None,
        initial=None,
        metrics={},
        input_gradients=False,
        update=None,
        noise=(),
        constants=[program.constants, program.noise_values],
    )


def _reachable(values: Iterable[Value]) -> set[int]:
    """The identities of these Values and of everything that they are computed from."""
    found: set[int] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if id(value) not in found:
            found.add(id(value))
            stack.extend(value._prev)
    return found


def weights_of(program: Program, data: Sequence[float] | None = None) -> dict[str, npt.NDArray[np.float64]]:
    """The parameters by name, as set_weights() takes them; or these numbers instead, one a parameter, in `order`."""
    numbers = np.array([value.data for value in program.parameter_values] if data is None else data)
    return {tensor.name: numbers[list(tensor.numbers)].reshape(tensor.shape) for tensor in program.tensors}


def _numbers(name: str, array: npt.ArrayLike, dtype: str) -> npt.NDArray[np.floating[Any]]:
    """An array of a parameter's weights in a Program's dtype. Raises TypeError for what is no array of real numbers."""
    given = np.asarray(array)
    if given.dtype.kind not in "fiu":
        raise TypeError(f"the weights {name!r} must be an array of numbers, not of {given.dtype}")
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, which is refused
        return given.astype(dtype)


def set_weights(program: Program, weights: Mapping[str, npt.ArrayLike], storage: str | None = None) -> None:
    """Gives the Program's parameters these data, all or nothing, rounded to its dtype.

    `weights` maps the parameters' names to buffers of their shapes, as state_dict() does. Raises ValueError for
    weights that do not fit the Program or are not finite. With `storage` they are rounded to what that holds.
    """
    if not isinstance(weights, Mapping):
        raise TypeError(f"the weights must map names to arrays, not be a {type(weights).__name__}")
    expected = {tensor.name for tensor in program.tensors}
    if set(weights) != expected:
        raise ValueError(f"the weights are named {sorted(weights, key=repr)}, but the parameters {sorted(expected)}")
    dtype = program.dtype if storage is None else "float64"  # which are rounded once
    arrays = {name: _numbers(name, array, dtype) for name, array in weights.items()}
    for tensor in program.tensors:
        array = arrays[tensor.name]
        if array.shape != tensor.shape:
            raise ValueError(f"the weights {tensor.name!r} have the shape {array.shape}, expected {tensor.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"the weights {tensor.name!r} are not all finite")
        if storage is not None:
            arrays[tensor.name] = rounded(storage, array.astype(np.float64))
            if not np.isfinite(arrays[tensor.name].astype(program.dtype)).all():
                raise ValueError(f"the weights {tensor.name!r} are too large for {storage}: {np.abs(array).max()}")
    for tensor in program.tensors:
        for number, weight in zip(tensor.numbers, arrays[tensor.name].ravel().tolist(), strict=True):
            program.parameter_values[number].data = weight


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
