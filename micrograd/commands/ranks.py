"""`micrograd train --mpi`: one of all ranks speaks, what they have to agree on is compared, and they end together.

An error on one rank leaves the others waiting for it, for ever. So what needs no communication runs in turn, and every
rank learns how it went; after that, whatever a rank raises alone ends all of them, as under `python -m mpi4py`.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from micrograd.errors import INTERRUPTED, USER_ERROR, UsageError, UserError, one_line
from micrograd.mpi import Trainer, world
from micrograd.training import Run, Training

T = TypeVar("T")
STARTED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # how many processes mpiexec says that it has started
# What the bits of a run depend on, by mode
ORDERS = {None: "one by one", "exact": "one by one", "tree": "a tree", "fast": "any"}


class RanksError(UsageError):
    """An error that every rank raises alike, so that one of them is enough to tell it."""


class Ranks:
    """This process among those that mpiexec started.

    Raises ImportError that says what to install, and UsageError if mpiexec is not of the MPI library that was found.
    """

    def __init__(self, is_traceback_shown: bool = False) -> None:
        self.comm = world()
        self.rank: int = self.comm.Get_rank()
        self.is_traceback_shown = is_traceback_shown
        if self.comm.Get_size() == 1 and (count := _started()) > 1:
            from mpi4py import MPI

            library = MPI.Get_library_version().split(",")[0].split("\n")[0]
            raise UsageError(
                f"mpiexec started {count} processes, but each of them is alone: mpi4py uses another MPI, {library}"
            )

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that prints, and reads and writes files."""
        return self.rank == 0

    def run(self, work: Callable[[], int]) -> int:
        """The exit code of work() on every rank, which is the largest. RanksError is raised on the first one alone."""
        shared = None
        try:
            code = work()
        except RanksError as error:
            shared, code = error, USER_ERROR
        except BaseException as error:
            self._end_all(error)
        codes: list[int] = self.comm.allgather(code)  # no rank ends before the first one has written its files
        if shared is not None and self.is_first:
            raise shared
        return max(codes)

    def in_turn(self, work: Callable[[], T]) -> T:
        """work() on the first rank, which may fill caches, then on the others. Raises RanksError if it fails on any."""
        result: list[T] = []
        for is_turn in (self.is_first, not self.is_first):
            failure: Exception | None = None
            try:
                if is_turn:
                    result.append(work())
            except (UserError, OSError, ImportError) as error:
                failure = error
            messages = self.comm.allgather(None if failure is None else one_line(failure))
            for rank, message in enumerate(messages):
                if message is not None:
                    raise RanksError(f"rank {rank}: {message}" if rank else message) from failure
        return result[0]

    def first(self, thing: T) -> T:
        """The thing that the first rank has."""
        return self.comm.bcast(thing)  # type: ignore[no-any-return]

    def check_equal(self, things: Mapping[str, object]) -> None:
        """Raises RanksError, which names the first of these things that is another one on another rank."""
        everyone = self.comm.allgather(dict(things))
        for rank, theirs in enumerate(everyone):
            for name, expected in everyone[0].items():
                if theirs[name] != expected:
                    raise RanksError(f"{name} is {theirs[name]} on rank {rank}, but {expected} on rank 0")

    def warn_of_few_cores(self, threads: int) -> None:
        """Ranks that wait do not sleep: with more of them than cores, those that compute wait for those that wait."""
        from mpi4py import MPI

        places = self.comm.gather((MPI.Get_processor_name(), _cores()))
        for machine in dict.fromkeys(name for name, _ in places or ()):
            ranks = [cores for name, cores in places if name == machine]
            count = len(set().union(*ranks))
            if len(ranks) * threads > count:
                each = f" of {threads} threads" if threads > 1 else ""
                what = f"{machine}: {len(ranks)} ranks{each} on {count} core{'s' * (count > 1)}"
                print(f"warning: {what}: ranks that wait take turns with those that compute", file=sys.stderr)

    def _end_all(self, error: BaseException) -> NoReturn:
        if self.comm.Get_size() == 1:
            raise error
        code = 1
        if isinstance(error, KeyboardInterrupt):
            code = INTERRUPTED
            print("interrupted", file=sys.stderr)
        elif isinstance(error, (UserError, OSError, ImportError)):
            code = USER_ERROR
            place = "" if self.is_first else f"rank {self.rank}: "
            print(f"error: {place}{one_line(error)}", file=sys.stderr)
        if code == 1 or self.is_traceback_shown:
            sys.stderr.write("".join(traceback.format_exception(error)))
        end_all(self.comm, code)


def end_all(comm: Any, code: int) -> NoReturn:
    """Ends the processes of all ranks, after a moment in which mpiexec passes on what this one has said last."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(0.5)
    comm.Abort(code)
    os._exit(code)  # Abort() may return before mpiexec ends this process


def _started() -> int:
    return max((int(number) for name in STARTED if (number := os.environ.get(name, "")).isdigit()), default=0)


def _cores() -> set[int]:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def add_mpi(group: Any) -> None:
    group.add_argument(
        "--mpi",
        action="store_true",
        help="share the images of a step among the processes that mpiexec has started, on one machine or many; their "
        "number changes no bit of the result",
    )
    mode = group.add_mutually_exclusive_group()
    mode.add_argument(
        "--mpi-exact",
        dest="mpi_mode",
        action="store_const",
        const="exact",
        help="--mpi with the very bits of a single process, which takes more communication",
    )
    mode.add_argument(
        "--mpi-fast",
        dest="mpi_mode",
        action="store_const",
        const="fast",
        help="--mpi that adds up in whatever order is fastest: the bits depend on the number of processes",
    )


def mpi_mode(options: argparse.Namespace) -> str | None:
    """The mode of micrograd.mpi.Trainer; None without MPI."""
    return options.mpi_mode or ("tree" if options.mpi else None)


def without_files(options: argparse.Namespace) -> argparse.Namespace:
    """Those of a rank that is not the first: it computes the same, but reads no weights, writes and prints nothing."""
    nothing: dict[str, object] = {
        "load": None,
        "map": [],
        "transpose": [],
        "match": False,
        "checkpoint": None,
        "resume": False,
    }
    nothing |= {"save": None, "save_best": False, "log": None, "hash": False, "quiet": True}
    return argparse.Namespace(**{**vars(options), **nothing})


def shared_state(ranks: Ranks, training: Training) -> Run:
    """Gives every rank the parameters of the first one, what its optimizer keeps, and how far its run has come."""
    import numpy as np

    model = training.model
    states = [
        {name: np.array(view) for name, view in views.items()}
        for views in (model.state_dict(), model.optimizer_state())
    ]
    (weights, kept), run = ranks.first((states, training.run))
    model.load_state_dict(weights)
    model.load_optimizer_state(kept)
    return run


@contextlib.contextmanager
def stopped_by_signals(trainer: Trainer) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM on any rank stop all of them, between two steps. Collects the signals of this one."""
    seen: list[int] = []

    def stop(number: int, _: object) -> None:
        seen.append(number)
        trainer.stop = True

    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                stack.callback(signal.signal, number, signal.signal(number, stop))
        yield seen
