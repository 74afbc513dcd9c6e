"""Weight files: a reader that takes one tensor for another, or crashes on a damaged file."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from codegen.weights import read_weights


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
        (json.dumps({"a": ENTRY | {"more": math.nan}}), "NaN is no number of JSON"),
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
