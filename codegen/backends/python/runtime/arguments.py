"""Checks of arguments: a wrong type is a TypeError, a wrong size or range a ValueError that says what was passed."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.buffers import (
        PIXELS,
        REALS,
        check_classes,
        get_buffer,
        labels_below,
    )
    from codegen.backends.python.runtime.declared import (
        INPUT_COUNT,
        INPUT_NOUN,
        INPUT_PARTS,
        INPUT_PIXELS,
        INPUT_SHAPE,
        LEARNING_RATE,
        TARGET_COUNT,
        TARGET_LABEL,
        TARGET_PARTS,
        TARGET_SHAPE,
        TARGETS_NOUN,
    )
    from codegen.backends.python.runtime.parts import RowCount, get_parts

INPUTS = (PIXELS if INPUT_PIXELS else REALS)._replace(shape=INPUT_SHAPE)
TARGETS = labels_below(TARGET_COUNT) if TARGET_LABEL else REALS._replace(shape=TARGET_SHAPE)
MAX_THREADS = 64
MAX_STEPS = 2**53  # rules take the number of steps as a float


def text_of(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # Python prints no int of more than 4300 digits
        return "an int of very many digits"


def parse_int(number: Any, what: str, low: int, high: int) -> int:
    try:
        result = operator.index(number)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(number)!r}") from None
    if low <= result <= high:
        return result
    got = text_of(result)
    if high == sys.maxsize:
        raise ValueError(f"{what} must be at least {low} and fit in {high.bit_length() + 1} bits, got {got}")
    raise ValueError(f"{what} must be {low}..{high}, got {got}")


def parse_state(mapping: Any, names: Iterable[str]) -> int:
    """The steps of an optimizer's state, after a check that it has 'step' and these names, and no others."""
    if not hasattr(mapping, "keys"):
        raise TypeError(f"load_optimizer_state() takes a mapping of names to buffers, not {type(mapping)!r}")
    expected = ["step", *names]
    for key in mapping.keys():
        if key not in expected:
            raise ValueError(f"{key!r} is not in the optimizer's state of this model")
    for name in expected:
        if name not in mapping:
            raise ValueError(f"the state {name!r} is missing")
    step = mapping["step"]
    return parse_int(step.tolist() if isinstance(step, memoryview) else step, "the number of steps", 0, MAX_STEPS)


def parse_float(number: Any, what: str) -> float:
    try:
        result = math.ldexp(number, 0)  # takes what C's double takes: no strings, unlike float()
    except TypeError:
        raise TypeError(f"{what} must be a number, not {type(number)!r}") from None
    except OverflowError:
        raise ValueError(f"{what} must be finite, got an int beyond the range of float64") from None
    if not math.isfinite(result):
        raise ValueError(f"{what} must be finite, got {number}")
    return result


def count_rates(thing: Any) -> int | None:
    """How many rates a sequence holds; None for a number and for a schedule."""
    if callable(thing) or isinstance(thing, (str, bytes, bytearray)) or not hasattr(type(thing), "__getitem__"):
        return None
    try:
        return None if isinstance(thing, dict) else len(thing)
    except TypeError:  # an array without dimensions
        return None


def rate_of_step(thing: Any, step: int) -> float:
    """The rate of a step: the number, an element of a sequence, or the value of a schedule."""
    if thing is None:
        return LEARNING_RATE
    if callable(thing):
        return parse_float(thing(step), f"learning_rate({step})")
    count = count_rates(thing)
    if count is None:
        return parse_float(thing, "learning_rate")
    if step >= count:
        raise ValueError(f"learning_rate holds {count} rates, none for step {step}")
    return parse_float(thing[step], f"learning_rate[{step}]")


MAX_SCHEDULED_STEPS = 100000000  # 800 MB of rates


def rates_of_steps(thing: Any, steps: int) -> list[float]:
    """The rates of all steps of train(), given by a sequence or a schedule."""
    count = count_rates(thing)
    if count is not None and count != steps:
        raise ValueError(f"learning_rate must hold one rate for each of the {steps} steps, got {count}")
    if steps > MAX_SCHEDULED_STEPS:
        raise ValueError(
            f"train() asks for the rates of all {steps} steps before the first one, but for at most "
            f"{MAX_SCHEDULED_STEPS}: call it several times"
        )
    return [rate_of_step(thing, step) for step in range(steps)]


def parse_seed(number: Any) -> int | None:
    if number is None:
        return None
    try:
        seed = operator.index(number)
    except TypeError:
        raise TypeError(f"seed must be an int or None, not {type(number)!r}") from None
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be 0..2**64-1, got {text_of(seed)}")
    return seed


def one_image(pixels: Any) -> Any:
    if INPUT_PARTS:
        return get_parts("inputs", INPUT_PARTS, pixels, None)[0]
    if not INPUT_COUNT and pixels is None:
        return b""
    if INPUT_PIXELS and type(pixels) is bytes and len(pixels) == INPUT_COUNT:
        return pixels
    return get_buffer(pixels, "pixels" if INPUT_PIXELS else "inputs", INPUTS, INPUT_COUNT)


def get_images(images: Any) -> Any:
    """The inputs of each example. Without any there is one example, or as many as there are targets."""
    if not INPUT_COUNT:
        if images is not None:
            raise TypeError(f"{INPUT_NOUN}s must be None: this model has no inputs")
        return [()]
    if INPUT_PARTS:
        return get_parts("inputs", INPUT_PARTS, images, RowCount())
    return get_rows(images, f"{INPUT_NOUN}s", INPUTS, INPUT_COUNT, row=f" {INPUT_NOUN}")


def get_rows(thing: Any, what: str, elements: Any, width: int, count: int = -1, row: str = "") -> list[Any]:
    flat = get_buffer(thing, what, elements, count, width)
    if not len(flat) or len(flat) % width:
        needed = f"a multiple of {width} {elements.noun}, and at least one{row}"
        raise ValueError(f"{what} must hold {needed}, got {len(flat)}")
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def images_text(batch: list[int], shuffled: bool) -> str:
    if len(batch) == 1:
        return f"{INPUT_NOUN} {batch[0]}"
    if not shuffled:
        return f"{INPUT_NOUN}s {batch[0]}..{batch[-1]}"
    rest = len(batch) - 8
    return f"{INPUT_NOUN}s " + ", ".join(map(str, batch[:8])) + (f" and {rest} more" if rest > 0 else "")


def get_one_target(label: Any) -> Any:
    if TARGET_LABEL:
        return parse_int(label, "label", 0, TARGET_COUNT - 1)
    if TARGET_PARTS:
        return get_parts("targets", TARGET_PARTS, label, None)[0]
    if TARGET_COUNT:
        return get_buffer(label, "targets", TARGETS, TARGET_COUNT)
    if label is not None:
        raise TypeError("the first argument must be None: this model has no targets")
    return ()


def get_labels(labels: Any, count: int) -> Any:
    """The targets of `count` examples, 0 for as many as there are."""
    if not TARGET_COUNT:
        if labels is not None:
            raise TypeError(f"{TARGETS_NOUN} must be None: this model has no targets")
        return [()] * count
    if TARGET_PARTS:
        return get_parts("targets", TARGET_PARTS, labels, RowCount(count, "the inputs"))
    width = 1 if TARGET_LABEL else TARGET_COUNT
    rows = get_rows(labels, TARGETS_NOUN, TARGETS, width, count * width or -1)
    if not TARGET_LABEL:
        return rows
    found = [row[0] for row in rows]
    check_classes(found, TARGETS)
    return found


def get_batch(images: Any, labels: Any) -> tuple[Any, Any]:
    """Inputs and targets, as many of one as of the other."""
    found = get_images(images)
    targets = get_labels(labels, len(found) if INPUT_COUNT or not TARGET_COUNT else 0)
    return (found if INPUT_COUNT else found * len(targets)), targets


def check_options(threads: Any, progress: Any) -> None:
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable, not {type(progress)!r}")
    if threads is not None:
        parse_int(threads, "threads", 1, MAX_THREADS)
