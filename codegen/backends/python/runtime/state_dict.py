"""What state_dict() and grad_dict() return: memoryviews, which pickle and deep-copy in a dict of this kind alone."""

from __future__ import annotations

from array import array
from typing import Any


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
