"""The model that the wheel carries: 784 pixels, 50 hidden units, 10 classes."""

import random

from codegen.program import Label, Pixels, Program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP

SEED = 1


def program(dtype: str = "float64", fma: bool = False, reorder: bool = False) -> Program:
    random.seed(SEED)
    model = MLP(784, [50, 10], init="fan_in")
    pixels = [Value(0, _op="input") for _ in range(784)]
    one_hot = [Value(0, _op="input") for _ in range(10)]
    logits = model(pixels)
    return Program(
        inputs=Pixels(pixels, scale=1 / 255),
        targets=Label(one_hot),
        parameters=model.named_parameters(),
        order=model.parameters(),
        initial=model.initial(),
        seed=SEED,
        loss=cross_entropy(logits, one_hot),
        outputs={"logits": logits, "probabilities": softmax(logits)},
        prediction="logits",
        learning_rate=0.008,
        description="MLP 784-50-10, relu, softmax cross-entropy",
        dtype=dtype,
        fma=fma,
        reorder=reorder,
    )
