"""The suite in a debug build of CPython: its assertions, a total of all references, marked memory around each block.

Debian and Ubuntu have one, python3-dbg. It is unpacked into a folder and installed nowhere; `$DEBUG_PYTHON` names
another. -X dev shows every warning on top.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.memory import tree

UNPACKED = tree.FOLDER / "python"
HEADERS = {"CPATH": str(UNPACKED / "usr" / "include")}  # Debian's pyconfig.h includes another one from there
SETTINGS = HEADERS | {"PYTHONMALLOC": "debug", "PYTHONDEVMODE": "1"}
CANNOT = {
    "tests/test_module.py::test_the_import_imports_nothing_else": "this Python imports an encoding meanwhile",
    "tests/test_security.py::test_the_import_opens_nothing": "the same",
    "tests/test_build.py::test_every_compiler_gives_the_same_bits[tcc]": "tcc refuses the options of Debian's linker",
    "tests/test_module.py::test_the_import_takes_at_most_ten_milliseconds": "this Python is slow",
    tree.TIMED: "measures milliseconds",
}


def python() -> Path:
    """A debug build of CPython, unpacked from the system's packages if need be. Raises Failed."""
    named = os.environ.get("DEBUG_PYTHON")
    if not named and not UNPACKED.is_dir():
        _unpack(UNPACKED)
    found = [Path(named)] if named else sorted(UNPACKED.glob("usr/bin/python3.*-dbg"))
    script = "import sys; print(hasattr(sys, 'gettotalrefcount') and sys.version_info >= (3, 11))"
    for path in found:
        if subprocess.run([path, "-c", script], capture_output=True, text=True, check=False).stdout == "True\n":
            return path
    raise tree.Failed(f"not a debug build of CPython, 3.11 or newer: {', '.join(map(str, found)) or 'none found'}")


def _version() -> str | None:
    """That of the system's debug build, as in 3.11, where apt knows one."""
    command = ["apt-cache", "depends", "python3-dbg"]
    depends = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Depends: python(3\.\d+)-dbg", depends.stdout)
    return found and found[1]


def _unpack(folder: Path) -> None:
    if not shutil.which("apt-get"):
        raise tree.Failed("no python3-dbg to be had without apt: $DEBUG_PYTHON names a debug build of CPython")
    version = _version()
    if version is None and os.geteuid() == 0:
        tree.run(["apt-get", "--quiet", "update"], tree.ROOT, {})  # container images come without lists
        version = _version()
    if version is None:
        raise tree.Failed("apt knows no python3-dbg; apt-get update may help")
    downloads, parts = folder.with_suffix(".downloads"), folder.with_suffix(".parts")
    for path in (downloads, parts):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    library = f"libpython{version}"
    packages = [f"python{version}-dbg", *(f"{library}-{part}" for part in ("dbg", "dev", "stdlib", "minimal"))]
    tree.run(["apt-get", "--quiet", "download", *packages], downloads, {})
    for package in downloads.glob("*.deb"):
        tree.run(["dpkg-deb", "--extract", str(package), str(parts)], downloads, {})
    shutil.rmtree(downloads)
    parts.rename(folder)


def environment(folder: Path) -> Path:
    """The Python of an environment that has what the tests need, and builds the modules of a copy. Raises Failed."""
    home = tree.FOLDER / "debug-environment"
    interpreter, stamp = home / "bin" / "python", home / "stamp"
    wanted = (folder / "pyproject.toml").read_text()
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        tree.run([str(python()), "-m", "venv", "--without-pip", str(home)], tree.FOLDER, {})
        pip = [sys.executable, "-m", "pip", f"--python={interpreter}", "install", "--quiet"]
        tree.run([*pip, "setuptools>=77", "numpy>=1.26"], folder, {})
        tree.run([*pip, "--no-build-isolation", "--editable", ".[test]"], folder, HEADERS)
        stamp.write_text(wanted)
    tree.build(folder, str(interpreter), HEADERS)
    return interpreter


def main(arguments: list[str]) -> int:
    """Runs pytest so; the exit code. Raises Failed."""
    folder = tree.copy("debug")
    interpreter = environment(folder)
    return tree.test([str(interpreter)], folder, arguments or tree.WHOLE_SUITE, SETTINGS, CANNOT)
