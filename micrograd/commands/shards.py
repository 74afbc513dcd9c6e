"""Folders of shards for `micrograd eval` and `predict`, divided among processes or MPI ranks.

The results of `images/a.npy` are `OUTPUT/a.npy`, a row for each image, written whole or not at all. A command that was
stopped goes on with the shards whose results are missing or older than the shard.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands.command_line import whole
from micrograd.commands.ranks import end_all
from micrograd.data import shards
from micrograd.errors import UsageError, UserError
from micrograd.files import identity, write_whole

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

MADE_BY = "made_by.json"  # in the folder of results: of which command and which weights they are


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a folder of shards")
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="the folder of results; shards that have theirs are not done again",
    )
    how = group.add_mutually_exclusive_group()
    how.add_argument("--processes", type=whole(1, 1024), metavar="N", help="processes that share the shards")
    how.add_argument("--mpi", action="store_true", help="the ranks of mpiexec share the shards")


def check_unused(options: argparse.Namespace) -> None:
    """Raises UsageError if options of shards are given without a folder of them."""
    if options.output is not None or options.processes is not None or options.mpi:
        raise UsageError("--output, --processes and --mpi are for a folder of shards")


@dataclass(frozen=True)
class Job:
    """Work on the shards of a folder. Other processes do a part of it each, so all of it can be pickled."""

    options: argparse.Namespace
    folder: Path
    load: Callable[[argparse.Namespace], Any]  # gives the model
    results: Callable[[Any, Path], Array]  # of a model and a shard
    has_labels: bool = False  # whether the results depend on the shards' labels

    def run(self) -> list[Path] | None:
        """The files of results, one for each shard, in order; None on ranks other than the first, which have no more
        to do. Raises UserError, OSError and ImportError: under MPI on the first rank, whichever it happened on."""
        if self.options.mpi:
            return self._run_as_rank()
        files, count = self.files(), self.options.processes or 1
        if count == 1:
            self.part(0, 1)
            return files
        try:
            with ProcessPoolExecutor(count) as pool:
                list(pool.map(self.part, range(count), repeat(count)))
        except BrokenProcessPool as error:
            raise UsageError(
                f"a process died; the same command goes on with the shards that are left: {error}"
            ) from error
        return files

    def _run_as_rank(self) -> list[Path] | None:
        from micrograd.mpi import world

        comm, failure = world(), None
        try:
            files = self.files()
            self.part(comm.Get_rank(), comm.Get_size())
        except (UserError, OSError, ImportError) as error:
            failure = error
        except BaseException:  # the other ranks would wait for this one
            traceback.print_exc()
            end_all(comm, 1)
        failures = comm.allgather(failure)
        if comm.Get_rank() > 0:
            return None
        for failure in filter(None, failures):
            raise failure
        return files

    def files(self) -> list[Path]:
        output = self.options.output
        if output is None:
            raise UsageError(f"{self.folder}: a folder of shards needs --output DIR for its results")
        if identity(output) == identity(self.folder):
            raise UsageError(f"--output must be another folder than that of the shards, got {output}")
        files = [output / f"{shard.name.removesuffix('.npy')}.npy" for shard in shards.shards_of(self.folder)]
        if len(set(files)) < len(files):
            raise UsageError(f"{self.folder}: two shards whose names differ in .npy alone have one file of results")
        return files

    def part(self, worker: int, workers: int) -> None:
        """Every so many-th shard: which ones does not depend on what others have done meanwhile."""
        model = self.load(self.options)
        self._claim(model)
        pairs = zip(shards.shards_of(self.folder), self.files(), strict=True)
        for shard, file in list(pairs)[worker::workers]:
            if not self._is_done(shard, file):
                write_whole(file, npy(self.results(model, shard)))

    def _claim(self, model: Any) -> None:
        """Says in the folder of results what they are of. Raises UsageError if it says something else."""
        made_by = self.options.output / MADE_BY
        made_by.parent.mkdir(parents=True, exist_ok=True)
        expected = json.dumps({"results": self.results.__name__, **identity_of(model)}, indent=1).encode() + b"\n"
        taken = next(filter(Path.exists, self.files()), None)  # first: another process may write made_by, then results
        if not made_by.exists():
            if taken:
                raise UsageError(f"{taken}: no result of this command, and would be replaced")
            write_whole(made_by, expected)
        if made_by.read_bytes() != expected:
            raise UsageError(f"{made_by.parent}: results of another command or model: {made_by.name} says which")

    def _is_done(self, shard: Path, file: Path) -> bool:
        sources = [shard, shards.labels_of(shard)] if self.has_labels else [shard]
        if not file.exists() or any(file.stat().st_mtime_ns < path.stat().st_mtime_ns for path in sources):
            return False
        try:
            with file.open("rb") as opened:
                return shards.npy_header(opened)[0] == (shards.count_images(shard),)
        except ValueError:
            return False


def identity_of(model: Any) -> dict[str, str]:
    """What decides about the results of a model."""
    info = model.info()
    weights = info.get("weights")
    if weights is None:
        weights = hashlib.sha256(b"".join(bytes(view) for view in model.state_dict().values())).hexdigest()
    return {"model": info["digest"], "weights": weights}


def counted(files: Sequence[Path]) -> str:
    """For example "3,000 images of 2 shards"."""
    count = 0
    for file in files:
        with file.open("rb") as opened:
            count += shards.npy_header(opened)[0][0]
    return f"{count:,} images of {len(files):,} shards"


def npy(array: Array) -> bytes:
    import numpy as np

    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()
