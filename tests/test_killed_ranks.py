"""Ranks and mpiexec that a signal ends at random moments, and what other ranks make of what they have left."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from commands import good
from mpiexec import LIBRARIES, MPICH, Mpi, is_alive, without_mpi

from micrograd.commands import checkpoint

pytestmark = without_mpi

OPTIONS = ("--epochs", 3, "--batch-size", 20, "--every", 20)


def wait_for(what: object, is_there: object) -> None:
    """Raises TimeoutError after a minute."""
    end = time.monotonic() + 60
    while not is_there():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError(f"waited a minute for {what}")
        time.sleep(0.005)


def kill(mpi: Mpi, kills: int, folder: Path, ranks: tuple[int, ...], *options: object) -> dict[str, int]:
    """Trains on some of these numbers of ranks, one after the other, and kills a rank or mpiexec of each run, until
    there were so many kills and a run has ended after the last. A run that ends earlier is begun again. Returns how
    often each of them had which signal; every end is that of a run on one rank that nothing stopped."""
    rng = random.Random(kills)
    path, saved, sent = folder / "run", folder / "saved", {}
    files = ("--checkpoint", path, "--save", saved, "--resume")
    mpi.good(1, "train", *options, "--checkpoint", folder / "plain.run", "--save", folder / "plain")
    for run in range(10 * kills):
        pids = folder / str(run)
        pids.mkdir()
        before = path.stat().st_mtime_ns if path.exists() else 0
        change = f"import pathlib; pathlib.Path({str(pids)!r}, str(os.getpid())).touch()"
        process = mpi.start(rng.choice(ranks), "train", *options, *files, change=change)
        who = None
        if sum(sent.values()) < kills:
            wait_for("ranks", lambda: process.poll() is not None or any(pids.iterdir()))
            ...
