"""Weight files: a reader that takes one tensor for another, or crashes on a damaged file."""

from __future__ import annotations

import json
import math
import random
import re

import numpy as np
import pytest

from codegen.weights import read_weights
from micrograd.commands.checkpoint import load, save


def test_read_weights_reads_what_safetensors_writes(tmp_path):
    from safetensors.numpy import save_file

    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b.c": np.array(1.5),
        "empty": np.zeros((0, 3)),
        "ä": np.array([5e-324, -0.0, math.inf]),
    }
    path = tmp_path / "w.safetensors"
    save_file(tensors, path, {"made": "by hand"})
    found = read_weights(path)
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].tobytes() == tensor.tobytes()


ENTRY = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
HUGE = ENTRY | {"shape": [0, 2**64], "data_offsets": [0, 0]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (f'{{"a": {json.dumps(ENTRY)}, "a": {json.dumps(ENTRY)}}}', "stands there twice, among .'a', 'a'"),
        ('{"a": {"dtype": "F64", "dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}', "stands there twice"),
        (json.dumps({"a": ENTRY | {"more": math.nan}}), "nan is no number of JSON"),
        (json.dumps({"a": HUGE, "b": ENTRY}), r"the tensor 'a' has the shape \(0, 18446744073709551616\)"),
        (json.dumps({"a": HUGE | {"shape": [0] * 65}, "b": ENTRY}), r"the tensor 'a' has the shape \(0, 0, "),
    ],
)
def test_read_weights_refuses_what_no_array_can_be_and_names_that_stand_twice(header, message, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(8))
    with pytest.raises(ValueError, match=message) as caught:
        read_weights(path)
    assert str(path) in str(caught.value)


DEEPEST = 125  # within the header, a tensor's entry and a member of it


@pytest.mark.parametrize(
    ("metadata", "more", "is_right"),
    [
        ("null", "0", True),
        ('{"a": "\\ud83d\\ude00"}', '{"a": [null, 1e308, -0, "\\u0000"]}', True),
        ("{}", "[" * DEEPEST + "]" * DEEPEST, True),
        ("{}", "1" * 309, True),
        *((metadata, "0", False) for metadata in ("[]", "0", "false", '""', '{"a": 1}', '{"a": null}', '{"a": ["b"]}')),
        *((f'{{"{key}": "{text}"}}', "0", False) for key, text in (("\\ud800", "b"), ("a", "\\udc00"))),
        *((f'{{"sha256": "{text}"}}', "0", False) for text in ("", "0" * 64, "\\ud800")),
        *(("null", more, False) for more in ("1e400", "-1e400", "1" * 310, "Infinity", '"\\ud800"', '{"\\udc00": 1}')),
        ("null", "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), False),
        ("null", '{"a":' * (DEEPEST + 1) + "1" + "}" * (DEEPEST + 1), False),
    ],
)
def test_both_readers_take_the_headers_that_the_format_allows(metadata, more, is_right, tmp_path):
    """The format's own reader does not know of our checksum, nor ask for metadata that fit it."""
    path = tmp_path / "w.safetensors"
    header = f'{{"a": {json.dumps(ENTRY)[:-1]}, "more": {more}}}, "__metadata__": {metadata}}}'.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    for read in (read_weights, lambda path: load(path, {"a": (1,)})):
        if is_right:
            assert read(path) == {"a": [0]}
        else:
            with pytest.raises(ValueError, match=re.escape(str(path))):
                read(path)


def test_read_weights_notices_a_number_that_changed_since_it_was_saved(tmp_path):
    path = tmp_path / "w.safetensors"
    save(path, {"w": np.arange(4.0)}, {"epochs": "1"})
    assert read_weights(path)["w"].tolist() == [0, 1, 2, 3]
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(ValueError, match=r"damaged: its SHA-256 is [0-9a-f]{64}, but it says [0-9a-f]{64}"):
        read_weights(path)


def test_read_weights_never_takes_a_damaged_file_for_another(tmp_path):
    """Cut anywhere, or with any byte changed: an error, or a file that safetensors reads in the same way."""
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    whole = save({"w": np.arange(4.0), "b": np.float32([1, 2])})
    path = tmp_path / "w.safetensors"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"w\.safetensors"):
            read_weights(path)
    rng = random.Random(0)
    for _ in range(1500):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] = rng.randrange(256)
        path.write_bytes(changed)
        try:
            found = read_weights(path)
        except ValueError:
            continue
        try:
            expected = load(bytes(changed))
        except (SafetensorError, json.JSONDecodeError) as error:
            pytest.fail(f"safetensors refuses {bytes(changed)!r}: {error}")
        assert {k: (v.shape, v.tobytes()) for k, v in found.items()} == {
            k: (v.shape, v.tobytes()) for k, v in expected.items()
        }
