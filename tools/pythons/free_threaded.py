"""The tests that have to do with threads, and those of every call, in CPython without a GIL."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.cross.builds import Failed, run
from tools.memory import tree
from tools.pythons import build

# The last versions with wheels for it, or without compiled parts.
PACKAGES = ["setuptools>=77", "numpy==2.4.*", "pytest>=8", "pytest-xdist>=3.6", "hypothesis<6.140"]
TESTS = [
    *("test_module", "test_fork", "test_mnist_program", "test_concurrency", "test_threads", "test_interference"),
    *("test_views", "test_training", "test_rows", "test_check_finite", "test_no_memory"),
]
CANNOT = {tree.TIMED: "measures milliseconds"}


def environment() -> Path:
    """The interpreter of an environment with what the tests need. Raises Failed."""
    home = build.CACHE / "free-threaded-environment"
    interpreter = home / "bin" / "python"
    if not (home / "complete").is_file():
        shutil.rmtree(home, ignore_errors=True)
        run([str(build.python("free-threaded")), "-m", "venv", "--without-pip", str(home)])
        run([sys.executable, "-m", "pip", f"--python={interpreter}", "install", "--quiet", *PACKAGES])
        (home / "complete").touch()
    return interpreter


def main(arguments: list[str]) -> int:
    """Runs pytest there; the exit code. Raises Failed."""
    interpreter = environment()
    folder = tree.copy("free-threaded")
    try:
        tree.build(folder, str(interpreter), {})
    except tree.Failed as error:
        raise Failed(str(error)) from None
    script = "import sys, nn, nn_infer; sys.exit(sys._is_gil_enabled())"  # a module may bring the GIL back
    tree.run([str(interpreter), "-c", script], folder, {})
    chosen = arguments or ["-q", "-n", "auto", "--dist", "worksteal", *(f"tests/{name}.py" for name in TESTS)]
    return tree.test([str(interpreter)], folder, chosen, {}, CANNOT)
