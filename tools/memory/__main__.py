"""The test suite under a tool that watches memory: `python -m tools.memory TOOL [arguments of pytest]`.

asan       AddressSanitizer and UndefinedBehaviorSanitizer in every C module
valgrind   memcheck
debug      a debug build of CPython, with its assertions, its own checks of memory, and -X dev
leaks      the same Python: each test several times, which must leave no reference and no block of memory behind

Without arguments for pytest each runs the tests that it is for; docs/testing.md has them and the time that they take.
"""

from __future__ import annotations

import sys
from importlib import import_module

from tools.memory.tree import Failed

TOOLS = ("asan", "valgrind", "debug", "leaks")


def main(arguments: list[str]) -> int:
    """pytest's exit code. Raises Failed."""
    if not arguments or arguments[0] not in TOOLS:
        print(__doc__, file=sys.stderr)
        return 2
    code: int = import_module(f"tools.memory.{arguments[0]}").main(arguments[1:])
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as error:
        sys.exit(f"error: {error}")
