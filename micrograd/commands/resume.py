"""Checkpoints of a training run: however the process ends, only the work since the last one is lost.

FILE has the parameters and what the optimizer keeps, how far the run has come, and what determines how it goes on: the
model, the images, the weights that it began with, how the images are moved, batch size, learning rates and seed.
FILE.previous is the checkpoint before that, which is used if FILE is damaged.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from micrograd.commands import checkpoint
from micrograd.commands.checkpoint import CheckpointError, DamagedError
from micrograd.commands.inputs import shapes
from micrograd.commands.ranks import ORDERS, mpi_mode
from micrograd.commands.run_log import about
from micrograd.commands.train_model import WITHOUT_END, Recipe
from micrograd.data.mnist import Data
from micrograd.errors import UsageError
from micrograd.files import identity, is_temporary
from micrograd.training import Run

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Settings = Mapping[str, str | int | float | None]
FIRST_WEIGHTS = "the first weights' digest"
ORDER = "the order of sums over images"


def settings(model: Any, data: Data, recipe: Recipe, options: argparse.Namespace, rate: float) -> Settings:
    """What the numbers of a run depend on, under the names that the user knows; the model has its first weights."""
    info = model.info()
    weights = hashlib.sha256()
    for _, view in sorted(model.state_dict().items()):
        weights.update(view.tobytes())
    images = hashlib.sha256()
    for part in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        images.update(hashlib.sha256(part).digest())
    found = {
        "the optimizer": recipe.update(),
        "the model's digest": info["digest"],
        "the arithmetic": f"{info['dtype']}, fma {info['fma']}, reorder {info['reorder']}",
        "the data's digest": images.hexdigest(),
        "--batch-size": options.batch_size,
        "--learning-rate": rate,
        "--schedule": options.schedule,
        "--shift": options.shift,
        "--limit": options.limit,
        "--validation": options.validation,
        "--seed": options.seed,
        FIRST_WEIGHTS: weights.hexdigest(),
        ORDER: ORDERS[mpi_mode(options)],
    }
    return found if options.schedule in WITHOUT_END else found | {"--epochs": options.epochs}


class Checkpoints:
    """FILE and FILE.previous, for one run and one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.target = Path(os.path.realpath(path))  # a link stays a link
        self.previous = self.target.with_name(f"{self.target.name}.previous")
        self.damaged = self.target.with_name(f"{self.target.name}.damaged")
        self.lock = self.target.with_name(f".{self.target.name}.lock")
        self.written = "nothing yet"
        self.failure: OSError | None = None  # of the last write

    def check_apart(self, path: Path, option: str) -> None:
        """Raises UsageError for a file that is one of those of the checkpoint, or would be taken for one."""
        if identity(path) == identity(self.target):
            raise UsageError(f"{option} and --checkpoint must be two files, got {path} for both")
        companions = {identity(file): file.name for file in (self.previous, self.damaged, self.lock)}
        real = Path(identity(path))
        if is_temporary(real.name, Path(identity(self.target))) and real.parent == Path(identity(self.target)).parent:
            companions[identity(path)] = real.name
        if (name := companions.get(identity(path))) is not None:
            raise UsageError(f"{option} must be no file of --checkpoint {self.path}, which needs {name} itself")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock while this process uses the files, and deletes temporary files of killed processes.

        Raises OSError if checkpoints cannot be written and UsageError if another process has the lock.
        """
        checkpoint.check_writable(self.path)
        with self.lock.open("ab") as file:
            if not _lock(file):
                raise UsageError(f"{self.path}: another process is training with this checkpoint")
            for path in self.target.parent.iterdir():
                if is_temporary(path.name, self.target):
                    path.unlink(missing_ok=True)
            yield

    def check_unused(self) -> None:
        """Raises UsageError if there is a checkpoint that a new run would replace."""
        for path, shown in ((self.target, self.path), (self.previous, self.previous)):
            if path.exists():
                raise UsageError(f"{shown} is there already: --resume goes on from it, or delete it")

    def read(self, nn: Any, now: Settings, count: int) -> Run | None:
        """Puts the newest whole checkpoint's parameters into nn and returns how far it had come; None without one.

        count: images of an epoch. A damaged file is set aside, and a line on stderr says so. Raises CheckpointError
        for one of another run, DamagedError if there is none but damaged ones, and OSError.
        """
        damage: list[str] = []
        for path in (self.target, self.previous):
            try:
                run, tensors = _read(path, nn, now, count)
            except FileNotFoundError:
                continue
            except DamagedError as error:
                damage.append(str(error))
                continue
            if path == self.previous:
                self._set_aside(damage)
            kept = {name: tensors.pop(name) for name in kept_shapes(nn)}
            nn.load_state_dict(tensors)
            put_kept(nn, kept)
            self.written = run.place(count)
            return run
        if damage:
            raise DamagedError("; ".join(damage))
        return None

    def _set_aside(self, damage: list[str]) -> None:
        """Renames a damaged FILE: the next write() would replace the good previous checkpoint by it."""
        what = f"{self.target}: no such file"
        if damage:
            os.replace(self.target, self.damaged)
            what = f"{damage[0]}; it is {self.damaged} now"
        print(f"warning: {what}; taking {self.previous}", file=sys.stderr)

    def write(self, nn: Any, run: Run, now: Settings, count: int) -> None:
        """Writes a checkpoint. A failure is only reported on stderr: a later write may succeed."""
        metadata = {**about(nn), "settings": json.dumps(now), "run": json.dumps(asdict(run))}
        try:
            checkpoint.save(self.path, {**nn.state_dict(), **kept_by_optimizer(nn)}, metadata, keep=self.previous)
        except OSError as error:
            self.failure = OSError(error.errno, error.strerror, str(self.path))
            place = f"no checkpoint for {run.place(count)}, training goes on"
            print(f"warning: {self.path}: {error.strerror}: {place}", file=sys.stderr, flush=True)
        else:
            self.failure = None
            self.written = run.place(count)


def _read(path: Path, nn: Any, now: Settings, count: int) -> tuple[Run, dict[str, npt.NDArray[np.float64]]]:
    metadata = checkpoint.load_metadata(path)
    if not {"settings", "run"} <= metadata.keys():
        raise CheckpointError(f"{path}: weights, as --save writes them, and no checkpoint: --load starts from them")
    try:
        before, state = json.loads(metadata["settings"]), json.loads(metadata["run"])
        run = Run(**state)
        is_sound = isinstance(before, dict) and all(
            type(value) is type(field.default) for field, value in zip(fields(Run), asdict(run).values(), strict=True)
        )
    except (ValueError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise CheckpointError(f"{path}: a checkpoint of version {metadata.get('version')}, which is no longer read")
    before.setdefault(ORDER, ORDERS[None])  # of a version that knew no other
    for name, value in now.items():
        if before.get(name) != value:
            raise CheckpointError(f"{path}: {name} was {before.get(name)} in this checkpoint's run, now it is {value}")
    batch_size = now["--batch-size"]
    is_whole_step = isinstance(batch_size, int) and (run.images == count or run.images % batch_size == 0)
    if not (run.epoch >= 1 and 0 <= run.images <= count and is_whole_step):
        raise CheckpointError(f"{path}: it says {run.place(count)}, which is no place between two steps")
    return run, checkpoint.load(path, shapes(nn) | kept_shapes(nn))


def kept_by_optimizer(model: Any) -> dict[str, Any]:
    """What the optimizer keeps, under the names that it has in a file; nothing of plain gradient descent."""
    kept = model.optimizer_state()
    return {checkpoint.OPTIMIZER + name: view for name, view in kept.items()} if len(kept) > 1 else {}


def kept_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {name: view.shape for name, view in kept_by_optimizer(model).items()}


def put_kept(model: Any, tensors: Mapping[str, Any]) -> None:
    """What kept_by_optimizer() returned, as float64, into a model of any dtype."""
    if not tensors:
        return
    views = {checkpoint.OPTIMIZER + name: view for name, view in model.optimizer_state().items()}
    found = {name: tensor.astype(views[name].format[-1]) for name, tensor in tensors.items()}
    model.load_optimizer_state({name.removeprefix(checkpoint.OPTIMIZER): each for name, each in found.items()})


def _lock(file: IO[Any]) -> bool:
    """Tries to take the lock; returns whether it did. The lock ends with the process, however that ends."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have no locks
        pass
    return True
