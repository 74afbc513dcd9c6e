"""Ops that a user registers at run time: they reach every system, and a bad one changes nothing."""

from __future__ import annotations

import ctypes
import math
import random
import re
from array import array

import pytest
from harness import Extension, Generated, bits, compare
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler
from test_ops import GRID, compiled_gradients, engine_gradients

from codegen import Floats, Program, compile_program
from codegen.passes.trace import trace
from codegen.toolchain import compile_flags, csrc
from micrograd import ops
from micrograd.engine import Value
from micrograd.functional import total
from micrograd.ieee import power, tanh
from micrograd.statements import backward_code, definitions_code, forward_code


def softsign_of(x: float) -> float:
    return x * power(1.0 + math.fabs(x), -1.0)


cube = ops.register(
    "cube",
    lambda x: x * x * x,
    [lambda y, a: 3.0 * (a * a)],
    "a * a * a",
    python="""
    def anything(x):
        return x * x * x
""",
)
softsign = ops.register(
    "softsign",
    softsign_of,
    [lambda y, a: ops.power((1.0 + ops.absolute(a)) * (1.0 + ops.absolute(a)), -1.0)],
    """
static inline real op_softsign(real x)
{
    return x * op_pow(1 + op_abs(x), -1);
}
""",
    symbol="x/(1+|x|)",
)


def blend_of(a: float, b: float) -> float:
    return 0.25 * a + 0.75 * b


# One slope is a number; the other is cut on purpose.
blend = ops.register("blend", blend_of, [0.25, None], "(real)0.25 * a + (real)0.75 * b")


def program() -> Program:
    """A layer, so that there are loops, with each of the three ops in it."""
    rng = random.Random(3)
    x, t = [Value(0.0) for _ in range(4)], [Value(0.0)]
    w = [[Value(rng.uniform(-1, 1)) for _ in x] for _ in range(6)]
    b = [Value(rng.uniform(-1, 1)) for _ in w]
    hidden = [total([bi, *(wi * xi for wi, xi in zip(row, x, strict=True))]) for row, bi in zip(w, b, strict=True)]
    units = [softsign(cube(h)) + h.apply("blend", bi) for h, bi in zip(hidden, b, strict=True)]
    loss = (total(units) - t[0]) ** 2
    return Program(
        inputs=Floats(x), targets=Floats(t), parameters={"w": w, "b": b}, loss=loss, outputs={"units": units}
    )


def test_registered_ops_train_everywhere_with_the_engines_bits(tmp_path):
    compare(program(), tmp_path, flags=["-O0"])


@pytest.mark.parametrize("system", [engine_gradients, compiled_gradients], ids=["engine", "ir"])
@pytest.mark.parametrize("op", [cube, softsign], ids=["cube", "softsign"])
def test_its_derivative_equals_central_differences(system, op):
    for x in (-2.1, -0.8, 0.3, 1.4):
        h = 1e-5
        (found,) = system(lambda a: op(a) * 3.0, (x,))
        assert found == pytest.approx(3.0 * (op.function(x + h) - op.function(x - h)) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("system", [engine_gradients, compiled_gradients], ids=["engine", "ir"])
def test_a_slope_may_be_a_number_or_missing(system):
    assert system(lambda a, b: blend(a, b) * 8.0 + b * 0.0, (1.0, 2.0)) == [2.0, 0.0]


def test_one_node_c(tmp_path):
    x, y = Value(0.7, _op="weight"), Value(-1.3, _op="weight")
    loss = softsign(cube(x) * y)
    node = cube(x)
    assert node.compile(node) == "data[1] = op_cube(data[0]);"
    assert node.backward_compile(node) == ["grad[0] += (3.0*(data[0]*data[0]))*grad[1];"]
    assert loss.backward_compile(loss)[0].startswith("grad[3] += op_pow(((1.0+op_abs(data[3]))*(1.0+op_abs(data[3]))),")
    assert definitions_code(x * y) == ""
    text = "#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\ntypedef double real;\n"
    text += f'typedef ptrdiff_t Py_ssize_t;\n#define FLOAT32 0\n#include "ops.h"\n{definitions_code(loss)}\n'
    text += f"void step(double *data, double *grad)\n{{\n{forward_code(loss)}\n{backward_code(loss)}\n}}\n"
    (tmp_path / "one.c").write_text(text)
    compiler = new_compiler()
    customize_compiler(compiler)
    flags = [flag for flag in compile_flags(compiler.compiler_type) if flag not in ("-O3", "-fvisibility=hidden")]
    objects = compiler.compile(
        [str(tmp_path / "one.c")], str(tmp_path), include_dirs=[str(csrc())], extra_postargs=flags
    )
    compiler.link_shared_object(objects, str(tmp_path / "one.so"), export_symbols=["step"])
    order = loss.topo()
    data, grad = ((ctypes.c_double * len(order))() for _ in range(2))
    data[0], data[2] = x.data, y.data
    ctypes.CDLL(str(tmp_path / "one.so")).step(data, grad)
    loss.backward()
    assert bits(data) == bits([node.data for node in order])
    assert bits(grad) == bits([node.grad for node in order])


def test_c_and_python_have_the_functions_bits(tmp_path):
    x = Value(0.0)
    outputs = {"cube": [cube(x)], "softsign": [softsign(x)], "blend": [blend(x, 1.5)]}
    made = Program(inputs=Floats([x]), targets=None, parameters={"p": Value(0.0)}, loss=x * 1.0, outputs=outputs)
    modules = [Extension(made, tmp_path, "loops", flags=["-O0"]).module, Generated(made, tmp_path).module]
    for number in GRID:
        expected = [cube.function(number), softsign.function(number), blend.function(number, 1.5)]
        for module in modules:
            found = module.outputs(array("d", [number]))
            assert bits([found[name][0] for name in outputs]) == bits(expected), number


def test_generated_c_carries_the_definitions_it_needs():
    text = compile_program(program()).text
    assert text.count("static inline real op_cube(real a) { return a * a * a; }") == 1
    assert len(re.findall(r"real op_softsign\(real x\)", text)) == 1
    p = Value(1.0)
    plain = Program(inputs=Floats([]), targets=None, parameters={"p": p}, loss=cube(p))
    assert "op_softsign" not in compile_program(plain).text


def test_a_callable_row_a_method_and_a_name_make_the_same_node():
    x = Value(2.0)
    for node in (cube(x), x.apply("cube"), x.apply(cube), ops.apply("cube", x)):
        assert (node.data, node._op, node._prev) == (8.0, "cube", (x,))
    assert blend(1, x)._prev[1] is x
    assert cube(2) == cube(2.0) == 8.0


def test_an_unknown_op_says_how_to_register_it():
    x = Value(1.0)
    node = Value(1.0, (x,), "swish")
    made = Program(inputs=Floats([]), targets=None, parameters={"x": x}, loss=node)
    for use in (
        lambda: trace(made),
        node.backward,
        node.recompute,
        node.compile,
        node.backward_compile,
        lambda: x.apply("swish"),
        lambda: ops.apply("swish", x),
    ):
        with pytest.raises(ValueError, match=r"no op is called 'swish': micrograd\.ops\.register\('swish', \.\.\.\)"):
            use()


GOOD = {"name": "good", "function": lambda x: x, "partials": [1.0], "c": "a"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "cube"}, ValueError, "there is an op 'cube' already"),
        ({"name": "tanh", "symbol": "th"}, ValueError, "there is an op 'tanh' already"),
        ({"symbol": "+"}, ValueError, r"'\+' is taken already"),
        ({"symbol": "**2.5"}, ValueError, r"'\*\*2.5' is taken already: it is a power"),
        ({"symbol": 3}, TypeError, "are strings"),
        ({"c": 3}, TypeError, "are strings"),
        ({"symbol": "weight"}, ValueError, "'weight' is the symbol of a leaf"),
        ({"name": "param"}, ValueError, "not that of a leaf, got 'param'"),
        ({"name": "Good"}, ValueError, "lower-case identifier"),
        ({"name": "a b"}, ValueError, "lower-case identifier"),
        ({"name": 3}, TypeError, "are strings"),
        ({"partials": []}, ValueError, "one or two operands and a partial for each, got 0"),
        ({"partials": [1.0] * 3}, ValueError, "got 3 partials"),
        ({"partials": [1]}, TypeError, "partial 0 must be a function, a float or None"),
        ({"partials": [lambda y, a: 1.0 / a]}, ValueError, "partial 0 is no function of the result and the operands"),
        ({"partials": [lambda y, a: a**2]}, ValueError, "partial 0 is no function"),
        ({"partials": [lambda y, a: math.cos(a)]}, ValueError, "partial 0 is no function"),
        ({"partials": [lambda y, a: a if a > 0 else y]}, ValueError, "cannot compare or branch"),
        ({"partials": [lambda y, a: "a"]}, TypeError, "partial 0 gives str"),
        ({"partials": [lambda y, a: a * "2"]}, ValueError, "partial 0 is no function"),
        ({"partials": [lambda a: a]}, ValueError, "partial 0 is no function"),
        ({"function": lambda x, y: x}, ValueError, "the function of 1 floats fails at 0.5"),
        ({"function": lambda x: 1}, TypeError, "must return a float, but at 0.5 it is int"),
        ({"c": ""}, ValueError, "c must be an expression in a, or define op_good"),
        ({"c": "return a;"}, ValueError, "c must be an expression"),
        (
            {"c": "static inline real op_bad(real a) { return a; }"},
            ValueError,
            r"one function static inline real op_good",
        ),
        ({"c": "static inline real op_good(real a) { return a; } int b;"}, ValueError, "c must be one function"),
        ({"c": "static inline real op_good(real a) { return a;"}, ValueError, "c must be one function"),
        ({"c": "static inline real op_good(real a, real b) { return a; }"}, ValueError, "c must be one function"),
        *(({"c": c}, ValueError, "c must be an expression in a") for c in ("b", "a ) + (a", "return a", "op_good(a)")),
        *(
            ({"c": c}, ValueError, "c must not have quotes")
            for c in ('a"', "'a", "a // x", "a /* x", "a\\", "#a", "a\0")
        ),
        ({"partials": 5}, TypeError, "partials must be a list, not int"),
        ({"partials": [lambda y, a: 1.0 if a == 0.0 else a]}, ValueError, "cannot compare or branch"),
        ({"partials": [lambda y, a: a * 10**400]}, ValueError, "partial 0 is no function"),
        ({"function": math.log}, ValueError, "the function of 1 floats fails at 0.0"),
        ({"function": lambda x: x if x > 0 else 0}, TypeError, "at 0.0 it is int"),
        ({"function": lambda x: x if x - x == 0 else 0}, TypeError, "at inf it is int"),
        ({"function": lambda x: x if x > -math.inf else 0}, TypeError, "at -inf it is int"),
        ({"function": lambda x: x if x == x else 0}, TypeError, "at nan it is int"),
        ({"python": 5}, TypeError, "python must be the source of a function, not int"),
        ({"python": "def f(x:"}, ValueError, "python is not the source of a function"),
        ({"python": "def f(x):\n    return x\nx = 1"}, ValueError, "python must be the source of one function"),
        ({"python": "x = 1"}, ValueError, "python must be the source of one function"),
    ],
)
def test_a_bad_registration_changes_nothing(change, error, message):
    before = (list(ops.ROWS), dict(ops.BY_NAME), dict(ops.BY_SYMBOL), list(ops.C), list(ops.ARITY))
    with pytest.raises(error, match=message):
        ops.register(**(GOOD | change))
    assert before == (list(ops.ROWS), dict(ops.BY_NAME), dict(ops.BY_SYMBOL), list(ops.C), list(ops.ARITY))


def test_a_full_table_takes_no_more(monkeypatch):
    """The ir has a byte for an op."""
    monkeypatch.setattr(ops, "MAX_OPS", ops.count())
    with pytest.raises(ValueError, match="the table is full: an op's number is smaller than"):
        ops.register(**GOOD)


def test_a_wrong_number_or_kind_of_operands():
    with pytest.raises(TypeError, match="cube takes 1 operand, got 2"):
        cube(Value(1.0), Value(2.0))
    with pytest.raises(TypeError, match="blend takes 2 operands, got 1"):
        Value(1.0).apply("blend")
    with pytest.raises(TypeError, match="blend takes numbers and Values, not str"):
        blend("1", 2.0)
    with pytest.raises(TypeError, match="blend takes Values and numbers, not str"):
        blend(Value(1.0), "2")


def test_python_that_cannot_be_had_is_an_error_that_says_what_to_pass(run_python):
    script = """
import math
from micrograd import ops
from micrograd.engine import Value
from codegen import Floats, Program, build, compile_program
scale = 2.0
cases = {"built": math.asinh, "lam": eval(compile("lambda x: scale * x", "nowhere", "eval"))}
for name, function in cases.items():
    op = ops.register(name, function, [1.0], "a")
    p = Value(1.0)
    made = Program(inputs=Floats([]), targets=None, parameters={"p": p}, loss=op(p))
    try:
        compile_program(made, target="python").text
    except ValueError as error:
        print(error)
"""
    first, second = run_python(script).splitlines()
    assert first.startswith("the op 'built' cannot be written as Python, it is not a plain function: pass register() p")
    assert second.startswith("the op 'lam' cannot be written as Python, its source cannot be found")


def test_c_that_calls_what_is_not_there_does_not_compile(run_python):
    script = """
import codegen
from codegen import Floats, Program
from micrograd import ops
from micrograd.engine import Value
op = ops.register("squared", lambda x: x * x, [lambda y, a: 2.0 * a], "squaare(a)")
p = Value(1.0)
try:
    codegen.compile(Program(inputs=Floats([]), targets=None, parameters={"p": p}, loss=op(p)), optimize=0)
except codegen.CompilerError as error:
    print("squaare" in str(error))
"""
    assert run_python(script) == "True\n"


def test_python_source_may_use_math_and_ieee_only():
    outside = 2.0

    def closed(x: float) -> float:
        return outside * x

    p = Value(1.0)
    for name, function, reason in (
        ("closed", closed, "it is not a plain function"),
        ("global_name", uses_global, "it uses GRID, but may only use math"),
    ):
        row = ops.BY_NAME[name] if name in ops.BY_NAME else ops.register(name, function, [1.0], "a")
        made = Program(inputs=Floats([]), targets=None, parameters={"p": p}, loss=row(p))
        with pytest.raises(ValueError, match=reason):
            compile_program(made, target="python")


def uses_global(x: float) -> float:
    return x + len(GRID)


def test_the_docstrings_example(run_python):
    script = """
import doctest, micrograd.ops
print(doctest.testmod(micrograd.ops))
"""
    assert run_python(script) == "TestResults(failed=0, attempted=3)\n"


def crowded_of(x: float) -> float:
    """With the names that a function in stages has for itself, and those of the functions that it calls."""
    x_2 = x * x
    chosen_2 = x_2 + 1.0
    i = tanh(x + x_2 / chosen_2)
    count = i * i
    numbers = 1.0 / (1.0 + count)
    lines = numbers * x
    blocks = numbers * numbers
    i_of = blocks * lines
    head = (lines - blocks) * (i_of + x_2) * chosen_2
    return tanh(i + i_of) * count + numbers * (head - x_2 * chosen_2)


crowded = ops.register("crowded", crowded_of, [0.5])


@pytest.mark.slow
def test_a_long_function_runs_in_stages(tmp_path):
    x, w = [Value(0.0) for _ in range(32)], [Value(0.1 * i) for i in range(32)]
    y = [crowded(a * b) for a, b in zip(x, w, strict=True)]
    model = Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=total(y), outputs={"y": y})
    assert "AT_LEVEL(each_crowded)(" in compile_program(model).text
    compare(model, tmp_path, steps=2)
