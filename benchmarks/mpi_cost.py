"""When more ranks pay: the time of a step from four constants, which this measures.

    mpiexec -n 4 python -m benchmarks.mpi_cost
    python -m benchmarks.mpi_cost --latency 2 --gigabits 100      for a network that is not there

A step at the global batch B on p ranks takes

    image * B / p  +  update  +  2 * log2(p) * latency  +  2 * (p - 1) / p * bytes / bandwidth

The last two terms are an Allreduce by recursive halving and doubling, as MPI libraries do it for buffers of this size:
2 * log2(p) messages one after the other, in which a rank sends all bytes but its own share twice. The table has
speed-ups against one rank, and the batch from which each rank is half as efficient as one alone.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks.report import processor

RANKS = (2, 4, 8, 16, 64)
BATCHES = (64, 256, 1_000, 4_096, 10_000, 60_000)
IMAGES = 10_000  # to measure the time of an image with
SMALL = 64  # images of a step to measure an update with
REPEATS = 30


@dataclass(frozen=True)
class Constants:
    """Microseconds, and bytes."""

    image: float  # forward and backward, on a rank
    update: float  # zero_grad() and update()
    latency: float  # of a message
    byte: float  # sent
    size: int  # of the gradients, in bytes

    def allreduce(self, ranks: int) -> float:
        return 2 * math.ceil(math.log2(ranks)) * self.latency + 2 * (ranks - 1) / ranks * self.size * self.byte

    def step(self, batch: int, ranks: int) -> float:
        return self.image * batch / ranks + self.update + self.allreduce(ranks)

    def speedup(self, batch: int, ranks: int) -> float:
        return self.step(batch, 1) / self.step(batch, ranks)

    def half_efficient(self, ranks: int) -> float:
        """The batch at which the speed-up is ranks / 2: step(batch, 1) = ranks / 2 * step(batch, ranks)."""
        return (ranks * (self.allreduce(ranks) + self.update) - 2 * self.update) / self.image


def fastest(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Microseconds of the fastest of several calls: those during which nothing else ran."""
    found = []
    for _ in range(REPEATS):
        before()
        start = perf_counter()
        work()
        found.append(perf_counter() - start)
    return 1e6 * min(found)


def compute() -> tuple[float, float, int]:
    """Microseconds of an image and of an update, and bytes of the gradients."""
    import nn

    from micrograd.data import mnist

    data = mnist.load()
    images, labels = data.train_images[: 784 * IMAGES], data.train_labels[:IMAGES]
    few, few_labels = images[: 784 * SMALL], labels[:SMALL]

    def step() -> None:
        nn.zero_grad()
        nn.accumulate(few, few_labels)
        nn.update(0, SMALL, learning_rate=1e-9)

    image = fastest(lambda: nn.accumulate(images, labels)) / len(labels)
    update = fastest(step) - fastest(lambda: nn.accumulate(few, few_labels))
    return image, max(update, 0.0), 8 * int(nn.info()["parameters"])


def communication(comm: Any, size: int) -> tuple[float, float]:
    """Microseconds of a message without content, and of a byte, as an Allreduce on all ranks meets them."""
    import numpy as np
    from mpi4py import MPI

    def allreduce(count: int) -> float:
        numbers = np.zeros(count)
        return max(comm.allgather(fastest(lambda: comm.Allreduce(MPI.IN_PLACE, numbers), comm.Barrier)))

    ranks = comm.Get_size()
    short, long = allreduce(1), allreduce(size // 8)
    return short / (2 * math.ceil(math.log2(ranks))), max(long - short, 0.0) / (2 * (ranks - 1) / ranks * size)


def table(constants: Constants) -> str:
    lines = ["| ranks \\ batch | " + " | ".join(f"{batch:,}" for batch in BATCHES) + " | half as efficient from |"]
    lines.append("|---:" * (len(BATCHES) + 2) + "|")
    for ranks in RANKS:
        cells = " | ".join(f"{constants.speedup(batch, ranks):.2g}" for batch in BATCHES)
        lines.append(f"| {ranks} | {cells} | {float(f'{constants.half_efficient(ranks):.2g}'):,.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=float, metavar="US", help="of an image, instead of this machine's")
    parser.add_argument("--update", type=float, metavar="US", help="of an update, instead of this machine's")
    parser.add_argument("--latency", type=float, metavar="US", help="of a message, instead of measuring it")
    parser.add_argument("--gigabits", type=float, metavar="G", help="a second, instead of measuring them")
    options = parser.parse_args()
    image, update, size = compute()
    where, rank = f"{processor()}, {os.cpu_count()} CPUs", 0
    if options.latency is None or options.gigabits is None:
        from micrograd import mpi

        comm = mpi.world()
        if comm.Get_size() == 1:
            parser.error("start it by mpiexec -n 2, or more, or give --latency and --gigabits")
        rank, (latency, byte) = comm.Get_rank(), communication(comm, size)
        image, update = max(comm.allgather(image)), max(comm.allgather(update))
        where += f", {comm.Get_size()} ranks"
    latency = latency if options.latency is None else options.latency
    byte = byte if options.gigabits is None else 8e-3 / options.gigabits
    image = image if options.image is None else options.image
    update = update if options.update is None else options.update
    if rank == 0:
        constants = Constants(image, update, latency, byte, size)
        print(f"{where}: {image:.2f} us an image, {update:.1f} us an update, {size:,} bytes of gradients,")
        print(f"{latency:.2f} us latency, {8e-3 / byte:.0f} Gbit/s\n")
        print(table(constants))


if __name__ == "__main__":
    main()
