"""Segments: sums whose terms come from several arrays, in turns or one after the other.

Found here is a loop that takes terms in another order, or that advances unevenly. That modules with such sums have the
interpreted bits is tested in test_fuzz_regular.py too.
"""

import random
from dataclasses import replace
from itertools import accumulate, groupby

import models
import numpy as np
import pytest
from harness import compare

from codegen import Floats, Program, compile_program
from codegen.ir.graph import Op
from codegen.ir.loops import For, statements
from codegen.reroll.lower import loops_over_terms
from codegen.reroll.runs import Run, TermList
from codegen.schedule.nest import root_loops
from micrograd.functional import total


def term_list(places, shapes=None):
    """Terms with one leaf each, and the leaf's place for each instance; neighbours of one shape are a run."""
    indices = np.array(places)
    shapes = [0] * indices.shape[1] if shapes is None else shapes
    found = [Run(shape, len([*terms]), [Op.PARAM], 0) for shape, terms in groupby(shapes)]
    columns = accumulate([run.count for run in found], initial=0)
    runs = [replace(run, column=column) for run, column in zip(found, columns, strict=False)]
    return TermList(runs, indices, lambda run: run.shape)


def numbers(segments):
    """The terms of each segment, by their numbers."""
    return [
        [
            [part.column + part.distance * k if part.distance else part.column + k for k in range(part.count)]
            for part in segment
        ]
        for segment in segments
    ]


def cut(places, shapes=None):
    terms = term_list(places, shapes)
    return numbers(terms.segments(terms.alike))


def test_a_run_is_cut_where_instances_continue_differently():
    rows = [[100 + 10 * i, 101 + 10 * i, 102 + 10 * i, 500 + i, 510 + i] for i in range(3)]
    assert cut(rows) == [[[0, 1, 2]], [[3, 4]]]


def test_terms_that_alternate_are_one_segment():
    """A first term, four times two that advance differently, and a last one."""
    turns = [[place for k in range(4) for place in (100 + 10 * i + k, 500 + i - 3 * k)] for i in range(3)]
    assert cut([[7 * i, *turn, 900 + 2 * i] for i, turn in enumerate(turns)]) == [
        [[0]],
        [[1, 3, 5, 7], [2, 4, 6, 8]],
        [[9]],
    ]


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([0, 7], [1, 1]),
        ([0, 1], [2]),
        ([0, 1414, 1800, 1806], [1, 1, 1, 1]),
        ([0, -1, 30, 29], [4]),
        ([0, 6, 12, 500, 507], [3, 1, 1]),
    ],
)
def test_two_terms_that_are_no_neighbours_are_no_loop(places, found):
    """Their distance says nothing: it may be another one in each block, and keep blocks from being one loop."""
    assert [piece.length for piece in loops_over_terms(np.array(places)[:, None])] == found


@pytest.mark.parametrize("times", [2, 3])
def test_two_turns_are_no_rule(times):
    rows = [[place for k in range(times) for place in (100 + 10 * i + k, 500 + i - k)] for i in range(3)]
    assert (max(map(len, cut(rows))) == 2) == (times > 2)


def test_instances_that_differ_in_one_turn_are_cut_there():
    rows = [[place for k in range(4) for place in (100 + 10 * i + k, 500 + i - k)] for i in range(3)]
    rows[1][6] += 1
    assert cut(rows) == [[[0, 2, 4], [1, 3, 5]], [[6]], [[7]]]


def test_terms_of_several_shapes_alternate():
    rows = [[i, *[place for k in range(4) for place in (100 + 10 * i + k, 500 + i - k, k)]] for i in range(3)]
    assert cut(rows, [9, *[0, 1, 0] * 4]) == [[[0]], [[1, 4, 7, 10], [2, 5, 8, 11], [3, 6, 9, 12]]]
    assert all(len(segment) == 1 for segment in cut(rows, [9, *[0, 1, 0] * 2, *[0, 2, 0] * 2]))


def test_alternating_terms_of_one_instance():
    """One loop each would be eight times three."""
    terms = term_list([[place for k in range(8) for place in (k, 50 + k, 90 - k)]])
    assert numbers(terms.segments(lambda start: 1)) == [[[*range(0, 24, 3)], [*range(1, 24, 3)], [*range(2, 24, 3)]]]
    (segment,) = terms.segments(lambda start: 1)
    places = np.arange(24)[None]
    assert [part.columns(places)[0, :2, 0].tolist() for part in segment] == [[0, 3], [1, 4], [2, 5]]


def in_turns(points, beside):
    """The weights of two layers are used at each point and beside it, so their gradients add both in turns."""
    x = models.values(2)
    rng = random.Random(points)
    w, v = models.weights(rng, 3, 2), models.weights(rng, 2, 3)

    def net(at):
        h = [total([a * b for a, b in zip(row, at, strict=True)]).tanh() for row in w]
        return total([total([a * b for a, b in zip(row, h, strict=True)]).tanh() for row in v])

    losses = []
    for k in range(points):
        at = [x[0] * (k + 1), x[1] + k]
        losses += [net(at) - net([at[0] + 0.1 * step, at[1]]) for step in range(1, beside + 1)]
    loss = total([difference * difference for difference in losses])
    return Program(Floats(x), None, {"w": w, "v": v}, loss, {"loss": [loss]}, 0.01)


def turns(kernel):
    """How many terms each loop over terms has."""
    loops = {id(loop) for nest in kernel.nests for loop in root_loops(nest)}
    over_terms = [s for nest in kernel.nests for s in statements(nest) if type(s) is For and id(s) not in loops]
    return [len(loop.body) for loop in over_terms]


@pytest.mark.slow
def test_gradients_that_alternate_have_the_bits_of_the_engine(tmp_path):
    program = in_turns(5, 2)
    compiled = compile_program(program)
    assert max(found := [count for kernel in compiled.plain.kernels for count in turns(kernel)]) == 4, found
    (told,) = [line for line in compiled.explanation().splitlines() if "v.grad" in line]
    assert " += sum_k(group_10[7 + 8i - k] * group_22[7 + 8j - k] + group_9[3 + 4i - k] * " in told
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_more_points_are_no_more_c():
    few, many = (compile_program(in_turns(points, 2), "m").files["m_kernels.h"].count("\n") for points in (8, 32))
    assert many <= 1.1 * few
