"""What large batches cost in accuracy: python -m benchmarks.large_batches

The net of `nn` with the schedule of `micrograd train`, at batches of 8 * k images: with the rate of batch 8, and with
that rate times the square root of k and times k; without the warm-up; and with five times the epochs. Medians over
seeds of the accuracy on the test set, of MNIST if $MICROGRAD_MNIST names it.
"""

from __future__ import annotations

import argparse
from statistics import median

import nn

from benchmarks.report import processor
from micrograd import schedules, training
from micrograd.data import mnist
from micrograd.schedules import Schedule

BATCHES = (8, 32, 128, 512, 1024, 4096)
BATCH, RATE = 8, 0.1  # the defaults of `micrograd train`
SEEDS = (1, 2, 3)
WARM = 0.1  # the share of the steps in which the rate rises


def schedule(rate: float, steps: int, is_warm: bool) -> Schedule:
    warm = round(WARM * steps) if is_warm else 0
    falling = schedules.cosine(rate, steps - warm, lowest=rate / 100)
    return schedules.linear_warmup(falling, warm) if warm else falling


def accuracy(data: mnist.Data, batch: int, rate: float, epochs: int, is_warm: bool) -> float:
    steps = epochs * -(-len(data.train_labels) // batch)
    found = []
    for seed in SEEDS:
        nn.reset(seed)
        try:
            history = training.fit(
                nn,
                data.train_images,
                data.train_labels,
                epochs=epochs,
                batch_size=batch,
                learning_rate=schedule(rate, steps, is_warm),
                seed=seed,
                test=(data.test_images, data.test_labels),
            )
            found.append(history.epochs[-1].test_accuracy)
        except training.DivergedError:
            found.append(0.0)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    data, epochs = mnist.load(), options.epochs
    print("# Accuracy of large batches\n\nWritten by `python -m benchmarks.large_batches`.\n")
    name = "the built-in digits" if "built-in" in data.source else "MNIST"
    print(f"{processor()}; {name}, {epochs} epochs, medians of {len(SEEDS)} seeds.\n")
    columns = {
        f"rate {RATE}": lambda k: (RATE, epochs, True),
        "times √k": lambda k: (RATE * k**0.5, epochs, True),
        "times k, at most 0.5": lambda k: (min(RATE * k, 0.5), epochs, True),
        "times k": lambda k: (RATE * k, epochs, True),
        "times k, no warm-up": lambda k: (RATE * k, epochs, False),
        "times √k, 5 times the epochs": lambda k: (RATE * k**0.5, 5 * epochs, True),
    }
    print(f"| batch | {' | '.join(columns)} |\n{'|---:' * (1 + len(columns))}|")
    for batch in BATCHES:
        cells = (f"{accuracy(data, batch, *settings(batch / BATCH)):.2%}" for settings in columns.values())
        print(f"| {batch:,} | {' | '.join(cells)} |".replace("%", " %"), flush=True)


if __name__ == "__main__":
    main()
