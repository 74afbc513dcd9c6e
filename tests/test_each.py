"""Long functions of many numbers have loops of their own. test_functions.py has the bits of the stages that C runs,
test_schedule.py those of the pass."""

from __future__ import annotations

import pytest

from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    VALUE,
    Accumulate,
    Apply,
    Const,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Loops,
    Name,
    Pass,
    Place,
    Region,
    Regions,
    Store,
)
from codegen.reference.print_loops import body_lines
from codegen.reference.verify_loops import verify_loops
from codegen.schedule.each import apply_to_each
from codegen.schedule.target import Target
from micrograd import ops
from micrograd.stages import OPERATIONS, stages_of
from micrograd.translate import library

STAGED = ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "softplus", "erf", "gelu")


def at(start, *strides, image=""):
    return Place(VALUE, Index(start, tuple(zip(strides, "ij", strict=False))), image)


def call(name, *operands):
    return Apply(ops.BY_NAME[name].number, operands)


def product(a, b):
    return Apply(int(Op.MUL), (a, b))


def loops(nest, room=40):
    kernel = Kernel(0, Pass.LOSS, (nest,), (0, 0), 1)
    regions = Regions([Region(0, "A", "a", 500, 500, 500), Region(500, "B", "b", 36, room, room)])
    return Loops((kernel,), {VALUE: 10_000, DATA: 100}, {}, {VALUE: regions}, 0)


def apart(nest, dtype="float64", room=40):
    (changed,) = apply_to_each(loops(nest, room), Target(dtype)).kernels[0].nests
    return [*body_lines(changed)]


def rows(value, count=4, lanes=16, stride=16):
    """A loop over rows of lanes, which stores a value."""
    inner = For("j", lanes, (Store(at(500, stride, 1), value),), Kind.LANES)
    return (For("i", count, (Let("x", Place(DATA, Index(0, ((1, "i"),)))), inner)),)


def test_rows_are_one_loop():
    assert apart(rows(call("tanh", product(Name("x"), at(0, 0, 1))))) == [
        "for i < 4:",
        "    let x = data[i]",
        "    lanes j < 16:",
        "        value[500 + 16i + j] = mul(x, value[0i + j])",
        "each j < 64:",
        "    value[500 + j] = tanh(value[500 + j])",
    ]


def test_the_last_line_of_an_array_has_padding():
    """36 numbers fill four lines and a half. Without padding, or as a part of an array, another number follows."""
    nest = rows(call("tanh", at(0, 0, 1)), count=3, lanes=12, stride=12)
    assert apart(nest)[-2:] == ["each j < 40:", "    value[500 + j] = tanh(value[500 + j])"]
    assert apart(nest, room=36) == [*body_lines(nest)]
    part = rows(call("tanh", at(0, 0, 1)), count=2, lanes=17, stride=17)
    assert apart(part) == [*body_lines(part)]


def test_short_functions_of_ragged_lanes():
    """exp alone is short enough where lanes fill vectors; 6 of 8 lanes are two vectors, of 4 and of 2."""
    value = call("exp", at(0, 0, 1))
    nest = rows(value, count=6, lanes=6, stride=6)
    assert apart(nest)[-2:] == ["each j < 40:", "    value[500 + j] = exp(value[500 + j])"]
    assert "each" not in "".join(apart(rows(value, count=4, lanes=9 * 8, stride=9 * 8)))


def test_a_short_function_that_a_constant_multiplies():
    value = call("exp", at(0, 0, 1))
    assert "each j < 64:" in apart(rows(product(Const(0.5), value)), dtype="float32")
    assert "each" not in "".join(apart(rows(product(at(100, 0, 1), value)), dtype="float32"))


def test_the_rest_of_a_value_is_a_third_loop():
    nest = (For("i", 32, (Store(at(500, 1), product(call("sigmoid", at(0, 1)), at(100, 1))),), Kind.LANES),)
    assert apart(nest) == [
        "lanes i < 32:",
        "    value[500 + i] = value[i]",
        "each i < 32:",
        "    value[500 + i] = sigmoid(value[500 + i])",
        "lanes i < 32:",
        "    value[500 + i] = mul(value[500 + i], value[100 + i])",
    ]


def test_what_one_of_the_loops_reads_is_not_read_by_the_other():
    """C compilers warn of a variable that nothing uses."""
    assert apart(rows(product(call("sigmoid", at(0, 0, 1)), Name("x")))) == [
        "for i < 4:",
        "    lanes j < 16:",
        "        value[500 + 16i + j] = value[0i + j]",
        "each j < 64:",
        "    value[500 + j] = sigmoid(value[500 + j])",
        "for i < 4:",
        "    let x = data[i]",
        "    lanes j < 16:",
        "        value[500 + 16i + j] = mul(value[500 + 16i + j], x)",
    ]


def test_functions_of_functions():
    nest = (For("i", 32, (Store(at(500, 1), call("tanh", call("softplus", at(0, 1)))),), Kind.LANES),)
    assert apart(nest) == [
        "lanes i < 32:",
        "    value[500 + i] = value[i]",
        "each i < 32:",
        "    value[500 + i] = softplus(value[500 + i])",
        "each i < 32:",
        "    value[500 + i] = tanh(value[500 + i])",
    ]


def test_an_argument_makes_a_chain_longer():
    """exp itself has 28 of 29, tanh 31."""
    nest = (For("i", 32, (Store(at(500, 1), call("exp", product(at(0, 1), at(100, 1)))),), Kind.LANES),)
    assert apart(nest)[2:] == ["each i < 32:", "    value[500 + i] = exp(value[500 + i])"]


def test_images_fill_a_cache_line():
    image = For(
        "image", 8, (Store(at(500, 1, image="image"), call("erf", at(0, 1, image="image"))),), Kind.SIDE_BY_SIDE
    )
    assert apart((For("i", 4, (image,)),))[3:] == [
        "each i < 4:",
        "    side by side image < 8:",
        "        value[500 + i][image] = erf(value[500 + i][image])",
    ]
    assert "each" not in apart((For("i", 3, (image,)),))[-1]


TERM = call("tanh", at(0, 0, 1))
SUM = (
    Let("sum", at(0, 1)),
    For("k", 9, (Accumulate(Name("sum"), int(Op.ADD), at(50, 1)),)),
    Store(at(500, 1), product(call("tanh", Name("sum")), Name("sum"))),
)


@pytest.mark.parametrize(
    "nest",
    [
        rows(TERM, lanes=12, stride=16),
        rows(TERM, count=1),
        rows(TERM, count=5, lanes=7, stride=7),
        rows(call("exp", at(0, 0, 1))),
        rows(call("sin", at(0, 0, 1))),
        rows(product(TERM, call("erf", at(0, 0, 1)))),
        (For("i", 40, SUM),),
        (For("i", 40, (Store(at(500, 2), call("tanh", at(0, 1))),), Kind.LANES),),
    ],
    ids=["gaps", "few", "a part of a line", "short", "near 0", "two functions", "a sum twice", "a stride"],
)
def test_what_gains_nothing_stays(nest):
    assert apart(nest) == [*body_lines(nest)]


def test_a_loop_of_the_kind_does_nothing_else():
    for value in (call("tanh", at(4, 1)), product(at(500, 1), at(500, 1)), at(500, 1)):
        nest = (For("i", 32, (Store(at(500, 1), value),), Kind.EACH),)
        with pytest.raises(ValueError, match="no function of numbers side by side"):
            verify_loops(loops(nest))


@pytest.mark.parametrize("is_float32", [False, True])
@pytest.mark.parametrize("name", STAGED)
def test_stages_are_short_and_know_what_they_read(name, is_float32):
    parameter, lines, result = library(is_float32=is_float32).whole(name, repr)
    stages = stages_of(lines, result, parameter)
    assert [line for stage in stages for line in stage.lines][:-1] == lines
    assert len({parameter, *(line.name for line in lines)}) == 1 + len(lines)
    known = {parameter}
    for stage in stages:
        size = sum(line.value.operations for line in stage.lines)
        assert size <= OPERATIONS or len(stage.lines) == 1
        for line in stage.lines:
            assert line.value.reads <= known
            known.add(line.name)
        left = {parameter, *(line.name for line in stage.kept)}
        for line in lines:
            if max(line.value.operations, line.value.chain) <= 1 and line.value.reads <= left:
                left.add(line.name)  # is computed again
        known &= left
