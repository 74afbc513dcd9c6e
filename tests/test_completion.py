"""Completion in real shells, each in a terminal of its own: the word that Tab makes of a beginning."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("shtab")
from micrograd.__main__ import main

# How a shell is started without the user's settings, and what makes the command show its arguments instead of running.
SHELLS = {
    "bash": ("bash --noprofile --norc -i", 'micrograd() { echo "GOT:$*:"; }; eval "$(cat script)"'),
    "zsh": ("zsh -f -i", 'autoload -U compinit; compinit -u -D; micrograd() { echo "GOT:$*:" }; eval "$(cat script)"'),
}
TYPED = {  # before Tab, and after it
    "trai": "train",
    "train --early": "train --early-stopping",
    "train --optimizer adag": "train --optimizer adagrad",
    "train --data fol": "train --data folder",
    "explain mod": "explain model.py",
    "freeze model.py wei": "freeze model.py weights.safetensors",
    "report fol": "report folder",
    "completion zs": "completion zsh",
}
GOT = r"^GOT:(.*):\s*$"


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model.py", "weights.safetensors", "folded.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    (folder / "script").write_text(script(shell, capsys))
    command, start = SHELLS[shell]
    assert typed_into(command.split(), start, folder) == list(TYPED.values())


def typed_into(command: list[str], start: str, folder: Path) -> list[str]:
    """What the stand-in for micrograd got, line by line, from a shell in a terminal."""
    import pty
    import termios

    terminal, other = pty.openpty()
    termios.tcsetwinsize(other, (40, 400))  # rows, columns
    variables = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder), "LC_ALL": "C"}
    with subprocess.Popen(
        command, cwd=folder, env=variables, stdin=other, stdout=other, stderr=other, start_new_session=True
    ) as process:
        os.close(other)
        try:
            os.write(terminal, f"{start}\nmicrograd ready\n".encode())
            assert answer(terminal) == "ready"
            got = []
            for typed, expected in TYPED.items():
                os.write(terminal, f"micrograd {typed}\t".encode())
                seen(terminal, rf"micrograd {re.escape(expected)}")
                os.write(terminal, b"\n")
                got.append(answer(terminal).rstrip("/"))  # which zsh takes away
            return got
        finally:
            process.kill()
            os.close(terminal)


def answer(terminal: int) -> str:
    """What the stand-in says next."""
    shown = seen(terminal, GOT)
    found = re.search(GOT, shown, re.M)
    return shown if found is None else found[1].strip()


def seen(terminal: int, pattern: str) -> str:
    """What is shown, up to a line of this pattern, or in ten seconds."""
    shown, end = "", time.monotonic() + 10
    while time.monotonic() < end and re.search(pattern, shown, re.M) is None:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += re.sub("\r|\a|\b|\x1b\\[[^a-zA-Z]*[a-zA-Z]", "", os.read(terminal, 65536).decode(errors="replace"))
    return shown


def test_fish_completes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fish says itself what Tab would offer."""
    if shutil.which("fish") is None:
        pytest.skip("there is no fish")
    (folder / "script").write_text(script("fish", capsys))
    asked = "; ".join(f"complete -C 'micrograd {typed}'" for typed in TYPED)
    command = ["fish", "--no-config", "-c", f"source ./script; {asked}"]
    done = subprocess.run(command, cwd=folder, env=os.environ | {"HOME": str(folder)}, capture_output=True, text=True)
    assert done.stderr == ""
    assert [line.split("\t")[0].rstrip("/") for line in done.stdout.splitlines()] == [
        text.split()[-1] for text in TYPED.values()
    ]


def test_what_shells_show_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("zsh", capsys)
    assert "--schedule[how the rate changes from step to step]:schedule:(constant step cosine" in text
    assert "train the model and test it after each epoch" in text


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == "error: completion needs shtab: pip install 'micrograd-nn[completion]'\n"
