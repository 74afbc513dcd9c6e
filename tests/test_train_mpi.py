"""mpiexec -n N micrograd train --mpi: the same bits on any number of ranks, one voice, and one end.

What is resumed after ranks were killed is in test_killed_ranks.py.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import nn
import pytest
from commands import PLAIN, Train, environment, error, good, run, same_bits, write_data
from mpiexec import LIBRARIES, MPICH, OPENMPI_NIGHTLY, Mpi, without_mpi

from micrograd.__main__ import main
from micrograd.commands import checkpoint

ROOT = Path(__file__).resolve().parent.parent

pytestmark = without_mpi

MODELS = """
import random

from codegen import Label, Pixels, Program
from micrograd.engine import Value
from micrograd.functional import cross_entropy
from micrograd.nn import LSTM, Conv2d, Dropout, Layer

def program(output, modules, noise):
    one_hot = [Value(0) for _ in range(10)]
    parameters = {f"{name}.{part}": tensor for name, module in modules.items()
                  for part, tensor in module.named_parameters().items()}
    logits = modules["last"](output)
    return Program(inputs=Pixels(pixels, 1 / 255), targets=Label(one_hot), parameters=parameters, noise=noise,
                   loss=cross_entropy(logits, one_hot), outputs={"logits": logits})

random.seed(1)
pixels = [Value(0) for _ in range(784)]
rows = [pixels[28 * i : 28 * i + 28] for i in range(28)]

def recurrent():
    lstm = LSTM(28, 3)
    return program(lstm(rows)[0][-1], {"lstm": lstm, "last": Layer(3, 10, nonlin=False)}, [])

def convolution():
    convolution, dropout = Conv2d(1, 2, 4, stride=4), Dropout(0.25)
    found = dropout([x.relu() for channel in convolution([rows]) for row in channel for x in row])
    modules = {"convolution": convolution, "last": Layer(len(found), 10, nonlin=False)}
    return program(found, modules, dropout.noise())
"""


def digest(out: str) -> str:
    (found,) = re.findall(r"SHA-256 ([0-9a-f]{64})", out)
    return found


def test_the_number_of_ranks_changes_no_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Batches of more than one block of 256 images; the last one is short. What is told is told once."""
    data = write_data(tmp_path, 700, 50)
    options = ("train", "--data", data, "--epochs", 2, "--batch-size", 600, "--hash")
    one, three = MPICH.good(1, *options, "--mpi"), MPICH.run(3, *options, "--mpi", "--threads", 64)
    assert digest(one) == digest(three.stdout)
    assert re.fullmatch(r"warning: \S+: 3 ranks of 64 threads on \d+ cores?: ranks that wait .*\n", three.stderr)
    assert main(list(map(str, options))) == 0
    plain = capsys.readouterr().out
    assert digest(MPICH.good(2, *options, "--mpi-exact")) == digest(plain) != digest(one)

    def lines(out: str) -> list[str]:
        return [line for line in out.splitlines() if not line.startswith(("training ", "weights "))]

    assert lines(three.stdout) == lines(plain)


@pytest.mark.nightly
@pytest.mark.parametrize("mpi", [pytest.param(MPICH, id="mpich"), OPENMPI_NIGHTLY])
@pytest.mark.parametrize("model", ["nn", "recurrent", "convolution"])
def test_the_bits_of_every_model(mpi: Mpi, model: str, tmp_path: Path) -> None:
    data = write_data(tmp_path, 700, 50)
    options = ["train", "--data", data, "--epochs", 2, "--batch-size", 300, "--hash", "--validation", 0.1]
    if model != "nn":
        (tmp_path / "models.py").write_text(MODELS)
        options += ["--model", f"{tmp_path / 'models.py'}:{model}", "--optimizer", "adam"]
    cache = {"MICROGRAD_CACHE": str(tmp_path / "cache")}
    tree, exact = (
        {digest(mpi.good(ranks, *options, mode, **cache)) for ranks in (1, 2, 3, 4)}
        for mode in ("--mpi", "--mpi-exact")
    )
    assert len(tree) == 1
    assert exact == {digest(good(*options, **cache))}


@pytest.mark.slow
def test_what_only_the_first_rank_does(train: Train, data: Path, tmp_path: Path) -> None:
    """Weights from a file, checkpoints, a log, and a run that other ranks resume: the bits of one process."""
    start, path, log = tmp_path / "start", tmp_path / "run", tmp_path / "log.csv"
    nn.reset(5)
    nn.save_weights(start)
    common = (*PLAIN, "--load", start, "--batch-size", 50, "--every", 150)
    ranks = ("train", "--data", data, *common, "--checkpoint", path, "--log", log)
    first = MPICH.good(2, *ranks, "--mpi-exact", "--epochs", 1)
    second = MPICH.good(1, *ranks, "--mpi-exact", "--epochs", 2, "--resume", "--save", tmp_path / "saved")
    assert f"{path}: going on from the end of epoch 1" in second
    assert [line[:7] for line in (first + second).splitlines() if line[:6] == "epoch "] == ["epoch 1", "epoch 2"]
    assert len(log.read_text().splitlines()) == 3
    plain = ("--epochs", 2, "--save", tmp_path / "plain")
    assert train(*common, "--checkpoint", tmp_path / "c", *plain).code == 0
    assert same_bits(tmp_path / "saved", tmp_path / "plain")
    other = train(*common, "--checkpoint", path, "--epochs", 3, "--resume", "--mpi")
    assert "the order of sums over images was one by one in this checkpoint's run, now it is a tree" in other.err


# ---- how it ends


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("other", r"the data's digest is [0-9a-f]+ on rank 1, but [0-9a-f]+ on rank 0\n"),
        pytest.param("none", r"rank 1: \S+none: no such folder\n", marks=pytest.mark.slow),
    ],
)
def test_a_mistake_on_one_rank_is_told(data: Path, tmp_path: Path, folder: str, message: str) -> None:
    """Two machines: the other one has other images, or none."""
    (tmp_path / "other").mkdir()
    write_data(tmp_path / "other", 301, 100)
    change = f"os.environ['MICROGRAD_MNIST'] = {str(tmp_path / folder)!r}"
    done = MPICH.run(2, "train", "--mpi", change=change, on=1, MICROGRAD_MNIST=str(data))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(f"error: {message}", done.stderr)


@pytest.mark.parametrize("mpi", LIBRARIES)
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_an_error_on_one_rank_ends_all(mpi: Mpi, rank: int, data: Path) -> None:
    """Also one that nobody expects, while the other rank waits for the sums of the next step."""
    change = "from micrograd import training; training.Training._test = lambda *_: 1 / 0"
    done = mpi.run(2, "train", "--mpi", "--data", data, "--batch-size", 50, change=change, on=rank)
    assert done.returncode not in (0, 2)
    assert done.stderr.count("ZeroDivisionError: division by zero") == 1


@pytest.mark.slow
def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    done = MPICH.run(2, "train", "--mpi", "--data", tmp_path / "missing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path / 'missing'}: no such folder\n"


@pytest.mark.slow
def test_a_run_that_diverges_is_told_once(data: Path) -> None:
    options = ("--data", data, "--learning-rate", 1e300, "--check-finite", "--batch-size", 50)
    done = MPICH.run(2, "train", "--mpi-exact", *options)
    assert done.returncode == 2
    assert done.stderr == error("train", *options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_signals(number: signal.Signals, code: int, data: Path, tmp_path: Path) -> None:
    """All ranks stop after the same step, and the first one writes what they have learned."""
    path, saved = tmp_path / "run", tmp_path / "saved"
    options = ("train", "--mpi", "--data", data, "--batch-size", 150, "--schedule", "constant", "--checkpoint", path)
    with MPICH.start(2, *options, "--epochs", 10**9, "--save", saved) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 3/"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert err.count("interrupted in epoch") == 1
    assert f"saved          {saved}: the weights as of the last whole step" in out
    assert json.loads(checkpoint.load_metadata(path)["run"])["epoch"] >= 3


# ---- what is missing


def test_there_is_no_mpi_library() -> None:
    """mpi4py installs without one."""
    assert "pip install mpich" in error("train", "--mpi", MPI4PY_LIBMPI="no-such-library.so")


def test_an_mpiexec_of_another_mpi() -> None:
    """It starts processes that do not know one another."""
    done = run("train", "--mpi", OMPI_COMM_WORLD_SIZE="4")
    assert done.returncode == 2
    message = "error: mpiexec started 4 processes, but each of them is alone: mpi4py uses another MPI, MPICH"
    assert done.stderr.splitlines()[-1].startswith(message)


# ---- a script


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_example(ranks: int) -> None:
    """Prints what docs/examples.md shows."""
    script = [sys.executable, "-m", "mpi4py", str(ROOT / "examples" / "mpi.py")]
    command = [*MPICH.command, "-n", str(ranks), *script]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert f"examples/mpi.py\n{done.stdout}```" in page
