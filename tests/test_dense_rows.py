"""Rows of floats: some images add theirs together where none of their inputs is 0, and some rows add all images.

The pass on the loop language first, then modules, in which some images have zeros. The bits are those of one image
after the other.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from harness import LEVELS, Extension, bits, nightly_but, train_by_hand
from models import affine, values, weights
from test_rows import wide_rows

from codegen import Floats, Pixels, Program
from codegen.ir.loops import VALUE, Pass
from codegen.pipeline import build_graph, compile_program, reroll
from codegen.reference.interpret import State, run, run_batch
from codegen.reference.verify_loops import verify_loops
from codegen.schedule.pipeline import c_passes, dense_passes, schedule, stages
from codegen.schedule.skip_zeros import IMAGES, more_images
from codegen.schedule.target import NARROW, Target
from micrograd import optim
from micrograd.functional import mse

pytestmark = pytest.mark.usefixtures("rows_of_any_size")
INPUTS = 156  # nine times 16 rows, and 12
RULES = {"descent": None, "adam": optim.adam()}


def rows(lanes: int, pixels: bool = False) -> Program:
    rng = random.Random(2)
    x, y = values(INPUTS), values(lanes)
    w, b = weights(rng, lanes, INPUTS), weights(rng, lanes)
    out = [h.tanh() for h in affine(w, b, x)]
    inputs, parameters = Pixels(x, scale=1 / 255) if pixels else Floats(x), {"w": w, "b": b}
    return Program(inputs, Floats(y), parameters, loss=mse(out, y), outputs={"out": out})


CASES = [*product([3, 32, 40, 130], ["float64", "float32"])]
FUSED = [(lanes, "float32", True) for lanes in (3, 130)]


def test_how_many_images_go_together():
    """As many as a tile has rows, which is no more than a few where it has several lines."""
    assert [more_images(target) for target in (Target(), Target("float32"), Target(fma=True))] == [16, 16, 0]
    assert more_images(Target().at(NARROW)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", [*((*case, False) for case in CASES), *FUSED])
def test_images_together_have_the_sums_of_each(case):
    """Fewer lanes than a tile has, a whole one, a rest, and several with a rest."""
    lanes, dtype, fma = case
    program, target = rows(lanes), Target(dtype, fma)
    found = reroll(build_graph(program), program, target.cache_line)
    rng = random.Random(3)
    data = [rng.uniform(-1, 1) for _ in range(found.layout.data_count)]

    def sums(loops, passes, images):
        length = loops.lengths[VALUE]
        values = [[*image, *[None] * (length - INPUTS)] for image in images]
        state = State(loops, data, [], values, [range(INPUTS)] * len(images))
        starts = schedule(found, c_passes(found, target), without=["roll"])
        run_batch(replace(state, loops=starts), Pass.ROW_STARTS)
        (run_batch if passes == Pass.ROW_SUMS else run)(state, passes)
        region = next(region for region in loops.regions[VALUE] if region.name.startswith("SUMS"))
        return [bits(image[region.start : region.start + lanes]) for image in state.images]

    *_, (name, dense) = stages(found, dense_passes(found, target))
    verify_loops(dense)
    counts = {Pass.DENSE_ROWS: IMAGES} | ({} if fma else {Pass.MORE_DENSE_ROWS: more_images(target)})
    assert [kernel.passes for kernel in dense.kernels] == [*counts]
    for passes, count in counts.items():
        images = [[rng.uniform(-1, 1) for _ in range(INPUTS)] for _ in range(count)]
        alone = sums(schedule(found, c_passes(found, target)), Pass.ROW_SUMS, images)
        assert sums(dense, passes, images) == alone, (name, passes)


def test_only_modules_that_train_on_floats_have_them():
    program = rows(8)
    text = compile_program(program, "m").files
    assert "add_dense_rows" in text["m_kernels.h"]
    assert "add_more_dense_rows" in text["m_kernels.h"]
    assert "add_more_dense_rows" not in text["m_kernels_narrow.h"]
    for other in (rows(8, pixels=True), replace(program, loss=None, targets=None)):
        kernels = compile_program(other, "m").files["m_kernels.h"]
        assert "w->active" in kernels
        assert "dense_rows" not in kernels


def some_zeros(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of which most have no zero, some have one, and one has nothing else."""
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(count, INPUTS))
    inputs[5, 70], inputs[6, 0], inputs[11 % count, INPUTS - 1], inputs[count - 1] = 0, 0, -0.0, 0
    return inputs, rng.normal(size=(count, 130))


@pytest.mark.parametrize("rule", nightly_but(["descent"], ["descent", "adam"]))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batches_have_the_bits_of_one_image_after_the_other(dtype, rule, tmp_path):
    program = replace(wide_rows(False), dtype=dtype, update=RULES[rule], fma=dtype == "float32")
    first = Extension(program, tmp_path, "loops", levels=True, flags=["-O0"])
    inputs, targets = (x.astype(dtype) for x in some_zeros(93))
    dense = np.where(inputs == 0, 0.5, inputs).astype(dtype)
    for level in LEVELS:
        with suppress(ImportError):
            module = first.at_level(level).module
            for images, batch_size in ((inputs, 20), (dense, 7), (dense, 93), (inputs, 93)):
                after = []
                for threads in (0, 1, 2):
                    module.reset()
                    module.zero_grad()
                    if threads:
                        module.train(images, targets, batch_size=batch_size, threads=threads, learning_rate=0.01)
                    else:
                        train_by_hand(module, images, targets, batch_size, 0.01)
                    after.append((bits(module.flat_data()), bits(module.flat_grad())))
                assert after[1:] == after[:1] * 2, (level, batch_size)


@pytest.mark.slow
def test_accumulated_gradients_of_dense_rows(tmp_path):
    module = Extension(wide_rows(False), tmp_path, "loops", flags=["-O0"]).module
    inputs, targets = some_zeros(70)
    inputs[inputs == 0] = 1.5
    module.zero_grad()
    for image, target in zip(inputs, targets, strict=True):
        module.forward(target, image)
        module.backward()
    expected = bits(module.flat_grad())
    for threads in (1, 2):
        module.zero_grad()
        module.accumulate(inputs, targets, threads=threads)
        assert bits(module.flat_grad()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_predictions_of_a_batch_have_the_bits_of_single_images(dtype, tmp_path):
    """Of 32 images and a rest, of which some have zeros, on any number of threads."""
    program = replace(wide_rows(False), dtype=dtype, fma=dtype == "float32")
    first = Extension(program, tmp_path, "loops", levels=True, flags=["-O0"])
    inputs, targets = (x.astype(dtype) for x in some_zeros(93))
    for level in LEVELS:
        with suppress(ImportError):
            module = first.at_level(level).module
            module.train(inputs, targets, batch_size=20, learning_rate=0.01)
            losses = [module.forward(target, image) for target, image in zip(targets, inputs, strict=True)]
            for count, threads in product((93, 33, 12, 1), (1, 2)):
                outputs = module.outputs_batch(inputs[:count], threads=threads)
                for name, numbers in outputs.items():
                    alone = [module.outputs(image)[name] for image in inputs[:count]]
                    assert np.asarray(numbers).tobytes() == np.array(alone, dtype).tobytes()
                mean, _ = module.evaluate(inputs[:count], targets[:count], threads=threads)
                assert mean == sum(losses[:count]) / count
