"""docs/trained_elsewhere.md, run from top to bottom: a command that fails, an export that predicts something else.

Of scikit-learn for real. Without PyTorch or Keras, their ONNX files are written as they would write them.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
from micrograd.__main__ import main

onnx_models = pytest.importorskip("onnx_models", reason="needs the package onnx")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("wasm-ld"), reason="needs clang and wasm-ld"),
]

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "trained_elsewhere.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
RNG = np.random.default_rng(3)


def listings(section: str) -> list[tuple[str, str]]:
    """The blocks of a section: their language and text."""
    return re.findall(r"```(\w+)\n(.*?)```", SECTIONS[section], re.S)


def has(*packages: str) -> bool:
    """Whether packages can be imported."""
    try:
        for package in packages:
            importlib.import_module(package)
    except ImportError:
        return False
    return True


def run_section(section: str, instead: dict[int, Any], names: dict[str, Any]) -> None:
    """Runs all blocks in the current folder; `instead` of some Python blocks, by number, functions."""
    number = 0
    for language, text in listings(section):
        if language == "python":
            instead[number]() if number in instead else exec(text, names)
            number += 1
        else:
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "micrograd"
                assert main(arguments) == 0, line


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path


def in_wheel(name: str, code: str, folder: Path) -> str:
    """What Python prints that has nothing but the module of a wheel."""
    (wheel,) = folder.glob(f"build/{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "wheel")
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, 'wheel'); {code}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def same_classes(name: str, model: str, folder: Path) -> None:
    """The module of a wheel, with narrow weights or not, predicts what the imported model predicts."""
    images = RNG.uniform(size=(20, 784)).round(3)
    expected = codegen.compile(codegen.load(model)).predict_batch(images)
    found = in_wheel(name, f"import {name}; print(*[{name}.predict(x) for x in {images.tolist()}])", folder)
    assert sum(int(x) == y for x, y in zip(found.split(), expected, strict=True)) >= 19
    assert len(set(expected)) > 1


def test_scikit_learn(folder: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("sklearn")
    pytest.importorskip("skl2onnx")
    names: dict[str, Any] = {}
    run_section("scikit-learn", {}, names)
    assert "accuracy 100.00% of 150 rows" in capsys.readouterr().out
    assert names["right"] == 1.0
    row = names["X"][100].tolist()
    expected = names["model"].predict_proba([row])[0]
    found = in_wheel("iris_net", f"import iris_net; print(*iris_net.probabilities({row}))", folder)
    assert np.allclose([float(x) for x in found.split()], expected, atol=1e-5)
    assert {"iris_net.h", "iris_net.c", "iris_c.c"} <= {path.name for path in Path("build").iterdir()}
    assert "virginica" in Path("iris.html").read_text(encoding="utf-8")


def weights() -> dict[str, np.ndarray]:
    return {
        "1.weight": RNG.normal(size=(50, 784)) / 28,
        "1.bias": RNG.normal(size=50) / 9,
        "3.weight": RNG.normal(size=(10, 50)) / 7,
        "3.bias": RNG.normal(size=10) / 9,
    }


def write_as_pytorch() -> None:
    nodes = [
        onnx_models.node("Flatten", ["pixels"], ["flat"], axis=1),
        onnx_models.node("Gemm", ["flat", "1.weight", "1.bias"], ["h"], transB=1),
        onnx_models.node("Relu", ["h"], ["r"]),
        onnx_models.node("Gemm", ["r", "3.weight", "3.bias"], ["logits"], transB=1),
    ]
    found = onnx_models.model(nodes, {"pixels": ["n", 1, 28, 28]}, ["logits"], weights())
    onnx_models.saved(Path(), found, "digits.onnx")


def write_state() -> None:
    from safetensors.numpy import save_file

    places = {"1": "layers.0", "3": "layers.1"}
    state = {places[name[0]] + name[1:]: array.astype(np.float32) for name, array in weights().items()}
    save_file(state, "net.safetensors")


@pytest.mark.nightly
def test_pytorch(folder: Path):
    there = has("torch", "safetensors.torch")
    run_section("PyTorch", {} if there else {0: write_as_pytorch, 1: write_state}, {})
    same_classes("digits_net", "digits.py", folder)
    assert "digits_net_train_batch" in Path("build", "digits_net.h").read_text(encoding="utf-8")
    for name in ("digits", "net"):
        page = Path(f"{name}.html").read_text(encoding="utf-8")
        assert '"picture":{"height":28,"width":28' in page
        assert '"targets":[{"kind":"label"' in page
        assert len(page) < 300_000


def write_as_keras() -> None:
    arrays = weights()
    kernels = {"k1": arrays["1.weight"].T, "b1": arrays["1.bias"], "k2": arrays["3.weight"].T, "b2": arrays["3.bias"]}
    nodes = [
        onnx_models.node("Reshape", ["x", "shape"], ["flat"]),
        onnx_models.node("MatMul", ["flat", "k1"], ["m1"]),
        onnx_models.node("Add", ["m1", "b1"], ["h"]),
        onnx_models.node("Relu", ["h"], ["r"]),
        onnx_models.node("MatMul", ["r", "k2"], ["m2"]),
        onnx_models.node("Add", ["m2", "b2"], ["logits"]),
        onnx_models.node("Softmax", ["logits"], ["p"]),
    ]
    shaped = {**kernels, "shape": np.array([-1, 784])}
    onnx_models.saved(Path(), onnx_models.model(nodes, {"x": ["n", 28, 28]}, ["p"], shaped), "numbers.onnx")


def test_keras(folder: Path):
    run_section("Keras", {} if has("keras", "tf2onnx") else {0: write_as_keras}, {})
    assert int(in_wheel("numbers_net", "import numbers_net; print(numbers_net.predict([0.5] * 784))", folder)) in range(
        10
    )
    assert "numbers_net_predict" in Path("build", "numbers_net.h").read_text(encoding="utf-8")
    page = Path("numbers.html").read_text(encoding="utf-8")
    assert '"picture":{"height":28,"width":28' in page
    assert len(page) < 300_000
