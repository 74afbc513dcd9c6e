"""What each op means: its row agrees with the engine, with calculus and with the compiled C and Python."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import random
import struct
from array import array
from collections.abc import Callable

import models
import pytest
from harness import Extension, Generated

from codegen import Floats, Program
from codegen.ir.graph import LEAVES, verify
from codegen.passes.autodiff import differentiate
from codegen.passes.trace import trace
from codegen.reference.interpret import interpret
from micrograd import ieee, ops
from micrograd.engine import Value
from micrograd.functional import total

INF, NAN = math.inf, math.nan
TABLE = [row for row in ops.ROWS if not row.is_registered]  # without what other tests register
PIECEWISE_CONSTANT = {"left", "right", "step"}
EDGES = [
    *(0.0, 5e-324, 1e-310, 2.2250738585072014e-308, 1e-200, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, math.pi, 36.7),
    *(709.78, 709.79, 745.2, 1e16, 1e154, 1.7976931348623157e308, INF),
]
GRID = [*EDGES, *(-x for x in EDGES), NAN]


def bits(x: float) -> str:
    """The bit pattern, the sign of a zero included. Any nan is the nan."""
    return "nan" if x != x else struct.pack(">d", x).hex()


def random_doubles(seed: int, count: int) -> list[float]:
    """Evenly distributed over the bit patterns: every exponent, denormals and nans too."""
    rng = random.Random(seed)
    return [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(count)]


PAIRS = [
    *itertools.product(GRID, GRID),
    *zip(random_doubles(1, 500), random_doubles(2, 500), strict=True),
    *((random.Random(i).uniform(-4, 4), random.Random(-i).uniform(-4, 4)) for i in range(500)),
]


# The table


def test_rows_have_the_numbers_behind_the_leaves():
    assert sorted(LEAVES) == list(range(ops.FIRST))
    assert [row.number for row in ops.ROWS] == list(range(ops.FIRST, ops.count()))
    assert all(ops.row(row.number) is ops.BY_NAME[row.name] is ops.BY_SYMBOL[row.symbol] is row for row in ops.ROWS)


def test_numbers_stay():
    """A graph's digest depends on them."""
    names = "add mul pow max left right exp log tanh relu sigmoid step detach sqrt sin cos abs min erf softplus"
    assert [row.name for row in TABLE] == [*names.split(), "div", "expm1", "log1p", "gelu"]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_an_op_takes_as_many_operands_in_c_as_in_python(row):
    assert row.c.count("{}") == row.python.count("{}") == row.arity
    assert type(row.function(*[0.5] * row.arity)) is float
    assert type(row(*[0.5] * row.arity)) is float


# By Value: how each op is written. The points keep away from kinks and poles.
WRITTEN: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "pow": lambda a, b: a**b,
    "max": lambda a, b: a.max(b),
    "min": lambda a, b: a.min(b),
    "abs": lambda a: abs(a),
    "div": lambda a, b: a / b,
} | {
    name: lambda a, name=name: getattr(a, name)()
    for name in (
        "exp",
        "log",
        "tanh",
        "relu",
        "sigmoid",
        "sqrt",
        "sin",
        "cos",
        "erf",
        "softplus",
        "expm1",
        "log1p",
        "gelu",
    )
}
POSITIVE = [0.2, 0.7, 1.0, 1.9, 3.3]
SIGNED = [-2.1, -0.8, 0.3, 1.4, 2.5]


def test_every_differentiable_op_has_a_finite_difference_test():
    without = {row.name for row in TABLE if all(partial is None for partial in row.partials)}
    assert without == PIECEWISE_CONSTANT | {"detach"}
    assert set(WRITTEN) == {row.name for row in TABLE} - without


def points(name: str) -> list[tuple[float, ...]]:
    if ops.BY_NAME[name].arity == 1:
        return [(x,) for x in (POSITIVE if name in ("log", "log1p", "sqrt") else SIGNED)]
    return list(itertools.product(POSITIVE if name == "pow" else SIGNED, [-1.7, 0.4, 2.2]))


def compiled_gradients(function: Callable[..., Value], numbers: tuple[float, ...]) -> list[float]:
    """The gradients that the ir computes for parameters with these values."""
    leaves = [Value(x) for x in numbers]
    graph = trace(Program(inputs=Floats([]), targets=None, parameters={"p": leaves}, loss=function(*leaves)))
    differentiate(graph)
    verify(graph)
    found = interpret(graph, numbers, [0.0] * len(numbers), [], [])
    return [found[graph.gradients[i]] for i in range(len(numbers))]


def engine_gradients(function: Callable[..., Value], numbers: tuple[float, ...]) -> list[float]:
    leaves = [Value(x) for x in numbers]
    function(*leaves).backward()
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("system", [engine_gradients, compiled_gradients], ids=["engine", "ir"])
@pytest.mark.parametrize(
    "function",
    [
        *(pytest.param((name, f), id=name) for name, f in WRITTEN.items()),
        pytest.param(("exp", lambda a: a**3), id="a**3"),
        pytest.param(("log", lambda a: a**-0.5), id="a**-0.5"),
        pytest.param(("log", lambda a: 2.5**a), id="2.5**a"),
        pytest.param(("log", lambda a: a**a), id="a**a"),
        pytest.param(("tanh", lambda a: a * a + a), id="a*a+a"),
        pytest.param(("tanh", lambda a: 1.0 / a - a), id="1/a-a"),
        pytest.param(("tanh", lambda a: a.leaky_relu()), id="leaky_relu"),
        pytest.param(("tanh", lambda a: a.leaky_relu(2.5)), id="leaky_relu(2.5)"),
        pytest.param(("tanh", lambda a: a.gelu()), id="gelu"),
        pytest.param(("tanh", lambda a: a.gelu("tanh")), id="gelu('tanh')"),
    ],
)
def test_derivatives_equal_central_differences(system, function):
    name, apply = function

    def loss(*leaves: Value) -> Value:
        return apply(*leaves) * 3.0  # an adjoint other than 1

    for numbers in points(name):
        found = system(loss, numbers)
        for i, x in enumerate(numbers):
            h = 1e-5 * max(abs(x), 1.0)
            above, below = ([Value(y) for y in (*numbers[:i], x + s, *numbers[i + 1 :])] for s in (h, -h))
            difference = (loss(*above).data - loss(*below).data) / (2 * h)
            assert found[i] == pytest.approx(difference, rel=1e-6, abs=1e-9), (numbers, i)


@pytest.mark.parametrize("name", sorted(PIECEWISE_CONSTANT))
def test_ops_without_a_derivative_are_constant_between_their_jumps(name):
    row = ops.BY_NAME[name]
    for numbers in itertools.product(SIGNED, [-1.7, 0.4, 2.2]):
        operands = numbers[: row.arity]
        here = row.function(*operands)
        assert here in (0.0, 1.0)
        for step in ((0.05, 0.0), (0.0, 0.05)):
            assert row.function(*(x + h for x, h in zip(operands, step, strict=False))) == here


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_the_engine_computes_the_bits_of_the_table(row):
    written = WRITTEN.get(row.name, row)
    for pair in PAIRS:
        operands = pair[: row.arity]
        out = written(*map(Value, operands))
        expected = bits(row.function(*operands))
        assert bits(out.data) == expected, operands
        assert bits(out.recompute()) == expected, operands


# The C and the Python, all ops in one module. Outputs are functions of two inputs; slopes are gradients of two
# parameters.

OUTPUTS: dict[str, tuple[Callable, Callable]] = {
    **{
        row.name: (
            lambda x, y, row=row: row(*(x, y)[: row.arity]),
            lambda x, y, row=row: row.function(*(x, y)[: row.arity]),
        )
        for row in TABLE
    },
    **{
        f"power {e}": (lambda x, y, e=e: x**e, lambda x, y, e=e: ieee.power(x, e))
        for e in (-4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
    },
    **{
        f"by {c}": (lambda x, y, c=c: x / c, lambda x, y, c=c: ieee.divide(x, c))
        for c in (3.0, 4.0, -0.5, 0.0, INF, 2.0**1022, 2.0**1023, 2.0**-1022, 2.0**-1074)
    },
    "sum": (lambda x, y: x + y + x + 0.5 + y, lambda x, y: x + y + x + 0.5 + y),
    "long sum": (lambda x, y: total([y, x] * 6), lambda x, y: functools.reduce(operator.add, [y, x] * 6)),
    "maximum": (
        lambda x, y: (x * y).max(y, 0.0, x),
        lambda x, y: functools.reduce(ieee.maximum, [x * y, y, 0.0, x]),
    ),
    "distributed": (lambda x, y: x * y - x * x, lambda x, y: x * y + (x * x) * -1.0),
}


def test_every_op_is_compiled_below_and_in_random_graphs():
    drawn = {node._op for node in models.irregular(3000).topo() if node._prev}
    assert drawn >= {row.symbol for row in TABLE if row.name not in PIECEWISE_CONSTANT}


@pytest.fixture(scope="module", params=["loops", "straightline", "Python, loops", "Python, straightline"])
def ops_module(request, tmp_path_factory):
    x, y, p, q = (Value(0.0) for _ in range(4))
    program = Program(
        inputs=Floats([x, y]),
        targets=None,
        parameters={"p": [p], "q": [q]},
        loss=p.max(q) + p.relu() * 4.0,
        outputs={name: [written(x, y)] for name, (written, _) in OUTPUTS.items()}
        | {"constants": [Value(number) for number in GRID]},
    )
    folder = tmp_path_factory.mktemp("ops")
    if request.param.startswith("Python, "):
        return Generated(program, folder, request.param.removeprefix("Python, ")).module
    return Extension(program, folder, request.param, flags=[] if request.param == "loops" else ["-O1"]).module


@pytest.fixture(scope="module")
def found(ops_module) -> list[dict[str, tuple[float, ...]]]:
    """The module's outputs for each of the PAIRS."""
    return [ops_module.outputs(array("d", pair)) for pair in PAIRS]


@pytest.mark.parametrize("name", OUTPUTS)
def test_compiled_ops_have_the_bits_of_the_table(found, name):
    _, meaning = OUTPUTS[name]
    wrong = [
        (pair, outputs[name][0], meaning(*pair))
        for pair, outputs in zip(PAIRS, found, strict=True)
        if bits(outputs[name][0]) != bits(meaning(*pair))
    ]
    assert not wrong


def test_compiled_constants_keep_their_bits(found):
    assert list(map(bits, found[0]["constants"])) == list(map(bits, GRID))


def test_compiled_slopes_have_the_bits_of_the_table(ops_module):
    for p, q in PAIRS:
        ops_module.load_state_dict({"p": array("d", [p]), "q": array("d", [q])})
        ops_module.zero_grad()
        ops_module.forward(None, array("d", [0.0, 0.0]))
        ops_module.backward()
        by_p = ieee.takes_left(p, q) + ieee.positive(p) * 4.0
        assert (ops_module.grad(0), ops_module.grad(1)) == (by_p, ieee.takes_right(p, q)), (p, q)


# Decisions: kinks, ties, edges. Engine and ir are asked; that C and Python have the same bits is shown above.


@pytest.mark.parametrize("system", [engine_gradients, compiled_gradients], ids=["engine", "ir"])
@pytest.mark.parametrize(
    ("function", "numbers", "slopes"),
    [
        (lambda a: abs(a), [0.0], [0.0]),
        (lambda a: abs(a), [-0.0], [0.0]),
        (lambda a: abs(a), [NAN], [0.0]),
        (lambda a: abs(a), [-INF], [-1.0]),
        (lambda a: a.relu(), [0.0], [0.0]),
        (lambda a, b: a.min(b), [2.0, 2.0], [1.0, 0.0]),
        (lambda a, b: a.min(b), [0.0, -0.0], [1.0, 0.0]),
        (lambda a, b: a.min(b), [1.0, NAN], [0.0, 1.0]),
        (lambda a, b: a.min(b), [NAN, 1.0], [1.0, 0.0]),
        (lambda a, b: a.max(b), [2.0, 2.0], [1.0, 0.0]),
        (lambda a: a.min(a), [2.0], [1.0]),
        (lambda a: a.leaky_relu(0.25), [0.0], [0.25]),
        (lambda a: a.leaky_relu(2.0), [0.0], [2.0]),
        (lambda a: a.sqrt(), [0.0], [INF]),
        (lambda a: a.softplus(), [0.0], [0.5]),
        (lambda a: a.softplus(), [1e300], [1.0]),
        (lambda a: a.softplus(), [-1e300], [0.0]),
    ],
)
def test_slopes_at_kinks_ties_and_edges(system, function, numbers, slopes):
    assert system(function, tuple(numbers)) == slopes


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        *(("sqrt", [x], y) for x, y in [(-1.0, NAN), (-0.0, -0.0), (INF, INF), (-INF, NAN), (NAN, NAN)]),
        *((name, [x], NAN) for name in ("sin", "cos") for x in (INF, -INF, NAN)),
        *(("sin", [-0.0], -0.0), ("abs", [-0.0], 0.0), ("abs", [-INF], INF)),
        *(("min", pair, pair[0]) for pair in [(0.0, -0.0), (-0.0, 0.0), (NAN, 1.0), (1.0, 1.0), (-INF, INF)]),
        ("min", [1.0, NAN], NAN),
        *(("erf", [x], y) for x, y in [(INF, 1.0), (-INF, -1.0), (-0.0, -0.0)]),
        *(("softplus", [x], y) for x, y in [(1e308, 1e308), (INF, INF), (-INF, 0.0), (0.0, math.log(2))]),
        ("softplus", [-40.0], math.exp(-40)),
    ],
)
def test_edges(name, operands, expected):
    assert bits(ops.BY_NAME[name].function(*operands)) == bits(expected)


def test_gelu_has_two_forms():
    x = Value(1.5)
    assert x.gelu().data == pytest.approx(1.5 * 0.5 * math.erfc(-1.5 / math.sqrt(2)), rel=1e-15)
    inner = math.sqrt(2 / math.pi) * (1.5 + 0.044715 * 1.5**3)
    assert x.gelu("tanh").data == pytest.approx(0.75 * (1 + math.tanh(inner)), rel=1e-15)
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', got 'erf'"):
        x.gelu("erf")


@pytest.mark.parametrize("at", [0.0, -0.0, 5e-324, -1e-310, 1e-40, -0.7, 2.0, -3.5, 6.0, -12.0, 40.0, -40.0])
def test_the_slope_of_gelu_is_right_where_gelu_is_nothing(at):
    """It divides gelu by its argument, which says nothing of denormals and 0, and all of the left tail."""
    x = Value(at)
    x.gelu().backward()
    density = math.exp(-at * at / 2) / math.sqrt(2 * math.pi)
    assert x.grad == pytest.approx(0.5 * math.erfc(-at / math.sqrt(2)) + at * density, rel=1e-14, abs=0)


def test_leaky_relu_is_a_line_on_either_side():
    for slope in (-0.5, 0.0, 0.01, 1.0, 1.5, 3.0):
        assert [Value(x).leaky_relu(slope).data for x in (2.0, -2.0, 0.0)] == [2.0, -2.0 * slope, 0.0]
    assert Value(-2.0).leaky_relu().data == -0.02


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_variadic_ones_fold_from_the_left(name):
    a, b, c = Value(1.0), Value(2.0), Value(0.0)
    out = getattr(a, name)(b, c, 3.0)
    assert out.data == {"max": 3.0, "min": 0.0}[name]
    with pytest.raises(TypeError, match=rf"{name}\(\) needs at least two Values"):
        getattr(a, name)()
    with pytest.raises(TypeError, match=rf"{name}\(\) takes Values and numbers, not str"):
        getattr(a, name)("1")
