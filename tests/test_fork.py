"""Forks: a child that inherits a lock that nobody will release, or threads that are not there."""

from __future__ import annotations

import os

import pytest

FORK = """
import os, signal, sys, threading, time, warnings
import nn

warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process that has threads: just what this is about
images, labels = bytes.fromhex(sys.argv[1]) * 100, bytes.fromhex(sys.argv[2]) * 100
statuses, stop = [], False

def work():
    while not stop:
        {work}

def child():
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)  # ends a child that is stuck
    nn.predict(images[:784])
    nn.forward(3, images[:784])
    nn.backward()
    nn.update()
    nn.train(images, labels, batch_size=7, learning_rate=0.0)
    nn.evaluate(images, labels)
    list(nn.grad_dict().values())
    os._exit(0)

def fork():
    for _ in range(15):
        time.sleep(0.003)
        pid = os.fork()
        if not pid:
            child()
        statuses.append(os.waitpid(pid, 0)[1])

workers = [threading.Thread(target=work) for _ in range({workers})]
forker = threading.Thread(target=fork)
for thread in (*workers, forker):
    thread.start()
forker.join()
stop = True
for thread in workers:
    thread.join()
print(statuses)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize(
    ("work", "workers"),
    [
        ("nn.train(images, labels, epochs=20)", 1),
        pytest.param("nn.train(images, labels)", 2, marks=pytest.mark.slow),
        ("nn.train(images, labels) if threading.current_thread() is workers[0] else nn.forward(3, images[:784])", 3),
        pytest.param("nn.evaluate(images, labels)", 2, marks=pytest.mark.slow),
        ("nn.probabilities(images[:784])", 2),
    ],
)
def test_a_fork_in_one_thread_while_others_compute_leaves_a_working_child(run_python, work, workers, digits):
    script = FORK.format(work=work, workers=workers)
    assert eval(run_python(script, *(part.hex() for part in digits(3)))) == [0] * 15


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_inside_progress_goes_on_training_in_both_processes(run_python, digits):
    script = """
import os, signal, sys
import nn
images, labels = bytes.fromhex(sys.argv[1]) * 100, bytes.fromhex(sys.argv[2]) * 100
pid = None
def progress(done, total, loss):
    global pid
    if pid is None:
        pid = os.fork()
        if not pid:
            signal.alarm(10)
losses = nn.train(images, labels, epochs=2, progress=progress)
nn.forward(3, images[:784])
code = int(losses[1] * 1000) % 256
if not pid:
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code)
"""
    assert run_python(script, *(part.hex() for part in digits(3))).strip() == "True"
