"""What --mpi adds to `micrograd train`: its options, one state for all ranks, and signals that stop all of them."""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator
from typing import Any

from micrograd.commands.ranks import Ranks
from micrograd.mpi import Trainer
from micrograd.training import Run, Training

# What the bits of a run depend on, by mode
ORDERS = {None: "one by one", "exact": "one by one", "tree": "a tree", "fast": "any"}


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
