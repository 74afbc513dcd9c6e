"""--resume with a damaged checkpoint, or one of another run: it must never go on from wrong numbers without a word."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import COMMON, Result, Train, half, previous, stop_after

from micrograd.commands import checkpoint

# ---- damaged files


def damages(content: bytes) -> dict[str, bytes]:
    header = 8 + int.from_bytes(content[:8], "little")
    lengths = [0, 1, 7, 8, 9, header - 1, header, header + 1, header + 8, len(content) // 2, len(content) - 1]
    cases = {f"{length} bytes": content[:length] for length in lengths}
    rng = random.Random(0)
    for bit in [*rng.sample(range(8 * header), 40), *rng.sample(range(8 * header, 8 * len(content)), 20)]:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        cases[f"bit {bit}"] = bytes(flipped)
    return cases | {"a byte more": content + b"\0", "another file": b"GIF89a" * 100, "zeros": bytes(len(content))}


def test_every_damage_is_noticed(train: Train, path: Path) -> None:
    half(train, path)
    content = path.read_bytes()
    for what, damaged in damages(content).items():
        path.write_bytes(damaged)
        done = train(*COMMON, "--checkpoint", path, "--resume")
        assert done.code == 2, what
        assert done.err.startswith(f"error: {path}: "), what
        assert done.err.count("\n") == 1, what
        assert re.search("not a whole safetensors file|damaged|no checksum", done.err), what
        assert path.read_bytes() == damaged, what


@pytest.mark.parametrize("what", ["empty", "bit", "missing"])
def test_the_previous_one_takes_the_place_of_a_damaged_one(
    train: Train, path: Path, resumes: Callable[..., Result], what: str
) -> None:
    half(train, path, "--every", 100)
    content = bytearray(path.read_bytes())
    content[-5] ^= 8
    damaged = {"empty": b"", "bit": bytes(content), "missing": None}[what]
    if damaged is None:
        path.unlink()
    else:
        path.write_bytes(damaged)
    done = resumes("--every", 100)
    assert done.err.startswith(f"warning: {path}: ")
    assert done.err.endswith(f"; taking {previous(path)}\n")
    assert f"{path}: going on from epoch 1, image 200 of 300" in done.out
    aside = path.with_name(f"{path.name}.damaged")
    assert (aside.read_bytes() if aside.exists() else None) == damaged
    for file in (path, previous(path)):
        checkpoint.load_metadata(file)


def test_a_damaged_one_never_takes_the_place_of_the_previous_one(
    train: Train, path: Path, resumes: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    half(train, path, "--every", 100)
    path.write_bytes(b"damaged")
    good = previous(path).read_bytes()
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        assert train(*COMMON, "--checkpoint", path, "--resume", "--every", 40).code == 130
    assert previous(path).read_bytes() == good
    resumes()


def test_both_damaged(train: Train, path: Path) -> None:
    half(train, path, "--every", 100)
    path.write_bytes(b"")
    previous(path).write_bytes(b"")
    done = train(*COMMON, "--checkpoint", path, "--resume")
    assert done.code == 2
    assert f"error: {path}: not a whole safetensors file" in done.err
    assert f"; {previous(path)}: not a whole safetensors file" in done.err


def test_swapped_files(train: Train, path: Path, resumes: Callable[..., Result]) -> None:
    """Either is a checkpoint: the older one just has more to do."""
    half(train, path, "--every", 100)
    newer = path.read_bytes()
    shutil.move(previous(path), path)
    previous(path).write_bytes(newer)
    assert "going on from epoch 1, image 200 of 300" in resumes().out


# ---- other runs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch-size", 5), "--batch-size was 4 in this checkpoint's run, now it is 5"),
        (("--learning-rate", 0.25), "--learning-rate was 0.008 in this checkpoint's run, now it is 0.25"),
        (("--seed", 2), "--seed was 1 in this checkpoint's run, now it is 2"),
        (("--load",), "the first weights' digest was "),
        (("--epochs", 1), "--epochs is 1, but "),
    ],
)
def test_other_options(train: Train, path: Path, options: tuple[object, ...], message: str) -> None:
    assert train(*COMMON, "--checkpoint", path, "--save", path.with_name("saved")).code == 0
    before = path.read_bytes()
    if options == ("--load",):
        options = ("--load", path.with_name("saved"))
    done = train(*COMMON, "--checkpoint", path, "--resume", *options)
    assert done.code == 2
    assert message in done.err
    assert done.err.startswith("error: ")
    assert str(path) in done.err
    assert path.read_bytes() == before


def test_other_data(train: Train, data: Path, path: Path, tmp_path: Path) -> None:
    """A label of the test set is enough: the best epoch depends on it."""
    half(train, path)
    other = tmp_path / "other"
    shutil.copytree(data, other)
    labels = bytearray((other / "t10k-labels-idx1-ubyte").read_bytes())
    labels[-1] = (labels[-1] + 1) % 10
    (other / "t10k-labels-idx1-ubyte").write_bytes(labels)
    done = train(*COMMON, "--checkpoint", path, "--resume", images=other)
    assert done.code == 2
    assert re.search(r"the data's digest was [0-9a-f]{64} in this checkpoint's run, now it is [0-9a-f]{64}\n", done.err)


def rewritten(path: Path, **changes: object) -> None:
    """The checkpoint with other entries, and the checksum right."""
    import numpy as np
    from safetensors.numpy import load_file

    tensors = load_file(path)
    metadata = checkpoint.load_metadata(path)
    for key, value in changes.items():
        content = json.loads(metadata[key])
        metadata[key] = json.dumps(content | value if isinstance(value, dict) else value)
    checkpoint.save(path, {name: np.array(tensor) for name, tensor in tensors.items()}, metadata)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"settings": {"the model's digest": "abc"}},
            "the model's digest was abc in this checkpoint's run, now it is ",
        ),
        (
            {"settings": {"the arithmetic": "float32"}},
            "the arithmetic was float32 in this checkpoint's run, now it is ",
        ),
        ({"settings": []}, "which is no longer read"),
        ({"run": {"colour": 1}}, "which is no longer read"),
        ({"run": {"epoch": "1"}}, "which is no longer read"),
        ({"run": {"epoch": 0}}, "no place between two steps"),
        ({"run": {"images": 42}}, "epoch 1, image 42 of 300, which is no place between two steps"),
        ({"run": {"images": 304}}, "no place between two steps"),
        ({"run": 7}, "which is no longer read"),
    ],
)
def test_other_contents(train: Train, path: Path, changes: dict[str, object], message: str) -> None:
    half(train, path)
    rewritten(path, **changes)
    done = train(*COMMON, "--checkpoint", path, "--resume")
    assert done.code == 2
    assert done.err.startswith(f"error: {path}: ")
    assert message in done.err


def test_weights_are_no_checkpoint(train: Train, path: Path) -> None:
    assert train("--epochs", 1, "--save", path).code == 0
    before = path.read_bytes()
    assert f"{path}: weights, as --save writes them" in train("--checkpoint", path, "--resume").err
    assert f"{path} is there already" in train("--checkpoint", path).err
    assert path.read_bytes() == before


def test_a_new_run_replaces_no_checkpoint(train: Train, path: Path) -> None:
    half(train, path, "--every", 100)
    before = path.read_bytes()
    done = train("--checkpoint", path)
    assert (done.code, done.err) == (2, f"error: {path} is there already: --resume goes on from it, or delete it\n")
    assert path.read_bytes() == before
    path.unlink()
    assert f"{previous(path)} is there already" in train("--checkpoint", path).err


def test_a_loss_that_is_not_a_number_is_not_kept(train: Train, path: Path) -> None:
    done = train("--checkpoint", path, "--every", 100, "--learning-rate", 1e300)
    assert done.code == 2
    assert "--learning-rate" in done.err
    assert not path.exists()


WRONG = {
    ("--resume",): "--resume needs --checkpoint FILE",
    ("--every", "10"): "--every needs --checkpoint FILE",
    ("--checkpoint", "c", "--every", "0"): "--every: expected 1..",
    (
        "--checkpoint",
        "c",
        "--every",
        "100",
        "--batch-size",
        "64",
    ): "--every must be a multiple of --batch-size 64, got 100",
    ("--checkpoint", "c", "--save", "./c"): "--save and --checkpoint must be two files, got c for both",
}


@pytest.mark.parametrize("options", WRONG)
def test_wrong_arguments(train: Train, options: tuple[str, ...]) -> None:
    done = train(*options)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert WRONG[options] in done.err
