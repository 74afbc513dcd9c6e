"""Programs in the style of others, on our engine: tests/programs, each as its author would have run it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from test_passes import program

from codegen.passes.trace import trace
from micrograd.engine import Value

FOLDER = Path(__file__).resolve().parent / "programs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"program_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_program_is_run_below():
    text = Path(__file__).read_text(encoding="utf-8")
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    assert len(names) == 6
    assert all(f'load("{name}")' in text for name in names)


def test_a_char_rnn_with_ops_of_its_own():
    char_rnn = load("char_rnn")
    losses, text = char_rnn.main()
    assert losses[0] > 1.4
    assert losses[-1] < 0.2
    assert text == "hello hello"
    w, x = Value(0.5), Value(2.0)
    loss = char_rnn.dot([w], [x]) * 2.0
    with pytest.raises(ValueError, match=r"made by 'dot', has a _backward of its own.*ops\.register\('dot'"):
        trace(program(loss, [w]))


def test_adam_by_attributes():
    losses, optimiser = load("adam").main()
    assert losses[-1] < losses[0] / 10
    assert all(p.v > 0 for p in optimiser.params[-1:])
    assert len(optimiser.params) == 8 * 2 + 8 + 1 + 1


def test_a_coloured_graph():
    nodes, walked, text = load("coloured").main()
    assert {colour for colour, _ in walked} == {"black"}
    assert walked[0] == ("black", 0)
    assert max(depth for _, depth in walked) == 4
    assert {n._vis_color for n in nodes} <= {"lightblue", "salmon", "palegreen"}
    assert text.count("->") == sum(len(n._prev) for n in nodes)
    if shutil.which("dot"):
        assert b"<svg" in subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, check=True).stdout


def test_a_subclass_with_more_ops():
    out, leaves, slopes = load("subclass").main()
    assert [leaf.grad for leaf in leaves] == pytest.approx(slopes, rel=1e-8)
    assert [type(v).__name__ for v in out.topo() if v._op in ("arctan", "clamp", "hypot")] == [
        *("MyValue", "MyValue", "Hypot")
    ]
    assert leaves[0].visits == 1
    assert leaves[0].label == "x"


def test_exercises_with_sines():
    exercises = load("exercises")
    for name, rule, difference, gradient in exercises.derivatives():
        assert gradient == pytest.approx(rule, rel=1e-12, abs=1e-15), name
        assert gradient == pytest.approx(difference, rel=1e-6, abs=1e-8), name
    assert exercises.fit() == pytest.approx((1.7, 1.5, 0.4, 0.0), abs=0.05)
    assert exercises.newton() == pytest.approx(0.7390851332151607, rel=1e-15)


@pytest.mark.slow
def test_a_gpt():
    gpt = load("gpt")
    losses, names, chance = gpt.main()
    assert losses[0] == pytest.approx(chance, rel=0.2)
    assert sum(losses[-6:]) / 6 < 0.7 * chance
    assert all(set(name) <= set("aehimny") for name in names)
