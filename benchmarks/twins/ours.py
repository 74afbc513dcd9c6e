"""The models as Programs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.twins.models import Twin
from codegen import Floats, Program, Tokens
from micrograd.arrays import array

NAMES = (
    *("zeros", "tanh", "exp", "log", "sin", "cos", "sqrt", "maximum", "minimum", "clip"),
    *("concatenate", "einsum", "diagonal", "pad"),
)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True).detach())
    return e / e.sum(axis=-1, keepdims=True)


OF_VALUES = SimpleNamespace(
    **{name: getattr(np, name) for name in NAMES},
    sigmoid=lambda x: x.sigmoid(),
    softmax=softmax,
    rows=lambda table, words: words @ table,
    windows=lambda x, side: np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2)),
)


def program(twin: Twin, dtype: str) -> Program:
    """Strict in float64, fast in float32."""
    p = {name: array(numbers) for name, numbers in first_weights(twin).items()}
    x = array(np.zeros((*twin.inputs, twin.words) if twin.words else twin.inputs))
    y = None if twin.targets is None else array(np.zeros(twin.targets))
    made = Program(
        Tokens(x) if twin.words else Floats(x), None if y is None else Floats(y), p, twin.loss(OF_VALUES, p, x, y)
    )
    if dtype == "f32":
        made.dtype, made.fma, made.reorder = "float32", True, True
    return made


def first_weights(twin: Twin) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: 0.3 * rng.normal(size=shape) for name, shape in twin.parameters.items()}
