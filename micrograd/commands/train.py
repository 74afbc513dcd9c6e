"""python -m micrograd train: epochs of gradient descent, with a test after each, and checkpoints."""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import signal
import sys
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from micrograd.commands import checkpoint
from micrograd.commands.command_line import INTERRUPTED, UsageError, rate, whole
from micrograd.commands.inputs import compiled_model, data_options, load_data, load_weights
from micrograd.commands.resume import Checkpoints, Run, Settings, settings
from micrograd.data import mnist
from micrograd.data.mnist import Data
from micrograd.files import identity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = bytes | npt.NDArray[np.uint8]

TERMINATED = 143  # what shells report for a program that SIGTERM ended
MAX_EPOCHS = 10**9
MAX_THREADS = 64


def add_parser(commands: Any) -> None:
    """`commands`: what add_subparsers() returned."""
    train_parser = commands.add_parser(
        "train",
        parents=[data_options()],
        help="train the model and test it after each epoch",
        description="Train the model by gradient descent and test it after each epoch. Ctrl-C stops it between two "
        "steps, and --save then keeps what it has learned.",
    )
    train_parser.set_defaults(command=train)
    add = train_parser.add_argument
    add("--epochs", type=whole(1, MAX_EPOCHS), default=10, metavar="N", help="times through the images (default: 10)")
    add("--batch-size", type=whole(1, 2**31 - 1), default=1, metavar="N", help="images a step (default: 1)")
    add(
        "--threads",
        type=whole(1, MAX_THREADS),
        default=1,
        metavar="N",
        help="threads that share the images of a step; they change the speed and no bit of the result (default: 1)",
    )
    add("--learning-rate", type=rate, metavar="X", help="length of a step (default: the model's own)")
    add(
        "--seed",
        type=whole(0, 2**63 - 1),
        default=1,
        metavar="N",
        help="fixes the initial weights; the images of epoch e = 1, 2, ... are shuffled with the seed N + e - 1 "
        "(default: 1)",
    )
    add(
        "--check-finite",
        action="store_true",
        help="stop before a step that makes a weight inf or nan, and name it; --save then keeps the weights before it",
    )
    add("--load", type=Path, metavar="FILE", help="start from the weights in this file")
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="write the weights and the state of the run to this file again and again; FILE.previous is the one before",
    )
    add(
        "--every",
        type=whole(1, 2**63 - 1),
        metavar="N",
        help="images from one checkpoint to the next, a multiple of --batch-size; the end of an epoch has one in any "
        "case, or, where N is more than an epoch, when there were N images or more since the last (default: an epoch)",
    )
    add(
        "--resume",
        action="store_true",
        help="go on from the checkpoint, to the same bits as if never stopped; where there is none, from the beginning",
    )
    add("--save", type=Path, metavar="FILE", help="write the weights to this file, in the safetensors format")
    add("--hash", action="store_true", help="print the SHA-256 of the weights: the same on every platform")


class Progress:
    """A bar on stderr for the whole run if that is a terminal, and a line on stdout for each epoch."""

    def __init__(self, total: int) -> None:
        self.bar: Any = None
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError as error:
                raise ImportError("the progress bar needs tqdm: pip install 'micrograd-nn[train]'") from error
            self.bar = tqdm(total=total, unit=" images", unit_scale=True, leave=False, dynamic_ncols=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def show(self, done: int, where: str, figures: str) -> None:
        """done: images of the whole run."""
        if self.bar is not None:
            self.bar.set_description_str(where, refresh=False)
            self.bar.set_postfix_str(figures, refresh=False)
            self.bar.update(done - self.bar.n)

    def line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.clear()
        print(text, flush=True)


class NotFiniteError(UsageError):
    """--check-finite stopped the run; the weights are those of the last whole step."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as schedulers send it."""


def terminate(*_: object) -> NoReturn:
    raise Terminated


@dataclass
class Job:
    """A run and everything that it needs."""

    nn: ModuleType
    data: Data
    options: argparse.Namespace
    run: Run
    progress: Progress
    learning_rate: float
    checkpoints: Checkpoints | None
    settings: Settings

    @property
    def count(self) -> int:
        """Images of an epoch."""
        return len(self.data.train_labels)

    @property
    def every(self) -> int:
        """Images from one checkpoint to the next."""
        every: int | None = self.options.every
        return self.count if every is None else every


def train(options: argparse.Namespace) -> int:
    check_options(options)
    nn = compiled_model()
    if options.save is not None:
        checkpoint.check_writable(options.save)
    if options.checkpoint is None:
        return train_with(nn, options, None)
    checkpoints = Checkpoints(options.checkpoint)
    with checkpoints.locked():
        if not options.resume:
            checkpoints.check_unused()
        before = signal.signal(signal.SIGTERM, terminate)
        try:
            return train_with(nn, options, checkpoints)
        finally:
            signal.signal(signal.SIGTERM, before)


def check_options(options: argparse.Namespace) -> None:
    """Raises UsageError for options that contradict one another."""
    for option, path in (("--save", options.save), ("--checkpoint", options.checkpoint)):
        if path is not None and options.data is not None and is_data(path, options.data):
            raise UsageError(f"{option} must be no file of --data {options.data}, got {path}")
    if options.checkpoint is None:
        if options.resume or options.every is not None:
            raise UsageError(f"{'--resume' if options.resume else '--every'} needs --checkpoint FILE")
        return
    if options.every is not None and options.every % options.batch_size:
        raise UsageError(f"--every must be a multiple of --batch-size {options.batch_size}, got {options.every}")
    if options.save is not None:
        Checkpoints(options.checkpoint).check_apart(options.save, "--save")


def is_data(path: Path, folder: Path) -> bool:
    """Whether a path is that of a data file, which writing would replace."""
    return identity(path) in {identity(file) for file in mnist.candidates(folder)}


def train_with(nn: ModuleType, options: argparse.Namespace, checkpoints: Checkpoints | None) -> int:
    if options.load is None:
        nn.reset(options.seed)
    else:
        load_weights(nn, options.load)
    data = load_data(options)
    learning_rate = nn.info()["learning_rate"] if options.learning_rate is None else options.learning_rate
    run = Run()
    now: Settings = {}
    if checkpoints is not None:
        now = settings(nn, data, options.batch_size, learning_rate, options.seed)
        run = resumed(checkpoints, nn, now, options, len(data.train_labels))
    stopped: KeyboardInterrupt | NotFiniteError | None = None
    try:
        with Progress(options.epochs * len(data.train_labels)) as progress:
            job = Job(nn, data, options, run, progress, learning_rate, checkpoints, now)
            train_epochs(job)
    except KeyboardInterrupt as stop:
        stopped = stop
        done = f"at about image {run.images:,} of {len(data.train_labels):,}"
        print(f"interrupted in epoch {run.epoch} of {options.epochs}, {done}", file=sys.stderr)
    except NotFiniteError as stop:
        stopped = stop
    if options.save is not None:
        info = nn.info()
        about = {key: str(info[key]) for key in ("architecture", "digest", "version")}
        checkpoint.save(options.save, nn.state_dict(), about)
    summarise(options, data, run, stopped is not None)
    if options.hash:
        print(f"weights        SHA-256 {weights_hash(nn.state_dict())}")
    if checkpoints is not None:
        print(f"checkpoint     {options.checkpoint}: {checkpoints.written}")
        if checkpoints.failure is not None:
            raise checkpoints.failure
    if isinstance(stopped, NotFiniteError):
        raise stopped
    return 0 if stopped is None else TERMINATED if isinstance(stopped, Terminated) else INTERRUPTED


def resumed(checkpoints: Checkpoints, nn: ModuleType, now: Settings, options: argparse.Namespace, count: int) -> Run:
    """The start of the run: with --resume its checkpoint, if there is one."""
    run = checkpoints.read(nn, now, count) if options.resume else None
    if run is None:
        if options.resume:
            print(f"{options.checkpoint}: no checkpoint yet, starting from the beginning")
        return Run()
    if run.epoch > options.epochs:
        raise UsageError(f"--epochs is {options.epochs}, but {options.checkpoint} is of {run.place(count)}")
    print(f"{options.checkpoint}: going on from {run.place(count)}")
    return run


def train_epochs(job: Job) -> None:
    run, epochs = job.run, job.options.epochs
    since = 0  # images since the last checkpoint
    for epoch in range(run.epoch if run.images < job.count else run.epoch + 1, epochs + 1):
        if epoch != run.epoch:
            run.epoch, run.images, run.loss = epoch, 0, 0.0
        train_epoch(job)
        since += job.count
        if job.checkpoints is not None and (since >= job.every or epoch == epochs):
            job.checkpoints.write(job.nn, run, job.settings, job.count)
            since = 0


def train_epoch(job: Job) -> None:
    """Trains and tests once. `run` is always up to date: an interrupt may come at any time."""
    run, data = job.run, job.data
    seed = job.options.seed + run.epoch - 1
    if run.images == 0 and job.every >= job.count:
        train_piece(job, data.train_images, data.train_labels, seed)
    else:
        train_in_pieces(job, seed)
    run.test_loss, run.test_accuracy = job.nn.evaluate(data.test_images, data.test_labels, threads=job.options.threads)
    if run.test_accuracy > run.best_accuracy:
        run.best_epoch, run.best_accuracy = run.epoch, run.test_accuracy
    job.progress.line(
        f"epoch {run.epoch}/{job.options.epochs}: training loss {run.loss:.4f}, test loss {run.test_loss:.4f}, "
        f"test accuracy {run.test_accuracy:.2%}"
    )


def train_in_pieces(job: Job, seed: int) -> None:
    """The rest of an epoch, with checkpoints: images in the order of nn.train(seed), whole steps per call."""
    import numpy as np

    order = list(range(job.count))
    random.Random(seed).shuffle(order)
    images = np.frombuffer(job.data.train_images, np.uint8).reshape(job.count, -1)
    labels = np.frombuffer(job.data.train_labels, np.uint8)
    while (first := job.run.images) < job.count:
        chosen = np.array(order[first : first - first % job.every + job.every])
        train_piece(job, images[chosen], labels[chosen], None)
        if job.checkpoints is not None and job.run.images < job.count:
            job.checkpoints.write(job.nn, job.run, job.settings, job.count)


def train_piece(job: Job, images: Pixels, labels: Pixels, seed: int | None) -> None:
    """Trains on the next images of an epoch, shuffled if there is a seed."""
    run = job.run
    behind = run.images
    tested = f", test accuracy {run.test_accuracy:.2%}" if run.best_epoch else ""

    def report(done: int, _total: int, loss: float) -> None:
        run.images = behind + done
        where = f"epoch {run.epoch}/{job.options.epochs}"
        job.progress.show((run.epoch - 1) * job.count + run.images, where, f"loss {loss:.4f}{tested}")

    start = time.perf_counter()
    try:
        [loss] = job.nn.train(
            images,
            labels,
            batch_size=job.options.batch_size,
            learning_rate=job.learning_rate,
            seed=seed,
            threads=job.options.threads,
            progress=report,
            check_finite=job.options.check_finite,
        )
    except FloatingPointError as error:
        raise NotFiniteError(f"epoch {run.epoch}: {error}: a smaller --learning-rate may help") from error
    finally:
        run.seconds += time.perf_counter() - start
    if not math.isfinite(loss):
        raise UsageError(f"the training loss of epoch {run.epoch} is {loss}: a smaller --learning-rate may help")
    # The mean of the pieces' means; of one piece it is that piece's, to the bit.
    run.loss += (loss - run.loss) * (len(labels) / run.images)


def weights_hash(tensors: Mapping[str, memoryview]) -> str:
    """SHA-256 of tensors of float64, one after the other, as little-endian numbers in C order."""
    digest = hashlib.sha256()
    for tensor in tensors.values():
        numbers = array("d", tensor.tobytes())
        if sys.byteorder == "big":
            numbers.byteswap()
        digest.update(numbers.tobytes())
    return digest.hexdigest()


def summarise(options: argparse.Namespace, data: Data, run: Run, stopped: bool) -> None:
    images = (run.epoch - 1) * len(data.train_labels) + run.images
    print()
    if not stopped:
        print(f"test loss      {run.test_loss:.4f}")
        print(f"test accuracy  {run.test_accuracy:.2%}")
    if run.best_epoch:
        print(f"best epoch     {run.best_epoch} ({run.best_accuracy:.2%})")
    if images:
        speed = f"{images / run.seconds:,.0f} images/s, {run.seconds / images * 1e6:.2f} µs per image"
        print(f"training       {run.seconds:.2f} s, {speed}")
    print(f"data           {data.source}")
    what = "the weights as of the last whole step" if stopped else "the weights after the last epoch"
    print(f"saved          {options.save}: {what}" if options.save is not None else "saved          nothing")
