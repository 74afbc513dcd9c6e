"""The tests that call C, each several times in a debug build of CPython: see repeat.py for what is counted."""

from __future__ import annotations

from tools.memory import debug, tree

TESTS = [
    "test_module",
    "test_views",
    "test_rows",
    "test_training",
    "test_interference",
    "test_threads",
    "test_check_finite",
]
CANNOT = {
    **debug.CANNOT,
    "tests/test_module.py::test_help_shows_the_signature_and_says_what_it_does": "inspect.signature(sum) leaks as well",
}


def main(arguments: list[str]) -> int:
    """Runs pytest so; the exit code. Raises Failed."""
    folder = tree.copy("debug")
    interpreter = debug.environment(folder)
    chosen = arguments or ["-q", *(f"tests/{name}.py" for name in TESTS)]
    arguments = ["-p", "tools.memory.repeat", *chosen]
    return tree.test([str(interpreter)], folder, arguments, debug.HEADERS, CANNOT)
