"""What each training example draws anew: by how much its image is moved, and then its noise.

Noise is behind the targets in value[]. Predictions and evaluations have the means of its distributions.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.declared import NOISE, NOISES, SHIFT
    from codegen.backends.python.runtime.state import _draw, _inference, _value

_inference[NOISE : NOISE + sum([row[0] for row in NOISES])] = [row[-1] for row in NOISES for _ in range(row[0])]


def _drawn(inputs: Any, source: random.Random) -> Any:
    """The inputs of an example, moved; draws its noise."""
    inputs = _moved(inputs, source) if SHIFT is not None else inputs
    _draw_noise(source)
    return inputs


def _moved(image: Any, source: random.Random) -> Any:
    """The image, moved at random. What leaves the frame is lost, what enters is 0."""
    assert SHIFT is not None
    reach, height, width = SHIFT
    down, right = source.randrange(2 * reach + 1) - reach, source.randrange(2 * reach + 1) - reach
    moved = bytearray(len(image))
    for row in range(len(image) // width):
        if 0 <= row % height - down < height:
            first = (row - down) * width
            line = bytes(max(right, 0)) + bytes(image[first + max(-right, 0) : first + width - max(right, 0)])
            moved[row * width : row * width + len(line)] = line
    return moved


def _draw_noise(source: random.Random) -> None:
    """The noise of one example, in the order of declaration."""
    first = NOISE
    for count, low, high, deviation, limit, probability, _ in NOISES:
        for at in range(first, first + count):
            if probability >= 0.0:
                _value[at] = high if source.random() < probability else 0.0
            else:
                _value[at] = _draw(source, low, high, deviation, limit)
        first += count
