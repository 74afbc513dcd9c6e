"""Convolutions that keep the size of images, which zeros surround: blocks, cells and branches of them.

They are of the form of models.py, into whose table they are put. The tests leave them out: the engine takes minutes.
"""

from __future__ import annotations

from typing import Any

from benchmarks.twins.models import mse, twin


def convolved(m: Any, image: Any, kernels: Any, stride: int = 1) -> Any:
    edge, side = kernels.shape[2] // 2, kernels.shape[2]
    around = m.pad(image, ((0, 0), (edge, edge), (edge, edge)))
    return m.einsum("cyxuv,ocuv->oyx", m.windows(around, side)[:, ::stride, ::stride], kernels)


def each_convolved(m: Any, image: Any, kernels: Any) -> Any:
    """Each channel by a kernel of its own."""
    return m.einsum("cyxuv,cuv->cyx", m.windows(m.pad(image, ((0, 0), (1, 1), (1, 1))), 3), kernels)


def normalised(m: Any, image: Any, gain: Any, bias: Any, groups: int = 4) -> Any:
    """Wu and He, 2018."""
    rows = image.reshape(groups, -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows = rows / m.sqrt((rows * rows).mean(axis=1, keepdims=True) + 1e-5)
    return rows.reshape(image.shape) * gain[:, None, None] + bias[:, None, None]


SIZES = {"a": (8, 8, 3, 3), "b": (8, 8, 3, 3), "c": (16, 8, 3, 3), "d": (16, 16, 3, 3)}


@twin(
    "residual blocks, normalised",
    {
        "first": (8, 3, 3, 3),
        "around": (16, 8, 1, 1),
        "out": (16, 10),
        **SIZES,
        **{f"{kind}.{name}": shape[:1] for name, shape in SIZES.items() for kind in ("gain", "bias")},
    },
    (3, 12, 12),
    (10,),
)
def residual(m: Any, p: Any, x: Any, y: Any) -> Any:
    """He et al., 2016: the second block halves the image."""

    def layer(name: str, image: Any, stride: int = 1) -> Any:
        return normalised(m, convolved(m, image, p[name], stride), p[f"gain.{name}"], p[f"bias.{name}"])

    x = m.maximum(convolved(m, x, p["first"]), 0)
    x = m.maximum(x + layer("b", m.maximum(layer("a", x), 0)), 0)
    x = m.maximum(convolved(m, x, p["around"], 2) + layer("d", m.maximum(layer("c", x, 2), 0)), 0)
    return mse(x.mean(axis=(1, 2)) @ p["out"], y)


@twin("cells of images", {"x": (16, 1, 3, 3), "h": (16, 4, 3, 3), "out": (144, 3)}, (4, 1, 6, 6), (3,))
def cells(m: Any, p: Any, x: Any, y: Any) -> Any:
    """A convolutional LSTM (Shi et al., 2015)."""
    state, cell = m.zeros((4, 6, 6)), m.zeros((4, 6, 6))
    for now in x:
        gates = convolved(m, now, p["x"]) + convolved(m, state, p["h"])
        let, keep, show = (m.sigmoid(gates[at : at + 4]) for at in (0, 4, 12))
        cell = keep * cell + let * m.tanh(gates[8:12])
        state = show * m.tanh(cell)
    return mse(state.reshape(144) @ p["out"], y)


@twin(
    "separable convolutions",
    {"first": (8, 3, 3, 3), "a": (8, 3, 3), "b": (16, 8), "c": (16, 3, 3), "d": (16, 16), "out": (16, 10)},
    (3, 12, 12),
    (10,),
)
def separable(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Howard et al., 2017."""
    x = m.maximum(convolved(m, x, p["first"], 2), 0)
    for name, mix in ("ab", "cd"):
        seen = m.maximum(each_convolved(m, x, p[name]), 0)
        x = m.maximum(m.einsum("cyx,oc->oyx", seen, p[mix]), 0)
    return mse(x.mean(axis=(1, 2)) @ p["out"], y)


@twin(
    "kernels of three sizes",
    {"first": (8, 3, 3, 3), "a": (4, 8, 1, 1), "b": (4, 8, 3, 3), "c": (4, 8, 5, 5), "out": (12, 10)},
    (3, 10, 10),
    (10,),
)
def branches(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Szegedy et al., 2015."""
    x = m.maximum(convolved(m, x, p["first"]), 0)
    x = m.concatenate([m.maximum(convolved(m, x, p[name]), 0) for name in "abc"])
    return mse(x.mean(axis=(1, 2)) @ p["out"], y)
