"""Trains compiled models and writes down every number that comes out. Needs nothing but the standard library.

    python driver.py MODULES NUMBERS DATA NAME...

runs each module NAME of the folder MODULES and writes NUMBERS/NAME: a line of JSON that says what ran, then for each
stage a line with its name, a tab and a count, and so many little-endian doubles. All inputs come from a seed; a run
holds them too, for the programs in plain/. Unless DATA is empty, NUMBERS/epoch is the run of an epoch of nn on the
images and labels in that folder.
"""

from __future__ import annotations

import importlib
import json
import platform
import random
import sys
from array import array
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

IMAGES = 40
BATCHES = (1, 1, 3, 2, 1)  # of the steps that are made by hand
LEARNING_RATE = 0.01
SEED = 7
EPOCH = "epoch"  # the name of its run
EPOCH_SEED = 1  # as in `micrograd train --epochs 1`
EPOCH_START, EPOCH_END = "before the epoch: parameters", "after the epoch: parameters"


class Examples:
    """Random inputs and targets for a model, four of five inputs 0."""

    def __init__(self, info: dict[str, Any]) -> None:
        rng = random.Random(SEED)
        self.inputs: int = info["inputs"]
        self.has_labels: bool = info.get("target_type", "label") == "label"
        self.targets = 0 if self.has_labels else int(info["targets"])
        real = typecode(info)
        count = IMAGES * self.inputs
        self.images: array[Any]
        self.labels: array[Any]
        if info["input_type"] == "uint8":
            ink = (1 + int(255 * rng.random()) for _ in range(count))
            self.images = array("B", (byte if rng.random() < 0.2 else 0 for byte in ink))
        else:
            self.images = array(real, (rng.uniform(-1, 1) if rng.random() < 0.2 else 0.0 for _ in range(count)))
        if self.has_labels:
            classes = info.get("targets", 1)
            self.labels = array("B", (rng.randrange(classes) for _ in range(IMAGES)))
        else:
            self.labels = array(real, (rng.uniform(-1, 1) for _ in range(IMAGES * self.targets)))

    def all(self) -> tuple[array[Any], array[Any] | None]:
        """What train() and evaluate() take."""
        return self.images, self.labels if self.labels else None

    def image(self, i: int) -> array[Any]:
        return self.images[i * self.inputs : (i + 1) * self.inputs]

    def target(self, i: int) -> int | array[Any] | None:
        if self.has_labels:
            return int(self.labels[i])
        return self.labels[i * self.targets : (i + 1) * self.targets] if self.targets else None


class Record:
    """The file of one module."""

    def __init__(self, file: BinaryIO, info: dict[str, Any]) -> None:
        self.file = file
        about = {"machine": platform.machine(), "byteorder": sys.byteorder, "info": info}
        file.write(json.dumps(about).encode() + b"\n")

    def numbers(self, stage: str, numbers: Iterable[float]) -> None:
        packed = array("d", list(numbers))  # bytes are numbers too
        if sys.byteorder == "big":
            packed.byteswap()
        self.file.write(f"{stage}\t{len(packed)}\n".encode() + packed.tobytes())


def typecode(info: dict[str, Any]) -> str:
    return "f" if info["dtype"] == "float32" else "d"


def tensors(module: ModuleType, views: dict[str, memoryview]) -> list[float]:
    """The numbers of state_dict() or grad_dict(), in the order of the names and in C order."""
    code = typecode(module.info())
    return [x for view in views.values() for x in array(code, view.tobytes())]


def state(module: ModuleType, record: Record, when: str) -> None:
    record.numbers(f"{when}: parameters", tensors(module, module.state_dict()))
    record.numbers(f"{when}: gradients", tensors(module, module.grad_dict()))


def start_again(module: ModuleType, seed: int) -> None:
    """Fresh weights. Models without declared distributions take no seed."""
    try:
        module.reset(seed)
    except ValueError:
        module.reset()


def step_by_step(module: ModuleType, examples: Examples, record: Record) -> None:
    """Batches by hand. One goes on from the gradients of the last, and some gradients are never looked at."""
    image = 0
    for step, size in enumerate(BATCHES):
        when = f"step {step}"
        if step != 3:
            module.zero_grad()
        for _ in range(size):
            record.numbers(
                f"{when}, image {image}: loss", [module.forward(examples.target(image), examples.image(image))]
            )
            module.backward()
            image += 1
        if step % 2:
            record.numbers(f"{when}: gradients", tensors(module, module.grad_dict()))
        module.update(step, size)
        record.numbers(f"{when}: parameters", tensors(module, module.state_dict()))


def predictions(module: ModuleType, examples: Examples, record: Record, when: str) -> None:
    """What inference says, image by image and in batches."""
    images, labels = examples.all()
    for i in range(5):
        for name, numbers in module.outputs(examples.image(i)).items():
            record.numbers(f"{when}, image {i}: {name}", numbers)
    for threads in (1, 2):
        if examples.has_labels:
            record.numbers(f"{when}: classes, {threads} threads", module.predict_batch(images, threads=threads))
        if hasattr(module, "evaluate"):
            loss, accuracy = module.evaluate(images, labels, threads=threads)
            record.numbers(f"{when}: loss, accuracy, {threads} threads", [loss, accuracy or 0.0])


def run(module: ModuleType, record: Record) -> None:
    examples = Examples(module.info())
    record.numbers("images", examples.images)
    record.numbers("targets", examples.labels)
    predictions(module, examples, record, "fresh")
    if not hasattr(module, "train"):
        return
    state(module, record, "fresh")
    step_by_step(module, examples, record)
    for batch_size, threads in ((1, 1), (10, 1), (10, 2)):
        when = f"trained by batches of {batch_size}, {threads} threads"
        start_again(module, SEED)
        state(module, record, f"{when}: start")
        losses = module.train(
            *examples.all(),
            batch_size=batch_size,
            learning_rate=LEARNING_RATE,
            epochs=2,
            seed=SEED,
            threads=threads,
        )
        record.numbers(f"{when}: losses", losses)
        state(module, record, when)
    predictions(module, examples, record, "trained")


def train_epoch(module: ModuleType, record: Record, data: Path) -> None:
    """Image by image, at the model's own learning rate."""
    start_again(module, EPOCH_SEED)
    record.numbers(EPOCH_START, tensors(module, module.state_dict()))
    images, labels = ((data / name).read_bytes() for name in ("images", "labels"))
    module.train(images, labels, seed=EPOCH_SEED)
    record.numbers(EPOCH_END, tensors(module, module.state_dict()))


def main(modules: str, numbers: str, data: str, *names: str) -> None:
    sys.path.insert(0, modules)
    for name in names:
        module = importlib.import_module(name)
        with Path(numbers, name).open("wb") as file:
            run(module, Record(file, module.info()))
    if data:
        module = importlib.import_module("nn")
        with Path(numbers, EPOCH).open("wb") as file:
            train_epoch(module, Record(file, module.info()), Path(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
