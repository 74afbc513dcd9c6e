"""save_weights and load_weights: files that other readers read otherwise, and files that are not what they seem."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import models
import nn
import numpy as np
import pytest
from harness import Generated
from safetensors.numpy import load_file, save_file

import codegen
from codegen.weights import read_weights


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MICROGRAD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def subjects(cache, tmp_path_factory) -> dict[str, Any]:
    return {
        "nn": nn,
        "float32": codegen.compile(models.mlp_of_floats(dtype="float32"), optimize=0),
        "attention": codegen.compile(models.attention(), optimize=0),
        "in Python": Generated(models.mlp(), tmp_path_factory.mktemp("python")).module,
    }


@pytest.fixture(params=["nn", "float32", "attention", "in Python"])
def module(request, subjects) -> Any:
    found = subjects[request.param]
    found.load_state_dict(numbers(found, 1))
    return found


def numbers(module: Any, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.uniform(-1, 1, v.shape).astype(v.format) for n, v in module.state_dict().items()}


def state(module: Any) -> dict[str, bytes]:
    return {name: view.tobytes() for name, view in module.state_dict().items()}


def test_safetensors_reads_what_is_saved(module, tmp_path):
    path = tmp_path / "größe w.safetensors"
    assert module.save_weights(path) is None
    before = path.read_bytes()
    for found in (load_file(path), read_weights(path)):
        assert set(found) == set(state(module))
        for name, array in found.items():
            assert array.tobytes() == state(module)[name]
            assert array.shape == module.state_dict()[name].shape
    module.save_weights(str(path))
    module.save_weights(os.fsencode(path))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_what_a_killed_process_has_left_is_in_nobodys_way(module, tmp_path):
    """In a container each process may have the same number."""
    for number in (f"{os.getpid()}", f"{os.getpid()}-{threading.get_ident()}"):
        (tmp_path / f"w.{number}.tmp").write_bytes(b"half")
    module.save_weights(tmp_path / "w")
    assert (tmp_path / "w").stat().st_size > 4


def test_what_is_saved_is_loaded(module, tmp_path):
    path = tmp_path / "w"
    expected = state(module)
    module.save_weights(path)
    module.load_state_dict(numbers(module, 2))
    assert state(module) != expected
    assert module.load_weights(path) is None
    assert state(module) == expected


def test_files_of_safetensors_are_loaded(module, tmp_path):
    path = tmp_path / "w"
    expected = numbers(module, 3)
    save_file(expected, path, metadata={"by": "safetensors"})
    module.load_weights(path)
    assert state(module) == {name: array.tobytes() for name, array in expected.items()}


def test_float32_is_widened_and_float64_rounded(subjects, tmp_path):
    path = tmp_path / "w"
    for name in ("nn", "in Python"):
        module = subjects[name]
        narrow = {n: a.astype("f") for n, a in numbers(module, 4).items()}
        save_file(narrow, path)
        module.load_weights(path)
        assert state(module) == {n: a.astype("d").tobytes() for n, a in narrow.items()}
    module = subjects["float32"]
    wide = {n: a.astype("d") + 1e-12 for n, a in numbers(module, 4).items()}
    save_file(wide, path)
    module.load_weights(path)
    assert state(module) == {n: a.astype("f").tobytes() for n, a in wide.items()}


HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C01, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, *range(1, 65536, 2)]


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_numbers_of_two_bytes_are_widened(module, dtype, tmp_path):
    """Subnormal, infinite and nan too. In models, the payload of a nan is nobody's."""
    path, view = tmp_path / "w", module.state_dict()
    halves = {n: np.resize(np.array(HALVES, "<u2"), v.shape) for n, v in view.items()}
    save_file({n: array.view(np.float16) for n, array in halves.items()}, path)
    if dtype == "BF16":
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = content[8 : 8 + length].replace(b'"F16"', b'"BF16"')
        path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    module.load_weights(path)
    found = read_weights(path)
    for name, array in halves.items():
        if dtype == "F16":
            expected = array.view(np.float16).astype("d")
        else:
            expected = (array.astype(np.uint32) << 16).view(np.float32).astype("d")
        assert found[name].dtype == np.float32
        for numbers in (np.array(module.state_dict()[name]), found[name]):
            assert np.array_equal(numbers, expected, equal_nan=True)
            assert (np.signbit(numbers) == np.signbit(expected))[~np.isnan(expected)].all()
    content = path.read_bytes().replace(dtype.encode(), b"F8" + b" " * (len(dtype) - 2), 1)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected F64, F32, F16 or BF16"):
        module.load_weights(path)


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_a_number_is_refused(module, dtype, tmp_path):
    before = state(module)
    name, view = next(iter(module.state_dict().items()))
    header = json.dumps({name: {"dtype": dtype, "shape": view.shape, "data_offsets": [0, 3]}}).encode()
    (tmp_path / "w").write_bytes(len(header).to_bytes(8, "little") + header + b"abc")
    with pytest.raises(ValueError, match=r"not a whole safetensors file: (3 bytes for|bytes length not a multiple)"):
        module.load_weights(tmp_path / "w")
    assert state(module) == before


def test_a_weight_that_is_not_finite_poisons_its_row(tmp_path):
    weights = numbers(nn, 5)
    weights["layers.0.weight"][3, 7] = math.inf
    nn.load_state_dict(weights)
    nn.save_weights(tmp_path / "w")
    nn.reset(1)
    assert math.isfinite(nn.forward(3, bytes(784)))
    nn.load_weights(tmp_path / "w")
    assert math.isnan(nn.forward(3, bytes(784)))
    nn.reset(1)


def file_of(header: Any, content: bytes, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + content


def hostile(module: Any, path: Path) -> dict[str, bytes]:
    module.save_weights(path)
    good = path.read_bytes()
    length = int.from_bytes(good[:8], "little")
    header, content = json.loads(good[8 : 8 + length]), good[8 + length :]
    first, *_, last = header

    def entry(name: str, **changes: Any) -> bytes:
        return file_of(header | {name: header[name] | changes}, content)

    begin, end = header[last]["data_offsets"]
    return {
        "empty": b"",
        "short": good[:7],
        "cut": good[:-1],
        "cut in the header": good[: 8 + length // 2],
        "longer": good + b"\0",
        "no numbers": file_of(header, b""),
        "length 0": file_of(header, content, 0),
        "a huge header": file_of(header, content, 2**64 - 1),
        "a header of all": file_of(header, content, len(good) - 7),
        "no JSON": file_of(b"{" * 40, content),
        "deep": file_of(b"[" * 100_000 + b"]" * 100_000, content),
        "no UTF-8": file_of(b'{"\xff": 1}', content),
        "a list": file_of([1, 2], content),
        "a number": file_of(3, content),
        "an entry of a number": file_of(header | {last: 3}, content),
        "no dtype": file_of(header | {last: {"shape": [1], "data_offsets": [0, 8]}}, content),
        "integers": entry(last, dtype="I64"),
        "a dtype of a list": entry(last, dtype=["F64"]),
        "offsets beyond": entry(last, data_offsets=[begin, end + 8]),
        "offsets before": entry(first, data_offsets=[-8, header[first]["data_offsets"][1]]),
        "offsets backwards": entry(last, data_offsets=[end, begin]),
        "huge offsets": entry(last, data_offsets=[2**70, 2**71]),
        "three offsets": entry(last, data_offsets=[begin, end, end]),
        "offsets of text": entry(last, data_offsets=["0", "8"]),
        "overlap": entry(last, data_offsets=header[first]["data_offsets"]),
        "a shape too large": entry(last, shape=[2**40, 2**40]),
        "a shape below 0": entry(last, shape=[-1, -header[last]["shape"][0]]),
        "a shape of text": entry(last, shape=["x"]),
        "another shape": entry(last, shape=[1, 1, *header[last]["shape"]]),
        "one less": entry(last, shape=[header[last]["shape"][0] - 1]),
        "another name": file_of({"x" + n if n == last else n: e for n, e in header.items()}, content),
    }


def test_what_is_no_whole_file_is_refused(module, tmp_path):
    path = tmp_path / "w"
    before = state(module)
    for what, content in hostile(module, path).items():
        path.write_bytes(content)
        said = rf"^{path} is not a whole safetensors file: .|must have the shape|is not a parameter|is missing"
        with pytest.raises(ValueError, match=said):
            module.load_weights(path)
        assert state(module) == before, what


def test_damaged_bytes_are_refused_or_read_as_weights(module, tmp_path):
    path = tmp_path / "w"
    module.save_weights(path)
    good, rng, before = path.read_bytes(), random.Random(1), state(module)
    length = int.from_bytes(good[:8], "little")
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(rng.choice([1, 1, 3])):
            damaged[rng.randrange(8 + length)] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            module.load_weights(path)
        except (ValueError, TypeError):
            assert state(module) == before
        module.load_state_dict(
            {
                n: np.frombuffer(b, v.format).reshape(v.shape)
                for (n, b), v in zip(before.items(), module.state_dict().values(), strict=True)
            }
        )


@pytest.mark.skipif(sys.platform == "win32", reason="has no pipes and devices in folders")
def test_neither_pipes_nor_devices_nor_folders_are_read(module, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(ValueError, match="is not a file"):
            module.load_weights(path)
    with pytest.raises(ValueError, match="pipe is not a file"):
        module.save_weights(tmp_path / "pipe")
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(sys.platform == "win32", reason="another error")
def test_a_file_that_cannot_be_written_leaves_the_old_one(module, tmp_path, monkeypatch):
    path = tmp_path / "w"
    module.save_weights(path)
    before = path.read_bytes()
    module.load_state_dict(numbers(module, 6))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            with pytest.raises(OSError, match="No space left on device"):
                module.save_weights(path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["w"]
    with pytest.raises(IsADirectoryError):
        module.save_weights(tmp_path)
    assert os.listdir(tmp_path) == ["w"]


@pytest.mark.skipif(sys.platform == "win32", reason="a link is for those who may make one")
def test_a_link_stays_one_and_the_file_behind_it_keeps_its_permissions(module, tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    module.save_weights(tmp_path / "link")
    assert os.readlink(tmp_path / "link") == "real"
    module.load_weights(tmp_path / "real")
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600


def test_read_weights_refuses_what_modules_refuse(tmp_path):
    path = tmp_path / "w"
    for what, content in hostile(nn, path).items():
        path.write_bytes(content)
        if what in ("another name", "another shape"):  # of another model, but whole
            read_weights(path)
            continue
        with pytest.raises(ValueError, match=f"^{path}: ") as caught:
            read_weights(path)
        assert type(caught.value) is ValueError, what


def test_read_weights_refuses_holes_and_what_lies_in_two_tensors(tmp_path):
    """All bytes belong to one tensor each; and natural numbers are ints."""
    path = tmp_path / "w"
    places = ((0, 8), (16, 24), 24), ((0, 8), (0, 8), 8), ((0, 16), (8, 16), 16), ((0, 8), (8, 16), 24)
    for first, second, size in places:
        shapes = [(end - begin) // 8 for begin, end in (first, second)]
        header = {
            name: {"dtype": "F64", "shape": [n], "data_offsets": place}
            for name, n, place in zip("ab", shapes, (first, second), strict=True)
        }
        path.write_bytes(file_of(header, bytes(size)))
        with pytest.raises(ValueError, match=r"is not where the header says|8 bytes too many"):
            read_weights(path)
    for entry in ({"shape": [1.0]}, {"shape": [True]}, {"shape": [-1, -1]}, {"data_offsets": [0, 8.0]}):
        path.write_bytes(file_of({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]} | entry}, bytes(8)))
        with pytest.raises(ValueError, match="a shape or offset that is not a natural number"):
            read_weights(path)
