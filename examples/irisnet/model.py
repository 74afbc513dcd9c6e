"""The model: sepal and petal, each length and width in cm -> one of three species. It is compiled, not shipped."""

from layers import standardized

from codegen import Floats, Label, Program
from micrograd.engine import Value
from micrograd.functional import cross_entropy, softmax
from micrograd.nn import MLP

HIDDEN = 8


def program() -> Program:
    flower = [Value(0) for _ in range(4)]
    species = [Value(0) for _ in range(3)]
    net = MLP(4, [HIDDEN, 3], activation="tanh")
    logits = net(standardized(flower))
    return Program(
        inputs=Floats(flower),
        targets=Label(species),
        parameters=net.named_parameters(),
        initial=net.initial(),
        order=net.parameters(),
        loss=cross_entropy(logits, species),
        outputs={"logits": logits, "probabilities": softmax(logits)},
        prediction="logits",
        learning_rate=0.1,
        description=f"irises, MLP 4-{HIDDEN}-3",
    )
