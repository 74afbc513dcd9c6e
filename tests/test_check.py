"""A self-check that fails for a correct module, or passes for one that is wrong by a bit."""

from __future__ import annotations

import subprocess
import sys
from array import array
from dataclasses import replace
from math import inf, nan, nextafter
from pathlib import Path

import nn
import nn_infer
import pytest
from commands import environment
from harness import slow_but

from codegen import build
from codegen.mnist import program
from codegen.passes.freeze import rounded
from codegen.weights import read_weights
from micrograd.__main__ import main
from micrograd.commands import check as check_command
from micrograd.commands import comparison
from micrograd.commands.comparison import Numbers, compare, difference
from micrograd.commands.observations import (
    FROZEN_LOGITS,
    FROZEN_WEIGHTS,
    Interpreted,
    examples,
    expected_of_frozen,
    observe,
)

WEIGHTS = Path(__file__).resolve().parent.parent / "weights" / "mnist.safetensors"


@pytest.fixture(scope="module")
def expected() -> Numbers:
    """What the engine shows, in some seconds."""
    return dict(observe(Interpreted()))


# ---- what is right


@pytest.mark.slow
def test_it_passes_with_the_standard_library_alone(tmp_path: Path) -> None:
    script = """
import sys
for name in ("codegen", "numpy", "safetensors", "tqdm", "pooch"):
    sys.modules[name] = None
from micrograd.__main__ import main
sys.exit(main(["check"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    compared = [line for line in lines if line.startswith(("nn ", "nn_infer "))]
    assert len(compared) == 6
    assert all(line.endswith((" numbers, equal", ": not on this processor")) for line in compared)
    assert compared[0] == "nn        baseline, with 1 and 3 threads: 397,700 numbers, equal"
    assert compared[3] == "nn_infer  baseline, with 1 and 3 threads: 44 numbers, equal"
    assert lines[-1].startswith("OK: ")
    assert f"digest {nn.info()['digest'][:16]}" in done.stdout


def test_the_processes_import_neither_codegen_nor_numpy() -> None:
    script = "import sys, micrograd.commands.observations; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    assert not {"codegen", "numpy", "nn"} & set(done.stdout.split())


def test_every_gradient_and_parameter_is_compared(expected: Numbers) -> None:
    whats = {what.partition(":")[0] for what in expected if what.endswith(": layers.0.weight")}
    assert sum("gradient" in what for what in whats) == 3
    assert sum(what.startswith("after") for what in whats) == 5
    for what in whats:
        sizes = [len(numbers) for name, numbers in expected.items() if name.startswith(f"{what}:")]
        assert sum(sizes) == nn.info()["parameters"]


def test_the_examples_are_telling(expected: Numbers) -> None:
    """Each step changes what it should, and no result is nan but where it must be."""
    weights = [array("d", numbers).tobytes() for what, numbers in expected.items() if what.endswith(" layers.1.weight")]
    assert len(set(weights)) == len(weights)
    with_nan = [what for what, numbers in expected.items() if any(x != x for x in numbers)]
    assert with_nan == ["the loss with a weight that is nan", "the loss after a step that overflows"]
    huge = expected["the gradient with huge weights: layers.0.weight"]
    assert max(map(abs, huge)) > 1e198
    predictions = {tuple(numbers) for what, numbers in expected.items() if what.startswith("the prediction")}
    assert len(predictions) > 1


def test_the_recorded_logits_are_the_engines() -> None:
    """Of nn_infer's weights. Where those are trained again: Interpreted().load() them, and record outputs() again."""
    engine = Interpreted()
    weights = {name: rounded("int8", tensor.astype("f8")) for name, tensor in read_weights(WEIGHTS).items()}
    engine.load({name: array("d", tensor.ravel()) for name, tensor in weights.items()})
    for name, texts in FROZEN_LOGITS.items():
        assert [x.hex() for x in engine.outputs(examples()[name][1])["logits"]] == texts
    assert nn_infer.info()["weights"].startswith(FROZEN_WEIGHTS)


# ---- what is wrong

# A change of the real module, and what is said of it.
WRONG = {
    "loss": ("forward = lambda *a: up(real.forward(*a))", "the loss of one image is "),
    "step": ("update = lambda *a, **k: (real.update(*a, **k), flip(real.state_dict()))", "after a step of one image: "),
    "gradient": ("backward = lambda: (real.backward(), flip(real.grad_dict()))", "the gradient of one image: layers."),
    "train": ("train = lambda *a, **k: [up(x) for x in real.train(*a, **k)]", "the mean loss of train() in batches "),
    "threads": (
        "train = lambda *a, **k: (real.train(*a, **k), k['threads'] > 1 and flip(real.state_dict()))[0]",
        "after train() in batches of 1: layers.0.bias, number 1 of 50, ",
    ),
    "evaluate": ("evaluate = lambda *a, **k: (real.evaluate(*a, **k)[0], 0.75)", "evaluate(), number 1 of 2, is "),
    "predict": ("predict_batch = lambda *a, **k: bytes(4)", "predict_batch(), number 0 of 4, is 0x0.0p+0, "),
    "reset": ("reset = lambda seed: real.reset(seed + 1)", "the weights after reset(): layers.0.weight, number 0 of "),
    "shape": ("predict_batch = lambda *a, **k: bytes(5)", "a model of another shape"),
    "error": ("train = None", "the process ended with 1: TypeError: 'NoneType' object is not callable"),
    "crash": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "the process ended with -15: it said nothing"),
}

STAND_IN = """
import importlib.util, math
spec = importlib.util.spec_from_file_location({name!r}, {path!r})
real = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real)
globals().update({{name: value for name, value in vars(real).items() if not name.startswith("__")}})
up = lambda x: math.nextafter(x, math.inf)
def flip(views):
    view = views["layers.0.bias"]
    view[1] = up(view[1])
{wrong}
"""


def stand_in(folder: Path, name: str, path: str, wrong: str) -> None:
    (folder / f"{name}.py").write_text(STAND_IN.format(name=name, path=path, wrong=wrong))


@pytest.mark.parametrize("what", slow_but(["gradient", "evaluate"], WRONG, nightly=[*WRONG][::2]))
def test_a_wrong_module_is_found(expected: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    wrong, message = WRONG[what]
    if what == "crash" and sys.platform == "win32":
        pytest.skip("no signals")
    stand_in(tmp_path, "nn", nn.__file__, wrong)
    monkeypatch.syspath_prepend(tmp_path)
    found = compare("nn", "baseline", expected)
    assert found
    assert len(found) == (1 if what == "threads" else 2)
    assert found[-1].startswith(f"nn at baseline with 3 threads: {message}")


def test_a_right_stand_in_is_right(expected: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "nn", nn.__file__, "")
    monkeypatch.syspath_prepend(tmp_path)
    assert compare("nn", "baseline", expected) == []


@pytest.mark.nightly
def test_another_constant_is_found(expected: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(replace(program(), learning_rate=nextafter(0.008, 1)), tmp_path, "nn", flags=["-O1"])
    monkeypatch.syspath_prepend(tmp_path)
    (one, _) = compare("nn", "baseline", expected) or []
    assert one.startswith("nn at baseline with 1 thread: after a step of one image: layers.0.weight, number ")


WRONG_FROZEN = {
    "the probabilities": "probabilities = lambda pixels: tuple(map(up, real.probabilities(pixels)))",
    "the logits": "outputs = lambda pixels: {'logits': tuple(map(up, real.outputs(pixels)['logits']))}",
    "the prediction": "predict = lambda pixels: 0",
}


@pytest.mark.parametrize("what", WRONG_FROZEN)
def test_a_wrong_frozen_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    stand_in(tmp_path, "nn_infer", nn_infer.__file__, WRONG_FROZEN[what])
    monkeypatch.syspath_prepend(tmp_path)
    found = compare("nn_infer", "baseline", dict(expected_of_frozen()))
    assert found
    assert found[0].startswith(f"nn_infer at baseline with 1 thread: {what} of the sparse image")


@pytest.mark.slow
def test_what_is_printed_when_something_differs(
    expected: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path, "nn", nn.__file__, WRONG["loss"][0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(check_command, "Interpreted", lambda: None)
    monkeypatch.setattr(check_command, "observe", lambda _: expected.items())
    monkeypatch.setattr(comparison, "LEVELS", ("baseline", "no such level"))
    assert main(["check"]) == 1
    out = capsys.readouterr().out
    assert "nn        baseline, with 1 and 3 threads: 397,700 numbers, different\n" in out
    assert "nn        no such level: not on this processor\n" in out
    assert f"warning   nn is {tmp_path / 'nn.py'}, which hides that of micrograd-nn, {nn.__file__}: rename it" in out
    assert "nn_infer  baseline, with 1 and 3 threads: 44 numbers, equal\n" in out
    assert "\nDIFFERENT: nn at baseline with 1 thread: the loss of one image is 0x1." in out
    assert "OK" not in out


def test_differences() -> None:
    one = {"a": [1.0, 0.0, nan], "b": [inf]}
    seen = {what: array("d", numbers) for what, numbers in one.items()}
    assert difference(one, seen) is None
    seen["a"][1] = -0.0
    assert difference(one, seen) is None
    seen["a"][2] = 0.0
    assert difference(one, seen) == "a, number 2 of 3, is 0x0.0p+0, expected nan; 1 of 4 numbers differ"
    seen["a"][0] = nextafter(1.0, 2.0)
    seen["b"][0] = -inf
    assert (
        difference(one, seen)
        == "a, number 0 of 3, is 0x1.0000000000001p+0, expected 0x1.0000000000000p+0; 3 of 4 numbers differ"
    )
    assert difference(one, {"a": seen["a"]}) == difference(one, seen | {"b": array("d")}) == "a model of another shape"
