"""A convolution with shared weights, relu, max-pooling and a linear layer, scalar by scalar: which loops come out?"""

import random

from codegen import Label, Pixels, Program, compile_program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, total


def program(size: int = 8, channels: int = 3) -> Program:
    """Images of size x size pixels, `channels` kernels of 3 x 3, pooled 2 x 2, 4 classes."""
    rng = random.Random(2)

    def weights(count: int) -> list[Value]:
        return [Value(rng.uniform(-0.7, 0.7)) for _ in range(count)]

    kernels, biases = [weights(9) for _ in range(channels)], weights(channels)
    pixels, target = [Value(0) for _ in range(size * size)], [Value(0) for _ in range(4)]
    inner = size - 2
    window = [(i, j) for i in range(3) for j in range(3)]
    pooled = []
    for kernel, bias in zip(kernels, biases, strict=True):
        maps = {}
        for r in range(inner):
            for c in range(inner):
                seen = [pixels[(r + i) * size + c + j] for i, j in window]
                maps[r, c] = total([bias, *(w * x for w, x in zip(kernel, seen, strict=True))]).relu()
        for r in range(0, inner, 2):
            for c in range(0, inner, 2):
                pooled.append(maps[r, c].max(maps[r, c + 1], maps[r + 1, c], maps[r + 1, c + 1]))
    w, b = [weights(len(pooled)) for _ in range(4)], weights(4)
    logits = [
        total([bias, *(wi * p for wi, p in zip(row, pooled, strict=True))]) for row, bias in zip(w, b, strict=True)
    ]
    return Program(
        inputs=Pixels(pixels, scale=1 / 16),
        targets=Label(target),
        parameters={"kernels": kernels, "biases": biases, "w": w, "b": b},
        loss=cross_entropy(logits, target),
        outputs={"logits": logits},
    )


if __name__ == "__main__":
    print(compile_program(program()).explanation())
