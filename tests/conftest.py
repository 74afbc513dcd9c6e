"""Shared fixtures: random digits, small models compiled once a session, and scripts in a Python of their own."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

# For tools/, which is not installed. Last, so that everything that is installed is tested as it was installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

# A shell without job control starts background jobs with Ctrl-C ignored, and so would be what the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="rewrite tests/golden")


def pytest_collection_finish() -> None:
    """What five thousand tests are made of stays: looking through it again and again takes a tenth of the time."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "long" not in item.keywords)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Of states that differ, which numbers do: pages of bytes say nothing."""
    from harness import State, differences

    if op == "==" and isinstance(left, State) and isinstance(right, State):
        return ["the same state", *differences(left, right)]
    return None


@pytest.fixture(scope="session", autouse=True)
def shared_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests that compile the same C share the module, also with those of other workers."""
    import harness

    base = tmp_path_factory.getbasetemp()
    harness.shared_modules = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "modules"
    harness.shared_modules.mkdir(exist_ok=True)
    with (
        patch("codegen.build.compile_extension", harness.compiled_once),
        patch("codegen.models.compile_extension", harness.compiled_once),
    ):
        yield


@pytest.fixture(autouse=True)
def _the_same_random_numbers() -> None:
    """Whichever tests ran before: first weights come from Python's generator."""
    random.seed(1)


@pytest.fixture
def unoptimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """codegen.compile() takes optimize=0 if it is not told otherwise; the caches are as ever."""
    from codegen import models

    options = models.compiler_options
    monkeypatch.setattr(models, "compiler_options", lambda optimize: options(0 if optimize is None else optimize))


@pytest.fixture(scope="session")
def digits() -> Callable[..., tuple[bytes, bytes]]:
    """digits(count, seed) -> images and labels: random bytes, four of five pixels 0, as in handwriting."""

    @cache
    def make(count: int, seed: int = 0, pixels: int = 784, classes: int = 10) -> tuple[bytes, bytes]:
        rng = np.random.default_rng(seed)
        ink = rng.integers(1, 256, (count, pixels), dtype=np.uint8)
        images = np.where(rng.random((count, pixels)) < 0.2, ink, 0).astype(np.uint8)
        return images.tobytes(), rng.integers(0, classes, count, dtype=np.uint8).tobytes()

    return make


@pytest.fixture(scope="session")
def compiled_mnist() -> Callable:
    """compiled_mnist(target) -> what the compiler makes of the MNIST program, by default the C of nn."""
    from codegen.mnist import program
    from codegen.pipeline import compile_program

    return cache(lambda target="extension": compile_program(program(), target=target))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Callable:
    """compiled(name) -> that program of tests/models.py as a harness.Extension, fresh from reset()."""
    from harness import Extension
    from models import REGULAR

    extensions: dict[str, Extension] = {}

    def get(name: str) -> Extension:
        if name not in extensions:
            folder = tmp_path_factory.mktemp("compiled")
            extensions[name] = Extension(REGULAR[name](), folder, "loops", flags=["-O0"])
        extensions[name].reset()
        return extensions[name]

    return get


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """run_python(script, *arguments) -> what it prints, in a process of its own that imports the same `nn`.

    A script that has not ended after `timeout` seconds is a failure: it is stuck.
    """

    def run(script: str, *arguments: str, timeout: float = 60, **environment: str) -> str:
        import nn

        path = os.pathsep.join([str(Path(nn.__file__).parent), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONPATH": path} | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few hundred digits."""
    from commands import write_data

    return write_data(tmp_path_factory.mktemp("data"))


# A training run in this process, and what must come out when it is resumed; see commands.py.


@pytest.fixture
def train(data: Path, capsys: pytest.CaptureFixture[str]) -> Callable:
    """train(*options) -> a commands.Result, of plain gradient descent if the options say nothing else."""
    from commands import PLAIN, Result

    from micrograd.__main__ import main

    def run(*options: object, images: Path = data) -> object:
        capsys.readouterr()
        try:
            code = main(["train", "--data", str(images), *map(str, PLAIN + options)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.safetensors"


@pytest.fixture
def plain(train: Callable, tmp_path: Path) -> tuple[list[str], bytes]:
    """The epochs' lines and the saved file of a run without checkpoints."""
    from commands import COMMON

    done = train(*COMMON, "--save", tmp_path / "plain")
    assert done.code == 0
    return done.epochs, (tmp_path / "plain").read_bytes()


@pytest.fixture
def resumes(train: Callable, path: Path, plain: tuple[list[str], bytes]) -> Callable:
    """Resumes the run of `path` to its end, which must be that of the plain run, line by line and byte by byte."""
    from commands import COMMON

    def resume(*options: object) -> object:
        saved = path.with_name("resumed")
        done = train(*COMMON, "--checkpoint", path, "--resume", "--save", saved, *options)
        assert done.code == 0, done.err
        assert done.epochs == plain[0][len(plain[0]) - len(done.epochs) :]
        assert saved.read_bytes() == plain[1]
        return done

    return resume


@pytest.fixture(scope="module")
def rows_of_any_size():
    """Small tensors that read floats are row tensors too, and a few images add theirs together, as with large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codegen.schedule.rows.SMALL", 0)
        patch.setattr("codegen.schedule.phases.MANY_BYTES", 0)
        yield
