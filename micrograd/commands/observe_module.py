"""Everything observable about any compiled model in use, on inputs and targets that info() describes.

`python -m micrograd.commands.observe_module MODULE THREADS` prints it as JSON, as observations.py does for nn: {what:
its float64 numbers, their bytes in hexadecimal digits}, or null at a SIMD level that the processor does not have. It
needs only the standard library, and runs a generated Python module just as well.
"""

import ast
import random
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from micrograd.commands.comparison import answer

ROWS = 7
SEED = 2**40 + 7  # more than 32 bits
RATE = 0.03
PART = re.compile(r"(?:('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"): )?(\d+) (pixel|float|label|token)s?(?: below (\d+))?")


@dataclass(frozen=True)
class Part:
    """Numbers that are passed together: `kind` is pixel, float, label or token, and the last two are below `end`."""

    name: str
    count: int
    kind: str
    end: int = 256

    def draw(self, rng: random.Random) -> list[Any]:
        """The numbers of one example, most pixels of which are 0."""
        if self.kind == "float":
            return [rng.uniform(-1, 1) for _ in range(self.count)]
        if self.kind == "pixel":
            return [rng.randrange(256) if rng.random() < 0.2 else 0 for _ in range(self.count)]
        return [rng.randrange(self.end) for _ in range(self.count)]

    def one(self, row: list[Any]) -> Any:
        """As forward() takes it."""
        if self.kind == "pixel":
            return bytes(row)
        return row[0] if self.count == 1 and (self.name or self.kind in ("label", "token")) else row

    def many(self, rows: Sequence[list[Any]]) -> Any:
        """As train() takes it."""
        if self.kind == "pixel":
            return bytes(number for row in rows for number in row)
        return [row[0] for row in rows] if self.count == 1 else list(rows)


def parts(text: str, count: int) -> list[Part]:
    """The parts of info()'s input_type or target_type, with so many leaves."""
    plain = {"uint8": "pixel", "label": "label", "float64": "float", "float32": "float"}
    if text in plain:
        return [Part("", 1 if text == "label" else count, plain[text], count)] if count else []
    return [
        Part(ast.literal_eval(name) if name else "", int(number), kind, int(end or 0))
        for name, number, kind, end in PART.findall(text)
    ]


class Examples:
    """Random inputs and targets for a model."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        inputs, targets = random.Random(1), random.Random(2)  # so that a frozen model gets the same inputs
        self.inputs = parts(info["input_type"], info["inputs"])
        self.targets = parts(info.get("target_type", "none"), info.get("targets", 0))
        drawn = ((self.inputs, inputs), (self.targets, targets))
        self.rows = [[[part.draw(rng) for part in found] for found, rng in drawn] for _ in range(ROWS)]

    def one(self, number: int) -> tuple[Any, Any]:
        """The target and the inputs of an example."""
        inputs, targets = (
            _joined(known, [part.one(row) for part, row in zip(known, rows, strict=True)])
            for known, rows in zip((self.inputs, self.targets), self.rows[number], strict=True)
        )
        return targets, inputs

    def many(self) -> tuple[Any, Any]:
        """The inputs and the targets of all examples."""
        found = [
            _joined(known, [part.many([row[which][i] for row in self.rows]) for i, part in enumerate(known)])
            for which, known in enumerate((self.inputs, self.targets))
        ]
        return found[0], found[1]


def _joined(known: Sequence[Part], values: list[Any]) -> Any:
    """A mapping of named parts, one that has no name, or None."""
    if not known:
        return None
    return {part.name: value for part, value in zip(known, values, strict=True)} if known[0].name else values[0]


def observe(
    model: Any, threads: int, weights: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Sequence[float]]]:
    """Uses a model that trains, or one that only predicts, and yields each observation: a description, and numbers.

    With weights, a model that trains is used as the frozen one that has them.
    """
    examples = Examples(model.info())
    if weights is not None:
        model.load_state_dict(weights)
        yield from _predictions(model, examples, threads)
        return
    if hasattr(model, "train"):
        yield from _training(model, examples, threads)
    yield from _predictions(model, examples, threads)


def _training(model: Any, examples: Examples, threads: int) -> Iterator[tuple[str, Sequence[float]]]:
    yield from _tensors("the weights at import:", model.state_dict())
    try:
        model.reset(SEED)
    except ValueError:  # a model without declared distributions takes no seed
        model.reset()
    yield from _tensors("the weights after reset():", model.state_dict())
    for batch in ([0], [1, 2, 3]):
        model.zero_grad()
        for number in batch:
            target, inputs = examples.one(number)
            yield f"the loss of example {number}", [model.forward(target, inputs)]
            model.backward()
        yield from _tensors(f"the gradients of a batch of {len(batch)}:", model.grad_dict())
        model.update(0, len(batch), learning_rate=RATE)
        yield from _tensors(f"after a step of {len(batch)}:", model.state_dict())
    inputs, targets = examples.many()
    for batch_size in (1, 3):
        options = {"batch_size": batch_size, "learning_rate": RATE, "seed": SEED, "epochs": 2, "threads": threads}
        yield f"the losses of train() in batches of {batch_size}", model.train(inputs, targets, **options)
        yield from _tensors(f"after train() in batches of {batch_size}:", model.state_dict())
    yield "the loss of evaluate()", model.evaluate(inputs, targets, threads=threads)[:1]


def _predictions(model: Any, examples: Examples, threads: int) -> Iterator[tuple[str, Sequence[float]]]:
    for number in range(ROWS):
        _, inputs = examples.one(number)
        for name, numbers in model.outputs(inputs).items():
            yield f"the output {name!r} of example {number}", numbers
    inputs, _ = examples.many()
    for name, view in model.outputs_batch(inputs, threads=threads).items():
        yield f"the output {name!r} of all examples", _numbers(view)


def _tensors(what: str, tensors: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[float]]]:
    for name, view in tensors.items():
        yield f"{what} {name}", _numbers(view)


def _numbers(view: Any) -> Sequence[float]:
    """The numbers of a buffer, whatever its strides, in C order."""
    view = memoryview(view)
    return array(view.format, view.tobytes())


if __name__ == "__main__":
    answer(observe)
