"""micrograd draw: files, stdout, and one line for whatever goes wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen import load
from codegen.backends import pictures as draw
from micrograd import dot
from micrograd.__main__ import main

FOUR_NEURONS = Path(__file__).resolve().parent.parent / "docs" / "four_neurons.py"
KINDS = {"graph": draw.scalars, "ir": draw.ir, "loops": draw.loops}
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz's program dot")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """run(*arguments) -> exit code, stdout, stderr"""

    def call(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main(["draw", *map(str, arguments)])
        except SystemExit as error:
            code = error.code
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("what", KINDS)
def test_dot_text_needs_no_graphviz(run: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch, what: str):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "graphviz", None)
    expected = dot.text(KINDS[what](load(FOUR_NEURONS)))
    assert run(FOUR_NEURONS, "--what", what, "--output", "-") == (0, expected, "")
    code, out, err = run(FOUR_NEURONS, "--what", what, "--output", "four.dot")
    assert (code, out, err) == (0, f"{what} of {FOUR_NEURONS}: four.dot\n", "")
    assert (folder / "four.dot").read_text(encoding="utf-8") == expected


@needs_dot
def test_pictures(run: Callable, folder: Path):
    pytest.importorskip("graphviz")
    assert run(FOUR_NEURONS)[0] == 0
    assert run(FOUR_NEURONS, "--what", "loops")[1] == f"loops of {FOUR_NEURONS}: four_neurons.loops.svg\n"
    assert run(FOUR_NEURONS, "--what", "loops", "--output", "x.png")[0] == 0
    assert run(FOUR_NEURONS, "--what", "loops", "--output", "x.pdf")[0] == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["four_neurons.graph.svg", "four_neurons.loops.svg", "x.pdf", "x.png"]
    assert "weight[3, 2]" in (folder / "four_neurons.graph.svg").read_text(encoding="utf-8")
    assert (folder / "x.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "x.pdf").read_bytes().startswith(b"%PDF")


def test_help(run: Callable):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for text in ("MODEL", "--what {graph,ir,loops}", "--output FILE", "micrograd-nn[draw]"):
        assert text in out


MODELS = {
    "no program": ("x = 1", "model.py must define a function program() that returns"),
    "no Program": ("def program():\n    return 3", "program() in model.py returned a int, not a "),
    "syntax": ("def program(:\n    pass", "model.py:1: SyntaxError: invalid syntax"),
    "name": ("def program():\n\n    return y", "model.py:3: NameError: name 'y' is not defined"),
    "import": ("import no_such_module", "model.py:1: ModuleNotFoundError: No module named 'no_such_module'"),
    "exit": ("import sys\nsys.exit()", "model.py:2: SystemExit"),
    "several lines": ("raise ValueError('one\\ntwo')", "model.py:1: ValueError: one two"),
    "inside micrograd": (
        "from micrograd.engine import Value\n\nValue('x')",
        "model.py:3: TypeError: a Value holds a real number, not str",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_broken_model_is_explained_in_one_line(run: Callable, folder: Path, name: str):
    text, message = MODELS[name]
    (folder / "model.py").write_text(text, encoding="utf-8")
    code, out, err = run("model.py")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["model.py"]


def test_a_model_that_cannot_be_compiled(run: Callable, folder: Path):
    source = FOUR_NEURONS.read_text(encoding="utf-8").replace('{"out": [out]}', '{"out": [out - target]}')
    (folder / "model.py").write_text(source, encoding="utf-8")
    expected = (
        2,
        "",
        "error: model.py: the output 'out' depends on a target, but a prediction has none: declare it as a metric\n",
    )
    assert run("model.py", "--what", "ir") == expected
    assert run("model.py", "--what", "loops") == expected
    assert run("model.py", "--output", "-")[0] == 0  # the graph of the loss is what it is


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "error: missing.py: No such file or directory"),
        (["."], "error: .: "),
        ([], "error: the following arguments are required: MODEL"),
        ([FOUR_NEURONS, "--what", "heap"], "error: argument --what: invalid choice: 'heap'"),
        (
            [FOUR_NEURONS, "--output", "x.jpg"],
            "error: --output must end in .dot, .svg, .png or .pdf, or be -, got x.jpg",
        ),
        ([FOUR_NEURONS, "--output", "no/x.dot"], "error: no/x.dot: No such file or directory"),
    ],
)
def test_errors(run: Callable, folder: Path, arguments: list, message: str):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.replace("\\", "/").startswith(message)
    assert err.count("\n") == 1
    assert not list(folder.iterdir())


def test_a_missing_program_is_explained(run: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = run(FOUR_NEURONS)
    assert (code, out) == (2, "")
    assert err.startswith("error: pictures are drawn by Graphviz's program dot, which is not on the PATH: install it")
    assert not list(folder.iterdir())


@needs_dot
def test_a_missing_package_is_explained(run: Callable, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    expected = "error: drawing needs the package graphviz: pip install 'micrograd-nn[draw]'\n"
    assert run(FOUR_NEURONS) == (2, "", expected)


def test_a_process_of_its_own():
    command = [sys.executable, "-m", "micrograd", "draw", str(FOUR_NEURONS), "--output", "-"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert done.stdout == dot.text(draw.scalars(load(FOUR_NEURONS)))
    assert done.stderr == ""
