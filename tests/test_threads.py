"""Bits that depend on the number of threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from array import array

import numpy as np
import pytest
from harness import Extension, nightly_but, slow_but, state, train_by_hand
from models import mlp, recurrence

MODELS = ["mlp", "deep_mlp", "wide", "convolution", "xor", "recurrence", "attention", "shared_weights"]
COUNT = 150  # more than two blocks of images


def examples(extension, seed: int = 0):
    """Images and labels for any model: two thirds of the inputs 0."""
    program = extension.program
    rng = np.random.default_rng(seed)
    shape = (COUNT, len(program.input_values))
    zero = rng.random(shape) < 0.66
    info = extension.module.info()
    if info["input_type"] == "uint8":
        inputs = np.where(zero, 0, rng.integers(1, 256, shape)).astype(np.uint8)
    else:
        inputs = np.where(zero, 0.0, rng.normal(size=shape))
    targets = len(program.target_values)
    if info["target_type"] == "label":
        return inputs, rng.integers(0, targets, COUNT).astype(np.uint8)
    return inputs, rng.normal(size=(COUNT, targets)) if targets else None


@pytest.mark.parametrize("batch_size", slow_but([1, 65], [1, 2, 64, 65, 149]))
@pytest.mark.parametrize("name", slow_but(["mlp", "convolution", "attention"], MODELS))
def test_train_has_the_bits_of_the_loop_by_hand_with_any_number_of_threads(name, batch_size, compiled):
    extension = compiled(name)
    data = examples(extension)
    loss = train_by_hand(extension.module, *data, batch_size, 0.01)
    expected = state(extension.module)
    for threads in (1, 2, 3, 7):
        module = compiled(name).module
        assert module.train(*data, batch_size=batch_size, learning_rate=0.01, threads=threads) == [loss]
        assert state(extension.module) == expected, threads


@pytest.mark.slow
def test_workers_of_a_large_model_take_a_few_images_of_a_batch_at_a_time(tmp_path):
    model = Extension(recurrence(steps=48, hidden=12), tmp_path, "loops", flags=["-O0"])
    assert "WORKER_IMAGES 16" in next(tmp_path.rglob("model.c")).read_text()
    data = examples(model)
    for batch_size in (15, 40, 149):
        model.reset()
        loss = train_by_hand(model.module, *data, batch_size, 0.01)
        expected = state(model.module)
        for threads in (1, 2, 3):
            model.reset()
            assert model.module.train(*data, batch_size=batch_size, learning_rate=0.01, threads=threads) == [loss]
            assert state(model.module) == expected, (batch_size, threads)


@pytest.mark.parametrize("name", MODELS)
def test_evaluate_and_predict_batch_do_not_depend_on_threads(name, compiled):
    extension = compiled(name)
    module = extension.module
    data = examples(extension, seed=1)
    loss, accuracy = module.evaluate(*data)
    for threads in (2, 3, 8):
        assert module.evaluate(*data, threads=threads) == (loss, accuracy)
    if module.info()["target_type"] == "label":
        classes = module.predict_batch(data[0])
        assert classes == bytes(module.predict(image) for image in data[0])
        assert module.predict_batch(data[0], threads=2) == classes
        assert accuracy == np.mean(np.frombuffer(classes, np.uint8) == data[1])


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["mlp", "wide", "deep_mlp"])
def test_a_weight_that_is_not_finite_poisons_a_batch_as_it_does_image_by_image(name, bad, compiled):
    extension = compiled(name)
    data = examples(extension)

    def poison(module) -> None:
        views = module.state_dict()
        weight = np.asarray(next(view for view in views.values() if view.ndim == 2))
        weight[-1, 0] = bad

    poison(extension.module)
    loss = train_by_hand(extension.module, *data, 20, 0.01)
    expected = state(extension.module)
    for threads in (1, 2):
        module = compiled(name).module
        poison(module)
        (got,) = module.train(*data, batch_size=20, learning_rate=0.01, threads=threads)
        assert array("d", [got]).tobytes() == array("d", [loss]).tobytes() or (math.isnan(got) and math.isnan(loss))
        assert np.array_equal(np.frombuffer(state(extension.module)[0]), np.frombuffer(expected[0]), equal_nan=True)
        assert np.array_equal(np.frombuffer(state(extension.module)[1]), np.frombuffer(expected[1]), equal_nan=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_of_the_last_batch_can_be_seen_and_used_again(threads, compiled):
    extension = compiled("mlp")
    module, data = extension.module, examples(extension)
    train_by_hand(extension.module, *data, 50, 0.01)
    module.update(0, 7, learning_rate=0.5)
    module.backward()
    expected = state(extension.module)

    module = compiled("mlp").module
    module.train(*data, batch_size=50, learning_rate=0.01, threads=threads)
    module.update(0, 7, learning_rate=0.5)
    module.backward()
    assert state(extension.module) == expected


def test_a_view_of_the_gradients_is_kept_up_to_date_by_every_step(compiled):
    extension = compiled("mlp")
    data = examples(extension)
    train_by_hand(extension.module, *data, 50, 0.01)
    expected = state(extension.module)
    module = compiled("mlp").module
    view = module.grad_dict()
    seen = []
    module.train(*data, batch_size=50, learning_rate=0.01, threads=2, progress=lambda *_: seen.append(view))
    assert seen
    assert state(extension.module) == expected


def test_progress_may_evaluate_with_threads_of_its_own(compiled):
    extension = compiled("mlp")
    data = examples(extension)
    module = extension.module
    losses = []
    module.train(*data, batch_size=16, threads=2, progress=lambda *_: losses.append(module.evaluate(*data, threads=3)))
    assert losses[-1] == module.evaluate(*data)


def test_a_thread_that_waits_gets_its_turn_between_two_trainings(compiled):
    extension = compiled("mlp")
    module, data = extension.module, examples(extension)
    stop, trainings = threading.Event(), []

    def train() -> None:
        while not stop.is_set():
            trainings.append(module.train(*data, batch_size=64, epochs=20))

    trainer = threading.Thread(target=train)
    trainer.start()
    waited = []
    try:
        for call in (module.zero_grad, lambda: module.evaluate(*data)) * 3:
            before = len(trainings)
            call()
            waited.append(len(trainings) - before)
    finally:
        stop.set()
        trainer.join()
    assert max(waited) < 20  # without a queue it is hundreds


def test_more_threads_than_a_large_model_has_workspaces_for(compiled):
    extension = compiled("wide")
    data = examples(extension)
    assert extension.module.train(*data, batch_size=50, threads=64, learning_rate=0.0) == extension.module.train(
        *data, batch_size=50, learning_rate=0.0
    )


# Helpers as a busy system may run them, with the C library's functions replaced.

PAUSE = """
#include <stdatomic.h>
#include <time.h>
static inline void pause_a_while(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }
"""
# Whoever takes a piece, or looks for sleepers after handing out a job, does so late.
LATE = (
    PAUSE
    + """
#undef atomic_compare_exchange_strong
#define atomic_compare_exchange_strong(x, expected, value) \\
    (pause_a_while(), __atomic_compare_exchange_n((int *)(x), expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
"""
)
# Threads that are granted and never run.
STARVED = """
#include <pthread.h>
#define pthread_setaffinity_np(thread, size, processors) (void)(thread)
#define PyThread_start_new_thread(function, argument) ((void)(function), (void)(argument), 1UL)
"""
# Threads that are refused.
REFUSED = STARVED.replace("1UL", "(unsigned long)-1")
# Helpers that end at once and are started again by the next call, while the last ones still end.
HASTY = """
#define PyThread_acquire_lock_timed(lock, microseconds, interrupted) \\
    PyThread_acquire_lock_timed(lock, (microseconds) > 0 ? 1 : -1, interrupted)
"""
# A clock that ticks when someone looks at it: the helpers always seem to be worth their while.
EAGER = """
#include <time.h>
static int ticks; /* a race, which does no harm: waiting ends after some of them */
#define clock_gettime(clock, t) (*(t) = (struct timespec){0, ++ticks * 100})
"""
SYSTEMS = {"late": LATE, "starved": STARVED, "refused": REFUSED, "hasty": HASTY, "eager": EAGER}
TRAIN = """
import sys
from array import array
from codegen import load_extension
module = load_extension(sys.argv[1], sys.argv[2])
images, labels = bytes(i % 7 * 30 for i in range(12 * 200)), bytes(i % 2 for i in range(200))
for batch in (10, 50, 200) * 5:
    print(module.train(images, labels, batch_size=batch, threads=int(sys.argv[3])))
    print(module.evaluate(images, labels, threads=int(sys.argv[3])))
print([module.data(i) for i in range(module.info()["parameters"])])
"""


@pytest.mark.skipif(os.name == "nt", reason="MSVC has no option -include")
@pytest.mark.parametrize("system", nightly_but(["starved"], SYSTEMS))
def test_what_the_system_does_with_helpers_changes_no_bit(system, tmp_path):
    (tmp_path / "system.h").write_text("#include <Python.h>\n" + SYSTEMS[system])
    extension = Extension(mlp(), tmp_path, "loops", flags=["-O0", "-include", str(tmp_path / "system.h")])
    command = [sys.executable, "-c", TRAIN, str(extension.path), extension.name]
    alone, shared = (
        subprocess.run([*command, threads], capture_output=True, text=True, timeout=60, check=True).stdout
        for threads in ("1", "3")
    )
    assert shared == alone


COUNT_THREADS = """
import os, time
import nn

def helpers():
    return len(os.listdir("/proc/self/task")) - 1

def train_until_seen():
    seen = 0
    while seen < 2 and time.monotonic() < deadline:  # if this thread does not run for a while, they have ended
        nn.train(bytes(784) * 200, bytes(200), batch_size=50, threads=3)
        seen = helpers()
    return seen

deadline = time.monotonic() + 20
found = [helpers(), train_until_seen()]
while helpers() and time.monotonic() < deadline:
    time.sleep(0.01)
print(*found, helpers(), train_until_seen())
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux does")
def test_helpers_linger_for_the_next_call_and_then_end(run_python):
    assert run_python(COUNT_THREADS).split() == ["0", "2", "0", "2"]


PROCESSORS = """
import os
import nn

caller, allowed = os.getpid(), os.sched_getaffinity(0)

def train():  # the loss, and the processors that the helpers may use
    for _ in range(100):  # if this thread does not run for a while, the helpers have ended
        nn.reset(1)
        loss = nn.train(bytes(range(98)) * 8 * 200, bytes(200), batch_size=50, threads=3)
        assert os.sched_getaffinity(0) == allowed
        found = {}
        for thread in map(int, os.listdir("/proc/self/task")):
            try:
                found[thread] = os.sched_getaffinity(thread)
            except ProcessLookupError:
                pass
        if len(found) == 3:
            return loss, [processors for thread, processors in found.items() if thread != caller]
    raise AssertionError("there are no helpers")

loss, helpers = train()
for processors in helpers:
    assert processors < allowed if len(allowed) > 1 else processors == allowed, (processors, allowed)
while len(os.listdir("/proc/self/task")) > 1:
    pass
allowed = {min(allowed)}
os.sched_setaffinity(0, allowed)
assert train() == (loss, [allowed, allowed])
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="asks for the processors of a thread as Linux does")
def test_helpers_keep_off_the_processor_of_the_caller_and_within_those_that_it_may_use(run_python):
    run_python(PROCESSORS)
