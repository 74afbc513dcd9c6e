"""Steps by the rules of micrograd.optim that the module was generated with.

Rules keep numbers for each parameter, in the places of data[], and count their steps. A step computes once what does
not depend on the parameter.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.arguments import MAX_STEPS, parse_state
    from codegen.backends.python.runtime.buffers import get_tensor
    from codegen.backends.python.runtime.declared import (
        NORM_CUTS,
        RULES,
        STATE,
        STATE_SLOTS,
        TENSOR_RULES,
        prepare_step,
        rows_stay,
    )
    from codegen.backends.python.runtime.state import PARAMETER_COUNT, PLACES, SHAPES, _check_free, _data, _grad
    from codegen.backends.python.runtime.weights import StateDict, shaped

_state = [[0.0] * PARAMETER_COUNT for _ in range(STATE_SLOTS)]
_steps = 0  # since the start or the last reset()


def _prepared(rate: float, size: float) -> tuple[list[float], bool]:
    """What the next step computes once, and whether rows whose gradients are all 0 stay as they are."""
    norm = _norm(size) if NORM_CUTS is not None else 0.0
    number = prepare_step(float(min(_steps + 1, MAX_STEPS)), rate, norm)
    return number, rows_stay(number)


def _take_step(spans: list[tuple[int, int, int]], rate: float, size: float, number: list[float]) -> None:
    """Updates data[first:end] for each (first, end, the tensor's offset)."""
    global _steps
    _steps = min(_steps + 1, MAX_STEPS)
    for first, end, tensor in spans:
        RULES[TENSOR_RULES[tensor]](_data, _grad, _state, first, end, size, number)


def _norm(size: float) -> float:
    """That of all gradients, of which no bit depends on their order: see global_norm() in micrograd/optim.py."""
    assert NORM_CUTS is not None
    largest = 0.0
    for g in _grad:
        x = abs(g / size)
        largest = largest if largest >= x or largest != largest else x
    if not 0.0 < largest < math.inf:
        return largest
    exponent = max(math.frexp(largest)[1], -1000)
    scale = math.ldexp(1.0, -exponent)
    high, low = NORM_CUTS
    total = rest = 0.0
    for g in _grad:
        x = g / size * scale
        square = x * x
        part = (square + high) - high
        total += part
        rest += ((square - part) + low) - low
    root = math.sqrt(total + rest)
    return math.ldexp(root, exponent) if exponent + math.frexp(root)[1] <= 1024 else math.inf


def _saved_steps() -> tuple[int, list[list[float]]]:
    return _steps, [slot[:] for slot in _state]


def _restore_steps(saved: tuple[int, list[list[float]]]) -> None:
    global _steps
    _steps = saved[0]
    for slot, old in zip(_state, saved[1]):
        slot[:] = old


def _clear_steps() -> None:
    global _steps
    _steps = 0
    for tensor, slot, first in STATE.values():
        for place in PLACES[tensor]:
            _state[slot][place] = first


def optimizer_state() -> dict[str, memoryview[Any]]:
    """What the optimizer keeps, a copy: 'step', the number of steps, and 'NAME.KIND' for what rules keep."""
    found = StateDict({"step": shaped(array("q", [_steps]), ())})
    for name, (tensor, slot, _) in STATE.items():
        found[name] = shaped(array("d", [_state[slot][place] for place in PLACES[tensor]]), SHAPES[tensor])
    return found


def load_optimizer_state(mapping: Any, /) -> None:
    """Copies the optimizer's state from {name: numbers}. All names and shapes must fit, or nothing is changed."""
    global _steps
    steps = parse_state(mapping, STATE)
    loaded: dict[str, array[float]] = {}
    for name, (tensor, _, _) in STATE.items():
        loaded[name] = get_tensor(mapping[name], name, SHAPES[tensor])
    _check_free()
    _steps = steps
    for name, numbers in loaded.items():
        tensor, slot, _ = STATE[name]
        for place, number in zip(PLACES[tensor], numbers):
            _state[slot][place] = number
