"""Weights in one or two bytes: rounded otherwise than it says, or widened to other numbers than the rounded ones."""

from __future__ import annotations

import math
import random
import subprocess
from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import bits, example, nightly_but
from models import REGULAR, affine, values
from models import weights as drawn
from test_freeze import COMPILERS, MAIN, compare_outputs, frozen_modules, small_mlp

from codegen import Floats, Pixels, Program, freeze
from codegen.passes.freeze import frozen_program, narrow, rounded, weights_of
from codegen.pipeline import compile_program
from codegen.program import STORAGES
from micrograd.engine import Value
from micrograd.matching import widened


def odd_numbers() -> np.ndarray:
    """Ties, subnormals and the largest of each type, and numbers at random."""
    rng = np.random.default_rng(1)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(float)
    ties = (halves[:-1] + halves[1:]) / 2
    spread = rng.standard_normal(2000) * 2.0 ** rng.integers(-30, 15, 2000)
    found = np.concatenate([halves, ties, np.nextafter(ties, 0), np.nextafter(ties, 9e9), spread])
    return np.concatenate([found, -found])


def test_float16_is_rounded_as_numpy_rounds():
    numbers = odd_numbers()
    assert (rounded("float16", numbers) == numbers.astype(np.float16)).all()
    assert np.isinf(rounded("float16", np.array([65520.0, -1e300]))).all()
    assert rounded("float16", np.array([65519.9])) == [65504]


def test_bfloat16_is_rounded_to_the_nearest_even():
    bits = np.arange(0x7F80, dtype=np.uint32) << 16
    exact = bits.view(np.float32).astype(float)
    assert (rounded("bfloat16", exact) == exact).all()
    ties = (exact[:-1] + exact[1:]) / 2
    even = np.where(np.arange(len(ties)) % 2 == 0, exact[:-1], exact[1:])
    assert (rounded("bfloat16", ties) == even).all()
    assert (rounded("bfloat16", np.nextafter(ties, 0)) == exact[:-1]).all()
    assert (rounded("bfloat16", np.nextafter(ties, math.inf)) == exact[1:]).all()
    assert np.isinf(rounded("bfloat16", np.array([3.4e38]))).all()


def test_int8_has_a_scale_a_row_whose_products_are_exact():
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((50, 30)) * 2.0 ** rng.integers(-60, 60, (50, 1))
    weights[7] = 0
    found, stored = rounded("int8", weights), narrow("int8", weights)
    assert stored.numbers.dtype == np.int8
    assert stored.scales.shape == (50,)
    assert (np.abs(stored.numbers).max(axis=1) == [127 * (i != 7) for i in range(50)]).all()
    products = stored.numbers.astype(np.float32) * stored.scales[:, None]
    assert (products == found).all()
    assert not np.signbit(found[found == 0]).any()
    assert (np.abs(found - weights) <= 0.51 * stored.scales[:, None]).all()
    assert (rounded("int8", np.array([2.5, 3.5, 127.0])) == [2, 4, 127]).all()  # ties to even


@pytest.mark.parametrize("storage", STORAGES)
def test_rounding_again_changes_nothing(storage):
    rng = np.random.default_rng(3)
    for weights in (rng.standard_normal((40, 7)), rng.standard_normal(9) * 1e-30, np.array(0.3), np.zeros((2, 0))):
        once = rounded(storage, weights)
        assert once.shape == weights.shape
        assert (rounded(storage, once) == once).all()
        again = narrow(storage, once)
        if storage == "int8":
            assert len(again.scales) == (weights.shape[0] if weights.ndim > 1 else 1)
        else:
            assert (
                widened({"float16": "F16", "bfloat16": "BF16"}[storage], again.numbers.tobytes()) == once.ravel()
            ).all()


CASES = [(storage, dtype) for storage in STORAGES for dtype in ("float32", "float64")]


@pytest.mark.parametrize("case", nightly_but([CASES[1]], CASES), ids=str)
def test_a_narrow_module_has_the_bits_of_one_with_the_widened_weights(case, tmp_path):
    storage, dtype = case
    program = replace(REGULAR["convolution"](), dtype=dtype, storage=storage)
    given = weights_of(program)
    modules = frozen_modules(program, tmp_path)
    assert modules[0].info()["weight_type"] == storage
    assert any((rounded(storage, given[name]) != given[name]).any() for name in given)
    wide = replace(REGULAR["convolution"](), dtype=dtype)
    wide_weights = {name: rounded(storage, weights) for name, weights in given.items()}
    frozen_program(wide, wide_weights)  # which sets them
    if dtype == "float64":
        compare_outputs(wide, modules)
    (plain, *_) = frozen_modules(wide, tmp_path)
    assert plain.info()["weight_type"] != storage
    assert plain.info()["weights"] == modules[0].info()["weights"]
    rng = random.Random(4)
    for _ in range(20):
        inputs = bytes(rng.choices(range(256), k=len(wide.input_values)))
        for module in modules:
            assert module.outputs(inputs) == plain.outputs(inputs)


def test_weights_that_a_type_cannot_hold_are_refused():
    weights = weights_of(small_mlp())
    weights["v"][0, 0] = 1e5
    with pytest.raises(ValueError, match=r"the weights 'v' are too large for float16: 100000\.0"):
        frozen_program(replace(small_mlp(), storage="float16"), weights)
    frozen_program(replace(small_mlp(), storage="bfloat16"), weights)
    frozen = replace(frozen_program(small_mlp(), weights_of(small_mlp())), storage="int8")
    with pytest.raises(ValueError, match=r"int8 does not hold the weights 'w' exactly: codegen\.freeze rounds them"):
        compile_program(frozen)


# Plain C, which widens a weight when it reads it


def plain_outputs(program: Program, folder: Path, compiler: str, images: list) -> list[float]:
    """What plain C makes of images."""
    freeze(program, weights_of(program), folder, "model", target="c")
    real = "float" if program.dtype == "float32" else "double"
    is_pixels = isinstance(program.inputs, Pixels)
    main = MAIN.replace("INPUT_TYPE", "unsigned char" if is_pixels else real).replace("OUTPUT_TYPE", real)
    (folder / "main.c").write_text(main)
    flags = [] if compiler == "tcc" else ["-std=c11", "-O2", "-pedantic", "-Wextra", "-Werror", "-ffp-contract=off"]
    subprocess.run([compiler, *flags, "-Wall", "main.c", "model.c", "-o", "main", "-lm"], cwd=folder, check=True)
    typecode = "B" if is_pixels else real[0]
    stream = b"".join(array(typecode, image).tobytes() for image in images)
    done = subprocess.run([folder / "main"], input=stream, capture_output=True, check=True)
    return [float.fromhex(x) for x in done.stdout.decode().split()]


def rows_of_columns() -> Program:
    """Parameters whose rows are read backwards, in strides, and in an order that no loop has."""
    rng = random.Random(7)
    x, w, v = values(6), drawn(rng, 5, 6), drawn(rng, 4, 3, 2)
    some = [w[i][j] * x[j] for i, j in ((0, 0), (3, 1), (1, 5), (4, 2), (2, 2), (0, 4))]
    order = [a + b for a, b in zip(affine(w[::-1], w[0][:5], x), affine(w, w[1][:5], x), strict=True)]
    cubes = [sum((v[3 - i][k][1] * x[k] for k in range(3)), v[i][0][0]) for i in range(4)]
    return Program(Floats(x), None, {"w": w, "v": v, "s": Value(0.7)}, None, {"out": [*some, *order, *cubes]})


def rows_at_random() -> Program:
    rng = random.Random(8)
    x, w = values(6), drawn(rng, 20, 30)
    out = [rng.choice(rng.choice(w)) * rng.choice(x) for _ in range(60)]
    return Program(Floats(x), None, {"w": w}, None, {"out": out})


PLAIN = {name: REGULAR[name] for name in ("mlp", "convolution", "attention", "recurrence")} | {
    "odd": rows_of_columns,
    "random": rows_at_random,
}
PLAIN_CASES = [(name, storage, "float32") for name in PLAIN for storage in ("int8", "float16")]
QUICK = [("odd", "int8", "float32")]
PLAIN_CASES += [("mlp", "bfloat16", "float32"), ("mlp", "int8", "float64"), ("odd", "float16", "float64")]


@pytest.mark.skipif(not COMPILERS, reason="no C compiler: gcc, clang or tcc")
@pytest.mark.parametrize("case", nightly_but(QUICK, PLAIN_CASES), ids=str)
@pytest.mark.parametrize("compiler", nightly_but(COMPILERS[:1], COMPILERS))
def test_plain_c_has_the_bits_of_the_module(case, compiler, tmp_path):
    name, storage, dtype = case
    program = PLAIN[name]()
    first = next(iter(program.outputs.values()))
    program = replace(program, dtype=dtype, storage=storage, outputs={"out": first}, prediction=None)
    rng = random.Random(5)
    images = [example(program, rng)[1] for _ in range(6)]
    found = plain_outputs(program, tmp_path, compiler, images)
    *_, module = frozen_modules(program, tmp_path)
    typecode = "B" if isinstance(program.inputs, Pixels) else "d"
    expected = [x for image in images for x in module.outputs(array(typecode, image))["out"]]
    assert bits(found) == bits(expected)
    assert len(set(found)) > len(found) // 3
    text = (tmp_path / "model.c").read_text()
    assert {"int8": "int8_t weights[", "float16": "uint16_t weights[", "bfloat16": "uint16_t weights["}[storage] in text
    assert "static ALIGNED real data" not in text


def test_scales_are_read_by_counters_and_else_by_a_table():
    texts = {name: compile_program(frozen_plain(make()), target="c").text for name, make in PLAIN.items()}
    assert "* scales[i]" in texts["mlp"]
    assert "* scales[8 - i]" in texts["odd"]
    assert [name for name, text in texts.items() if "rows_of_weights[" in text] == ["random"]


def frozen_plain(program: Program) -> Program:
    return frozen_program(replace(program, storage="int8"), weights_of(program))


@pytest.mark.parametrize("options", [{"target": "python"}, {"lowering": "straightline"}])
def test_storage_is_for_modules_and_plain_c(options):
    with pytest.raises(ValueError, match="storage='int8' is for a module or plain C, with loops"):
        compile_program(frozen_plain(small_mlp()), **options)
