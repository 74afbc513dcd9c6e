"""The usual training job: epochs of shuffled batches, a test after each on examples held out, the best weights kept.

    from micrograd import schedules, training

    history = training.fit(
        model, images, labels, epochs=10, batch_size=8, learning_rate=schedules.cosine(0.15, 67_500), validation=0.1
    )

`model` is `nn` or whatever codegen.compile() returns. `micrograd train` is a Training with options, logs and files.
"""

import copy
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Self, TypeAlias

from micrograd.schedules import Schedule, finite, whole

Pair: TypeAlias = tuple[Any, Any]  # inputs and targets
NUMBERS = ("uint8", "float32", "float64")  # types that stand in rows of a known width
Augment: TypeAlias = Callable[[Any, int], Any]  # new inputs for an epoch, from the inputs and a seed


class DivergedError(ArithmeticError):
    """The loss or a parameter became inf or nan."""

    def __init__(self, message: str, is_rolled_back: bool) -> None:
        super().__init__(message)
        self.is_rolled_back = is_rolled_back  # the parameters are those of the last whole step, all finite

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.is_rolled_back)


@dataclass
class Run:
    """How far a training run has come. What was not measured is nan."""

    epoch: int = 1  # the one under way, or the last
    images: int = 0  # done in it
    loss: float = 0.0  # their mean
    seconds: float = 0.0  # spent in training, not in testing
    validation_loss: float = math.nan
    validation_accuracy: float = math.nan
    test_loss: float = math.nan
    test_accuracy: float = math.nan
    best_epoch: int = 0
    best_score: float = -math.inf

    def place(self, count: int) -> str:
        """The position as text. count: images of an epoch."""
        if self.images == count:
            return f"the end of epoch {self.epoch}"
        return f"epoch {self.epoch}, image {self.images:,} of {count:,}"

    def score(self, is_validated: bool) -> float:
        """What makes an epoch the best: accuracy, else a small loss, on the examples held out, else in the test."""
        loss, accuracy = self.test_loss, self.test_accuracy
        if is_validated:
            loss, accuracy = self.validation_loss, self.validation_accuracy
        return -loss if math.isnan(loss) or math.isnan(accuracy) else accuracy


@dataclass
class Training:
    """A model, its data, and how it is trained. epochs() goes on from `run`, which is always up to date."""

    model: Any
    inputs: Any
    targets: Any
    count: int  # of examples
    batch_size: int = 1
    learning_rate: Schedule | float | None = None  # a schedule goes on from epoch to epoch
    seed: int | None = 1  # epoch e = 1, 2, ... is shuffled with seed + e - 1
    threads: int = 1
    validation: Pair | None = None
    test: Pair | None = None
    augment: Augment | None = None
    check_finite: bool = False
    # Examples from one pause within an epoch to the next, a multiple of batch_size. A model that draws numbers has no
    # pauses: only a whole epoch draws them from its seed, and has the same ones if it is repeated.
    every: int | None = None
    pause: Callable[[], object] = lambda: None
    progress: Callable[[float], object] | None = None  # called now and then with the mean loss so far
    run: Run = field(default_factory=Run)

    def __post_init__(self) -> None:
        self.batch_size = whole("batch_size", self.batch_size)

    def epochs(self, last: int) -> Iterator[Run]:
        """Trains to the end of epoch `last`, and yields after each epoch. Raises DivergedError."""
        run = self.run
        for epoch in range(run.epoch if run.images < self.count else run.epoch + 1, last + 1):
            if epoch != run.epoch:
                run.epoch, run.images, run.loss = epoch, 0, 0.0
            self._train_epoch()
            self._test()
            yield run

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0 over all epochs."""
        if self.learning_rate is None:
            return float(self.model.info()["learning_rate"])
        return self.learning_rate(step) if callable(self.learning_rate) else self.learning_rate

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return -(-self.count // self.batch_size)

    def _train_epoch(self) -> None:
        run = self.run
        seed = None if self.seed is None else self.seed + run.epoch - 1
        inputs = self.inputs
        if self.augment is not None:
            inputs = self.augment(inputs, run.epoch if seed is None else seed)
        if run.images == 0 and (self.every is None or self.every >= self.count or self.model.info()["noise"]):
            self._train_piece(inputs, self.targets, self.count, seed)
        else:
            self._train_in_pieces(inputs, seed)

    def _train_in_pieces(self, inputs: Any, seed: int | None) -> None:
        """The rest of an epoch, with pauses: examples in the order of model.train(seed), whole steps per call."""
        order = list(range(self.count))
        if seed is not None:
            random.Random(seed).shuffle(order)
        every = self.count if self.every is None else self.every
        while (first := self.run.images) < self.count:
            chosen = order[first : first - first % every + every]
            targets = _chosen(self.targets, chosen, self.count)
            self._train_piece(_chosen(inputs, chosen, self.count), targets, len(chosen), None)
            if self.run.images < self.count:
                self.pause()

    def _train_piece(self, inputs: Any, targets: Any, count: int, seed: int | None) -> None:
        """Trains on the next examples of an epoch, shuffled if there is a seed."""
        run = self.run
        behind = run.images
        rate: Any = self.learning_rate
        if callable(rate):
            first = (run.epoch - 1) * self.steps + behind // self.batch_size
            rate = lambda step: _finite_rate(self.rate_at(first + step), first + step)  # noqa: E731

        def report(done: int, _total: int, loss: float) -> None:
            run.images = behind + done
            if self.progress is not None:
                self.progress(loss)

        start = time.perf_counter()
        try:
            [loss] = self.model.train(
                inputs,
                targets,
                batch_size=self.batch_size,
                learning_rate=rate,
                seed=seed,
                threads=self.threads,
                progress=report,
                check_finite=self.check_finite,
            )
        except FloatingPointError as error:
            raise DivergedError(f"epoch {run.epoch}: {error}", is_rolled_back=True) from error
        finally:
            run.seconds += time.perf_counter() - start
        if not math.isfinite(loss):
            raise DivergedError(f"the training loss of epoch {run.epoch} is {loss}", is_rolled_back=False)
        # The mean of the pieces' means; of one piece it is that piece's, to the bit.
        run.loss += (loss - run.loss) * (count / run.images)

    def _test(self) -> None:
        run = self.run
        if self.validation is not None:
            run.validation_loss, run.validation_accuracy = self._evaluate(self.validation)
        if self.test is not None:
            run.test_loss, run.test_accuracy = self._evaluate(self.test)
        score = run.score(self.validation is not None)
        if score > run.best_score:
            run.best_epoch, run.best_score = run.epoch, score

    def _evaluate(self, pair: Pair) -> tuple[float, float]:
        loss, accuracy = self.model.evaluate(*pair, threads=self.threads)
        return loss, math.nan if accuracy is None else accuracy


@dataclass(frozen=True)
class Epoch:
    """A row of a History. What was not measured is nan."""

    number: int
    loss: float  # the mean during the epoch
    learning_rate: float  # of its last step
    validation_loss: float
    validation_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float  # of training, since the start of the run

    @classmethod
    def of(cls, job: Training) -> Self:
        run = job.run
        rate = job.rate_at(run.epoch * job.steps - 1)
        tested = (run.validation_loss, run.validation_accuracy, run.test_loss, run.test_accuracy)
        return cls(run.epoch, run.loss, rate, *tested, run.seconds)


@dataclass
class History:
    """What fit() returns: a row for each epoch, the number of the best one (0 if nothing was held out), and whether
    early stopping ended it."""

    epochs: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0
    stopped_early: bool = False


def fit(
    model: Any,
    inputs: Any,
    targets: Any,
    *,
    epochs: int = 10,
    batch_size: int = 1,
    learning_rate: Schedule | Sequence[float] | float | None = None,
    seed: int | None = 1,
    threads: int = 1,
    validation: float | Pair | None = None,
    test: Pair | None = None,
    augment: Augment | None = None,
    early_stopping: int | None = None,
    keep_best: bool = False,
    check_finite: bool = False,
    each_epoch: Callable[[Epoch], object] | None = None,
) -> History:
    """Trains a compiled model from the parameters that it has, and returns what happened epoch by epoch.

    inputs, targets: as model.train() takes them.
    learning_rate: a number, a schedule of all steps of the run, or one number for each of these steps.
    seed: epoch e = 1, 2, ... is shuffled with seed + e - 1; None keeps the order.
    validation: (inputs, targets) that the model is not trained on, or the share of the examples, from the end, to hold
        out. They decide which epoch is the best, by accuracy, or by the loss if the model has no classes.
    test: (inputs, targets) that are only measured after each epoch.
    augment: augment(inputs, seed of the epoch) returns the inputs of an epoch, as micrograd.data.shift does.
    early_stopping: stop after so many epochs without a better one.
    keep_best: end with the parameters of the best epoch instead of the last, and with what the optimizer kept then,
        also if an exception ends the run.
    check_finite: stop before a step that makes a parameter inf or nan.
    each_epoch: called with the Epoch after each. It ends the run by raising StopIteration.

    Raises DivergedError if the loss or, with check_finite, a parameter becomes inf or nan, and what model.train() does.
    """
    if not hasattr(model, "info"):
        raise TypeError(f"fit() trains a compiled model, of codegen.compile(), not {type(model).__name__}")
    if augment is not None and not callable(augment):
        raise TypeError(f"augment must be a function of inputs and a seed, not {type(augment).__name__}")
    if validation is None and (keep_best or early_stopping is not None):
        raise ValueError(f"{'keep_best' if keep_best else 'early_stopping'} needs validation examples")
    if each_epoch is not None and not callable(each_epoch):
        raise TypeError(f"each_epoch must be a function of an Epoch, not {type(each_epoch).__name__}")
    for what, pair in (("validation", validation), ("test", test)):
        is_share = pair is None or (what == "validation" and isinstance(pair, Real))
        if not is_share and not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise TypeError(f"{what} must be (inputs, targets), not {type(pair).__name__}")
    epochs = whole("epochs", epochs)
    if seed is not None and whole("seed", seed, 0) + epochs > 2**64:
        raise ValueError(f"seed + epochs - 1 must be below 2**64, got the seed {seed}")
    if early_stopping is not None:
        early_stopping = whole("early_stopping", early_stopping)
    inputs, targets = _lent(model, "input", inputs), _lent(model, "target", targets)
    count = count_examples(model, inputs, targets)
    held_pair: Any = validation
    if isinstance(validation, Real):
        held = held_out(count, float(validation))
        held_pair = _part(inputs, count - held, count, count), _part(targets, count - held, count, count)
        inputs, targets = _part(inputs, 0, count - held, count), _part(targets, 0, count - held, count)
        count -= held
    job = Training(model, inputs, targets, count, batch_size, None, seed, threads, held_pair, test, augment)
    job.check_finite = check_finite
    job.learning_rate = _schedule(learning_rate, epochs * job.steps)
    for given in (held_pair, test):
        if given is not None:
            job._evaluate(given)  # what does not fit the model raises before anything is trained
    history, best = History(), None
    try:
        for run in job.epochs(epochs):
            history.epochs.append(Epoch.of(job))
            history.best_epoch = run.best_epoch
            if keep_best and run.best_epoch == run.epoch:
                best = copy.deepcopy(model.state_dict()), copy.deepcopy(model.optimizer_state())
            is_done = is_early_stop(run, early_stopping)
            try:
                if each_epoch is not None:
                    each_epoch(history.epochs[-1])
            except StopIteration:
                is_done = True
            history.stopped_early = is_done and run.epoch < epochs
            if history.stopped_early:
                break
    except DivergedError as error:
        hint = "a smaller learning_rate may help, if no input or target is nan"
        raise DivergedError(f"{error}: {hint}", error.is_rolled_back) from error
    finally:
        if best is not None:
            model.load_state_dict(best[0])
            model.load_optimizer_state(best[1])
    return history


def is_early_stop(run: Run, patience: int | None) -> bool:
    """Whether no epoch of the last `patience` ones was better than those before."""
    return patience is not None and run.best_epoch <= run.epoch - patience


def held_out(count: int, share: float) -> int:
    """How many of the examples a share is. Raises ValueError if that leaves none on either side."""
    held = round(count * share) if 0 < share < 1 else 0
    if not 0 < held < count:
        raise ValueError(f"validation must be a share of {count} examples that leaves some on both sides, got {share}")
    return held


def count_examples(model: Any, inputs: Any, targets: Any) -> int:
    """How many examples there are: rows, or flat numbers in rows of the model's own width.

    Raises ValueError for things that do not have equally many, and for named ones that are all flat: pass them as rows.
    """
    info = model.info()
    # A name, what a caller passes, and how many numbers an example has, 0 if that is unknown
    things: list[tuple[str, Any, int]] = []
    for name, given in (("inputs", inputs), ("targets", targets)):
        if isinstance(given, Mapping):
            width = int(info[name] == len(given))  # 1 if all parts are single numbers
            things += [(f"{name}[{key!r}]", part, width) for key, part in given.items()]
        elif given is not None and info[name]:
            kind = info[f"{name[:-1]}_type"]
            things.append((name, given, 1 if kind == "label" else info[name] if kind in NUMBERS else 0))
    for name, thing, _ in things:
        has_elements = hasattr(thing, "__len__") and hasattr(thing, "__getitem__")
        if not has_elements or getattr(thing, "shape", None) == ():
            raise TypeError(f"{name} must be rows or a buffer, not {type(thing).__name__}")
    counts = {name: len(thing) for name, thing, _ in things if _has_rows(thing)}
    counts |= {name: len(thing) // width for name, thing, width in things if width and name not in counts}
    if not things:
        return 1
    if not counts:
        names = ", ".join(name for name, *_ in things)
        raise ValueError(f"how many examples are there? {names} are flat: pass one of them as rows")
    (first, count), *others = counts.items()
    for name, other in others:
        if other != count:
            raise ValueError(f"{name} has {other} examples, but {first} has {count}")
    for name, thing, width in things:
        if not _has_rows(thing) and (len(thing) % max(count, 1) or (width and len(thing) != count * width)):
            expected = f"{count * width}" if width else f"a multiple of {count}"
            raise ValueError(f"{name} must hold {expected} numbers for {count} examples, got {len(thing)}")
    return count


def _lent(model: Any, name: str, given: Any) -> Any:
    """As an array what lends one, as a DataFrame does; its columns, if the model has named parts."""
    if isinstance(given, Mapping) or (model.info()[f"{name}_type"][:1] == "{" and hasattr(given, "keys")):
        return {key: _lent(model, name, given[key]) for key in given.keys()}  # noqa: SIM118
    lend = getattr(given, "__array__", None)
    return given if lend is None else lend()


def _has_rows(thing: Any) -> bool:
    """Whether an example is an element, not some of them."""
    return len(getattr(thing, "shape", ())) > 1 or (len(thing) > 0 and hasattr(thing[0], "__len__"))


def _part(thing: Any, first: int, end: int, count: int) -> Any:
    """Some of the examples, which are rows of an array, or stand one after the other."""
    if thing is None:
        return None
    if isinstance(thing, Mapping):
        return {name: _part(each, first, end, count) for name, each in thing.items()}
    width = len(thing) // count
    return thing[first * width : end * width]


def _chosen(thing: Any, chosen: list[int], count: int) -> Any:
    """These examples, in this order."""
    import numpy as np

    if thing is None:
        return None
    if isinstance(thing, Mapping):
        return {name: _chosen(each, chosen, count) for name, each in thing.items()}
    rows = np.frombuffer(thing, np.uint8) if isinstance(thing, bytes | bytearray) else np.asarray(thing)
    if len(rows) != count:
        rows = rows.reshape(count, -1)
    return rows[np.array(chosen)]


def _schedule(rate: Schedule | Sequence[float] | float | None, steps: int) -> Schedule | float | None:
    if rate is None or callable(rate):
        return rate
    given: Any = rate
    if isinstance(given, Real) or getattr(given, "shape", None) == ():
        return finite("learning_rate", given if isinstance(given, Real) else given.item())
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        raise TypeError(f"learning_rate must be a number, one for each step, or a schedule, not {type(given).__name__}")
    if len(given) != steps:
        raise ValueError(f"learning_rate must hold one rate for each of the {steps} steps, got {len(given)}")
    for step in range(steps):
        try:
            is_finite = math.isfinite(given[step])  # of all that train() takes
        except (TypeError, OverflowError):
            is_finite = False
        if not is_finite:
            raise ValueError(f"learning_rate[{step}] must be a finite number, got {given[step]!r}")
    found: Schedule = given.__getitem__
    return found


def _finite_rate(rate: Any, step: int) -> Any:
    if isinstance(rate, float) and not math.isfinite(rate):
        raise ValueError(f"learning_rate({step}) must be finite, got {rate}")
    return rate
