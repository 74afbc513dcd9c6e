"""Loops over sums that C must keep in registers: a pass that marks too few or too many of them changes no number, so
no other test would find it."""

import pytest

from codegen import Floats, Program, compile_program
from codegen.ir.print_loops import kernel_lines
from micrograd.engine import Value
from micrograd.functional import total


def squares(terms, sums=24):
    """A factorization: sums of squares of products, of which no term is shared."""
    x = [Value(0.0) for _ in range(terms)]
    w = [[Value(1.0) for _ in x] for _ in range(sums)]
    y = [total([(a * b) * (a * b) for a, b in zip(row, x, strict=True)]).tanh() for row in w]
    return Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=total(y), dtype="float32")


def test_sums_of_many_terms_are_unrolled():
    batch = compile_program(squares(30)).batch.side_by_side
    lines = [line.strip() for kernel in batch.kernels for line in kernel_lines(kernel)]
    marked = [i for i, line in enumerate(lines) if line.startswith("unrolled ")]
    assert marked, lines
    for i in marked:
        assert lines[i - 1] == "for k < 30:"
        assert lines[i + 1].startswith("side by side image < 16:")
        assert lines[i + 2].startswith("sum[i][image] += ")


@pytest.mark.parametrize("terms", [6, 8])
def test_few_terms_are_left_to_the_compiler(terms):
    batch = compile_program(squares(terms)).batch.side_by_side
    assert not any("unrolled" in line for kernel in batch.kernels for line in kernel_lines(kernel))


def test_loops_in_order_are_left_alone():
    """On the way back, terms are read backwards. gcc would make no vectors of loops that it must unroll before."""
    x = [Value(0.0) for _ in range(24)]
    layers = [[[Value(1.0) for _ in x] for _ in x] for _ in range(2)]
    y = x
    for rows in layers:
        y = [total([a * b for a, b in zip(row, y, strict=True)]).tanh() for row in rows]
    batch = compile_program(Program(inputs=Floats(x), targets=None, parameters={"w": layers}, loss=total(y))).batch
    lines = [line for kernel in batch.side_by_side.kernels for line in kernel_lines(kernel)]
    assert any("unrolled for " in line for line in lines)
    assert any("for in order " in line for line in lines)
    assert not any("unrolled for in order " in line for line in lines)


def test_c_says_so():
    files = compile_program(squares(30)).files
    assert any("UNROLLED(" in text for text in files.values())
