"""What lanes with functions read far apart is collected first. test_schedule.py has the bits, as of every pass."""

from __future__ import annotations

import pytest

from codegen.ir.graph import Op
from codegen.ir.loops import VALUE, Apply, For, Index, Kernel, Kind, Loops, Pass, Place, Store
from codegen.ir.print_loops import body_lines
from codegen.schedule.hoist import MAX_LANES, collect
from micrograd import ops


def at(start, stride=1):
    return Place(VALUE, Index(start, ((stride, "i"),)))


def lanes(value, count=16, to=100):
    body = (For("i", count, (Store(at(to), value),), Kind.LANES),)
    kernel = Kernel(0, Pass.LOSS, (body,), (0, 0), count)
    (collected,) = collect(Loops((kernel,), {VALUE: 10_000}, {}, {}, 0)).kernels[0].nests
    return [*body_lines(collected)]


def call(name, *operands):
    return Apply(ops.BY_NAME[name].number, operands)


def test_each_column_has_a_place_of_its_own():
    both = Apply(int(Op.MUL), (at(1000, 8), Apply(int(Op.MUL), (at(1001, 8), at(1000, 8)))))
    assert lanes(Apply(int(Op.MUL), (call("erf", at(0)), both))) == [
        "local far[16]",
        "lanes i < 16:",
        "    far[i] = value[1000 + 8i]",
        "local far1[16]",
        "lanes i < 16:",
        "    far1[i] = value[1001 + 8i]",
        "lanes i < 16:",
        "    value[100 + i] = mul(erf(value[i]), mul(far[i], mul(far1[i], far[i])))",
    ]


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (call("relu", at(1000, 8)), 16),
        (Apply(int(Op.MUL), (at(0), at(1000, 8))), 16),
        (call("tanh", at(1000, 0)), 16),
        (call("tanh", at(1000, 8)), 3),
        (call("tanh", at(1000, 8)), MAX_LANES + 1),
    ],
    ids=["an instruction", "no function", "one number", "few lanes", "many lanes"],
)
def test_what_gains_nothing_stays(value, count):
    assert lanes(value, count)[0] == f"lanes i < {count}:"
