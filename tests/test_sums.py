"""Sums over images: the way back through what a batch computes once. Gradients are those that each image adds alone.

Passes on the loop language first, then modules in batches of whole groups, of a part of one, and of too few images.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from harness import LEVELS, Extension, bits, many, nightly_but, slow_but
from test_schedule import one_image

from benchmarks.small.models import logistic_with_l2, numbers
from codegen import Floats, Program
from codegen.backends.text import summary
from codegen.ir.loops import Pass
from codegen.pipeline import build_graph, compile_program, reroll
from codegen.reference.interpret import State, run
from codegen.reference.verify_loops import verify_loops
from codegen.schedule.phases import indices_written
from codegen.schedule.pipeline import batch_passes, gradient_passes, schedule, stages, sum_passes
from codegen.schedule.sums_of_images import _runs, find_sums
from codegen.schedule.target import Target
from micrograd.arrays import array
from micrograd.functional import total
from tools.fuzz_compiler.regular import random_regular

FAST = Target("float32", reorder=True)


def program(write, inputs, *shapes) -> Program:
    """A model of x and y, which are vectors of the lengths `inputs`, and of parameters a, b, ... of these shapes."""
    random = np.random.default_rng(5)
    x, y = (array(np.zeros(n)) for n in inputs)
    parameters = {name: array(random.uniform(-0.5, 0.5, shape)) for name, shape in zip("abcde", shapes, strict=False)}
    return Program(Floats(x), Floats(y), parameters, write(x, y, **parameters))


def normed(x, y, a, b):
    """Weights by their norm: their adjoints are an outer product of each image, and linear from there on."""
    h = np.tanh((a / np.sqrt((a * a).sum())) @ x)
    return ((b @ h - y) ** 2).sum()


def power_iteration(x, y, a, b):
    """The same, by a norm that takes steps; images read the weights too."""
    u = np.ones(4) / 2
    for _ in range(3):
        v = a.T @ u
        v = v / np.sqrt(v @ v)
        u = a @ v
        u = u / np.sqrt(u @ u)
    return ((b @ np.tanh((a / (u @ (a @ v))) @ x) + a[:2] @ x - y) ** 2).sum()


def kalman(x, y, a, b, c):
    """A filter whose gain depends on parameters alone. Steps of both kinds share weights, and lie in one sum."""
    gain_of, state, loss = np.eye(2), b * 1.0, 0.0
    for t in range(5):
        state, gain_of = a @ state, a @ gain_of @ a.T + np.exp(c) * np.eye(2)
        noise = gain_of[0, 0] + 0.5
        gain, error = gain_of[:, 0] / noise, x[t] - state[0]
        state, gain_of = state + gain * error, gain_of - np.outer(gain, gain_of[0])
        loss = loss + error * error / noise + np.log(noise)
    return loss + y[0] * state[1]


def hidden_markov(x, y, a, b):
    """Probabilities that parameters alone decide."""
    move = np.exp(a) / np.exp(a).sum(axis=1)[:, None]
    state = np.exp(b) / np.exp(b).sum()
    for t in range(4):
        state = (move.T @ state) * np.exp(x[t] * b)
    return -np.log(state.sum()) * y[0]


def low_rank(x, y, a, b):
    return ((np.tanh((a @ b) @ x) - y) ** 2).sum()


MODELS = {
    "penalty": lambda: logistic_with_l2(numbers(7), numbers(3)),
    "normed": lambda: program(normed, (6, 2), (5, 6), (2, 5)),
    "power iteration": lambda: program(power_iteration, (4, 2), (4, 4), (2, 4)),
    "filter": lambda: program(kalman, (5, 1), (2, 2), (2,), ()),
    "hidden Markov": lambda: program(hidden_markov, (4, 1), (5, 5), (5,)),
    "low rank": lambda: program(low_rank, (6, 5), (5, 3), (3, 6)),
}


def sums_of(program: Program):
    """What the passes of batches take, and the sums of a program."""
    found = reroll(build_graph(program), program, FAST.cache_line)
    batch = schedule(found, batch_passes(found, FAST))
    phases = {kernel.number: kernel.phase for kernel in batch.kernels}
    return found, batch, find_sums(found.loops, phases, found.read_outside, FAST)


@pytest.mark.parametrize("name", slow_but(["normed"], MODELS))
def test_sums_have_the_gradients_that_images_add_alone(name):
    """After each pass, of three images in a group. What images need not compute is not there."""
    model = MODELS[name]()
    found, batch, sums = sums_of(model)
    images = [one_image(model, found, Random(seed)) for seed in range(3)]
    alone = [sum(one) for one in zip(*([x or 0.0 for x in s.grad] for s in images), strict=True)]  # None: padding
    gradients = {kernel.number for kernel in found.loops.kernels if kernel.passes == Pass.DENSE_GRADIENTS}
    assert sums.changed
    assert gradients == sums.changed | {kernel.number for kernel in sums.own}
    missing = written_by([kernel for kernel in found.loops.kernels if kernel.number in sums.numbers], found.loops)
    zero = written_by(sums.added, found.loops)
    values = [[None if i in missing else x for i, x in enumerate(s.images[0])] for s in images]
    values[0] = [0.0 if i in zero else x for i, x in enumerate(values[0])]

    _, *steps = stages(found.with_kernels((*sums.added, *sums.own)), gradient_passes(FAST, batch, sums))
    assert steps[-1][1].kernels or not sums.own
    for name_of_own, own in steps:
        verify_loops(own)
        start = State(own, images[0].data, [0.0] * len(alone), [[*value] for value in values], [])
        run(start, Pass.DENSE_GRADIENTS, parts=3)
        for name_of_after, after in stages(found.with_kernels(sums.after), sum_passes(found, FAST)):
            verify_loops(after)
            state = State(after, start.data, [*start.grad], [[*value] for value in start.images], [])
            run(state, Pass.FROM_SUMS)
            run(state, Pass.SUM_GRADIENTS, parts=3)
            assert state.grad == pytest.approx(alone, rel=1e-9, abs=1e-12), (name_of_own, name_of_after)


HAVE_SUMS = (5, 14, 31)


@pytest.mark.parametrize("seeds", nightly_but([HAVE_SUMS], [HAVE_SUMS, range(50)]), ids=["few", "many"])
def test_random_programs_have_the_gradients_that_images_add_alone(seeds):
    """Of recurrences, attention, integrators and the like. Gradients that groups leave out run image by image."""
    with_sums = 0
    for seed in seeds:
        model = random_regular(Random(seed))
        found, batch, sums = sums_of(model)
        if not sums.changed or found.tokens:
            continue
        images = [one_image(model, found, Random(seed)) for seed in range(3)]
        alone = [sum(one) for one in zip(*([x or 0.0 for x in s.grad] for s in images), strict=True)]
        if not all(map(math.isfinite, alone)):
            continue
        with_sums += 1
        zero = written_by(sums.added, found.loops)
        values = [[*image.images[0]] for image in images]
        values[0] = [0.0 if i in zero else x for i, x in enumerate(values[0])]
        own = schedule(found.with_kernels((*sums.added, *sums.own)), gradient_passes(FAST, batch, sums))
        state = State(own, images[0].data, [0.0] * len(alone), values, [])
        run(state, Pass.DENSE_GRADIENTS)
        known = {kernel.number for kernel in own.kernels} | sums.changed
        left = [k for k in found.loops.kernels if k.passes == Pass.DENSE_GRADIENTS and k.number not in known]
        for image in images:
            run(replace(image, loops=found.loops.with_kernels(left), grad=state.grad), Pass.DENSE_GRADIENTS)
        after = schedule(found.with_kernels(sums.after), sum_passes(found, FAST))
        run(replace(state, loops=after), Pass.FROM_SUMS | Pass.SUM_GRADIENTS)
        assert state.grad == pytest.approx(alone, rel=1e-8, abs=1e-9 * max(map(abs, alone))), seed
    assert with_sums >= min(len(seeds), 5)


def written_by(kernels, loops):
    return {i for kernel in kernels for found in indices_written(loops, kernel) for i in found.ravel().tolist()}


@pytest.mark.parametrize("name", slow_but([], MODELS, nightly=["penalty", "power iteration", "low rank"]))
def test_batches_train_as_in_strict_mode_at_every_simd_level_with_any_number_of_threads(name, tmp_path):
    """Blocks of 64, 18 and 36 images. One call after the other: sums begin at 0 again."""
    model = MODELS[name]()
    strict = Extension(model, tmp_path / "strict", "loops", flags=["-O0"])
    first = Extension(replace(model, reorder=True), tmp_path / "fast", "loops", levels=True, flags=["-O0"])
    assert "#define GROUP_SUMS 1\n" in next((tmp_path / "fast").rglob("model.c")).read_text()
    systems = [first]
    for level in LEVELS:
        with suppress(ImportError):
            systems.append(first.at_level(level))
    data, seen = many(model, 200), set()
    expected = strict.module.train(*data, batch_size=82, epochs=2)
    for threads, system in enumerate(systems, start=1):
        losses = system.module.train(*data, batch_size=82, epochs=2, threads=threads)
        seen.add((*bits(losses), *bits(system.data)))
        assert losses == pytest.approx(expected, rel=1e-12)
        assert system.data == pytest.approx(strict.data, rel=1e-11)
    assert len(seen) == 1


@pytest.mark.slow
def test_gradients_of_a_batch_are_complete_when_accumulate_returns(tmp_path):
    """And those of a single image, between two calls, too."""
    model = MODELS["power iteration"]()
    systems = [Extension(model, tmp_path / "strict", "loops", flags=["-O0"])]
    systems += [Extension(replace(model, reorder=True), tmp_path / "fast", "loops", flags=["-O0"])]
    inputs, targets = many(model, 70)
    found = []
    for system in systems:
        nn = system.module
        nn.accumulate(inputs, targets)
        nn.forward(targets[:2], inputs[:4])
        nn.backward()
        nn.accumulate(inputs, targets)
        found.append([nn.grad(i) for i in range(nn.info()["parameters"])])
    assert found[1] == pytest.approx(found[0], rel=1e-11)


def test_what_follows_from_sums():
    """Of weights by their norm: the adjoints of the quotients are added, and all else follows."""
    found, _, sums = sums_of(MODELS["normed"]())
    told = [[summary(found.loops, kernel) for kernel in kernels] for kernels in (sums.added, sums.own, sums.after)]
    assert told == [
        ["group_7[6i + j] += input[j] * group_6[i] for i < 5, j < 6"],
        ["b.grad[2i + j] += group_2[i] * group_5[j] for i < 5, j < 2"],
        [
            "group_9 = sum_k(group_1[29 - k] / group_0 * -1 * group_7[29 - k]) for k < 30",
            "group_10 = 0.5 / group_0 * group_9",
            "group_11[i] = a[i] * group_10 for i < 30",
            "a.grad[i] += group_8 * group_7[i] + sum_k(group_11[i]) for i < 30, k < 2",
        ],
    ]


def test_terms_of_each_kind():
    """Of an adjoint, the noise of the last step: what each image has of its own, what follows from sums, what all
    share. And of a gradient, each fifth term of whose sum is that of a state.
    """
    found, _, sums = sums_of(MODELS["filter"]())

    def told(number, kernels):
        return [summary(found.loops, kernel) for kernel in kernels if kernel.number == number]

    assert told(61, found.loops.kernels) == [
        "group_61 = group_55[4] + group_52[4] / group_49 * -1 + group_50 / group_49 * -1 * group_56"
    ]
    assert told(61, sums.added) == ["group_61 += group_52[4] / group_49 * -1"]
    assert told(61, sums.after) == ["group_61 += image_count * group_55[4] + group_50 / group_49 * -1 * group_56"]
    own, after = told(119, sums.own), told(119, sums.after)
    assert (len(own), len(after)) == (1, 1)
    assert own[0].startswith("a.grad[0] += sum_k(group_46[1 + table_119_0[4 + 5k]] * group_58")
    assert after[0].startswith("a.grad[0] += sum_k_runk(group_46[1 + table_119_0[k + 5k_run]] * group_58)")


def test_where_no_image_has_a_part_in_a_gradient_there_are_no_sums(tmp_path):
    x, a = numbers(1), numbers(3)
    model = Program(Floats(x), None, {"a": a}, x[0] + total([(v - 3.0) ** 2 for v in a]))
    assert sums_of(model)[2].after == ()
    module = Extension(replace(model, reorder=True), tmp_path, "loops", flags=["-O0"]).module
    found = []
    for images in (1, 40):
        module.zero_grad()
        module.accumulate(np.ones((images, 1)), None)
        found.append(np.array(module.flat_grad()) / images)
    assert found[1] == pytest.approx(found[0], rel=1e-11)


def test_strict_mode_and_models_without_gain_have_no_sums():
    """Of a penalty of one parameter of many it would be a pass over sums for one product."""
    model = MODELS["normed"]()
    assert "GROUP_SUMS" not in compile_program(model).text
    assert "GROUP_SUMS" in compile_program(replace(model, reorder=True)).text

    def scaled(x, y, a, b):
        return ((np.tanh(a @ x) @ np.exp(b) - y) ** 2).sum()

    few = replace(program(scaled, (9, 1), (7, 9), (7,)), reorder=True)
    assert "GROUP_SUMS" not in compile_program(few).text


@pytest.mark.parametrize(
    ("numbers", "runs"),
    [
        ([5], [(5, [])]),
        ([1, 2, 3], [(1, [(3, 1)])]),
        ([0, 4, 8], [(0, [(3, 4)])]),
        ([1, 2, 3, 8, 9, 10, 15, 16, 17], [(1, [(3, 1), (3, 7)])]),
        ([1, 2, 3, 8, 9, 10, 15], [(1, [(3, 1), (2, 7)]), (15, [])]),
        ([0, 3, 4], [(0, [(2, 3)]), (4, [])]),
    ],
)
def test_runs(numbers, runs):
    assert _runs(numbers) == runs
