"""The model: its state, the four calls of a training step, inference, whole epochs.

Row tensors hold one row for each input. A row is left out where its input is 0 and all its weights are finite: then
every term that it adds is 0. An input is active otherwise. A row of the gradient is dirty when a backward pass has
added to it since the last zero_grad().
"""

from __future__ import annotations

import math
import os
import platform
import random
import sys
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.arguments import (
        TARGET_FORMAT,
        check_options,
        get_buffer,
        get_images,
        get_labels,
        get_view,
        images_text,
        one_image,
        parse_int,
        parse_rate,
        parse_seed,
    )
    from codegen.backends.python.runtime.declared import (
        DENSE_SPANS,
        DESCRIPTION,
        DIGEST,
        INITIAL,
        INITIAL_DATA,
        INPUT_COUNT,
        INPUT_PIXELS,
        INPUT_SCALE,
        LEARNING_RATE,
        LOSS,
        LOWERING,
        OUTPUTS,
        PREDICTION,
        ROW_TENSORS,
        SEED,
        TARGET,
        TARGET_COUNT,
        TARGET_LABEL,
        TENSORS,
        VALUE_COUNT,
        VERSION,
        Active,
        compute_evaluation,
        compute_gradients,
        compute_loss,
        compute_outputs,
        compute_prediction,
    )

__version__ = VERSION
__all__ = [
    *("backward", "data", "evaluate", "forward", "grad", "grad_dict", "info", "load_state_dict", "outputs", "predict"),
    *("predict_batch", "probabilities", "reset", "state_dict", "train", "update", "zero_grad"),
]

PROGRESS_IMAGES = 1000
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
_nonfinite_rows: set[int] = set()  # inputs in whose rows there is a weight that is inf or nan
_dirty: set[int] = set()
_reporting = False  # a progress callback runs

_order = [0] * PARAMETER_COUNT  # parameter -> its place in _data and _grad
for _name, _numbers in NUMBERS.items():
    for _number, _place in zip(_numbers, PLACES[_name]):  # noqa: B905
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


def _run_forward(targets: Any, inputs: Any) -> float:
    global _active, _forward_done
    _active = _set_inputs(_value, inputs)
    _set_targets(_value, targets)
    compute_loss(_data, _value, _active)
    _forward_done = True
    return _value[LOSS]


def _run_update(rate: float, size: float, check_finite: bool = False) -> tuple[str, str] | None:
    """With check_finite, a step that makes a parameter inf or nan is taken back; returns its name and value."""
    spans = DENSE_SPANS + [
        (offset + row * n, offset + row * n + n) for offset, n, _, _ in ROW_TENSORS for row in _dirty
    ]
    before = [_data[first:end] for first, end in spans] if check_finite else []
    _descend(_data, _grad, spans, rate, size)
    if check_finite and not math.isfinite(sum([sum(_data[first:end]) for first, end in spans])):
        found = _find_not_finite()  # nothing where only the sum is too large
        if found is not None:
            for (first, end), old in zip(spans, before):  # noqa: B905
                _data[first:end] = old
            return found
    for offset, length, _, _ in ROW_TENSORS:
        for row in _dirty:
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


def _descend(data: list[float], grad: list[float], spans: list[tuple[int, int]], rate: float, size: float) -> None:
    for first, end in spans:
        for i in range(first, end):
            data[i] -= rate * grad[i] / size


def _argmax(places: list[int], value: list[float]) -> int:
    """The index of the largest element, the first one on a tie; a nan is never larger."""
    best = 0
    for i, place in enumerate(places):
        if value[place] > value[places[best]]:
            best = i
    return best


def _classify(inputs: Any) -> int:
    compute_prediction(_data, _inference, _set_inputs(_inference, inputs))
    return _argmax(OUTPUTS[_prediction()], _inference)


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


# What the module offers


def forward(label: Any, pixels: Any, /) -> float:
    """The loss of one image, as a float. backward() then goes back from it."""
    _check_loss()
    if TARGET_LABEL:
        targets: Any = parse_int(label, "label", 0, TARGET_COUNT - 1)
    elif TARGET_COUNT:
        targets = get_buffer(label, "targets", TARGET_FORMAT, TARGET_COUNT)
    elif label is not None:
        raise TypeError("the first argument must be None: this model has no targets")
    else:
        targets = ()
    image = one_image(pixels)
    _check_free()
    return _run_forward(targets, image)


def backward() -> None:
    """Adds the gradients of the last forward() to those of the parameters.

    RuntimeError before any forward().
    """
    _check_free()
    if not _forward_done:
        raise RuntimeError("backward() needs a forward() before it")
    compute_gradients(_data, _grad, _value, _active)
    add_row_gradients(_grad, _value, _active)


def zero_grad() -> None:
    """Sets the parameters' gradients to 0."""
    _check_free()
    for first, end in DENSE_SPANS:
        _grad[first:end] = [0.0] * (end - first)
    for offset, length, _, _ in ROW_TENSORS:
        for row in _dirty:
            _grad[offset + row * length : offset + row * length + length] = [0.0] * length
    _dirty.clear()


def update(step: Any = 0, batch_size: Any = 1, *, learning_rate: Any = None) -> None:
    """data -= learning_rate * grad / batch_size for each parameter.

    The learning rate is the model's own where it is not given; `step` is for loops that count, and changes nothing.
    """
    parse_int(step, "step", 0, sys.maxsize)
    size = parse_int(batch_size, "batch_size", 1, sys.maxsize)
    rate = parse_rate(learning_rate)
    _check_free()
    _run_update(rate, float(size))


def predict(pixels: Any, /) -> int:
    """The most likely class of one image, as an int."""
    _prediction()
    return _classify(one_image(pixels))


def outputs(pixels: Any, /) -> dict[str, tuple[float, ...]]:
    """Every named output for one image: {name: tuple of floats}."""
    compute_outputs(_data, _inference, _set_inputs(_inference, one_image(pixels)))
    return {name: tuple([_inference[place] for place in places]) for name, places in OUTPUTS.items()}


def probabilities(pixels: Any, /) -> tuple[float, ...]:
    """The probability of each class for one image, as a tuple of floats."""
    if "probabilities" not in OUTPUTS:
        raise RuntimeError("this model declares no output named 'probabilities'")
    return outputs(pixels)["probabilities"]


def predict_batch(images: Any, *, threads: Any = 1, progress: Any = None) -> bytes:
    """The most likely class of each of many images, one byte each. There is one thread, whatever `threads` says.

    progress(done, total, None) is called now and then.
    """
    check_options(threads, progress)
    if len(OUTPUTS[_prediction()]) > 256:
        raise RuntimeError(f"predict_batch() returns bytes, but this model has {len(OUTPUTS[_prediction()])} classes")
    classes = bytearray()
    found = get_images(images)
    for image in found:
        classes.append(_classify(image))
        if progress and (len(classes) % PROGRESS_IMAGES == 0 or len(classes) == len(found)):
            _report(progress, len(classes), len(found), None)
    return bytes(classes)


def evaluate(images: Any, labels: Any, *, threads: Any = 1, progress: Any = None) -> tuple[float, float | None]:
    """(mean loss, accuracy) over many images; the accuracy is None where the model has no classes.

    There is one thread, whatever `threads` says. progress(done, total, mean loss so far) is called now and then.
    """
    _check_loss()
    check_options(threads, progress)
    found = get_images(images)
    targets = get_labels(labels, len(found))
    classifies = TARGET_LABEL and PREDICTION is not None and len(OUTPUTS[PREDICTION]) == TARGET_COUNT
    total, right = 0.0, 0
    for i, image in enumerate(found):
        active = _set_inputs(_inference, image)
        _set_targets(_inference, targets[i])
        compute_evaluation(_data, _inference, active)
        total += _inference[LOSS]
        right += classifies and _argmax(OUTPUTS[_prediction()], _inference) == targets[i]
        if progress and ((i + 1) % PROGRESS_IMAGES == 0 or i + 1 == len(found)):
            _report(progress, i + 1, len(found), total / (i + 1))
    return total / len(found), right / len(found) if classifies else None


def train(
    images: Any,
    labels: Any,
    *,
    batch_size: Any = 1,
    learning_rate: Any = None,
    epochs: Any = 1,
    seed: Any = None,
    threads: Any = 1,
    progress: Any = None,
    check_finite: Any = False,
) -> list[float]:
    """Whole epochs of gradient descent; returns the mean loss of each epoch, as a list.

    For each batch: zero_grad, forward and backward for each image, update by the batch's true size. With a seed the
    images are shuffled before each epoch, as random.Random(seed).shuffle does; without, they stay in order.
    progress(images done, images in all epochs, mean loss of the epoch so far) is called now and then. There is one
    thread, whatever `threads` says. With check_finite, FloatingPointError stops it before a step that makes a parameter
    inf or nan; the parameters are those before the step, the gradients its own.
    """
    _check_loss()
    check_options(threads, progress)
    size = parse_int(batch_size, "batch_size", 1, sys.maxsize)
    rate = parse_rate(learning_rate)
    rounds = parse_int(epochs, "epochs", 0, 1000000000)
    start = parse_seed(seed)
    shuffler = None if start is None else random.Random(start)
    if type(check_finite) is not bool:
        raise TypeError(f"check_finite must be True or False, not {type(check_finite)!r}")
    found = get_images(images)
    targets = get_labels(labels, len(found))
    _check_free()
    if check_finite and (broken := _find_not_finite()) is not None:
        raise FloatingPointError(f"train() did not start: {' is '.join(broken)}")
    count, order, losses = len(found), list(range(len(found))), []
    for epoch in range(rounds):
        if shuffler is not None:
            shuffler.shuffle(order)
        total = 0.0
        for first in range(0, count, size):
            batch = order[first : first + size]
            zero_grad()
            for i in batch:
                total += _run_forward(targets[i], found[i])
                backward()
            broken = _run_update(rate, float(len(batch)), check_finite)
            if broken is not None:
                step = epoch * -(-count // size) + first // size + 1
                where = f"epoch {epoch + 1}, " * (rounds > 1) + images_text(batch, shuffler is not None)
                raise FloatingPointError(
                    f"train() stopped before step {step} ({where}), which makes {' '.join(broken)}"
                )
            done = first + len(batch)
            if progress and (done // PROGRESS_IMAGES > first // PROGRESS_IMAGES or done == count):
                _report(progress, epoch * count + done, rounds * count, total / done)
        losses.append(total / count)
    return losses


def _views(numbers: list[float]) -> dict[str, memoryview[Any]]:
    found: dict[str, memoryview[Any]] = {}
    for name, shape in SHAPES.items():
        flat = memoryview(array("d", [numbers[place] for place in PLACES[name]]))
        found[name] = (
            flat if len(shape) == 1 else flat.cast("B").cast("d", shape)
        )  # PyPy cannot read a cast to one axis
    return found


def state_dict() -> dict[str, memoryview[Any]]:
    """{name: memoryview of float64} with PyTorch's names and shapes: a copy, to keep or to load."""
    return _views(_data)


def grad_dict() -> dict[str, memoryview[Any]]:
    """{name: memoryview of the gradients}, a copy as of state_dict()."""
    return _views(_grad)


def load_state_dict(mapping: Any, /) -> None:
    """Copies all parameters from {name: buffer of float64}. All names and shapes must fit, or nothing is changed."""
    if not hasattr(mapping, "keys"):
        raise TypeError(f"load_state_dict() takes a mapping of names to buffers, not {type(mapping)!r}")
    for key in mapping.keys():  # noqa: SIM118
        if key not in PLACES:
            raise ValueError(f"{key!r} is not a parameter of this model")
    loaded: dict[str, array[float]] = {}
    for name, shape in SHAPES.items():
        try:
            item = mapping[name]
        except KeyError:
            raise ValueError(f"the parameter {name!r} is missing") from None
        view = get_view(item, name, "d", "a buffer of float64")
        if view.shape != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {view.shape}")
        loaded[name] = array("d", view.tobytes())
    _check_free()
    for name, numbers in loaded.items():
        for place, number in zip(PLACES[name], numbers):  # noqa: B905
            _data[place] = number
    _nonfinite_rows.clear()
    _find_nonfinite_rows()


def data(i: Any, /) -> float:
    """Parameter i, in the order of the model's parameters()."""
    return _data[_order[parse_int(i, "the number of a parameter", 0, PARAMETER_COUNT - 1)]]


def grad(i: Any, /) -> float:
    """The gradient of parameter i."""
    return _grad[_order[parse_int(i, "the number of a parameter", 0, PARAMETER_COUNT - 1)]]


def _draw_weights(seed: int) -> None:
    """Weights as the declared distributions and the seed give them, drawn in the order of the parameters."""
    if INITIAL is None:
        _data[:] = INITIAL_DATA
        return
    draw = random.Random(seed)
    bounds = {number: INITIAL[name] for name, numbers in NUMBERS.items() for number in numbers}
    for number, place in enumerate(_order):
        low, high = bounds[number]
        _data[place] = low if low == high else draw.uniform(low, high)


def reset(seed: Any = None) -> None:
    """Fresh weights, the same as those of the micrograd model made after random.seed(seed); gradients become 0."""
    global _forward_done
    given = parse_seed(seed)
    if given is not None and INITIAL is None:
        raise ValueError("this model declares no initial distribution: reset() takes no seed")
    _check_free()
    _draw_weights(int.from_bytes(os.urandom(8), "little") if given is None else given)
    _grad[:] = [0.0] * PARAMETER_COUNT
    _dirty.clear()
    _nonfinite_rows.clear()
    _find_nonfinite_rows()
    _forward_done = False


def info() -> dict[str, Any]:
    """What this module is: architecture, types, and the Python that runs it."""
    return {
        "architecture": DESCRIPTION,
        "version": VERSION,
        "dtype": "float64",
        "mode": "strict",
        "fma": False,
        "reorder": False,
        "simd": "none",
        "compiler": f"{platform.python_implementation()} {platform.python_version()}",
        "lowering": LOWERING,
        "parameters": PARAMETER_COUNT,
        "inputs": INPUT_COUNT,
        "input_type": "uint8" if INPUT_PIXELS else "float64",
        "targets": TARGET_COUNT,
        "target_type": "label" if TARGET_LABEL else "float64" if TARGET_COUNT else "none",
        "outputs": {name: len(places) for name, places in OUTPUTS.items()},
        "learning_rate": LEARNING_RATE,
        "seed": SEED,
        "digest": DIGEST,
    }


reset(None if INITIAL is None else SEED)
