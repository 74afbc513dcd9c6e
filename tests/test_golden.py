"""What four tiny programs become, pass by pass and in C: a change of the compiler's output is seen in a diff.

Each test compares with the file of its name in tests/golden; `pytest tests --refresh-golden` rewrites them.
"""

from __future__ import annotations

from pathlib import Path

import models
import pytest

from codegen import Floats, Pixels, Program, compile_program
from codegen.backends.text import index_text
from codegen.ir.graph import Op
from codegen.ir.loops import (
    MULTIPLY_ADD,
    WIDENED,
    Accumulate,
    Apply,
    Const,
    For,
    Index,
    Kind,
    Let,
    Loops,
    Name,
    Place,
    Prefetch,
    Store,
)
from codegen.reference.print_loops import body_lines
from codegen.schedule.pipeline import c_passes
from codegen.schedule.pipeline import stages as steps
from codegen.schedule.target import Target
from micrograd.engine import Value

GOLDEN = Path(__file__).resolve().parent / "golden"


def one_op():
    x, w = [Value(0.0)], Value(0.5)
    return Program(Floats(x), None, {"w": w}, (w * x[0]).exp())


def one_sum():
    x, w, b = models.values(9), [models.values(9) for _ in range(2)], models.values(2)
    out = [h.tanh() for h in models.affine(w, b, x)]
    return Program(Pixels(x, scale=1), None, {"w": w, "b": b}, out[0] * out[1], {"out": out})


def convolution():
    x, w = models.values(12), models.values(2)
    out = [w[0] * x[i] + w[1] * x[i + 1] for i in range(11)]
    return Program(Floats(x), None, {"w": w}, models.total([o * o for o in out]), {"out": out})


def recurrence():
    x, w, u = models.values(3), Value(0.5), Value(0.25)
    h = w * x[0]
    for step in x[1:]:
        h = (w * step + u * h).tanh()
    return Program(Floats(x), None, {"w": w, "u": u}, h)


def shown(loops: Loops) -> list[str]:
    lines = []
    for kernel in loops.kernels:
        lines.append(f"  group {kernel.number}")
        for nest in kernel.nests:
            lines += [f"    {line}" for line in body_lines(nest)]
    return lines


def stages(program: Program) -> str:
    """The plain loops, the loops after each pass that changes something, and the kernels in C."""
    compiled = compile_program(program, "tiny")
    before = shown(compiled.plain)
    text = ["loops", *before]
    for name, loops in steps(compiled.found, c_passes(compiled.found, Target())):
        after = shown(loops)
        if after != before and name != "plain":
            changed = [line for line in after if line not in before or not line.startswith("    ")]
            text += ["", f"after {name}, what is new", *[line for line in changed if not line.startswith("  group")]]
        before = after
    kernels = compiled.files["tiny_kernels.h"]
    return "\n".join([*text, "", kernels[kernels.index("NOT_INLINED void") : kernels.index("/* The passes. */")]])


@pytest.mark.parametrize("make", [one_op, one_sum, convolution, recurrence], ids=lambda make: make.__name__)
def test_what_it_becomes(make, request):
    path = GOLDEN / f"{make.__name__}.txt"
    text = stages(make())
    if request.config.getoption("--refresh-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"see tests/golden/{path.name}; --refresh-golden if that is meant"


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Index(0), "0"),
        (Index(9), "9"),
        (Index(0, ((1, "i"), (-12, "j"))), "i - 12j"),
        (Index(9, ((-1, "i"), (2, "j"))), "9 - i + 2j"),
        (Index(0, ((-1, "i"),)), "-i"),
        (Index(0, (), (("t", Index(1, ((3, "k"),))),)), "t[1 + 3k]"),
        (Index(2, ((1, "i"),), (("t", Index(0)), ("u", Index(0, ((1, "j"),))))), "2 + i + t[0] + u[j]"),
        (Index(0, (), (), "start"), "start"),
        (Index(4, ((1, "i"),), (), "start"), "start + 4 + i"),
    ],
)
def test_indices_as_text(index, text):
    assert index_text(index) == text


def test_statements_as_text():
    """Those that no program above has."""
    near, total = Place("value", Index(0, ((1, "i"),))), Name("sum")
    body = (
        Let("start", Index(7)),
        Let("sum", Apply(MULTIPLY_ADD, (near, Const(0.5), Apply(WIDENED, (near,))))),
        Accumulate(total, Op.MAX, near),
        Accumulate(total, Op.ADD, near),
        For("i", 8, (Store(near, total),), Kind.ACTIVE, near=(near,)),
        Prefetch(near, "i", 2),
    )
    assert [*body_lines(body)] == [
        "let start = place 7",
        "let sum = multiply_add(value[i], 0.5, widened(value[i]))",
        "sum = max(sum, value[i])",
        "sum += value[i]",
        "active i < 8, near value[i]:",
        "    value[i] = sum",
        "prefetch value[i] for i + 2",
    ]
