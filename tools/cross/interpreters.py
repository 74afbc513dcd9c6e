"""Generated Python on CPython and on PyPy: the same models, with no C compiler in between.

Example: sources/python/xor.py, imported by pypy3, trains as xor.c does, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from tools.cross import emulate
from tools.cross.builds import Target
from tools.cross.compare import Reference
from tools.cross.report import Row, compared

CPYTHON = Target("generated Python, CPython")
PYPY = Target("generated Python, PyPy", python="pypy3")


def start(pool: Executor, work: Path, names: Sequence[str]) -> emulate.Runs:
    """Runs work/sources/python, without an epoch on CPython, which would take a minute and a half."""
    modules = work / "sources" / "python"
    wanted = {CPYTHON: None, PYPY: work / "digits"}
    return {x: pool.submit(x.measure, modules, names, emulate.numbers(work, x), data) for x, data in wanted.items()}


def rows(runs: emulate.Runs, expected: Reference) -> list[Row]:
    """A row for each interpreter."""
    return [compared(target.name, future, expected) for target, future in runs.items()]
