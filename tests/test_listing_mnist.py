"""The essay's mnist.py as usage: idx files read by struct, a softmax by Max, batches, plain descent on Values."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from test_listings import stable_softmax

from micrograd.engine import Value
from micrograd.nn import MLP

COUNT, SIDE, CLASSES = 4, 28, 10


def write(folder: Path) -> None:
    rng = random.Random(1)
    pixels = bytes(rng.randrange(256) if rng.random() < 0.2 else 0 for _ in range(COUNT * SIDE * SIDE))
    (folder / "images").write_bytes(struct.pack(">4L", 0x803, COUNT, SIDE, SIDE) + pixels)
    (folder / "labels").write_bytes(struct.pack(">2L", 0x801, COUNT) + bytes(range(COUNT)))


class Images:
    """An iterator over label and pixels."""

    def __init__(self, images: Path, labels: Path) -> None:
        self.images, self.labels = images.open("rb"), labels.open("rb")
        assert struct.unpack(">4L", self.images.read(16)) == (0x803, COUNT, SIDE, SIDE)
        assert struct.unpack(">2L", self.labels.read(8)) == (0x801, COUNT)

    def __iter__(self) -> Images:
        return self

    def __next__(self) -> tuple[int, list[int]]:
        label = self.labels.read(1)
        if not label:
            self.images.close()
            self.labels.close()
            raise StopIteration
        return ord(label), list(self.images.read(SIDE * SIDE))


def loss_of(model: MLP, label: int, pixels: list[int]) -> Value:
    output = stable_softmax(model([x / 255 for x in pixels]))
    onehot = [float(i == label) for i in range(CLASSES)]
    return -sum(exp * (act + 0.0001).log() for exp, act in zip(onehot, output, strict=True))


def test_mnist_in_batches(tmp_path: Path):
    write(tmp_path)
    db = list(Images(tmp_path / "images", tmp_path / "labels"))
    random.seed(1)
    model = MLP(SIDE * SIDE, [6, CLASSES], init="fan_in")
    losses = []
    for _ in range(3):
        epoch_loss = 0.0
        for start in range(0, COUNT, 2):
            for p in model.parameters():
                p.grad = 0.0
            loss = sum((loss_of(model, label, pixels) for label, pixels in db[start : start + 2]), Value(0.0))
            loss.backward()
            epoch_loss += loss.data
            for p in model.parameters():
                p.data -= 0.1 * p.grad
        losses.append(epoch_loss / len(db))
    assert losses[2] < losses[1] < losses[0] < 3.0
