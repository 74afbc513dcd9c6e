"""Calls that do not nest: begun in the progress of another one, and unfinished when that one goes on or ends."""

from __future__ import annotations

import os
import threading
import time

import nn
import pytest
from harness import state

greenlet = pytest.importorskip("greenlet").greenlet
pytestmark = pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="greenlets copy stacks, poison and all")

COUNT = 2000  # images: three chunks of nn


@pytest.fixture(scope="module")
def data(digits) -> tuple[bytes, bytes]:
    return digits(COUNT)


@pytest.fixture(autouse=True)
def fresh():
    nn.reset(1)


OVERFLOW = """
import nn, greenlet, sys, threading; C = 831; big = bytes(784 * C * 50); small = bytes(784 * (C + 1))
def other():
    while not ended: nn.predict_batch(big)
ended, others = False, [threading.Thread(target=other) for _ in (1, 2)]
for thread in others: thread.start()
def B():
    while True: nn.predict_batch(small, progress=lambda *a: A.switch()); A.switch()
def f():
    for i in range(int(sys.argv[1])): nn.predict_batch(small[:784], progress=lambda *a: g.switch()); g.switch()
A = greenlet.greenlet(f); g = greenlet.greenlet(B); A.switch(); ended = True
for thread in others: thread.join()  # daemons may crash CPython as it ends
print("done")
"""


def test_batches_of_greenlets_beside_those_of_other_threads_write_where_they_should(run_python):
    assert run_python(OVERFLOW, "500", PYTHONMALLOC="debug", timeout=120).strip() == "done"


READING = {
    "evaluate": lambda data, progress: nn.evaluate(*data, progress=progress),
    "evaluate with threads": lambda data, progress: nn.evaluate(*data, threads=2, progress=progress),
    "predict_batch": lambda data, progress: nn.predict_batch(data[0], progress=progress),
}


@pytest.mark.parametrize("outer", READING)
@pytest.mark.parametrize("inner", READING)
def test_calls_that_read_may_end_in_any_order(inner, outer, data):
    """The inner call outlives the outer one; meanwhile another thread waits to change the model."""
    expected = READING[inner](data, None), READING[outer](data, None)
    before, results = state(nn), {}
    writer = threading.Thread(target=nn.train, args=data, kwargs={"batch_size": 10})

    def progress(*_: object) -> None:
        if not second:
            writer.start()
            time.sleep(0.05)
        second.switch()

    first = greenlet(lambda: results.setdefault("outer", READING[outer](data, progress)))
    second = greenlet(lambda: results.setdefault("inner", READING[inner](data, lambda *_: first.switch())))
    first.switch()
    assert first.dead
    assert not second.dead
    assert state(nn) == before
    assert writer.is_alive()
    second.switch()
    writer.join(30)
    assert not writer.is_alive()
    assert (results["inner"], results["outer"]) == expected
    assert state(nn) != before


@pytest.mark.parametrize("inner", READING)
def test_a_call_that_reads_ends_with_an_error_if_the_train_around_it_went_on(inner, data):
    expected = nn.train(*data, batch_size=10, epochs=2), state(nn)
    nn.reset(1)
    seen, results = [], []

    def progress(*_: object) -> None:
        if not seen:
            seen.append(greenlet(lambda: READING[inner](data, lambda *_: trainer.switch())))
            seen[0].switch()

    trainer = greenlet(lambda: results.append(nn.train(*data, batch_size=10, epochs=2, progress=progress)))
    trainer.switch()
    assert (results[0], state(nn)) == expected  # training does not depend on who looks on
    with pytest.raises(RuntimeError, match="the model has changed since this call began"):
        seen[0].switch()
    nn.update()  # nothing is left behind


def test_a_greenlet_that_is_given_up_ends_its_call(data):
    main = greenlet.getcurrent()
    for call in (
        lambda: nn.train(*data, progress=lambda *_: main.switch()),
        lambda: nn.evaluate(*data, threads=2, progress=lambda *_: main.switch()),
    ):
        given_up = greenlet(call)
        given_up.switch()
        with pytest.raises(RuntimeError, match="cannot be changed from inside a progress callback"):
            nn.update()
        del given_up
        nn.update()


def test_other_threads_wait_for_a_call_that_is_suspended(data):
    main = greenlet.getcurrent()
    trainer = greenlet(lambda: nn.train(*data, batch_size=10, progress=lambda *_: main.switch()))
    trainer.switch()
    seen: list[object] = []
    writer = threading.Thread(target=lambda: seen.append(nn.reset(1)))
    reader = threading.Thread(target=lambda: seen.append(nn.evaluate(*data)))
    predictor = threading.Thread(target=nn.predict, args=(data[0][:784],))
    for thread in (writer, reader, predictor):
        thread.start()
    predictor.join(30)
    assert not predictor.is_alive()
    time.sleep(0.05)
    assert not seen
    while not trainer.dead:
        trainer.switch()
    for thread in (writer, reader):
        thread.join(30)
    assert len(seen) == 2


# Side by side


def test_batches_of_several_threads_run_at_the_same_time(data):
    """Each waits inside progress until the others are there too."""
    barrier, results = threading.Barrier(3, timeout=30), []

    def call(name: str) -> None:
        results.append((name, READING[name](data, lambda done, *_: barrier.wait() if done < 1000 else None)))

    threads = [threading.Thread(target=call, args=(name,)) for name in READING]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert dict(results) == {name: READING[name](data, None) for name in READING}


def test_a_thread_that_writes_gets_its_turn_between_threads_that_read_all_the_time(data):
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            nn.evaluate(*data)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        start = time.monotonic()
        for _ in range(5):
            nn.update()
        assert time.monotonic() - start < 20
    finally:
        stop.set()
        for thread in threads:
            thread.join()
