"""A state machine: every function of a module from threads, greenlets and asyncio tasks, in any order, against a twin.

Calls with `progress` run in greenlets that stop at each progress, so they overlap in every way that one thread allows.
Threads come in between, as do views and forks. The twin makes the same steps one after the other: after each rule both
have the same bits, and what was refused has changed nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

import models
import numpy as np
import pytest
from harness import Extension, state
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

greenlet = pytest.importorskip("greenlet").greenlet
pytestmark = pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="greenlets copy stacks, poison and all")

CHUNK = 1024  # images between two calls of progress, for a model this small
COUNT = 2 * CHUNK + 100
CHUNKS = 3
INSIDE = "cannot be changed from inside a progress callback"
CHANGED = "the model has changed since this call began"
STEPS: Counter[str] = Counter()


class Stop(Exception):
    """What a progress callback raises."""


class Examples:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (COUNT, 12), dtype=np.uint8)
    images[rng.random((COUNT, 12)) < 0.6] = 0
    labels = rng.integers(0, 5, COUNT, dtype=np.uint8)
    one = images[3].tobytes()
    tensors: Mapping[str, np.ndarray] = MappingProxyType({})


D = Examples
WRITES: dict[str, Callable] = {
    "forward": lambda m: m.forward(2, D.one),
    "backward": lambda m: m.backward(),
    "zero_grad": lambda m: m.zero_grad(),
    "update": lambda m: m.update(0, 3, learning_rate=0.05),
    "reset": lambda m: m.reset(7),
    "load_state_dict": lambda m: m.load_state_dict(D.tensors),
    "train": lambda m: m.train(D.images[:70], D.labels[:70], batch_size=7, learning_rate=0.02),
    "train with threads": lambda m: m.train(D.images, D.labels, batch_size=64, threads=2, seed=4),
}
READS: dict[str, Callable] = {
    "evaluate": lambda m: m.evaluate(D.images, D.labels),
    "evaluate with threads": lambda m: m.evaluate(D.images, D.labels, threads=2),
    "predict_batch": lambda m: m.predict_batch(D.images, threads=2),
}
LOOKS: dict[str, Callable] = {  # which never wait for a long call
    "predict": lambda m: m.predict(D.one),
    "outputs": lambda m: m.outputs(D.one),
    "probabilities": lambda m: m.probabilities(D.one),
    "data": lambda m: m.data(17),
    "grad": lambda m: m.grad(17),
    "info": lambda m: m.info()["outputs"],
    "views": lambda m: [bytes(view) for view in (*m.state_dict().values(), *m.grad_dict().values())],
}
ALL = WRITES | READS | LOOKS
LONG: dict[str, Callable] = {
    "train": lambda m, **o: m.train(D.images, D.labels, batch_size=16, epochs=2, learning_rate=0.01, **o),
    "evaluate": lambda m, **o: m.evaluate(D.images, D.labels, **o),
    "predict_batch": lambda m, **o: m.predict_batch(D.images, **o),
}


def outcome(call: Callable, module) -> str:
    """The result as a text, in which any nan is the nan, or the error's text."""
    try:
        return repr(call(module))
    except RuntimeError as error:
        return str(error)


class Suspended:
    """A long call in a greenlet of its own, which stops inside each progress."""

    def __init__(self, machine: Machine, name: str, threads: int) -> None:
        self.name, self.machine = name, machine
        self.number = self.chunks = CHUNKS * (2 if name == "train" else 1)  # and how many are left
        self.changes = machine.changes
        self.raises: list[type[BaseException]] = []
        self.ended: tuple[str, object] | None = None
        self.greenlet = greenlet(self.run)
        self.threads = threads

    def run(self) -> None:
        try:
            result = LONG[self.name](self.machine.module, threads=self.threads, progress=self.progress)
            self.ended = ("result", result)
        except (RuntimeError, Stop) as error:
            self.ended = ("error", str(error))

    def progress(self, *_: object) -> None:
        self.machine.main.switch()
        if self.raises:
            raise self.raises.pop()


class Waiting:
    """A call in a thread of its own."""

    def __init__(self, name: str, module) -> None:
        self.name = name
        self.result: list[object] = []
        self.thread = threading.Thread(target=lambda: self.result.append(outcome(ALL[name], module)), daemon=True)
        self.thread.start()


class Machine(RuleBasedStateMachine):
    module = twin = solo = None  # three modules of one program

    def __init__(self) -> None:
        super().__init__()
        self.main = greenlet.getcurrent() if hasattr(greenlet, "getcurrent") else None
        self.suspended: list[Suspended] = []
        self.waiting: list[Waiting] = []
        self.views: list[tuple[np.ndarray, np.ndarray]] = []
        self.changes = 0  # chunks of suspended trains
        for module in (self.module, self.twin):
            module.reset(1)
            module.forward(1, D.one)
            module.backward()

    # What must hold

    def count(self, name: str) -> None:
        STEPS[name] += 1

    @property
    def trains(self) -> bool:
        return any(call.name == "train" for call in self.suspended)

    @invariant()
    def same_bits(self) -> None:
        if not self.waiting or self.suspended:
            assert state(self.module) == state(self.twin)

    def settle(self) -> None:
        """If nothing is suspended any more, threads go on: in some serial order."""
        if self.suspended or not self.waiting:
            return
        for call in self.waiting:
            call.thread.join(60)
            assert not call.thread.is_alive(), "a thread waits for nothing"
        got = [call.result[0] for call in self.waiting], state(self.module)
        weights = {name: np.array(view) for name, view in self.twin.state_dict().items()}
        gradients = {name: np.array(view) for name, view in self.twin.grad_dict().items()}
        for order in itertools.permutations(range(len(self.waiting))):
            self.twin.load_state_dict(weights)
            for name, view in self.twin.grad_dict().items():
                np.asarray(view)[...] = gradients[name]
            results: list[object] = [None] * len(order)
            for k in order:
                results[k] = outcome(ALL[self.waiting[k].name], self.twin)
            if (results, state(self.twin)) == got:
                break
        else:
            raise AssertionError(f"no serial order of {[call.name for call in self.waiting]}")
        self.waiting.clear()
        for module in (self.module, self.twin):  # several orders may give this: what else they leave must not differ
            module.forward(1, D.one)

    # One call at a time

    @rule(name=st.sampled_from(sorted(WRITES)))
    @precondition(lambda self: not self.waiting)
    def write(self, name: str) -> None:
        self.count(f"write: {name}")
        got = outcome(WRITES[name], self.module)
        if self.suspended:
            assert INSIDE in str(got)
        else:
            assert got == outcome(WRITES[name], self.twin)

    @rule(name=st.sampled_from(sorted(READS | LOOKS)))
    @precondition(lambda self: not self.waiting or self.suspended)
    def read(self, name: str) -> None:
        self.count(f"read: {name}")
        assert outcome(ALL[name], self.module) == outcome(ALL[name], self.twin)

    @rule(name=st.sampled_from(sorted(LONG)), inner=st.sampled_from(sorted(ALL)))
    @precondition(lambda self: not self.suspended and not self.waiting)
    def call_back(self, name: str, inner: str) -> None:
        """A progress callback that calls back, and raises at the end."""
        self.count(f"call back: {name}")
        answers: list[object] = []

        def progress(*_: object) -> None:
            answers.append(outcome(ALL[inner], self.module))
            if len(answers) == 2:
                raise Stop

        with pytest.raises(Stop):
            LONG[name](self.module, progress=progress)
        for chunk, answer in enumerate(answers):
            if name == "train":
                self.step_twin(chunk)
            assert INSIDE in str(answer) if inner in WRITES else answer == outcome(ALL[inner], self.twin)

    def step_twin(self, chunk: int) -> None:
        """What LONG["train"] does in one of the chunks of an epoch."""
        part = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, COUNT))
        self.twin.train(D.images[part], D.labels[part], batch_size=16, learning_rate=0.01)

    # Greenlets

    @rule(name=st.sampled_from(sorted(LONG)), threads=st.sampled_from([1, 3]))
    @precondition(lambda self: len(self.suspended) < 4 and (not self.waiting or self.suspended))
    def suspend(self, name: str, threads: int) -> None:
        self.count(f"suspend: {name}")
        refused = name == "train" and self.suspended
        call = Suspended(self, name, threads)
        if name == "train" and not refused:
            self.solo.load_state_dict(self.module.state_dict())
        self.go_on(call)
        if refused:
            assert call.ended is not None
            assert INSIDE in str(call.ended[1])
        else:
            assert call.ended is None
            self.suspended.append(call)

    @rule(name=st.sampled_from(sorted(LONG.keys() - {"train"})))
    @precondition(lambda self: not self.suspended and not self.waiting)
    def suspend_two(self, name: str) -> None:
        """A train, and a call inside it, which may or may not be the first to go on."""
        for each in ("train", name):
            self.suspend(each, 1)

    def go_on(self, call: Suspended) -> None:
        """One chunk further, or to the end."""
        call.greenlet.switch()
        if call.name == "train" and call.chunks and call.ended is None:
            self.step_twin((call.number - call.chunks) % CHUNKS)
            self.changes += 1
        call.chunks -= 1

    @rule(data=st.data())
    @precondition(lambda self: self.suspended)
    def resume(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.suspended))
        self.count(f"resume: {call.name}")
        stale = call.name != "train" and call.changes != self.changes and call.chunks > 0
        last = call.chunks == 0
        self.go_on(call)
        assert (call.ended is not None) == (last or stale)
        if call.ended is None:
            return
        self.suspended.remove(call)
        kind, value = call.ended
        if stale:
            assert kind == "error"
            assert CHANGED in str(value)
        elif call.name == "train":
            assert repr(value) == outcome(LONG["train"], self.solo)
        elif call.changes == self.changes:
            assert repr(value) == outcome(LONG[call.name], self.twin)
        self.settle()

    @rule(data=st.data(), how=st.sampled_from(["raise", "give up"]))
    @precondition(lambda self: self.suspended)
    def end(self, data: st.DataObject, how: str) -> None:
        """The callback raises; or nobody is left who could switch back, and greenlet ends it."""
        call = data.draw(st.sampled_from(self.suspended))
        self.count(f"{how}: {call.name}")
        self.suspended.remove(call)
        if how == "raise":
            call.raises.append(Stop)
            call.greenlet.switch()
            assert call.ended == ("error", "")
        else:
            call.greenlet = None
            assert call.ended is None
        self.settle()

    # Threads

    @rule(names=st.lists(st.sampled_from(sorted(WRITES | READS)), min_size=1, max_size=3))
    @precondition(lambda self: not self.waiting)
    def threads(self, names: list[str]) -> None:
        """Calls of other threads at once. They wait for what is suspended, unless all of them only read."""
        for name in names:
            self.count(f"thread: {name}")
        names = [name for name in names if name != "backward"]  # of which forward, the twin could not tell
        self.waiting = [Waiting(name, self.module) for name in names]
        if not self.suspended:
            self.settle()
        elif self.trains or set(names) & set(WRITES):
            time.sleep(0.01)
            for call in self.waiting:
                if self.trains or call.name in WRITES:
                    assert call.thread.is_alive(), "a thread did not wait"
        else:
            for call in self.waiting:
                call.thread.join(60)
                assert call.result == [outcome(ALL[call.name], self.twin)]
            self.waiting.clear()

    @rule(name=st.sampled_from(sorted(LOOKS)))
    @precondition(lambda self: not self.waiting or self.suspended)
    def look_from_threads(self, name: str) -> None:
        self.count(f"look: {name}")
        expected = outcome(LOOKS[name], self.twin)
        calls = [Waiting(name, self.module) for _ in range(3)]
        for call in calls:
            call.thread.join(60)
            assert call.result == [expected]

    # Tasks

    @rule(names=st.lists(st.sampled_from(sorted(ALL)), min_size=2, max_size=4))
    @precondition(lambda self: not self.suspended and not self.waiting)
    def tasks(self, names: list[str]) -> None:
        """Tasks take turns; looks also run in threads of the loop."""
        self.count("tasks")

        async def task(name: str) -> tuple[object, object]:
            await asyncio.sleep(0)
            got = outcome(ALL[name], self.module)
            expected = outcome(ALL[name], self.twin)
            await asyncio.sleep(0)
            return got, expected

        async def run() -> list[tuple[object, object]]:
            found = await asyncio.gather(*map(task, names))
            for look in (LOOKS[name] for name in names if name in LOOKS):
                found.append((await asyncio.to_thread(outcome, look, self.module), outcome(look, self.twin)))
            return found

        for got, expected in asyncio.run(run()):
            assert got == expected, names

    # Views and forks

    @rule(is_grad=st.booleans())
    @precondition(lambda self: len(self.views) < 3 and (not self.waiting or self.suspended))
    def take_view(self, is_grad: bool) -> None:
        self.count("view")
        pair = [(m.grad_dict() if is_grad else m.state_dict())["layers.0.weight"] for m in (self.module, self.twin)]
        self.views.append((np.asarray(pair[0]), np.asarray(pair[1])))

    @rule(number=st.sampled_from([0.5, -1.0, float("inf"), 0.0]))
    @precondition(lambda self: self.views and not self.suspended and not self.waiting)
    def write_view(self, number: float) -> None:
        self.count("write to a view")
        for array in self.views[-1]:
            array[1, 2] = number

    @rule()
    @precondition(lambda self: self.views and (not self.waiting or self.suspended))
    def drop_view(self) -> None:
        self.count("drop a view")
        self.views.pop(0)

    @rule()
    @precondition(lambda self: hasattr(os, "fork") and (not self.waiting or self.suspended))
    def fork(self) -> None:
        self.count("fork")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            code = 1
            try:
                signal.alarm(30)
                code = self.in_child()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def in_child(self) -> int:
        if any(outcome(ALL[name], self.module) != outcome(ALL[name], self.twin) for name in ("outputs", *READS)):
            return 2
        for name in ("update", "train with threads"):
            got = outcome(WRITES[name], self.module)
            if INSIDE not in str(got) if self.suspended else got != outcome(WRITES[name], self.twin):
                return 3
        return 0 if state(self.module) == state(self.twin) or self.suspended else 4

    def teardown(self) -> None:
        self.views.clear()
        while self.suspended:
            self.suspended.pop().greenlet = None
        for call in self.waiting:
            call.thread.join(60)


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> type[Machine]:
    folder, flags = tmp_path_factory.mktemp("machine"), ["-O0", "-DPARALLEL_OPERATIONS=0"]
    three = [Extension(models.mlp(), folder, "loops", flags=flags).module for _ in range(3)]
    Machine.module, Machine.twin, Machine.solo = three
    D.tensors = {name: np.full(view.shape, 0.01) for name, view in three[0].state_dict().items()}
    return Machine


def run(machine: type[Machine], examples: int, steps: int) -> None:
    STEPS.clear()
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=examples < 100,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],  # shrinking takes minutes, as each step runs threads
            database=None,
        ),
    )
    print(f"{sum(STEPS.values())} steps:", dict(STEPS))


def test_calls_in_any_order(machine):
    run(machine, 8, 30)
    assert sum(STEPS.values()) > 130


@pytest.mark.long
@pytest.mark.nightly
def test_calls_in_any_order_for_minutes(machine):
    run(machine, 1000, 50)
    assert sum(STEPS.values()) > 20_000
    assert len(STEPS) > 35
