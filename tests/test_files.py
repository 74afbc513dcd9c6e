"""Files that a full disk, another name for them, or somebody who cuts them off destroys.

The kinds of test that were missing: each file that is written, with the disk full at byte n; each pair of paths of a
run, in every spelling; and files that change while they are read. Files had been damaged only between two runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from commands import COMMON, Train, environment, half, same_bits, write_data
from harness import nightly_but, slow_but

from micrograd.__main__ import main
from micrograd.commands import checkpoint
from micrograd.files import is_temporary, temporary, write_whole

SPELLINGS = [
    "c.previous",
    "c.damaged",
    ".c.lock",
    "./c.previous",
    "folder/../c.previous",
    "link",
    ".c.0123456789abcdef",
]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("save", SPELLINGS)
def test_no_output_is_a_companion_of_the_checkpoint(
    train: Train, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: str, there: bool
) -> None:
    """`--save c.previous` replaced the only other checkpoint: after one damaged byte nothing was left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("c.previous")
    if there:
        half(train, Path("c"), "--every", 100)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    done = train(*COMMON, "--checkpoint", "c", "--resume", "--save", save)
    assert done.code == 2
    assert re.fullmatch(r"error: --save must be no file of --checkpoint c, which needs \S+ itself\n", done.err)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_companions_of_a_link_are_those_of_its_file(train: Train, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "elsewhere" / "real")
    done = train("--checkpoint", tmp_path / "c", "--save", tmp_path / "elsewhere" / "real.previous")
    assert "which needs real.previous itself" in done.err
    done = train("--checkpoint", tmp_path / "c", "--save", tmp_path / "elsewhere" / "real")
    assert "must be two files" in done.err
    assert half(train, tmp_path / "c", "--save", tmp_path / "c.previous").code == 0  # not beside the real one


@pytest.mark.parametrize("option", ["--save", "--checkpoint"])
def test_no_output_is_a_file_of_the_data(train: Train, tmp_path: Path, option: str) -> None:
    write_data(tmp_path)
    for name in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte.gz"):
        done = train(option, tmp_path / "x" / ".." / name, images=tmp_path)
        assert (done.code, "must be no file of --data" in done.err) == (2, True)


def test_a_picture_does_not_replace_its_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.dot"
    model.write_text("")
    assert main(["draw", str(model), "--output", str(tmp_path / "." / "model.dot")]) == 2
    assert "--output must not be the model itself" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--digits", "--model", "model.py", "--save", "model.py"],
        ["train", "--digits", "--model", "model.py:program", "--log", "x/../model.py"],
        ["train", "--digits", "--model", "./model.py:program", "--checkpoint", "model.py"],
        ["export", "model.py", "w", "--html", "model.py"],
        ["export", "model.py:program", "w", "--html", "./model.py"],
        ["export", "model", "w", "--html", "model.py"],
    ],
)
def test_no_output_is_the_model(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "model.py").write_text("from codegen.mnist import program\n")
    assert main(command) == 2
    assert "must not be the model itself" in capsys.readouterr().err
    assert (tmp_path / "model.py").read_text() == "from codegen.mnist import program\n"


def test_weights_are_not_replaced_by_what_they_are_frozen_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "w.ir"
    weights.write_bytes(Path("weights/mnist.safetensors").read_bytes())
    arguments = ["freeze", "codegen.mnist", str(weights), "--output", str(tmp_path), "--name", "w"]
    assert main(arguments) == 2
    assert "the weights must be no file that is written" in capsys.readouterr().err


# Writes one of the files with every limit on the size of a file, and prints how often that failed. The limit is the
# kernel's: the write itself fails, at that byte.
FULL = """
import os, resource, signal, sys
from pathlib import Path
import numpy as np
from codegen import compile_program
from codegen.build import write_sources
from codegen.mnist import program
from micrograd.commands import checkpoint
from micrograd.files import write_whole
from micrograd.__main__ import main
sys.path[:0] = [sys.argv[3], str(Path(sys.argv[3]).parent)]
import models

kind, folder, positions = sys.argv[1], Path(sys.argv[2]), int(sys.argv[4])
state = {"w": np.arange(50.0), "b": np.arange(7.0)}
(folder / "four.py").write_text("from models import xor as program\\n")

def compiled(target, name):
    small = models.xor()
    if target == "c":
        small.loss = small.targets = None
        small.initial = None
    found = compile_program(small, name, target=target)
    return lambda: write_sources(found, folder, name)

def drawn():
    return lambda: None if main(["draw", str(folder / "four.py"), "--output", str(folder / "p.dot")]) == 0 else failed()

def failed():
    raise OSError("the command says so")

write = {
    "weights": lambda: lambda: checkpoint.save(folder / "w", state, {"a": "b"}),
    "checkpoint": lambda: lambda: checkpoint.save(folder / "w", state, {"a": "b"}, keep=folder / "w.previous"),
    "data": lambda: lambda: write_whole(folder / "idx", bytes(1000)),
    "extension": lambda: compiled("extension", "m"),
    "python": lambda: compiled("python", "m"),
    "c": lambda: compiled("c", "m"),
    "picture": drawn,
}[kind]()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
write()
whole = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
largest = max(len(content) for name, content in whole.items() if name != "four.py")
count = 0
for n in sorted({0, 1, 2, largest - 1, *range(0, largest, max(1, largest // positions))}):
    for old in (None, b"old"):
        for name in set(whole) - {"four.py"}:
            (folder / name).unlink(missing_ok=True)
            if old is not None:
                (folder / name).write_bytes(old)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))
        try:
            write()
        except OSError:
            count += 1
        else:
            raise AssertionError(f"{n} bytes were enough for {largest}")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for path in folder.iterdir():
            if path.is_file():
                assert path.name in whole, f"{path.name} is left"
                assert path.read_bytes() in (old, whole[path.name]), f"{path.name} is neither old nor new at {n}"
        assert old is None or all((folder / name).exists() for name in whole)
write()
print(count)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
@pytest.mark.parametrize("kind", ["weights", "python"])
def test_the_disk_is_full_at_every_byte(kind: str, tmp_path: Path) -> None:
    check_full_disk(kind, tmp_path, 25)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
@pytest.mark.parametrize(
    "kind", nightly_but(["checkpoint", "c"], ["weights", "checkpoint", "data", "extension", "python", "c", "picture"])
)
def test_the_disk_is_full_at_many_more_bytes(kind: str, tmp_path: Path) -> None:
    check_full_disk(kind, tmp_path, 600)  # of 680 bytes and more


def check_full_disk(kind: str, folder: Path, positions: int) -> None:
    command = [sys.executable, "-c", FULL, kind, str(folder), str(Path(__file__).parent), str(positions)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    failures = int(done.stdout.split()[-1])
    print(f"{kind}: {failures} writes failed")
    assert failures >= 2 * positions


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command",
    slow_but(["draw m.py"], ["train --digits --epochs 1 --save w", "predict --digits --index 1", "draw m.py"]),
)
def test_standard_output_on_a_full_disk(command: str, tmp_path: Path, data: Path) -> None:
    """What a command prints cannot be kept, but what it saves can."""
    (tmp_path / "m.py").write_text("from codegen.mnist import program\n")
    arguments = [str(data) if x == "DATA" else x for x in command.replace("--digits", "--data DATA").split()]
    arguments += ["--output", "-"] * (arguments[0] == "draw")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "micrograd", *arguments],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode not in (0, 1)
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_data_that_is_cut_off_during_a_run(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read by copying: a mapping of them would be SIGBUS in the middle of a step."""
    plain = train(*COMMON, "--save", tmp_path / "plain", images=write_data(tmp_path))
    import micrograd.commands.train as command

    load = command.load_data

    def load_and_cut_off(options: object) -> object:
        found = load(options)
        for path in tmp_path.glob("*-ubyte"):
            os.truncate(path, 0)
        return found

    monkeypatch.setattr(command, "load_data", load_and_cut_off)
    cut_off = train(*COMMON, "--save", tmp_path / "cut off", images=write_data(tmp_path))
    assert cut_off.epochs == plain.epochs
    assert same_bits(tmp_path / "plain", tmp_path / "cut off")


def test_what_is_checked_of_a_checkpoint_is_what_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum was that of one reading, the numbers were those of another."""
    import numpy as np

    path = tmp_path / "w"
    checkpoint.save(path, {"w": np.arange(1000.0)}, {})
    verify = checkpoint._verify

    def verify_then_damage(*arguments: object) -> None:
        verify(*arguments)
        path.write_bytes(bytes(path.stat().st_size))

    monkeypatch.setattr(checkpoint, "_verify", verify_then_damage)
    assert checkpoint.load(path, {"w": (1000,)})["w"].tolist() == list(range(1000))


def test_a_checkpoint_that_is_cut_off_while_it_is_read(tmp_path: Path) -> None:
    """safetensors maps a file, and reading what is no longer there was SIGBUS."""
    import numpy as np

    path, shapes = tmp_path / "w", {"w": (200_000,)}
    checkpoint.save(path, {"w": np.arange(200_000.0)}, {})
    content = path.read_bytes()
    ended = threading.Event()

    def cut_off() -> None:
        while not ended.is_set():
            os.truncate(path, 4096)
            path.write_bytes(content)

    thread = threading.Thread(target=cut_off)
    thread.start()
    refused = read = 0
    try:
        while refused + read < 150:
            try:
                found = checkpoint.load(path, shapes)
            except checkpoint.CheckpointError:
                refused += 1
            else:
                assert found["w"].tolist() == list(range(200_000))
                read += 1
    finally:
        ended.set()
        thread.join()
    assert refused


def test_nothing_maps_a_file() -> None:
    root = Path(__file__).parent.parent
    texts = [
        path.read_text(encoding="utf-8") for name in ("micrograd", "codegen") for path in (root / name).rglob("*.py")
    ]
    assert len(texts) > 80
    assert not [text for text in texts if re.search(r"\b(mmap|memmap|safe_open|load_file|mmap_mode|fromfile)\b", text)]


def test_names_of_temporary_files_are_known() -> None:
    target = Path("folder/c.1")
    assert is_temporary(temporary(target).name, target)
    for name in (".c.1.lock", "c.1.previous", ".c.1.0123456789abcde", ".cx1.0123456789abcdef", "c.1"):
        assert not is_temporary(name, target)


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes")
def test_a_pipe_gets_what_a_file_would_have(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", b"content")
    assert os.read(reader, 10) == b"content"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions")
def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "w").touch(0o600)
    write_whole(tmp_path / "w", b"new")
    assert (tmp_path / "w").stat().st_mode & 0o777 == 0o600
