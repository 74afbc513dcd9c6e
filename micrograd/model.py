"""The net that the wheel carries, as Values: 784 pixels, 50 relu units, 10 classes.

codegen/mnist.py makes the Program of it that is compiled to `nn`, and `micrograd check` interprets it.
"""

import random
from collections.abc import Sequence

from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP

PIXELS = 784
HIDDEN = (50,)  # units of the hidden layers
CLASSES = 10
SCALE = 1 / 255  # of a pixel's byte
SEED = 1  # of the first weights
LEARNING_RATE = 0.008


def description(hidden: Sequence[int] = HIDDEN, activation: str = "relu") -> str:
    """For example "MLP 784-50-10, relu, softmax cross-entropy"."""
    return f"MLP {'-'.join(map(str, (PIXELS, *hidden, CLASSES)))}, {activation}, softmax cross-entropy"


def perceptron(seed: int, hidden: Sequence[int] = HIDDEN, activation: str = "relu") -> MLP:
    random.seed(seed)
    return MLP(PIXELS, [*hidden, CLASSES], init="fan_in", activation=activation)


class Net:
    """The graph of one image: leaves `pixels` and `one_hot`, and what is computed from them and from `mlp`."""

    def __init__(self, hidden: Sequence[int] = HIDDEN, activation: str = "relu") -> None:
        self.mlp = perceptron(SEED, hidden, activation)
        self.pixels = [Value(0, _op="input") for _ in range(PIXELS)]
        self.one_hot = [Value(0, _op="input") for _ in range(CLASSES)]
        self.logits: list[Value] = self.mlp(self.pixels)
        self.probabilities = softmax(self.logits)
        self.loss = cross_entropy(self.logits, self.one_hot)
