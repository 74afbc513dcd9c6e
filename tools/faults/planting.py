"""Plants a fault in a copy of the sources, and finds out whether anything notices."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.models import processor_level
from tools.faults.fault import Fault

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ("benchmarks", "codegen", "csrc", "micrograd", "tools")


@dataclass(frozen=True)
class Verdict:
    fault: Fault
    error: str  # "" where the fault survived
    programs: int
    seconds: float


def levels() -> Sequence[str]:
    """Those of SIMD that this processor has, besides the baseline."""
    return ("avx2", "avx512")[: processor_level() or 0]


def plant(fault: Fault, folder: Path) -> None:
    """A copy of the sources with the fault in it. Raises ValueError where its line is not to be found exactly once."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name)  # with what Python has compiled: only the changed file is newer
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {text.count(fault.old)} times in {fault.file}, expected once: {fault.old!r}")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def judge(fault: Fault, count: int) -> Verdict:
    """Runs the fuzzer on the sources with the fault until a Program fails. RuntimeError if it does not even start."""
    if fault.test:
        return judge_by_test(fault)
    compiler = "gcc" if shutil.which("gcc") else "clang"
    arguments = f"--seed {fault.seed} --count {count} --every 4 --jobs 1 --no-reduce".split()
    arguments += ["--kind", fault.kind] if fault.kind else ["--regular", "0"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant(fault, folder)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tools.fuzz_compiler", *arguments, "--compilers", f"{compiler} -O0"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": name, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - started
    found = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    if found is None and done.returncode:
        raise RuntimeError(f"{fault.name}: the fuzzer itself fails:\n{done.stderr}")
    if found is None:
        return Verdict(fault, "", count, seconds)
    return Verdict(fault, found[2], int(found[1]) - fault.seed + 1, seconds)


def judge_by_test(fault: Fault) -> Verdict:
    """Runs the test that must fail on the sources with the fault. RuntimeError if it does not get that far.

    Of a file, its quick tests; a single test whatever its mark is. Where CI is set, pytest spends minutes on the
    difference of two long lists.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant(fault, folder)
        for more in ("tests", "examples"):
            shutil.copytree(ROOT / more, folder / more, ignore=shutil.ignore_patterns("__pycache__"))
        options = ["-m", ""] if "::" in fault.test else []
        options += ["-qx", "-n0", "-p", "no:cacheprovider", "--rootdir", name]
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, fault.test],
            cwd=folder,
            env={key: text for key, text in os.environ.items() if key != "CI"} | {"PYTHONPATH": name},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - started
    if done.returncode > 1:
        raise RuntimeError(f"{fault.name}: the test does not run:\n{done.stdout}{done.stderr}")
    said = re.search(r"^E +(.*)$", done.stdout, re.MULTILINE)
    return Verdict(fault, (said[1] if said else "failed") if done.returncode else "", 1, seconds)
