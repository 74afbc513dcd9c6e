"""The model that the wheel carries: 784 pixels, 50 hidden units, 10 classes; and others with other layers."""

from collections.abc import Sequence

from codegen.program import Label, Pixels, Program
from micrograd.model import HIDDEN, LEARNING_RATE, SCALE, SEED, Net, description


def program(
    dtype: str = "float64",
    fma: bool = False,
    reorder: bool = False,
    hidden: Sequence[int] = HIDDEN,
    activation: str = "relu",
) -> Program:
    net = Net(hidden, activation)
    return Program(
        inputs=Pixels(net.pixels, scale=SCALE),
        targets=Label(net.one_hot),
        parameters=net.mlp.named_parameters(),
        order=net.mlp.parameters(),
        initial=net.mlp.initial(),
        seed=SEED,
        loss=net.loss,
        outputs={"logits": net.logits, "probabilities": net.probabilities},
        prediction="logits",
        learning_rate=LEARNING_RATE,
        description=description(hidden, activation),
        dtype=dtype,
        fma=fma,
        reorder=reorder,
    )
