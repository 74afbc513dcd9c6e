"""model.py may import what lies beside it, and two of them do not mix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import codegen

MODEL = """
from helpers import parts
import layers
from codegen import Floats, Program
from micrograd.engine import Value

def program():
    import late
    x = Value(0)
    w = Value(layers.START + late.MORE)
    return Program(Floats([x]), None, {parts.NAME: w}, w * x)
"""


def write(folder: Path, start: float, name: str) -> Path:
    (folder / "helpers").mkdir(parents=True)
    (folder / "helpers" / "__init__.py").write_text("")
    (folder / "helpers" / "parts.py").write_text(f"NAME = {name!r}\n")
    (folder / "layers.py").write_text(f"START = {start}\n")
    (folder / "late.py").write_text("MORE = 0.5\n")
    (folder / "model.py").write_text(MODEL)
    return folder / "model.py"


def test_two_models_with_helpers_of_the_same_names(tmp_path):
    one, two = write(tmp_path / "one", 1.0, "first"), write(tmp_path / "two", 2.0, "second")
    path, modules = list(sys.path), set(sys.modules)
    for _ in range(2):
        for file, start, name in ((one, 1.5, "first"), (two, 2.5, "second"), (str(two), 2.5, "second")):
            program = codegen.load(file)
            assert [tensor.name for tensor in program.tensors] == [name]
            assert program.parameter_values[0].data == start
    assert sys.path == path
    assert not {"layers", "helpers", "helpers.parts", "late"} & (set(sys.modules) - modules)


def test_a_module_of_the_same_name_is_as_it_was(tmp_path, monkeypatch):
    one, two = write(tmp_path / "one", 1.0, "first"), write(tmp_path / "two", 2.0, "second")
    monkeypatch.syspath_prepend(str(one.parent))
    import helpers.parts
    import layers

    without_a_file = ModuleType("late")
    monkeypatch.setitem(sys.modules, "late", without_a_file)
    assert codegen.load(two).tensors[0].name == "second"
    assert sys.modules["layers"] is layers
    assert sys.modules["helpers.parts"] is helpers.parts
    layers.START = 7.0  # what its own folder's is already: it is not run again
    program = codegen.load(one)
    assert (program.tensors[0].name, program.parameter_values[0].data) == ("first", 7.5)
    assert sys.modules["layers"] is layers
    assert sys.modules["late"] is without_a_file
    for name in ("layers", "helpers", "helpers.parts"):
        del sys.modules[name]


def test_a_relative_path(tmp_path, monkeypatch):
    write(tmp_path, 1.0, "w")
    monkeypatch.chdir(tmp_path)
    assert codegen.load("model.py").tensors[0].name == "w"


def test_files_beside_never_replace_what_the_compiler_or_python_has(tmp_path):
    file = write(tmp_path, 1.0, "w")
    for name in ("micrograd", "codegen", "random"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError\n")
    (tmp_path / "layers.py").write_text("import random\nSTART = 1.0\n")
    before = {name: sys.modules[name] for name in ("micrograd", "codegen", "random")}
    codegen.load(file)
    assert all(sys.modules[name] is module for name, module in before.items())


def test_after_an_error_nothing_is_left(tmp_path):
    file = write(tmp_path, 1.0, "w")
    (tmp_path / "late.py").write_text("import layers, helpers\nraise RuntimeError('late')\n")
    path = list(sys.path)
    with pytest.raises(RuntimeError, match="late"):
        codegen.load(file)
    assert sys.path == path
    assert not {"layers", "helpers", "late"} & set(sys.modules)


def test_modules_of_the_folder_at_hand_are_not_for_a_safe_path(tmp_path):
    """`python -P`: what lies there may be somebody else's."""
    (tmp_path / "beside.py").write_text("print('run')\n")
    command = [sys.executable, "-P", "-c", "import codegen; codegen.load('beside')"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.stdout == ""
    assert "No module named 'beside'" in run.stderr
