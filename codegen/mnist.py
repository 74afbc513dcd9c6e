"""The model that the wheel carries: 784 pixels, 50 hidden units, 10 classes."""

from codegen.program import Label, Pixels, Program
from micrograd.model import DESCRIPTION, LEARNING_RATE, SCALE, SEED, Net


def program(dtype: str = "float64", fma: bool = False, reorder: bool = False) -> Program:
    net = Net()
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
        description=DESCRIPTION,
        dtype=dtype,
        fma=fma,
        reorder=reorder,
    )
