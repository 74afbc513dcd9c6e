"""Groups that lie between one another, as the corners, sides and other pixels of an image, are stored as one array."""

from __future__ import annotations

import models
import numpy as np
import pytest
from harness import compare, slow_but
from test_schedule import check, check_batch

from benchmarks.small.models import physics_loss
from codegen import compile_program
from codegen.ir.loops import Pass
from codegen.pipeline import build_graph, reroll
from codegen.reroll.affine import fit

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


def test_gradients_are_stored_as_the_values_are():
    """What multiplies them by slopes is one nest for each layer, in the order of the pixels."""
    found, stored = grids(models.borders())
    assert [len(group.group.roots) for group in stored if group.group.passes == Pass.GRADIENTS] == [16, 64, 64, 144]
    slopes = [kernel for kernel in found.loops.kernels if kernel.passes == Pass.GRADIENTS and kernel.roots == 144]
    assert [kernel.nests[0][0].count for kernel in slopes] == [144, 144]


def test_layers_of_convolutions_are_loops():
    lines = [
        compile_program(models.borders((4,) * layers, 5), "borders").files["borders_kernels.h"].count("\n")
        for layers in (4, 7)
    ]
    assert lines[1] <= lines[0]


def test_values_stay_contiguous_where_loads_would_be_many_more():
    """Three evaluations of a network at a place read all places in a row; place by place, they would read ten units."""
    _, stored = grids(physics_loss(models.values(16), models.values(1)))
    assert not [group for group in stored if group.group.passes & Pass.LOSS]


def test_rows_that_repeat_are_covered_once():
    """Twice two nests and single rows: a table for each repetition would say nothing."""
    first = np.array([0, 1, 2, 3, 4, 50, 60, 70, 80, 90])
    rows = np.concatenate([first + 1000 * i for i in range(5)])[:, None]
    pieces = fit(rows, shorten=True)
    assert all(loop.rows is None for piece in pieces for loop in piece.loops)
    covered = sorted(
        rows[piece.start, 0] + sum(i * loop.strides[0] for i, loop in zip(at, piece.loops, strict=True))
        for piece in pieces
        for at in np.ndindex(*(loop.count for loop in piece.loops))
    )
    assert covered == sorted(rows[:, 0].tolist())
    assert len(pieces) == 2


def test_every_pass_keeps_the_numbers():
    check(models.borders((1, 4), 4), steps=1)
    check_batch(models.borders((1, 4), 4))


@pytest.mark.parametrize("sizes", slow_but([(1, 4)], [(1, 4), (2, 5, 4, 3)]))
def test_bits(sizes, tmp_path):
    compare(models.borders(sizes, 5), tmp_path, steps=2, flags=["-O0"])
