"""The options of `micrograd train`: their help, their defaults, and which of them exclude one another."""

import argparse
import os
from pathlib import Path
from typing import Any

from micrograd.commands.command_line import from_zero, number, positive, whole
from micrograd.commands.inputs import add_matching, data_options, is_model
from micrograd.commands.ranks import add_mpi
from micrograd.commands.resume import Checkpoints
from micrograd.commands.run_log import SETTINGS, TABLE, WEIGHTS
from micrograd.commands.train_model import OPTIMIZERS, SCHEDULE, SCHEDULES, add_model
from micrograd.data import mnist
from micrograd.data.mnist import SIDE
from micrograd.errors import UsageError
from micrograd.files import identity

MAX_EPOCHS = 10**9
MAX_THREADS = 64
SHARE = number(lambda x: 0 < x < 1, "number above 0 and below 1")
SHARE_OR_ZERO = number(lambda x: 0 <= x < 1, "number from 0 to below 1")


def add_parsers(commands: Any, train: Any) -> None:
    """`train`: what runs."""
    parser = commands.add_parser(
        "train",
        parents=[data_options()],
        description="Train the model by gradient descent and test it after each epoch. Ctrl-C stops it between two "
        "steps, and --save then keeps what it has learned. Another model, optimizer or dtype than those of nn is "
        "compiled first, which takes a C compiler, and kept for the next time.",
    )
    parser.set_defaults(command=train)
    add_model(parser.add_argument_group("the model"))
    add_steps(parser.add_argument_group("the steps"))
    add_data(parser.add_argument_group("the images and the end"))
    add_files(parser.add_argument_group("files"))
    add_mpi(parser.add_argument_group("many processes: mpiexec -n 4 micrograd train --mpi ..."))


def add_steps(group: Any) -> None:
    add = group.add_argument
    add("--epochs", type=whole(1, MAX_EPOCHS), default=10, metavar="N", help="times through the images (default: 10)")
    add("--batch-size", type=whole(1, 2**31 - 1), default=8, metavar="N", help="images a step (default: 8)")
    add(
        "--learning-rate",
        type=positive,
        metavar="X",
        help="the highest of the schedule (default: 0.0125 times the batch size, at most 0.5; with --momentum M, 1 - M "
        "times that; for other optimizers than sgd that of PyTorch; for --model the model's)",
    )
    add(
        "--schedule",
        choices=tuple(SCHEDULES),
        default=SCHEDULE,
        help="how the rate changes from step to step: linear-warmup rises from 0 for a tenth of the steps, then falls "
        "along a cosine to a hundredth; cosine only falls; one-cycle rises from a 25th and falls to nothing; step "
        "falls to a tenth after each third of the steps (default: linear-warmup)",
    )
    add("--optimizer", choices=OPTIMIZERS, help="how a step uses the gradients (default: sgd, or what --model says)")
    add(
        "--momentum",
        type=SHARE_OR_ZERO,
        default=0.0,
        metavar="X",
        help="of sgd or rmsprop, from 0 to below 1 (default: 0)",
    )
    add("--weight-decay", type=from_zero, default=0.0, metavar="X", help="of any optimizer (default: 0)")
    add(
        "--threads",
        type=whole(1, MAX_THREADS),
        default=1,
        metavar="N",
        help="threads that share the images of a step; they change the speed and no bit of the result (default: 1)",
    )
    add(
        "--seed",
        type=whole(0, 2**63 - 1),
        default=1,
        metavar="N",
        help="fixes the initial weights; the images of epoch e = 1, 2, ... are shuffled and moved with the seed "
        "N + e - 1 (default: 1)",
    )
    add(
        "--check-finite",
        action="store_true",
        help="stop before a step that makes a weight inf or nan, and name it; --save then keeps the weights before it",
    )


def add_data(group: Any) -> None:
    add = group.add_argument
    add(
        "--shift",
        type=whole(0, SIDE - 1),
        default=1,
        metavar="N",
        help="in each epoch, move each image by up to N pixels along both axes, at random (default: 1)",
    )
    add("--limit", type=whole(2, 2**63 - 1), metavar="N", help="use only the first N training images")
    add(
        "--validation",
        type=SHARE,
        metavar="X",
        help="hold out this share of the training images, from the end: they say which epoch is the best",
    )
    add(
        "--early-stopping",
        type=whole(1, MAX_EPOCHS),
        metavar="N",
        help="stop after N epochs without a better one; needs --validation",
    )


def add_files(group: Any) -> None:
    add = group.add_argument
    add("--load", type=Path, metavar="FILE", help="start from the weights in this file")
    add_matching(add)
    add("--save", type=Path, metavar="FILE", help="write the weights to this file, in the safetensors format")
    add("--save-best", action="store_true", help="let --save keep the weights of the best epoch; needs --validation")
    add(
        "--log",
        metavar="PATH",
        help="write what each epoch brought: to a file FILE.csv, or to a folder, which gets log.csv, weights and "
        "settings for `micrograd report`, and TensorBoard's events if that package is installed",
    )
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
    add("--hash", action="store_true", help="print the SHA-256 of the weights: the same on every platform")
    add("--quiet", action="store_true", help="print neither a bar nor a line for each epoch")


def check_options(options: argparse.Namespace) -> None:
    """Raises UsageError for options that contradict one another."""
    if options.momentum and options.optimizer not in (None, "sgd", "rmsprop"):
        raise UsageError(f"--momentum is for --optimizer sgd or rmsprop, not {options.optimizer}")
    if options.validation is None:
        for option, value in (("--early-stopping", options.early_stopping), ("--save-best", options.save_best)):
            if value:
                raise UsageError(f"{option} needs --validation X: the best epoch is that of the images held out")
    if options.save_best and options.save is None:
        raise UsageError("--save-best needs --save FILE")
    data = options.data or os.environ.get("MICROGRAD_MNIST")
    logs = [] if options.log is None else [Path(options.log, name) for name in ("", TABLE, SETTINGS, WEIGHTS)]
    files = (("--save", options.save), ("--checkpoint", options.checkpoint), ("--log", options.log))
    for option, path in files:
        if path is not None and data is not None and is_data(Path(path), Path(data)):
            raise UsageError(f"{option} must be no file of --data {data}, got {path}")
        if path is not None and is_model(Path(path), options.model):
            raise UsageError(f"{option} must not be the model itself, got {path}")
    if options.save is not None and identity(options.save) in map(identity, logs[:3]):
        raise UsageError(f"--save and --log must be two files, got {options.log} for both")
    if options.checkpoint is None:
        if options.resume or options.every is not None:
            raise UsageError(f"{'--resume' if options.resume else '--every'} needs --checkpoint FILE")
        return
    if options.every is not None and options.every % options.batch_size:
        raise UsageError(f"--every must be a multiple of --batch-size {options.batch_size}, got {options.every}")
    for option, path in (("--save", options.save), *(("--log", path) for path in logs)):
        if path is not None:
            Checkpoints(options.checkpoint).check_apart(path, option)


def is_data(path: Path, folder: Path) -> bool:
    """Whether a path is that of a data file, which writing would replace."""
    return identity(path) in {identity(file) for file in mnist.candidates(folder)}
