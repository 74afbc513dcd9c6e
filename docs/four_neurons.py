"""The example of architecture.md: four relu neurons on three pixels, their sum against a target."""

from codegen import Floats, Pixels, Program
from micrograd.engine import Value


def program() -> Program:
    pixels = [Value(0) for _ in range(3)]
    target = Value(0)
    weight = [[Value(0.1 * (j + i)) for i in range(3)] for j in range(4)]
    bias = [Value(0.5) for _ in range(4)]
    hidden = []
    for w, b in zip(weight, bias, strict=True):
        act = b
        for wi, xi in zip(w, pixels, strict=True):
            act = act + wi * xi
        hidden.append(act.relu())
    out = hidden[0]
    for h in hidden[1:]:
        out = out + h
    return Program(
        inputs=Pixels(pixels, scale=1 / 255),
        targets=Floats([target]),
        parameters={"weight": weight, "bias": bias},
        loss=(out - target) ** 2,
        outputs={"out": [out]},
        learning_rate=0.1,
    )
