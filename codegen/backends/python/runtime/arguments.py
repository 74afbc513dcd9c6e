"""Checks of arguments: a wrong type is a TypeError, a wrong size or range a ValueError that says what was passed."""

from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen.backends.python.runtime.buffers import (
        NOUNS,
        PIXELS,
        REALS,
        check_labels,
        get_buffer,
        has_format,
        labels_below,
    )
    from codegen.backends.python.runtime.declared import (
        INPUT_COUNT,
        INPUT_NOUN,
        INPUT_PIXELS,
        LEARNING_RATE,
        TARGET_COUNT,
        TARGET_LABEL,
        TARGETS_NOUN,
    )

INPUTS = PIXELS if INPUT_PIXELS else REALS
TARGETS = labels_below(TARGET_COUNT) if TARGET_LABEL else REALS
MAX_THREADS = 64


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


def parse_rate(number: Any) -> float:
    return LEARNING_RATE if number is None else parse_float(number, "learning_rate")


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


def get_view(thing: Any, what: str, form: str, expected: str) -> memoryview[Any]:
    try:
        view = memoryview(thing)
    except (TypeError, ValueError, BufferError):
        raise TypeError(f"{what} must be {expected}, got {type(thing)!r}") from None
    if not has_format(view, form):
        raise TypeError(f"{what} must be a buffer of {NOUNS[form]} (format {form!r}), got format {view.format!r}")
    return view


def one_image(pixels: Any) -> Any:
    if INPUT_PIXELS and type(pixels) is bytes and len(pixels) == INPUT_COUNT:
        return pixels
    return get_buffer(pixels, "pixels" if INPUT_PIXELS else "inputs", INPUTS, INPUT_COUNT)


def get_images(images: Any) -> Any:
    if not INPUT_COUNT:
        raise RuntimeError("this model has no inputs, so there is nothing to loop over")
    flat = get_buffer(images, f"{INPUT_NOUN}s", INPUTS, per_row=INPUT_COUNT)
    if not len(flat) or len(flat) % INPUT_COUNT:
        needed = f"a multiple of {INPUT_COUNT} {INPUTS.noun}, and at least one {INPUT_NOUN}"
        raise ValueError(f"{INPUT_NOUN}s must hold {needed}, got {len(flat)}")
    return [flat[i : i + INPUT_COUNT] for i in range(0, len(flat), INPUT_COUNT)]


def images_text(batch: list[int], shuffled: bool) -> str:
    if len(batch) == 1:
        return f"{INPUT_NOUN} {batch[0]}"
    if not shuffled:
        return f"{INPUT_NOUN}s {batch[0]}..{batch[-1]}"
    rest = len(batch) - 8
    return f"{INPUT_NOUN}s " + ", ".join(map(str, batch[:8])) + (f" and {rest} more" if rest > 0 else "")


def get_labels(labels: Any, count: int) -> Any:
    if not TARGET_COUNT:
        if labels is not None:
            raise TypeError(f"{TARGETS_NOUN} must be None: this model has no targets")
        return [()] * count
    if not TARGET_LABEL:
        flat = get_buffer(labels, TARGETS_NOUN, TARGETS, count * TARGET_COUNT, TARGET_COUNT)
        return [flat[i : i + TARGET_COUNT] for i in range(0, len(flat), TARGET_COUNT)]
    found = get_buffer(labels, TARGETS_NOUN, TARGETS, count, 1)
    check_labels(found, TARGET_COUNT)
    return found


def check_options(threads: Any, progress: Any) -> None:
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable, not {type(progress)!r}")
    if threads is not None:
        parse_int(threads, "threads", 1, MAX_THREADS)
