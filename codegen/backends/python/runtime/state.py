"""The model's state, and the passes that change it: forward, the gradients of row tensors, a step.

Row tensors hold one row for each input. A row is skipped if its input is 0 and all its weights are finite: then
every term that it adds is 0. An input is active otherwise. A row of the gradient is dirty when a backward pass has
added to it since the last zero_grad().
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.declared import (
        DENSE_SPANS,
        INPUT_COUNT,
        INPUT_PIXELS,
        INPUT_SCALE,
        LABEL_COUNT,
        LABEL_FIRST,
        LOSS,
        NOISES,
        OUTPUTS,
        PREDICTION,
        ROW_TENSORS,
        SHIFT,
        TARGET,
        TARGET_COUNT,
        TARGET_LABEL,
        TENSORS,
        THRESHOLD,
        VALUE_COUNT,
        Active,
        compute_loss,
        compute_prediction,
    )
    from codegen.backends.python.runtime.noise import _drawn
    from codegen.backends.python.runtime.optimizer import _prepared, _restore_steps, _saved_steps, _take_step

SCALED = [byte * INPUT_SCALE for byte in range(256)]


def walk(first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """first + sum(index * stride) for each element of a tensor, in C order."""
    found = [first]
    for axis, stride in enumerate(strides):
        found = [place + i * stride for place in found for i in range(shape[axis])]
    return found


# Of each tensor's elements, in C order: where they stand in data[] and grad[], and their numbers in the model.
SHAPES = {name: shape for name, shape, _, _, _ in TENSORS}
PLACES = {name: walk(first, shape, strides) for name, shape, first, strides, _ in TENSORS}
NUMBERS = {name: n if isinstance(n, list) else walk(n[0], shape, n[1]) for name, shape, _, _, n in TENSORS}
PARAMETER_COUNT = sum(map(len, PLACES.values()))

_data = [0.0] * PARAMETER_COUNT
_grad = [0.0] * PARAMETER_COUNT
_value = [0.0] * VALUE_COUNT  # of the last forward()
_inference = [0.0] * VALUE_COUNT  # of everything that must not disturb it
_active: Active = []
_forward_done = False
_backward_done = False  # whether backward() has followed it
_nonfinite_rows: set[int] = set()  # inputs in whose rows there is a weight that is inf or nan
_dirty: set[int] = set()
_random = random.Random()  # of noise, as reset() seeds it; train(seed=...) has another one
_reporting = False  # a progress callback runs

_order = [0] * PARAMETER_COUNT  # parameter -> its place in _data and _grad
for _name, _numbers in NUMBERS.items():
    for _number, _place in zip(_numbers, PLACES[_name]):
        _order[_number] = _place


def add_row_gradients(grad: list[float], value: list[float], active: Active) -> None:
    """Outer products of inputs and factors: only the rows of active inputs change, as long as 0 * factor is 0."""
    for offset, length, lanes, factor in ROW_TENSORS:
        factors = value[factor : factor + lanes]
        rows = active if math.isfinite(sum(factors)) else list(enumerate(value[:INPUT_COUNT]))
        _dirty.update([row for row, _ in rows])
        for row, x in rows:
            at = offset + length * row
            for lane in range(lanes):
                grad[at + lane] += x * factors[lane]


def _find_nonfinite_rows() -> None:
    for offset, length, _, _ in ROW_TENSORS:
        for row in range(INPUT_COUNT):
            _look_for_nonfinite(offset + row * length, length, row)


def _look_for_nonfinite(first: int, length: int, row: int) -> None:
    """A sum is finite only if all its terms are."""
    if not math.isfinite(sum(_data[first : first + length])):
        _nonfinite_rows.add(row)


def _set_inputs(value: list[float], inputs: Any) -> Active:
    """Puts an image into value[] and returns the active inputs with their values."""
    numbers = [SCALED[byte] for byte in inputs] if INPUT_PIXELS else list(inputs)
    value[:INPUT_COUNT] = numbers
    if not ROW_TENSORS:
        return []
    return [(i, x) for i, x in enumerate(numbers) if x != 0.0 or i in _nonfinite_rows]


def _set_targets(value: list[float], targets: Any) -> None:
    if TARGET_LABEL:
        value[TARGET : TARGET + TARGET_COUNT] = [0.0] * TARGET_COUNT
        value[TARGET + targets] = 1.0
    else:
        value[TARGET : TARGET + TARGET_COUNT] = list(targets)


def _draw(source: random.Random, low: float, high: float, deviation: float, limit: float) -> float:
    """Uniform, or a normal number around low, or a constant, which draws nothing."""
    z = source.normalvariate(0.0, 1.0) if deviation else 0.0
    while abs(z) > limit:
        z = source.normalvariate(0.0, 1.0)
    return low + z * deviation if low == high else source.uniform(low, high)


def _run_forward(targets: Any, inputs: Any, source: random.Random | None = None) -> float:
    global _active, _forward_done, _backward_done
    if NOISES or SHIFT:
        inputs = _drawn(inputs, _random if source is None else source)
    _active = _set_inputs(_value, inputs)
    _set_targets(_value, targets)
    compute_loss(_data, _value, _active)
    _forward_done, _backward_done = True, False
    return _value[LOSS]


def _run_update(rate: float, size: float, check_finite: bool = False) -> tuple[str, str] | None:
    """With check_finite, a step that makes a parameter inf or nan is taken back; returns its name and value."""
    number, stays = _prepared(rate, size)
    rows = _dirty if stays else range(INPUT_COUNT)
    spans = [(first, end, first) for first, end in DENSE_SPANS]
    spans += [(offset + row * n, offset + row * n + n, offset) for offset, n, _, _ in ROW_TENSORS for row in rows]
    before = [_data[first:end] for first, end, _ in spans] if check_finite else []
    steps = _saved_steps() if check_finite else None
    _take_step(spans, rate, size, number)
    if steps is not None and not math.isfinite(sum([sum(_data[first:end]) for first, end, _ in spans])):
        found = _find_not_finite()  # nothing where only the sum is too large
        if found is not None:
            for (first, end, _), old in zip(spans, before):
                _data[first:end] = old
            _restore_steps(steps)
            return found
    for offset, length, _, _ in ROW_TENSORS:
        for row in rows:
            _look_for_nonfinite(offset + row * length, length, row)
    return None


def _find_not_finite() -> tuple[str, str] | None:
    if math.isfinite(sum(_data)):
        return None
    for name, places in PLACES.items():
        for i, place in enumerate(places):
            if not math.isfinite(_data[place]):
                index: list[int] = []
                for length in reversed(SHAPES[name]):
                    i, at = divmod(i, length)
                    index.insert(0, at)
                return f"{name}{index or ''}", str(_data[place])
    return None


def _argmax(places: list[int], value: list[float]) -> int:
    """The index of the largest element, the first one on a tie; a nan is never larger."""
    best = 0
    for i, place in enumerate(places):
        if value[place] > value[places[best]]:
            best = i
    return best


def _classify(inputs: Any) -> int:
    compute_prediction(_data, _inference, _set_inputs(_inference, inputs))
    return _class_of(_inference)


def _class_of(value: list[float]) -> int:
    """The index of the prediction's largest element, or whether its one is above the threshold."""
    places = OUTPUTS[_prediction()]
    return _argmax(places, value) if THRESHOLD is None else int(value[places[0]] > THRESHOLD)


def _target_class(targets: Any) -> Any:
    """The class that is right: a label, or whether a float is above the threshold."""
    if LABEL_COUNT:
        return targets if TARGET_LABEL else list(targets[LABEL_FIRST : LABEL_FIRST + LABEL_COUNT]).index(1.0)
    return int(targets[0] > THRESHOLD)


def _prediction() -> str:
    if PREDICTION is None:
        raise RuntimeError("this model declares no prediction, as it has no classes: outputs() has its outputs")
    return PREDICTION


def _report(progress: Any, done: int, total: int, loss: float | None) -> None:
    global _reporting
    outer, _reporting = _reporting, True
    try:
        progress(done, total, loss)
    finally:
        _reporting = outer


def _check_free() -> None:
    if _reporting:
        raise RuntimeError("the model cannot be changed from inside a progress callback")


def _check_loss() -> None:
    if LOSS < 0:
        raise RuntimeError("this model has no loss: it only predicts")
