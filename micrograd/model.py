"""The net that the wheel carries, as Values: 784 pixels, 50 relu units, 10 classes.

codegen/mnist.py makes the Program of it that is compiled to `nn`, and `python -m micrograd check` interprets it.
"""

from __future__ import annotations

import random

from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP

PIXELS = 784
CLASSES = 10
SCALE = 1 / 255  # of a pixel's byte
SEED = 1  # of the first weights
LEARNING_RATE = 0.008
DESCRIPTION = "MLP 784-50-10, relu, softmax cross-entropy"


def perceptron(seed: int) -> MLP:
    random.seed(seed)
    return MLP(PIXELS, [50, CLASSES], init="fan_in")


class Net:
    """The graph of one image: leaves `pixels` and `one_hot`, and what is computed from them and from `mlp`."""

    def __init__(self) -> None:
        self.mlp = perceptron(SEED)
        self.pixels = [Value(0, _op="input") for _ in range(PIXELS)]
        self.one_hot = [Value(0, _op="input") for _ in range(CLASSES)]
        self.logits: list[Value] = self.mlp(self.pixels)
        self.probabilities = softmax(self.logits)
        self.loss = cross_entropy(self.logits, self.one_hot)
