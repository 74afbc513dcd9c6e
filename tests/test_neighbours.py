"""Modules of other projects that are called as ours are: what hides what is said, with both paths."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import nn
import pytest
from commands import environment

import codegen
import micrograd
from micrograd import neighbours

RENAME = "rename it, or work in another folder"
REINSTALL = "then pip install --force-reinstall micrograd-nn"
MODEL = "def program():\n    pass\n"
ENGINE = "class Value:\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path.resolve()


def python(folder: Path, *arguments: str) -> str:
    """The last line of the error of a Python that starts in a folder."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert (done.stderr.count("\n") == 1) == (done.returncode == 2)  # else there is a traceback
    return done.stderr.splitlines()[-1]


# ---- a failed import says so


@pytest.mark.parametrize("text", ["", "print('a script')\n"])
def test_a_file_nn_in_the_current_folder(folder: Path, text: str) -> None:
    (folder / "nn.py").write_text(text)
    assert python(folder, "-m", "micrograd", "train") == (
        f"error: nn is {folder / 'nn.py'}, which hides that of micrograd-nn, {nn.__file__}: {RENAME}"
    )


def test_a_package_codegen_in_the_current_folder(folder: Path) -> None:
    (folder / "codegen").mkdir()
    (folder / "codegen" / "__init__.py").write_text("")
    (folder / "model.py").write_text(MODEL)
    assert python(folder, "-m", "micrograd", "explain", "model.py") == (
        f"error: codegen is {folder / 'codegen' / '__init__.py'}, which hides that of micrograd-nn, "
        f"{codegen.__file__}: {RENAME}"
    )


def test_a_file_micrograd_in_the_current_folder(folder: Path) -> None:
    (folder / "micrograd.py").write_text("")
    assert python(folder, "-c", "import codegen") == (
        "ImportError: codegen needs the micrograd of micrograd-nn, but `import micrograd` finds "
        f"{folder / 'micrograd.py'}: rename it, work in another folder, or pip uninstall what brought it"
    )


def test_another_micrograd_installed_over_ours(folder: Path) -> None:
    """As pip install micrograd does it: the files of both are in one folder, and the later ones win."""
    shutil.copytree(Path(micrograd.__file__).parent, folder / "micrograd", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "micrograd" / "__init__.py").write_text("")
    (folder / "micrograd" / "engine.py").write_text(ENGINE)
    installed(folder, "micrograd", "micrograd")
    assert python(folder, "-m", "micrograd", "train") == (
        f"error: micrograd is {folder / 'micrograd' / '__init__.py'}, which hides that of micrograd-nn, "
        f"{micrograd.__file__}: {RENAME}"
    )


def installed(folder: Path, distribution: str, package: str) -> None:
    """Metadata as pip writes them."""
    about = folder / f"{distribution}-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n")
    (about / "top_level.txt").write_text(f"{package}\n")


# ---- what `micrograd check` says


def test_nothing_is_in_the_way(folder: Path) -> None:
    assert neighbours.problems() == []


def test_what_would_hide_a_module_in_this_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console script does not look into the current folder, but `python` does."""
    (folder / "nn.py").write_text("")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert neighbours.problems() == [
        f"{folder / 'nn.py'} would hide that of micrograd-nn, {nn.__file__}, for `python` in this folder: {RENAME}"
    ]


def test_a_package_beside_our_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip install nn puts it: Python takes a package before a module of the same folder."""
    site = folder / "site-packages"
    (site / "nn").mkdir(parents=True)
    (site / "nn" / "__init__.py").write_text("")
    ours = site / Path(nn.__file__).name
    ours.write_bytes(b"")
    installed(site, "nn", "nn")
    monkeypatch.syspath_prepend(site)
    assert neighbours.problems() == [
        f"nn is {site / 'nn' / '__init__.py'}, which hides that of micrograd-nn, {ours}: pip uninstall nn, {REINSTALL}",
        f"the distribution nn installs nn too, in {site}, and may replace files of micrograd-nn: "
        f"pip uninstall nn, {REINSTALL}",
    ]


def test_what_is_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that the compiler has built, also as Python; copies of this project; folders without a module."""
    (folder / "nn").mkdir()
    (folder / "nn" / "data.txt").write_text("")
    (folder / "nn_infer.py").write_text(
        '"""nn_infer: a model in Python.\n\nGenerated by codegen from the graph 0.\n"""\n'
    )
    for package in (micrograd, codegen):
        (folder / package.__name__).mkdir()
        shutil.copy(str(package.__file__), folder / package.__name__ / "__init__.py")
    monkeypatch.syspath_prepend(folder)
    assert neighbours.problems() == []
    assert neighbours.candidates("micrograd", [folder]) == [folder / "micrograd" / "__init__.py"]


def test_a_module_that_is_missing_is_not_hidden_by_what_is_not_searched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "nn.py").write_text("")
    monkeypatch.setattr(sys, "path", [])
    assert neighbours.explanation("nn") is None
    assert neighbours.hiding("nn", folder) != []


def test_ours_may_be_found_by_an_editable_installation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose finder knows the files of a checkout that is not on the path."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None) -> ModuleSpec:
            return ModuleSpec(name, None, origin=f"/checkout/{name}.so")

    Finder.__module__ = "__editable___micrograd_nn_finder"
    (folder / "nn.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(sys, "meta_path", [Finder])
    assert neighbours.hiding("nn_infer") == []
    hidden = f"nn is {folder / 'nn.py'}, which hides that of micrograd-nn, {Path('/checkout/nn.so')}: {RENAME}"
    assert neighbours.hiding("nn") == [hidden]
    monkeypatch.setattr(sys, "meta_path", [])
    assert neighbours.hiding("nn") == [hidden.replace(f", {Path('/checkout/nn.so')}", "")]


def test_it_imports_nothing_of_ours() -> None:
    """It must work where the rest of the package is not there."""
    script = f"import runpy, sys; runpy.run_path({neighbours.__file__!r}); print('micrograd' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert (done.stderr, done.stdout) == ("", "False\n")
