"""What backends share: tensor layouts, which kernels make a function, text in comments, the hand-written C."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from codegen.ir.loops import Kernel, statements
from codegen.kinds import Inputs, Label, Pixels, Targets
from codegen.program import Program, Tensor
from codegen.reroll.groups import Ints
from codegen.reroll.layout import TensorPlace
from micrograd.initial import Distribution, Normal
from micrograd.noise import Bernoulli, Noise, Randomness, mean

MAX_STATEMENTS = 100  # in a function: compilers are super-linear in its length


def csrc() -> Path:
    """The folder of the hand-written C: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "csrc", package.parent / "csrc"):
        if (folder / "module.h").is_file():
            return folder
    raise FileNotFoundError(f"the C sources of codegen are neither in {package / 'csrc'} nor beside {package}")


def comment_text(text: str) -> str:
    """A description without the characters that could end a comment."""
    return " " + re.sub(r"[^A-Za-z0-9_ ,.;:()-]", "", text) if text else ""


def drawn_from(distribution: Distribution) -> tuple[float, float, float, float]:
    """low and high, deviation and limit. A normal distribution has its mean as low, a uniform one no deviation."""
    if isinstance(distribution, Normal):
        mean = float(distribution.mean)
        return mean, mean, float(distribution.deviation), min(float(distribution.limit), sys.float_info.max)
    return float(distribution[0]), float(distribution[1]), 0.0, 0.0


class NoiseRow(NamedTuple):
    """Fields of struct noise in csrc/model.h. `size` is how many numbers are drawn."""

    size: int
    low: float
    high: float
    deviation: float
    limit: float
    probability: float
    mean: float


def noise_rows(noise: Sequence[Noise]) -> list[NoiseRow]:
    return [_noise_row(len(one.values), one.distribution) for one in noise]


def _noise_row(count: int, given: Randomness) -> NoiseRow:
    if isinstance(given, Bernoulli):
        return NoiseRow(count, 0.0, given.value, 0.0, 0.0, given.probability, mean(given))
    return NoiseRow(count, *drawn_from(given), -1.0, mean(given))


def input_noun(inputs: Inputs) -> str:
    """What messages call one example: an image, or a row of numbers."""
    return "image" if isinstance(inputs, Pixels) else "row"


def targets_noun(targets: Targets) -> str:
    return "labels" if isinstance(targets, Label) else "targets"


def walk(shape: tuple[int, ...], strides: Sequence[int]) -> Ints:
    """sum(index * stride) for each element of a tensor, in C order."""
    total = np.zeros(shape, dtype=np.int64)
    for axis, stride in enumerate(strides):
        total += (np.arange(shape[axis]) * stride).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return total.ravel()


def indices(place: TensorPlace) -> Ints:
    """The index in data[] of each element of a tensor, in C order."""
    return place.offset + walk(place.tensor.shape, place.strides)


def weights_text(
    program: Program, tensors: Iterable[TensorPlace], count: int, literal: Callable[[float], str]
) -> list[str]:
    """The present data of the parameters, in the order of data[], padding included."""
    data = ["0"] * count
    for place in tensors:
        for number, index in zip(place.tensor.numbers, indices(place).tolist(), strict=True):
            data[index] = literal(program.parameter_values[number].data)
    return data


def number_strides(tensor: Tensor) -> tuple[int, tuple[int, ...]] | None:
    """Parameter numbers as first + sum(index * stride), or None. Strides nest: a number determines its indices."""
    numbers = np.array(tensor.numbers, dtype=np.int64).reshape(tensor.shape)
    origin = (0,) * numbers.ndim
    strides = []
    for axis in range(numbers.ndim):
        neighbour = tuple(int(a == axis) for a in range(numbers.ndim))
        strides.append(int(numbers[neighbour] - numbers[origin]) if tensor.shape[axis] > 1 else 0)
    first = int(numbers[origin])
    if (first + walk(tensor.shape, strides) != numbers.ravel()).any():
        return None
    reach = 0
    for stride, length in sorted((s, n) for s, n in zip(strides, tensor.shape, strict=True) if n > 1):
        if stride <= reach:
            return None
        reach += stride * (length - 1)
    return first, tuple(strides)


def declared_layout(program: Program) -> tuple[list[TensorPlace], Ints]:
    """Tensors in C order, one after the other, and the place of each parameter."""
    tensors: list[TensorPlace] = []
    places = np.zeros(len(program.parameter_values), dtype=np.int64)
    offset = 0
    for tensor in program.tensors:
        strides = tuple(int(np.prod(tensor.shape[axis + 1 :])) for axis in range(len(tensor.shape)))
        tensors.append(TensorPlace(tensor, offset, strides, len(tensor.numbers)))
        places[list(tensor.numbers)] = offset + np.arange(len(tensor.numbers))
        offset += len(tensor.numbers)
    return tensors, places


def group_name(first: int, last: int) -> str:
    """The name of a function of some kernels, by the numbers of the first and the last one."""
    return f"group_{first}" if first == last else f"groups_{first}_to_{last}"


def together(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """Consecutive kernels that share a function: they belong to the same passes and phase, and it stays short."""
    found: list[Kernel] = []
    count = 0
    for kernel in kernels:
        differs = found and (kernel.passes, kernel.phase) != (found[0].passes, found[0].phase)
        if differs or count >= MAX_STATEMENTS:
            yield found
            found, count = [], 0
        found.append(kernel)
        count += sum(1 for nest in kernel.nests for _ in statements(nest))
    if found:
        yield found
