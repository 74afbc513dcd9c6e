"""Data-parallel training on MPI: one model, as many processes as there are ranks, each with a part of every batch.

    from micrograd import mpi, training

    model = mpi.Trainer(nn)
    history = training.fit(model, images, labels, batch_size=1000)

Run it with `mpiexec -n 4 python -m mpi4py script.py`. Every rank has all of the data and all of the parameters.
"""

from __future__ import annotations

import random
import signal
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

MODES = ("tree", "exact", "fast")


class Stopped(KeyboardInterrupt):
    """train() ended before its last step, after the same step on every rank, because one of them was to stop."""


class Trainer:
    """A compiled model that trains on all ranks of a communicator; every other attribute is the model's own.

    model: `nn` or whatever codegen.compile() returns, with the same parameters on every rank.
    comm: of mpi4py; MPI.COMM_WORLD by default.
    """

    def __init__(self, model: Any, comm: Any = None, *, mode: str = "tree") -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        self.model = model
        self.comm = world() if comm is None else comm
        self.mode = mode
        self.rank: int = self.comm.Get_rank()
        self.ranks: int = self.comm.Get_size()
        self.stop = False  # set by anyone, on any rank: train() raises Stopped on all of them after the same step

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def train(
        self,
        images: Any,
        labels: Any,
        *,
        batch_size: int = 1,
        learning_rate: Any = None,
        epochs: int = 1,
        seed: int | None = None,
        threads: int = 1,
        progress: Callable[[int, int, float], object] | None = None,
        check_finite: bool = False,
    ) -> list[float]:
        """What model.train() does, by all ranks together: they call it with the same arguments."""
        import numpy as np

        from micrograd.training import count_examples

        count = count_examples(self.model, images, labels)
        rows = np.asarray(images).reshape(count, -1)
        targets = None if labels is None else np.asarray(labels)
        if targets is not None:
            targets = targets.reshape(count, -1)
        order = list(range(count))
        shuffler = None if seed is None else random.Random(seed)
        losses, steps = [], -(-count // batch_size)
        views = self.model.grad_dict()
        with self._handled_signals():
            for epoch in range(epochs):
                if shuffler is not None:
                    shuffler.shuffle(order)
                total = 0.0
                for first in range(0, count, batch_size):
                    chosen = order[first : first + batch_size]
                    mine = chosen[len(chosen) * self.rank // self.ranks : len(chosen) * (self.rank + 1) // self.ranks]
                    self.model.zero_grad()
                    loss = 0.0
                    if mine:
                        mine_targets = None if targets is None else np.ascontiguousarray(targets[mine])
                        loss = self.model.accumulate(np.ascontiguousarray(rows[mine]), mine_targets, threads=threads)
                    numbers = array("d", [loss, float(self.stop)])
                    self._sum(numbers)
                    for view in views.values():
                        whole = np.ascontiguousarray(view)
                        self._sum(whole)
                        np.asarray(view)[...] = whole
                    step = epoch * steps + first // batch_size
                    rate = learning_rate(step) if callable(learning_rate) else learning_rate
                    self.model.update(step, len(chosen), learning_rate=rate)
                    total += numbers[0]
                    done = first + len(chosen)
                    if progress is not None:
                        progress(epoch * count + done, epochs * count, total / done)
                    if numbers[1]:
                        raise Stopped(f"stopped after step {step + 1}")
                losses.append(total / count)
        return losses

    def _sum(self, numbers: Any) -> None:
        from mpi4py import MPI

        self.comm.Allreduce(MPI.IN_PLACE, numbers)

    @contextmanager
    def _handled_signals(self) -> Iterator[None]:
        """A signal that would raise on this rank alone stops all of them; then it raises here."""
        before: dict[int, Any] = {}
        seen: list[int] = []

        def stop(number: int, _frame: FrameType | None) -> None:
            self.stop = True
            seen.append(number)

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(signal.getsignal(number)):
                    before[number] = signal.signal(number, stop)
        try:
            yield
        except Stopped:
            self.stop = False
            for number in seen[:1]:
                before[number](number, None)
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def world() -> Any:
    """MPI.COMM_WORLD. Raises ImportError that says what to install."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError("micrograd.mpi needs mpi4py: pip install mpi4py") from error
    except RuntimeError as error:  # it installs without an MPI library
        raise ImportError(f"mpi4py found no MPI library ({error}): pip install mpich") from error
    return MPI.COMM_WORLD
