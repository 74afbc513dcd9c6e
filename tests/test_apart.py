"""Values that are read through a pointer of their own, so that gcc keeps sums in registers. No number changes if the
pass misses some, so no other test would find it."""

import numpy as np
import pytest
from harness import Extension

from codegen import Floats, Program, compile_program
from codegen.ir.print_loops import kernel_lines
from codegen.ir.verify_loops import verify_loops
from micrograd.engine import Value
from micrograd.functional import total


def shared_layer(inputs, units, points=6, dtype="float64"):
    """Points that share two layers, as tokens do. The gradient of the second one walks over both of its sides."""
    x = [Value(0.0) for _ in range(3 * points)]
    w = [[Value(0.5) for _ in range(3)] for _ in range(inputs)]
    v = [[Value(0.25) for _ in range(inputs)] for _ in range(units)]

    def layer(rows, values):
        return [total([a * b for a, b in zip(row, values, strict=True)]).tanh() for row in rows]

    y = [z for p in range(points) for z in layer(v, layer(w, x[3 * p : 3 * p + 3]))]
    return Program(Floats(x), targets=None, parameters={"w": w, "v": v}, loss=total(y), outputs={"y": y}, dtype=dtype)


def products(program):
    """The additions to the gradient of the second layer."""
    loops = compile_program(program).loops
    verify_loops(loops)
    units, inputs = len(program.parameters["v"]), len(program.parameters["v"][0])
    (kernel,) = [kernel for kernel in loops.kernels if kernel.is_gradient and kernel.roots == units * inputs]
    return [line for line in kernel_lines(kernel) if "+= mul(" in line]


@pytest.mark.parametrize("units", [32, 64, 128])
def test_two_four_and_eight_times_as_far(units):
    (line,) = products(shared_layer(16, units))
    assert "apart[" in line, line


@pytest.mark.parametrize("units", [16, 48])
def test_other_distances_are_left_alone(units):
    (line,) = products(shared_layer(16, units))
    assert "apart[" not in line, line


def test_each_image_has_a_pointer_of_its_own(tmp_path):
    rng = np.random.default_rng(0)
    for dtype, number in (("float64", np.float64), ("float32", np.float32)):
        module = Extension(shared_layer(16, 32, dtype=dtype), tmp_path, "loops", flags=["-O1"]).module
        rows = rng.normal(size=(20, 18)).astype(number)
        module.accumulate(rows, None)
        batch = bytes(module.flat_grad())
        module.zero_grad()
        for row in rows:
            module.forward(None, row)
            module.backward()
        assert bytes(module.flat_grad()) == batch
        assert any(batch)
