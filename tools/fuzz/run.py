"""Runs a target under libFuzzer, in a process of its own, and says what came of it."""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.fuzz.common import memory
from tools.fuzz.models import ROOT, build_all
from tools.fuzz.targets import TARGETS, prepare

FOLDER = ROOT / "build" / "fuzz"
PATIENCE = 300  # seconds for one input: on a busy machine milliseconds become seconds, but a deadlock is for ever
MEMORY = 3000  # MB
LONG = 300  # seconds of a target: optimised modules run three times as fast then, but clang takes minutes for some
SETTINGS = {"ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=32", "PYTHONMALLOC": "malloc"}


class Failed(Exception):
    """Something is not installed, or the fuzzer itself did not run."""


@dataclass(frozen=True)
class Report:
    """What one run did: executions, seconds by the clock and of the processor, edges of the code, inputs kept."""

    target: str
    executions: int
    seconds: float
    cpu_seconds: float
    coverage: int
    corpus: int
    found: list[str]

    def __str__(self) -> str:
        result = f"FOUND {', '.join(self.found)}" if self.found else "nothing found"
        return (
            f"{self.target}: {self.executions:,} executions in {self.seconds:.0f} s ({self.cpu_seconds:.0f} s of the "
            f"processor), coverage {self.coverage:,}, corpus of {self.corpus:,}: {result}"
        )


def fuzz(name: str, seconds: int, corpus: Path | None = None) -> Report:
    """Runs one target for some seconds. Raises Failed."""
    if importlib.util.find_spec("atheris") is None:
        raise Failed("atheris is not installed: pip install 'micrograd-nn[fuzz]'")
    import atheris

    home, settings = FOLDER / name, dict(SETTINGS)
    optimize = "-O1" if seconds >= LONG else "-O0"
    modules = FOLDER / f"modules{optimize}"
    home.mkdir(parents=True, exist_ok=True)
    if TARGETS[name].models:
        if not shutil.which("clang"):
            raise Failed("clang is not installed: apt install clang")
        build_all(modules, TARGETS[name].models, instrumented=True, optimize=optimize)
        settings["LD_PRELOAD"] = str(Path(atheris.path()) / "asan_with_fuzzer.so")
    command = [*_command(name, seconds, home, modules), *_inputs(name, home, corpus)]
    start, used = time.monotonic(), _cpu_seconds()
    with TemporaryDirectory(prefix="fuzz-", dir=memory()) as scratch, (home / "log").open("w") as log:
        settings["TMPDIR"] = scratch  # libFuzzer ends its process without a chance to tidy up
        code = subprocess.call(command, cwd=ROOT, env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT)
    return _report(name, home / "log", code, time.monotonic() - start, _cpu_seconds() - used)


def _command(name: str, seconds: int, home: Path, modules: Path) -> list[str]:
    command = [sys.executable, "-m", "tools.fuzz.child", name, str(modules)]
    command += [f"-max_total_time={seconds}", f"-max_len={TARGETS[name].longest}"]
    # -reload: atheris' clock also runs while libFuzzer reads its folder again, in which nobody else writes.
    command += [f"-timeout={PATIENCE}", f"-report_slow_units={PATIENCE}", "-reload=0"]
    command += [f"-rss_limit_mb={MEMORY}", f"-artifact_prefix={home}/found-", "-print_final_stats=1"]
    if not TARGETS[name].models:
        command.append("-use_value_profile=1")  # the readers have little code of their own to cover
    return command


def _inputs(name: str, home: Path, corpus: Path | None) -> list[str]:
    """Writes seeds and dictionary; new inputs go to the first folder."""
    folders = [corpus or home / "corpus", home / "seeds"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(TARGETS[name].seeds()):
        (folders[1] / str(i)).write_bytes(seed)
    words = ["".join(f"\\x{byte:02x}" for byte in word.encode()) for word in TARGETS[name].dictionary()]
    dictionary = home / "dictionary"
    dictionary.write_text("".join(f'"{word}"\n' for word in words))
    return [*map(str, folders), *([f"-dict={dictionary}"] if words else [])]


def _report(name: str, log: Path, code: int, seconds: float, cpu_seconds: float) -> Report:
    text = log.read_text(errors="replace")
    executions = re.search(r"^stat::number_of_executed_units: (\d+)", text, re.MULTILINE)
    found = re.findall(r"Test unit written to (\S+)", text)
    if not found and (code or not executions):
        raise Failed(f"the fuzzer did not run to its end, see {log}:\n{text[-2000:]}")
    coverage, corpus = (re.findall(r"^#\d+\t.*?cov: (\d+) .*?corp: (\d+)/", text, re.MULTILINE) or [(0, 0)])[-1]
    return Report(
        name, int(executions[1]) if executions else 0, seconds, cpu_seconds, int(coverage), int(corpus), found
    )


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def replay(name: str, path: Path) -> None:
    """Runs one input again, in this process and without fuzzer or sanitizers; what it breaks is raised."""
    build_all(FOLDER / "plain", TARGETS[name].models, instrumented=False)
    prepare(name, FOLDER / "plain")(path.read_bytes())
