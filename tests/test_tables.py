"""Constants that tear loops apart: zeros and ones among the numbers of a rotation, a mask, a matrix."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import models
import pytest
from harness import compare, nightly_but
from models import total

from benchmarks.small.models import SMALL
from codegen import Floats, Program
from codegen.ir.graph import Op
from codegen.ir.loops import is_rolled
from codegen.passes.simplify import find_tables, simplify
from codegen.passes.trace import trace
from codegen.pipeline import compile_program
from micrograd.engine import Value
from micrograd.functional import softmax

Rows = list[list[Value]]


def graph(x: list[Value], loss: Value):
    return trace(Program(Floats(x), None, {}, loss))


def model(layer: Callable[[Rows, Rows], Rows], rows: int = 4, width: int = 6) -> Program:
    """A layer of what two matrices make of rows, so that it has a way back, and a third one behind it."""
    x = models.values(rows * width)
    rng = random.Random(rows)
    w, u, v = (models.weights(rng, width, width) for _ in range(3))

    def times(w: Rows, xs: Rows) -> Rows:
        return [[total([a * b for a, b in zip(row, x, strict=True)]) for row in w] for x in xs]

    given = [x[i : i + width] for i in range(0, len(x), width)]
    out = times(v, layer(times(w, given), times(u, given)))
    loss = total([y * y for row in out for y in row])
    return Program(Floats(x), None, {"w": w, "u": u, "v": v}, loss, {"loss": [loss]}, 0.01)


def rotation(xs: Rows, _: Rows) -> Rows:
    """Of pairs, by 0, 1, 2 ... times angles of their own: of the first row, cosines are 1 and sines 0."""
    half = len(xs[0]) // 2
    found = []
    for t, x in enumerate(xs):
        turns = [(math.cos(t / (k + 1)), math.sin(t / (k + 1))) for k in range(half)]
        pairs = [*zip(turns, x[:half], x[half:], strict=True)]
        found.append([*(a * c - b * s for (c, s), a, b in pairs), *(a * s + b * c for (c, s), a, b in pairs)])
    return found


def ring(xs: Rows, _: Rows) -> Rows:
    """A matrix of zeros and ones: each row and its neighbours."""
    n = len(xs)
    matrix = [[float((i - j) % n in (0, 1, n - 1)) for j in range(n)] for i in range(n)]
    return [[total([c * x[k] for c, x in zip(row, xs, strict=True)]) for k in range(len(xs[0]))] for row in matrix]


def attention(xs: Rows, ys: Rows) -> Rows:
    """Each row attends to those before it: 0 or -inf is added to scores."""
    found = []
    half = len(ys[0]) // 2
    for i, x in enumerate(xs):
        scores = [total([a * b for a, b in zip(x[:half], y[:half], strict=True)]) for y in ys]
        shares = softmax([s + (0.0 if j <= i else -math.inf) for j, s in enumerate(scores)])
        found.append([total([s * y[half + k] for s, y in zip(shares, ys, strict=True)]) for k in range(half)] * 2)
    return found


def dropout(xs: Rows, _: Rows) -> Rows:
    """A recurrence whose states are multiplied by 0 or 1.25."""
    rng, h, found = random.Random(1), xs[0], []
    for x in xs:
        h = [(a + b).tanh() * rng.choice([0.0, 1.25]) for a, b in zip(h, x, strict=True)]
        found.append(h)
    return found


LAYERS = {"rotation": rotation, "ring": ring, "attention": attention, "dropout": dropout}


@pytest.mark.parametrize("name", nightly_but(["ring"], LAYERS))
def test_bits(name, tmp_path):
    compare(model(LAYERS[name]), tmp_path, steps=2, flags=["-O0"])


@pytest.mark.parametrize(
    ("name", "most"),
    [
        pytest.param("rotation", 12, marks=pytest.mark.slow),
        ("ring", 11),
        pytest.param("attention", 26, marks=pytest.mark.slow),
    ],
)
def test_rows_cost_no_kernels(name, most):
    assert max(len(compile_program(model(LAYERS[name], rows)).plain.kernels) for rows in (5, 8, 12)) == most


def test_steps_whose_constants_differ_are_a_loop():
    compiled = compile_program(model(dropout, rows=12))
    assert any(is_rolled(nest) for kernel in compiled.loops.kernels for nest in kernel.nests)
    assert len(compiled.loops.kernels) < len(compiled.plain.kernels) / 4


def test_constants_that_do_not_differ_along_a_loop_are_once_in_the_table():
    """Of a ring of 5, a matrix of 5 x 5, although each of 6 columns is multiplied by it."""
    tables = compile_program(model(ring, rows=5)).plain.tables
    assert [len(numbers) for numbers in tables.values()] == [25]


def test_blocks_of_constants_stay_literals():
    """Half of a row times 0.5, the other half times 0.25: two nests without a table."""
    halves = model(lambda xs, _: [[v * (0.5 if k < 4 else 0.25) for k, v in enumerate(x)] for x in xs], 1, 8)
    assert not compile_program(halves).plain.tables


@pytest.mark.slow
def test_few_constants_are_a_table_where_that_is_fewer_loops():
    """Signs in turns are a table, and so are the means over 2, 3, 4 and 6 neighbours in a random graph on the way back:
    one loop over 12 nodes of 8 numbers, where literals are four loops and more."""
    turns = model(lambda xs, _: [[v * (-1) ** (k + t) for k, v in enumerate(x)] for t, x in enumerate(xs)])
    assert {len(table) for table in compile_program(turns).plain.tables.values()} == {24}
    means = compile_program(SMALL["graph network"]()).plain.tables
    assert [len(numbers) for numbers in means.values() if type(numbers[0]) is float] == [96]


def test_what_all_have_alike_disappears():
    x = models.values(8)
    assert find_tables(graph(x, total([v * 1.0 for v in x]))) is None
    small = simplify(graph(x, total([v * 1.0 for v in x])))
    assert len(small) == 8 + 7  # the additions
    two = total([v * 1.0 for v in x]) + total([v * 0.5 for v in x])  # one number after the other: no table
    assert len(simplify(graph(x, two))) == 8 + 1 + 8 + 7 + 7 + 1


def test_what_is_computed_again_is_merged():
    """The same products for each of the sums so far, of one factor more each time: a table, and still computed once."""
    x = models.values(12)
    again = total([total([v * (i % 3) for i, v in enumerate(x[:n])]) for n in range(1, 13)])
    assert len(simplify(graph(x, again))) < 12 + 3 + 12 + 11 + 12 + 12
    twice = [[v * (i % 2) for i, v in enumerate(x)] for _ in range(2)]  # each product twice
    assert len(simplify(graph(x, total([a + b for a, b in zip(*twice, strict=True)])))) == 12 + 2 + 12 + 12 + 11


def test_products_of_a_matrix_stay_apart():
    """3 x 8 products, although only 16 of them differ, and half of them are the numbers themselves."""
    x = models.values(8)
    rows = [total([v * float(j >> i & 1) for j, v in enumerate(x)]).exp() for i in range(3)]
    tables = find_tables(graph(x, total(rows)))
    assert tables is not None
    assert sum(tables.whole) == sum(tables.apart) == 24
    assert [*simplify(graph(x, total(rows))).op].count(Op.MUL) == 24
