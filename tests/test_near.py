"""Short forms of functions for arguments near 0: the same numbers, and never for an argument that is far from 0.

A form that differs is found by the first test, a loop that takes it wrongly by the second, on single images and on
images side by side.
"""

import math
import random

import numpy as np
import pytest
from harness import Extension

from codegen import Floats, Program, compile_program
from codegen.reference.print_loops import kernel_lines
from codegen.schedule.marks import mark_near
from micrograd.definitions import NEAR_FORMS, near_limit
from micrograd.engine import Value
from micrograd.functional import total
from micrograd.ieee import circular, float32_circular

UNITS = 24
FORMS = [(name, module) for name in NEAR_FORMS for module in (circular, float32_circular)]


def number_type(module):
    return float if module is circular else np.float32


def program_of(name, dtype="float64"):
    x = [Value(0.0) for _ in range(UNITS)]
    w = [Value(1.0) for _ in range(UNITS)]
    y = [(a * b).apply(name) for a, b in zip(w, x, strict=True)]
    return Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=total(y), outputs={"y": y}, dtype=dtype)


@pytest.mark.parametrize(("name", "module"), FORMS)
def test_a_short_form_has_the_same_bits(name, module):
    number, rng = number_type(module), random.Random(1)
    edges = [0.0, 1e-300, 1e-9, 2e-4, 0.785, 0.786, 1.57, module.NEAR, math.nextafter(module.NEAR, 0)]
    sizes = [*edges, *(rng.uniform(0, module.NEAR) for _ in range(400)), *(rng.uniform(0, 7) for _ in range(400))]
    for size in sizes:
        for x in (number(size), number(-size)):
            short, whole = getattr(module, NEAR_FORMS[name])(x), getattr(module, name)(x)
            assert np.float64(short).tobytes() == np.float64(whole).tobytes(), (name, x)
    assert math.isnan(getattr(module, NEAR_FORMS[name])(number(math.nan)))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module"), FORMS)
def test_no_argument_beyond_takes_it(name, module, tmp_path):
    number = number_type(module)
    dtype = "float64" if module is circular else "float32"
    extension = Extension(program_of(name, dtype), tmp_path, "loops", flags=["-O0"])
    limit = near_limit(module is not circular)
    above = float(np.nextafter(number(limit), number(math.inf)))
    odd = [limit, above, -above, 3.7 * limit, -1e30, math.inf, -math.inf, math.nan]
    rng = random.Random(2)
    rows = np.array([[rng.uniform(-9, 9) for _ in range(UNITS)] for _ in range(40)], number)
    for i, row in enumerate(rows[8:]):  # the first ones are near 0, in all lanes and in all of 8 images
        row[rng.randrange(UNITS)] = odd[i % len(odd)]
    expected = np.array([[getattr(module, name)(number(x)) for x in row] for row in rows], number)
    single = np.array([extension.module.outputs(row)["y"] for row in rows], number)
    batch = np.array(extension.module.outputs_batch(rows)["y"], number)
    assert np.array_equal(single, expected, equal_nan=True)
    assert np.array_equal(batch, expected, equal_nan=True)


def test_the_pass_marks_loops_over_lanes():
    """It marks arguments of sin and cos, and changes nothing where there is no such function."""
    compiled = compile_program(program_of("sin"))
    lines = [line for kernel in compiled.loops.kernels for line in kernel_lines(kernel)]
    assert any("near value[" in line for line in lines), lines
    plain = compile_program(program_of("tanh")).loops
    assert mark_near(plain) == plain
