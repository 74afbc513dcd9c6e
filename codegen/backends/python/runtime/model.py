"""The functions that the module offers: the four calls of a training step, inference, whole epochs."""

from __future__ import annotations

import os
import platform
import random
import sys
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.arguments import (
        check_options,
        count_rates,
        get_batch,
        get_images,
        get_one_target,
        images_text,
        one_image,
        parse_int,
        parse_seed,
        rate_of_step,
        rates_of_steps,
    )
    from codegen.backends.python.runtime.buffers import get_tensor, new_room, take_room
    from codegen.backends.python.runtime.declared import (
        DENSE_SPANS,
        DESCRIPTION,
        DIGEST,
        HAS_CLASSES,
        INITIAL,
        INITIAL_DATA,
        INPUT_COUNT,
        INPUT_GRADIENTS,
        INPUT_NAMES,
        INPUT_TYPE,
        LEARNING_RATE,
        LOSS,
        LOWERING,
        METRICS,
        NOISES,
        OUTPUTS,
        ROW_TENSORS,
        SEED,
        SHIFT,
        TARGET_COUNT,
        TARGET_TYPE,
        VERSION,
        compute_evaluation,
        compute_gradients,
        compute_metrics,
        compute_outputs,
    )
    from codegen.backends.python.runtime.optimizer import _clear_steps
    from codegen.backends.python.runtime.state import (
        NUMBERS,
        PARAMETER_COUNT,
        PLACES,
        SHAPES,
        _active,
        _backward_done,
        _check_free,
        _check_loss,
        _class_of,
        _classify,
        _data,
        _dirty,
        _draw,
        _find_nonfinite_rows,
        _find_not_finite,
        _forward_done,
        _grad,
        _inference,
        _nonfinite_rows,
        _order,
        _prediction,
        _random,
        _report,
        _run_forward,
        _run_update,
        _set_inputs,
        _set_targets,
        _target_class,
        _value,
        add_row_gradients,
    )
    from codegen.backends.python.runtime.weights import StateDict, shaped

__version__ = VERSION
__all__ = [
    *("accumulate", "backward", "data", "evaluate", "flat_data", "flat_grad", "forward", "grad", "grad_dict", "info"),
    "input_grad",
    *("load_optimizer_state", "load_state_dict", "load_weights", "metrics", "optimizer_state", "outputs"),
    *("outputs_batch", "predict", "predict_batch", "probabilities", "probabilities_batch", "reset", "save_weights"),
    *("state_dict", "train", "update", "zero_grad"),
]

PROGRESS_IMAGES = 1000  # between two calls of a progress callback


def forward(label: Any, pixels: Any, /) -> float:
    """The loss of one image, as a float. backward() then goes back from it."""
    _check_loss()
    targets = get_one_target(label)
    image = one_image(pixels)
    _check_free()
    return _run_forward(targets, image)


def backward() -> None:
    """Adds the gradients of the last forward() to those of the parameters.

    RuntimeError before any forward().
    """
    global _backward_done
    _check_free()
    if not _forward_done:
        raise RuntimeError("backward() needs a forward() before it")
    compute_gradients(_data, _grad, _value, _active)
    add_row_gradients(_grad, _value, _active)
    _backward_done = True


def input_grad() -> Any:
    """The gradients of the loss by the inputs of the last forward(), after backward(): of this image alone.

    A tuple of floats; a dict of them by name if the inputs have names. RuntimeError before a backward().
    """
    if INPUT_GRADIENTS is None:
        raise RuntimeError("this model keeps no gradients of inputs: declare Program(input_gradients=True)")
    if not _backward_done:
        raise RuntimeError("input_grad() needs a forward() and a backward() before it")
    found = tuple([0.0 + _value[INPUT_GRADIENTS[i]] if i in INPUT_GRADIENTS else 0.0 for i in range(INPUT_COUNT)])
    return {name: found[first : first + count] for name, first, count in INPUT_NAMES} or found


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
    """data -= learning_rate * grad / batch_size for each parameter, or one step of the model's rules.

    The learning rate is the model's own where it is not given. A sequence of rates has one for each `step`, and a
    schedule is called with it; otherwise `step` changes nothing: the model counts its steps.
    """
    number = parse_int(step, "step", 0, sys.maxsize)
    size = parse_int(batch_size, "batch_size", 1, sys.maxsize)
    rate = rate_of_step(learning_rate, number)
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


def outputs_batch(
    images: Any, *, out: Any = None, threads: Any = 1, progress: Any = None
) -> dict[str, memoryview[Any]]:
    """The named outputs of many images: {name: a memoryview of a row of float64 for each image}.

    `out` maps names to writable buffers for the outputs that are wanted, which are then returned.
    """
    check_options(threads, progress)
    if out is not None and (not hasattr(out, "keys") or not hasattr(out, "__getitem__")):
        raise TypeError(f"out must map names of outputs to buffers, not {type(out)!r}")
    found = get_images(images)
    if out is None:
        rooms = {name: new_room(len(found), len(places)) for name, places in OUTPUTS.items()}
    else:
        rooms = {name: take_room(out[name], name, len(found) * len(OUTPUTS[name])) for name in OUTPUTS if name in out}
        if len(rooms) < len(out):
            raise ValueError(f"out must name outputs of this model, of {[*OUTPUTS]!r}, got {[*out.keys()]!r}")
    _fill(rooms, found, progress)
    return rooms if out is None else {name: out[name] for name in rooms}


def probabilities_batch(images: Any, *, out: Any = None, threads: Any = 1, progress: Any = None) -> Any:
    """The probabilities of the classes of many images, as a memoryview of rows of float64, or in the buffer `out`."""
    if "probabilities" not in OUTPUTS:
        raise RuntimeError("this model declares no output named 'probabilities'")
    check_options(threads, progress)
    found = get_images(images)
    count = len(OUTPUTS["probabilities"])
    room = new_room(len(found), count) if out is None else take_room(out, "probabilities", len(found) * count)
    _fill({"probabilities": room}, found, progress)
    return room if out is None else out


def _fill(rooms: dict[str, memoryview[Any]], images: Any, progress: Any) -> None:
    numbers = {name: room.cast("B").cast("d") for name, room in rooms.items()}
    for i, image in enumerate(images):
        compute_outputs(_data, _inference, _set_inputs(_inference, image))
        for name, to in numbers.items():
            for k, place in enumerate(OUTPUTS[name], i * len(OUTPUTS[name])):
                to[k] = _inference[place]
        if progress and ((i + 1) % PROGRESS_IMAGES == 0 or i + 1 == len(images)):
            _report(progress, i + 1, len(images), None)


def evaluate(images: Any, labels: Any, *, threads: Any = 1, progress: Any = None) -> tuple[float, float | None]:
    """(mean loss, accuracy) over many images; the accuracy is None where the model has no classes.

    There is one thread, whatever `threads` says. progress(done, total, mean loss so far) is called now and then.
    """
    _check_loss()
    check_options(threads, progress)
    found, targets = get_batch(images, labels)
    total, right = 0.0, 0
    for i, image in enumerate(found):
        active = _set_inputs(_inference, image)
        _set_targets(_inference, targets[i])
        compute_evaluation(_data, _inference, active)
        total += _inference[LOSS]
        right += HAS_CLASSES and _class_of(_inference) == _target_class(targets[i])
        if progress and ((i + 1) % PROGRESS_IMAGES == 0 or i + 1 == len(found)):
            _report(progress, i + 1, len(found), total / (i + 1))
    return total / len(found), right / len(found) if HAS_CLASSES else None


def accumulate(images: Any, labels: Any, *, threads: Any = 1, progress: Any = None) -> float:
    """Adds the gradients of many images to those of the parameters; returns the sum of the losses.

    There is one thread, whatever `threads` says. progress(done, total, mean loss so far) is called now and then.
    """
    global _backward_done
    _check_loss()
    check_options(threads, progress)
    found, targets = get_batch(images, labels)
    _check_free()
    total = 0.0
    for i, image in enumerate(found):
        total += _run_forward(targets[i], image)
        backward()
        _backward_done = False
        if progress and ((i + 1) % PROGRESS_IMAGES == 0 or i + 1 == len(found)):
            _report(progress, i + 1, len(found), total / (i + 1))
    return total


def metrics(images: Any, labels: Any, *, threads: Any = 1, progress: Any = None) -> dict[str, float]:
    """{name: mean} of the declared metrics over many images. progress(done, total, None) is called now and then."""
    _check_loss()
    if not METRICS:
        raise RuntimeError("this model declares no metrics")
    check_options(threads, progress)
    found, targets = get_batch(images, labels)
    totals = dict.fromkeys(METRICS, 0.0)
    for i, image in enumerate(found):
        active = _set_inputs(_inference, image)
        _set_targets(_inference, targets[i])
        compute_metrics(_data, _inference, active)
        for name, place in METRICS.items():
            totals[name] += _inference[place]
        if progress and ((i + 1) % PROGRESS_IMAGES == 0 or i + 1 == len(found)):
            _report(progress, i + 1, len(found), None)
    return {name: total / len(found) for name, total in totals.items()}


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
    inf or nan; the parameters and the optimizer's state are those before the step, the gradients its own.
    """
    global _backward_done
    _check_loss()
    check_options(threads, progress)
    size = parse_int(batch_size, "batch_size", 1, sys.maxsize)
    is_number = count_rates(learning_rate) is None and not callable(learning_rate)
    rate = rate_of_step(learning_rate, 0) if is_number else 0.0
    rounds = parse_int(epochs, "epochs", 0, 1000000000)
    start = parse_seed(seed)
    shuffler = None if start is None else random.Random(start)
    if type(check_finite) is not bool:
        raise TypeError(f"check_finite must be True or False, not {type(check_finite)!r}")
    found, targets = get_batch(images, labels)
    steps = -(-len(found) // size)
    rates = None if is_number else rates_of_steps(learning_rate, rounds * steps)
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
                total += _run_forward(targets[i], found[i], shuffler)
                backward()
            _backward_done = False
            step = epoch * steps + first // size
            broken = _run_update(rates[step] if rates else rate, float(len(batch)), check_finite)
            if broken is not None:
                where = f"epoch {epoch + 1}, " * (rounds > 1) + images_text(batch, shuffler is not None)
                raise FloatingPointError(
                    f"train() stopped before step {step + 1} ({where}), which makes {' '.join(broken)}"
                )
            done = first + len(batch)
            if progress and (done // PROGRESS_IMAGES > first // PROGRESS_IMAGES or done == count):
                _report(progress, epoch * count + done, rounds * count, total / done)
        losses.append(total / count)
    return losses


def _views(numbers: list[float]) -> dict[str, memoryview[Any]]:
    return StateDict(
        {name: shaped(array("d", [numbers[place] for place in PLACES[name]]), shape) for name, shape in SHAPES.items()}
    )


def state_dict() -> dict[str, memoryview[Any]]:
    """{name: memoryview of float64} with PyTorch's names and shapes: a copy, to keep or to load."""
    return _views(_data)


def grad_dict() -> dict[str, memoryview[Any]]:
    """{name: memoryview of the gradients}, a copy as of state_dict()."""
    return _views(_grad)


def flat_data() -> memoryview[Any]:
    """All parameters, as one memoryview of float64 with two spare numbers at the end: a copy, as of state_dict()."""
    return memoryview(array("d", [*_data, 0.0, 0.0]))


def flat_grad() -> memoryview[Any]:
    """The gradients of flat_data(), in the same places, and a copy as well."""
    return memoryview(array("d", [*_grad, 0.0, 0.0]))


def load_state_dict(mapping: Any, /) -> None:
    """Copies all parameters from {name: numbers}. All names and shapes must fit, or nothing is changed."""
    if not hasattr(mapping, "keys"):
        raise TypeError(f"load_state_dict() takes a mapping of names to buffers, not {type(mapping)!r}")
    for key in mapping.keys():
        if key not in PLACES:
            raise ValueError(f"{key!r} is not a parameter of this model")
    loaded: dict[str, array[float]] = {}
    for name, shape in SHAPES.items():
        try:
            item = mapping[name]
        except KeyError:
            raise ValueError(f"the parameter {name!r} is missing") from None
        loaded[name] = get_tensor(item, name, shape)
    _check_free()
    for name, numbers in loaded.items():
        for place, number in zip(PLACES[name], numbers):
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
    """Weights as the declared distributions and the seed give them, drawn in the order of the parameters.

    Noise is drawn next.
    """
    _random.seed(seed)
    if INITIAL is None:
        _data[:] = INITIAL_DATA
        return
    declared = {number: INITIAL[name] for name, numbers in NUMBERS.items() for number in numbers}
    for number, place in enumerate(_order):
        _data[place] = _draw(_random, *declared[number])


def reset(seed: Any = None) -> None:
    """Fresh weights, the same as those of the micrograd model made after random.seed(seed).

    Gradients and the optimizer's state become 0.
    """
    global _forward_done, _backward_done
    given = parse_seed(seed)
    if given is not None and INITIAL is None and not NOISES and SHIFT is None:
        raise ValueError("this model declares no initial distribution: reset() takes no seed")
    _check_free()
    _draw_weights(given if given is not None else SEED if INITIAL is None else int.from_bytes(os.urandom(8), "little"))
    _clear_steps()
    _grad[:] = [0.0] * PARAMETER_COUNT
    _dirty.clear()
    _nonfinite_rows.clear()
    _find_nonfinite_rows()
    _forward_done = _backward_done = False


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
        "input_type": INPUT_TYPE,
        "targets": TARGET_COUNT,
        "target_type": TARGET_TYPE,
        "noise": sum([row[0] for row in NOISES]) + (2 if SHIFT else 0),
        "outputs": {name: len(places) for name, places in OUTPUTS.items()},
        "learning_rate": LEARNING_RATE,
        "seed": SEED,
        "digest": DIGEST,
    }


reset(None if INITIAL is None else SEED)
