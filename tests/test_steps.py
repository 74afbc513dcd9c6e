"""Steps that store no gradient: batches of one image in train(). The bits are those of zero_grad, backward and update.

Passes on the loop language first, then modules, whose gradients after a call are those of the last image.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import models
import pytest
from harness import LEVELS, Extension, bits, compare, many, nightly_but, slow_but, train_by_hand
from test_schedule import one_image

from codegen import Floats, Program
from codegen.ir.loops import DATA, Pass
from codegen.pipeline import build_graph, compile_program, reroll
from codegen.reference.interpret import State, run
from codegen.reference.print_loops import kernel_lines
from codegen.reference.verify_loops import verify_loops
from codegen.schedule.pipeline import schedule, stages, step_passes
from codegen.schedule.target import Target
from micrograd import optim
from micrograd.engine import Value

RATE = 0.37


def with_l2() -> Program:
    """A gradient that reads its own parameter, which changes only afterwards."""
    x, w = models.values(6), models.weights(Random(3), 4, 6)
    norm = models.total([p * p for row in w for p in row])
    out = [models.total([p * xi for p, xi in zip(row, x, strict=True)]).tanh() for row in w]
    return Program(Floats(x), None, {"w": w}, models.total([y * y for y in out]) + norm * 0.01)


def product_of_parameters() -> Program:
    """Gradients that read other parameters."""
    (x,), (v, w) = models.values(1), models.weights(Random(3), 2)
    return Program(Floats([x]), None, {"v": v, "w": w}, (v * w * x - 1) ** 2)


def many_terms() -> Program:
    """Gradients of 21 terms in a list, or more. With 49 of them, gcc took minutes over their steps.

    A network at 32 points and beside some of them: those of the Thue-Morse sequence, which has nothing three times in a
    row that could be a loop.
    """
    x, rng = models.values(32), Random(3)
    w, b, v = (models.weights(rng, 4) for _ in range(3))
    at = [xi + 0.1 if i.bit_count() % 2 else xi for i, xi in enumerate(x)]
    outs = [models.total([(p * xi + q).tanh() * r for p, q, r in zip(w, b, v, strict=True)]) for xi in at]
    return Program(Floats(x), None, {"w": w, "b": b, "v": v}, models.total([y * y for y in outs]))


STEPPING = {name: write for name, write in models.REGULAR.items() if name != "edges"} | {"L2": with_l2}
STORING = {"product": product_of_parameters, "edges": models.edges, "terms": many_terms}


@pytest.mark.parametrize("name", slow_but(["mlp", "L2"], [*STEPPING]))
def test_each_pass_keeps_every_bit(name):
    program, target = STEPPING[name](), Target()
    found = reroll(build_graph(program), program, target.cache_line)
    image = one_image(program, found, Random(2))
    plain = State(found.loops, image.data, [0.0] * len(image.data), image.images, image.active)
    run(plain, Pass.DENSE_GRADIENTS)
    stepped = [p if p is None else p + g * -RATE for p, g in zip(plain.data, plain.grad, strict=True)]
    _, *passes = stages(found, step_passes(found, target))
    assert passes[-1][1].kernels or not any(k.passes == Pass.DENSE_GRADIENTS for k in found.loops.kernels)
    for step, loops in passes:
        verify_loops(loops)
        before = [0.5 if g else 0.0 for g in plain.grad]  # which must not matter
        state = State(loops, [*image.data], before, image.images, image.active, step=[-RATE])
        run(state, Pass.STEPS, parts=3)
        got, expected = (state.data, stepped) if step == "steps" else (state.grad, plain.grad)
        for region in loops.regions[DATA]:
            whole = [i for i in range(region.start, region.start + region.extent) if not region.is_padding(i)]
            assert [repr(got[i]) for i in whole] == [repr(expected[i]) for i in whole], (step, region.title)


def test_sums_over_points_add_terms_in_vectors():
    """A unit has its values at all points side by side: with reorder=True, terms of its gradient are lanes."""
    x, rng = models.values(21), Random(3)
    w, b, v = (models.weights(rng, 6) for _ in range(3))
    units = [[(p * xi + q).tanh() for xi in x] for p, q in zip(w, b, strict=True)]
    outs = [models.dot(v, at) for at in zip(*units, strict=True)]
    program = Program(Floats(x), None, {"w": w, "b": b, "v": v}, models.total([y * y for y in outs]), reorder=True)
    target = Target.of(program)
    found = reroll(build_graph(program), program, target.cache_line)
    image = one_image(program, found, Random(2))
    plain = State(found.loops, image.data, [0.0] * len(image.data), image.images, image.active)
    run(plain, Pass.DENSE_GRADIENTS)
    loops = schedule(found, step_passes(found, target))
    verify_loops(loops)
    assert [line for kernel in loops.kernels for line in kernel_lines(kernel) if line.strip() == "local partial[8]"]
    state = State(loops, [*image.data], [0.0] * len(image.data), image.images, image.active, step=[-RATE])
    run(state, Pass.STEPS, parts=3)
    stepped = [p if p is None else p + g * -RATE for p, g in zip(plain.data, plain.grad, strict=True)]
    assert [p for p in state.data if p is not None] == pytest.approx([p for p in stepped if p is not None], rel=1e-12)


@pytest.mark.parametrize("name", nightly_but(["terms"], STORING))
def test_gradients_that_read_other_parameters_or_have_many_terms_are_stored(name, tmp_path):
    program = STORING[name]()
    found = reroll(build_graph(program), program, 8)
    assert not schedule(found, step_passes(found, Target())).kernels
    module = compare(program, tmp_path, steps=2).module
    check_training(module, program)


def check_training(module, program, **options):
    """One image, two, many: parameters and gradients afterwards, and a view that sees them."""
    for count in (1, 2, 9):
        after = []
        data = many(program, count)
        for train in (train_by_hand, module.train):
            module.reset(*([] if program.initial is None else [1]))
            module.zero_grad()
            loss = train(module, *data) if train is train_by_hand else module.train(*data, **options)[0]
            after.append((bits([loss]), bits(module.flat_data()), bits(module.flat_grad())))
        assert after[0] == after[1], count


@pytest.mark.parametrize("dtype", slow_but(["float32"], ["float64", "float32"]))
@pytest.mark.parametrize(
    "name",
    slow_but(["L2"], [*STEPPING], nightly=[name for name in STEPPING if name not in ("L2", "mlp", "recurrence")]),
)
def test_training_has_the_bits_of_training_by_hand(name, dtype, tmp_path):
    program = replace(STEPPING[name](), dtype=dtype, fma=dtype == "float32")
    first = Extension(program, tmp_path, "loops", levels=True, flags=["-O0"])
    for level in LEVELS:
        with suppress(ImportError):
            system = first.at_level(level)
            for threads in (1, 2):
                check_training(system.module, system.program, threads=threads)


@pytest.mark.slow
def test_checks_and_views_and_calls_between(tmp_path):
    """A step that may be taken back is stored; a view sees the gradients of the last image; progress looks between."""
    program = with_l2()
    module = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    check_training(module, program, check_finite=True)
    check_training(module, program, seed=None, progress=lambda *_: None)
    view = module.grad_dict()
    check_training(module, program)
    seen = bits(memoryview(module.flat_grad()))
    module.zero_grad()
    assert seen != bits(memoryview(module.flat_grad()))
    del view


def test_rules_and_models_that_only_predict_have_no_steps():
    program = with_l2()
    assert "take_steps" in compile_program(program, "m").files["m_kernels.h"]
    for other in (
        replace(program, update=optim.adam()),
        replace(program, loss=None, targets=None, outputs={"y": [Value(1.0) * program.input_values[0]]}),
    ):
        assert "take_steps" not in compile_program(other, "m").files["m_kernels.h"]
