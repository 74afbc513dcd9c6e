"""Training runs that a signal ends, at chosen and at random moments, and that --resume must bring to the same end.

One process imports everything and forks the runs: a run is there in a few milliseconds, so hundreds can be killed. The
kinds of test that were missing: SIGTERM and SIGINT, which Python turns into an exception between any two of its steps,
and two trainers at one file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import environment, good, write_data
from harness import nightly_but

from micrograd.commands import checkpoint

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

folder, kills, longest, seed, signals, *options = sys.argv[1:]
folder, kills, rng = Path(folder), int(kills), random.Random(int(seed))
signals = [getattr(signal, name) for name in signals.split(",")]
file, saved = folder / "run", folder / "saved"


def run(moment=None):
    \"\"\"The exit code of a run, None if a signal ended it; what it prints goes to a file.\"\"\"
    child = os.fork()
    if child == 0:
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if moment is not None:
            arm(moment)
        code = 130  # of a signal outside of main()
        try:
            code = main(["train", *options, "--checkpoint", str(file), "--save", str(saved), "--resume"])
        except BaseException as error:
            print(repr(error))
        finally:
            os._exit(code)
    number = 0
    if moment is None and len(killed) < kills:
        time.sleep(rng.uniform(0, float(longest)))
        number = signals[len(killed) % len(signals)]
        os.kill(child, number)
    status = os.waitpid(child, 0)[1]
    code = None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    sent[number] = sent.get(number, 0) + (number > 0 and code != 0)
    return None if code in (130, 143) else code


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
sent = {}
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
        if saved.exists():
            checkpoint.load_metadata(saved)
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
print(json.dumps({"killed": killed, "ends": ends, "left": left, "sent": {int(n): sent[n] for n in sent if n}}))
"""


def kill(
    folder: Path, kills: int, longest: float, moments: list[str], every: int, *options: object, signals: str = "SIGKILL"
) -> dict[str, Any]:
    """What KILLER saw. Whatever was killed, the end must be that of a run that nothing stopped."""
    folder.mkdir()
    out = good("train", *options, "--save", folder.with_name("plain"))
    arguments = [str(folder), str(kills), str(longest), "1", signals, "--every", str(every), *map(str, options)]
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
    print(f"{len(seen['killed'])} runs were ended, by {seen['sent']}")
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
    kill(tmp_path / "runs", 5, 0.3, [], 20, "--data", data, *OPTIONS)


def test_terminated_and_interrupted_a_few_times(data: Path, tmp_path: Path) -> None:
    """In the middle of a checkpoint, too: Python raises in between, and what it cleans up must not be the old file."""
    signals = ("SIGTERM", "SIGINT", "SIGKILL")
    seen = kill(tmp_path / "runs", 9, 0.2, [], 20, "--data", data, *OPTIONS, signals=",".join(signals))
    assert seen["sent"].keys() <= {str(int(getattr(signal, name))) for name in signals}
    assert len(seen["sent"]) == 3
    assert sum(seen["sent"].values()) >= 9


@pytest.mark.long
@pytest.mark.parametrize("times", nightly_but([20], [20, 300]))
def test_terminated_and_interrupted_many_times(times: int, tmp_path: Path) -> None:
    data = write_data(tmp_path, 6000, 1000)
    options = ("--data", data, "--batch-size", 10, "--epochs", 2)
    seen = kill(tmp_path / "runs", times, 0.6, [], 200, *options, signals="SIGTERM,SIGINT,SIGKILL")
    assert seen["ends"] >= times // 150
    assert min(seen["sent"].values()) >= times // 6


@pytest.mark.parametrize("what", nightly_but(["--save"], ["--checkpoint", "--save"]))
def test_several_trainers_at_one_file(data: Path, tmp_path: Path, what: str) -> None:
    """With one checkpoint only one of them trains. With one --save the last one wins, and the file is whole."""
    file = tmp_path / "one"
    train = [sys.executable, "-m", "micrograd", "train", "--data", str(data), *OPTIONS]
    start = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    trainers = [
        subprocess.Popen(
            [*train, "--seed", str(seed), what, str(file), *["--resume"] * (what == "--checkpoint")], **start
        )
        for seed in (1, 2, 3, 4)
    ]
    messages = [trainer.communicate(timeout=120)[1] for trainer in trainers]
    codes = [trainer.returncode for trainer in trainers]
    checkpoint.load_metadata(file)
    if what == "--save":
        assert codes == [0] * 4
        good("train", "--data", data, *OPTIONS, "--save", tmp_path / "1", "--seed", 1)
        assert len(file.read_bytes()) == len((tmp_path / "1").read_bytes())
    else:
        assert codes.count(0) == 1
        refused = [message for message in messages if message]
        assert len(refused) == 3
        for message in refused:  # while the first one trained, or after it
            assert re.search("another process is training|--seed was|first weights' digest was", message)


@pytest.mark.long
@pytest.mark.parametrize("times", nightly_but([20], [20, 200]))
def test_killed_many_times(times: int, tmp_path: Path) -> None:
    """On the built-in digits, thirty checkpoints an epoch."""
    data = write_data(tmp_path, 6000, 1000)
    seen = kill(tmp_path / "runs", times, 1.0, [], 200, "--data", data, "--batch-size", 10, "--epochs", 2)
    assert seen["ends"] >= times // 100
    assert sum(k["half"] for k in seen["killed"]) >= times // 40
