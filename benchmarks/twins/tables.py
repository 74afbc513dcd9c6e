"""Tables of rows that are read in parts, and losses with terms of parameters alone.

They are of the form of models.py, into whose table they are put.
"""

from __future__ import annotations

from typing import Any

from benchmarks.twins.models import dense, layer, mse, twin


@twin(
    "neural collaborative filtering",
    {"user": (40, 16), "item": (40, 16), **dense(a=(16, 16), b=(16, 8)), "out": (16, 1)},
    (2,),
    (1,),
    words=40,
)
def collaborative(m: Any, p: Any, x: Any, y: Any) -> Any:
    """He et al., 2017: a half of each row for products, the other half for a perceptron."""
    user, item = m.rows(p["user"], x[0]), m.rows(p["item"], x[1])
    h = m.concatenate((user[8:], item[8:]))
    for name in "ab":
        h = m.maximum(layer(p, name, h), 0)
    return mse(m.concatenate((user[:8] * item[:8], h)) @ p["out"], y)


@twin("factors of fields", {"v": (30, 20), "w": (30, 1)}, (5,), (1,), words=30)
def of_fields(m: Any, p: Any, x: Any, y: Any) -> Any:
    """Juan et al., 2016: four factors of a word for each of five fields."""
    v = [m.rows(p["v"], x[i]).reshape(5, 4) for i in range(5)]
    pairs = sum((v[i][j] * v[j][i]).sum() for i in range(5) for j in range(i + 1, 5))
    return (pairs + m.rows(p["w"], x).sum() - y[0]) ** 2


@twin("perceptron with an L2 term", dense(a=(16, 32), b=(32, 32), c=(32, 4)), (16,), (4,))
def with_l2(m: Any, p: Any, x: Any, y: Any) -> Any:
    for name in "ab":
        x = m.tanh(layer(p, name, x))
    return mse(layer(p, "c", x), y) + 1e-3 * sum((p[f"{name}_w"] ** 2).sum() for name in "abc")


@twin("sparse autoencoder", {"w": (24, 64), "b": (64,), "c": (24,)}, (24,), None)
def sparse(m: Any, p: Any, x: Any, _: Any) -> Any:
    """One matrix in both directions, an L1 term of the codes and an L2 term of the weights."""
    codes = m.maximum(x @ p["w"] + p["b"], 0)
    return mse(codes @ p["w"].T + p["c"], x) + 0.01 * codes.sum() + 0.001 * (p["w"] ** 2).sum()
