"""Wrong results and side effects of the installed `nn`, one image at a time, and of importing it."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import inspect
import math
import mmap
import os
import re
import shutil
import subprocess
import sys
from array import array

import nn
import numpy as np
import pytest
from harness import slow_but, state

PARAMETERS = 39760
RNG = np.random.default_rng(0)
IMAGES = np.where(RNG.random((3, 784)) < 0.2, RNG.integers(1, 256, (3, 784)), 0).astype(np.uint8).tobytes()
IMAGE, OTHER = IMAGES[:784], IMAGES[784:1568]
LABELS = b"\x03\x00\x09"
WEIGHTS = {
    "layers.0.weight": np.full((50, 784), 0.25),
    "layers.0.bias": np.full(50, 0.5),
    "layers.1.weight": np.full((10, 50), -0.25),
    "layers.1.bias": np.full(10, -0.5),
}


@pytest.fixture(autouse=True)
def fresh():
    nn.reset(1)


# What the functions take


SIGNATURES = {
    "backward": "()",
    "data": "(i, /)",
    "accumulate": "(images, labels, *, threads=1, progress=None)",
    "evaluate": "(images, labels, *, threads=1, progress=None)",
    "flat_data": "()",
    "flat_grad": "()",
    "forward": "(label, pixels, /)",
    "grad": "(i, /)",
    "grad_dict": "()",
    "info": "()",
    "load_optimizer_state": "(mapping, /)",
    "load_state_dict": "(mapping, /)",
    "load_weights": "(path, /)",
    "save_weights": "(path, /)",
    "optimizer_state": "()",
    "outputs": "(pixels, /)",
    "outputs_batch": "(images, *, out=None, threads=1, progress=None)",
    "predict": "(pixels, /)",
    "predict_batch": "(images, *, threads=1, progress=None)",
    "probabilities": "(pixels, /)",
    "probabilities_batch": "(images, *, out=None, threads=1, progress=None)",
    "reset": "(seed=None)",
    "state_dict": "()",
    "train": "(images, labels, *, batch_size=1, learning_rate=None, epochs=1, seed=None, threads=1, progress=None, "
    "check_finite=False)",
    "update": "(step=0, batch_size=1, *, learning_rate=None)",
    "input_grad": "()",
    "metrics": "(images, labels, *, threads=1, progress=None)",
    "zero_grad": "()",
}


def test_the_module_holds_its_functions_and_nothing_else():
    assert {name for name in vars(nn) if not name.startswith("_")} == set(SIGNATURES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_help_shows_the_signature_and_says_what_it_does(name):
    function = getattr(nn, name)
    assert str(inspect.signature(function)) == SIGNATURES[name]
    assert len(function.__doc__) > 20
    assert function.__module__ == "nn"


class Three:
    def __index__(self):
        return 3

    def __repr__(self):
        return "Three()"


@pytest.mark.parametrize("label", [3, np.int64(3), np.uint8(3), np.int8(3), Three()], ids=repr)
def test_a_label_is_anything_with_an_index(label):
    assert nn.forward(label, IMAGE) == nn.forward(3, IMAGE)


def anonymous_mmap() -> mmap.mmap:
    memory = mmap.mmap(-1, 784)
    memory.write(IMAGE)
    return memory


def read_only_array() -> np.ndarray:
    pixels = np.frombuffer(IMAGE, np.uint8)
    assert not pixels.flags.writeable
    return pixels


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(IMAGE),
        lambda: memoryview(IMAGE),
        lambda: memoryview(bytearray(IMAGE)),
        lambda: memoryview(b"odd" + IMAGE)[3:],
        lambda: array("B", IMAGE),
        lambda: (ctypes.c_ubyte * 784).from_buffer_copy(IMAGE),
        anonymous_mmap,
        read_only_array,
        lambda: np.frombuffer(IMAGE, np.uint8).reshape(28, 28).copy(),
        lambda: np.frombuffer(IMAGE, np.uint8).reshape(1, 28, 28),
        lambda: np.frombuffer(IMAGES, np.uint8).reshape(3, 784)[0],
        lambda: type("Pixels", (bytes,), {})(IMAGE),
    ],
    ids=[
        *("bytearray", "memoryview", "writable memoryview", "unaligned", "array.array", "ctypes", "mmap"),
        *("read-only NumPy", "28 x 28", "1 x 28 x 28", "a row of a matrix", "subclass of bytes"),
    ],
)
def test_pixels_are_any_contiguous_buffer_of_bytes(make):
    pixels = make()
    assert nn.forward(3, pixels) == nn.forward(3, IMAGE)
    assert nn.predict(pixels) == nn.predict(IMAGE)
    assert nn.probabilities(pixels) == nn.probabilities(IMAGE)
    assert nn.outputs(pixels) == nn.outputs(IMAGE)
    assert nn.predict_batch(pixels) == nn.predict_batch(IMAGE)
    assert nn.evaluate(pixels, b"\x03") == nn.evaluate(IMAGE, b"\x03")


def test_many_images_and_labels_may_be_arrays():
    images, labels = np.frombuffer(IMAGES, np.uint8).reshape(3, 28, 28), np.frombuffer(LABELS, np.uint8)
    assert nn.evaluate(images, labels) == nn.evaluate(IMAGES, LABELS)
    assert nn.predict_batch(images) == nn.predict_batch(IMAGES)
    losses = nn.train(images, labels)
    nn.reset(1)
    assert nn.train(IMAGES, LABELS) == losses


# What the functions do


def by_hand(image: bytes) -> tuple[np.ndarray, ...]:
    """Pixels, hidden units and logits, as NumPy computes them from the parameters."""
    p = np.array([nn.data(i) for i in range(PARAMETERS)])
    first, second = p[: 50 * 785].reshape(50, 785), p[50 * 785 :].reshape(10, 51)
    x = np.frombuffer(image, np.uint8) / 255
    hidden = np.maximum(first[:, :784] @ x + first[:, 784], 0)
    return x, hidden, second[:, :50] @ hidden + second[:, 50], second


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    """As pytest.approx(expected, rel=1e-11, abs=1e-15), which takes half a second for a matrix."""
    return bool((np.abs(found - expected) <= np.maximum(1e-11 * np.abs(expected), 1e-15)).all())


@pytest.mark.parametrize("image", [IMAGE, OTHER, bytes(784), b"\xff" * 784], ids=["sparse", "other", "black", "white"])
def test_the_numbers_are_those_of_the_formula(image):
    x, hidden, logits, second = by_hand(image)
    share = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert nn.forward(3, image) == pytest.approx(-math.log(share[3]), rel=1e-12)
    assert nn.probabilities(image) == pytest.approx(share.tolist(), rel=1e-12)
    assert nn.outputs(image)["logits"] == pytest.approx(logits.tolist(), rel=1e-12, abs=1e-14)
    assert nn.predict(image) == logits.argmax()

    nn.backward()
    grad = np.array([nn.grad(i) for i in range(PARAMETERS)])
    error = share - (np.arange(10) == 3)
    back = (second[:, :50].T @ error) * (hidden > 0)
    assert close(grad[50 * 785 :].reshape(10, 51), np.outer(error, [*hidden, 1]))
    assert close(grad[: 50 * 785].reshape(50, 785), np.outer(back, [*x, 1]))


def test_results_are_plain_python_numbers():
    assert type(nn.forward(3, IMAGE)) is float
    assert type(nn.predict(IMAGE)) is int
    assert [type(p) for p in nn.probabilities(IMAGE)] == [float] * 10
    assert {name: len(values) for name, values in nn.outputs(IMAGE).items()} == {"logits": 10, "probabilities": 10}
    assert nn.outputs(IMAGE)["probabilities"] == nn.probabilities(IMAGE)
    assert type(nn.predict_batch(IMAGES)) is bytes
    assert [nn.backward(), nn.update(), nn.zero_grad(), nn.reset(1), nn.load_state_dict(WEIGHTS)] == [None] * 5


def test_predict_batch_is_predict_of_each_image(digits):
    images, _ = digits(300)
    assert list(nn.predict_batch(images)) == [nn.predict(images[i : i + 784]) for i in range(0, len(images), 784)]


def test_evaluate_is_the_mean_of_forward_and_the_share_of_right_predictions(digits):
    images, labels = digits(300)
    total = right = 0.0
    for i, label in enumerate(labels):
        pixels = images[i * 784 : (i + 1) * 784]
        total += nn.forward(label, pixels)
        right += nn.predict(pixels) == label
    assert 0 < right < 300
    assert nn.evaluate(images, labels) == (total / 300, right / 300)


def test_backward_adds_the_same_gradients_again():
    nn.forward(3, IMAGE)
    nn.backward()
    once = array("d", state(nn)[1])
    nn.backward()
    assert state(nn)[1] == array("d", [g + g for g in once]).tobytes()


def test_gradients_of_several_images_add_up_in_order():
    sums = [0.0] * PARAMETERS
    for label, image in zip(LABELS, (IMAGE, OTHER, IMAGES[1568:]), strict=True):
        nn.zero_grad()
        nn.forward(label, image)
        nn.backward()
        sums = [s + nn.grad(i) for i, s in enumerate(sums)]
    nn.zero_grad()
    for label, image in zip(LABELS, (IMAGE, OTHER, IMAGES[1568:]), strict=True):
        nn.forward(label, image)
        nn.backward()
    assert [nn.grad(i) for i in range(PARAMETERS)] == sums


def test_zero_grad_clears_every_gradient():
    for image in (IMAGE, OTHER):
        nn.forward(3, image)
        nn.backward()
    assert any(state(nn)[1])
    nn.zero_grad()
    assert not any(state(nn)[1])


@pytest.mark.parametrize("batch_size", slow_but([1, 7, 2**62], [1, 2, 3, 7, 64, 10**6, 2**62]))
@pytest.mark.parametrize("rate", [None, 0.1, 0, -3.5, 1e-320], ids=str)
def test_update_is_gradient_descent_by_bits(batch_size, rate):
    nn.forward(3, IMAGE)
    nn.backward()
    step = nn.info()["learning_rate"] if rate is None else rate
    expected = [nn.data(i) - step * nn.grad(i) / batch_size for i in range(PARAMETERS)]
    gradients = state(nn)[1]
    nn.update(5, batch_size, learning_rate=rate)
    assert [nn.data(i) for i in range(PARAMETERS)] == expected
    assert state(nn)[1] == gradients


@pytest.mark.parametrize("call", ["update()", "update(0)", "update(17, 1)", "update(step=3)", "update(batch_size=1)"])
def test_the_step_changes_nothing_and_everything_has_a_default(call):
    results = []
    for each in (f"update(0, 1, learning_rate={nn.info()['learning_rate']})", call):
        nn.reset(1)
        nn.forward(3, IMAGE)
        nn.backward()
        eval(f"nn.{each}")
        results.append(state(nn))
    assert results[0] == results[1]


def test_inference_between_forward_and_backward_disturbs_nothing():
    nn.forward(3, IMAGE)
    nn.backward()
    expected = state(nn)
    nn.reset(1)
    nn.forward(3, IMAGE)
    nn.predict(OTHER)
    nn.probabilities(OTHER)
    nn.outputs(OTHER)
    nn.predict_batch(IMAGES)
    nn.evaluate(IMAGES, LABELS)
    nn.info()
    nn.data(0)
    nn.grad(0)
    nn.state_dict()
    nn.backward()
    assert state(nn) == expected


def test_info_says_what_the_module_is():
    info = nn.info()
    assert info.pop("simd") in ("baseline", "avx2", "avx512")
    assert re.match(r"(gcc|clang) \d|msvc|tcc", info.pop("compiler"))
    assert re.fullmatch(r"[0-9a-f]{64}", info.pop("digest"))
    assert info.pop("version") == nn.__version__
    assert 0 < info.pop("learning_rate") < 1
    assert info == {
        "architecture": "MLP 784-50-10, relu, softmax cross-entropy",
        "dtype": "float64",
        "mode": "strict",
        "fma": False,
        "reorder": False,
        "lowering": "loops",
        "parameters": PARAMETERS,
        "inputs": 784,
        "input_type": "uint8",
        "targets": 10,
        "target_type": "label",
        "noise": 0,
        "outputs": {"logits": 10, "probabilities": 10},
        "seed": 1,
    }


# Errors: tests/test_bad_input.py has all of them but this


def test_after_a_wrong_argument_no_other_is_asked_for_its_number():
    class Asked:
        def __index__(self):
            return len("asked with an exception set")

    with pytest.raises(TypeError, match="seed must be an int or None, not <class 'str'>"):
        nn.train(IMAGES, LABELS, seed="1", threads=Asked())


def test_backward_needs_a_forward(run_python):
    with pytest.raises(RuntimeError, match=r"backward\(\) needs a forward\(\) before it"):
        nn.backward()
    nn.predict(IMAGE)
    nn.evaluate(IMAGES, LABELS)
    nn.train(IMAGES, LABELS, epochs=0)
    with pytest.raises(RuntimeError, match="forward"):
        nn.backward()
    nn.forward(3, IMAGE)
    nn.backward()

    script = "import nn\ntry: nn.backward()\nexcept RuntimeError as error: print(error)"
    assert run_python(script).strip() == "backward() needs a forward() before it"


# The import


def test_the_import_imports_nothing_else(run_python):
    script = "import sys; before = set(sys.modules); import nn; print(sorted(set(sys.modules) - before))"
    assert run_python(script).strip() == "['nn']"


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="sanitizers watch the import")
def test_the_import_takes_at_most_ten_milliseconds(run_python):
    script = "import time; start = time.process_time(); import nn; print(time.process_time() - start)"
    assert min(float(run_python(script)) for _ in range(5)) < 0.010


def test_the_first_weights_are_those_of_the_declared_seed(run_python):
    hexes = run_python(f"import nn\nfor i in range({PARAMETERS}): print(nn.data(i).hex(), nn.grad(i))").split()
    nn.reset(nn.info()["seed"])
    assert hexes[::2] == [nn.data(i).hex() for i in range(PARAMETERS)]
    assert set(hexes[1::2]) == {"0.0"}


def test_a_process_has_one_model(monkeypatch):
    nn.forward(3, IMAGE)
    nn.backward()
    before = state(nn)
    spec = importlib.util.spec_from_file_location("nn", nn.__file__)
    second = importlib.util.module_from_spec(spec)
    with pytest.raises(ImportError, match=r"'nn' is loaded already.*under another name"):
        spec.loader.exec_module(second)
    monkeypatch.delitem(sys.modules, "nn")
    with pytest.raises(ImportError, match=r"'nn' is loaded already.*under another name"):
        importlib.import_module("nn")
    assert state(nn) == before


def test_a_reload_changes_nothing():
    nn.forward(3, IMAGE)
    nn.backward()
    before, views = state(nn), nn.state_dict()
    assert importlib.reload(nn) is nn
    assert state(nn) == before
    nn.update()
    assert views["layers.0.bias"][0] == nn.data(784)


SUBINTERPRETER = """
import os, sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import nn
reading, writing = os.pipe()
code = f'''
import os
try:
    import nn
    answer = "imported"
except ImportError as error:
    answer = f"ImportError: {{error}}"
os.write({writing}, answer.encode())
'''
interpreter = interpreters.create()
interpreters.run_string(interpreter, code)
interpreters.destroy(interpreter)
os.close(writing)
print(os.read(reading, 1000).decode())
print(nn.predict(bytes(784)))
"""


def test_a_second_interpreter_is_refused(run_python):
    first, second = run_python(SUBINTERPRETER).splitlines()
    assert first.startswith("ImportError: ")
    assert "nn" in first
    assert second.isdigit()


LEVELS = ("baseline", "avx2", "avx512")
LEVEL = """
import hashlib, sys
try:
    import nn
except ImportError as error:
    sys.exit(print("no:", error))
images, labels = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
losses = nn.train(images, labels, epochs=5, batch_size=2, learning_rate=0.3)
everything = [*losses, *nn.evaluate(images, labels), *map(nn.data, range(39760)), *map(nn.grad, range(39760))]
print(nn.info()["simd"], hashlib.sha256("".join(map(float.hex, everything)).encode()).hexdigest())
"""


def test_every_simd_level_gives_the_same_bits(run_python):
    answers = {level: run_python(LEVEL, IMAGES.hex(), LABELS.hex(), NN_SIMD=level) for level in LEVELS}
    digests = [answer.split() for answer in answers.values() if not answer.startswith("no:")]
    assert digests[0][0] == "baseline"
    assert [level for level, _ in digests] == list(answers)[: len(digests)]
    assert {digest for _, digest in digests} == {digests[0][1]}


RETRY = """
import os
os.environ["NN_SIMD"] = "mmx"
try:
    import nn
except ImportError as error:
    print(error)
os.environ["NN_SIMD"] = "baseline"
import nn
print(nn.info()["simd"])
if hasattr(os, "fork"):
    child = os.fork()
    if not child:
        os._exit(nn.predict(bytes(784)) not in range(10))
    assert os.waitpid(child, 0)[1] == 0
"""


def test_an_unknown_simd_level_is_refused_and_the_import_can_be_tried_again(run_python):
    refusal, level = run_python(RETRY, timeout=10).splitlines()
    assert refusal.startswith("NN_SIMD=mmx, but the levels of this module on this processor are: baseline")
    assert level == "baseline"


@pytest.mark.parametrize("name", ["data", "grad", "forward", "backward", "update", "training", "methods", "level"])
def test_the_library_exports_nothing_but_its_init_function(name):
    library = ctypes.PyDLL(nn.__file__)
    assert library.PyInit_nn
    assert not hasattr(library, name)


@pytest.mark.skipif(shutil.which("nm") is None or sys.platform != "linux", reason="needs nm, and ELF")
def test_nm_finds_one_exported_symbol():
    lines = subprocess.run(["nm", "-D", "--defined-only", nn.__file__], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in lines.stdout.splitlines()] == ["PyInit_nn"]


LARGE_PAGES = """
import nn

flags = [line for line in open("/proc/self/smaps") if line.startswith("VmFlags")]
print(sum("hg" in line.split() for line in flags))
"""


@pytest.mark.skipif(
    not os.path.isdir("/sys/kernel/mm/transparent_hugepage"), reason="large pages for the asking are Linux's"
)
def test_large_arrays_ask_for_large_pages() -> None:
    found = subprocess.run([sys.executable, "-c", LARGE_PAGES], capture_output=True, text=True, check=True)
    assert int(found.stdout) >= 1
