"""The tests that call C under valgrind's memcheck, which also sees what was never written.

An error counts where a module of ours is on the stack. CPython has errors of its own, in releases without
--with-valgrind, and so has NumPy. Processes that a test starts are not watched.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from tools.memory import tree

TESTS = ["test_module", "test_views", "test_rows", "test_training"]
SECONDS_OF_PYTHON = "a hundred times slower here, and its calls are in other tests"
CANNOT = {
    "tests/test_module.py::test_the_numbers_are_those_of_the_formula": SECONDS_OF_PYTHON,
    "tests/test_rows.py::test_random_calls_agree_with_the_engine": SECONDS_OF_PYTHON,
    tree.TIMED: "measures milliseconds",
}
OPTIONS = [
    *("--xml=yes", "--num-callers=40", "--error-limit=no", "--leak-check=full", "--show-leak-kinds=definite"),
    *("--errors-for-leak-kinds=definite", "--child-silent-after-fork=yes"),
]
SETTINGS = {"PYTHONMALLOC": "malloc", "NN_SIMD": "avx2"}  # valgrind knows no AVX-512


def of_ours(report: Path, folders: list[Path]) -> list[str]:
    """The errors of a report with an object from one of the folders on a stack of theirs, as text."""
    found = []
    for error in ET.parse(report).iter("error"):
        objects = [frame.findtext("obj") or "" for frame in error.iter("frame")]
        if any(obj.startswith(f"{folder}{os.sep}") for obj in objects for folder in folders):
            frames = [f"    {frame.findtext('fn')} ({frame.findtext('obj')})" for frame in error.iter("frame")]
            what = error.findtext("what") or error.findtext("xwhat/text") or ""
            found.append("\n".join([f"{error.findtext('kind')}: {what}", *frames]))
    return found


def main(arguments: list[str]) -> int:
    """Runs pytest so; 0 where it passes and no error is ours. Raises Failed."""
    if not shutil.which("valgrind"):
        raise tree.Failed("valgrind is not installed: apt install valgrind")
    folder = tree.copy("valgrind")
    tree.build(folder, sys.executable, {})
    report = folder / "build" / "valgrind.xml"
    command = ["valgrind", *OPTIONS, f"--xml-file={report}", sys.executable]
    chosen = arguments or ["-q", *(f"tests/{name}.py" for name in TESTS)]
    with tempfile.TemporaryDirectory(prefix="valgrind-") as temporary:
        code = tree.test(command, folder, [f"--basetemp={temporary}/tests", *chosen], SETTINGS, CANNOT)
    found = of_ours(report, [folder, Path(temporary)])
    errors = len(ET.parse(report).findall("error"))
    print(f"valgrind: {len(found)} errors with a module of ours on the stack, {errors - len(found)} others")
    print("\n".join(found))
    return code or int(bool(found))
