"""Training runs that SIGKILL ends, at chosen and at random moments, and that --resume must bring to the same end.

One process imports everything and forks the runs: a run is there in a few milliseconds, so hundreds can be killed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import environment, good, write_data

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

OPTIONS = ("--batch-size", "2", "--epochs", "3")

# Runs `train` again and again, each time in a fork that is killed, until one gets to its end: as often as it takes for
# so many kills. Prints what it saw of the files after each kill, and what the runs printed.
KILLER = """
import io, json, os, random, re, signal, sys, time
from pathlib import Path

import numpy, safetensors.numpy
import nn
from micrograd.commands import checkpoint
from micrograd.commands import resume
from micrograd.__main__ import main

folder, kills, longest, seed, *options = sys.argv[1:]
folder, kills, rng = Path(folder), int(kills), random.Random(int(seed))
file, saved = folder / "run", folder / "saved"


def run(moment=None):
    \"\"\"The exit code of a run, None if it was killed; what it prints goes to a file.\"\"\"
    child = os.fork()
    if child == 0:
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if moment is not None:
            arm(moment)
        os._exit(main(["train", *options, "--checkpoint", str(file), "--save", str(saved), "--resume"]))
    if moment is None and len(killed) < kills:
        time.sleep(rng.uniform(0, float(longest)))
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def arm(moment):
    \"\"\"Death at a moment of the third checkpoint that is written.\"\"\"
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)
    written = 0

    def before(function, name):
        def wrapper(*arguments):
            if written == 3 and moment == f"before {name} {calls.setdefault(name, 0)}":
                if moment == "before fsync 0":
                    os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size // 2)  # half of it is written
                die()
            calls[name] = calls.get(name, 0) + (written == 3)
            return function(*arguments)

        return wrapper

    calls = {}
    os.fsync, os.replace = before(os.fsync, "fsync"), before(os.replace, "replace")
    write = resume.Checkpoints.write

    def count_writes(*arguments):
        nonlocal written
        written += 1
        write(*arguments)
        if written == 3:
            die()

    resume.Checkpoints.write = count_writes


killed = []
ends = 0
moments = json.loads(os.environ.get("MOMENTS", "[]"))
while True:
    code = run(moments.pop(0) if moments else None)
    if code is None:
        names = sorted(path.name for path in folder.iterdir())
        half_written = any(re.fullmatch(r"\\.run\\.[0-9a-f]{16}", name) for name in names)
        killed.append({"half": half_written, "between": "run" not in names and "run.previous" in names})
        for name in {"run", "run.previous"} & set(names):
            checkpoint.load_metadata(folder / name)  # whole, always
        continue
    assert code == 0, (folder / "log").read_text()
    ends += 1
    content = saved.read_bytes()
    if ends == 1:
        first = content
    assert content == first
    if len(killed) >= kills and not moments:
        break
    for path in (file, folder / "run.previous", saved):
        path.unlink(missing_ok=True)
left = [name for name in os.listdir(folder) if re.fullmatch(r"\\.run\\.[0-9a-f]{16}", name)]
print(json.dumps({"killed": killed, "ends": ends, "left": left}))
"""


def kill(folder: Path, kills: int, longest: float, moments: list[str], every: int, *options: object) -> dict[str, Any]:
    """What KILLER saw. Whatever was killed, the end must be that of a run that nothing stopped."""
    folder.mkdir()
    out = good("train", *options, "--save", folder.with_name("plain"))
    arguments = [str(folder), str(kills), str(longest), "1", "--every", str(every), *map(str, options)]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *arguments],
        env=environment(MOMENTS=json.dumps(moments)),
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "saved").read_bytes() == folder.with_name("plain").read_bytes()
    lines = re.findall(r"^epoch .*$", out, re.M)
    assert sorted(set(re.findall(r"^epoch .*$", (folder / "log").read_text(), re.M))) == sorted(lines)
    seen = json.loads(done.stdout)
    assert seen["left"] == []
    assert len(seen["killed"]) >= kills
    return seen


def test_killed_at_every_moment_of_a_checkpoint(data: Path, tmp_path: Path) -> None:
    """With half of the file written, with all of it, between the two renames, and after them."""
    moments = ["before fsync 0", "before replace 0", "before replace 1", "before fsync 1", "after"]
    seen = kill(tmp_path / "runs", len(moments), 0, moments, 20, "--data", data, *OPTIONS)
    assert [(k["half"], k["between"]) for k in seen["killed"]] == [
        (True, False),
        (True, False),
        (True, True),
        (False, False),
        (False, False),
    ]


def test_killed_a_few_times(data: Path, tmp_path: Path) -> None:
    kill(tmp_path / "runs", 10, 0.3, [], 20, "--data", data, *OPTIONS)


@pytest.mark.slow
def test_killed_two_hundred_times(tmp_path: Path) -> None:
    """On the built-in digits, thirty checkpoints an epoch."""
    data = write_data(tmp_path, 6000, 1000)
    seen = kill(tmp_path / "runs", 200, 1.0, [], 200, "--data", data, "--batch-size", 10, "--epochs", 2)
    assert seen["ends"] >= 2
    assert sum(k["half"] for k in seen["killed"]) >= 5
