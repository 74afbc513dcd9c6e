"""Initial weights from another distribution than the declared one, or other ones in C and in Python."""

from __future__ import annotations

import math
import random
import sys

import numpy as np
import pytest
from harness import Extension, Generated, parameters

from codegen import Floats, Program, compile_program
from micrograd.arrays import array
from micrograd.initial import NAMES, Normal, draw, resolved

# Of a tensor of shape (4, 3, 2, 2): 4 outputs, 3 inputs, a kernel of 4. fan-in 12, fan-out 16.
BOUNDS = {
    "zeros": (0, 0),
    "ones": (1, 1),
    "random_uniform": (-0.05, 0.05),
    "random_normal": Normal(0.0, 0.05),
    "trunc_normal": Normal(0.0, 1.0, 2.0),
    "truncated_normal": Normal(0.0, 0.05, 2.0),
    "xavier_uniform": (-math.sqrt(6 / 28), math.sqrt(6 / 28)),
    "glorot_uniform": (-math.sqrt(6 / 28), math.sqrt(6 / 28)),
    "kaiming_uniform": (-math.sqrt(6 / 12), math.sqrt(6 / 12)),
    "he_uniform": (-math.sqrt(6 / 12), math.sqrt(6 / 12)),
    "lecun_uniform": (-math.sqrt(3 / 12), math.sqrt(3 / 12)),
    "xavier_normal": Normal(0.0, math.sqrt(2 / 28)),
    "kaiming_normal": Normal(0.0, math.sqrt(2 / 12)),
    "glorot_normal": Normal(0.0, math.sqrt(2 / 28) / 0.87962566103423978, 2.0),
    "he_normal": Normal(0.0, math.sqrt(2 / 12) / 0.87962566103423978, 2.0),
    "lecun_normal": Normal(0.0, math.sqrt(1 / 12) / 0.87962566103423978, 2.0),
}


def close(found: object, expected: object) -> bool:
    def numbers(x: object) -> tuple[float, ...]:
        return (x.mean, x.deviation, x.limit) if isinstance(x, Normal) else tuple(x)

    return type(found) is type(expected) and numbers(found) == pytest.approx(numbers(expected), rel=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_names_have_their_meaning(name):
    assert close(resolved("'w'", name, (4, 3, 2, 2)), BOUNDS[name])
    assert resolved("'w'", name + "_", (4, 3, 2, 2)) == resolved("'w'", name, (4, 3, 2, 2))


def test_every_name_is_listed():
    assert set(BOUNDS) == set(NAMES)


@pytest.mark.parametrize("name", ["glorot_normal", "kaiming_normal", "he_uniform", "lecun_normal"])
def test_what_is_drawn_has_the_variance_of_its_formula(name):
    random.seed(1)
    found = np.array([draw(resolved("'w'", name, (40, 30))) for _ in range(20_000)])
    variance = {"glorot": 2 / 70, "kaiming": 2 / 30, "he": 2 / 30, "lecun": 1 / 30}[name.split("_")[0]]
    assert found.mean() == pytest.approx(0, abs=5 * math.sqrt(variance / 20_000))
    assert found.var() == pytest.approx(variance, rel=0.05)


INITIAL = {
    "uniform": (-0.5, 0.25),
    "constant": 0.125,
    "pair": (3, 3),
    "normal": Normal(1.0, 2.0),
    "cut": Normal(-1.0, 0.5, limit=1.0),
    "named": "he_normal",
    "xavier": "xavier_uniform_",
}


def program(**options: object) -> Program:
    rng = np.random.default_rng(0)
    x, named = array(np.zeros(30)), {name: array(rng.normal(size=(20, 30))) for name in INITIAL}
    return Program(
        Floats(x), None, named, sum((w @ x).sum() for w in named.values()), initial=INITIAL, seed=7, **options
    )


def test_compiled_weights_are_those_of_pythons_random(tmp_path):
    """4,200 weights, of which 1,800 are normal: by the same draws, in the order of the parameters."""
    declared = program()
    c, python = Extension(declared, tmp_path, "loops", flags=["-O0"]), Generated(declared, tmp_path)
    for seed in (7, 2**40):
        random.seed(seed)
        expected = [draw(tensor.initial) for tensor in declared.tensors for _ in tensor.numbers]
        if seed != 7:
            c.module.reset(seed)
            python.module.reset(seed)
        assert parameters(c.module) == expected
        assert parameters(python.module) == expected
    named = c.module.state_dict()
    assert np.abs(np.asarray(named["cut"]) + 1).max() <= 0.5
    assert np.abs(np.asarray(named["normal"]) - 1).max() > 4


@pytest.mark.slow
def test_float32_weights_are_the_same_numbers_rounded(tmp_path):
    found = Extension(program(dtype="float32"), tmp_path, "loops", flags=["-O0"]).module
    random.seed(7)
    expected = [float(np.float32(draw(tensor.initial))) for tensor in program().tensors for _ in tensor.numbers]
    assert parameters(found) == expected


@pytest.mark.parametrize(
    ("initial", "error", "message"),
    [
        ("he", ValueError, "'w' must be one of zeros, ones, .*he_uniform.*, got 'he'"),
        ("orthogonal", ValueError, "must be one of .*got 'orthogonal'"),
        (Normal(0.0, 0.0), ValueError, "initial 'w': the deviation must be above 0 and the limit 0.01 or more"),
        (Normal(0.0, math.inf), ValueError, "must be finite"),
        (Normal(math.nan), ValueError, "must be finite"),
        (Normal(limit=0.009), ValueError, "the limit 0.01 or more"),  # each number would take too many draws
        (Normal(limit="2"), TypeError, "the initial 'w': the limit must be a number, not str"),
        (math.nan, ValueError, "the initial value of 'w' must be finite, got nan"),
        ((1.0, 2.0, 3.0), TypeError, r"must be \(low, high\), a constant, a Normal or a name, got \(1.0, 2.0, 3.0\)"),
        (("0", "1"), TypeError, "'w' must be finite and ordered: it must be a number, not str"),
        (None, TypeError, "got None"),
    ],
)
def test_other_distributions_are_refused(initial, error, message):
    w, x = array(np.ones((2, 2))), array(np.zeros(2))
    with pytest.raises(error, match=message):
        Program(Floats(x), None, {"w": w}, (w @ x).sum(), initial={"w": initial})


@pytest.mark.parametrize(
    ("initial", "error"),
    [(Normal(0.0, math.inf), ValueError), ((2.0, 1.0), ValueError), ((0.0, "1"), TypeError)],
)
def test_what_a_program_refuses_before_is_no_distribution_either(initial, error):
    with pytest.raises(error, match=r"the initial (distribution|range) of 'w' must be"):
        resolved("'w'", initial, (2, 2))


def test_numbers_are_drawn_from_the_source_or_else_from_the_module():
    for distribution in ((0.0, 1.0), Normal()):
        random.seed(3)
        found = [draw(distribution) for _ in range(3)]
        source = random.Random(3)
        assert found == [draw(distribution, source) for _ in range(3)]
    source = random.Random(3)
    assert found == [source.normalvariate(0.0, 1.0) for _ in range(3)]  # the default is the standard one


def test_a_name_needs_a_matrix():
    w = array(np.ones(2))
    with pytest.raises(ValueError, match=r"'he_normal' needs two dimensions, but 'w' has the shape \(2,\)"):
        Program(Floats([]), None, {"w": w}, w.sum(), initial={"w": "he_normal"})


def test_an_unlimited_normal_prints_a_number():
    (line,) = [line for line in compile_program(program(), target="python").text.splitlines() if "INITIAL = " in line]
    assert "inf" not in line
    assert f"'normal': (1.0, 1.0, 2.0, {sys.float_info.max})" in line
