"""The tests that call C, each several times in a debug build of CPython: see repeat.py for what is counted."""

from __future__ import annotations

from tools.memory import debug, tree
from tools.memory.valgrind import TESTS


def main(arguments: list[str]) -> int:
    """Runs pytest so; the exit code. Raises Failed."""
    folder = tree.copy("debug")
    interpreter = debug.environment(folder)
    chosen = arguments or ["-q", *(f"tests/{name}.py" for name in TESTS)]
    return tree.test([str(interpreter)], folder, ["-p", "tools.memory.repeat", *chosen], debug.HEADERS)
