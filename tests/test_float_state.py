"""The caller's floating-point state, as other libraries leave it: it changes no bit, and calls leave it alone."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess

import models
import numpy as np
import pytest
from harness import Extension, slow_but, state

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("gcc"), reason="sets the state of an x86-64 by C of its own"
)

# Rounding up, down, to zero; flushing results, and arguments too; all of them, with a trap for inexact results.
DEFAULT = 0x1F80
STATES = {"up": 0x5F80, "down": 0x3F80, "to zero": 0x7F80, "flush": 0x9F80, "denormals": 0x9FC0, "all": 0xFFC0}
HELPER = """
#include <xmmintrin.h>
unsigned get(void) { return _mm_getcsr() & 0xffc0; }
void set(unsigned state) { _mm_setcsr(state); }
"""


@pytest.fixture(scope="module")
def mxcsr(tmp_path_factory):
    """get() and set() of the state."""
    folder = tmp_path_factory.mktemp("mxcsr")
    (folder / "mxcsr.c").write_text(HELPER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "mxcsr.so", "mxcsr.c"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "mxcsr.so"))
    library.get.restype = ctypes.c_uint
    library.set.argtypes = [ctypes.c_uint]
    yield library
    library.set(DEFAULT)


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    return Extension(models.mlp((12, 20, 5)), tmp_path_factory.mktemp("float_state"), "loops", flags=["-O1"]).module


def everything(module, mxcsr, csr: int, threads: int) -> list[object]:
    """The results of all functions, called in this state, and the bits of the model after each."""
    info = module.info()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (600, info["inputs"]), dtype=np.uint8).tobytes()
    labels = rng.integers(0, info["targets"], 600, dtype=np.uint8).tobytes()
    one = images[: info["inputs"]]
    # Weights that make denormals, in the values and in the gradients.
    tiny = {name: np.full(v.shape, 3e-160) * rng.normal(size=v.shape) for name, v in module.state_dict().items()}
    seen: list[float] = []
    calls = [
        lambda: module.reset(1),
        lambda: module.forward(2, one),
        lambda: module.backward(),
        lambda: module.update(0, 3, learning_rate=0.1),
        lambda: module.predict(one),
        lambda: sorted(module.outputs(one).items()),
        lambda: module.train(images, labels, batch_size=7, threads=threads, seed=3, check_finite=True),
        lambda: module.train(images, labels, batch_size=300, threads=threads, progress=lambda *a: seen.append(a[2])),
        lambda: module.evaluate(images, labels, threads=threads, progress=lambda *a: seen.append(a[2])),
        lambda: module.predict_batch(images, threads=threads),
        lambda: module.load_state_dict(tiny),
        lambda: module.forward(2, one),
        lambda: module.backward(),
        lambda: module.evaluate(images, labels),
        lambda: module.outputs(one),
        lambda: module.train(images, labels, batch_size=30, learning_rate=1e-150, threads=threads),
        lambda: module.zero_grad(),
    ]
    results: list[object] = []
    for call in calls:
        mxcsr.set(csr)
        result = call()
        after = mxcsr.get()
        mxcsr.set(DEFAULT)
        assert after == csr, "a call leaves the state of its caller alone"
        results.append((result, state(module)))
    return [*results, seen]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("csr", slow_but(["all"], STATES))
def test_the_state_of_the_caller_changes_no_bit(csr, threads, module, mxcsr):
    expected = everything(module, mxcsr, DEFAULT, 1)
    assert everything(module, mxcsr, STATES[csr], threads) == expected


def test_helpers_of_a_caller_with_another_state_serve_the_next_caller(module, mxcsr):
    """Threads inherit the state of whoever starts them, and linger."""
    expected = everything(module, mxcsr, DEFAULT, 1)
    mxcsr.set(STATES["all"])
    try:
        module.train(bytes(12 * 300), bytes(300), batch_size=100, threads=3)
    finally:
        mxcsr.set(DEFAULT)
    assert everything(module, mxcsr, DEFAULT, 3) == expected


def test_a_frozen_model_computes_in_the_default_state_too(mxcsr):
    import nn_infer

    images = np.random.default_rng(0).integers(0, 256, (50, 784), dtype=np.uint8).tobytes()
    expected = nn_infer.outputs(images[:784]), nn_infer.predict_batch(images)
    for csr in STATES.values():
        mxcsr.set(csr)
        found = nn_infer.outputs(images[:784]), nn_infer.predict_batch(images)
        after = mxcsr.get()
        mxcsr.set(DEFAULT)
        assert (found, after) == (expected, csr)


def test_these_states_do_change_bits(mxcsr):
    """Python's own floats, computed by C that does not look at the state: otherwise the tests above could not fail."""
    one, three, tiny = 1.0, 3.0, 1e-310
    default = (one / three, -one / three, tiny * 0.5, tiny + 1e-311)
    for csr in STATES.values():
        mxcsr.set(csr)
        found = (one / three, -one / three, tiny * 0.5, tiny + 1e-311)
        mxcsr.set(DEFAULT)
        assert found != default
