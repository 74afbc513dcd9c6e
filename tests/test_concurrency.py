"""Races: calls from many threads whose results and state are those of no serial order."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sys
import threading

import models
import numpy as np
import pytest
from harness import Extension, nightly_but, state
from test_build import run_under_sanitizers

from codegen.backends.shared import csrc

# What the threads do, each a function of parameters, gradients and the last forward, and none commuting with another.
OPERATIONS = {
    "train": lambda m, d: m.train(d.images, d.labels, batch_size=3, epochs=2),
    "train with threads": lambda m, d: m.train(d.images, d.labels, batch_size=20, threads=2, seed=4),
    "reset": lambda m, d: m.reset(7),
    "load_state_dict": lambda m, d: m.load_state_dict(d.state),
    "update": lambda m, d: m.update(0, 3, learning_rate=0.5),
    "forward": lambda m, d: m.forward(2, d.images[: d.width]),
    "accumulate": lambda m, d: m.accumulate(d.images, d.labels, threads=2),
    "evaluate": lambda m, d: m.evaluate(d.images, d.labels),
    "outputs": lambda m, d: m.outputs(d.images[: d.width]),
}
SETS = [
    ["train", "reset", "load_state_dict", "update", "evaluate"],
    ["train", "train with threads", "reset", "update"],
    ["train", "train with threads", "load_state_dict", "forward", "evaluate"],
    ["update", "reset", "load_state_dict", "outputs"],
    ["update", "accumulate", "load_state_dict", "evaluate"],
]


class Data:
    def __init__(self, module, count: int = 40) -> None:
        info, rng = module.info(), random.Random(0)
        self.width = info["inputs"]
        self.images = bytes(rng.choice([0, 0, rng.randrange(256)]) for _ in range(count * self.width))
        self.labels = bytes(rng.randrange(info["targets"]) for _ in range(count))
        self.state = {name: np.full(view.shape, 0.01) for name, view in module.state_dict().items()}


def prepare(module, data: Data) -> None:
    module.reset(1)
    module.forward(1, data.images[: data.width])
    module.backward()


def all_at_once(calls: list) -> None:
    """Each call in a thread of its own, all of them ready before the first begins."""
    barrier = threading.Barrier(len(calls))

    def work(call) -> None:
        barrier.wait()
        call()

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def serial_orders(module, names: list[str], rounds: int) -> set[tuple[str, ...]]:
    """Runs operations at once, again and again; which of the serial orders have the same results and state."""
    data, orders = Data(module), {}
    for order in itertools.permutations(names):
        prepare(module, data)
        results = {name: OPERATIONS[name](module, data) for name in order}
        orders.setdefault((state(module), tuple(sorted(map(repr, results.items())))), order)
    seen, rng = set(), random.Random(1)
    for _ in range(rounds):
        prepare(module, data)
        results: dict[str, object] = {}
        calls = [lambda n=name, r=results: r.__setitem__(n, OPERATIONS[n](module, data)) for name in names]
        rng.shuffle(calls)
        all_at_once(calls)
        found = state(module), tuple(sorted(map(repr, results.items())))
        assert found in orders, "no serial order of the calls gives this"
        seen.add(orders[found])
    return seen


def equal_backwards(module, threads: int = 4, calls: int = 50) -> None:
    """Losses of a model that does not change are equal, and each backward adds the same gradient once."""
    data = Data(module)
    prepare(module, data)
    once = [module.grad(i) for i in range(module.info()["parameters"])]
    expected = [0.0] * len(once)
    for _ in range(threads * calls):
        expected = [e + g for e, g in zip(expected, once, strict=True)]
    loss = module.forward(1, data.images[: data.width])
    module.zero_grad()
    losses: set[float] = set()

    def step() -> None:
        for _ in range(calls):
            losses.add(module.forward(1, data.images[: data.width]))
            module.backward()
            module.probabilities(data.images[-data.width :])

    all_at_once([step] * threads)
    assert losses == {loss}
    assert [module.grad(i) for i in range(len(once))] == expected


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """A module whose predictions run side by side, as those of large models do."""
    flags = ["-O0", "-DPARALLEL_OPERATIONS=0"]
    return Extension(models.mlp(), tmp_path_factory.mktemp("parallel"), "loops", flags=flags).module


@pytest.mark.parametrize("names", SETS, ids=", ".join)
def test_operations_at_once_are_those_of_a_serial_order(names, parallel):
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert len(serial_orders(parallel, names, 60)) > 1
    finally:
        sys.setswitchinterval(old)


def test_steps_of_several_threads_lose_no_gradient(compiled, parallel):
    equal_backwards(compiled("mlp").module)
    equal_backwards(parallel)


# Under ThreadSanitizer

UNDER_TSAN = """
import sys; sys.path[:0] = sys.argv[1:3]
from pathlib import Path
import models
from harness import Extension
if sys.argv[5:]:
    sys.modules["codegen.toolchain"].csrc = lambda: Path(sys.argv[5])
from test_concurrency import SETS, Data, all_at_once, equal_backwards, serial_orders

flags = ["-O1", "-g", "-fsanitize=thread", f"-DPARALLEL_OPERATIONS={sys.argv[4]}"]
module = Extension(models.mlp(), Path(sys.argv[3]), "loops", flags=flags).module
equal_backwards(module)
for names in SETS:
    serial_orders(module, names, 10)
data = Data(module)

def read():
    for _ in range(30):
        module.predict_batch(data.images, threads=2)
        module.evaluate(data.images, data.labels, threads=2)

def look():
    for _ in range(200):
        module.outputs(data.images[: data.width])
        views = module.state_dict(), module.grad_dict()
        module.data(3), module.grad(3), module.info()
        del views

def write():
    for _ in range(5):
        module.train(data.images, data.labels, epochs=20, batch_size=5, threads=2, check_finite=True)
        module.zero_grad()
        module.load_state_dict(module.grad_dict())

all_at_once([read, look, look, write, write])
"""


@pytest.mark.parametrize("parallel", nightly_but(["0"], ["0", "1000000"]))
def test_threads_that_call_everything_do_not_race(parallel, tmp_path):
    run_under_sanitizers(UNDER_TSAN, ["tsan"], str(tmp_path), parallel)


@pytest.mark.nightly
def test_a_planted_race_is_found(tmp_path):
    """Without the lock around outputs(), which reads what train() writes."""
    planted = shutil.copytree(csrc(), tmp_path / "csrc")
    header = planted / "predictions.h"
    text = header.read_text()
    assert text.count("lock_to_read();") == text.count("unlock();") == 2
    header.write_text(text.replace("lock_to_read();", "").replace("unlock();", ""))
    found = ""
    for _ in range(5):  # on a busy machine the threads may miss each other
        try:
            run_under_sanitizers(UNDER_TSAN, ["tsan"], str(tmp_path), "0", str(planted))
        except AssertionError as error:
            found = str(error)
            break
    assert "ThreadSanitizer: data race" in found


# The import, and the end

IMPORTS = """
import importlib, sys, threading
found = []
def work():
    for _ in range(50):
        found.append(importlib.import_module("nn"))
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
nn = found[0]
assert all(module is nn for module in found)
before = nn.forward(3, bytes(range(196)) * 4)
assert importlib.reload(nn) is nn
del sys.modules["nn"]
for _ in range(3):
    try:
        import nn as again
        sys.exit("a second model in one process")
    except ImportError as error:
        assert "'nn' is loaded already" in str(error), error
    sys.modules["nn"] = nn
    import nn as again
    assert again is nn and nn.forward(3, bytes(range(196)) * 4) == before
    del sys.modules["nn"]
print("one model")
"""


def test_imports_of_many_threads_and_again_give_one_model(run_python):
    assert run_python(IMPORTS).strip() == "one model"


SHUTDOWN = """
import sys, threading, types
import nn

images, labels = bytes(range(196)) * 4 * 2000, bytes(2000)
started = threading.Event()
def train():
    nn.train(images, labels, epochs=10**9, batch_size=8, threads=int(sys.argv[1]), progress=lambda *_: started.set())
threading.Thread(target=train, daemon=True).start()
started.wait()

class Late:
    def __del__(self, call=sys.argv[2], names={"nn": nn, "image": images[:784], "images": images, "labels": labels}):
        try:
            print("answer", type(eval(call, names)).__name__, flush=True)
        except RuntimeError as error:
            print("error", error, flush=True)

# Until the modules are taken apart. What stands in this one stays: the thread holds it.
sys.modules["late"] = types.ModuleType("late")
sys.modules["late"].late = Late()
"""
REFUSED = "error Python shuts down while another thread uses the model, and will not go on"


@pytest.mark.skipif(os.name == "nt", reason="Windows ends daemon threads in its own way")
@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("nn.predict(image)", "answer int"),
        ("nn.data(0)", "answer float"),
        ("nn.forward(3, image)", REFUSED),
        ("nn.reset(1)", REFUSED),
        ("nn.train(images, labels)", REFUSED),
        ("nn.evaluate(images, labels)", REFUSED),
    ],
)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_daemon_thread_that_trains_does_not_hold_up_the_end_of_python(call, says, threads, run_python):
    assert run_python(SHUTDOWN, threads, call, timeout=20).strip() == says
