"""Ranks and mpiexec that a signal ends at random moments, and what other ranks make of what is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from mpiexec import MPICH, OPENMPI_NIGHTLY, Mpi, is_alive, without_mpi

from micrograd.commands import checkpoint

pytestmark = without_mpi


def wait_until(is_there: Callable[[], bool], process: subprocess.Popen[str], what: str) -> None:
    end = time.monotonic() + 120
    while not is_there():
        if time.monotonic() > end:
            process.kill()
            pytest.fail(f"waited two minutes for {what}")
        time.sleep(0.005)


def written_at(path: Path) -> int:
    """Nanoseconds; 0 without a file, as in the moment in which one checkpoint takes the place of another."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def end_by_signal(rng: random.Random, process: subprocess.Popen[str], folder: Path, path: Path) -> str:
    """Sends a signal to a rank or to mpiexec, at some moment of the start or after a checkpoint, and waits until all
    have ended. Returns what ended the run; nothing if it had ended before."""
    before = written_at(path)

    def is_written() -> bool:
        return process.poll() is not None or written_at(path) not in (0, before)

    if rng.random() < 0.25:
        time.sleep(rng.uniform(0, 1))
    else:
        wait_until(is_written, process, "a checkpoint")
        time.sleep(rng.uniform(0, 0.2))
    pids = [int(file.name) for file in folder.iterdir()]
    number = rng.choice((signal.SIGKILL, signal.SIGTERM))
    is_rank = bool(pids) and rng.random() < 0.6
    if process.poll() is None and is_rank:
        with contextlib.suppress(ProcessLookupError):  # it has just ended, and mpiexec is about to
            os.kill(rng.choice(pids), number)
    elif process.poll() is None:
        process.send_signal(number)
    process.communicate(timeout=60)
    wait_until(lambda: not any(is_alive(int(file.name)) for file in folder.iterdir()), process, "ranks to end")
    return "" if process.returncode == 0 else f"{'rank' if is_rank else 'mpiexec'} {number.name}"


def kill(mpi: Mpi, kills: int, folder: Path, ranks: tuple[int, ...], *options: object) -> Counter[str]:
    """Trains until so many runs have been ended, each on a random number of ranks, and the last one has not. Returns
    what ended them. Every end that nothing hurried must be that of one rank that was left alone."""
    rng = random.Random(kills)
    path, saved, plain, ended = folder / "run", folder / "saved", folder / "plain", Counter[str]()
    options = ("train", "--epochs", 3, "--batch-size", 20, "--every", 20, *options)
    cache = {"MICROGRAD_CACHE": str(folder / "cache")}
    mpi.good(1, *options, "--checkpoint", folder / "plain.run", "--save", plain, **cache)
    run = 0
    while True:
        pids = folder / str(run := run + 1)
        pids.mkdir()
        change = f"import pathlib; pathlib.Path({str(pids)!r}, str(os.getpid())).touch()"
        files = ("--checkpoint", path, "--save", saved, "--resume")
        with mpi.start(rng.choice(ranks), *options, *files, change=change, **cache) as process:
            if ended.total() == kills:
                _, err = process.communicate(timeout=120)
                assert process.returncode == 0, err
            elif what := end_by_signal(rng, process, pids, path):
                ended[what] += 1
                for file in (path, saved):
                    if file.exists():
                        checkpoint.load_metadata(file)  # whole, always
                continue
        assert saved.read_bytes() == plain.read_bytes()
        if ended.total() == kills:
            return ended
        for file in (path, folder / "run.previous", saved):
            file.unlink()


@pytest.mark.slow
def test_killed_a_few_times(data: Path, tmp_path: Path) -> None:
    kill(MPICH, 3, tmp_path, (1, 2), "--mpi", "--data", data)


@pytest.mark.parametrize("mpi", [pytest.param(MPICH, id="mpich", marks=pytest.mark.nightly), OPENMPI_NIGHTLY])
def test_killed_thirty_times(mpi: Mpi, data: Path, tmp_path: Path) -> None:
    mode = "--mpi" if mpi is MPICH else "--mpi-exact"
    ended = kill(mpi, 30, tmp_path, (1, 2, 3), mode, "--data", data, "--hidden", 3, "--optimizer", "adam")
    print(f"ended by {dict(ended)}")
    assert len(ended) == 4
