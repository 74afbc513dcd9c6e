"""outputs_batch and probabilities_batch: the bits of outputs(), for ragged batches, any number of threads, every level.

What images side by side compute must not depend on where an image stands in a batch. Bad input: test_bad_input.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import ChainMap
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from harness import Extension, many, slow_but

import codegen
from codegen import Floats, Label, Program
from codegen.passes.freeze import weights_of
from micrograd.engine import Value

KINDS = {
    "perceptron": models.mlp,
    "floats": models.mlp_of_floats,
    "convolution": lambda **options: models.convolution(),
    "attention": lambda **options: models.attention(),
    "recurrence": models.recurrence,
    "residual": models.residual,
}
COUNTS = (1, 2, 7, 8, 9, 15, 16, 17, 100)


def rows_of(images: Any, count: int) -> np.ndarray:
    return np.frombuffer(images, np.uint8 if isinstance(images, bytes) else images.typecode).reshape(count, -1)


def check(module: Any, program: Program) -> None:
    images, _ = many(program, max(COUNTS), seed=3)
    rows = rows_of(images, max(COUNTS))
    expected = [module.outputs(row) for row in rows]
    for count in COUNTS:
        for threads in (1, 3):
            found = module.outputs_batch(rows[:count], threads=threads)
            for name, array in found.items():
                assert array.shape == (count, len(program.outputs[name]))
                bits = [np.asarray(one[name]).astype(array.format).tobytes() for one in expected[:count]]
                assert [row.tobytes() for row in np.asarray(array)] == bits, (name, count, threads)


@pytest.mark.parametrize("kind", slow_but(["perceptron"], KINDS))
def test_each_row_has_the_bits_of_a_single_image(kind, tmp_path):
    program = KINDS[kind]()
    check(Extension(program, tmp_path, "loops", flags=["-O0"]).module, program)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"fma": True}], ids=str)
def test_fast_models_too(options, tmp_path):
    program = models.mlp_of_floats(**options)
    check(Extension(program, tmp_path, "loops", flags=["-O0"]).module, program)


@pytest.mark.slow
def test_frozen_and_straightline_models_too(tmp_path):
    program = models.mlp()
    module = codegen.load_extension(codegen.freeze(program, weights_of(program), tmp_path, "frozen_net", flags=["-O0"]))
    check(module, program)
    check(Extension(program, tmp_path, "straightline", flags=["-O0"]).module, program)


@pytest.mark.parametrize("level", ["baseline", "avx2"])
def test_every_level_computes_the_same(level):
    """In a process of its own, as a level is chosen when a module is loaded."""
    code = (
        "import hashlib, nn, random\n"
        "images = random.Random(1).randbytes(784 * 37)\n"
        "found = nn.outputs_batch(images)\n"
        "print(nn.info()['simd'], hashlib.sha256(b''.join(bytes(array) for array in found.values())).hexdigest())\n"
    )

    def run(level: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NN_SIMD": level},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if "the levels of this module on this processor" in done.stderr:
            pytest.skip(f"no {level} here")
        return done.stdout.split()

    best = run("")
    assert len(best) == 2
    assert run(level) == [level, best[1]]


def test_results_are_memory_that_numpy_shares_and_may_be_the_callers(tmp_path):
    program = models.mlp()
    net = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    images, _ = many(program, 21, seed=3)
    found = net.outputs_batch(images)
    array = np.asarray(found["logits"])
    array[0, 0] = 7.0
    assert found["logits"][0, 0] == 7.0
    expected = np.asarray(net.outputs_batch(images)["probabilities"])
    room = np.full((21, 5), np.nan)
    assert net.probabilities_batch(images, out=room) is room
    assert np.array_equal(room, expected)
    room[:] = np.nan
    only = net.outputs_batch(images, out={"probabilities": room}, threads=2)
    assert list(only) == ["probabilities"]
    assert only["probabilities"] is room
    assert np.array_equal(room, expected)
    seen: list[tuple[int, int, None]] = []
    net.probabilities_batch(images, progress=lambda *done: seen.append(done))
    assert seen[-1] == (21, 21, None)


class Has(dict):
    """Something for any name, and no names."""

    def __missing__(self, name: str) -> Any:
        return np.zeros(5)


def test_a_mapping_that_has_more_than_it_says(tmp_path):
    net = Extension(models.mlp(), tmp_path, "loops", flags=["-O0"]).module
    with pytest.raises(ValueError, match="out must name outputs of this model"):
        net.outputs_batch(bytes(12), out=Has())


def test_outputs_do_not_share_memory(tmp_path):
    net = Extension(models.mlp(), tmp_path, "loops", flags=["-O0"]).module
    images, _ = many(models.mlp(), 21, seed=3)
    room = np.full(21 * 10, 7.0)
    for out in (
        {"logits": room[:105], "probabilities": room[1:106]},
        {"probabilities": room[104:209], "logits": room[:105]},
    ):
        with pytest.raises(ValueError, match=r"out for '\w+' must not overlap the inputs or another output"):
            net.outputs_batch(images, out=out)
    assert (room == 7.0).all()
    out = ChainMap({"logits": room[:105]}, {"probabilities": room[105:]})
    assert list(net.outputs_batch(images, out=out)) == ["logits", "probabilities"]
    both = np.asarray(net.outputs_batch(images)["probabilities"])
    assert np.array_equal(room[105:].reshape(21, 5), both)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["extension", "python"])
def test_a_threshold_makes_classes_of_one_output(target, tmp_path):
    x, t = [Value(0.0), Value(0.0)], Value(0.0)
    w = [Value(0.7), Value(-0.4)]
    out = (w[0] * x[0] + w[1] * x[1]).tanh()
    program = Program(Floats(x), Floats([t]), {"w": w}, (out - t) ** 2, {"out": [out]}, threshold=0.25)
    if target == "python":
        path = codegen.build(program, tmp_path, "above", target="python")
        sys.path.insert(0, str(path.parent))
        try:
            import above as net  # type: ignore[import-not-found]
        finally:
            sys.path.remove(str(path.parent))
    else:
        net = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    rows = np.random.default_rng(2).normal(size=(50, 2))
    rows[0] = 0.0
    targets = np.random.default_rng(3).normal(size=50)
    values = np.asarray(net.outputs_batch(rows)["out"])[:, 0]
    expected = (values > 0.25).astype(int)
    assert 5 < expected.sum() < 45
    assert list(net.predict_batch(rows)) == expected.tolist() == [net.predict(row) for row in rows]
    assert net.evaluate(rows, targets)[1] == np.mean((targets > 0.25) == expected)


def test_a_threshold_needs_a_prediction_of_one_element():
    x, t = Value(0.0), [Value(0.0), Value(0.0)]
    with pytest.raises(ValueError, match="a prediction of one element, but this one has 2 elements"):
        Program(Floats([x]), Label(t), {}, x * t[0] * t[1], {"out": [x, x * 2]}, threshold=0.5, prediction="out")
    with pytest.raises(ValueError, match="a prediction of one element, but this one has none"):
        Program(Floats([x]), Label(t), {}, x * t[0] * t[1], threshold=0.5)
    with pytest.raises(ValueError, match="the threshold must be finite, got nan"):
        Program(Floats([x]), None, {}, x * x, {"out": [x]}, threshold=float("nan"))
