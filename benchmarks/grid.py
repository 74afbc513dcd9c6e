"""Images that plain SGD needs until 97 % of MNIST's test set are right: `python -m benchmarks.grid`, once.

Every system takes the same steps, so how many images it takes depends on the batch size and the learning rate and not
on the system, and the search can be ours. benchmarks/grid.md is what it prints. accuracy.py uses its best rates.
"""

from __future__ import annotations

import math
import statistics
from itertools import count

from benchmarks.ours import module
from benchmarks.tasks import SMALL, Data
from micrograd.data import mnist

SIZES = (1, 2, 4, 8, 16, 30, 60, 120, 240)
RATES = (0.005, 0.008, 0.012, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.8, 1.2)
PART, GOAL, MOST = 6_000, 0.97, 600_000
SEEDS = (1, 2, 3, 4, 5)


def images_needed(data: Data, batch: int, rate: float, seed: int) -> float:
    """Training goes through the file as it stands, again and again, and looks at the test set every 6,000 images."""
    nn, _ = module(SMALL, "f64", "strict")
    nn.reset(seed)
    for part in count():
        if part * PART >= MOST:
            return math.inf
        first = part * PART % 60_000
        images, labels = data.images[first : first + PART], data.labels[first : first + PART]
        nn.train(images, labels, batch_size=batch, learning_rate=rate)
        if nn.evaluate(data.test_images, data.test_labels)[1] >= GOAL:
            return (part + 1) * PART
    raise AssertionError


def main() -> None:
    data = Data.of(mnist.load(None))
    print(f"# Images until {GOAL:.0%} of MNIST's test set, in thousands\n")
    print(f"784-50-10, plain SGD, a look at the test set every {PART:,} images, median of {len(SEEDS)} initialisations")
    print(f"(all of them in brackets); - is more than {MOST:,}. Written by `python -m benchmarks.grid`.\n")
    print("| batch | learning rate | thousands of images |\n|---:|---:|---|")
    for i, batch in enumerate(SIZES):
        first = i + (i > 3)
        for rate in RATES[first : first + 4]:
            needed = [images_needed(data, batch, rate, seed) for seed in SEEDS]
            words = ["-" if math.isinf(n) else f"{n / 1000:g}" for n in [statistics.median(needed), *needed]]
            print(f"| {batch} | {rate:g} | {words[0]} ({', '.join(words[1:])}) |", flush=True)


if __name__ == "__main__":
    main()
