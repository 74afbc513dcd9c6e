"""Training while views are alive: python -m benchmarks.views

Eight views, of all tensors of nn and of all their gradients: none of them alive, alive, and written before each call.
Microseconds an image of train(), and of single calls, which look for what has been written each time. The cases take
turns, and each cell is the fastest of all rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import nn
import numpy as np

from benchmarks.report import processor
from micrograd.data.digits import generate

IMAGES, STEPS = 6000, 1000
RATE = 1e-6
CASES = ("none", "alive", "written")


def views() -> list[np.ndarray]:
    return [np.asarray(view) for tensors in (nn.state_dict(), nn.grad_dict()) for view in tensors.values()]


def measured(work: Callable[[], object], images: int, rounds: int) -> list[float]:
    """Microseconds an image of each case."""
    fastest = [float("inf")] * len(CASES)
    for _ in range(rounds):
        for i, case in enumerate(CASES):
            nn.reset(1)
            alive = views() if case != "none" else []
            for view in alive if case == "written" else []:
                view += 0.0
            start = perf_counter()
            work()
            fastest[i] = min(fastest[i], 1e6 * (perf_counter() - start) / images)
            del alive
    return fastest


def tasks() -> dict[str, tuple[Callable[[], object], int]]:
    images, labels = generate(IMAGES)
    few = [(label, images[784 * i : 784 * i + 784]) for i, label in enumerate(labels[:STEPS])]

    def step() -> None:
        for label, pixels in few:
            nn.zero_grad()
            nn.forward(label, pixels)
            nn.backward()
            nn.update(learning_rate=RATE)

    def predict() -> None:
        for _, pixels in few:
            nn.predict(pixels)

    found: dict[str, tuple[Callable[[], object], int]] = {
        f"train(), batch {size}": (
            lambda size=size: nn.train(images, labels, batch_size=size, learning_rate=RATE),  # type: ignore[misc]
            IMAGES,
        )
        for size in (1, 64, 1000)
    }
    return found | {
        "accumulate()": (lambda: nn.accumulate(images, labels), IMAGES),
        "predict_batch()": (lambda: nn.predict_batch(images), IMAGES),
        "zero_grad, forward, backward, update": (step, STEPS),
        "predict()": (predict, STEPS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print(f"{processor()}; us an image, float64, one thread, the fastest of {options.rounds} rounds")
    print(f"{'':38}" + "".join(f"{case:>9}" for case in CASES) + f"{'ratios':>14}")
    for name, (work, images) in tasks().items():
        times = measured(work, images, options.rounds)
        ratios = "".join(f"{time / times[0]:7.2f}" for time in times[1:])
        print(f"{name:38}" + "".join(f"{time:9.2f}" for time in times) + ratios, flush=True)


if __name__ == "__main__":
    main()
