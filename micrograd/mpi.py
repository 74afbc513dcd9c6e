"""Data-parallel training on MPI: one model, as many processes as there are ranks, each with a part of every batch.

    from micrograd import mpi, training

    model = mpi.Trainer(nn)
    history = training.fit(model, images, labels, batch_size=1000)

Run it with `mpiexec -n 4 python -m mpi4py script.py`. Every rank has all of the data and all of the parameters.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

MODES = ("tree", "exact", "fast")


class Stopped(KeyboardInterrupt):
    """train() ended before its last step, after the same step on every rank, because one of them was to stop."""


class Exchange:
    """What csrc/shares.h asks for: each method is called by all ranks, with buffers of bytes."""

    def __init__(self, comm: Any, dtype: str) -> None:
        from mpi4py import MPI

        self.comm = comm
        self.stop = False
        self.bytes, self.in_place = MPI.BYTE, MPI.IN_PLACE
        self.real = MPI.FLOAT if dtype == "float32" else MPI.DOUBLE

    def sum(self, buffer: memoryview) -> None:
        self.comm.Allreduce(self.in_place, [buffer, self.real])

    def gather(self, buffer: memoryview, counts: tuple[int, ...]) -> None:
        self.comm.Allgatherv(self.in_place, [buffer, (counts, None), self.bytes])

    def trade(
        self, sent: memoryview, received: memoryview, sent_counts: tuple[int, ...], received_counts: tuple[int, ...]
    ) -> None:
        self.comm.Alltoallv([sent, (sent_counts, None), self.bytes], [received, (received_counts, None), self.bytes])

    def stopped(self, steps: int) -> None:
        raise Stopped(f"stopped after step {steps}")


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
        self.exchange = Exchange(self.comm, model.info()["dtype"])

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
        share = self.model._train_shared
        with self._handled_signals():
            losses: list[float] = share(
                self.exchange,
                MODES.index(self.mode),
                self.rank,
                self.ranks,
                images,
                labels,
                batch_size=batch_size,
                learning_rate=learning_rate,
                epochs=epochs,
                seed=seed,
                threads=threads,
                progress=progress,
                check_finite=check_finite,
            )
        return losses

    @property
    def stop(self) -> bool:
        """Whether train() is to end. Set on any rank: it raises Stopped on all of them after the same step."""
        return self.exchange.stop

    @stop.setter
    def stop(self, value: bool) -> None:
        self.exchange.stop = value

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
