"""Every call of a module with one allocation of it failing, each in turn: a process of its own, for test_no_memory.py.

    python tests/no_memory.py PATH NAME

For each call and each n, first only the n-th allocation fails, then all from the n-th on. The call must raise
MemoryError, or return or raise what it does with memory. After a MemoryError the model has the bits that it had; only
train() may have done some whole steps, as after an exception in `progress`. No buffer of an argument is kept, no memory
is left behind, and the same call, made again, gives the usual bits. A call with threads runs in a fork for each n,
because a process starts its threads once.

Prints a JSON object: how often each call failed, and a list of what is wrong. Exit code 1 if anything is.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import itertools
import json
import os
import signal
import sys
from _testcapi import remove_mem_hooks, set_nomemory  # type: ignore[import-not-found]
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

SECONDS = 50  # for everything: a lock that was kept would be waited for
IMAGES = 600  # more than two chunks of a large model, where train() looks at signals and calls progress
COMMON = {"batch_size": 7, "learning_rate": 0.01, "epochs": 2}
OF_PYTHON = ("save_weights", "load_weights")  # they run Python's os, io and json, with failures of their own
TRAINING: dict[str, dict[str, Any]] = {
    "train": COMMON | {"seed": 5},
    "train checked": COMMON | {"check_finite": True},
    "train to inf": {"batch_size": 9, "learning_rate": 1e308, "check_finite": True},
    "train in threads": COMMON | {"threads": 3},
    "train by a schedule": COMMON | {"learning_rate": lambda step: 0.01},
}
REFUSALS = (TypeError, ValueError, RuntimeError, FloatingPointError)
CAUGHT = (*REFUSALS, SystemError)
PYTHONS_OWN = "error return without exception set"  # of b"x".index(b"y") too, where its traceback finds no memory
Call = Callable[[], object]


class Subject:
    """A module with all of its calls, each as a function without arguments."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        info = module.info()
        self.trains = "seed" in info
        self.labelled = info.get("target_type") == "label"
        self.parameters = info["parameters"] if self.trains else 0
        # Resizable, so that a buffer that was never released is noticed.
        self.data = [numbers(info["input_type"], info["inputs"] * IMAGES)]
        self.data.append(bytearray(i % 7 for i in range(IMAGES)) if self.labelled else None)
        if self.trains and not self.labelled:
            self.data[1] = numbers(info["target_type"], info["targets"] * IMAGES)
        images, labels = self.data
        self.image = images[: info["inputs"]]
        self.short = self.image[1:]
        self.other_image = self.image[:1] * len(self.image)
        self.target = 3 if self.labelled else labels[: info["targets"]] if labels else None
        self.state = {name: bytes_of(view) for name, view in module.state_dict().items()} if self.trains else {}
        self.steps = dict(module.optimizer_state()) if self.trains else {}
        self.steps = {name: bytes_of(view) if name != "step" else 3 for name, view in self.steps.items()}
        self.calls = dict(self.all_calls(images, labels))
        for name in [name for name in vars(module) if not name.startswith("_") and name not in OF_PYTHON]:
            assert any(call.split()[0] == name for call in self.calls), f"{name}() is never called"

    def all_calls(self, images: Any, labels: Any) -> Iterator[tuple[str, Call]]:
        """Whatever works, and what is refused with a message that has to be made."""
        m, image, target = self.module, self.image, self.target
        constant, short, huge = bytes(image), self.short, 10**5000
        yield "info", m.info
        yield "outputs", lambda: m.outputs(image)
        yield "outputs refused", lambda: m.outputs(short)
        yield "predict", lambda: m.predict(constant)
        yield "predict refused", lambda: m.predict(1.5)
        yield "probabilities", lambda: m.probabilities(image)
        yield "predict_batch", lambda: m.predict_batch(images, progress=lambda *_: None)
        yield "predict_batch refused", lambda: m.predict_batch(images, threads=huge)
        yield "predict_batch in threads", lambda: m.predict_batch(images, threads=3)
        if hasattr(m, "outputs_batch"):
            # Into memory of the caller: new memoryviews move blocks of the interpreter's own free lists. Called alone
            # with failing allocations, they leave nothing behind from the second or third round on.
            rooms = {name: bytearray(bytes(view)) for name, view in m.outputs_batch(images).items()}
            form = "f" if m.info()["dtype"] == "float32" else "d"
            views = {name: memoryview(room).cast(form) for name, room in rooms.items()}
            yield "outputs_batch", lambda: m.outputs_batch(images, out=views) and None
            if "probabilities" in views:
                yield "probabilities_batch", lambda: m.probabilities_batch(images, out=views["probabilities"]) and None
            else:
                yield "probabilities_batch refused", lambda: m.probabilities_batch(images)
        if not self.trains:
            return
        yield "forward", lambda: m.forward(target, image)
        yield "forward refused", lambda: m.forward(target, short)
        for name in ("backward", "zero_grad", "state_dict", "grad_dict", "flat_data", "flat_grad"):
            function = getattr(m, name)
            yield name, lambda f=function: bytes_of_all(f())
        yield "update", lambda: m.update(3, 2, learning_rate=0.01)
        yield "update by rates", lambda: m.update(1, 2, learning_rate=[0.01, 0.02])
        yield "update without a rate", lambda: m.update(1, 2, learning_rate=[0.01])
        yield "update refused", lambda: m.update(learning_rate="much")
        yield "data", lambda: m.data(self.parameters - 1)
        yield "data refused", lambda: m.data(self.parameters)
        yield "grad", lambda: m.grad(0)
        drawn = outcome(lambda: m.reset(7)) is None
        yield "reset", lambda: m.reset(7) if drawn else m.reset()
        yield "reset refused", lambda: m.reset(seed=2**70)
        yield "load_state_dict", lambda: m.load_state_dict(self.state)
        wrong = {name: memoryview(bytes(8 * 900)).cast("d", (3, 300)) for name in self.state}
        yield "load_state_dict refused", lambda: m.load_state_dict(wrong)
        yield "load_state_dict without one", lambda: m.load_state_dict({})
        yield "load_state_dict with another", lambda: m.load_state_dict(self.state | {"".join(("ä", "ö")): image})
        yield "optimizer_state", lambda: bytes_of_all(m.optimizer_state())
        yield "load_optimizer_state", lambda: m.load_optimizer_state(self.steps)
        yield "load_optimizer_state refused", lambda: m.load_optimizer_state({"step": -1})
        yield "load_optimizer_state without one", lambda: m.load_optimizer_state({})
        yield "input_grad", m.input_grad
        yield "metrics", lambda: m.metrics(images, labels)
        yield "accumulate", lambda: m.accumulate(images, labels, threads=3)
        yield "accumulate refused", lambda: m.accumulate(images, short)
        yield "evaluate", lambda: m.evaluate(images, labels, progress=lambda *_: None)
        yield "evaluate in threads", lambda: m.evaluate(images, labels, threads=3)
        yield "evaluate refused", lambda: m.evaluate(images, labels, threads=65)
        for name, options in TRAINING.items():
            yield name, lambda o=options: m.train(images, labels, **{"progress": lambda *_: None, **o})
        yield "train refused", lambda: m.train(images, short)

    def prepare(self) -> None:
        """A model with gradients, and a forward() whose backward() is still to come."""
        if self.trains:
            self.module.load_state_dict(self.state)
            self.module.load_optimizer_state(self.steps)
            self.module.zero_grad()
            self.module.forward(self.target, self.image)
            self.module.backward()
            self.module.forward(self.target, self.other_image)

    def observe(self) -> object:
        """The bits of the model, with what its next backward() adds."""
        if not self.trains:
            return self.module.outputs(self.image)
        views = (self.module.state_dict(), self.module.grad_dict(), self.module.optimizer_state())
        seen = [*map(bytes_of_all, views)]
        try:
            self.module.backward()
        except RuntimeError as error:
            return [*seen, str(error)]
        return [*seen, bytes_of_all(self.module.grad_dict())]

    def keeps_a_buffer(self) -> bool:
        try:
            for buffer in filter(None, [*self.data, self.image, self.short]):
                buffer.append(buffer[0])
                buffer.pop()
        except BufferError:
            return True
        return False


def numbers(kind: str, count: int) -> Any:
    if kind == "uint8":
        return bytearray(i * i % 251 for i in range(count))
    return array("f" if kind == "float32" else "d", [(i * 37 % 101 - 50) / 64 for i in range(count)])


def bytes_of(view: memoryview) -> memoryview:
    return memoryview(view.tobytes()).cast(view.format, view.shape) if view.ndim else memoryview(view)


def bytes_of_all(views: Any) -> Any:
    if type(views) is memoryview:
        return views.tobytes()
    return [(name, view.tobytes()) for name, view in views.items()] if views else views


def outcome(call: Call) -> object:
    """What it returns, or the error with its message."""
    try:
        return call()
    except REFUSALS as error:
        return type(error).__name__, str(error)


def without_memory(call: Call, first: int, last: int) -> object:
    """The outcome with the allocations after the first so many failing, up to `last`, or all of them if that is 0."""
    error: Exception
    floats = [i + 0.5 for i in range(200)]  # the interpreter has a hundred to use again
    set_nomemory(first, last)
    try:
        return call()
    except MemoryError:
        return MemoryError
    except CAUGHT as caught:
        error = caught
    finally:
        remove_mem_hooks()
        del floats
    return MemoryError if str(error) == PYTHONS_OWN else (type(error).__name__, str(error))


def left_of(total: int, call: Call) -> int:
    """How many objects can be made after a call with so many allocations at most."""
    kept: list[object] = [None] * total
    i = 0
    set_nomemory(total, 0)
    try:
        with suppress(*REFUSALS):
            call()
        for i in range(total):
            kept[i] = object()
    except MemoryError:
        pass
    finally:
        remove_mem_hooks()
    return i


def allocations(call: Call) -> int:
    """At least how many a call has; each object above takes two, as it has a number."""
    total = 2000
    return (left_of(total, lambda: None) - left_of(total, call)) * 2 + 4


def memory() -> tuple[int, int]:
    """Blocks of Python's allocator, and bytes of the C library's where it tells."""
    gc.collect()
    return sys.getallocatedblocks(), malloc_bytes()


def malloc_bytes() -> int:
    return int(MALLINFO().used) if MALLINFO else 0


def mallinfo() -> Any:
    """glibc's function, or None."""
    try:
        import ctypes
    except ImportError:
        return None
    fields = [(name, ctypes.c_size_t) for name in ("a", "b", "c", "d", "e", "f", "g", "used", "h", "i")]
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function:
        function.restype = type("Mallinfo", (ctypes.Structure,), {"_fields_": fields})
    return function


MALLINFO = mallinfo()


class Sweep:
    """One call of a subject."""

    def __init__(self, subject: Subject, name: str) -> None:
        self.subject, self.name, self.call = subject, name, subject.calls[name]
        self.wrong: list[str] = []
        self.forks = "threads" in name and hasattr(os, "fork")
        subject.prepare()
        self.before = subject.observe()
        subject.prepare()
        self.result = outcome(self.call)
        self.after = subject.observe()
        self.allowed = [self.before, *self.stopped()]
        subject.prepare()
        self.count = allocations(self.call)

    def stopped(self) -> Iterator[object]:
        """The states in which an exception in progress() leaves the model, each time that it is called."""
        if self.name not in TRAINING:
            return
        for n in itertools.count():
            calls = itertools.count()

            def progress(*_: object, n: int = n, calls: Iterator[int] = calls) -> None:
                if next(calls) == n:
                    raise InterruptedError

            self.subject.prepare()
            with suppress(*REFUSALS, InterruptedError):
                self.subject.module.train(*self.subject.data, **TRAINING[self.name], progress=progress)
            yield self.subject.observe()
            if next(calls) <= n:
                return

    def attempt(self, first: int, last: int) -> bool:
        """Whether the call fails without these allocations."""
        subject = self.subject
        subject.prepare()
        result = without_memory(self.call, first, last)
        failed, state = result is MemoryError, subject.observe()
        wrong = []
        if not failed and result != self.result:
            wrong.append(f"{result!r:.300} instead of {self.result!r:.300}")
        if failed and state not in self.allowed:
            wrong.append("the model has changed")
        if not failed and state != self.after:
            wrong.append("other bits than with memory")
        if subject.keeps_a_buffer():
            wrong.append("a buffer is still exported")
        subject.prepare()
        if outcome(self.call) != self.result or subject.observe() != self.after:
            wrong.append("other bits the next time")
        self.wrong += [f"{self.name}, allocations {first} .. {last or ''}: {what}" for what in wrong]
        return failed

    def run(self) -> int:
        """How many calls failed."""
        failures = [(n, last) for n in range(self.count) for last in (n + 1, 0)]
        if not self.forks:
            return sum(self.attempt(*failure) for failure in failures)
        failed = 0
        for failure in failures:
            known = len(self.wrong)
            one, wrong = in_child(lambda f=failure, k=known: (self.attempt(*f), self.wrong[k:]))
            failed += one
            self.wrong += wrong
        return failed

    def leak(self) -> None:
        """Everything once more, without a look at the model: what is left behind each time?"""
        rounds = 4  # the first time round fills caches
        left = [array("q", bytes(8 * (rounds + 1))) for _ in memory()]
        for i in range(rounds + 1):
            for n in range(self.count if i else 0):
                without_memory(self.call, n, n + 1)
            for counts, count in zip(left, memory(), strict=True):
                counts[i] = count
        grown = [[after - before for before, after in itertools.pairwise(counts[1:])] for counts in left]
        if any(min(counts) > 0 for counts in grown):
            self.wrong.append(f"{self.name}: blocks and bytes are left behind: {grown}")


def in_child(run: Call) -> Any:
    """What a function returns in a fork. A child that is stuck is ended by its alarm, and returns nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        with os.fdopen(writer, "w") as pipe:
            json.dump(run(), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


def load(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(path: str, name: str) -> None:
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    gc.disable()
    subject = Subject(load(path, name))
    failed, wrong = {}, []
    for call in subject.calls:
        sweep = Sweep(subject, call)
        failed[call] = sweep.run()
        sweep.leak()
        wrong += sweep.wrong
    print(json.dumps({"failed": failed, "wrong": wrong}, indent=1))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
