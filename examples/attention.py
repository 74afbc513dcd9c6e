"""Single-head self-attention over a sequence, and the mean of its outputs, scalar by scalar: which loops come out?"""

import math
import random

from codegen import Floats, Program, compile_program
from micrograd.engine import Value
from micrograd.functional import mse, softmax, total


def dot(a: list[Value], b: list[Value]) -> Value:
    return total([x * y for x, y in zip(a, b, strict=True)])


def program(tokens: int = 5, width: int = 4) -> Program:
    """`tokens` vectors of `width` numbers; queries, keys and values as wide."""
    rng = random.Random(6)
    x, y = [Value(0) for _ in range(tokens * width)], [Value(0) for _ in range(width)]
    rows = [x[i * width : (i + 1) * width] for i in range(tokens)]
    parameters = {
        name: [[Value(rng.uniform(-0.7, 0.7)) for _ in range(width)] for _ in range(width)]
        for name in ("query", "key", "value")
    }
    queries, keys, values = ([[dot(w, row) for w in matrix] for row in rows] for matrix in parameters.values())
    mixed = []
    for query in queries:
        share = softmax([dot(query, key) * (1 / math.sqrt(width)) for key in keys])
        mixed.append([dot(share, list(column)) for column in zip(*values, strict=True)])
    out = [total(list(column)) / tokens for column in zip(*mixed, strict=True)]
    return Program(inputs=Floats(x), targets=Floats(y), parameters=parameters, loss=mse(out, y), outputs={"out": out})


if __name__ == "__main__":
    print(compile_program(program()).explanation())
