"""python -m micrograd train: epochs of gradient descent, with a test after each."""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from micrograd import checkpoint
from micrograd.command_inputs import compiled_model, data_options, load_data, load_weights
from micrograd.command_line import INTERRUPTED, UsageError, rate, whole
from micrograd.mnist import Data

MOST_EPOCHS = 10**9
MOST_THREADS = 64


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
    add("--epochs", type=whole(1, MOST_EPOCHS), default=10, metavar="N", help="times through the images (default: 10)")
    add("--batch-size", type=whole(1, 2**31 - 1), default=1, metavar="N", help="images a step (default: 1)")
    add(
        "--threads",
        type=whole(1, MOST_THREADS),
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
    add("--load", type=Path, metavar="FILE", help="start from the weights in this file")
    add("--save", type=Path, metavar="FILE", help="write the weights to this file, in the safetensors format")


@dataclass
class Run:
    """How far a training run has come."""

    epoch: int = 1  # the one under way, or the last
    images: int = 0  # done in it
    seconds: float = 0.0  # spent in training, not in testing
    test_loss: float = math.nan
    test_accuracy: float = math.nan
    best_epoch: int = 0
    best_accuracy: float = -1.0


class Progress:
    """A bar on stderr for the whole run if somebody is looking there, and a line on stdout for each epoch."""

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


def train(options: argparse.Namespace) -> int:
    nn = compiled_model()
    if options.save is not None:
        checkpoint.check_writable(options.save)
    if options.load is None:
        nn.reset(options.seed)
    else:
        load_weights(nn, options.load)
    data = load_data(options)
    run = Run()
    interrupted = False
    try:
        with Progress(options.epochs * len(data.train_labels)) as progress:
            for run.epoch in range(1, options.epochs + 1):
                train_epoch(nn, data, options, run, progress)
    except KeyboardInterrupt:
        interrupted = True
        done = f"at about image {run.images:,} of {len(data.train_labels):,}"
        print(f"interrupted in epoch {run.epoch} of {options.epochs}, {done}", file=sys.stderr)
    if options.save is not None:
        info = nn.info()
        about = {key: str(info[key]) for key in ("architecture", "digest", "version")}
        checkpoint.save(options.save, nn.state_dict(), about)
    summarise(options, data, run, interrupted)
    return INTERRUPTED if interrupted else 0


def train_epoch(nn: ModuleType, data: Data, options: argparse.Namespace, run: Run, progress: Progress) -> None:
    """Trains and tests once, and keeps `run` up to date meanwhile: an interrupt may come at any time."""
    count = len(data.train_labels)
    run.images = 0
    tested = f", test accuracy {run.test_accuracy:.2%}" if run.epoch > 1 else ""

    def report(done: int, _total: int, loss: float) -> None:
        run.images = done
        progress.show((run.epoch - 1) * count + done, f"epoch {run.epoch}/{options.epochs}", f"loss {loss:.4f}{tested}")

    settings = {
        "batch_size": options.batch_size,
        "seed": options.seed + run.epoch - 1,
        "threads": options.threads,
        "progress": report,
    }
    if options.learning_rate is not None:
        settings["learning_rate"] = options.learning_rate
    start = time.perf_counter()
    try:
        [loss] = nn.train(data.train_images, data.train_labels, **settings)
    finally:
        run.seconds += time.perf_counter() - start
    if not math.isfinite(loss):
        raise UsageError(f"the training loss of epoch {run.epoch} is {loss}: a smaller --learning-rate may help")
    run.test_loss, run.test_accuracy = nn.evaluate(data.test_images, data.test_labels, threads=options.threads)
    if run.test_accuracy > run.best_accuracy:
        run.best_epoch, run.best_accuracy = run.epoch, run.test_accuracy
    progress.line(
        f"epoch {run.epoch}/{options.epochs}: training loss {loss:.4f}, test loss {run.test_loss:.4f}, "
        f"test accuracy {run.test_accuracy:.2%}"
    )


def summarise(options: argparse.Namespace, data: Data, run: Run, interrupted: bool) -> None:
    images = (run.epoch - 1) * len(data.train_labels) + run.images
    print()
    if not interrupted:
        print(f"test loss      {run.test_loss:.4f}")
        print(f"test accuracy  {run.test_accuracy:.2%}")
    if run.best_epoch:
        print(f"best epoch     {run.best_epoch} ({run.best_accuracy:.2%})")
    if images:
        speed = f"{images / run.seconds:,.0f} images/s, {run.seconds / images * 1e6:.2f} µs per image"
        print(f"training       {run.seconds:.2f} s, {speed}")
    print(f"data           {data.source}")
    what = "the weights as of the last whole step" if interrupted else "the weights after the last epoch"
    print(f"saved          {options.save}: {what}" if options.save is not None else "saved          nothing")
