"""Checkpoint files that lose a bit, are written halfway, or are damaged without anybody noticing."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from micrograd.commands import checkpoint
from micrograd.commands.checkpoint import CheckpointError, DamagedError

SHAPES = {"layers.0.weight": (3, 2), "layers.0.bias": (3,), "scale": ()}


def tensors() -> dict[str, npt.NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    return {name: np.array(rng.normal(size=shape)) for name, shape in SHAPES.items()}


def bits(arrays: dict[str, npt.NDArray[np.float64]]) -> dict[str, tuple[tuple[int, ...], bytes]]:
    return {name: (array.shape, array.tobytes()) for name, array in arrays.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_round_trip(path: Path) -> None:
    checkpoint.save(path, tensors(), {"architecture": "a test"})
    loaded = checkpoint.load(path, SHAPES)
    assert bits(loaded) == bits(tensors())
    assert list(loaded) == list(SHAPES)


def test_round_trip_of_every_kind_of_number(path: Path) -> None:
    kinds = [0.0, -0.0, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, float("inf"), float("-inf")]
    payload = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]
    state = {"x": np.array([*kinds, payload, -payload])}
    checkpoint.save(path, state, {})
    assert bits(checkpoint.load(path, {"x": (9,)})) == bits(state)


def test_strided_views_are_saved_in_c_order(path: Path) -> None:
    stored = np.arange(6.0)  # as a module may store a (3, 2) matrix: first index fastest
    view = stored.reshape(2, 3).T.data
    assert not view.c_contiguous
    checkpoint.save(path, {"w": view}, {})
    assert checkpoint.load(path, {"w": (3, 2)})["w"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_no_view_is_kept(path: Path) -> None:
    buffer = bytearray(struct.pack("4d", 1, 2, 3, 4))
    checkpoint.save(path, {"w": memoryview(buffer).cast("d")}, {})
    buffer.append(0)  # a BufferError while any view is alive


def test_metadata(path: Path) -> None:
    checkpoint.save(path, tensors(), {"architecture": "a test", "digest": "abc"})
    assert checkpoint.load_metadata(path) == {"architecture": "a test", "digest": "abc"}


def test_the_same_numbers_give_the_same_bytes(path: Path) -> None:
    """safetensors writes its header in an order that differs from call to call."""
    metadata = {name: name for name in "edcba"}
    state = dict(reversed(tensors().items()))
    written = set()
    for _ in range(10):
        checkpoint.save(path, state, metadata)
        written.add(path.read_bytes())
        state, metadata = dict(reversed(state.items())), dict(reversed(metadata.items()))
    assert len(written) == 1
    (content,) = written
    assert int.from_bytes(content[:8], "little") % 8 == 0  # the numbers are aligned


def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place(path: Path) -> None:
    checkpoint.save(path, tensors(), {"architecture": "a test"})
    content = path.read_bytes()
    (noted,) = re.findall(rb'"sha256":"([0-9a-f]{64})"', content)
    assert hashlib.sha256(content.replace(noted, b"0" * 64)).hexdigest().encode() == noted


def test_another_file_is_replaced_and_nothing_else_is_left(path: Path) -> None:
    path.write_bytes(b"older and longer" * 1000)
    checkpoint.save(str(path), tensors(), {})
    assert bits(checkpoint.load(str(path), SHAPES)) == bits(tensors())
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    path.write_bytes(b"the old one")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(type(error)):
        checkpoint.save(path, tensors(), {})
    monkeypatch.undo()
    assert path.read_bytes() == b"the old one"
    assert os.listdir(path.parent) == [path.name]


def test_the_content_is_on_the_disk_before_it_gets_the_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        events.append("fsync")
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        events.append("replace")
        assert source.parent == target.parent
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    checkpoint.save(path, tensors(), {})
    assert events[:2] == ["fsync", "replace"]
    assert events[2:] == (["fsync"] if os.name == "posix" else [])  # the folder


def test_a_folder_that_cannot_be_synchronised_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail_for_the_folder(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 1:
            raise OSError(errno.EINVAL, "not supported")

    monkeypatch.setattr(os, "fsync", fail_for_the_folder)
    checkpoint.save(path, tensors(), {})
    assert bits(checkpoint.load(path, SHAPES)) == bits(tensors())


def test_a_link_stays_a_link(path: Path) -> None:
    real = path.with_name("real.safetensors")
    real.touch()
    try:
        path.symlink_to(real)
    except OSError:
        path = real  # Windows without the right to make links
    checkpoint.save(path, tensors(), {})
    assert path.is_symlink() == (path != real)
    assert bits(checkpoint.load(real, SHAPES)) == bits(tensors())


def test_missing(path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        checkpoint.load(path, SHAPES)
    assert str(caught.value.filename) == str(path)


def failure(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path, SHAPES)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


def test_every_truncation_is_noticed(path: Path) -> None:
    checkpoint.save(path, tensors(), {})
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        assert "not a whole safetensors file" in failure(path)
    path.write_bytes(content + b"\0")
    assert "not a whole safetensors file" in failure(path)


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    """load_metadata() wants a checksum. load() does not: where its name is damaged, every number still is right."""
    state = {"x": np.array([0.1, -0.2])}
    checkpoint.save(path, state, {"model": "a test"})
    content = bytearray(path.read_bytes())
    start = content.index(b'"sha256":"')
    name = range(8 * start, 8 * (start + len(b'"sha256"')))
    unnoticed = 0
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=re.escape(f"{path}: ")):
            checkpoint.load_metadata(path)
        if bit in name:
            with suppress(DamagedError):
                assert bits(checkpoint.load(path, {"x": (2,)})) == bits(state)
                unnoticed += 1
        elif bit % 16 == 0:
            with pytest.raises(DamagedError, match=re.escape(f"{path}: ")):
                checkpoint.load(path, {"x": (2,)})
        content[bit // 8] ^= 1 << bit % 8
    assert unnoticed


def test_another_programs_file_has_no_checksum(path: Path) -> None:
    save_file(tensors(), path)
    assert bits(checkpoint.load(path, SHAPES)) == bits(tensors())
    with pytest.raises(DamagedError, match="no checksum"):
        checkpoint.load_metadata(path)


def test_the_old_file_can_be_kept(path: Path) -> None:
    kept = path.with_name("kept")
    for number in range(3):
        checkpoint.save(path, tensors(), {"number": str(number)}, keep=kept)
        assert checkpoint.load_metadata(path) == {"number": str(number)}
        assert kept.exists() == (number > 0)
    assert checkpoint.load_metadata(kept) == {"number": "1"}
    assert sorted(os.listdir(path.parent)) == ["kept", path.name]


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"{}", bytes(100), b"\xff" * 100])
def test_other_files(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "not a whole safetensors file" in failure(path)


def test_a_missing_tensor(path: Path) -> None:
    state = tensors()
    del state["layers.0.bias"]
    save_file(state, path)
    message = failure(path)
    assert "no tensor 'layers.0.bias'" in message
    assert "got 'layers.0.weight', 'scale'" in message


def test_a_tensor_too_many(path: Path) -> None:
    save_file({**tensors(), "layers.1.bias": np.zeros(2)}, path)
    message = failure(path)
    assert "unexpected tensor 'layers.1.bias'" in message
    assert "expected 'layers.0.bias', 'layers.0.weight', 'scale'" in message


@pytest.mark.parametrize("shape", [(2, 3), (6,), (3, 2, 1), (4, 2), (0, 2)])
def test_another_shape(path: Path, shape: tuple[int, ...]) -> None:
    save_file({**tensors(), "layers.0.weight": np.zeros(shape)}, path)
    assert f"'layers.0.weight' has the shape {shape}, expected (3, 2)" in failure(path)


@pytest.mark.parametrize(("dtype", "name"), [(np.int64, "I64"), (np.uint8, "U8"), (np.int16, "I16")])
def test_another_type(path: Path, dtype: npt.DTypeLike, name: str) -> None:
    save_file({**tensors(), "layers.0.bias": np.zeros(3, dtype)}, path)
    assert f"'layers.0.bias' is {name}, expected F64, F32, F16 or BF16" in failure(path)


def test_float32_is_widened(path: Path) -> None:
    """What PyTorch and others save."""
    save_file({**tensors(), "layers.0.weight": np.float32([[0.1, 2], [3, 4], [5, 6]])}, path)
    loaded = checkpoint.load(path, SHAPES)
    assert loaded["layers.0.weight"].dtype == np.float64
    assert loaded["layers.0.weight"][0, 0] == float(np.float32(0.1))


def test_numbers_of_two_bytes_are_widened(path: Path) -> None:
    half = np.float16([0.1, -2, 6e-8])
    save_file({**tensors(), "layers.0.bias": half}, path)
    assert checkpoint.load(path, SHAPES)["layers.0.bias"].tolist() == half.tolist()
    content = path.read_bytes().replace(b'"dtype":"F16"', b'"dtype":"BF16"')
    length = int.from_bytes(content[:8], "little") + 1
    path.write_bytes(length.to_bytes(8, "little") + content[8:])
    numbers = (half.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert checkpoint.load(path, SHAPES)["layers.0.bias"].tolist() == numbers.tolist()


def test_check_writable(path: Path) -> None:
    checkpoint.check_writable(path)
    assert not path.exists()
    path.write_bytes(b"kept")
    checkpoint.check_writable(path)
    assert path.read_bytes() == b"kept"
    assert os.listdir(path.parent) == [path.name]


def test_check_writable_names_the_file(path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        checkpoint.check_writable(path.parent / "nowhere" / "model.safetensors")
    assert missing.value.filename == str(path.parent / "nowhere" / "model.safetensors")
    with pytest.raises(IsADirectoryError) as folder:
        checkpoint.check_writable(path.parent)
    assert folder.value.filename == str(path.parent)


@pytest.mark.parametrize("call", ["check_writable('x')", "save('x', {}, {})", "load('x', {})"])
@pytest.mark.parametrize("package", ["numpy", "safetensors"])
def test_without_its_packages_it_names_the_extra(tmp_path: Path, package: str, call: str) -> None:
    script = (
        f"import sys; sys.modules['{package}'] = None\nfrom micrograd.commands import checkpoint\ncheckpoint.{call}"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1
    assert "ImportError: checkpoints need numpy and safetensors: pip install 'micrograd-nn[train]'" in result.stderr
    assert os.listdir(tmp_path) == []
