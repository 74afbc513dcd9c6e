"""Bytes -> a sequence of calls of one compiled module, and all that can be observed of it.

An error must be one of those that are documented, or one that an argument of ours raised itself, and leave parameters
and gradients as they were.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from math import prod
from types import ModuleType
from unittest.mock import patch

import numpy as np

from codegen.kinds import Part
from tools.fuzz.choices import Choices
from tools.fuzz.common import Wrong
from tools.fuzz.models import Pair
from tools.fuzz.objects import ERRORS, FLOATS, Trap, buffer, content, plain, strided, wrapped

DOCUMENTED = (TypeError, ValueError, RuntimeError, FloatingPointError)
MAX_CALLS = 24  # of one sequence
MAX_IMAGES = 70  # more than one block
ALL, SOME = 150, 16  # parameters that are compared after each call
DEPTH = 2  # of calls inside of calls

Transcript = list[object]


class Session:
    """One sequence of calls of one module."""

    def __init__(self, pair: Pair, module: ModuleType, c: Choices, operations: str) -> None:
        self.pair, self.module, self.c = pair, module, c
        self.operations = [name for name in OPERATIONS[operations] if hasattr(module, NEEDS.get(name, name))]
        self.views: list[memoryview] = []
        self.raised: list[BaseException] = []  # by our own objects
        self.depth = 0
        self.changes = 0  # calls that came to an end, or got as far as to report their progress
        self.frozen = not hasattr(module, "forward")
        self.looks = c.chance(96)  # at all gradients, which otherwise may stay uncomputed
        self.last: object = None  # state

    def run(self) -> Transcript:
        self.pair.renew(self.module)
        self.last = self.state()
        transcript: Transcript = [self.last]
        for _ in range(MAX_CALLS):
            if not self.c:
                break
            transcript += self.step()
        self.views.clear()
        if not self.frozen:
            self.looks = True
            transcript.append(self.state())
        return transcript

    def step(self) -> Transcript:
        """One call: what it is, what it gave, and the state after it."""
        name = self.c.one_of(self.operations)
        before, changes, raised = self.last, self.changes, None
        self.raised.clear()
        try:
            result = encode(getattr(self, f"do_{name}", self.do_call)(name))
            self.changes += 1
            outcome: object = (name, "gave", result)
        except Exception as error:
            if isinstance(error, Wrong):
                raise
            if type(error) not in DOCUMENTED and not any(error is own for own in self.raised):
                raise Wrong(f"{name} raised {error!r}") from error
            outcome, raised = (name, type(error).__name__, str(error)), error
            self.changes += isinstance(error, FloatingPointError)  # after some steps
        self.last = self.state()
        if raised and changes == self.changes and self.last != before:
            raise Wrong(f"{name} raised {raised!r} and changed the model") from raised
        return [outcome, self.last]

    def state(self) -> object:
        """The bits of all parameters, and of all gradients where they are looked at."""
        if self.frozen:
            return None
        seen = ALL if self.looks else SOME
        numbers = range(0, self.pair.parameters, max(self.pair.parameters // seen, 1))
        elements = [self.module.data(i) for i in numbers]
        return bits(elements + ([self.module.grad(i) for i in numbers] if self.looks else []))

    # Arguments

    def trap(self) -> Trap:
        """An object that raises, calls the module again, or gives a plain answer when it is asked for anything."""
        kind, error, answer = self.c.below(4), self.c.one_of(ERRORS), plain(self.c)
        if isinstance(answer, bool):  # in place of an int, that is deprecated
            answer = int(answer)

        def act() -> object:
            if kind == 0:
                raise self.own(error("trap"))
            if kind == 1 and self.depth < DEPTH:
                self.nested()
            return answer

        return Trap(act, self.reported)

    def reported(self) -> None:
        """The call has got as far as to report its progress, so it may have changed the model."""
        self.changes += 1

    def own(self, error: BaseException) -> BaseException:
        self.raised.append(error)
        return error

    def nested(self) -> None:
        """A call inside of a call; its errors end here."""
        self.depth += 1
        try:
            outer = self.raised[:]
            self.last = self.state()  # that of the outer call so far
            self.step()
            self.raised = outer + self.raised
        finally:
            self.depth -= 1

    def or_odd(self, make: Callable[[], object]) -> object:
        """Mostly what `make` makes, which is right."""
        if not self.c.chance(40):
            return make()
        return self.trap() if self.c.chance(96) else plain(self.c)

    def numbers(self, count: int, typecode: str) -> object:
        if self.views and self.pair.same_layout and self.c.chance(24):
            return self.c.one_of(self.views)
        return self.or_odd(lambda: wrapped(self.c, content(self.c, count, typecode), typecode))

    def target(self, count: int) -> object:
        pair = self.pair
        if pair.typecodes[1]:
            return self.numbers(count * pair.targets, pair.typecodes[1])
        if not pair.targets:
            return self.or_odd(lambda: None)
        labels = bytes(self.c.byte() % pair.targets for _ in range(min(count, 4)))
        return self.or_odd(lambda: wrapped(self.c, (labels * count)[:count], "B"))

    def label(self) -> object:
        if self.pair.targets and not self.pair.typecodes[1]:
            return self.or_odd(lambda: self.c.below(self.pair.targets))
        return self.target(1)

    def pixels(self, count: int = 1) -> object:
        if self.pair.parts:
            return self.or_odd(lambda: {part.name: self.part(part, count) for part in self.pair.parts})
        return self.numbers(count * self.pair.inputs, self.pair.typecodes[0])

    def part(self, part: Part, count: int) -> object:
        """Tokens are small ints, now and then one that is no word."""
        if not part.classes:
            return self.numbers(count * part.numbers, self.pair.typecodes[0])
        words = content(self.c, count * part.numbers, "B")
        below = part.classes + (self.c.byte() == 0)
        return self.or_odd(lambda: wrapped(self.c, bytes(word % below for word in words), "B"))

    def small(self) -> object:
        return self.or_odd(lambda: 1 + self.c.below(80))

    def rate(self) -> object:
        """A number, one for each of some steps, or a schedule."""
        kind = self.c.below(8)
        if kind == 0:
            return self.or_odd(lambda: [self.c.one_of([0.0, 0.01, *FLOATS]) for _ in range(self.c.below(40))])
        if kind == 1:
            return self.schedule()
        return self.or_odd(lambda: self.c.one_of([None, 0.0, 0.01, 1, -0.5, *FLOATS]))

    def schedule(self) -> Callable[[int], object]:
        """A function of the step that raises or drops views at some step."""
        kind, at, error, rate = self.c.below(4), self.c.below(20), self.c.one_of(ERRORS), self.c.one_of([0.01, *FLOATS])

        def schedule(step: int) -> object:
            if kind == 1 and step >= at:
                raise self.own(error("schedule"))
            if kind == 2 and step == at:
                self.views.clear()
            return rate

        return schedule

    def threads(self) -> object:
        return self.or_odd(lambda: self.c.one_of([1, 1, 1, 2, 3, None, 64]))

    def progress(self, must_raise: bool = False) -> object:
        """None, or a function that raises, calls the module, drops views, or returns something."""
        kind, at, error = self.c.below(6), self.c.below(3), self.c.one_of(ERRORS)
        calls = iter(range(1000))

        def report(done: int, total: int, loss: float | None) -> object:
            self.reported()
            call = next(calls)
            if must_raise or (kind == 1 and call >= at):
                raise self.own(error("progress"))
            if kind == 2 and self.depth < DEPTH:
                self.nested()
            if kind == 3:
                self.views.clear()
            return report

        return report if must_raise else self.or_odd(lambda: [None, report, report, report, None, None][kind])

    def options(self, **make: Callable[[], object]) -> dict[str, object]:
        """Some of the keyword arguments."""
        return {name: make_one() for name, make_one in make.items() if self.c.chance(128)}

    # Calls

    def do_call(self, name: str) -> object:
        """A function without arguments."""
        return getattr(self.module, name)()

    def do_forward(self, name: str) -> object:
        return self.module.forward(self.label(), self.pixels())

    def do_update(self, name: str) -> object:
        given = self.options(step=self.small, batch_size=self.small, learning_rate=self.rate)
        return self.module.update(**given)

    def do_one_image(self, name: str) -> object:
        function = self.c.one_of(["predict", "probabilities", "outputs"])
        return getattr(self.module, function)(self.pixels())

    def do_predict_batch(self, name: str) -> object:
        given = self.options(threads=self.threads, progress=self.progress)
        return self.module.predict_batch(self.pixels(1 + self.c.below(MAX_IMAGES)), **given)

    def do_evaluate(self, name: str) -> object:
        given = self.options(threads=self.threads, progress=self.progress)
        count = 1 + self.c.below(MAX_IMAGES)
        return self.module.evaluate(self.pixels(count), self.target(count), **given)

    def do_accumulate(self, name: str) -> object:
        given = self.options(threads=self.threads, progress=self.progress)
        count = 1 + self.c.below(MAX_IMAGES)
        return self.module.accumulate(self.pixels(count), self.target(count), **given)

    def do_train(self, name: str) -> object:
        given = self.options(
            batch_size=self.small,
            learning_rate=self.rate,
            seed=lambda: self.or_odd(lambda: self.c.one_of([None, 0, 1, 2**32, 2**64 - 1])),
            threads=self.threads,
            progress=self.progress,
            check_finite=lambda: self.or_odd(lambda: self.c.one_of([True, True, False])),
        )
        epochs = self.c.one_of([1, 1, 2, 3, 0, -1, None, 1.0, 10**9 + 1, 2**64, 10**9])
        if epochs == 10**9:  # for ever, if nothing ends it
            given["progress"] = self.progress(must_raise=True)
            if callable(given.get("learning_rate")):  # which train() calls for each step of all epochs
                del given["learning_rate"]
        if epochs != 1:
            given["epochs"] = epochs
        count = 1 + self.c.below(MAX_IMAGES)
        return self.module.train(self.pixels(count), self.target(count), **given)

    def do_element(self, name: str) -> object:
        function = self.c.one_of(["data", "grad"])
        return getattr(self.module, function)(self.or_odd(lambda: self.c.byte()))

    def do_reset(self, name: str) -> object:
        seed = self.or_odd(lambda: self.c.one_of([None, 0, 5, 2**64 - 1]))
        with patch("os.urandom", lambda count: bytes(range(count))):  # the same for the twin
            return self.module.reset(seed)

    def do_info(self, name: str) -> object:
        information = self.module.info()
        return {key: information[key] for key in ("architecture", "inputs", "outputs", "digest")}

    def do_wrong_call(self, name: str) -> object:
        """Any function with any arguments under any names."""
        function = self.c.one_of(FUNCTIONS)
        if not hasattr(self.module, function):
            return None
        given = [self.or_odd(lambda: plain(self.c)) for _ in range(self.c.below(5))]
        names = {self.c.one_of(NAMES): self.or_odd(lambda: plain(self.c)) for _ in range(self.c.below(3))}
        if function == "train" and names.get("epochs", 1) not in (0, 1, 2):
            names["epochs"] = 1  # no more than can be waited for
        result = getattr(self.module, function)(*given, **names)
        return None if function == "info" else result

    # Views

    def do_take_views(self, name: str) -> object:
        taken = getattr(self.module, self.c.one_of(["state_dict", "grad_dict"]))()
        keep = self.c.byte()
        self.views += [view for i, view in enumerate(taken.values()) if keep >> i % 8 & 1]
        del self.views[12:]
        return taken

    def do_write_view(self, name: str) -> object:
        if not self.views:
            return None
        elements = np.asarray(self.c.one_of(self.views))
        if elements.size:
            elements[tuple(self.c.byte() % n for n in elements.shape)] = self.c.one_of(FLOATS)
        return None

    def do_drop_views(self, name: str) -> object:
        for _ in range(1 + self.c.below(4)):
            if self.views:
                del self.views[self.c.below(len(self.views))]
        return None

    def do_use_view(self, name: str) -> object:
        """What a memoryview offers, some of which asks the exporter for another buffer."""
        if not self.views:
            return None
        view = self.c.one_of(self.views)
        kind = self.c.below(4)
        if kind == 0:
            return view.tobytes() and None
        if kind == 1:
            return memoryview(view.obj).shape
        if kind == 2:
            return bytes(view.obj) and None
        memoryview(view).release()
        return None

    def do_load(self, name: str) -> object:
        mapping: dict[object, object] = {
            tensor: self.tensor(tensor, shape) for tensor, shape in self.pair.shapes.items()
        }
        kind = self.c.below(12)
        if kind == 1 and mapping:
            del mapping[self.c.one_of(list(mapping))]
        if kind == 2:
            mapping[plain_key(self.c)] = plain(self.c)
        if kind == 3:
            return self.module.load_state_dict(self.or_odd(lambda: list(mapping)))
        if kind == 4:
            return self.module.load_state_dict(Mapping(mapping, self.trap()))
        if kind == 5:
            return self.module.load_state_dict(self.trap())
        if kind == 6:
            return self.module.load_state_dict(self.module.state_dict())
        return self.module.load_state_dict(mapping)

    def tensor(self, name: str, shape: tuple[int, ...]) -> object:
        typecode = "f" if self.pair.name == "float32" else "d"
        if self.c.chance(24):
            return self.trap() if self.c.chance(64) else buffer(self.c)
        if self.views and self.c.chance(24):
            return self.c.one_of(self.views)
        numbers = np.frombuffer(content(self.c, prod(shape), typecode), typecode).reshape(shape)
        if self.c.chance(16):
            with np.errstate(all="ignore"):
                numbers = numbers.astype(self.c.one_of(["<f8", ">f8", "f4", "i8"]))
        if self.c.chance(16):
            numbers = numbers.ravel()
        return strided(numbers, self.c)


class Mapping:
    """A mapping that springs its trap while it is read."""

    def __init__(self, items: dict[object, object], trap: Trap) -> None:
        self.items, self.trap = items, trap

    def __getitem__(self, key: object) -> object:
        self.trap.act()
        return self.items[key]

    def keys(self) -> Iterator[object]:
        return iter(self.items)


def plain_key(c: Choices) -> object:
    return c.one_of(["", "w", "layers.0.weight\0", "\ud800", b"w", 3, None, "ü"])


FUNCTIONS = [
    *("forward", "backward", "zero_grad", "update", "predict", "probabilities", "outputs", "predict_batch", "evaluate"),
    *("accumulate", "train", "state_dict", "grad_dict", "load_state_dict", "data", "grad", "info"),
]
NAMES = [
    *("images", "labels", "batch_size", "learning_rate", "epochs", "seed", "threads", "progress", "step", "label"),
    *("check_finite", "pixels", "", "ü", "\ud800", "mapping"),
]
_ALL = [
    *("forward", "backward", "update", "zero_grad", "one_image", "predict_batch", "evaluate", "element", "reset"),
    *("accumulate", "info"),
]
_VIEWS = ["take_views", "write_view", "drop_views", "use_view"]
OPERATIONS = {
    "calls": [*_ALL, "wrong_call", "train", *_VIEWS, "load", "forward", "backward", "update", "wrong_call"],
    "train": [*["train"] * 8, "forward", "backward", "update", "evaluate", "element", *_VIEWS, "load"],
    "load": [*["load"] * 6, *_VIEWS, *_VIEWS, "forward", "backward", "update", "zero_grad", "one_image", "train"],
}
NEEDS = {"one_image": "outputs", "element": "data", "wrong_call": "info", "load": "load_state_dict"}
NEEDS |= dict.fromkeys(_VIEWS, "state_dict")


def bits(numbers: Sequence[float]) -> bytes:
    """The bits, but for the sign of a zero and the payload of a nan."""
    return array("d", [0.0 if x == 0.0 else _NAN if x != x else x for x in numbers]).tobytes()


_NAN = struct.unpack("d", struct.pack("Q", 0x7FF8 << 48))[0]


def encode(result: object) -> object:
    """A result in a form that can be compared."""
    if isinstance(result, float):
        return bits([result])
    if isinstance(result, tuple | list):
        return [encode(item) for item in result]
    if isinstance(result, dict):
        return {key: encode(value) for key, value in result.items()}
    if isinstance(result, memoryview):
        return (result.shape, result.format, bits(array(result.format, result.tobytes()).tolist()))
    return result
