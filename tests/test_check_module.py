"""`micrograd check MODULE` that overlooks a difference, or refuses a right module."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from commands import environment
from models import xor

import codegen
from codegen import Floats, Label, Pixels, Program, Tokens
from micrograd.__main__ import main
from micrograd.commands.comparison import DIFFERENT
from micrograd.commands.observe_module import Examples, Part, observe, parts
from micrograd.engine import Value
from micrograd.functional import total

MODEL = """
from codegen import Floats, Program
from micrograd.engine import Value

def program():
    x, t, w = [Value(0.0), Value(0.0)], Value(0.0), [Value(0.5), Value(-0.25)]
    out = (w[0] * x[0] + w[1] * x[1]).tanh()
    return Program(Floats(x), Floats([t]), {"w": w}, (out - t) ** 2, {"out": [out]}, learning_rate=0.25)

def other():
    x, w = [Value(0.0), Value(0.0)], [Value(0.5), Value(-0.25)]
    return Program(Floats(x), None, {"w": w}, (w[0] * x[0] + w[1] * x[1]) ** 2, {"out": [w[0] * x[0]]})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its module, one of the same with weights, and a module that is wrong."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "model.py").write_text(MODEL)
    model = str(folder / "model.py")
    codegen.build(codegen.load(model), folder / "ours", "net", flags=["-O0"])
    codegen.freeze(codegen.load(model), {"w": array("d", [1.5, 2.5])}, folder / "ours", "frozen", flags=["-O0"])
    codegen.build(codegen.load(model), folder, "trained", target="python")
    trained = codegen.load_extension(folder / "trained.py")
    trained.load_state_dict({"w": array("d", [1.5, 2.5])})
    trained.save_weights(str(folder / "w.safetensors"))
    (folder / "ours" / "__init__.py").touch()
    (folder / "raises.py").write_text("raise ValueError('boom')")
    (folder / "exits.py").write_text("raise SystemExit(3)")
    (folder / "lacks.py").write_text("import not_there")
    (folder / "ours" / "wrong.py").write_text(
        "from .net import *\nfrom . import net\n__version__ = '1'\n"
        "def train(*a, **k):\n    losses = net.train(*a, **k)\n    net.state_dict()['w'][1] += k['threads'] == 3\n"
        "    return losses\n"
    )
    return folder


def said(folder: Path, *arguments: object) -> tuple[int, str]:
    """The exit code and the output of a process, in which nothing has been imported yet."""
    command = [sys.executable, "-m", "micrograd", "check", *map(str, arguments)]
    settings = environment() | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_right_module(folder: Path) -> None:
    code, text = said(folder, "ours.net", "--model", "model.py")
    assert code == 0, text
    lines = text.splitlines()
    assert lines[1].startswith("module    ours.net 0.1.0, compiled by ")
    assert lines[-1].startswith("OK: ")
    assert lines[-1].endswith(" numbers have the bits of model.py in Python")
    code, text = said(folder, "ours.frozen", "--model", "model.py", "--weights", "w.safetensors")
    assert code == 0, text


def test_a_wrong_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = said(folder, "ours.wrong")
    assert code == DIFFERENT, text
    assert "DIFFERENT: ours.wrong at baseline with 3 threads: after train() in batches of 1: w, number 1 of 2," in text
    assert "with 1 thread:" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ours.nothing"], "error: there is no module ours.nothing: No module named 'ours.nothing'"),
        (["raises"], "error: raises: boom"),
        (["exits"], "error: exits: SystemExit: 3"),
        (["lacks"], "error: lacks: ModuleNotFoundError: No module named 'not_there'"),
        (["json"], "error: json is no compiled model: "),
        (["numpy"], "error: numpy is no compiled model: "),  # which has an info() too
        ([""], "error: expected the name of a module, as irisnet.net, got ''"),
        (["."], "error: expected the name of a module, as irisnet.net, got '.'"),
        (["ours.net", "--weights", "w.safetensors"], "error: --weights are those of a model: name it by --model"),
        (["ours.net", "--model", "model.py:other"], "error: ours.net has the digest "),
        (["ours.net", "--model", "missing.py"], "error: missing.py: "),
        (["ours.net", "--model", "model.py", "--weights", "w.safetensors"], "error: ours.net has weights of its own"),
        (["ours.frozen", "--model", "model.py"], "error: ours.frozen only predicts: --weights names those it has"),
        (["--model", "model.py"], "error: --model and --weights are those of a MODULE"),
    ],
)
def test_what_cannot_be_checked(arguments: list[str], message: str, folder: Path) -> None:
    code, text = said(folder, *arguments)
    assert code == 2
    assert text.splitlines()[-1].startswith(message)


def test_fast_arithmetic_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "fast_net.py").write_text(
        "info = lambda: {'mode': 'fast', 'dtype': 'float32'}\noutputs = outputs_batch = None"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", "fast_net"]) == 2
    assert "fast_net was built with float32 and fast arithmetic" in capsys.readouterr().err


def test_types_of_every_kind_are_read() -> None:
    assert parts("uint8", 9) == [Part("", 9, "pixel", 9)]
    assert parts("none", 0) == parts("float64", 0) == []
    assert parts("label", 10) == [Part("", 1, "label", 10)]
    text = """{'image': 9 pixels, "it's": 1 token below 27, 'x: 1 float, ': 2 floats, 'c': 1 label below 4}"""
    assert parts(text, 40) == [
        Part("image", 9, "pixel", 0),
        Part("it's", 1, "token", 27),
        Part("x: 1 float, ", 2, "float", 0),
        Part("c", 1, "label", 4),
    ]
    assert parts("3 tokens below 5", 15) == [Part("", 3, "token", 5)]


def of_kinds(inputs: object, targets: object, leaves: list[Value], target: list[Value]) -> Program:
    w = Value(0.5)
    loss = total([w * x for x in leaves]).tanh() * (1.0 + total(target) if target else 1.0)
    return Program(inputs, targets, {"w": w}, loss, {"out": [w * leaves[0]]})  # type: ignore[arg-type]


def every_kind() -> list[Program]:
    x, t = [Value(0.0) for _ in range(6)], [Value(0.0) for _ in range(3)]
    rows = [x[:3], x[3:]]
    return [
        of_kinds(Pixels(x, 1 / 255), Label(t), x, t),
        of_kinds(Floats(x), None, x, []),
        of_kinds(Tokens(rows), Floats(t), x, t),
        of_kinds(Tokens([x]), Tokens([t]), x, t),
        of_kinds({"a b": Floats(x[:1]), "p": Pixels(x[1:3], 1.0), "w": Tokens([x[3:]])}, {"c": Label(t)}, x, t),
        of_kinds({"two": Floats(x)}, {"one": Floats(t[:1]), "more": Tokens([t[1:]])}, x, t),
    ]


@pytest.mark.parametrize("which", range(6))
def test_a_model_of_any_kind_is_used(which: int, tmp_path: Path) -> None:
    """The generated Python takes what Examples makes, and every call counts."""
    program = every_kind()[which]
    plain = codegen.load_extension(codegen.build(program, tmp_path, f"plain_{which}", target="python"))
    seen = dict(observe(plain, 1))
    assert {"the loss of example 0", "the loss of evaluate()", "after train() in batches of 3: w"} <= set(seen)
    assert seen["after train() in batches of 3: w"] != seen["the weights after reset(): w"]
    assert (
        seen["the output 'out' of all examples"].tobytes()
        == array("d", [x for number in range(7) for x in seen[f"the output 'out' of example {number}"]]).tobytes()
    )


def test_a_frozen_model_gets_the_same_inputs() -> None:
    info = {"input_type": "float64", "inputs": 2}
    assert Examples(info).many()[0] == Examples(info | {"target_type": "label", "targets": 3}).many()[0]


def test_a_model_without_distributions_is_reset(tmp_path: Path) -> None:
    plain = codegen.load_extension(codegen.build(xor(), tmp_path, "plain_xor", target="python"))
    assert len(dict(observe(plain, 1))) > 20
