"""Larger models: what fits no first-level cache, and loops over a few places within others.

They are of the form of models.py, into whose table they are put. The tests leave them out: the engine takes minutes.
"""

from __future__ import annotations

from typing import Any

from benchmarks.twins.models import mse, twin


@twin("LSTM of 64 units", {"x": (16, 256), "h": (64, 256), "b": (256,), "out": (64, 10)}, (16, 16), (10,))
def recurrent(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Hochreiter and Schmidhuber, 1997: as many weights as a second-level cache holds, read in each of 16 steps."""
    state, cell = m.zeros(64), m.zeros(64)
    for now in x:
        gates = now @ p["x"] + state @ p["h"] + p["b"]
        let, keep, show = (m.sigmoid(gates[at : at + 64]) for at in (0, 64, 192))
        cell = keep * cell + let * m.tanh(gates[128:192])
        state = show * m.tanh(cell)
    return mse(state @ p["out"], y)


@twin("colours, 16 channels", {"a": (16, 3, 3, 3), "b": (16, 16, 3, 3), "out": (256, 10)}, (3, 12, 12), (10,))
def colours(m: Any, p: Any, x: Any, y: Any) -> Any:
    for name in "ab":
        x = m.tanh(m.einsum("cyxuv,ocuv->oyx", m.windows(x, 3), p[name]))
    return mse(x.reshape(16, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(256) @ p["out"], y)


@twin("digits, 8 and 16 channels", {"a": (8, 1, 3, 3), "b": (16, 8, 3, 3), "out": (400, 10)}, (1, 14, 14), (10,))
def channels(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Rows of 12 places, and of 10: neither fills whole vectors of float32."""
    for name in "ab":
        x = m.maximum(m.einsum("cyxuv,ocuv->oyx", m.windows(x, 3), p[name]), 0)
    return mse(x.reshape(16, 5, 2, 5, 2).mean(axis=(2, 4)).reshape(400) @ p["out"], y)


@twin(
    "down and up again",
    {"a": (3, 4, 16), "b": (3, 16, 32), "c": (3, 32, 32), "d": (3, 48, 16), "out": (16, 4)},
    (32, 4),
    (32, 4),
)
def down_and_up(m: Any, p: Any, x: Any, y: Any) -> Any:
    """A U-Net (Ronneberger et al., 2015) over time."""

    def near(rows: Any, name: str) -> Any:
        edge = m.zeros((1, rows.shape[1]))
        rows, count = m.concatenate((edge, rows, edge)), len(rows)
        return m.maximum(sum(rows[k : k + count] @ p[name][k] for k in range(3)), 0)

    fine = near(x, "a")
    coarse = near(near(fine.reshape(16, 2, 16).mean(axis=1), "b"), "c")
    again = m.concatenate([coarse[:, None, :], coarse[:, None, :]], axis=1).reshape(32, 32)
    return mse(near(m.concatenate((again, fine), axis=1), "d") @ p["out"], y)
