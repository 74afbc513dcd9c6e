"""Stubs that disagree with the installed modules, and a help() that says too little."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import pydoc
import re
import subprocess
import sys
import sysconfig
import types
from pathlib import Path

import nn
import nn_infer
import pytest
import typed_sample
from harness import Extension

import micrograd
from codegen import Floats, Program
from micrograd.engine import Value

MODULES = [nn, nn_infer]
SAMPLE = Path(typed_sample.__file__)
FUNCTIONS = [
    pytest.param(function, id=f"{module.__name__}.{name}")
    for module in MODULES
    for name, function in vars(module).items()
    if not name.startswith("_")
]
WRONG = """\
import nn
nn.forward("3", bytes(784))
text: str = nn.info()["parameters"]
nn.predict([1, 2])
"""


def stubs() -> Path:
    """The folder of the stub packages: site-packages, or csrc/ where the installation is an editable one."""
    spec = importlib.util.find_spec("nn-stubs")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]).parent


def stub(module: types.ModuleType) -> ast.Module:
    path = stubs() / f"{module.__name__}-stubs" / "__init__.pyi"
    return ast.parse(path.read_text(encoding="utf-8"))


def check(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a type checker of this environment elsewhere, so that it sees what is installed.

    An editable installation is a hook of Python's import, which no type checker runs: there the paths are given.
    """
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    paths = [str(path) for path in (stubs(), Path(micrograd.__file__).parent.parent) if str(path) not in installed]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_stubs_declare_what_the_modules_have(tmp_path):
    pytest.importorskip("mypy")
    done = check(tmp_path, "mypy.stubtest", "nn", "nn_infer")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checker", "options"),
    [
        pytest.param("mypy", ["--strict", "--config-file=", "--cache-dir=cache"], id="mypy"),
        pytest.param("pyright", ["--pythonpath", sys.executable], id="pyright", marks=pytest.mark.slow),
    ],
)
def test_a_typed_program_is_accepted_and_a_wrong_one_refused(checker, options, tmp_path):
    pytest.importorskip(checker)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    done = check(tmp_path, checker, *options, str(SAMPLE), str(wrong))
    errors = re.findall(r"(\w+)\.py:(\d+).* error: ", done.stdout)
    assert errors == [("wrong", "2"), ("wrong", "3"), ("wrong", "4")], done.stdout + done.stderr


def test_the_typed_program_runs():
    typed_sample.main()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_stubs_say_what_help_says(module):
    imported = [node for node in stub(module).body if isinstance(node, ast.ImportFrom) and node.module == "nn"]
    same = [node.names[0].name for node in imported]
    nodes = [*stub(module).body, *(node for node in stub(nn).body if getattr(node, "name", None) in same)]
    declared = {node.name: ast.get_docstring(node) for node in nodes if isinstance(node, ast.FunctionDef)}
    assert declared == {param.values[0].__name__: inspect.getdoc(param.values[0]) for param in functions_of(module)}
    assert ast.get_docstring(stub(module)).startswith(inspect.getdoc(module))


def functions_of(module: types.ModuleType) -> list:
    return [param for param in FUNCTIONS if param.values[0].__module__ == module.__name__]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_stubs_know_what_info_holds(module):
    (info,) = (node for node in stub(module).body if isinstance(node, ast.ClassDef) and node.name == "_Info")
    declared = {node.target.id: ast.unparse(node.annotation) for node in info.body}
    found = module.info()
    assert list(declared) == list(found)
    for key, annotation in declared.items():
        literal = re.fullmatch(r"Literal\[(.*)\]", annotation)
        if literal:
            assert found[key] in ast.literal_eval(literal[1])
        else:
            assert annotation.split("[")[0] == type(found[key]).__name__, key


def test_the_stub_names_the_parameters():
    shapes = [f"{name} {view.shape}" for name, view in nn.state_dict().items()]
    assert f"{', '.join(shapes[:-1])} and {shapes[-1]}" in ast.get_docstring(stub(nn))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_help_says_what_goes_in_and_what_comes_out(function):
    """Each argument by name; what is returned; each error."""
    text = inspect.getdoc(function)
    for name in inspect.signature(function).parameters:
        assert re.search(rf"^{name}: |\b{name} from " if name != "mapping" else "from {name: ", text, re.MULTILINE), (
            name
        )
    first = " ".join(text.partition("\n\n")[0].split())
    assert re.search(
        r", as (a|an|n) (float|int|bytes|tuple|list|dict|memoryview)|, as floats|{name: (tuple|memory)|Returns None",
        first,
    )
    arguments = inspect.signature(function).parameters
    assert not arguments or ("TypeError" in text and "ValueError" in text)
    assert max(map(len, text.splitlines())) <= 116  # with the stub's indent, 120


def test_help_of_a_module_shows_every_function():
    text = "".join(pydoc.plain(pydoc.render_doc(nn)).split())  # long signatures are broken into lines from 3.13 on
    for param in functions_of(nn):
        function = param.values[0]
        for shown in (f"{function.__name__}{inspect.signature(function)}", inspect.getdoc(function)):
            assert "".join(shown.split()) in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("targets", "label"),
    [
        (
            Floats([Value(0.0), Value(0.0)]),
            "targets: 2 numbers: a buffer of float64 is read in place, others are converted.",
        ),
        (None, "targets: None, because this model has no targets."),
    ],
    ids=["targets", "no targets"],
)
def test_help_has_the_numbers_of_the_model(targets, label, tmp_path):
    x, w = [Value(0.0) for _ in range(3)], Value(2.0)
    program = Program(Floats(x), targets, {"w": w}, loss=w * x[0] * x[1] * x[2], outputs={"out": [w * x[1]]})
    module = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    text = inspect.getdoc(module.forward)
    assert (
        "inputs: a C-contiguous buffer of 3 float64, read in place: array.array, memoryview or a NumPy array." in text
    )
    assert label in text
    assert "\ni: an int, 0 <= i < 1.\n" in inspect.getdoc(module.data)
    assert "\nRaises RuntimeError, because this model has no classes" in inspect.getdoc(module.predict)
    assert "\nseed: None; or, of a model with noise, an int that noise is drawn from" in inspect.getdoc(module.reset)
