"""Everything observable about the wheel's net in use, run by the interpreted engine or by a compiled module.

`micrograd check` compares the two. `python -m micrograd.commands.observations MODULE THREADS` prints what nn
or nn_infer computes, as JSON: {what: its float64 numbers, their bytes in hexadecimal digits}, or null at a SIMD level
that the processor does not have.
"""

import random
from array import array
from collections.abc import Iterator, Sequence
from math import nan
from types import ModuleType
from typing import Protocol, TypeAlias

from micrograd.commands.comparison import answer
from micrograd.engine import Value
from micrograd.functional import argmax
from micrograd.functional import softmax as softmax_of
from micrograd.model import LEARNING_RATE, PIXELS, SCALE, Net, perceptron
from micrograd.noise import leaves_of
from micrograd.order import creation, gradient_order

Named: TypeAlias = "dict[str, array[float]]"
SEED = 2**40 + 7  # more than 32 bits
RATE = 0.03
# The logits that the interpreted engine computes for two of examples() with the weights that are frozen in nn_infer,
# and the first digits of these weights' SHA-256. The weights themselves are no part of the wheel.
FROZEN_WEIGHTS = "40cf76f9aa00c15c"
FROZEN_LOGITS: dict[str, list[str]] = {
    "sparse": [
        "0x1.fefe12b387879p-2",
        "-0x1.9d9e20ea93840p-1",
        "0x1.970171e2e62d4p+0",
        "0x1.9e74699094fd9p-2",
        "0x1.7c4ec3211b2e0p-2",
        "0x1.6305a7cf7e4f2p-5",
        "0x1.47ad2c291c8dfp+0",
        "-0x1.e476619a5bf95p+1",
        "0x1.622512a62899fp+1",
        "-0x1.340b5dd7ce199p-1",
    ],
    "dense": [
        "0x1.bf397b3b5a182p+1",
        "-0x1.7ae567b3e01f2p+3",
        "0x1.e24b0e45cdfe8p-5",
        "0x1.063434254c082p+3",
        "-0x1.0d87b8ee6d5e0p+4",
        "0x1.e75bfd38fdc37p+1",
        "-0x1.172b7f9fedd04p+2",
        "-0x1.10229dc40758fp+2",
        "0x1.d1e27728a7437p+2",
        "0x1.19c3a520b4852p+2",
    ],
}


def examples() -> dict[str, tuple[int, bytes]]:
    """Labels and images: four of five pixels 0 as in handwriting, none 0, all 0, all 255."""
    rng = random.Random(1)
    sparse = bytes(rng.randrange(1, 256) if rng.random() < 0.2 else 0 for _ in range(PIXELS))
    dense = bytes(rng.randrange(1, 256) for _ in range(PIXELS))
    return {"sparse": (3, sparse), "dense": (9, dense), "black": (0, bytes(PIXELS)), "white": (5, b"\xff" * PIXELS)}


class System(Protocol):
    """The operations of a net, by the engine or by a compiled module."""

    def reset(self, seed: int) -> None: ...
    def forward(self, label: int, pixels: bytes) -> float: ...
    def backward(self) -> None: ...
    def zero_grad(self) -> None: ...
    def update(self, batch_size: int, learning_rate: float | None) -> None: ...
    def outputs(self, pixels: bytes) -> dict[str, Sequence[float]]: ...
    def predict(self, pixels: bytes) -> int: ...
    def predict_batch(self, images: bytes) -> bytes: ...
    def evaluate(self, images: bytes, labels: bytes) -> tuple[float, float]: ...
    def train(self, images: bytes, labels: bytes, batch_size: int, learning_rate: float, seed: int) -> float: ...
    def parameters(self) -> Named: ...
    def gradients(self) -> Named: ...
    def load(self, parameters: Named) -> None: ...


class Interpreted:
    """The engine's own Values: sets the leaves, recomputes the graph, propagates gradients.

    That is Value.recompute() and Value.backward(), with the order of the nodes found once.
    """

    def __init__(self) -> None:
        self.net = Net()
        self.named = {name: list(leaves_of(tensor)) for name, tensor in self.net.mlp.named_parameters().items()}
        self.leaves = self.net.mlp.parameters()
        roots = (self.net.loss, *self.net.probabilities)
        self.forwards = creation(roots)
        self.inner = [node for node in creation([self.net.loss]) if node._prev]
        self.backwards = list(gradient_order(creation([self.net.loss])))

    def reset(self, seed: int) -> None:
        for leaf, drawn in zip(self.leaves, perceptron(seed).parameters(), strict=True):
            leaf.data, leaf.grad = drawn.data, 0.0

    def forward(self, label: int, pixels: bytes) -> float:
        for leaf, byte in zip(self.net.pixels, pixels, strict=True):
            leaf.data = byte * SCALE
        for i, leaf in enumerate(self.net.one_hot):
            leaf.data = float(i == label)
        for node in self.forwards:
            node._forward()
        return self.net.loss.data

    def backward(self) -> None:
        for node in self.inner:
            node.grad = 0.0
        self.net.loss.grad = 1.0
        for node in self.backwards:
            node._backward()

    def zero_grad(self) -> None:
        self.net.mlp.zero_grad()

    def update(self, batch_size: int, learning_rate: float | None) -> None:
        rate = LEARNING_RATE if learning_rate is None else learning_rate
        for leaf in self.leaves:
            leaf.data -= rate * leaf.grad / batch_size

    def outputs(self, pixels: bytes) -> dict[str, Sequence[float]]:
        self.forward(0, pixels)
        net = self.net
        return {"logits": [x.data for x in net.logits], "probabilities": [x.data for x in net.probabilities]}

    def predict(self, pixels: bytes) -> int:
        return argmax(self.outputs(pixels)["logits"])

    def predict_batch(self, images: bytes) -> bytes:
        return bytes(self.predict(image) for image in _cut(images))

    def evaluate(self, images: bytes, labels: bytes) -> tuple[float, float]:
        total = 0.0
        right = 0
        for label, image in zip(labels, _cut(images), strict=True):
            total += self.forward(label, image)
            right += argmax(self.net.logits) == label
        return total / len(labels), right / len(labels)

    def train(self, images: bytes, labels: bytes, batch_size: int, learning_rate: float, seed: int) -> float:
        order = list(range(len(labels)))
        random.Random(seed).shuffle(order)
        cut = _cut(images)
        total = 0.0
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            self.zero_grad()
            for i in batch:
                total += self.forward(labels[i], cut[i])
                self.backward()
            self.update(len(batch), learning_rate)
        return total / len(order)

    def parameters(self) -> Named:
        return {name: array("d", [leaf.data for leaf in leaves]) for name, leaves in self.named.items()}

    def gradients(self) -> Named:
        return {name: array("d", [leaf.grad for leaf in leaves]) for name, leaves in self.named.items()}

    def load(self, parameters: Named) -> None:
        for name, leaves in self.named.items():
            for leaf, number in zip(leaves, parameters[name], strict=True):
                leaf.data = number


class Compiled:
    """The module nn; functions that take `threads` get this number."""

    def __init__(self, nn: ModuleType, threads: int) -> None:
        self.nn = nn
        self.threads = threads
        self.reset = nn.reset
        self.forward = nn.forward
        self.backward = nn.backward
        self.zero_grad = nn.zero_grad
        self.outputs = nn.outputs
        self.predict = nn.predict

    def update(self, batch_size: int, learning_rate: float | None) -> None:
        self.nn.update(0, batch_size, learning_rate=learning_rate)

    def predict_batch(self, images: bytes) -> bytes:
        result: bytes = self.nn.predict_batch(images, threads=self.threads)
        return result

    def evaluate(self, images: bytes, labels: bytes) -> tuple[float, float]:
        loss, accuracy = self.nn.evaluate(images, labels, threads=self.threads)
        return loss, accuracy

    def train(self, images: bytes, labels: bytes, batch_size: int, learning_rate: float, seed: int) -> float:
        options = {"batch_size": batch_size, "learning_rate": learning_rate, "seed": seed, "threads": self.threads}
        [loss] = self.nn.train(images, labels, **options)
        return float(loss)

    def parameters(self) -> Named:
        return {name: array("d", view.tobytes()) for name, view in self.nn.state_dict().items()}

    def gradients(self) -> Named:
        return {name: array("d", view.tobytes()) for name, view in self.nn.grad_dict().items()}

    def load(self, parameters: Named) -> None:
        shapes = {name: view.shape for name, view in self.nn.state_dict().items()}
        self.nn.load_state_dict(
            {name: memoryview(numbers).cast("B").cast("d", shapes[name]) for name, numbers in parameters.items()}
        )


def observe(system: System) -> Iterator[tuple[str, Sequence[float]]]:
    """Runs every operation of a net and yields each observation: a description, and numbers."""
    images = examples()
    yield from _all("the weights at import:", system.parameters())
    system.reset(SEED)
    yield from _all("the weights after reset():", system.parameters())

    label, pixels = images["sparse"]
    system.zero_grad()
    yield "the loss of one image", [system.forward(label, pixels)]
    system.backward()
    yield from _all("the gradient of one image:", system.gradients())
    system.update(1, None)
    yield from _all("after a step of one image:", system.parameters())
    for name, (_, pixels) in images.items():
        for output, numbers in system.outputs(pixels).items():
            yield f"the {output} of the {name} image", numbers
        yield f"the prediction of the {name} image", [float(system.predict(pixels))]

    batch = [images[name] for name in ("dense", "black", "white")]
    system.zero_grad()
    for label, pixels in batch:
        yield f"the loss of label {label} in a batch", [system.forward(label, pixels)]
        system.backward()
    yield from _all("the gradient of a batch:", system.gradients())
    system.update(len(batch), RATE)
    yield from _all("after a step of a batch:", system.parameters())

    all_images, labels = b"".join(pixels for _, pixels in images.values()), bytes(label for label, _ in images.values())
    yield "the mean loss of train() in batches of 1", [system.train(all_images[: 2 * PIXELS], labels[:2], 1, RATE, 5)]
    yield from _all("after train() in batches of 1:", system.parameters())
    yield "the mean loss of train() in batches of 3", [system.train(all_images, labels, 3, RATE, 6)]
    yield from _all("after train() in batches of 3:", system.parameters())
    yield "evaluate()", system.evaluate(all_images, labels)
    yield "predict_batch()", [float(label) for label in system.predict_batch(all_images)]

    parameters = system.parameters()
    label, pixels = images["sparse"]
    parameters["layers.0.weight"][pixels.index(0)] = nan  # of a pixel that is 0: 0 * nan is nan
    system.load(parameters)
    yield "the loss with a weight that is nan", [system.forward(label, pixels)]
    parameters["layers.0.weight"][pixels.index(0)] = 1e200
    parameters["layers.1.weight"][:] = array("d", [1e200 * x for x in parameters["layers.1.weight"]])
    system.load(parameters)
    system.zero_grad()
    for label in (0, 1):
        yield f"the loss of label {label} with huge weights", [system.forward(label, pixels)]
        system.backward()
    yield from _all("the gradient with huge weights:", system.gradients())
    system.update(1, 1e300)
    yield from _all("after a step that overflows:", system.parameters())
    yield "the loss after a step that overflows", [system.forward(*images["black"])]


def expected_of_frozen() -> Iterator[tuple[str, Sequence[float]]]:
    """What nn_infer must show: recorded logits, and what the engine computes from them on this machine."""
    predictions = []
    for name, texts in FROZEN_LOGITS.items():
        logits = [float.fromhex(text) for text in texts]
        yield f"the logits of the {name} image", logits
        yield f"the probabilities of the {name} image", [x.data for x in softmax_of([Value(x) for x in logits])]
        predictions.append(float(argmax(logits)))
        yield f"the prediction of the {name} image", predictions[-1:]
    yield "predict_batch()", predictions


def observe_frozen(nn_infer: ModuleType, threads: int) -> Iterator[tuple[str, Sequence[float]]]:
    images = {name: pixels for name, (_, pixels) in examples().items() if name in FROZEN_LOGITS}
    for name, pixels in images.items():
        outputs = nn_infer.outputs(pixels)
        yield f"the logits of the {name} image", outputs["logits"]
        yield f"the probabilities of the {name} image", nn_infer.probabilities(pixels)
        yield f"the prediction of the {name} image", [float(nn_infer.predict(pixels))]
    yield (
        "predict_batch()",
        [float(label) for label in nn_infer.predict_batch(b"".join(images.values()), threads=threads)],
    )


def _all(what: str, tensors: Named) -> Iterator[tuple[str, Sequence[float]]]:
    for name, numbers in tensors.items():
        yield f"{what} {name}", numbers


def _cut(images: bytes) -> list[bytes]:
    return [images[at : at + PIXELS] for at in range(0, len(images), PIXELS)]


if __name__ == "__main__":
    answer(
        lambda module, threads: (
            observe(Compiled(module, threads)) if module.__name__ == "nn" else observe_frozen(module, threads)
        )
    )
