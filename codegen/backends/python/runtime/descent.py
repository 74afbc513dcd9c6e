"""Steps of plain gradient descent. With rules, optimizer.py stands here."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.arguments import MAX_STEPS, parse_state
    from codegen.backends.python.runtime.state import _check_free, _data, _grad
    from codegen.backends.python.runtime.weights import StateDict, shaped

_steps = 0  # since the start or the last reset()


def _prepared(rate: float, size: float) -> tuple[list[float], bool]:
    return [], math.copysign(1.0, rate) > 0  # -0.0 - rate * 0.0 is 0.0 otherwise


def _take_step(spans: list[tuple[int, int, int]], rate: float, size: float, number: list[float]) -> None:
    global _steps
    _steps = min(_steps + 1, MAX_STEPS)
    for first, end, _ in spans:
        for i in range(first, end):
            _data[i] -= rate * _grad[i] / size


def _saved_steps() -> int:
    return _steps


def _restore_steps(saved: int) -> None:
    global _steps
    _steps = saved


def _clear_steps() -> None:
    _restore_steps(0)


def optimizer_state() -> dict[str, memoryview[Any]]:
    """What the optimizer keeps, a copy: 'step', the number of steps."""
    return StateDict({"step": shaped(array("q", [_steps]), ())})


def load_optimizer_state(mapping: Any, /) -> None:
    """Takes {'step': the number of steps}."""
    steps = parse_state(mapping, ())
    _check_free()
    _restore_steps(steps)
