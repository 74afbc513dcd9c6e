"""Wrong numbers from any lowering: engine, ir interpreter, Python, straight-line C and loops must agree by bits."""

from random import Random

import models
import numpy as np
import pytest
from harness import Extension, bits, compare, nightly_but, slow_but

from benchmarks.small.models import MODELS, gru
from codegen import Floats, Program
from codegen.pipeline import compile_program
from micrograd.engine import Value
from micrograd.functional import total


@pytest.mark.parametrize(
    "name",
    slow_but(["mlp"], models.REGULAR, nightly=[name for name in models.REGULAR if name != "recurrence"]),
)
def test_regular_models(name, tmp_path):
    compare(models.REGULAR[name](), tmp_path, steps=50 if name in ("xor", "mlp") else 6)


def test_scattered_terms_and_a_penalty(tmp_path):
    """Two gradients that are added side by side have a name for what the penalty adds, each its own."""
    x, t, w = models.values(9), models.values(1), [Value(0.1), Value(-0.2)]
    rows = ((0, 5, 2, 8), (3, 1, 7, 4))
    out = total([a * x[k] for a, row in zip(w, rows, strict=True) for k in row])
    loss = (out - t[0]) ** 2 + w[0] ** 2 * 0.01 + w[1] ** 2 * 0.01
    program = Program(Floats(x), Floats(t), {"w": w}, loss, {"out": [out]})
    assert "term_of_1" in compile_program(program).text
    compare(program, tmp_path, steps=3, flags=["-O0"])


@pytest.mark.slow
def test_a_convolution_without_optimisation(tmp_path):
    compare(models.convolution(), tmp_path, steps=6, flags=["-O0"])


@pytest.mark.slow
def test_columns_of_a_matrix_at_every_level(tmp_path):
    """Eight and twelve units behind one another: gradients read the weights between them in transposed tiles."""
    program = models.mlp((6, 12, 8, 3))
    assert "transpose_rows)" in compile_program(program, "columns").files["columns_kernels.h"]
    compare(program, tmp_path, steps=3, flags=["-O1"])


@pytest.mark.slow
def test_many_points_of_a_small_network(tmp_path):
    text = compile_program(models.points(), "points").files["points_kernels.h"]
    assert "transpose_rows)" in text
    assert "each_tanh)(&" in text
    compare(models.points(), tmp_path, steps=3, flags=["-O1"])


@pytest.mark.nightly
def test_two_loops_over_the_terms_of_a_sum_are_not_interchanged(tmp_path):
    """The adjoints of three gates of 20 units: gcc -O3 would add them in another order than -O1."""
    program = gru(models.values(12), models.values(2), steps=6, hidden=20)
    found = []
    for level in ("-O1", "-O3"):
        system = Extension(program, tmp_path / level, "loops", flags=[level])
        system.forward([0.5, 1.0], [0.1 * i for i in range(12)])
        system.backward()
        found.append(system.grads)
    assert found[0] == found[1]


@pytest.mark.nightly
def test_rows_with_a_cache_line_between_them(tmp_path):
    """Rows of 1,024 bytes, as a row tensor and as any other."""
    compare(models.mlp((3, 4, 128, 2)), tmp_path, steps=2, flags=["-O1"])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_random_graphs(seed, tmp_path):
    """Many more are in `make fuzz-compiler`."""
    compare(models.random_programs(seed, 50), tmp_path, steps=3, seed=seed, flags=["-O0"])


@pytest.mark.parametrize("name", nightly_but(["logistic regression, L2"], MODELS))
def test_the_models_of_the_benchmark(name, tmp_path):
    """Larger and of more kinds than those above, at the optimisation of the wheel: functions in vectors."""
    compare(MODELS[name](), tmp_path, steps=2)


@pytest.mark.slow
def test_what_one_group_reads_of_parameters_alone_and_of_inputs(tmp_path):
    """A learned token beside one of inputs: a batch does not compute it once, as both are read as one array."""
    x, start, scale = models.values(4), models.weights(Random(1), 4), models.weights(Random(2), 4)
    mix = [models.weights(Random(3 + i), 4) for i in range(6)]
    tokens = [[a.tanh() for a in start], [(a * b).tanh() for a, b in zip(x, scale, strict=True)]]
    loss = models.total([models.dot(row, token) ** 2 for token in tokens for row in mix])
    program = Program(Floats(x), None, {"start": start, "scale": scale, "mix": mix}, loss)
    assert any(kernel.roots == 12 for kernel in compile_program(program).plain.kernels)  # both tokens by one nest
    compare(program, tmp_path, steps=2, flags=["-O0"])


def test_what_gradients_read_of_parameters_alone_and_of_inputs(tmp_path):
    """One factor of eight that depends on parameters alone and is not added to the others, and a penalty."""
    x, y = models.values(8), models.values(1)
    a, b, c = (models.weights(Random(i), 8) for i in range(3))
    tanhs = [(u * v + w).tanh() for u, v, w in zip(b, [a[0], *x[1:]], c, strict=True)]
    loss = tanhs[0] + models.total(tanhs[1:]) * y[0] + models.total([v * v for v in c]) * 0.1
    program = Program(Floats(x), Floats(y), {"a": a[:1], "b": b, "c": c}, loss)
    module = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    rng = np.random.default_rng(2)
    images, targets = rng.normal(size=(40, 8)), rng.normal(size=(40, 1))
    module.zero_grad()
    module.accumulate(images, targets)  # before any workspace has numbers
    together = bits(module.flat_grad())
    module.zero_grad()
    for image, target in zip(images, targets, strict=True):
        module.accumulate(image[None], target[None])
    assert bits(module.flat_grad()) == together


def gradients_one_by_one(module, images, targets):
    module.zero_grad()
    for image, target in zip(images, targets, strict=True):
        module.forward(target, image)
        module.backward()
    return bits(module.flat_grad())


def gradients_together(module, images, targets):
    module.zero_grad()
    module.accumulate(images, targets)
    return bits(module.flat_grad())


@pytest.mark.parametrize("chain", nightly_but([3], [1, 3]))
def test_terms_of_an_image_that_lie_behind_one_another_are_added_in_order(chain, tmp_path):
    """The third, first and second number of an image, as statements: gcc 12 -O3 added them as they lie in memory."""
    x, w = models.values(3 * chain), models.weights(Random(1), chain)
    a = [v.tanh() for v in x]
    loss = models.total([w[lane] * a[3 * lane + i] for i in (1, 0, 2) for lane in range(chain)])
    module = Extension(Program(Floats(x), None, {"w": w}, loss), tmp_path, "loops", flags=["-O3"]).module
    images = np.random.default_rng(2).normal(size=(200, 3 * chain))
    assert gradients_together(module, images, None) == gradients_one_by_one(module, images, [None] * 200)


def test_lanes_that_lie_apart_are_added_in_order(tmp_path):
    """Weights that a table selects: gcc 12 -O3 added w[8] and w[7] in the place of one another."""
    places = [[10, 11, 14, 20, 0], [3, 16, 19, 4, 6], [18, 9, 5, 17, 5], [9, 13, 12, 1, 0], [18, 14, 17, 12, 16]]
    of_inputs = [[4, 3, 5, 6, 3], [10, 0, 9, 7, 2], [7, 4, 9, 10, 3], [5, 2, 7, 7, 9], [8, 10, 10, 9, 1]]
    places += [[7, 10, 15, 2, 6], [2, 10, 21, 3, 8]]
    of_inputs += [[0, 5, 3, 9, 8], [4, 6, 6, 9, 0]]
    x, t, w = models.values(11), models.values(7), models.weights(Random(1), 22)
    rows = [[w[k] * x[i] for k, i in zip(*row, strict=True)] for row in zip(places, of_inputs, strict=True)]
    loss = models.total([(models.total(row).tanh() - y) ** 2 for row, y in zip(rows, t, strict=True)])
    module = Extension(Program(Floats(x), Floats(t), {"w": w}, loss), tmp_path, "loops", flags=["-O3"]).module
    rng = np.random.default_rng(2)
    images, targets = rng.normal(size=(3, 11)), rng.normal(size=(3, 7))
    assert gradients_together(module, images, targets) == gradients_one_by_one(module, images, targets)


def test_states_that_read_two_neighbours(tmp_path):
    """A sum whose kind has a group of one root, which is a row of its own."""
    steps, states = 8, 14
    x, w = models.values(steps * states), models.weights(Random(1), states)
    seen = [[x[step * states + k] * w[k] for k in range(states)] for step in range(steps)]
    moves = [models.weights(Random(k), 3) for k in range(states)]
    state = seen[0]
    for row in seen[1:]:
        sums = [models.total([state[k - i] * moves[k][i] for i in range(min(k, 2) + 1)]) for k in range(states)]
        state = [total * y for total, y in zip(sums, row, strict=True)]
    program = Program(Floats(x), None, {"w": w, "moves": moves}, -(state[-1] + state[-2]).log())
    compare(program, tmp_path, steps=2, flags=["-O0"])
