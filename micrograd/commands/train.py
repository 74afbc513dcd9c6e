"""micrograd train: epochs of training, with a test after each, checkpoints and logs."""

import argparse
import contextlib
import hashlib
import math
import signal
import sys
import warnings
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

from micrograd.commands import checkpoint
from micrograd.commands.inputs import load_data, load_weights, matching_of
from micrograd.commands.ranks import Ranks, RanksError, mpi_mode, shared_state, stopped_by_signals, without_files
from micrograd.commands.resume import FIRST_WEIGHTS, Checkpoints, Settings, settings
from micrograd.commands.run_log import Log, about
from micrograd.commands.train_model import SCHEDULES, Recipe, reset
from micrograd.commands.train_options import add_parsers as add_options
from micrograd.commands.train_options import check_options
from micrograd.data import shift
from micrograd.data.mnist import SIDE, Data
from micrograd.errors import INTERRUPTED, UsageError
from micrograd.mpi import Trainer
from micrograd.training import DivergedError, Epoch, Run, Training, held_out, is_early_stop

TERMINATED = 143  # what shells report for a program that SIGTERM ended


def add_parsers(commands: Any) -> None:
    add_options(commands, train)


class Progress:
    """A bar on stderr for the whole run if that is a terminal, and a line on stdout for each epoch."""

    def __init__(self, total: int, is_quiet: bool) -> None:
        self.bar: Any = None
        self.is_quiet = is_quiet
        if not is_quiet and sys.stderr is not None and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError as error:
                raise ImportError("the progress bar needs tqdm: pip install 'micrograd-nn[train]'") from error
            self.bar = tqdm(total=total, unit=" images", unit_scale=True, leave=False, dynamic_ncols=True)

    def __enter__(self) -> Self:
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
        if self.is_quiet:
            return
        if self.bar is not None:
            self.bar.clear()
        print(text, flush=True)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as schedulers send it."""


def terminate(*_: object) -> NoReturn:
    raise Terminated


@dataclass
class Job:
    """A run and everything that it needs."""

    options: argparse.Namespace
    training: Training
    heading: str  # what is trained, where that is not the model of nn
    source: str  # of the data, in words
    checkpoints: Checkpoints | None
    settings: Settings
    log: Log | None
    is_first: bool = True  # of its ranks: the one that prints and writes

    @property
    def run(self) -> Run:
        return self.training.run

    @property
    def every(self) -> int:
        """Images from one checkpoint to the next."""
        return self.training.count if self.training.every is None else self.training.every

    def write_checkpoint(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.write(self.training.model, self.run, self.settings, self.training.count)


def train(options: argparse.Namespace) -> int:
    if mpi_mode(options) is not None:
        ranks = Ranks(getattr(options, "traceback", False))
        return ranks.run(lambda: train_on(ranks, options))
    check_options(options)
    with contextlib.ExitStack() as stack:
        if options.checkpoint is not None:
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, terminate))
        return run_job(stack.enter_context(prepared(options)))


def train_on(ranks: Ranks, options: argparse.Namespace) -> int:
    """train() on every rank. The first one has the files, and what it has read goes to all."""
    options = ranks.first(options)
    ranks.in_turn(lambda: check_options(options))
    if not ranks.is_first:
        options = without_files(options)
        warnings.simplefilter("ignore")  # the first one shows them
    with contextlib.ExitStack() as stack:
        job = ranks.in_turn(lambda: stack.enter_context(prepared(options)))
        job.is_first = ranks.is_first
        ranks.check_equal({name: value for name, value in job.settings.items() if name != FIRST_WEIGHTS})
        job.training.run = shared_state(ranks, job.training)
        ranks.warn_of_few_cores(options.threads)
        trainer = Trainer(job.training.model, ranks.comm, mode=mpi_mode(options) or "")
        job.training.model = trainer
        seen = stack.enter_context(stopped_by_signals(trainer))
        try:
            code = run_job(job)
        except DivergedRunError as error:  # on every rank, since all have the same numbers
            raise RanksError(str(error)) from error
        return TERMINATED if code == INTERRUPTED and signal.SIGTERM in seen else code


def run_job(job: Job) -> int:
    """Trains to the end, or until Ctrl-C, and returns the exit code. Raises UsageError for a run that diverges."""
    stopped: KeyboardInterrupt | DivergedError | None = None
    options, count, run = job.options, job.training.count, job.run
    try:
        with Progress(options.epochs * count, options.quiet) as progress:
            if job.heading:
                progress.line(job.heading)
            train_epochs(job, progress)
    except KeyboardInterrupt as stop:
        stopped = stop
        done = f"at about image {run.images:,} of {count:,}"
        if job.is_first:
            print(f"interrupted in epoch {run.epoch} of {options.epochs}, {done}", file=sys.stderr)
    except DivergedError as stop:
        if not stop.is_rolled_back:
            raise diverged(stop, job) from stop
        stopped = stop
    if job.is_first:
        finish(job, stopped)
    if isinstance(stopped, DivergedError):
        raise diverged(stopped, job) from stopped
    return 0 if stopped is None else TERMINATED if isinstance(stopped, Terminated) else INTERRUPTED


class DivergedRunError(UsageError):
    """A run whose numbers became inf or nan."""


def diverged(error: DivergedError, job: Job) -> DivergedRunError:
    """What happened, what is in --save, and what to try."""
    hint = "a smaller --learning-rate may help"
    if error.is_rolled_back:
        return DivergedRunError(f"{error}: {hint}")
    is_best_saved = job.options.save_best and job.run.best_epoch
    kept = (
        f"{job.options.save} has the weights after epoch {job.run.best_epoch}" if is_best_saved else "nothing is saved"
    )
    return DivergedRunError(f"{error}, {kept}: {hint}, and --check-finite stops before the step and names a weight")


def check_sound(job: Job) -> None:
    """Raises DivergedError for weights that are useless after an epoch whose own loss was still finite."""
    run = job.run
    if math.isnan(run.test_loss):
        raise DivergedError(f"the test loss after epoch {run.epoch} is nan", is_rolled_back=False)
    for name, view in job.training.model.state_dict().items():
        if not all(map(math.isfinite, memoryview(view.tobytes()).cast(view.format[-1]))):
            raise DivergedError(f"{name} has numbers that are not finite after epoch {run.epoch}", is_rolled_back=False)


@contextlib.contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Job]:
    """The run from its beginning, or with --resume from its checkpoint; the checkpoint is locked until it has ended."""
    how = matching_of(options, options.load, "--load")
    recipe = Recipe.of(options)
    model = recipe.compiled()
    if options.save is not None:
        checkpoint.check_writable(options.save)
    checkpoints = None if options.checkpoint is None else Checkpoints(options.checkpoint)
    with contextlib.nullcontext() if checkpoints is None else checkpoints.locked():
        if checkpoints is not None and not options.resume:
            checkpoints.check_unused()
        if options.load is None:
            reset(model, options.seed)
        else:
            load_weights(model, options.load, how)
        yield job_of(model, recipe, options, checkpoints)


def job_of(model: Any, recipe: Recipe, options: argparse.Namespace, checkpoints: Checkpoints | None) -> Job:
    data = load_data(options)
    rate = options.learning_rate
    rate = recipe.default_rate(model, options.batch_size) if rate is None else rate
    is_compared = checkpoints is not None or mpi_mode(options) is not None
    now = settings(model, data, recipe, options, rate) if is_compared else {}
    training = training_of(model, data, options)
    steps = options.epochs * training.steps
    try:
        training.learning_rate = SCHEDULES[options.schedule](rate, steps)
    except ValueError as error:
        raise UsageError(f"--schedule {options.schedule}: {error}") from error
    if checkpoints is not None:
        training.run = resumed(checkpoints, model, now, options, training.count)
    log = None if options.log is None else Log(options.log)
    if log is not None:
        is_done = training.run.images == training.count
        log.begin(options, recipe, rate, training.run.epoch + is_done)
    heading = (
        "" if recipe.is_built_in else f"{model.info()['architecture']}: {model.info()['dtype']}, {recipe.update()}"
    )
    job = Job(options, training, heading, data.source, checkpoints, now, log)
    training.pause = job.write_checkpoint
    return job


def training_of(model: Any, data: Data, options: argparse.Namespace) -> Training:
    """The images, --limit of them, those held out apart."""
    pixels = SIDE * SIDE
    count = min(len(data.train_labels), options.limit or len(data.train_labels))
    held = 0
    if options.validation is not None:
        try:
            held = held_out(count, options.validation)
        except ValueError as error:
            raise UsageError(f"--validation: {error}") from error
    first = count - held
    return Training(
        model,
        data.train_images[: first * pixels],
        data.train_labels[:first],
        first,
        batch_size=options.batch_size,
        seed=options.seed,
        threads=options.threads,
        validation=(data.train_images[first * pixels : count * pixels], data.train_labels[first:count])
        if held
        else None,
        test=(data.test_images, data.test_labels),
        augment=shift.by(options.shift) if options.shift else None,
        check_finite=options.check_finite,
        every=options.every,
    )


def resumed(checkpoints: Checkpoints, model: Any, now: Settings, options: argparse.Namespace, count: int) -> Run:
    """The start of the run: with --resume its checkpoint, if there is one."""
    run = checkpoints.read(model, now, count) if options.resume else None
    if run is None:
        if options.resume:
            print(f"{options.checkpoint}: no checkpoint yet, starting from the beginning")
        return Run()
    if run.epoch > options.epochs:
        raise UsageError(f"--epochs is {options.epochs}, but {options.checkpoint} is of {run.place(count)}")
    if options.save_best and run.best_epoch and not options.save.exists():
        raise UsageError(f"{options.save}: no such file, but {options.checkpoint} is of a run that had saved its best")
    print(f"{options.checkpoint}: going on from {run.place(count)}")
    return run


def train_epochs(job: Job, progress: Progress) -> None:
    options, training, run = job.options, job.training, job.run
    training.progress = lambda loss: show(job, progress, loss)
    if run.images == training.count and is_early_stop(run, options.early_stopping):
        return
    try:
        train_and_write(job, progress)
    finally:
        if job.log is not None:
            job.log.close()


def train_and_write(job: Job, progress: Progress) -> None:
    """Each epoch, and everything that is written after it."""
    options, training, run = job.options, job.training, job.run
    since = 0  # images since the last checkpoint
    for _ in training.epochs(options.epochs):
        check_sound(job)
        progress.line(f"epoch {run.epoch}/{options.epochs}: {figures(run)}")
        if job.log is not None:
            try:
                job.log.add(Epoch.of(training))
            except OSError as error:  # the weights exist only in memory
                print(f"warning: {options.log}: {error.strerror}", file=sys.stderr)
        if options.save_best and run.best_epoch == run.epoch:
            save_weights(job)
        is_last = run.epoch == options.epochs or is_early_stop(run, options.early_stopping)
        since += training.count
        if since >= job.every or is_last:
            job.write_checkpoint()
            since = 0
        if is_last:
            break


def show(job: Job, progress: Progress, loss: float) -> None:
    """Moves the bar."""
    run, count = job.run, job.training.count
    tested = f", test accuracy {run.test_accuracy:.2%}" if run.best_epoch else ""
    done = (run.epoch - 1) * count + run.images
    progress.show(done, f"epoch {run.epoch}/{job.options.epochs}", f"loss {loss:.4f}{tested}")


def figures(run: Run) -> str:
    held_out = f"validation loss {run.validation_loss:.4f}, validation accuracy {run.validation_accuracy:.2%}, "
    return (
        f"training loss {run.loss:.4f}, {held_out if run.validation_loss == run.validation_loss else ''}"
        f"test loss {run.test_loss:.4f}, test accuracy {run.test_accuracy:.2%}"
    )


def save_weights(job: Job) -> None:
    """To --save and into the log's folder."""
    model = job.training.model
    if job.options.save is not None:
        checkpoint.save(job.options.save, model.state_dict(), about(model))
    if job.log is not None:
        job.log.save(model)


def finish(job: Job, stopped: BaseException | None) -> None:
    """Saves the weights and prints the summary. Raises the OSError of a last checkpoint that was not written."""
    if not job.options.save_best:
        save_weights(job)
    summarise(job, stopped)
    if job.options.hash:
        print(f"weights        SHA-256 {weights_hash(job.training.model.state_dict())}")
    if job.checkpoints is not None:
        print(f"checkpoint     {job.options.checkpoint}: {job.checkpoints.written}")
        if job.checkpoints.failure is not None:
            raise job.checkpoints.failure


def weights_hash(tensors: Mapping[str, memoryview]) -> str:
    """SHA-256 of tensors of float64 or float32, one after the other, as little-endian numbers in C order."""
    digest = hashlib.sha256()
    for tensor in tensors.values():
        numbers = array(tensor.format[-1], tensor.tobytes())
        if sys.byteorder == "big":
            numbers.byteswap()
        digest.update(numbers.tobytes())
    return digest.hexdigest()


def summarise(job: Job, stopped: BaseException | None) -> None:
    options, run = job.options, job.run
    images = (run.epoch - 1) * job.training.count + run.images
    print()
    if stopped is None:
        print(f"test loss      {run.test_loss:.4f}")
        print(f"test accuracy  {run.test_accuracy:.2%}")
        if run.epoch < options.epochs:
            print(f"stopped early  after {options.early_stopping} epochs without a better one")
    if run.best_epoch:
        of = "" if options.validation is None else " of the images held out"
        print(f"best epoch     {run.best_epoch} ({run.best_score:.2%}{of})")
    if images:
        speed = f"{images / run.seconds:,.0f} images/s, {run.seconds / images * 1e6:.2f} µs per image"
        print(f"training       {run.seconds:.2f} s, {speed}")
    print(f"data           {job.source}")
    print(f"saved          {saved(options, run, stopped)}")


def saved(options: argparse.Namespace, run: Run, stopped: BaseException | None) -> str:
    if options.save is None or (options.save_best and not run.best_epoch):
        return "nothing"
    if options.save_best:
        return f"{options.save}: the weights after epoch {run.best_epoch}, the best"
    what = "the weights as of the last whole step" if stopped is not None else "the weights after the last epoch"
    return f"{options.save}: {what}"
