"""What each op means: the tables agree with each other, with the engine, with calculus and with the compiled C."""

from __future__ import annotations

import functools
import itertools
import math
import random
import struct
from array import array
from collections.abc import Callable

import models
import pytest
from harness import Extension, Generated

from codegen import Floats, Program
from codegen.ir.graph import BINARY, LEAVES, UNARY, Op, verify
from codegen.ir.interpret import interpret
from codegen.ir.ops import DERIVATIVE, PYTHON, PYTHON_TEXT, C
from codegen.passes.autodiff import differentiate
from codegen.passes.trace import OPS, trace
from micrograd.engine import _BACKWARD, _FORWARD, Value
from micrograd.functional import total

INF, NAN = math.inf, math.nan
COMPUTED = set(Op) - LEAVES
PIECEWISE_CONSTANT = {Op.LEFT, Op.RIGHT, Op.STEP}  # they stand in gradients only
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


# The tables


@pytest.mark.parametrize(
    "table", [PYTHON, PYTHON_TEXT, C, DERIVATIVE], ids=["PYTHON", "PYTHON_TEXT", "C", "DERIVATIVE"]
)
def test_every_table_states_every_computed_op(table):
    assert set(table) == COMPUTED


def test_ops_are_leaves_unary_or_binary():
    assert sorted([*LEAVES, *UNARY, *BINARY]) == sorted(Op)
    assert max(LEAVES) < min(COMPUTED)


@pytest.mark.parametrize("op", sorted(COMPUTED), ids=lambda op: op.name)
def test_an_op_takes_as_many_operands_in_c_as_in_python(op):
    arity = 2 if op in BINARY else 1
    assert C[op].count("{}") == PYTHON_TEXT[op].count("{}") == arity
    assert type(PYTHON[op](*[0.5] * arity)) is float
    assert len(DERIVATIVE[op]) in (0, arity)


def test_the_engine_and_the_trace_know_the_same_operations():
    assert set(_FORWARD) == set(_BACKWARD) == set(OPS)
    assert sorted(OPS.values()) == sorted(COMPUTED - PIECEWISE_CONSTANT)


# By Value: how each op is written. The points keep away from kinks and poles.
WRITTEN: dict[Op, Callable[..., Value]] = {
    Op.ADD: lambda a, b: a + b,
    Op.MUL: lambda a, b: a * b,
    Op.POW: lambda a, b: a**b,
    Op.MAX: lambda a, b: a.max(b),
    Op.EXP: lambda a: a.exp(),
    Op.LOG: lambda a: a.log(),
    Op.TANH: lambda a: a.tanh(),
    Op.RELU: lambda a: a.relu(),
    Op.SIGMOID: lambda a: a.sigmoid(),
}
POSITIVE = [0.2, 0.7, 1.0, 1.9, 3.3]
SIGNED = [-2.1, -0.8, 0.3, 1.4, 2.5]


def test_every_differentiable_op_has_a_finite_difference_test():
    assert set(WRITTEN) == {op for op in COMPUTED if DERIVATIVE[op]}
    assert {op for op in COMPUTED if not DERIVATIVE[op]} == PIECEWISE_CONSTANT | {Op.DETACH}


def points(op: Op) -> list[tuple[float, ...]]:
    if op not in BINARY:
        return [(x,) for x in (POSITIVE if op == Op.LOG else SIGNED)]
    return list(itertools.product(POSITIVE if op == Op.POW else SIGNED, [-1.7, 0.4, 2.2]))


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
        *(pytest.param((op, f), id=op.name) for op, f in WRITTEN.items()),
        pytest.param((Op.EXP, lambda a: a**3), id="a**3"),
        pytest.param((Op.LOG, lambda a: a**-0.5), id="a**-0.5"),
        pytest.param((Op.LOG, lambda a: 2.5**a), id="2.5**a"),
        pytest.param((Op.LOG, lambda a: a**a), id="a**a"),
        pytest.param((Op.TANH, lambda a: a * a + a), id="a*a+a"),
        pytest.param((Op.TANH, lambda a: 1.0 / a - a), id="1/a-a"),
    ],
)
def test_derivatives_equal_central_differences(system, function):
    op, apply = function

    def loss(*leaves: Value) -> Value:
        return apply(*leaves) * 3.0  # an adjoint other than 1

    for numbers in points(op):
        found = system(loss, numbers)
        for i, x in enumerate(numbers):
            h = 1e-5 * max(abs(x), 1.0)
            above, below = ([Value(y) for y in (*numbers[:i], x + s, *numbers[i + 1 :])] for s in (h, -h))
            difference = (loss(*above).data - loss(*below).data) / (2 * h)
            assert found[i] == pytest.approx(difference, rel=1e-6, abs=1e-9), (numbers, i)


@pytest.mark.parametrize("op", sorted(PIECEWISE_CONSTANT), ids=lambda op: op.name)
def test_ops_without_a_derivative_are_constant_between_their_jumps(op):
    for numbers in itertools.product(SIGNED, [-1.7, 0.4, 2.2]):
        operands = numbers[: 2 if op in BINARY else 1]
        here = PYTHON[op](*operands)
        assert here in (0.0, 1.0)
        for step in ((0.05, 0.0), (0.0, 0.05)):
            assert PYTHON[op](*(x + h for x, h in zip(operands, step, strict=False))) == here


@pytest.mark.parametrize("op", [*WRITTEN, Op.DETACH], ids=lambda op: op.name)
def test_the_engine_computes_the_bits_of_the_table(op):
    written = WRITTEN.get(op, Value.detach)
    for pair in PAIRS:
        operands = pair[: 2 if op in BINARY else 1]
        out = written(*map(Value, operands))
        expected = bits(PYTHON[op](*operands))
        assert bits(out.data) == expected, operands
        assert bits(out.recompute()) == expected, operands


# The C and the Python, all ops in one module. Outputs are functions of two inputs; slopes are gradients of two
# parameters.

OUTPUTS: dict[str, tuple[Callable, Callable]] = {
    "add": (lambda x, y: x + y, PYTHON[Op.ADD]),
    "mul": (lambda x, y: x * y, PYTHON[Op.MUL]),
    "pow": (lambda x, y: x**y, PYTHON[Op.POW]),
    "max": (lambda x, y: x.max(y), PYTHON[Op.MAX]),
    "exp": (lambda x, y: x.exp(), lambda x, y: PYTHON[Op.EXP](x)),
    "log": (lambda x, y: x.log(), lambda x, y: PYTHON[Op.LOG](x)),
    "tanh": (lambda x, y: x.tanh(), lambda x, y: PYTHON[Op.TANH](x)),
    "relu": (lambda x, y: x.relu(), lambda x, y: PYTHON[Op.RELU](x)),
    "sigmoid": (lambda x, y: x.sigmoid(), lambda x, y: PYTHON[Op.SIGMOID](x)),
    "detach": (lambda x, y: x.detach(), lambda x, y: PYTHON[Op.DETACH](x)),
    **{
        f"power {e}": (lambda x, y, e=e: x**e, lambda x, y, e=e: PYTHON[Op.POW](x, e))
        for e in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
    },
    "sum": (lambda x, y: x + y + x + 0.5 + y, lambda x, y: x + y + x + 0.5 + y),
    "long sum": (lambda x, y: total([y, x] * 6), lambda x, y: functools.reduce(PYTHON[Op.ADD], [y, x] * 6)),
    "maximum": (
        lambda x, y: (x * y).max(y, 0.0, x),
        lambda x, y: PYTHON[Op.MAX](PYTHON[Op.MAX](PYTHON[Op.MAX](x * y, y), 0.0), x),
    ),
    "distributed": (lambda x, y: x * y - x * x, lambda x, y: x * y + (x * x) * -1.0),
}


def test_every_op_is_compiled_below_and_in_random_graphs():
    assert {op.name.lower() for op in [*WRITTEN, Op.DETACH]} <= set(OUTPUTS)
    assert {node._op for node in models.irregular(500).topo() if node._prev} == set(OPS)


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
    return Extension(program, folder, request.param).module


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


def test_compiled_slopes_of_max_and_relu_have_the_bits_of_the_table(ops_module):
    for p, q in PAIRS:
        ops_module.load_state_dict({"p": array("d", [p]), "q": array("d", [q])})
        ops_module.zero_grad()
        ops_module.forward(None, array("d", [0.0, 0.0]))
        ops_module.backward()
        slope = PYTHON[Op.LEFT](p, q) + PYTHON[Op.STEP](p) * 4.0
        assert (ops_module.grad(0), ops_module.grad(1)) == (slope, PYTHON[Op.RIGHT](p, q)), (p, q)
