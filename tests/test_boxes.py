"""Boxes: rows of different lengths behind a mask are stored, and computed, as if all were as long as the longest.

Found here is a box that is none: it would read what nobody wrote, or compute far more than is needed. That modules with
masks have the interpreted bits is tested in test_differential.py and test_fuzz_regular.py.
"""

from __future__ import annotations

import random

import models
import numpy as np
import pytest
from harness import compare, nightly_but

from benchmarks.depth import attending, in_windows, turned
from codegen import Floats, Program
from codegen.ir.loops import For, statements
from codegen.pipeline import compile_program
from codegen.reference.verify_loops import verify_loops
from codegen.reroll.boxes import Box, find_boxes
from codegen.schedule.forms import Growing
from micrograd.functional import softmax, total

TRIANGLE = [(t, i) for t in range(4) for i in range(t + 1)]


def instances(pairs):
    """What a comparison of token t with token i reads: a query of four numbers, and a key behind them."""
    return np.array([(100 + 4 * t, 200 + 4 * i) for t, i in pairs])


def found(rows, keys=(), has_margin=False):
    """The first box, each column of `rows` being read from an array that has margins or not."""
    return next(find_boxes(rows, [*keys, *rows.T], np.full(rows.shape[1], has_margin)), None)


def test_a_triangle_is_half_of_a_box():
    shuffled = np.random.default_rng(1).permutation(instances(TRIANGLE))
    order, box = found(shuffled)
    assert (shuffled[order] == instances(TRIANGLE)).all()
    assert box.length == 4
    assert box.counts.tolist() == [1, 2, 3, 4]
    assert box.places.tolist() == [4 * t + i for t, i in TRIANGLE]
    assert (box.filled(instances(TRIANGLE)) == instances([(t, i) for t in range(4) for i in range(4)])).all()


def test_a_row_of_a_box_tells_where_a_row_of_its_reader_begins():
    """What reads one number of each comparison has no index that stays the same in a row."""
    rows = np.array([[300 + 4 * t + i] for t, i in TRIANGLE])
    assert found(rows) is None
    order, box = found(rows, [(rows[:, 0] - 300) // 4])
    assert order.tolist() == list(range(10))
    assert box.length == 4


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (3, 6)],  # most of it empty
        [(0, 0), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)],  # a row that does not advance evenly
        [(0, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)],  # rows that do not
        [(t, i) for t in range(4) for i in range(3)],  # regular without a box
        [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (4, 2), (4, 3), (4, 4)],  # a row is missing
        [(0, 0), (1, 1), (1, 2), *((t, t - 2 + i) for t in (2, 3, 4) for i in range(3))],  # a row begins too late
    ],
)
def test_no_box(pairs):
    assert found(instances(pairs)) is None
    assert found(instances(pairs), has_margin=True) is None


def test_no_box_reaches_beyond_an_array_without_margin():
    pairs = [(0, 0), (0, 1), (0, 2), (1, 2), (1, 3), (2, 4)]  # the last row would read two more
    assert found(instances(pairs)) is None
    assert found(instances(pairs), has_margin=True) is not None


BACK, AHEAD, AROUND = (-2, 0), (0, 2), (-2, 2)


@pytest.mark.parametrize(
    ("reach", "places"),
    [
        (BACK, [(2, 3), (1, 3), (0, 3), (0, 3), (0, 3), (0, 3), (0, 3)]),
        (AHEAD, [(0, 3), (0, 3), (0, 3), (0, 3), (0, 3), (0, 2), (0, 1)]),
        (AROUND, [(2, 5), (1, 5), (0, 5), (0, 5), (0, 5), (0, 4), (0, 3)]),
    ],
)
def test_a_window_is_a_box_with_numbers_beyond_the_tokens(reach, places):
    """Rows of a window begin where that of a token in the middle would: before the first token, or end behind the last.

    What is there must be numbers of an array with a margin: else a row would read from another array.
    """
    pairs = [(t, i) for t in range(7) for i in range(t + reach[0], t + reach[1] + 1)]
    inside = [(t, i) for t, i in pairs if 0 <= i < 7]
    assert found(instances(inside)) is None
    order, box = found(instances(inside)[::-1], has_margin=True)
    assert (instances(inside)[::-1][order] == instances(inside)).all()
    assert box.needed == tuple([range(*row) for row in places])
    assert box.places.tolist() == [box.length * t + i - t - reach[0] for t, i in inside]
    assert (box.filled(instances(inside)) == instances(pairs)).all()


def test_rows_of_two_heads_are_those_of_a_token_side_by_side():
    inside = [(t, h, i) for t in range(6) for h in range(2) for i in range(max(0, t - 2), t + 1)]
    rows = np.array([(100 + 8 * t + 4 * h, 200 + 8 * i + 4 * h) for t, h, i in inside])
    _, box = found(rows, has_margin=True)
    assert [places.start for places in box.needed] == [2, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]


def test_numbers_that_do_not_advance_evenly_fill_no_box():
    none = np.zeros(2, np.int64)
    assert Box(2, none, np.array([1, 2])).filled(np.array([[0], [10], [11]])) is not None
    assert Box(3, none, np.array([1, 3])).filled(np.array([[0], [10], [11], [13]])) is None


def attention(tokens, width=3, block_count=1, slope=0.0):
    """Each token takes from those up to itself, the less the further away these are, if there is a slope (ALiBi)."""
    x = models.values(tokens * width)
    h = [x[i : i + width] for i in range(0, len(x), width)]
    parameters = {}
    for block in range(block_count):
        w = parameters[f"{block}"] = models.weights(random.Random(block), width, width)
        q = [[total([a * b for a, b in zip(row, token, strict=True)]) for row in w] for token in h]
        shares = [
            softmax([total([a * b for a, b in zip(q[t], h[i], strict=True)]) - slope * (t - i) for i in range(t + 1)])
            for t in range(tokens)
        ]
        h = [
            [total([s * h[i][a] for i, s in enumerate(row)]) + q[t][a] for a in range(width)]
            for t, row in enumerate(shares)
        ]
    return Program(Floats(x), None, parameters, total([v * v for token in h for v in token]), {"h": h[-1]}, 0.01)


def growing(loops):
    return [
        stmt
        for kernel in loops.kernels
        for nest in kernel.nests
        for stmt in statements(nest)
        if type(stmt) is For and stmt.steps
    ]


@pytest.mark.slow
def test_tokens_behind_a_mask_share_loops():
    """Twice the tokens are no more C, because sums over the tokens before them have counts that grow."""
    few, many = (compile_program(attention(tokens), "masked") for tokens in (8, 16))
    assert many.files["masked_kernels.h"].count("\n") <= 1.1 * few.files["masked_kernels.h"].count("\n")
    assert growing(many.loops)
    assert growing(many.wide.beside)
    assert any(nest in Growing(many.plain) for kernel in many.plain.kernels for nest in kernel.nests)


def test_counts_that_grow_are_told_once():
    """The first of them is told, with `k < 1 + t`. The last token is an output."""
    lines = compile_program(attention(8), "masked").explanation().splitlines()
    told = next(i for i, line in enumerate(lines) if "max_k" in line)
    assert lines[told].endswith("k < 1 + t")
    assert lines[told - 2] == "7 times, t < 7"


@pytest.mark.slow
def test_blocks_behind_a_mask_share_loops():
    lines = [
        compile_program(attention(6, block_count=blocks), "masked").files["masked_kernels.h"].count("\n")
        for blocks in (4, 8)
    ]
    assert lines[1] <= 1.1 * lines[0]


@pytest.mark.parametrize("reach", [(2, 0), (0, 2), (2, 2)])
def test_loops_of_windows_are_legal(reach):
    """They read no element of value[] that is not written before, though rows reach beyond the tokens."""
    verify_loops(compile_program(in_windows(2, 8, *reach, width=4), "windows").plain, is_padded=False)


@pytest.mark.parametrize("reach", [(3, 0), (4, 0)], ids=["four", "five"])
def test_windows_have_the_same_loops_at_any_length(reach):
    few, many = (compile_program(in_windows(2, tokens, *reach, width=4), "windows") for tokens in (10, 14))
    assert len(many.plain.kernels) == len(few.plain.kernels)
    for compiled in (few, many):
        assert any(kernel.box and kernel.box[0].start for kernel in compiled.plain.kernels)
        assert "    group_1[i] = 0    i < 16" in compiled.explanation().splitlines()  # whole cache lines


def test_terms_of_several_arrays_need_no_margin():
    """Even and odd elements of what turns are groups of their own; a score adds up products of both, by turns."""
    for tokens in (6, 9):
        compiled = compile_program(turned(tokens, width=4), "turned")
        assert sum(bool(kernel.box) for kernel in compiled.plain.kernels) == 5  # of scores, and what is read with them
        assert not [line for line in compiled.explanation().splitlines() if " = 0    " in line]
        verify_loops(compiled.plain, is_padded=False)


def test_constants_that_differ_fill_a_box_as_a_table():
    plain, inclined = (compile_program(attention(7, slope=slope), "inclined") for slope in (0.0, 0.125))
    boxes = [[len(k.nests) for k in compiled.plain.kernels if k.box] for compiled in (plain, inclined)]
    assert boxes[1] == boxes[0] == [1] * 5  # of scores, and what is read with them
    table = inclined.plain.tables["table_2_0"]  # of all tokens but the last, which is an output
    assert [table[6 * t :][: t + 1] for t in range(6)] == [[-0.125 * (t - i) for i in range(t + 1)] for t in range(6)]
    verify_loops(inclined.plain, is_padded=False)


@pytest.mark.slow
@pytest.mark.parametrize("program", [turned(5, width=4), attention(6, slope=0.125)], ids=["turns", "slopes"])
def test_bits_of_positions(program, tmp_path):
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.parametrize("reach", nightly_but([(2, 0), (0, 2)], [(2, 0), (0, 2), (2, 2)]))
def test_bits_in_windows(reach, tmp_path):
    compare(in_windows(2, 6, *reach, width=4), tmp_path, steps=2, flags=["-O0"])


BEHIND_A_MASK = {
    "few tokens": lambda: attention(3, block_count=2),
    "two heads": lambda: attending(1, 4),
    "many tokens": lambda: attention(9, block_count=2),
}


@pytest.mark.parametrize("name", nightly_but(["few tokens", "two heads"], BEHIND_A_MASK))
def test_bits_behind_a_mask(name, tmp_path):
    compare(BEHIND_A_MASK[name](), tmp_path, steps=2, flags=["-O0"])
