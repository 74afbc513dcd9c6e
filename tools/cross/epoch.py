"""A whole epoch of the model on every platform, and the hash of its weights.

Example: where $MICROGRAD_MNIST names MNIST's files, every platform must end with the weights that

    micrograd train --epochs 1 --batch-size 1 --learning-rate 0.008 --schedule constant --shift 0 --hash

has here, 46231f126afdbbe9... Without these files the built-in digits take their place, drawn here, once, for all
platforms.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

from micrograd.commands.train import weights_hash
from micrograd.data import mnist
from tools.cross.compare import Run
from tools.cross.driver import EPOCH_END, EPOCH_SEED, EPOCH_START

IN_ORDER = "in order"  # a file of write()


def load() -> mnist.Data:
    """The real digits if there are any, without a download."""
    return mnist.load(source="auto" if os.environ.get("MICROGRAD_MNIST") else "digits")


def write(folder: Path, images: bytes, labels: bytes) -> None:
    """The images and labels as driver.py takes them, and label, image, label, ... in the order of nn.train(seed)."""
    folder.mkdir()
    (folder / "images").write_bytes(images)
    (folder / "labels").write_bytes(labels)
    order = list(range(len(labels)))
    random.Random(EPOCH_SEED).shuffle(order)
    pixels = np.frombuffer(images, np.uint8).reshape(len(labels), -1)
    examples = np.column_stack([np.frombuffer(labels, np.uint8), pixels])
    (folder / IN_ORDER).write_bytes(examples[order].tobytes())


def given(native: Run, folder: Path) -> bytes:
    """What a program of plain/ takes: the first parameters of this machine's epoch, and the examples in order."""
    parameters = native.stages[EPOCH_START]
    header = f"\n{EPOCH_START}\t{len(parameters)}\n"
    return header.encode() + parameters.tobytes() + (folder / IN_ORDER).read_bytes()


def sha256(epoch: Run) -> str:
    return weights_hash({"all": epoch.stages[EPOCH_END].data})
