"""Trains the weights that the wheel's nn_infer predicts with: python weights/train.py, half a minute.

It takes the real MNIST, which the README says how to get, and an installed nn. 55,000 of the training images, each
epoch moved by at most one pixel in each direction, 60 epochs in batches of 8, the learning rate falling along a cosine:
of five such recipes the one that did best on the other 5,000. The weights are rounded to float16, which is how the file
stores them. nn_infer stores them as int8, and reads 98.21 % of the test set instead of 98.20 %.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import nn
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from micrograd.data import mnist

HELD_OUT, EPOCHS, BATCH, SEED = 5_000, 60, 8, 1
FASTEST, SLOWEST = 0.1, 0.001  # learning rates

Images = npt.NDArray[np.uint8]


def moved(images: Images, rng: np.random.Generator) -> Images:
    """Each image moved by -1, 0 or 1 pixels along each axis."""
    count, height, width = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, (2, count))
    rows = down[:, None] + np.arange(height)
    columns = right[:, None] + np.arange(width)
    return padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("mnist.safetensors"))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()

    data = mnist.load()
    if data.source == "the built-in digits":
        raise SystemExit("these weights are for the real MNIST, which is not here: set MICROGRAD_MNIST to its folder")
    images = np.frombuffer(data.train_images, np.uint8).reshape(-1, 28, 28)[:-HELD_OUT]
    labels = data.train_labels[:-HELD_OUT]
    rng = np.random.default_rng(SEED)
    nn.reset(SEED)
    for epoch in range(options.epochs):
        rate = SLOWEST + (FASTEST - SLOWEST) * (1 + math.cos(math.pi * epoch / options.epochs)) / 2
        nn.train(moved(images, rng), labels, batch_size=BATCH, learning_rate=rate, seed=SEED + epoch)

    # In C order: safetensors writes an array's memory as it lies.
    weights = {name: np.array(view, dtype=np.float16, order="C") for name, view in nn.state_dict().items()}
    nn.load_state_dict({name: tensor.astype(np.float64) for name, tensor in weights.items()})
    held = nn.evaluate(data.train_images[-HELD_OUT * 784 :], data.train_labels[-HELD_OUT:])[1]
    test = nn.evaluate(data.test_images, data.test_labels)[1]
    print(f"held out {held:.2%}, test set {test:.2%}")
    save_file(weights, options.output, {"command": "python weights/train.py", "test accuracy": f"{test:.4f}"})


if __name__ == "__main__":
    main()
