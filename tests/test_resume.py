"""Resuming a training run: other bits than those of a run that nothing stopped, whatever ended it.

Damaged and foreign files are in test_resume_refused.py, what kills processes is in test_killed.py.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import COMMON, PLAIN, TRAIN, Result, Train, environment, half, previous, same_bits, stop_after

from micrograd.__main__ import main
from micrograd.commands import checkpoint
from micrograd.commands.resume import Checkpoints

# ---- the same bits


@pytest.mark.parametrize(
    "options",
    [
        ("--every", 20),
        ("--every", 100),
        ("--batch-size", 7, "--every", 70),
        ("--batch-size", 64, "--every", 64, "--threads", 2),
        ("--batch-size", 64, "--every", 640, "--threads", 3, "--epochs", 5),
        ("--every", 299, "--learning-rate", 0.03, "--seed", 9),
        ("--every", 300),
        ("--every", 10**15, "--epochs", 3),
    ],
)
def test_checkpoints_change_no_bit(train: Train, tmp_path: Path, options: tuple[object, ...]) -> None:
    without = [x for pair in zip(options[::2], options[1::2], strict=True) if pair[0] != "--every" for x in pair]
    plain = train("--epochs", 2, *without, "--save", tmp_path / "plain")
    ours = train("--epochs", 2, *options, "--checkpoint", tmp_path / "c", "--save", tmp_path / "ours")
    assert plain.code == ours.code == 0
    assert plain.epochs == ours.epochs
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "ours").read_bytes()


def test_the_loss_of_an_uncut_epoch_to_the_bit(data: Path, path: Path, train: Train) -> None:
    """A checkpoint has more of it than the line shows."""
    import nn

    from micrograd.data import mnist

    images = mnist.read(data)
    losses = []
    for epochs in range(1, 6):
        options = ("--resume",) if epochs > 1 else ()
        assert train("--batch-size", 4, "--epochs", 2 * epochs, "--checkpoint", path, *options).code == 0
        losses.append(json.loads(checkpoint.load_metadata(path)["run"])["loss"])
    nn.reset(1)
    plain = [nn.train(images.train_images, images.train_labels, batch_size=4, seed=seed)[0] for seed in range(1, 11)]
    assert losses == plain[1::2]


@pytest.mark.parametrize("writes", range(1, 9))
def test_going_on_from_every_checkpoint(
    train: Train, path: Path, resumes: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, writes)
        stopped = train(*COMMON, "--checkpoint", path, "--every", 80)
    assert stopped.code == 130
    places = [
        "epoch 1, image 80 of 300",
        "epoch 1, image 160 of 300",
        "epoch 1, image 240 of 300",
        "the end of epoch 1",
    ]
    places += [place.replace("epoch 1", "epoch 2") for place in places]
    assert f"checkpoint     {path}: {places[writes - 1]}" in stopped.out
    resumed = resumes("--every", 80)
    assert f"{path}: going on from {places[writes - 1]}" in resumed.out
    assert len(resumed.epochs) == 2 - len(stopped.epochs)


def test_losses_to_the_bit(train: Train, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an interrupted run and one that was not, with the same checkpoints."""
    common = (*COMMON, "--every", 40)
    train(*common, "--checkpoint", path.with_name("whole"))
    with monkeypatch.context() as patch:
        stop_after(patch, 11)
        train(*common, "--checkpoint", path)
    assert train(*common, "--checkpoint", path, "--resume").code == 0
    runs = [json.loads(checkpoint.load_metadata(p)["run"]) for p in (path, path.with_name("whole"))]
    for run in runs:
        assert run.pop("seconds") > 0
    assert runs[0] == runs[1]


def test_what_changes_no_bit_may_change(train: Train, path: Path, resumes: Callable[..., Result]) -> None:
    """More epochs, other threads, other moments of checkpoints, and the best epoch so far is remembered."""
    first = half(train, path, "--threads", 2, "--every", 4)
    resumed = resumes("--every", 100)
    accuracies = [float(line.split()[-1][:-1]) for line in first.epochs + resumed.epochs]
    best = max(accuracies)
    assert f"best epoch     {accuracies.index(best) + 1} ({best:.2f}%)" in resumed.out


def test_a_run_that_is_done_is_done(train: Train, path: Path, resumes: Callable[..., Result]) -> None:
    """The same command line in a loop ends some time, and still writes what --save wants."""
    resumes()
    before = path.read_bytes()
    again = resumes()
    assert again.epochs == []
    assert re.search(r"^test accuracy  \d", again.out, re.M)
    assert path.read_bytes() == before


def test_without_a_checkpoint_it_starts(path: Path, resumes: Callable[..., Result]) -> None:
    assert f"{path}: no checkpoint yet, starting from the beginning\n" in resumes().out


def test_other_commands_read_a_checkpoint(train: Train, data: Path, path: Path, capsys: pytest.CaptureFixture) -> None:
    tested = half(train, path).epochs[-1]
    assert main(["eval", "--data", str(data), "--load", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"test accuracy  {tested.split()[-1]} of 100 images"
    assert main(["predict", "--data", str(data), "--load", str(path), "--index", "0"]) == 0
    assert train("--load", path, "--epochs", 1).code == 0


# ---- who stops it


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(data: Path, path: Path, train: Train, number: signal.Signals, code: int) -> None:
    saved = path.with_name("saved")
    options = (*PLAIN, "--epochs", 10**9, "--save", saved, "--checkpoint", path, "--every", 100)
    command = [sys.executable, "-m", "micrograd", "train", "--data", data, *options]
    process = subprocess.Popen(
        list(map(str, command)), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 3/"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "interrupted in epoch" in err
    assert f"saved          {saved}: the weights as of the last whole step" in out
    run = json.loads(checkpoint.load_metadata(path)["run"])
    assert run["epoch"] >= 3
    last = run["epoch"] + (run["images"] == TRAIN)
    assert train("--checkpoint", path, "--resume", "--epochs", last, "--save", saved).code == 0
    assert train("--epochs", last, "--save", path.with_name("plain")).code == 0
    assert same_bits(saved, path.with_name("plain"))


# ---- disks


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_checkpoint_that_cannot_be_written_is_no_reason_to_stop(
    train: Train, path: Path, resumes: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    original, calls = getattr(os, function), 0

    def fail_twice(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(*arguments)

    monkeypatch.setattr(os, function, fail_twice)
    done = resumes("--every", 100)
    assert done.err.splitlines() == [
        f"warning: {path}: No space left on device: no checkpoint for epoch 1, image {n} of 300, training goes on"
        for n in (100, 200)
    ]
    assert f"checkpoint     {path}: the end of epoch 2" in done.out
    assert sorted(p.name for p in path.parent.iterdir()) == sorted(
        ["plain", "resumed", path.name, previous(path).name, f".{path.name}.lock"]
    )


def test_the_last_checkpoint_must_be_written(train: Train, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half(train, path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    done = train(*COMMON, "--checkpoint", path, "--resume")
    assert done.code == 2
    assert f"checkpoint     {path}: the end of epoch 1" in done.out
    assert done.err.endswith(f"error: {path}: No space left on device\n")
    assert path.read_bytes() == before


TMPFS = 'mount -t tmpfs -o size="$0" none "$1" && cd "$1" && shift && exec "$@"'


def test_a_full_disk(data: Path, path: Path, train: Train, tmp_path: Path) -> None:
    """A file system with room for two files, FILE and what becomes the next one, and not for FILE.previous as well."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", TMPFS, "700k", str(folder)]
    if not shutil.which("unshare") or subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system")
    options = [*map(str, PLAIN), "--data", str(data), "--checkpoint", "run", "--batch-size", "4", "--every", "100"]
    command = [sys.executable, "-m", "micrograd", "train", *options]
    script = f'"$@" --epochs 2; echo code $?; ls -A; cp run {path}'
    done = subprocess.run(
        [*mount, "sh", "-c", script, "sh", *command], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.stderr.count("warning: run: No space left on device: no checkpoint") == 4
    assert done.stderr.endswith("error: run: No space left on device\n")
    assert done.stdout.count("\nepoch ") + done.stdout.startswith("epoch ") == 2
    assert re.search(
        r"checkpoint     run: epoch 1, image 200 of 300\ncode 2\n\.run\.lock\nrun\nrun\.previous", done.stdout
    )
    assert train("--batch-size", 4, "--epochs", 2, "--checkpoint", path, "--resume", "--every", 100).code == 0


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def test_a_read_only_folder_is_noticed_before_training(tmp_path: Path) -> None:
    mount = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("no right to mount a folder read-only")
    command = [sys.executable, "-m", "micrograd", "train", "--data", "nowhere", "--checkpoint", str(tmp_path / "run")]
    done = subprocess.run([*mount, *command], env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path / 'run'}: Read-only file system\n")


@pytest.mark.parametrize("place", ["", "no/run"])
def test_a_place_that_cannot_be_written_is_noticed_before_training(train: Train, tmp_path: Path, place: str) -> None:
    done = train("--checkpoint", tmp_path / place, images=Path("nowhere"))
    assert done.code == 2
    assert done.err.startswith(f"error: {tmp_path / place}: {'No such file' if place else 'Is a directory'}")


def test_a_link_stays_a_link(train: Train, path: Path, resumes: Callable[..., Result]) -> None:
    real = path.with_name("elsewhere") / "real"
    real.parent.mkdir()
    try:
        path.symlink_to(real)
    except OSError:
        pytest.skip("no right to make links")
    half(train, path)
    resumes()
    assert path.is_symlink()
    assert sorted(p.name for p in real.parent.iterdir()) == [".real.lock", "real", "real.previous"]


def test_what_killed_runs_left_is_deleted(train: Train, path: Path) -> None:
    left = path.with_name(f".{path.name}.0123456789abcdef")
    others = [path.with_name(name) for name in (f".{path.name}.txt", ".other.0123456789abcdef", f"{path.name}.0")]
    for file in (left, *others):
        file.write_bytes(b"half")
    half(train, path)
    assert not left.exists()
    assert all(file.exists() for file in others)


def test_one_process_at_a_time(train: Train, data: Path, path: Path) -> None:
    with Checkpoints(path).locked():
        for _ in range(2):
            done = train("--checkpoint", path, "--resume")
            assert (done.code, done.err) == (2, f"error: {path}: another process is training with this checkpoint\n")
    assert train("--checkpoint", path, "--resume", "--epochs", 1).code == 0
