"""What an installed irisnet does, without anything but the standard library."""

import subprocess
import sys
from importlib import metadata

import irisnet
from irisnet import frozen, net
from irisnet.data import FLOWERS, LABELS
from irisnet.training import accuracy_of_frozen, train


def test_the_built_in_net_knows_the_flowers() -> None:
    assert accuracy_of_frozen() > 0.95
    assert irisnet.species([5.1, 3.5, 1.4, 0.2]) == "setosa"


def test_training() -> None:
    losses = train(epochs=60, seed=1)
    loss, accuracy = net.evaluate(FLOWERS, LABELS)
    assert loss < losses[0] / 5
    assert accuracy > 0.95


def test_the_modules_are_of_this_project() -> None:
    version = metadata.version("irisnet")
    assert net.__version__ == frozen.__version__ == net.info()["version"] == version


def test_nothing_else_is_imported() -> None:
    script = "import sys, irisnet.training; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numpy", "micrograd", "codegen"} & set(done.stdout.split())
