"""Fast mode (float32, fused multiply-add, reordered sums) that strays further from strict mode than it may."""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from harness import LEVELS, Extension, bits, example, gradients, many, nightly_but, slow_but
from models import REGULAR, dot, mlp, points, recurrence, residual, weights

from benchmarks.small.models import chebyshev_network, logistic_with_l2, numbers, physics_loss
from codegen import Floats, Label, Program, compile_program
from codegen.backends.expressions import Arithmetic
from codegen.ir.loops import Pass
from codegen.mnist import program as mnist_program
from micrograd.data import mnist
from micrograd.functional import cross_entropy

ALL_AT_ONCE = "float32, fused, reordered"
# What a step may differ from strict mode by, relative to the largest number of its kind.
TOLERANCE = {
    "float32": ({"dtype": "float32"}, 2e-5),
    ALL_AT_ONCE: ({"dtype": "float32", "fma": True, "reorder": True}, 2e-5),
    "fused": ({"fma": True}, 1e-13),
    "reordered": ({"reorder": True}, 1e-13),
    "fused, reordered": ({"fma": True, "reorder": True}, 1e-13),
}
MODELS = ["deep_mlp", "convolution", "recurrence", "attention"]


def declared(name: str, **options: object):
    """A model of tests/models.py, with the same weights each time, and other arithmetic."""
    random.seed(3)
    program = {"mnist": mnist_program, "points": points, **REGULAR}[name]()
    return replace(program, **options)


def distance(expected, got) -> float:
    expected, got = np.array(expected), np.array(got)
    return float(np.abs(expected - got).max() / max(np.abs(expected).max(), 1e-30))


CASES = [(name, mode) for name in MODELS for mode in TOLERANCE]
QUICK = [("deep_mlp", "fused")]
CASES += [("mnist", "float32"), ("mnist", ALL_AT_ONCE)]
SLOW = [
    pytest.param(*case, marks=pytest.mark.slow if case[0] == "mnist" or case[1] == ALL_AT_ONCE else pytest.mark.nightly)
    for case in CASES
    if case not in QUICK
]


@pytest.fixture(scope="module")
def strict_mode(tmp_path_factory) -> Callable[[str], Extension]:
    """strict_mode(name) -> that model in strict mode, compiled once, with its first parameters."""
    build = cache(lambda name: Extension(declared(name), tmp_path_factory.mktemp(name), "loops", flags=["-O0"]))

    def get(name: str) -> Extension:
        extension = build(name)
        extension.reset()
        return extension

    return get


@pytest.mark.parametrize(("name", "mode"), [*QUICK, *SLOW])
def test_fast_modes_stay_close_to_strict_mode(name, mode, strict_mode, tmp_path):
    options, tolerance = TOLERANCE[mode]
    strict = strict_mode(name)
    fast = Extension(declared(name, **options), tmp_path, "loops", flags=["-O0"])
    assert distance(strict.data, fast.data) < 1e-7
    rng = random.Random(1)
    for _ in range(3):
        target, inputs = example(strict.program, rng)
        for system in (strict, fast):
            system.zero_grad()
        assert distance(*([system.forward(target, inputs)] for system in (strict, fast))) < tolerance
        for output in strict.program.outputs:
            assert distance(strict.outputs()[output], fast.outputs()[output]) < tolerance
        for system in (strict, fast):
            system.backward()
        assert distance(strict.grads, fast.grads) < tolerance
        for system in (strict, fast):
            system.update()
        assert distance(strict.data, fast.data) < tolerance


@pytest.mark.parametrize("name", nightly_but(["points"], ["mlp", "convolution", "recurrence", "points"]))
def test_float32_alone_has_the_same_bits_at_every_simd_level_and_with_any_number_of_threads(name, tmp_path):
    first = Extension(declared(name, dtype="float32"), tmp_path, "loops", levels=True)
    systems = [first]
    for level in LEVELS:
        with suppress(ImportError):
            systems.append(first.at_level(level))
    assert len(systems) > 1
    data = many(first.program, 70)
    seen = set()
    for threads, system in enumerate(systems, start=1):
        losses = system.module.train(*data, batch_size=33, epochs=2, threads=threads)
        seen.add((*bits(losses), *bits(system.data)))
    assert len(seen) == 1


@pytest.mark.parametrize("write", [logistic_with_l2, slow_but([], [physics_loss])[0]])
def test_groups_of_images_have_the_same_bits_at_every_simd_level_and_with_any_number_of_threads(write, tmp_path):
    """Blocks of 64, 18 and 36 images: whole groups, a part of one, and too few images for groups. Of these models no
    kernel runs image by image, so groups read inputs and targets as they come, misaligned ones too."""
    program = write(numbers(5), numbers(3 if write is logistic_with_l2 else 1))
    strict = Extension(program, tmp_path / "strict", "loops", flags=["-O0"])
    first = Extension(
        replace(program, dtype="float32", reorder=True), tmp_path / "fast", "loops", levels=True, flags=["-O0"]
    )
    systems = [first]
    for level in LEVELS:
        with suppress(ImportError):
            systems.append(first.at_level(level))
    data = many(program, 200)
    seen = set()
    strict.module.train(*data, batch_size=82, epochs=2)
    for threads, system in enumerate(systems, start=1):
        losses = system.module.train(*many(system.program, 200), batch_size=82, epochs=2, threads=threads)
        seen.add((*bits(losses), *bits(system.data)))
        assert distance(strict.data, system.data) < 2e-5
    assert "#define LOADS_GROUPS 1\n" in next((tmp_path / "fast").rglob("model.c")).read_text()
    first.reset()
    losses = first.module.train(*map(misaligned, many(first.program, 200)), batch_size=82, epochs=2)
    seen.add((*bits(losses), *bits(first.data)))
    assert len(seen) == 1


@pytest.mark.parametrize("options", [{"reorder": True}, {"reorder": True, "dtype": "float32"}])
def test_rows_of_inputs_get_the_gradients_of_all_images(options, tmp_path):
    """Rows of a large first layer read inputs and factors of each image, of which groups of images compute the rest."""
    inputs, targets, rng = numbers(1400), numbers(3), random.Random(1)
    first, last = (weights(rng, *shape) for shape in ((12, 1400), (3, 12)))
    hidden = [dot(row, inputs).tanh() for row in first]
    loss = cross_entropy([dot(row, hidden) for row in last], targets)
    program = Program(Floats(inputs), Label(targets), {"first": first, "last": last}, loss)
    strict = Extension(program, tmp_path / "strict", "loops", flags=["-O0"])
    fast = Extension(replace(program, **options), tmp_path / "fast", "loops", flags=["-O0"])
    text = next((tmp_path / "fast").rglob("model.c")).read_text()
    assert "#define ROW_TENSOR_COUNT 1\n" in text
    assert "#define GROUP_GRADIENTS 1\n" in text
    for system in (strict, fast):
        system.module.train(*many(system.program, 150), batch_size=75)  # whole groups, and parts of one
    assert distance(strict.data, fast.data) < 2e-5


def test_fewer_images_than_are_worth_it_lie_side_by_side_nowhere(tmp_path):
    """Two large first layers: only groups of images gain. A C compiler warned of more images than there is room for."""
    inputs, targets, rng = numbers(600), numbers(5), random.Random(1)
    a, b, c = (weights(rng, *shape) for shape in ((30, 600), (30, 600), (5, 30)))
    hidden = [(dot(p, inputs) + dot(q, inputs)).tanh() for p, q in zip(a, b, strict=True)]
    scores = [dot(row, hidden) for row in c]
    program = Program(
        Floats(inputs), Label(targets), {"a": a, "b": b, "c": c}, cross_entropy(scores, targets), {"scores": scores}
    )
    fast = Extension(replace(program, dtype="float32", reorder=True), tmp_path, "loops", flags=["-O0"])
    text = next(tmp_path.rglob("model.c")).read_text()
    fewest, images = (int(re.search(rf"#define {n} (\d+)", text)[1]) for n in ("FEWEST_SIDE_BY_SIDE", "SIDE_BY_SIDE"))
    assert fewest > images
    rng = np.random.default_rng(2)
    images, labels = rng.normal(size=(70, 600)).astype(np.float32), rng.integers(0, 5, 70, dtype=np.uint8)
    losses = [fast.module.evaluate(images[i : i + 1], labels[i : i + 1])[0] for i in range(70)]
    assert fast.module.evaluate(images, labels)[0] == pytest.approx(np.mean(losses), rel=1e-6)


@pytest.mark.parametrize("checked", [False, True])
def test_backward_after_training_is_that_of_the_last_image(checked, tmp_path):
    """Groups of images leave it to no workspace until the last block of a call, or the block behind which it stops."""
    program = replace(logistic_with_l2(numbers(5), numbers(3)), dtype="float32", reorder=True)
    module = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    inputs, targets = many(program, 300)
    if checked:
        inputs[5 * 150] = float("inf")  # an image of the second step, which is not made
    else:
        inputs, targets = inputs[: 5 * 200], targets[:200]
    with pytest.raises(FloatingPointError, match="before step 2") if checked else nullcontext():
        module.train(inputs, targets, batch_size=100, learning_rate=0, check_finite=checked)
    found = []
    for _ in range(2):
        module.zero_grad()
        module.backward()
        found.append(bits(gradients(module)))
        module.forward(targets[199], inputs[5 * 199 : 5 * 200])
    assert found[0] == found[1]
    assert any(gradients(module))


def misaligned(numbers: bytes | array) -> np.ndarray:
    return np.frombuffer(b"\0" + bytes(numbers), np.uint8 if isinstance(numbers, bytes) else np.float32, offset=1)


def gradients_of_groups(program: Program) -> tuple[int, list[int]]:
    """How many gradients groups of images add, and the roots of the others."""
    compiled = compile_program(replace(program, dtype="float32", fma=True, reorder=True))
    assert compiled.batch is not None
    gradients = [kernel for kernel in compiled.loops.kernels if kernel.passes & Pass.DENSE_GRADIENTS]
    beside = {kernel.number for kernel in compiled.batch.gradients.kernels}
    return len(beside), [kernel.roots for kernel in gradients if kernel.number not in beside]


def test_short_lanes_of_gradients_are_groups_of_images():
    """Lanes of six fill less than half of a register of sixteen; sums over images are in registers either way. Lanes of
    sixteen fill it, and sums over images side by side have to be added at the end.
    """
    assert gradients_of_groups(residual(6)) == (6, [])
    assert gradients_of_groups(residual(16)) == (0, [48, 512, 256])


def test_all_gradients_are_those_of_groups_where_nothing_is_copied_then():
    """Lanes of twelve fill a register too, but no image has a workspace if groups add all gradients."""
    assert gradients_of_groups(chebyshev_network(numbers(4), numbers(1))) == (10, [])


@pytest.mark.slow
def test_blocks_of_a_large_model_are_two_groups_of_images(tmp_path):
    """Fewer would be no groups. Blocks of 32, 32 and 18 images, and of 32 and 4."""
    program = replace(recurrence(steps=140, hidden=12), dtype="float32", reorder=True)
    system = Extension(program, tmp_path, "loops", flags=["-O0"])
    text = next(tmp_path.rglob("model.c")).read_text()
    assert "#define BLOCK_IMAGES 32\n" in text
    assert "#define SIDE_BY_SIDE 16\n" in text
    seen = set()
    for threads in (1, 2, 3):
        system.reset()
        losses = system.module.train(*many(program, 118), batch_size=82, threads=threads)
        seen.add((*bits(losses), *bits(system.data)))
    assert len(seen) == 1


@pytest.mark.slow
def test_a_float32_model_speaks_float32(tmp_path):
    extension = Extension(declared("xor", dtype="float32"), tmp_path, "loops", flags=["-O0"])
    nn = extension.module
    info = nn.info()
    assert (info["dtype"], info["mode"], info["fma"], info["reorder"]) == ("float32", "fast", False, False)
    assert (info["input_type"], info["target_type"]) == ("float32", "float32")
    assert {view.format for view in (*nn.state_dict().values(), *nn.grad_dict().values())} == {"f"}
    nn.load_state_dict({name: np.full(view.shape, 0.1, np.float32) for name, view in nn.state_dict().items()})
    assert nn.data(0) == float(np.float32(0.1))
    nn.load_state_dict({name: np.full(view.shape, 0.7).tolist() for name, view in nn.state_dict().items()})
    assert nn.data(0) == float(np.float32(0.7))
    before = extension.data
    assert nn.forward(array("d", [1.0]), [0, 1]) == nn.forward(array("f", [1.0]), array("f", [0.0, 1.0]))
    with pytest.raises(ValueError, match="learning_rate must be finite in float32, got 1e\\+39"):
        nn.update(learning_rate=1e39)
    assert extension.data == before


@pytest.mark.slow
def test_info_says_what_is_on(tmp_path):
    fast = Extension(declared("mlp", fma=True, reorder=True), tmp_path, "loops", levels=True, flags=["-O0"])
    for level in LEVELS:
        with suppress(ImportError):
            info = fast.at_level(level).module.info()
            assert (info["mode"], info["reorder"]) == ("fast", True)
            assert info["fma"] == (level != "baseline")  # x86-64 has had the instruction since AVX2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dtype": "float16"}, ValueError, "dtype must be one of float64, float32, got 'float16'"),
        ({"fma": 1}, TypeError, "fma must be True or False, not 1"),
        ({"reorder": "yes"}, TypeError, "reorder must be True or False, not 'yes'"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        mlp(**options)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0x1.99999ap-4f"), (2.0, "2.0f"), (-3.0, "-3.0f"), (1e300, "INFINITY"), (1e-50, "0x0p+0f")],
)
def test_float32_literals(value, text):
    assert Arithmetic("float32").literal(value) == text


def test_strict_mode_fuses_and_reorders_nothing():
    text = compile_program(mlp()).text
    assert not re.search(r"sum_1|\bfrom <", text)
    assert "MULTIPLY_ADD" not in text
    fast = compile_program(mlp(fma=True, reorder=True)).text
    assert "sum[i] = MULTIPLY_ADD((data + P_LAYERS_0_WEIGHT" in fast


def test_a_long_sum_of_one_lane_is_added_up_in_parts():
    from codegen import Floats, Program
    from micrograd.engine import Value

    def program(**options):
        x, w = [Value(0.0) for _ in range(11)], [Value(1.0) for _ in range(11)]
        y = sum((a * b for a, b in zip(w[1:], x[1:], strict=True)), w[0] * x[0])
        return Program(Floats(x), None, {"w": w}, loss=y, outputs={"y": [y]}, **options)

    assert "for (ptrdiff_t from = 0; from < 2; from++)" in compile_program(program(reorder=True)).text
    assert "ptrdiff_t from" not in compile_program(program()).text


@pytest.mark.nightly
def test_fast_modes_reach_the_same_accuracy_over_five_seeds(tmp_path):
    data = mnist.load(None)
    count = min(20_000, len(data.train_labels))
    images, labels = data.train_images[: 784 * count], data.train_labels[:count]
    modes = {"strict": {}} | {name: options for name, (options, _) in TOLERANCE.items()}
    means, spreads = {}, {}
    for name, options in modes.items():
        nn = Extension(mnist_program(**options), tmp_path, "loops").module
        found = []
        for seed in range(5):
            nn.reset(seed)
            nn.train(images, labels, batch_size=10, learning_rate=0.1, epochs=2, seed=seed)
            found.append(nn.evaluate(data.test_images, data.test_labels)[1])
        means[name], spreads[name] = np.mean(found), np.std(found)
    for name in modes:
        assert abs(means[name] - means["strict"]) < max(2 * spreads["strict"], 0.002), (means, spreads)
