"""Copies of columns: what lanes of gradients read from columns of values they read from rows of a copy.

Found here is a copy that pays nothing, or a read of a number that was not copied. That modules with copies have the
interpreted bits is tested in test_fuzz_regular.py too.
"""

from dataclasses import replace

import numpy as np
import pytest
from harness import Extension, bits, compare, gradients, nightly_but

from benchmarks.small.models import lstm, numbers, physics_loss
from codegen import compile_program
from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    GRAD,
    VALUE,
    Accumulate,
    Apply,
    Const,
    For,
    Holds,
    Index,
    Kernel,
    Let,
    Loops,
    Name,
    Pass,
    Phase,
    Place,
    Region,
    Regions,
    Store,
)
from codegen.reference.interpret import UnwrittenError, new_state, run
from codegen.reference.print_loops import kernel_lines
from codegen.schedule.columns import copy_columns, copy_columns_of_gradients

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


def after(loops):
    """The gradients after all kernels, in their order."""
    state = new_state(loops, [0.1 * i * i - i for i in range(SIZE)], [0.0] * SIZE)
    run(state, EVERYTHING)
    return state.grad


def test_columns_become_rows_of_a_copy():
    loops = copy_columns_of_gradients(loops_with(read(0, [(1, "k")])), 4)
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


def test_copies_for_gradients_stand_behind_the_forward_pass():
    """Between kernels of blocks that repeat, a kernel of other passes would keep them from becoming a loop."""
    plain = loops_with(read(0, [(1, "k")]))
    values, gradient = plain.kernels
    nest = (For("i", SIZE, (Store(Place(VALUE, Index(SIZE, ((1, "i"),))), Place(VALUE, Index(0, ((1, "i"),)))),)),)
    later = Kernel(2, Pass.LOSS, (nest,), (SIZE, SIZE + 1), SIZE)
    regions = {**plain.regions, VALUE: Regions([*plain.regions[VALUE], Region(SIZE, "G", "g", SIZE, SIZE, SIZE)])}
    kernels = values, later, replace(later, number=3, passes=Pass.GRADIENTS), gradient
    loops = replace(plain, kernels=kernels, lengths={**plain.lengths, VALUE: 2 * SIZE}, regions=regions)
    copied = copy_columns_of_gradients(loops, 4).kernels
    assert [kernel.number for kernel in copied] == [0, 2, 4, 3, 1]
    assert copied[2].nodes == values.nodes  # what it copies, not what is computed before it


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
    copied = copy_columns_of_gradients(plain, 4)
    assert len(copied.kernels) == len(plain.kernels) + 1
    assert after(copied) == after(plain)


def test_copies_may_hold_what_nobody_computes():
    """Between regions that are one matrix there may be elements of no region. A copy of them is as unwritten."""

    def with_gap(terms):
        plain = loops_with(read(0, [(1, "k")]), read(5, [(1, "k")]), terms=terms)
        values, gradient = plain.kernels
        computed = Index(0, ((POINTS, "i"), (5, "j"), (1, "k")))  # points 0 to 2, 5 to 7
        store = Store(Place(VALUE, computed), Place(DATA, computed))
        nest = (For("i", UNITS, (For("j", 2, (For("k", 3, (store,)),)),)),)
        return replace(plain, kernels=(replace(values, nests=(nest,)), gradient))

    copied = copy_columns_of_gradients(with_gap(3), 4)
    assert len(copied.kernels) == 3
    assert after(copied) == after(with_gap(3))
    with pytest.raises(UnwrittenError, match="kernel 1 "):
        after(copy_columns_of_gradients(with_gap(4), 4))


def test_gradients_that_may_be_reordered_read_copies_more_often():
    """Groups of images may add them, which reads no columns."""
    assert len(copy_columns_of_gradients(loops_with(read(0, [(1, "k")]), rows=1), 4).kernels) == 3
    loops = loops_with(read(0, [(1, "k")]), rows=3)
    assert copy_columns_of_gradients(loops, 4, reorder=True) is loops


def test_copies_are_not_copied():
    """A copy reads columns itself."""
    copied = copy_columns_of_gradients(loops_with(read(0, [(1, "k")])), 4)
    assert copy_columns_of_gradients(copied, 4) is copied
    assert copy_columns(copied, 4, {}) is copied


@pytest.mark.parametrize(
    "loops",
    [
        loops_with(read(0, [(1, "k")]), lanes=3),  # no vector
        loops_with(read(0, [(1, "k")], down=1)),  # neighbours in memory
        loops_with(read(4, [(1, "k")]), lanes=UNITS - 1),  # from the middle of one row to that of the next
    ],
)
def test_no_copies(loops):
    assert copy_columns_of_gradients(loops, 4) is loops


def test_numbers_that_nobody_computes_are_not_copied():
    plain = loops_with(read(0, [(1, "k")]))
    inputs = Regions([Region(0, "INPUT", "input", SIZE, SIZE, SIZE, Holds.INPUTS)])
    loops = Loops(plain.kernels, plain.lengths, {}, {**plain.regions, VALUE: inputs}, SIZE)
    assert copy_columns_of_gradients(loops, 4) is loops


def results_with(place, rows=5, numbers=(1, 2)):
    """Two kernels, each with results whose lanes j read columns of data for each term k."""
    kernels = []
    for number in numbers:
        result = Place(VALUE, Index(100 * number, ((UNITS, "i"), (1, "j"))))
        factor = Place(VALUE, Index(0, ((1, "i"), (3, "k"))))
        terms = For("k", POINTS, (Accumulate(Name("sum"), Op.ADD, Apply(int(Op.MUL), (factor, place))),))
        body = (Let("sum", Const(-0.0)), terms, Store(result, Name("sum")))
        nest = (For("i", rows, (For("j", UNITS, body),)),)
        kernels.append(Kernel(number, Pass.GRADIENTS, (nest,), (number, number), rows * UNITS))
    plain = loops_with(read(0, [(1, "k")]))
    of_values = [Region(100 * n, f"GROUP_{n}", f"group_{n}", 64, 64, 64) for n in numbers]
    regions = {**plain.regions, VALUE: Regions([*plain.regions[VALUE], *of_values])}
    return Loops((plain.kernels[0], *kernels), {DATA: SIZE, VALUE: 400}, {}, regions, 0)


def column(array):
    return Place(array, Index(POINTS - 1, ((POINTS, "j"), (-1, "k"))))


def values(loops):
    state = new_state(loops, [0.1 * i * i - i for i in range(SIZE)], [])
    run(state, EVERYTHING)
    return state.images[0][:400]


@pytest.mark.parametrize("array", [DATA, VALUE])
def test_neighbours_are_one_matrix(array):
    """Two regions of three units each, as of two layers whose weights lie behind one another."""
    plain = results_with(column(array))
    half = SIZE // 2
    (whole, *others) = plain.regions[array]
    halves = [replace(whole, start=start, name=f"{whole.name}_{start}", row=half, extent=half) for start in (0, half)]
    loops = replace(plain, regions={**plain.regions, array: Regions([*halves, *others])})
    copied = copy_columns(loops, 4, {})
    assert len(copied.kernels) == len(copy_columns(plain, 4, {}).kernels) == len(plain.kernels) + 1
    assert values(copied) == values(plain)


@pytest.mark.parametrize("array", [DATA, VALUE])
def test_kernels_share_a_copy(array):
    """Three rows each are not enough for one kernel, but for two. The copy is made before both."""
    plain = results_with(column(array), rows=3)
    copied = copy_columns(plain, 4, {})
    (copy,) = [kernel for kernel in copied.kernels if kernel.number > 2]
    assert copied.kernels.index(copy) == 1
    assert (copy.passes, copy.phase) == (Pass.GRADIENTS, Phase.BY_IMAGE)  # as all that no batch has side by side
    assert values(copied) == values(plain)
    assert copy_columns(results_with(column(array), rows=3, numbers=[1]), 4, {}).kernels == plain.kernels[:2]


@pytest.mark.parametrize("phase", [Phase.ONCE, Phase.BY_IMAGE])
def test_what_a_batch_runs_for_single_images_reads_no_copy(phase):
    """The batch would not make it."""
    plain = results_with(column(DATA))
    assert copy_columns(plain, 4, {1: phase, 2: phase}) is plain
    mixed = copy_columns(plain, 4, {1: phase, 2: Phase.SIDE_BY_SIDE})
    assert {kernel.phase for kernel in mixed.kernels} == {Phase.BY_IMAGE, Phase.SIDE_BY_SIDE}  # that of its reader
    without_copy = [kernel for kernel in mixed.kernels if kernel.number < len(plain.kernels)]
    assert [kernel == plain.kernels[kernel.number] for kernel in without_copy] == [True, True, False]


def test_kernels_of_several_passes_have_copies_of_their_own():
    """Parameters may change between forward and backward."""
    plain = results_with(column(DATA))
    forward = replace(plain.kernels[1], passes=Pass.LOSS)
    copied = copy_columns(plain.with_kernels([plain.kernels[0], forward, plain.kernels[2]]), 4, {})
    assert [kernel.passes for kernel in copied.kernels if kernel.number > 2] == [Pass.LOSS, Pass.GRADIENTS]


def test_what_is_computed_later_is_not_copied():
    plain = results_with(column(VALUE))
    late = plain.with_kernels([*plain.kernels[1:], plain.kernels[0]])
    assert copy_columns(late, 4, {}) is late


@pytest.mark.parametrize("write", nightly_but([physics_loss], [physics_loss, lstm]))
def test_copies_in_modules(write, tmp_path):
    """Of values and of parameters, for single images, for images side by side, and for steps."""
    program = write(numbers(6), numbers(1), hidden=5) if write is physics_loss else write(numbers(12), numbers(2), 6, 5)
    assert ".columns[" in compile_program(program).files["nn_kernels.h"]
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_backward_reads_the_parameters_of_the_moment(tmp_path, monkeypatch):
    """As it does without a copy: they may change after forward."""
    found = []
    for copies in (copy_columns, lambda loops, *_: loops):
        monkeypatch.setattr("codegen.schedule.pipeline.copy_columns", copies)
        nn = Extension(lstm(numbers(12), numbers(2), 6, 5), tmp_path, "loops", flags=["-O0"]).module
        nn.forward([0.5, 1.0], [0.1 * i for i in range(12)])
        for view in nn.state_dict().values():
            np.asarray(view)[...] *= -1.5
        nn.backward()
        found.append(gradients(nn))
    assert bits(found[0]) == bits(found[1])
    assert any(found[0])
