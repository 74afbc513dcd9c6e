"""Groups that lie between one another, as the corners, sides and other pixels of an image, are stored as one array."""

from __future__ import annotations

import random

import models
import numpy as np
import pytest
from harness import compare, nightly_but
from test_schedule import check, check_batch

from benchmarks.small.models import dot, physics_loss, sparse_network
from codegen import Floats, Program, compile_program
from codegen.ir.loops import Pass
from codegen.pipeline import build_graph, reroll
from codegen.reroll.affine import fit
from codegen.schedule.nest import root_loops
from micrograd.arrays import array
from micrograd.functional import mse, softmax, total
from micrograd.nn import Conv2d

SIDE = 6


def grids(program):
    found = reroll(build_graph(program), program, 8)
    return found, [stored for stored in found.layout.groups if stored.grid]


def test_the_pixels_of_an_image_are_one_array_whatever_their_number_of_neighbours():
    found, stored = grids(models.borders())
    forward = [group for group in stored if group.group.passes & Pass.LOSS]
    pixels = np.array(found.graph.outputs["pixels"]).reshape(4, SIDE, SIDE)
    places = found.layout.index[pixels] - found.layout.index[pixels].min()
    assert [len(group.group.roots) for group in forward] == 2 * [4 * 4, 4 * 16, 4 * 16]  # corners, sides, others
    assert {group.offset for group in forward[3:]} == {found.layout.index[pixels].min()}
    assert (places == np.arange(4 * SIDE**2).reshape(SIDE, SIDE, 4).transpose(2, 0, 1)).all()  # channels innermost
    assert found.loops.region("value", forward[3].offset).name == "O_PIXELS"


def test_a_side_is_one_nest_for_all_channels():
    """And two opposite ones are. Term by term, all four sides would be loops of their own."""
    x, layer = array(np.zeros((3, SIDE, SIDE))), Conv2d(3, 4, 3, padding=1)
    pixels = array(layer(x))
    found, _ = grids(Program(Floats(x), None, layer.named_parameters(), (pixels * pixels).sum(), {}, 0.01))
    (sides,) = [k for k in found.loops.kernels if k.passes & Pass.LOSS and k.roots == 64 and len(k.nests) > 1]
    assert [[loop.count for loop in root_loops(nest)] for nest in sides.nests] == [[2, 4, 4], [2, 4, 4]]


def normalised(x, groups=2):
    those = x.reshape(groups, -1)
    those = those - those.mean(axis=1, keepdims=True)
    return (those / np.sqrt((those * those).mean(axis=1, keepdims=True) + 1e-5)).reshape(x.shape)


def test_layers_of_different_sizes_are_no_stack():
    """Residual blocks, of which the second one halves the image: their norms are alike, and nothing else."""
    x = h = array(np.zeros((1, SIDE, SIDE)))
    weights = {}
    for block, (few, many) in enumerate(((1, 2), (2, 4))):
        first = Conv2d(few, many, 3, stride=1 + block, padding=1, bias=False)
        second = Conv2d(many, many, 3, padding=1, bias=False)
        around = Conv2d(few, many, 1, stride=1 + block, bias=False)
        weights |= {f"{block}.{i}": layer.weight for i, layer in enumerate((first, second, around))}
        h = (normalised(array(second(normalised(array(first(h))).relu()))) + array(around(h))).relu()
    found, stored = grids(Program(Floats(x), None, weights, (h * h).sum(), {"h": h}, 0.01))
    assert stored
    assert len(found.layout.groups) < 120  # and 289 without grids


@pytest.mark.slow
def test_gradients_are_stored_as_the_values_are():
    """What multiplies them by slopes is one nest for each layer, in the order of the pixels."""
    found, stored = grids(models.borders())
    assert [len(group.group.roots) for group in stored if group.group.passes == Pass.GRADIENTS] == [16, 64, 64, 144]
    slopes = [kernel for kernel in found.loops.kernels if kernel.passes == Pass.GRADIENTS and kernel.roots == 144]
    assert [kernel.nests[0][0].count for kernel in slopes] == [144, 144]


@pytest.mark.slow
def test_steps_of_a_stencil_are_grids_though_the_first_of_them_alone_need_more_groups():
    """Heat on a plate: each step reads the four neighbours in the step before, and beyond the edge a 0."""
    x, rate = models.values(SIDE**2), models.values(2)
    heat = array(x).reshape(SIDE, SIDE)
    for _ in range(4):
        around = np.pad(heat, 1)
        near = around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]
        heat = heat + rate[0] * (near - 4.0 * heat) + rate[1] * heat * (1.0 - heat)
    found, stored = grids(Program(Floats(x), None, {"rate": rate}, (heat * heat).mean(), {}, 0.01))
    assert len(stored) > 30
    assert len(found.layout.groups) < 100  # and 189 without grids


@pytest.mark.slow
def test_steps_that_read_earlier_ones_are_grids_as_these_are():
    """Cells of two channels, each of which adds what it sees of those around it, and nothing beyond the edge."""
    side = range(5)
    x, kernels = models.values(50), models.weights(random.Random(1), 2, 2, 3, 3)

    def cell(state, channel, r, s):
        around = [(i, j) for i in side for j in side if max(abs(i - r), abs(j - s)) <= 1]
        terms = [kernels[channel][c][i - r + 1][j - s + 1] * state[c, i, j] for c in range(2) for i, j in around]
        return state[channel, r, s] + total(terms).tanh()

    def lines(steps):
        state = {(c, r, s): x[25 * c + 5 * r + s] for c in range(2) for r in side for s in side}
        for _ in range(steps):
            state = {place: cell(state, *place) for place in state}
        program = Program(Floats(x), None, {"kernels": kernels}, total([v * v for v in state.values()]))
        return compile_program(program, "cells").files["cells_kernels.h"].count("\n")

    assert lines(8) <= 1.02 * lines(6)


@pytest.mark.slow
def test_layers_of_convolutions_are_loops():
    lines = [
        compile_program(models.borders((4,) * layers, 5), "borders").files["borders_kernels.h"].count("\n")
        for layers in (4, 7)
    ]
    assert lines[1] <= lines[0]


@pytest.mark.slow
def test_values_stay_contiguous_where_loads_would_be_many_more():
    """Three evaluations of a network at a place read all places in a row; place by place, they would read ten units."""
    _, stored = grids(physics_loss(models.values(16), models.values(1)))
    assert not [group for group in stored if group.group.passes & Pass.LOSS]


def windows():
    """Four maps, and a window of 3 x 3 over each: pixels near the border are in fewer windows than others."""
    rng = random.Random(1)
    x, weight, kernels = models.values(2 * 81), models.weights(rng, 4, 2), models.weights(rng, 4, 3, 3)
    maps = [[(a * x[i] + b * x[81 + i]).tanh() for i in range(81)] for a, b in weight]
    out = [
        total([w * m[9 * (r + u) + s + v] for u, row in enumerate(kernel) for v, w in enumerate(row)])
        for kernel, m in zip(kernels, maps, strict=True)
        for r in range(7)
        for s in range(7)
    ]
    loss = total([v * v for v in out])
    return Program(Floats(x), None, {"weight": weight, "kernels": kernels}, loss, {"out": out}, 0.01)


def test_gradients_that_a_sum_adds_up_are_a_grid():
    """No instance of the sum reads a corner where another reads a side: its terms do, which would look up a table."""
    found, stored = grids(windows())
    assert {(len(group.grid.roots), group.grid.size) for group in stored} == {(4 * 81, 4 * 81)}
    (sums,) = [k for k in found.loops.kernels if k.is_gradient and k.roots == 8]  # weight.grad
    assert len(sums.nests) == 1
    assert "table" not in compile_program(windows(), "windows").files["windows_kernels.h"]


@pytest.mark.slow
def test_a_grid_with_empty_places_has_the_bits_of_the_engine(tmp_path):
    """Gradients of some units of an irregular network lie as far apart as the units."""
    program = sparse_network(models.values(16), models.values(2))
    _, stored = grids(program)
    assert any(len(group.grid.roots) < group.grid.size for group in stored)
    compare(program, tmp_path, steps=2, flags=["-O0"])


def convolutional_lstm(has_zeros=False, side=5, steps=2, channels=4):
    """Gates i, f, g, o from kernels on an image and on the state. Before the first step that is 0, or there is none."""
    x = array(np.zeros((steps, 1, side, side)))
    y = array(np.zeros((channels, side, side)))
    rng = np.random.default_rng(0)
    weights = {name: array(rng.normal(size=(4 * channels, n, 3, 3))) for name, n in (("x", 1), ("h", channels))}

    def convolved(image, kernels):
        around = np.pad(image, ((0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(1, 2))
        return np.einsum("cyxij,ocij->oyx", windows, kernels)

    h = c = np.zeros(y.shape) if has_zeros else None
    for now in x:
        z = convolved(now, weights["x"]) if h is None else convolved(now, weights["x"]) + convolved(h, weights["h"])
        i, f, g, o = (z[channels * k :][:channels] for k in range(4))
        new = i.sigmoid() * np.tanh(g)
        c = new if c is None else f.sigmoid() * c + new
        h = o.sigmoid() * np.tanh(c)
    return Program(Floats(x), Floats(y), weights, ((h - y) ** 2).mean(), {"h": h}, 0.01)


def test_a_first_step_may_have_fewer_gates_than_others():
    """So fewer weights read its image. And gates i, f, o are no neighbours among the four: each pixel has two loops."""
    found, _ = grids(convolutional_lstm())
    assert len(found.layout.groups) < 40  # and 108 without arrays with padding, 44 if steps are layers
    (gates,) = [kernel for kernel in found.loops.kernels if kernel.roots == 3 * 4 * 25]
    assert [[loop.count for loop in root_loops(nest)] for nest in gates.nests] == [[5, 5, 8], [5, 5, 4]]


@pytest.mark.slow
def test_gradients_of_states_are_stored_as_the_states_and_not_as_gates():
    """They are read together with both, and of the gates, which are rows of one product, each is a part."""
    found, _ = grids(convolutional_lstm(has_zeros=True, steps=3))
    assert len(found.layout.groups) < 70  # and 168 if they were stored as gates are


@pytest.mark.slow
@pytest.mark.parametrize("has_zeros", [False, True])
def test_steps_of_images_have_the_bits_of_the_engine(has_zeros, tmp_path):
    compare(convolutional_lstm(has_zeros, side=4, channels=2), tmp_path, steps=2, flags=["-O0"])


def in_a_ring(units=8):
    """What is beyond the end of a line is its other end."""
    kernels = array(np.random.default_rng(0).uniform(size=(4, 4, 2)))
    h = x = array(np.zeros((4, units)))
    for _ in range(2):
        h = np.tanh(sum(np.einsum("oc,ci->oi", kernels[:, :, u], np.roll(h, u, axis=1)) for u in range(2)))
    return Program(Floats(x), None, {"kernels": kernels}, (h * h).sum(), {"h": h}, 0.01)


@pytest.mark.slow
def test_rows_follow_one_another_as_they_were_created_if_that_loads_less(tmp_path):
    """Places are lanes. In the order of the kernels that they read, those of a sum would lie between one another."""
    found, _ = grids(in_a_ring())
    assert found.layout.has_choice
    products = [group.group.roots for group in found.layout.groups if len(group.group.roots) == 2 * 4 * 8]
    assert len(products) == 2
    for roots in products:
        rows = found.layout.index[np.sort(roots)].reshape(-1, 8)
        assert (np.diff(rows.min(axis=1)) == 8).all()
    compare(in_a_ring(), tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_a_family_has_no_room_for_a_box_that_grids_make():
    """Behind a mask gradients of scores fill a triangle if what they read is a grid, and else do not."""
    rng = random.Random(1)
    x, y = models.values(6 * 5), models.values(6 * 4)
    rows = [x[5 * i :][:5] for i in range(6)]
    weights = {name: models.weights(rng, 4, 5) for name in ("query", "key", "value")}
    query, key, value = ([[dot(r, row) for r in w] for row in rows] for w in weights.values())
    out = []
    for i in range(6):
        shares = softmax([dot(query[i], key[j]) * 0.5 for j in range(i + 1)])
        out += [dot(shares, [value[j][unit] for j in range(i + 1)]) for unit in range(4)]
    check(Program(Floats(x), Floats(y), weights, mse(out, y), {"out": out}, 0.01), steps=1)


def covered(rows, pieces):
    """The rows that the loops of all pieces go over."""
    return sorted(
        tuple(rows[piece.start] + sum(i * loop.strides for i, loop in zip(at, piece.loops, strict=True)))
        for piece in pieces
        for at in np.ndindex(*(loop.count for loop in piece.loops))
    )


def test_rows_that_repeat_are_covered_once():
    """Twice two nests and single rows: a table for each repetition would say nothing."""
    first = np.array([0, 1, 2, 3, 4, 50, 60, 70, 80, 90])
    rows = np.concatenate([first + 1000 * i for i in range(5)])[:, None]
    pieces = fit(rows, shorten=True)
    assert all(loop.rows is None for piece in pieces for loop in piece.loops)
    assert covered(rows, pieces) == sorted(map(tuple, rows.tolist()))
    assert len(pieces) == 2


def test_blocks_of_rows_are_covered_once_whatever_is_between_them():
    rng = random.Random(1)
    found = 0
    for _ in range(300):
        block = np.array([[k, 5 * k + (k > 2)] for k in range(rng.randint(3, 7))])
        starts = np.array([[100 * i + 1000 * rng.choice((0, 0, 0, i)), 300 * i] for i in range(rng.randint(2, 40))])
        rows = (starts[:, None] + block).reshape(-1, 2)
        pieces = fit(rows, shorten=True)
        if all(loop.rows is None for piece in pieces for loop in piece.loops):
            found += 1
            assert covered(rows, pieces) == sorted(map(tuple, rows.tolist()))
    assert found > 100


@pytest.mark.nightly
def test_every_pass_keeps_the_numbers():
    check(models.borders((1, 4), 4), steps=1)
    check_batch(models.borders((1, 4), 4))


@pytest.mark.parametrize("sizes", nightly_but([(1, 4)], [(1, 4), (2, 5, 4, 3)]))
def test_bits(sizes, tmp_path):
    compare(models.borders(sizes, 5), tmp_path, steps=2, flags=["-O0"])
