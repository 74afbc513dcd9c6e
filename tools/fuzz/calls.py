"""Targets `calls`, `train` and `load`: sequences of calls of compiled modules, and what has to hold.

Each sequence runs twice, on a module and on its twin, which is compiled in another way. Both must answer the same by
bits, with the same errors in the same words. After every sequence the module must compute the same step of training
again as when it was new.
"""

from __future__ import annotations

import gc
import random
from array import array
from types import ModuleType

from tools.fuzz.choices import Choices
from tools.fuzz.common import Wrong
from tools.fuzz.models import Pair
from tools.fuzz.objects import content
from tools.fuzz.session import Session, encode


class Calls:
    """A target: all models of it, ready to be called."""

    def __init__(self, operations: str, pairs: list[Pair]) -> None:
        self.operations, self.pairs = operations, pairs
        self.steps = {pair.name: [fresh_step(pair, module) for module in pair.modules] for pair in pairs}

    def __call__(self, data: bytes) -> None:
        """Raises Wrong where something does not hold."""
        first = Choices(data)
        number = first.byte()  # the last one is large and slow
        pair = self.pairs[-1] if number == 255 else self.pairs[number % max(len(self.pairs) - 1, 1)]
        rest = first.rest()
        transcripts = [Session(pair, module, Choices(rest), self.operations).run() for module in pair.modules]
        for one, other in zip(*transcripts, strict=True):
            if one != other:
                raise Wrong(f"{pair.name} and its twin differ: {one} and {other}")
        gc.collect(0)
        for module, step in zip(pair.modules, self.steps[pair.name], strict=True):
            if fresh_step(pair, module) != step:
                raise Wrong(f"{pair.name} does not compute what it did when it was new")


def fresh_step(pair: Pair, module: ModuleType) -> object:
    """A step of training from fresh weights on an input that never changes."""
    c = Choices(bytes([3, 3]))
    counts = pair.inputs, pair.targets
    given, labels = (array(t or "B", content(c, n, t or "B")) for t, n in zip(pair.typecodes, counts, strict=True))
    inputs: object = given
    if pair.parts:
        inputs = {part.name: [i % max(part.classes, 2) for i in range(part.numbers)] for part in pair.parts}
    if not hasattr(module, "forward"):
        return encode(module.outputs(inputs))
    pair.renew(module)
    target: object = labels if pair.typecodes[1] else 0 if pair.targets else None
    losses = [module.forward(target, inputs)]
    module.backward()
    module.update(0, 2)
    losses.append(module.forward(target, inputs))
    return encode(losses)


def seeds() -> list[bytes]:
    """Some sequences to begin with, for each of the first models."""
    draw = random.Random(1)
    return [bytes([255 if i == 10 else i % 10]) + draw.randbytes(8 + 8 * (i % 25)) for i in range(100)]
