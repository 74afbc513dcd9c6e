"""Shards whose results are not those of one call, are done twice or not at all, or whose errors do not say where."""

from __future__ import annotations

import argparse
import gzip
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import nn
import numpy as np
import numpy.typing as npt
import pytest
from commands import environment

from micrograd.__main__ import main
from micrograd.commands import checkpoint
from micrograd.commands.shards import Job
from micrograd.data import digits, shards
from micrograd.errors import UsageError

COUNTS = (30, 0, 41, 29)  # images of the shards
MPIEXEC = Path(sys.executable).with_name("mpiexec")  # of the wheel mpich
needs_mpi = pytest.mark.skipif(sys.platform == "win32", reason="no wheel of MPICH")


@pytest.fixture(scope="module")
def images() -> tuple[bytes, bytes]:
    return digits.generate(sum(COUNTS), 3)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    nn.reset(3)
    checkpoint.save(tmp_path / "weights", nn.state_dict(), {})
    return tmp_path / "weights"


@pytest.fixture
def folder(tmp_path: Path, images: tuple[bytes, bytes]) -> Path:
    """The images in files of each kind."""
    folder, first = tmp_path / "shards", 0
    folder.mkdir()
    for i, count in enumerate(COUNTS):
        pixels = np.frombuffer(images[0], np.uint8).reshape(-1, 28, 28)[first : first + count]
        labels = np.frombuffer(images[1], np.uint8)[first : first + count]
        if i < 2:
            np.save(folder / f"{i}-images.npy", pixels.reshape(-1, 784) if i else pixels)
            np.save(folder / f"{i}-labels.npy", labels)
        else:
            pack = gzip.compress if i == 2 else bytes
            end = ".gz" if i == 2 else ""
            idx = struct.pack(">4I", 0x803, count, 28, 28) + pixels.tobytes()
            (folder / f"{i}-images-idx3-ubyte{end}").write_bytes(pack(idx))
            idx = struct.pack(">2I", 0x801, count) + labels.tobytes()
            (folder / f"{i}-labels-idx1-ubyte{end}").write_bytes(pack(idx))
        first += count
    (folder / "notes.txt").write_text("no shard")
    return folder


RESULTS = ("0-images.npy", "1-images.npy", "2-images-idx3-ubyte.gz.npy", "3-images-idx3-ubyte.npy")


def all_rows(output: Path) -> npt.NDArray[np.void]:
    assert sorted(path.name for path in output.iterdir()) == [*RESULTS, "made_by.json"]
    parts = [np.load(output / name) for name in RESULTS]
    assert tuple(map(len, parts)) == COUNTS
    return np.concatenate(parts)


def command(*words: object) -> list[str]:
    return list(map(str, words))


def by_mpi(ranks: int, *words: object) -> subprocess.CompletedProcess[str]:
    run = command(MPIEXEC, "-n", ranks, sys.executable, "-m", "micrograd", *words, "--mpi")
    return subprocess.run(run, env=environment(), capture_output=True, text=True, timeout=60)


def check_scores(output: Path, printed: str, images: tuple[bytes, bytes]) -> None:
    """The bits of one call over all images."""
    rows = all_rows(output)
    loss, accuracy = nn.evaluate(*images)
    assert rows["label"].tobytes() == images[1]
    assert rows["class"].tobytes() == nn.predict_batch(images[0])
    assert float(np.cumsum(rows["loss"])[-1]) / len(rows) == loss
    assert f"test loss      {loss:.4f}\ntest accuracy  {accuracy:.2%} of 100 images" in printed
    assert re.findall(r"^ +(\d) +(\d+)", printed, re.M) == [(str(d), str(images[1].count(d))) for d in range(10)]


@pytest.mark.parametrize("how", [[], ["--processes", 2]])
def test_eval(folder, tmp_path, weights, images, how, monkeypatch, capsys) -> None:
    monkeypatch.setattr(shards, "PIECE", 7)
    assert main(command("eval", folder, "--output", tmp_path / "out", "--load", weights, *how)) == 0
    check_scores(tmp_path / "out", capsys.readouterr().out, images)


@pytest.mark.slow
@needs_mpi
def test_eval_by_ranks(folder, tmp_path, weights, images) -> None:
    done = by_mpi(2, "eval", folder, "--output", tmp_path / "out", "--load", weights)
    assert (done.returncode, done.stderr) == (0, "")
    check_scores(tmp_path / "out", done.stdout, images)
    assert done.stdout.count("test loss") == 1


def test_eval_of_the_weights_of_the_module(folder, tmp_path, images, capsys, monkeypatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train", "t10k"):
        (data / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 100, 28, 28) + images[0])
        (data / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 100) + images[1])
    assert main(command("eval", "--data", data)) == 0
    expected = capsys.readouterr().out
    assert main(command("eval", folder, "--output", tmp_path / "out")) == 0
    found = capsys.readouterr().out
    assert [line for line in found.splitlines() if not line.startswith("data")] == [
        line for line in expected.splitlines() if not line.startswith("data")
    ]


def test_predict_does_what_is_missing_or_out_of_date(folder, tmp_path, weights, images, capsys) -> None:
    out = tmp_path / "out"
    run = command("predict", folder, "--output", out, "--load", weights)
    assert main(run) == 0
    assert capsys.readouterr().out == f"classes of 100 images of 4 shards in {folder}: {out}\n"
    assert all_rows(out).tobytes() == nn.predict_batch(images[0])

    first, _, third, last = (out / name for name in RESULTS)
    np.save(first, np.full(COUNTS[0], 77, np.uint8))  # is there, and stays
    third.unlink()
    os.utime(last, ns=(0, 0))
    np.save(last, np.full(COUNTS[3], 77, np.uint8))
    os.utime(last, ns=(0, 0))
    assert main(run) == 0
    assert set(np.load(first)) == {77}
    assert all_rows(out)[COUNTS[0] :].tobytes() == nn.predict_batch(images[0])[COUNTS[0] :]
    np.save(first, np.full(COUNTS[0] - 1, 77, np.uint8))  # of another shard
    assert main(run) == 0
    assert all_rows(out).tobytes() == nn.predict_batch(images[0])

    nn.reset(4)
    checkpoint.save(weights, nn.state_dict(), {})
    assert main(run) == 2
    assert "results of another command or model" in capsys.readouterr().err
    assert main(command("eval", folder, "--output", out)) == 2


def test_new_labels_are_evaluated_again(folder, tmp_path, images, capsys) -> None:
    run = command("eval", folder, "--output", tmp_path / "out")
    assert main(run) == 0
    labels = folder / "0-labels.npy"
    np.save(labels, np.full(COUNTS[0], 7, np.uint8))
    os.utime(labels, ns=(2**62, 2**62))
    assert main(run) == 0
    assert set(np.load(tmp_path / "out" / RESULTS[0])["label"]) == {7}


def damaged(kind: str, folder: Path) -> str:
    """Damages a file of the folder, and returns what the error says."""
    images, labels = folder / "0-images.npy", folder / "0-labels.npy"
    if kind == "dtype":
        np.save(images, np.zeros((3, 784)))
        return f"{images}: float64 of the shape (3, 784), expected images: uint8, (n, 784) or (n, 28, 28)"
    if kind == "shape":
        np.save(images, np.zeros((3, 785), np.uint8))
        return f"{images}: uint8 of the shape (3, 785), expected images"
    if kind == "order":
        np.save(images, np.zeros((784, 3), np.uint8).T)
        return f"{images}: uint8 of the shape (3, 784) in Fortran's order, expected images"
    if kind == "header":
        images.write_bytes(b"no array")
        return f"{images}: not an array, as numpy.save() writes it"
    if kind == "no brace":
        images.write_bytes(images.read_bytes().replace(b"}", b" ", 1))
        return f"{images}: not an array, as numpy.save() writes it"
    if kind == "truncated":
        images.write_bytes(images.read_bytes()[:-1])
        return f"{images}: truncated: 29 images, expected 30"
    if kind == "longer":
        images.write_bytes(images.read_bytes() + b"x")
        return f"{images}: more than the expected 30 images"
    if kind == "gzip":
        packed = folder / "2-images-idx3-ubyte.gz"
        packed.write_bytes(packed.read_bytes()[:-9])
        return f"{packed}: not a whole gzip file"
    if kind == "idx":
        (folder / "3-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 1, 28, 27))
        return f"{folder / '3-images-idx3-ubyte'}: images of 28 x 27 bytes, expected 28 x 28"
    if kind == "label":
        np.save(labels, np.arange(30, dtype=np.uint8) // 2)
        return f"{labels}: label 20 is 10, expected 0..9"
    if kind == "labels":
        np.save(labels, np.zeros(31, np.uint8))
        return f"{labels}: 31 labels, expected 30, one for each image in {images}"
    if kind == "no labels":
        labels.unlink()
        return f"{labels}: No such file"
    images.rename(folder / "0.npy")
    return f"{folder / '0.npy'}: labels are in the file with 'labels' for 'images'"


KINDS = (
    "dtype",
    "shape",
    "order",
    "header",
    "no brace",
    "truncated",
    "longer",
    "gzip",
    "idx",
    "label",
    "labels",
    "no labels",
    "x",
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_names_the_shard(folder, tmp_path, kind, capsys, monkeypatch) -> None:
    monkeypatch.setattr(shards, "PIECE", 8)
    message = damaged(kind, folder)
    out = tmp_path / "out"
    assert main(command("eval", folder, "--output", out)) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    name = Path(message.partition(": ")[0]).name.replace("labels", "images").removesuffix(".npy") + ".npy"
    assert not [path for path in out.iterdir() if path.name == name or path.name.startswith(".")]


@needs_mpi
def test_an_error_on_one_rank_is_told_once(folder, tmp_path) -> None:
    message = damaged("idx", folder)
    done = by_mpi(2, "eval", folder, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("error: ") == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*RESULTS, "made_by.json"} - {RESULTS[3]}


WRONG = {
    "a folder of shards needs --output DIR": ["predict", "shards"],
    "--output must be another folder": ["predict", "shards", "--output", "shards"],
    "no shards, which are files *.npy": ["eval", ".", "--output", "out"],
    "nowhere: no such folder": ["eval", "nowhere", "--output", "out"],
    "--output, --processes and --mpi are for a folder of shards": ["eval", "--digits", "--processes", "2"],
    "a folder of shards excludes --data and --digits": ["eval", "shards", "--digits", "--output", "out"],
    "a folder of shards excludes other images": ["predict", "shards", "shards", "--output", "out"],
    "--mpi: not allowed with argument --processes": ["eval", "shards", "--processes", "2", "--mpi"],
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(folder, message, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder.parent)
    try:
        code = main(WRONG[message])
    except SystemExit as exit_:
        code = exit_.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_two_shards_with_one_file_of_results(folder, tmp_path, capsys) -> None:
    (folder / "0-images.npy").rename(folder / "3-images-idx3-ubyte.npy")
    assert main(command("predict", folder, "--output", tmp_path / "out")) == 2
    assert "whose names differ in .npy alone" in capsys.readouterr().err


def die(model: object, shard: Path) -> npt.NDArray[np.uint8]:
    os._exit(1)


def test_a_process_that_dies_is_an_error(folder, tmp_path) -> None:
    options = argparse.Namespace(output=tmp_path / "out", processes=2, mpi=False)
    with pytest.raises(UsageError, match="a process died; the same command goes on"):
        Job(options, folder, the_model, die).run()


def the_model(options: argparse.Namespace) -> object:
    return nn


def test_hidden_files_are_no_shards(tmp_path):
    """As macOS puts them beside others on foreign disks."""
    for name in ("a.npy", "._a.npy", ".b-ubyte"):
        (tmp_path / name).write_bytes(b"")
    assert shards.shards_of(tmp_path) == [tmp_path / "a.npy"]


def test_a_header_of_the_second_version(tmp_path):
    """NumPy writes it for headers of more than 65,535 bytes; others write it always."""
    pixels, _ = digits.generate(5, 1)
    with (tmp_path / "images.npy").open("wb") as file:
        np.lib.format.write_array(file, np.frombuffer(pixels, np.uint8).reshape(5, 784), version=(2, 0))
    assert b"".join(shards.images(tmp_path / "images.npy")) == pixels
