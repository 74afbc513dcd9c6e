"""Prefetches: which loops begin to load what, and that modules with them keep their bits.

A prefetch changes no number, so no other test would find one of the wrong lines, or one that is missing.
"""

from dataclasses import replace

import numpy as np
import pytest
from harness import Extension, bits, gradients

from benchmarks.small.models import dense, lstm, numbers
from codegen import compile_program
from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    VALUE,
    Accumulate,
    Apply,
    For,
    Holds,
    Index,
    Kernel,
    Kind,
    Local,
    Loops,
    Pass,
    Place,
    Prefetch,
    Region,
    Regions,
    Store,
    statements,
)
from codegen.reference.interpret import new_state, run
from codegen.reference.print_loops import body_lines
from codegen.reference.verify_loops import verify_loops
from codegen.schedule.prefetch import prefetch
from codegen.schedule.target import Target

TERMS, BLOCKS, TILE = 128, 2, 16
STRICT = Target()
SUM = Place("sum", Index(0, ((1, "i"),)), "image")


def tiles_of(stride=136, terms=TERMS, tile=TILE, length=136, start=0):
    """Images side by side, and blocks of sums over rows of weights."""
    index = Index(start, ((1, "i"), (stride, "k"), (tile, "block")))
    product = Apply(int(Op.MUL), (Place(DATA, index), Place(VALUE, Index(0, ((1, "k"),)), "image")))
    result = Place(VALUE, Index(terms, ((1, "i"), (tile, "block"))), "image")

    def each(stmt):
        return For("i", tile, (For("image", 8, (stmt,), Kind.SIDE_BY_SIDE),))

    nest = (
        Local("sum", tile, images=True),
        each(Store(SUM, Place(DATA, Index(0)))),
        For("k", terms, (each(Accumulate(SUM, Op.ADD, product)),)),
        each(Store(result, SUM)),
    )
    values, weights = terms + BLOCKS * tile, start + terms * length
    regions = {
        DATA: Regions([Region(0, "P_W", "w", weights, weights, weights)]),
        VALUE: Regions(
            [
                Region(0, "INPUT", "input", terms, terms, terms, Holds.INPUTS),
                Region(terms, "H", "h", values, values, values),
            ]
        ),
    }
    kernel = Kernel(0, Pass.LOSS, ((For("block", BLOCKS, nest),),), (0, 1), BLOCKS * tile)
    return Loops((kernel,), {DATA: weights, VALUE: values}, {}, regions, terms)


def found(loops, target=STRICT):
    loops = prefetch(loops, target)
    verify_loops(loops)
    nests = [nest for kernel in loops.kernels for nest in kernel.nests]
    return [
        line for nest in nests for stmt in statements(nest) if type(stmt) is Prefetch for line in body_lines((stmt,))
    ]


def test_rows_of_other_pages():
    assert found(tiles_of()) == [
        "prefetch data[136k + 16block] for k + 16",
        "prefetch data[8 + 136k + 16block] for k + 16",
    ]
    assert found(tiles_of(stride=264, length=264), Target("float32")) == ["prefetch data[264k + 16block] for k + 16"]


def test_a_part_of_a_line_is_a_line():
    assert found(tiles_of(start=4)) == [
        "prefetch data[4 + 136k + 16block] for k + 16",
        "prefetch data[8 + 136k + 16block] for k + 16",
        "prefetch data[16 + 136k + 16block] for k + 16",
    ]


@pytest.mark.parametrize(
    "loops", [tiles_of(stride=120), tiles_of(terms=120), tiles_of(tile=1)], ids=["near", "small", "few sums"]
)
def test_what_gains_nothing(loops):
    assert found(loops) == []


def test_the_interpreter_computes_the_same_numbers():
    plain, rng = tiles_of(), np.random.default_rng(0)
    data = rng.normal(size=plain.lengths[DATA]).tolist()
    values = []
    for loops in (plain, prefetch(plain, STRICT)):
        state = new_state(loops, data, data, 3)
        for image in state.images:
            image[:TERMS] = data[:TERMS]
        run(state, Pass.LOSS)
        values.append(state.images)
    assert values[0] == values[1]
    assert None not in values[0][2]


def test_a_place_must_be_in_bounds():
    loops = prefetch(tiles_of(), STRICT)
    with pytest.raises(ValueError, match="out of bounds"):
        verify_loops(replace(loops, lengths={**loops.lengths, DATA: 100}))


def wide(dtype, *hidden):
    program = dense(numbers(16), numbers(3), *hidden)
    program.dtype = dtype
    return program, compile_program(program, "wide").files["wide_kernels.h"]


@pytest.mark.nightly
def test_modules_of_wide_layers(tmp_path):
    """Of images side by side, and of a large gradient."""
    program, text = wide("float64", 640, 136)
    assert "PREFETCH_LATER(data[P_W1 " in text
    assert "8 * WORKSPACE_NUMBERS" in text
    module = Extension(program, tmp_path, "loops", flags=["-O1"]).module
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(20, 16)), np.arange(20) % 3
    module.accumulate(rows, labels)
    batch = gradients(module)
    module.zero_grad()
    for row, label in zip(rows, labels, strict=True):
        module.forward(int(label), row)
        module.backward()
    assert bits(gradients(module)) == bits(batch)
    assert any(batch)


@pytest.mark.nightly
def test_layers_in_a_loop_over_kernels():
    _, text = wide("float32", 272, 272)
    assert "PREFETCH_LATER(data[P_W0 + 272 * k + 16 * block + 4624 * t], 4352);" in text


@pytest.mark.slow
def test_small_models_have_none():
    program = lstm(numbers(32), numbers(2), 8, hidden=8)
    assert "PREFETCH" not in compile_program(program, "small").files["small_kernels.h"]
