"""Data-parallel training on MPI: one model, as many processes as there are ranks, each with a part of every batch.

    from micrograd import mpi, training

    model = mpi.Trainer(nn)
    history = training.fit(model, images, labels, batch_size=1000)

Run it with `mpiexec -n 4 python -m mpi4py script.py`, so that an exception on one rank ends all of them. Every rank has
all of the data and all of the parameters, and takes every step.
"""

import hashlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

MODES = ("tree", "exact", "fast")  # in the order of csrc/shares.h


class Stopped(KeyboardInterrupt):
    """train() ended after the same step on every rank, because one of them was to stop."""


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
        raise Stopped(f"train() stopped after {steps} steps")


class Trainer:
    """A compiled model whose train() is shared by all ranks of a communicator; all else is the model's own.

    model: `nn` or what codegen.compile() returns, with the same parameters on every rank.
    comm: a communicator of mpi4py, MPI.COMM_WORLD by default.
    mode: "exact" has the bits of model.train(). "tree" adds up partial sums of 256 examples along a fixed tree: no bit
        depends on the number of ranks either, and up to 256 examples a batch they are those of model.train(). "fast"
        leaves the order of additions to MPI.

    Raises TypeError for a model that cannot train in this way, ValueError for an unknown mode, ImportError without MPI.
    """

    def __init__(self, model: Any, comm: Any = None, *, mode: str = "tree") -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if not hasattr(model, "_train_shared"):
            raise TypeError(f"Trainer takes nn, or a model of codegen.compile() that trains, not {model!r}")
        self.model = model
        self.comm = world() if comm is None else comm
        self.mode = mode
        self.rank: int = self.comm.Get_rank()
        self.ranks: int = self.comm.Get_size()
        self.exchange = Exchange(self.comm, model.info()["dtype"])
        self._hashed: tuple[Any, Any, str] | None = None  # the last inputs and targets

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # as copy and pickle ask for
            raise AttributeError(name)
        return getattr(self.model, name)

    @property
    def stop(self) -> bool:
        """Set on any rank, say by a signal handler, it ends train() after the same step on all of them: see Stopped."""
        return self.exchange.stop

    @stop.setter
    def stop(self, value: bool) -> None:
        self.exchange.stop = value

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
        """model.train(), which all ranks call with the same arguments; `threads` and `progress` may differ.

        What a model draws at random comes from one generator, of which every rank has a copy. After the call,
        backward() needs a forward() first.

        Raises what model.train() does, on every rank; ValueError, before the first step, if the ranks do not have the
        same model, parameters, data and options; Stopped if a rank was to stop, also by Ctrl-C.
        """
        steps: dict[str, Any] = {"batch_size": batch_size, "learning_rate": learning_rate, "epochs": epochs}
        steps |= {"seed": seed, "check_finite": check_finite}
        self._compare(images, labels, steps)
        share, mode = self.model._train_shared, MODES.index(self.mode)
        with self._ctrl_c():
            losses: list[float] = share(
                *(self.exchange, mode, self.rank, self.ranks, images, labels),
                **steps,
                threads=threads,
                progress=progress,
            )
        return losses

    def _compare(self, images: Any, labels: Any, options: Mapping[str, Any]) -> None:
        """Raises ValueError, on all ranks, if they would not take the same steps. The data is hashed when it is new."""
        info = self.model.info()
        if self._hashed is None or self._hashed[0] is not images or self._hashed[1] is not labels:
            self._hashed = images, labels, digest((images, labels))
        mine = {
            "mode": self.mode,
            "model": (info["digest"], info["version"], info["fma"], info["seed"], info["learning_rate"]),
            "set of parameters": digest(self.model.state_dict()),
            "state of the optimizer": digest(self.model.optimizer_state()),
            "set of examples": self._hashed[2],
        }
        mine |= {name: repr(value) for name, value in options.items() if not callable(value)}  # no schedule
        everyone: list[dict[str, Any]] = self.comm.allgather(mine)
        for rank, other in enumerate(everyone):
            for name in {**everyone[0], **other}:
                if other.get(name) != everyone[0].get(name):
                    raise ValueError(f"train() on {self.ranks} ranks: rank {rank} has another {name} than rank 0")

    @contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        """Python's own handler of SIGINT would raise on this rank alone: it sets `stop` instead."""
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT) if is_main else None
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, lambda *_: setattr(self, "stop", True))
        try:
            yield
        except Stopped:
            self.stop = False
            raise
        finally:
            if before is signal.default_int_handler:
                signal.signal(signal.SIGINT, before)


def digest(thing: Any) -> str:
    """SHA-256 of buffers, and of mappings and tuples of them; of anything else by its repr()."""
    found = hashlib.sha256(type(thing).__name__.encode())
    if isinstance(thing, Mapping | tuple):
        parts = thing.items() if isinstance(thing, Mapping) else enumerate(thing)
        found.update(repr([(name, digest(part)) for name, part in parts]).encode())
        return found.hexdigest()
    try:
        view = memoryview(thing)
    except TypeError:
        found.update(repr(thing).encode())
    else:
        found.update(repr((view.format, view.shape)).encode())
        found.update(view if view.c_contiguous else view.tobytes())
    return found.hexdigest()


def world() -> Any:
    """MPI.COMM_WORLD. Raises ImportError that says what to install."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError("micrograd.mpi needs mpi4py: pip install 'micrograd-nn[mpi]'") from error
    except RuntimeError as error:  # it can be installed without an MPI library
        raise ImportError(
            f"mpi4py finds no MPI library: pip install mpich, or the one of your system ({error})"
        ) from error
    return MPI.COMM_WORLD
