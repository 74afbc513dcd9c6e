"""micrograd freeze: weights of other names, narrow ones, what is compared, and wheels."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from harness import nightly_but
from safetensors.numpy import save_file

import codegen
from codegen import toolchain
from codegen.passes.freeze import rounded
from micrograd.__main__ import main

MODEL = """
import random
from codegen import Floats, Program
from micrograd.engine import Value

def program():
    rng = random.Random(1)
    x = [Value(0.0) for _ in range(3)]
    w = [[Value(rng.uniform(-1, 1)) for _ in x] for _ in range(4)]
    b = [Value(rng.uniform(-1, 1)) for _ in range(4)]
    out = [bias + row[0] * x[0] + row[1] * x[1] + row[2] * x[2] for row, bias in zip(w, b)]
    return Program(Floats(x), None, {"w": w, "b": b}, None, {"out": out, "first": out[:1]}, prediction="out")
"""
_names = (f"by_command_{i}" for i in itertools.count())
Run = Callable[..., tuple[int, str, str]]
RNG = np.random.default_rng(1)
W, B, X = RNG.normal(size=(4, 3)), RNG.normal(size=4), RNG.normal(size=(50, 3))
Y = X @ W.T + B


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toolchain, "UNIX_FLAGS", [*toolchain.UNIX_FLAGS, "-O0"])
    Path("model.py").write_text(MODEL)
    save_file({"w": W, "b": B}, "w")
    save_file({"kernel": np.ascontiguousarray(W.T), "bias": B}, "keras")
    for name, array in {"x": X, "y": Y, "classes": Y.argmax(axis=1), "wrong": Y + 0.1}.items():
        np.save(f"{name}.npy", array)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """run(*arguments) -> exit code, stdout, stderr of micrograd freeze model.py"""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        name = () if "--name" in arguments else ("--name", next(_names))
        try:
            code = main(["freeze", "model.py", *map(str, arguments), *name])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return call


SIZES = [("int8", 16 + 4 * 5), ("float16", 32), ("bfloat16", 32)]


@pytest.mark.parametrize("case", nightly_but(SIZES[:1], SIZES), ids=str)
def test_narrow_weights(case: tuple[str, int], run: Run) -> None:
    storage, size = case
    code, out, err = run("w", f"--{storage}", "--check", "x.npy", "classes.npy")
    weights, check, _ = out.splitlines()
    assert (code, err) == (0, "")
    assert weights == f"weights   {size} bytes ({storage})"
    assert check.startswith(f"check     accuracy 100.00%, with {storage} ")
    module = codegen.load_extension(run("w", f"--{storage}", "--name", f"in_{storage}")[1].split()[-1])
    assert (module.info()["weight_type"], module.info()["dtype"]) == (storage, "float32")
    expected = X @ rounded(storage, W).T + rounded(storage, B)
    assert np.abs(np.asarray(module.outputs_batch(X)["out"]) - expected).max() < 1e-5
    assert np.abs(expected - Y).max() > 1e-5
    assert np.mean(np.frombuffer(module.predict_batch(X), np.uint8) == Y.argmax(axis=1)) > 0.9
    assert run("w", f"--{storage}", "--standalone", "--dtype", "float64", "--name", "plain")[0] == 0
    assert "double result" not in Path("build/plain.h").read_text()
    assert "double *result" in Path("build/plain.h").read_text()


def test_outputs_are_compared(run: Run) -> None:
    code, out, err = run("w", "--check", "x.npy", "y.npy")
    assert (code, err) == (0, "")
    assert out.startswith("check     largest difference ")
    assert float(out.split()[3]) < 1e-14
    code, out, _ = run("w", "--standalone", "--check", "x.npy", "wrong.npy")
    assert code == 1
    assert "check     largest difference 0.1 of 50 rows of out, in row " in out
    assert "check     that is more than 0.0001\n" in out
    assert run("w", "--standalone", "--check", "x.npy", "wrong.npy", "--tolerance", "0.11")[0] == 0
    code, out, _ = run("w", "--standalone", "--int8", "--check", "x.npy", "wrong.npy")
    assert code == 0  # narrow weights have no tolerance of their own
    assert run("w", "--standalone", "--int8", "--check", "x.npy", "wrong.npy", "--tolerance", "0.01")[0] == 1
    np.save("nan.npy", np.where(np.arange(4) == 2, np.nan, Y))
    assert run("w", "--standalone", "--check", "x.npy", "nan.npy")[0] == 1
    np.save("first.npy", Y[:, :1])
    assert run("w", "--standalone", "--check", "x.npy", "first.npy", "--check-output", "first")[0] == 0


@pytest.mark.slow
def test_lost_accuracy_beyond_the_tolerance_is_a_failure(run: Run) -> None:
    coarse = np.array([[1.0, 0.001, 0.0], [1.0, -0.001, 0.0], [1, 0, 0.001], [1, 0, -0.001]])
    save_file({"w": coarse, "b": np.zeros(4)}, "coarse")
    np.save("best.npy", (X @ coarse.T).argmax(axis=1))
    code, out, _ = run("coarse", "--int8", "--check", "x.npy", "best.npy", "--tolerance", "0.001")
    assert code == 1
    assert "accuracy 100.00%, with int8 " in out
    assert run("coarse", "--float16", "--check", "x.npy", "best.npy", "--tolerance", "0.001")[0] == 0


@pytest.mark.slow
def test_weights_of_other_names_and_layouts(run: Run) -> None:
    code, out, err = run("keras")
    assert (code, out) == (2, "")
    assert err.startswith("error: keras: no tensor 'w', but shapes leave one way: --map ")
    assert not Path("build").exists()
    _, _, err = run("keras", "--map", "kernel=w", "--map", "bias=b")
    assert err.startswith("error: keras: 'w' has the shape (3, 4), expected (4, 3): it is transposed")
    by_hand = ("--map", "kernel=w", "--map", "bias=b", "--transpose", "w")
    for options in (("--match",), by_hand):
        assert run("keras", *options, "--check", "x.npy", "y.npy")[0] == 0


NOT_AN_ARRAY = "not an array of numbers, as numpy.save() writes it: "
MISTAKES = {
    ("w", "--check", "x.npy", "model.py"): f"model.py: {NOT_AN_ARRAY}",
    ("w", "--check", "short.npy", "y.npy"): f"short.npy: {NOT_AN_ARRAY}",
    ("w", "--check", "objects.npy", "y.npy"): f"objects.npy: {NOT_AN_ARRAY}",
    ("w", "--check", "huge.npy", "y.npy"): f"huge.npy: {NOT_AN_ARRAY}",
    ("w", "--check", "nowhere", "y.npy"): "nowhere: No such file or directory",
    ("w", "--check", ".", "y.npy"): ".: not a file",
    ("w", "--check", "y.npy", "y.npy"): "--check takes rows of 3 numbers as inputs, got float64 of the shape (50, 4)",
    (
        "w",
        "--check",
        "x.npy",
        "x.npy",
    ): "--check takes rows of numbers of one of the outputs out (4), first (1), got flo",
    (
        "w",
        "--check",
        "x.npy",
        "y.npy",
        "--check-output",
        "in",
    ): "--check takes rows of numbers of one of the outputs ou",
    ("w", "--check", "x.npy", "few.npy"): "--check takes as many inputs as outputs, got (50, 3) and (7,)",
    ("w", "--check-output", "out"): "--check-output needs --check X.npy Y.npy",
    ("w", "--tolerance", "1"): "--tolerance needs --check X.npy Y.npy",
    ("w", "--tolerance", "-1"): "argument --tolerance: expected a number from 0 on, got -1",
    ("w", "--int8", "--float16"): "argument --float16: not allowed with argument --int8",
    ("w", "--wheel", "--standalone"): "argument --standalone: not allowed with argument --wheel",
    ("w", "--wheel", "--name", "nn_infer"): "--wheel needs --name NAME: nn_infer is a module of micrograd-nn itself",
    ("w", "--wheel", "--name", "codegen"): "--wheel needs --name NAME: codegen is a module of micrograd-nn itself",
    ("w", "--wheel", "--name", "_x"): "--wheel needs a --name without _ at its ends, got _x",
    ("w", "--wheel-version", "1.0"): "--wheel-version needs --wheel",
    ("w", "--wheel", "--ir", "--name", "small"): "--wheel excludes --ir: no folder stays",
    ("w", "--wheel", "--wheel-version", "one"): "--wheel-version must be one as 1.2.0, got 'one'",
    ("w", "--wheel", "--name", "random"): "model.py: a module's name must not be that of a module of the standard libr",
    ("w", "--map", "w"): "--map must be OLD=NEW, the name in the file and the model's, got 'w'",
    ("large", "--float16"): "model.py: the weights 'w' are too large for float16: ",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_and_writes_nothing(arguments: tuple[str, ...], run: Run) -> None:
    np.save("few.npy", np.arange(7))
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    content = Path("x.npy").read_bytes()
    Path("short.npy").write_bytes(content[:-1])
    Path("huge.npy").write_bytes(content.replace(b"(50, 3), ", b"(2**40,),"))
    save_file({"w": W * 1e6, "b": B}, "large")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {MISTAKES[arguments]}")
    assert err.count("\n") == 1
    assert not Path("build").exists()


WITHOUT_PACKAGING = """
import sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "packaging" and "setuptools" not in sys.modules:
            raise ModuleNotFoundError("No module named 'packaging'", name=name)
sys.meta_path.insert(0, Finder)
from micrograd.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_setuptools_own_packaging_is_enough(folder: Path) -> None:
    command = ("freeze", "model.py", "w", "--wheel", "--wheel-version", "one", "--name", "small")
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGING, *command], capture_output=True, text=True)
    assert done.stderr == "error: --wheel-version must be one as 1.2.0, got 'one'\n"


@pytest.mark.slow
def test_what_setuptools_says_of_a_wheel_is_one_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    code, out, err = run("w", "--wheel", "--name", "small")
    assert (code, out) == (2, "")
    assert err.startswith("error: small is compiled while it is installed, and the C compiler failed: ")


USE = "import model, json; print(json.dumps([model.outputs([1.0, 2.0, 3.0]), model.info(), model.__version__]))"


@pytest.mark.slow
def test_a_wheel_in_one_command(run: Run, folder: Path) -> None:
    Path("model.py").write_text(f"{MODEL}\nopen('x.npy', 'rb').close()\n")  # a file of the user's folder
    code, out, err = run("keras", "--match", "--wheel", "--int8", "--name", "model", "--wheel-version", "1.2")
    assert code == 0, err
    size, path = out.splitlines()
    assert size == "weights   36 bytes (int8)"
    assert Path(path).parent == folder / "build"
    assert Path(path).name.startswith("model-1.2-cp3")
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall("installed")
        assert not any("model.py" in name or "weights" in name for name in wheel.namelist())
    stub = Path("installed/model-stubs/__init__.pyi").read_text()
    assert "def predict(inputs: _Buffer | Sequence[Any], /) -> int:" in stub
    done = subprocess.run([sys.executable, "-c", USE], cwd="installed", capture_output=True, text=True, check=True)
    outputs, info, version = json.loads(done.stdout)
    expected = rounded("int8", W) @ [1.0, 2, 3] + rounded("int8", B)
    assert np.abs(np.array(outputs["out"]) - expected).max() < 1e-5
    assert (info["weight_type"], version) == ("int8", "1.2")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["build", "installed", "keras", "model.py", "w", "x.npy", "y.npy", "classes.npy", "wrong.npy"]
    )
