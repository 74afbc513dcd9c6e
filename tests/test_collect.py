"""What lanes with functions read far apart is collected first, and functions of what lanes share come before them.

test_schedule.py has the bits, as of every pass.
"""

from __future__ import annotations

import pytest

from codegen.ir.graph import Op
from codegen.ir.loops import VALUE, Apply, For, Index, Kernel, Kind, Loops, Pass, Place, Store
from codegen.reference.print_loops import body_lines
from codegen.schedule.hoist import MAX_LANES, collect, hoist
from micrograd import ops


def at(start, stride=1):
    return Place(VALUE, Index(start, ((stride, "i"),)))


def lanes(value, count=16, to=100, run=collect):
    body = (For("i", count, (Store(at(to), value),), Kind.LANES),)
    kernel = Kernel(0, Pass.LOSS, (body,), (0, 0), count)
    (changed,) = run(Loops((kernel,), {VALUE: 10_000}, {}, {}, 0)).kernels[0].nests
    return [*body_lines(changed)]


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


def test_names_are_those_of_one_place_in_a_nest():
    """Of two loops in one scope, as of what an image adds to a gradient besides its sum over images."""
    stmts = [Store(at(to), Apply(int(Op.MUL), (call("erf", at(0)), at(1000 + to, 8)))) for to in (100, 200)]
    body = tuple([For("i", 16, (stmt,), Kind.LANES) for stmt in stmts])
    kernel = Kernel(0, Pass.LOSS, (body,), (0, 0), 32)
    (changed,) = collect(Loops((kernel,), {VALUE: 10_000}, {}, {}, 0)).kernels[0].nests
    assert [line for line in body_lines(changed) if line.startswith("local")] == ["local far[16]", "local far1[16]"]


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


def test_a_function_of_what_lanes_share_comes_before_them():
    shared = call("log", Apply(int(Op.MUL), (Place(VALUE, Index(1000)), Place(VALUE, Index(1001)))))
    assert lanes(Apply(int(Op.MUL), (call("tanh", Apply(int(Op.ADD), (shared, at(0)))), shared)), run=hoist) == [
        "let x = value[1000]",
        "let x1 = value[1001]",
        "let x2 = log(mul(x, x1))",
        "lanes i < 16:",
        "    value[100 + i] = mul(tanh(add(x2, value[i])), x2)",
    ]


def test_an_outermost_loop_keeps_its_loads():
    assert lanes(call("tanh", Apply(int(Op.ADD), (Place(VALUE, Index(1000)), at(0)))), run=hoist)[0] == "lanes i < 16:"
