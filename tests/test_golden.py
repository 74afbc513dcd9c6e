"""What four tiny programs become, pass by pass and in C: a change of the compiler's output is seen in a diff.

Each test compares with the file of its name in tests/golden; `pytest tests --refresh-golden` rewrites them.
"""

from __future__ import annotations

from pathlib import Path

import models
import pytest

from codegen import Floats, Pixels, Program, compile_program
from codegen.ir.loops import Loops
from codegen.ir.print_loops import body_lines
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
    return "\n".join([*text, "", kernels[kernels.index("static void") : kernels.index("/* The passes. */")]])


@pytest.mark.parametrize("make", [one_op, one_sum, convolution, recurrence], ids=lambda make: make.__name__)
def test_what_it_becomes(make, request):
    path = GOLDEN / f"{make.__name__}.txt"
    text = stages(make())
    if request.config.getoption("--refresh-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"see tests/golden/{path.name}; --refresh-golden if that is meant"
