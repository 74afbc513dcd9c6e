"""The loops are found again: what regular models become, and that irregular ones still compile."""

import random
from itertools import pairwise

import models
import numpy as np
import pytest

from codegen import Floats, Label, Pixels, Program, compile_program
from codegen.pipeline import build_graph, reroll
from codegen.reroll.affine import fit
from codegen.schedule.nest import root_loops
from micrograd.engine import Value
from tools.cross import functions


def counts(program):
    """(nodes, loop nests, statements without a loop over instances)"""
    compiled = compile_program(program)
    nests = [nest for kernel in compiled.plain.kernels for nest in kernel.nests]
    loops = sum(1 for nest in nests if root_loops(nest))
    return len(compiled.graph), loops, len(nests) - loops


# nodes of the graph, loop nests, single statements (a sum over many terms is one, with a loop inside)
EXPECTED = {
    "mlp": (920, 13, 9),
    "deep_mlp": (2861, 23, 9),
    "xor": (67, 5, 5),
    "convolution": (5754, 20, 8),
    "recurrence": (1553, 33, 1),
    "residual": (1007, 19, 2),
    "attention": (2320, 28, 2),  # two of them copy columns
    "shared_weights": (546, 9, 2),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_regular_models_become_few_loops(name):
    assert counts(models.REGULAR[name]()) == EXPECTED[name]


@pytest.mark.parametrize(
    ("units", "dtype", "row"), [(128, "float64", 136), (120, "float64", 120), (256, "float32", 272)]
)
def test_rows_that_would_share_sets_of_a_cache_are_moved_apart(units, dtype, row):
    compiled = compile_program(models.mlp((3, 4, units, 2), dtype=dtype))
    strides = [place.strides for place in compiled.found.layout.tensors if place.tensor.shape == (units, 4)]
    assert strides == [(1, row)]
    assert f"i < {row};" not in compiled.text or row == units, "the line between two rows is no work"


@pytest.mark.parametrize("size", [20, 5])
def test_a_table_that_repeats_is_stored_once(size):
    """Places without a rule, eight times, 24 further each time. Few are a table too: what repeats may be lanes."""
    places = [(7 * i * i) % 23 for i in range(size)]
    rows = np.array([[k, 24 * (k // size) + places[k % size]] for k in range(8 * size)])
    (piece,) = fit(rows, shorten=True)
    table, repeats = piece.loops
    assert (table.count, repeats.count, repeats.strides.tolist()) == (size, 8, [size, 24])
    found = [rows[0] + i * table.strides + table.rows[i] + j * repeats.strides for j in range(8) for i in range(size)]
    assert (np.array(found) == rows).all()


def lines(program):
    return compile_program(program).text.count("\n")


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (lambda: models.mlp((12, 7, 5)), lambda: models.mlp((60, 40, 5))),
        (lambda: models.convolution(8, 3), lambda: models.convolution(18, 5)),
        pytest.param(lambda: models.recurrence(4, 3, 5), lambda: models.recurrence(4, 6, 16), marks=pytest.mark.slow),
        pytest.param(lambda: models.attention(5, 4), lambda: models.attention(12, 8), marks=pytest.mark.slow),
    ],
)
def test_the_size_of_the_c_does_not_grow_with_the_width(small, large):
    few, many = small(), large()
    # Without declared distributions the initial weights are a table, one number a parameter: not what is meant.
    tables = [sum(len(t.numbers) for t in p.tensors) // 6 if p.initial is None else 0 for p in (few, many)]
    assert lines(many) - tables[1] <= 1.25 * (lines(few) - tables[0])


@pytest.mark.slow
def test_an_irregular_graph_becomes_statements():
    program = models.random_programs(1, 20)
    nodes, loops, statements = counts(program)
    assert nodes > 800
    assert statements > 5 * loops


def row_tensors(program):
    text = compile_program(program).text
    return int(text.split("#define ROW_TENSOR_COUNT ")[1].split()[0])


def test_zero_inputs_are_skipped_in_any_perceptron():
    assert row_tensors(models.mlp((12, 7, 5))) == 1
    assert row_tensors(models.mlp((30, 8, 8, 3))) == 1
    program = models.mlp((20, 9, 4))
    assert "w->active_count" in compile_program(program).text


def two_branches():
    """Two layers on the same pixels: two tensors share the rows."""
    rng = random.Random(3)
    x, t = models.values(10), models.values(6)
    first, second = models.weights(rng, 6, 10), models.weights(rng, 6, 10)
    b = models.weights(rng, 6)
    hidden = [
        u.tanh() * v.sigmoid() for u, v in zip(models.affine(first, b, x), models.affine(second, b, x), strict=True)
    ]
    return Program(
        inputs=Pixels(x, scale=1 / 255),
        targets=Label(t),
        parameters={"first": first, "second": second, "b": b},
        loss=models.cross_entropy(hidden, t),
        outputs={"hidden": hidden},
    )


@pytest.mark.slow
def test_two_tensors_share_the_rows_of_one_input(tmp_path):
    from harness import compare

    assert row_tensors(two_branches()) == 2
    compare(two_branches(), tmp_path, steps=4, flags=["-O0"])


def test_nothing_is_skipped_where_lanes_read_different_inputs():
    assert row_tensors(models.convolution()) == 0
    assert row_tensors(models.shared_weights()) == 0  # its inputs are targets too


def test_a_long_chain_that_is_one_sum_stays_one_loop():
    x = models.values(5_000)
    w = [Value(1.0) for _ in x]
    program = Program(inputs=Pixels(x), targets=None, parameters={"w": w}, loss=models.dot(w, x))
    _, loops, statements = counts(program)
    assert (loops, statements) == (1, 1)


def test_a_long_chain_on_top_of_a_sum_is_cut():
    """No pass recurses over the graph: unary ops above a sum are a tree of bounded size too."""
    x, w = ([Value(0.5) for _ in range(3)] for _ in range(2))
    out = w[0] * x[0] + w[1] * x[1] + w[2] * x[2]
    for _ in range(3000):
        out = out.tanh()
    program = Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=None, outputs={"out": [out]})
    assert len(compile_program(program).text) < 100_000


def test_no_group_is_padded_into_the_next():
    """Groups that are read as one array are stored as one, and have no padding between them."""
    program = functions.program()
    found = reroll(build_graph(program), program, 8)
    regions = found.loops.regions["value"]
    for region, after in pairwise(regions):
        assert region.start + region.extent <= after.start, (region, after)
