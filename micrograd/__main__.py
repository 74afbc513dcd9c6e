"""python -m micrograd train | eval | predict | draw: the compiled model at work on MNIST, and pictures of models."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from micrograd import __version__, checkpoint, draw_command, mnist
from micrograd.dot import DrawError
from micrograd.mnist import SIDE, Data

PIXELS = SIDE * SIDE
MOST_EPOCHS = 10**9
MOST_THREADS = 64
EXAMPLES = 10  # images that `predict` shows where none is asked for
USER_ERROR = 2
INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended
BLOCKS = " ▀▄█"  # for two pixels, one above the other: none, the upper, the lower, both
SHADES = " .:-=+*#%@"  # for two pixels where there are no blocks, from black to white
BAR = 30  # characters of a certain prediction

PGM_SPACE = rb"(?:\s|#[^\n]*\n)+"
PGM_HEADER = re.compile(rb"P5" + 3 * (PGM_SPACE + rb"(\d{1,9})") + rb"\s")


class UsageError(Exception):
    """Something the user has to put right, in words."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that explains an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0, 2 after an error of the user's, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    options = parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of a pipe has seen enough. Python must not fail again when it flushes on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        print(f"error: {error.filename}: {error.strerror}" if named else f"error: {error}", file=sys.stderr)
    except (UsageError, mnist.DataError, checkpoint.CheckpointError, DrawError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
    return USER_ERROR


def parser() -> Parser:
    top = Parser(prog="python -m micrograd", description="Train the compiled model and use it; draw models.")
    top.add_argument("--version", action="version", version=f"micrograd-nn {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    data = Parser(add_help=False)
    where = data.add_mutually_exclusive_group()
    where.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder with MNIST's four idx files, plain or .gz (default: $MICROGRAD_MNIST, else a download kept in "
        "the user's cache, else the built-in digits)",
    )
    where.add_argument("--digits", action="store_true", help="the built-in digits instead of MNIST")

    train_parser = commands.add_parser(
        "train",
        parents=[data],
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
    add("--check-finite", action="store_true", help="stop before a step that makes a weight inf or nan, and name it")
    add("--load", type=Path, metavar="FILE", help="start from the weights in this file")
    add("--save", type=Path, metavar="FILE", help="write the weights to this file, in the safetensors format")

    eval_parser = commands.add_parser(
        "eval",
        parents=[data],
        help="test saved weights",
        description="The loss and the accuracy of saved weights on the test images, and the accuracy digit by digit.",
    )
    eval_parser.set_defaults(command=evaluate)
    eval_parser.add_argument("--load", type=Path, required=True, metavar="FILE", help="the weights")

    predict_parser = commands.add_parser(
        "predict",
        parents=[data],
        help="show images and what the model makes of them",
        description=f"Show images and what the model makes of them: the files given, or one of the test images, or "
        f"the first {EXAMPLES} of them.",
    )
    predict_parser.set_defaults(command=predict)
    add = predict_parser.add_argument
    add("--load", type=Path, metavar="FILE", help="the weights; default: those that come with the module")
    add("--index", type=whole(0, 2**63 - 1), metavar="I", help="the number of a test image, from 0")
    add(
        "files",
        nargs="*",
        type=Path,
        metavar="IMAGE",
        help=f"a file of {PIXELS} bytes or a binary PGM (P5), {SIDE} x {SIDE} pixels, light strokes on black",
    )

    draw_command.add_parser(commands)
    return top


def whole(low: int, high: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"expected {low}..{high}, got {number}")
        return number

    return parse


def rate(text: str) -> float:
    """The type of an argument that is a positive number."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return number


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
        "check_finite": options.check_finite,
    }
    if options.learning_rate is not None:
        settings["learning_rate"] = options.learning_rate
    start = time.perf_counter()
    try:
        [loss] = nn.train(data.train_images, data.train_labels, **settings)
    except FloatingPointError as error:
        raise UsageError(f"epoch {run.epoch}: {error}: a smaller --learning-rate may help") from error
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


def evaluate(options: argparse.Namespace) -> int:
    nn = compiled_model()
    load_weights(nn, options.load)
    data = load_data(options)
    loss, accuracy = nn.evaluate(data.test_images, data.test_labels)
    predictions = nn.predict_batch(data.test_images)
    print(f"test loss      {loss:.4f}")
    print(f"test accuracy  {accuracy:.2%} of {len(data.test_labels):,} images")
    print(f"data           {data.source}")
    print("\ndigit  images   right  accuracy")
    for digit in range(mnist.CLASSES):
        pairs = zip(data.test_labels, predictions, strict=True)
        answers = [prediction for label, prediction in pairs if label == digit]
        right = answers.count(digit)
        share = f"{right / len(answers):.2%}" if answers else "-"
        print(f"{digit:5}  {len(answers):6,}  {right:6,}  {share:>8}")
    return 0


def predict(options: argparse.Namespace) -> int:
    nn = compiled_model("nn" if options.load is not None else "nn_infer")
    if options.files and (options.index is not None or options.data is not None or options.digits):
        raise UsageError("image files exclude --index, --data and --digits")
    if options.load is not None:
        load_weights(nn, options.load)
    if options.files:
        for path in options.files:
            show(nn, str(path), read_image(path), None)
        return 0
    data = load_data(options)
    count = len(data.test_labels)
    if options.index is not None and options.index >= count:
        raise UsageError(f"--index must be 0..{count - 1}, got {options.index}")
    for i in range(min(count, EXAMPLES)) if options.index is None else [options.index]:
        show(nn, f"test image {i}", data.test_images[i * PIXELS : (i + 1) * PIXELS], data.test_labels[i])
    return 0


def show(nn: ModuleType, title: str, pixels: bytes, label: int | None) -> None:
    """Prints an image and, beside it, the probability of each digit."""
    best = nn.predict(pixels)
    truth = "" if label is None else f", true label {label} ({'right' if best == label else 'wrong'})"
    print(f"{title}: predicted {best}{truth}")
    blocks = can_print(BLOCKS)
    rows = [f"{row}  " for row in picture(pixels, blocks)]
    for digit, probability in enumerate(nn.probabilities(pixels)):
        bar = (BLOCKS[-1] if blocks else "#") * (round(BAR * probability) if probability == probability else 0)
        rows[digit + 2] += f"  {digit} {probability:7.2%} {bar}"
    print("\n".join(row.rstrip() for row in rows) + "\n")


def picture(pixels: bytes, blocks: bool) -> list[str]:
    """14 lines of 28 characters, two pixels in each: a character is about twice as high as it is wide."""
    lines = []
    for top in range(0, PIXELS, 2 * SIDE):
        pairs = zip(pixels[top : top + SIDE], pixels[top + SIDE : top + 2 * SIDE], strict=True)
        if blocks:
            lines.append("".join(BLOCKS[(upper >= 96) + 2 * (lower >= 96)] for upper, lower in pairs))
        else:
            lines.append("".join(SHADES[(upper + lower) * len(SHADES) // 512] for upper, lower in pairs))
    return lines


def can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def read_image(path: Path) -> bytes:
    """The pixels of a raw or PGM file. Raises OSError and UsageError."""
    with path.open("rb") as file:
        content = file.read(2**16)
    if len(content) == PIXELS:
        return content
    header = PGM_HEADER.match(content)
    if header is None:
        raise UsageError(f"{path}: {len(content)} bytes and no binary PGM (P5) header, expected {PIXELS} bytes or one")
    width, height, white = map(int, header.groups())
    pixels = content[header.end() :]
    if (width, height, white) != (SIDE, SIDE, 255):
        raise UsageError(f"{path}: {width} x {height} pixels up to {white}, expected {SIDE} x {SIDE} pixels up to 255")
    if len(pixels) != PIXELS:
        raise UsageError(f"{path}: {len(pixels)} bytes follow the PGM header, expected {PIXELS}")
    return pixels


def compiled_model(name: str = "nn") -> ModuleType:
    """nn, which can be trained, or nn_infer, which has been."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"the compiled module {name} is not installed: pip install micrograd-nn, or in a source tree pip install ."
        ) from error


def load_weights(nn: ModuleType, path: Path) -> None:
    shapes = {name: view.shape for name, view in nn.state_dict().items()}
    nn.load_state_dict(checkpoint.load(path, shapes))


def load_data(options: argparse.Namespace) -> Data:
    return mnist.load(options.data, "digits" if options.digits else "auto")


if __name__ == "__main__":
    sys.exit(main())
