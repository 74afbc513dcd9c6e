"""Copies of columns: what lanes of gradients read from columns of values they read from rows of a copy.

Found here is a copy that pays nothing, or a read of a number that was not copied. That modules with copies have the
interpreted bits is tested in test_fuzz_regular.py too.
"""

import pytest
from harness import compare

from benchmarks.small.models import numbers, physics_loss
from codegen import compile_program
from codegen.ir.graph import Op
from codegen.ir.interpret_loops import new_state, run
from codegen.ir.loops import (
    DATA,
    GRAD,
    VALUE,
    Accumulate,
    Apply,
    For,
    Index,
    Kernel,
    Loops,
    Pass,
    Place,
    Region,
    Regions,
    Store,
)
from codegen.ir.print_loops import kernel_lines
from codegen.schedule.columns import copy_columns

UNITS, POINTS = 6, 8
SIZE = UNITS * POINTS
EVERYTHING = Pass.LOSS | Pass.GRADIENTS | Pass.DENSE_GRADIENTS


def read(base, across, down=POINTS):
    return Place(VALUE, Index(base, ((down, "j"), *across)))


def loops_with(*places, rows=5, lanes=UNITS, terms=POINTS):
    """Values of units at points, all computed, and a gradient whose lanes j read these places for each term k."""
    values = (For("i", SIZE, (Store(Place(VALUE, Index(0, ((1, "i"),))), Place(DATA, Index(0, ((1, "i"),)))),)),)
    gradient = Place(GRAD, Index(0, ((UNITS, "i"), (1, "j"))))
    factor = Place(DATA, Index(0, ((1, "i"), (3, "k"))))
    terms = tuple(
        [For("k", terms, (Accumulate(gradient, Op.ADD, Apply(int(Op.MUL), (factor, place))),)) for place in places]
    )
    nest = (For("i", rows, (For("j", lanes, terms),)),)
    kernels = (
        Kernel(0, Pass.LOSS, (values,), (0, SIZE - 1), SIZE),
        Kernel(1, Pass.DENSE_GRADIENTS, (nest,), (SIZE, SIZE + 9), rows * lanes, is_gradient=True),
    )
    of_values = Regions([Region(0, "GROUP_0", "group_0", SIZE, SIZE, SIZE)])
    of_data = Regions([Region(0, "P_W", "w", SIZE, SIZE, SIZE)])
    return Loops(kernels, {DATA: SIZE, VALUE: SIZE}, {}, {VALUE: of_values, DATA: of_data}, 0)


def gradients(loops):
    state = new_state(loops, [0.1 * i * i - i for i in range(SIZE)], [0.0] * SIZE)
    run(state, EVERYTHING)
    return state.grad


def test_columns_become_rows_of_a_copy():
    loops = copy_columns(loops_with(read(0, [(1, "k")])), 4)
    assert [line for kernel in loops.kernels[1:] for line in kernel_lines(kernel)] == [
        "kernel 2 (gradients): 48 roots, %0 .. %47",
        "    for i < 8:",
        "        for j < 6:",
        "            value[48 + 6i + j] = value[i + 8j]",
        "kernel 1 (dense_gradients): 30 roots, %48 .. %57",
        "    for i < 5:",
        "        for j < 6:",
        "            for k < 8:",
        "                grad[6i + j] += mul(data[i + 3k], value[48 + j + 6k])",
    ]


@pytest.mark.parametrize(
    "places",
    [
        [read(0, [(1, "k")])],
        [read(7, [(-1, "k")])],  # from the last point to the first
        [read(3, [])],  # one point
        [read(6, []), read(2, [])],  # two, and the ones between them
        [read(POINTS, [])],  # without the first unit
    ],
)
def test_copies_hold_what_is_read(places):
    plain = loops_with(*places, lanes=UNITS - 1)
    copied = copy_columns(plain, 4)
    assert len(copied.kernels) == len(plain.kernels) + 1
    assert gradients(copied) == gradients(plain)


@pytest.mark.parametrize(
    "loops",
    [
        loops_with(read(0, [(1, "k")]), rows=3),  # hardly more reads than numbers
        loops_with(read(0, [(1, "k")]), lanes=3),  # no vector
        loops_with(read(0, [(1, "k")], down=1)),  # neighbours in memory
        loops_with(read(4, [(1, "k")]), lanes=UNITS - 1),  # from the middle of one row to that of the next
    ],
)
def test_no_copies(loops):
    assert copy_columns(loops, 4) is loops


def test_numbers_that_nobody_computes_are_not_copied():
    plain = loops_with(read(0, [(1, "k")]))
    inputs = Regions([Region(0, "INPUT", "input", SIZE, SIZE, SIZE)])
    loops = Loops(plain.kernels, plain.lengths, {}, {**plain.regions, VALUE: inputs}, SIZE)
    assert copy_columns(loops, 4) is loops


def test_copies_in_modules(tmp_path):
    """Of values that single images compute, and images side by side."""
    program = physics_loss(numbers(6), numbers(1), hidden=5)
    compiled = compile_program(program)
    assert ".columns[" in compiled.explanation()
    compare(program, tmp_path, steps=2, flags=["-O0"])
