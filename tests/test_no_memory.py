"""Calls that lose an allocation: all of them, one by one (tests/no_memory.py), and threads that the system refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nn
import nn_infer
import pytest

DRIVER = Path(__file__).with_name("no_memory.py")
pytest.importorskip("_testcapi", reason="this Python has nothing that makes allocations fail")


def swept(path: str, name: str) -> dict[str, int]:
    """How many allocations of each call failed, where nothing is wrong."""
    done = subprocess.run([sys.executable, DRIVER, path, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    return dict(found["failed"])


@pytest.mark.nightly
def test_the_module_of_the_wheel():
    failed = swept(nn.__file__, "nn")
    assert sum(failed.values()) > 700
    assert failed["forward"] == 2  # where the loss has no memory
    assert all(count >= 8 for name, count in failed.items() if name.startswith(("train", "evaluate", "load_state")))
    assert {name for name, count in failed.items() if not count} == {
        "predict",
        "backward",
        "zero_grad",
        "update",
        "reset",
    }


def test_a_frozen_module():
    assert sum(swept(nn_infer.__file__, "nn_infer").values()) > 100


@pytest.mark.slow
def test_a_module_of_floats(compiled):
    failed = swept(str(compiled("xor").path), compiled("xor").module.__name__)
    assert sum(failed.values()) > 500


FAULTY = '''
"""A module in Python that does everything wrong that tests/no_memory.py looks for."""
_kept, _calls, _views = [], [0.0], []

def info():
    return {"input_type": "float64", "inputs": 2, "outputs": {"out": 1}}

def outputs(inputs):
    if len(inputs) != 2:
        try:
            raise ValueError("; ".join(("inputs", str(len(inputs)))))
        except MemoryError:
            raise ValueError("inputs") from None
    return tuple(_calls)

def predict(inputs):
    _calls[0] += 1.0
    _kept.append([None])
    return [None] * 100

def probabilities(inputs):
    return outputs(inputs)

def predict_batch(images, threads=1, progress=None):
    _views.append(memoryview(images))
    return b"0"
'''


def test_what_is_wrong_is_found(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    command = [sys.executable, DRIVER, tmp_path / "faulty.py", "faulty"]
    environment = os.environ | {"PYTHONMALLOC": "pymalloc"}  # the one that counts its blocks
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wrong = json.loads(done.stdout)["wrong"]
    assert done.returncode == 1
    for call, what in [
        ("predict, allocations 0 .. 1", "the model has changed"),
        ("outputs refused", "('ValueError', 'inputs') instead of ('ValueError', 'inputs; 1')"),
        ("predict", "other bits the next time"),
        ("predict", "blocks and bytes are left behind"),
        ("predict_batch", "a buffer is still exported"),
    ]:
        assert any(line.startswith(call) and what in line for line in wrong), (call, what, wrong)


NO_THREADS = """
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static int calls;
    (void)thread, (void)attributes, (void)run, (void)argument;
    setenv("CALLS", calls++ ? "some" : "one", 1);
    return EAGAIN;
}
"""
TRAIN = """
import ctypes, nn
images, labels = bytes(range(196)) * 4 * 900, bytes(range(9)) * 100
print(nn.train(images, labels, batch_size=64, threads=4), nn.evaluate(images, labels, threads=4), nn.data(30000))
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(getenv(b"CALLS"))
"""


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer must come first")
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("gcc"), reason="needs gcc on Linux")
def test_a_system_that_starts_no_thread(run_python: Callable[..., str], tmp_path):
    (tmp_path / "none.c").write_text(NO_THREADS)
    library = tmp_path / "none.so"
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "none.c", "-o", library], check=True)
    alone, numbers = (run_python(TRAIN, **more).splitlines() for more in ({"LD_PRELOAD": str(library)}, {}))
    assert alone == [numbers[0], "b'some'"]
    assert numbers[1] == "None"
