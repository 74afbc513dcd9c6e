"""XOR, which no single neuron can compute: four tanh units and an output learn it."""

import random

from micrograd.engine import Value
from micrograd.functional import mse
from micrograd.nn import MLP

points = {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 0}

random.seed(0)
model = MLP(2, [4, 1], activation="tanh")
print(model)
print(len(model.parameters()), "parameters")


def loss() -> Value:
    """The mean squared error over all four points, as one graph."""
    return mse([model(x) for x in points], list(points.values()))


for step in range(200):
    model.zero_grad()
    error = loss()
    error.backward()
    for p in model.parameters():
        p.data -= 0.2 * p.grad
    if step % 40 == 0:
        print(f"step {step:3}: loss {error.data:.4f}")

print(f"step 200: loss {loss().data:.4f}")
right = 0
for (a, b), expected in points.items():
    out = model([a, b]).data
    answer = int(out > 0.5)
    right += answer == expected
    print(f"{a} xor {b} = {answer}   ({out:6.3f})")
print(f"{right} of 4 right")
