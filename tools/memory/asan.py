"""The suite with every C module under AddressSanitizer and UndefinedBehaviorSanitizer.

The compiler gets the sanitizers by CFLAGS, which setuptools hands to every build: that of nn and nn_infer, and those of
the modules that the tests make. A Python that does not have the sanitizers' runtimes itself gets them preloaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.memory import tree

# -w: with these gcc warns of what cannot happen; the suite itself compiles with -Werror.
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -w"
# CPython itself leaves memory behind at its end; with its own allocator nothing of a module would be seen.
SETTINGS = {"CFLAGS": FLAGS, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
CANNOT = {
    "tests/test_fuzz.py::test_a_short_run": "fuzzes with these sanitizers itself",
    tree.TIMED: "measures milliseconds",
}


def runtimes() -> str:
    """What to preload. Raises Failed."""
    if not shutil.which("gcc"):
        raise tree.Failed("gcc is not installed")
    found = []
    for name in ("libasan.so", "libubsan.so"):
        command = ["gcc", f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(path).is_absolute():
            raise tree.Failed(f"gcc has no {name}: apt install libasan8 libubsan1, or the like for its version")
        found.append(path)
    return " ".join(found)


def main(arguments: list[str]) -> int:
    """Runs pytest so; the exit code. Raises Failed."""
    preload = runtimes()
    folder = tree.copy("asan")
    tree.build(folder, sys.executable, SETTINGS)
    settings = SETTINGS | {"LD_PRELOAD": preload}
    return tree.test([sys.executable], folder, arguments or tree.WHOLE_SUITE, settings, CANNOT)
