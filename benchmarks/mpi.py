"""Two ranks on one machine, against one and two threads and PyTorch's DistributedDataParallel over gloo:

    python -m benchmarks.mpi --output benchmarks

A system runs in processes of its own, which measure all batches and end: waiting ranks spin, and would disturb the
others. The systems take turns. Of each round the fastest epoch counts, during which nothing else ran, and of the rounds
the median. Before it is timed, every system trains an epoch in the same order from the same weights, and its loss must
be that of nn.train: to the bit if it promises that, else closely. `nn` shuffles each epoch; PyTorch's batches are cut
beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.__main__ import machine
from benchmarks.report import number
from micrograd.data import mnist
from micrograd.files import write_whole

BATCHES = (64, 1_000, 10_000)
RATE = 0.05
EPOCHS = 3  # of a round, timed
RANKS = 2
TOLERANCE = 1e-6  # of a loss, relative

TRAIN = {f"nn.train, {count} thread{'s' * (count > 1)}": count for count in (1, 2)}
MODES = {f"Trainer, {mode}": mode for mode in ("tree", "exact", "fast")}
DDP = {f"PyTorch DDP, gloo, {dtype}": dtype for dtype in ("float64", "float32")}
SYSTEMS = (*TRAIN, *MODES, *DDP)
EXACT = (*TRAIN, "Trainer, exact")
ONE = "nn.train, 1 thread"

# Sets the first weights; an epoch of a batch size, shuffled with a seed, which returns its mean loss
System = tuple[Callable[[], object], Callable[[int, int | None], float]]


def of_nn(model: Any, data: mnist.Data, threads: int) -> System:
    def epoch(batch: int, seed: int | None) -> float:
        [loss] = model.train(
            data.train_images, data.train_labels, batch_size=batch, learning_rate=RATE, seed=seed, threads=threads
        )
        return float(loss)

    return lambda: model.reset(1), epoch


def of_ddp(data: mnist.Data, dtype: str) -> tuple[System, int]:
    """The same net, each rank with its half of each batch."""
    import nn
    import numpy as np
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    kind = getattr(torch, dtype)
    net = torch.nn.Sequential(torch.nn.Linear(784, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10)).to(kind)
    model = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, foreach=True)
    pixels = torch.tensor(np.frombuffer(data.train_images, np.uint8).reshape(-1, 784) / 255, dtype=kind)
    labels = torch.tensor(np.frombuffer(data.train_labels, np.uint8), dtype=torch.int64)

    def reset() -> None:
        nn.reset(1)
        with torch.no_grad():
            for parameter, weights in zip(net.parameters(), nn.state_dict().values(), strict=True):
                parameter.copy_(torch.tensor(np.asarray(weights)))

    def epoch(batch: int, _seed: int | None) -> float:
        total = torch.zeros((), dtype=torch.float64)
        for x, y in zip(pixels.split(batch), labels.split(batch), strict=True):
            first, end = len(y) * rank // ranks, len(y) * (rank + 1) // ranks
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[first:end]), y[first:end], reduction="sum")
            (loss * (ranks / len(y))).backward()  # DDP takes the mean of the ranks' gradients
            optimizer.step()
            total += loss.detach()
        distributed.all_reduce(total)
        return float(total) / len(labels)

    return (reset, epoch), rank


def work(system: str, count: int) -> None:
    """Prints, on the first rank, for each batch the loss of an epoch and microseconds an image."""
    import nn

    whole = mnist.load()
    data = mnist.Data(whole.train_images[: 784 * count], whole.train_labels[:count], b"", b"", whole.source)
    rank = 0
    if system in DDP:
        (reset, epoch), rank = of_ddp(data, DDP[system])
    elif system in MODES:
        from micrograd.mpi import Trainer

        trainer = Trainer(nn, mode=MODES[system])
        (reset, epoch), rank = of_nn(trainer, data, 1), trainer.rank
    else:
        reset, epoch = of_nn(nn, data, TRAIN[system])
    found = {}
    for batch in BATCHES:
        reset()
        loss, times = epoch(batch, None), []
        for seed in range(EPOCHS):
            start = perf_counter()
            epoch(batch, seed)
            times.append(perf_counter() - start)
        found[batch] = loss, 1e6 * min(times) / count
    if rank == 0:
        print(json.dumps(found), flush=True)


def command(system: str, mpiexec: str) -> list[str]:
    launcher = []
    if system in MODES:
        launcher = [*mpiexec.split(), "-n", str(RANKS)]
    elif system in DDP:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
        return [*launcher, "-m", "benchmarks.mpi"]
    return [*launcher, sys.executable, "-m", "benchmarks.mpi"]


def measure(system: str, options: argparse.Namespace) -> dict[int, tuple[float, float]]:
    words = [*command(system, options.mpiexec), "--worker", system, "--images", str(options.images)]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"{system} failed:\n{done.stdout}{done.stderr}")
    return {int(batch): tuple(found) for batch, found in json.loads(done.stdout.splitlines()[-1]).items()}


def check(system: str, found: float, expected: float) -> None:
    """DDP in float32 rounds otherwise, at every step."""
    allowed = 0.0 if system in EXACT else 1e-3 if system.endswith("32") else TOLERANCE
    if not abs(found - expected) <= allowed * expected:
        raise RuntimeError(f"{system}: its loss is {found!r}, nn.train's {expected!r}: it does not learn the same")


def table(times: dict[str, dict[int, list[float]]]) -> str:
    """Medians of the rounds, and how many times as fast as nn.train with one thread."""
    lines = [f"| µs an image | {' | '.join(f'batch {batch:,}' for batch in BATCHES)} |", "|---" + "|---:" * 3 + "|"]
    one = {batch: median(times[ONE][batch]) for batch in BATCHES}
    for system, of_batch in times.items():
        cells = []
        for batch in BATCHES:
            found = median(of_batch[batch])
            spread = f"{number(min(of_batch[batch]))} to {number(max(of_batch[batch]))}"
            ratio = "" if system == ONE else f", **{one[batch] / found:.2f}**"
            cells.append(f"{number(found)} ({spread}){ratio}")
        lines.append(f"| {system} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=60_000, help="of an epoch")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, metavar="NAME", help="not all")
    beside = Path(sys.executable).with_name("mpiexec")
    default = str(beside if beside.exists() else shutil.which("mpiexec") or "mpiexec")
    parser.add_argument("--mpiexec", default=default, help="the launcher, with its options")
    parser.add_argument("--output", type=Path, help="folder for mpi.md")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.images)
        return
    systems = list(dict.fromkeys([ONE, *options.systems]))
    times: dict[str, dict[int, list[float]]] = {system: {batch: [] for batch in BATCHES} for system in systems}
    expected: dict[int, float] = {}
    load = os.getloadavg()[0]  # of other work: ranks that spin suffer from it most
    for number_of_round in range(options.rounds):
        for system in systems:
            for batch, (loss, micros) in measure(system, options).items():
                check(system, loss, expected.setdefault(batch, loss))
                times[system][batch].append(micros)
            print(f"round {number_of_round + 1}: {system}", file=sys.stderr, flush=True)
    mpi = subprocess.run([*options.mpiexec.split(), "--version"], capture_output=True, text=True).stdout
    versions = [f"{name} {version(name)}" for name in ("mpi4py", "torch", "numpy")]
    library = " ".join(mpi.split()[:5]).replace("HYDRA build details: Version:", "MPICH")
    text = "\n\n".join(
        [
            "# Two ranks, two threads, two processes of PyTorch",
            "Written by `python -m benchmarks.mpi`. Training of 784-50-10, two ranks with a thread each.",
            f"{machine()}; {library}, {', '.join(versions)}. {options.rounds} rounds, all systems in turns; "
            f"before them, the load was {load:.1f}.",
            table(times),
        ]
    )
    print(text)
    if options.output is not None:
        write_whole(options.output / "mpi.md", f"{text}\n".encode())


if __name__ == "__main__":
    main()
