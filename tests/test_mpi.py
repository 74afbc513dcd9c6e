"""Trainer on ranks that mpiexec starts: bits of nn.train(), and ranks that do not have the same."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import nn
import nn_infer
import pytest

from micrograd import mpi

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no wheel of mpich for Windows")

SCRIPT = """
import hashlib, sys
import nn, numpy as np
from micrograd import mpi, training

rng = np.random.default_rng(1)
images = np.where(rng.random((900, 784)) < 0.2, rng.integers(1, 256, (900, 784)), 0).astype(np.uint8)
labels = rng.integers(0, 10, 900, dtype=np.uint8)

def trained(model, batch_size):
    nn.reset(1)
    history = training.fit(model, images, labels, epochs=2, batch_size=batch_size, validation=0.1)
    numbers = b"".join(view.tobytes() for view in nn.state_dict().values())
    return hashlib.sha256(numbers).hexdigest(), [epoch.loss for epoch in history.epochs]

found = []
for mode in mpi.MODES:
    trainer = mpi.Trainer(nn, mode=mode)
    for batch_size in (100, 700):
        found.append((mode, batch_size, trained(trainer, batch_size) == trained(nn, batch_size)))
assert found[:4] == [("tree", 100, True), ("tree", 700, False), ("exact", 100, True), ("exact", 700, True)], found

for name, options in (("batch_size", {"batch_size": 10 + trainer.rank}), ("set of parameters", {})):
    nn.reset(1 if options else trainer.rank)
    try:
        trainer.train(images, labels, **options)
    except ValueError as error:
        assert str(error) == f"train() on 2 ranks: rank 1 has another {name} than rank 0", error
    else:
        sys.exit(f"{name} may differ")
nn.reset(1)
trainer.stop = trainer.rank == 1
try:
    trainer.train(images, labels, batch_size=100, epochs=9)
except mpi.Stopped:
    assert nn.optimizer_state()["step"].tolist() == 1
else:
    sys.exit("it goes on")
ranks = trainer.comm.allreduce(1)
if trainer.rank == 0:
    print(ranks)
"""


def mpiexec(ranks: int, script: str) -> str:
    command = Path(sysconfig.get_path("scripts"), "mpiexec")
    done = subprocess.run(
        [command, "-n", str(ranks), sys.executable, "-m", "mpi4py", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_ranks_train_as_one_does() -> None:
    assert mpiexec(2, SCRIPT).split() == ["2"]


class WithoutLibrary(ModuleType):
    def __getattr__(self, name: str) -> object:
        raise RuntimeError("cannot load MPI library") if name == "MPI" else AttributeError(name)


@pytest.mark.parametrize(
    ("module", "message"),
    [(None, r"needs mpi4py: pip install 'micrograd-nn\[mpi\]'"), (WithoutLibrary("mpi4py"), "pip install mpich")],
)
def test_what_is_missing_is_said(module: object, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    with pytest.raises(ImportError, match=message):
        mpi.Trainer(nn)


def test_what_a_trainer_takes() -> None:
    with pytest.raises(ValueError, match="mode must be one of tree, exact, fast, got 'slow'"):
        mpi.Trainer(nn, mode="slow")
    with pytest.raises(
        TypeError, match=r"takes nn, or a model of codegen.compile.. that trains, not <module 'nn_infer'"
    ):
        mpi.Trainer(nn_infer)
