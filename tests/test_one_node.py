"""The C statement of one node: its text, and the engine's bits from a whole graph of them."""

from __future__ import annotations

import ctypes
import math
import random
import re
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import models
import pytest
from harness import bits
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler

from codegen.backends.shared import csrc
from codegen.toolchain import compile_flags
from micrograd import ops
from micrograd.engine import Value
from micrograd.functional import cross_entropy, total
from micrograd.nn import MLP
from micrograd.statements import backward_code, definitions_code, forward_code, set_input_code, update_code
from tools.fuzz_compiler.programs import expression as random_expression

PAGE = Path(__file__).resolve().parent.parent / "docs" / "one_node.md"
RATE = 0.1


def weight(data: float) -> Value:
    return Value(data, _op="weight")


def given(data: float) -> Value:
    return Value(data, _op="input")


def symbol(node: Value) -> str:
    return ops.BY_SYMBOL[node._op].symbol


SYMBOLS = {row.symbol for row in ops.ROWS if not row.is_registered}

# The text of one node

X, Y = weight(0.5), weight(2.0)


OPERATIONS: list[tuple[Value, str, list[str]]] = [
    (X + Y, "data[0]+data[1]", ["grad[0] += grad[2];", "grad[1] += grad[2];"]),
    (X * Y, "data[0]*data[1]", ["grad[0] += data[1]*grad[2];", "grad[1] += data[0]*grad[2];"]),
    (X + X, "data[0]+data[0]", ["grad[0] += grad[1];", "grad[0] += grad[1];"]),
    (X * X, "data[0]*data[0]", ["grad[0] += data[0]*grad[1];"] * 2),
    (X / Y, "data[0]/data[1]", ["grad[0] += (1.0/data[1])*grad[2];", "grad[1] += ((data[2]/data[1])*-1.0)*grad[2];"]),
    (X**3, "op_pow(data[0], 3.0)", ["grad[0] += (3.0*op_pow(data[0], 2.0))*grad[1];"]),
    (X**-1, "op_pow(data[0], -1.0)", ["grad[0] += (-1.0*op_pow(data[0], -2.0))*grad[1];"]),
    (X**0.5, "op_pow(data[0], 0x1p-1)", ["grad[0] += (0x1p-1*op_pow(data[0], -0x1p-1))*grad[1];"]),
    (X**0, "op_pow(data[0], 0x0p+0)", []),
    (
        X**Y,
        "op_pow(data[0], data[1])",
        [
            "grad[0] += (data[1]*op_pow(data[0], (data[1]+(op_step(op_abs(data[1]))*-1.0))))*grad[2];",
            "grad[1] += (data[2]*op_log((data[0]+((1.0+(op_step(op_abs(data[0]))*-1.0))"
            "*(1.0+(op_step((data[1]*-1.0))*-1.0))))))*grad[2];",
        ],
    ),
    (
        2.0**X,
        "op_pow(data[0], data[1])",
        [
            "grad[1] += (data[2]*op_log((data[0]+((1.0+(op_step(op_abs(data[0]))*-1.0))"
            "*(1.0+(op_step((data[1]*-1.0))*-1.0))))))*grad[2];",
        ],
    ),
    (X.exp(), "op_exp(data[0])", ["grad[0] += data[1]*grad[1];"]),
    (X.log(), "op_log(data[0])", ["grad[0] += (1.0/data[0])*grad[1];"]),
    (X.tanh(), "op_tanh(data[0])", ["grad[0] += (1.0+((data[1]*data[1])*-1.0))*grad[1];"]),
    (X.sigmoid(), "op_sigmoid(data[0])", ["grad[0] += (data[1]*(1.0+(data[1]*-1.0)))*grad[1];"]),
    (X.relu(), "op_relu(data[0])", ["grad[0] += op_step(data[1])*grad[1];"]),
    (
        X.max(Y),
        "op_max(data[0], data[1])",
        [
            "grad[0] += op_left(data[0], data[1])*grad[2];",
            "grad[1] += op_right(data[0], data[1])*grad[2];",
        ],
    ),
    (X.detach(), "data[0]", []),
    (X.sqrt(), "op_sqrt(data[0])", ["grad[0] += (0x1p-1/data[1])*grad[1];"]),
    (X.sin(), "op_sin(data[0])", ["grad[0] += op_cos(data[0])*grad[1];"]),
    (X.cos(), "op_cos(data[0])", ["grad[0] += (op_sin(data[0])*-1.0)*grad[1];"]),
    (X.abs(), "op_abs(data[0])", ["grad[0] += (op_step(data[0])+(op_step((data[0]*-1.0))*-1.0))*grad[1];"]),
    (
        X.min(Y),
        "op_min(data[0], data[1])",
        [
            "grad[0] += op_left((data[0]*-1.0), (data[1]*-1.0))*grad[2];",
            "grad[1] += op_right((data[0]*-1.0), (data[1]*-1.0))*grad[2];",
        ],
    ),
    (X.erf(), "op_erf(data[0])", ["grad[0] += (0x1.20dd750429b6dp+0*op_exp(((data[0]*data[0])*-1.0)))*grad[1];"]),
    (X.expm1(), "op_expm1(data[0])", ["grad[0] += (data[1]+1.0)*grad[1];"]),
    (X.log1p(), "op_log1p(data[0])", ["grad[0] += (1.0/(1.0+data[0]))*grad[1];"]),
    (
        X.gelu(),
        "op_gelu(data[0])",
        [
            "grad[0] += (((data[1]+((0x1p-1+(data[0]*(0x1.9884533d43651p-2*op_exp((-0x1p-1*(data[0]*data[0]))))))"
            "*op_step((0x1p-17+(op_abs(data[0])*-1.0)))))/(data[0]+op_step((0x1p-17+(op_abs(data[0])*-1.0)))))"
            "+(data[0]*(0x1.9884533d43651p-2*op_exp((-0x1p-1*(data[0]*data[0]))))))*grad[1];"
        ],
    ),
    (X.softplus(), "op_softplus(data[0])", ["grad[0] += op_sigmoid(data[0])*grad[1];"]),
    (X.apply("step"), "op_step(data[0])", []),
    (X.apply("left", Y), "op_left(data[0], data[1])", []),
    (X.apply("right", Y), "op_right(data[0], data[1])", []),
    (X * 7, "data[0]*data[1]", ["grad[0] += data[1]*grad[2];"]),
    (given(1.0) * X, "data[0]*data[1]", ["grad[1] += data[0]*grad[2];"]),
    (X.exp() * 3, "data[1]*data[2]", ["grad[1] += data[2]*grad[3];"]),
]


@pytest.mark.parametrize(("node", "text", "backward"), OPERATIONS, ids=[text for _, text, _ in OPERATIONS])
def test_an_operation(node: Value, text: str, backward: list[str]):
    number = len(node.topo()) - 1
    assert node.compile(node) == f"data[{number}] = {text};"
    assert node.backward_compile(node) == backward


def test_every_operation_of_the_engine_is_shown_above():
    assert {symbol(node) for node, _, _ in OPERATIONS} == SYMBOLS


@pytest.mark.parametrize(
    ("number", "literal"),
    [
        (2, "2.0"),
        (-2, "-2.0"),
        (0.1, "0x1.999999999999ap-4"),
        (-0.1, "-0x1.999999999999ap-4"),
        (0.0, "0x0p+0"),
        (-0.0, "-0x0p+0"),
        (math.inf, "INFINITY"),
        (-math.inf, "-INFINITY"),
        (math.nan, "NAN"),
        (5e-324, "0x0.0000000000001p-1022"),
    ],
)
def test_a_constant(number: float, literal: str):
    leaf = Value(number)
    assert leaf.compile(leaf) == f"data[0] = {literal};"
    assert leaf.backward_compile() == []


@pytest.mark.parametrize("kind", ["weight", "bias", "input"])
def test_a_leaf_that_is_set_elsewhere(kind: str):
    leaf = Value(1, _op=kind)
    assert leaf.compile() == ""
    assert leaf.backward_compile() == []
    assert leaf.topo() == [leaf]
    assert leaf.recompute() == 1.0
    leaf.backward()
    leaf.backward()
    assert leaf.grad == 2.0  # as any leaf's
    assert Value(3, (), kind)._op == kind


def test_numbers_are_those_of_the_graph_asked_for():
    x, y = weight(1), weight(2)
    z = x * y
    w = z + x.relu()
    assert [v.compile(w) for v in w.topo()] == [
        "",
        "",
        "data[2] = data[0]*data[1];",
        "data[3] = op_relu(data[0]);",
        "data[4] = data[2]+data[3];",
    ]
    y = x.relu()
    assert y.compile(y) == "data[1] = op_relu(data[0]);"
    assert z.backward_compile(w) == z.backward_compile(z)


def test_without_a_graph_nodes_are_numbered_by_id():
    """Each in its own graph would write data[2] twice: the essay prints v.compile() for every v."""
    a, b, c = Value(2), Value(3), weight(4)
    e = a * b + c * 5
    lines = [v.compile() for v in e.topo()]
    assert lines[0] == f"data[{a._id}] = 2.0;"
    assert lines[-1] == f"data[{e._id}] = data[{e._prev[0]._id}]+data[{e._prev[1]._id}];"
    targets = [line.split(" = ")[0] for line in lines if line]
    assert len(set(targets)) == len(targets) == 6
    product = e._prev[1]
    assert product.backward_compile() == [f"grad[{c._id}] += data[{product._prev[1]._id}]*grad[{product._id}];"]


@pytest.mark.parametrize("method", [Value.compile, Value.backward_compile])
def test_a_node_of_another_graph_is_refused(method: Callable):
    z = weight(1) * weight(2)
    for node in (Value(1), weight(1), z + 1):
        with pytest.raises(ValueError, match=r"Value\(data=\d, grad=0\) is not a node of the graph of Value\(data=2"):
            method(node, z)
    with pytest.raises(TypeError, match="graph must be a Value, not int"):
        method(z, 3)


@pytest.mark.parametrize("method", [Value.compile, Value.backward_compile])
def test_a_leaf_of_an_unknown_kind_is_refused(method: Callable):
    with pytest.raises(ValueError, match="_op must be '', 'weight', 'bias' or 'input', got 'wieght'"):
        method(Value(1, _op="wieght"))
    with pytest.raises(ValueError, match="got 'wieght'"):
        (X * Value(1, _op="wieght")).backward_compile()


def test_neither_codegen_nor_numpy_is_needed(run_python: Callable):
    script = """
import sys
sys.modules["numpy"] = sys.modules["codegen"] = None
from micrograd.engine import Value
print((Value(1) * Value(2)).compile())
"""  # in a fresh process the first Value is number 0
    assert run_python(script) == "data[2] = data[0]*data[1];\n"


# Whole graphs


def test_an_mlp_marks_its_leaves():
    model = MLP(3, [2, 1])
    kinds = [[leaf._op for leaf in neuron.parameters()] for layer in model.layers for neuron in layer.neurons]
    assert kinds == [["weight"] * 3 + ["bias"]] * 2 + [["weight"] * 2 + ["bias"]]


def test_statements_of_a_graph_are_those_of_its_nodes():
    model = MLP(3, [4, 2])
    loss = cross_entropy(model([given(0.0) for _ in range(3)]), 1)
    order = loss.topo()
    assert forward_code(loss).splitlines() == [text for v in order if (text := v.compile(loss))]
    contributions = [line for v in reversed(order) for line in v.backward_compile(loss)]
    lines = backward_code(loss).splitlines()
    start = lines.index(f"grad[{len(order) - 1}] = 1.0;")
    assert set(lines[start + 1 :]) < set(contributions)  # without what lies behind the detached maximum
    assert all(re.fullmatch(r"grad\[\d+\] = 0\.0;", line) for line in lines[:start])


def test_every_gradient_but_the_parameters_starts_from_zero():
    x, y = weight(1), given(2)
    loss = (x * y + 1).relu()
    assert backward_code(loss).splitlines() == [
        "grad[2] = 0.0;",
        "grad[4] = 0.0;",
        "grad[5] = 1.0;",
        "grad[4] += op_step(data[5])*grad[5];",
        "grad[2] += grad[4];",
        "grad[0] += data[1]*grad[2];",
    ]
    assert backward_code(x) == "grad[0] += 1.0;"
    assert backward_code(y) == backward_code(Value(1)) == ""


def test_what_is_only_reached_through_detach_passes_nothing_on():
    x = weight(0.0)
    loss = x * (x**-1).detach()  # 0 * inf
    assert backward_code(loss).splitlines()[-2:] == ["grad[0] += data[2]*grad[3];", "grad[2] += data[0]*grad[3];"]
    assert backward_code(loss).count("+=") == 2


def test_updates_and_inputs():
    x, y, idle = weight(1), Value(2, _op="bias"), given(3)
    buffer = [idle, given(4)]
    loss = x * buffer[1] + y
    assert update_code(loss, [x, y, weight(9)], 0.25) == "data[0] -= 0x1p-2*grad[0];\ndata[3] -= 0x1p-2*grad[3];"
    assert set_input_code(loss, buffer) == "data[1] = buf[1];"
    with pytest.raises(ValueError, match=r"parameter 1 must be a leaf made as Value\(x, _op='weight'\) or .*'input'"):
        update_code(loss, [x, buffer[1]], 0.25)
    with pytest.raises(ValueError, match=r"input 0 must be a leaf made as Value\(x, _op='input'\), but .* is '\+'"):
        set_input_code(loss, [loss])


def test_a_deep_graph_is_no_recursion():
    x = weight(1.0)
    loss = x
    for _ in range(10_000):
        loss = loss + x
    assert forward_code(loss).count("\n") == 10_000 - 1
    assert loss.compile(loss) == "data[10000] = data[9999]+data[0];"
    assert loss.backward_compile(loss) == ["grad[9999] += grad[10000];", "grad[0] += grad[10000];"]
    assert backward_code(loss).count("+=") == 20_000


# The same bits


def marked(name: str) -> tuple[Value, Sequence[Value], Sequence[Value]]:
    """A model's loss, parameters and other leaves that are set, which now say what they are."""
    program = models.REGULAR[name]()
    inputs = [*program.input_values, *program.target_values]
    for leaf in program.parameter_values:
        leaf._op = "weight"
    for leaf in inputs:
        leaf._op = "input"
    return program.loss, program.parameter_values, inputs


def expression(seed: int) -> tuple[Value, Sequence[Value], Sequence[Value]]:
    rng = random.Random(seed)
    parameters, inputs = [weight(rng.uniform(-1, 1)) for _ in range(3)], [given(0.0) for _ in range(2)]
    return random_expression(rng, [*parameters, *inputs], 60), parameters, inputs


def everything() -> tuple[Value, Sequence[Value], Sequence[Value]]:
    """Each operation, on values of each sign."""
    x, y, z = weight(0.7), weight(-1.3), given(0.0)
    found = [x + y, x * y, x**y, y**x, x**3, y**0, y**0.5, x.max(y, z), (x * 9).detach() * y]
    for value in (x, y, z * x):
        found += [value.exp(), value.log(), value.tanh(), value.sigmoid(), value.relu(), value**z]
        found += [value.sqrt(), value.sin(), value.cos(), abs(value), value.min(z, y), value.erf(), value.softplus()]
        found += [value.expm1(), value.log1p(), value.gelu(), value / y, y / value]
        found += [value.apply("step") * y, value.apply("left", y) * x, value.apply("right", y) * x]
    loss = total([value.tanh() for value in found])
    assert {symbol(node) for node in loss.topo() if node._prev} == SYMBOLS
    return loss, [x, y], [z]


@pytest.fixture(scope="module")
def graphs() -> dict[str, tuple[Value, Sequence[Value], Sequence[Value]]]:
    names = ["mlp", "xor", "recurrence", "residual", "edges"]
    return (
        {name: marked(name) for name in names}
        | {f"random {i}": expression(i) for i in range(12)}
        | {"everything": everything()}
    )


@pytest.fixture(scope="module")
def library(graphs: dict, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All graphs in one C file, each in the form that the page gives it."""
    (page,) = re.findall(r"```c\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    head, functions = page.split("DEFINITIONS\n")
    text = head + definitions_code(*(loss for loss, _, _ in graphs.values()))
    exported = []
    for i, (loss, parameters, inputs) in enumerate(graphs.values()):
        bodies = {
            "SET_INPUT": set_input_code(loss, inputs) or "(void)data; (void)buf;",
            "FORWARD": forward_code(loss),
            "BACKWARD": backward_code(loss),
            "UPDATE": update_code(loss, parameters, RATE),
        }
        part = re.sub(r"(set_input|forward|backward|update)\(", rf"\1_{i}(", functions)
        text += re.sub("|".join(bodies), lambda found, bodies=bodies: f"\n{bodies[found[0]]}\n", part)
        exported += [f"{name}_{i}" for name in ("set_input", "forward", "backward", "update")]
    folder = tmp_path_factory.mktemp("one_node")
    (folder / "graphs.c").write_text(text)
    compiler = new_compiler()
    customize_compiler(compiler)
    flags = [flag for flag in compile_flags(compiler.compiler_type) if flag not in ("-O3", "-fvisibility=hidden")]
    warnings = [] if compiler.compiler_type == "msvc" else ["-O0", "-Wall", "-Wextra", "-Werror"]
    objects = compiler.compile(
        [str(folder / "graphs.c")], str(folder), include_dirs=[str(csrc())], extra_postargs=[*flags, *warnings]
    )
    path = folder / ("graphs.dll" if sys.platform == "win32" else "graphs.so")
    compiler.link_shared_object(objects, str(path), export_symbols=exported)
    return ctypes.CDLL(str(path))


def test_the_engines_bits(graphs: dict, library: ctypes.CDLL):
    rng = random.Random(1)
    compared = 0
    for i, (name, (loss, parameters, inputs)) in enumerate(graphs.items()):
        order = loss.topo()
        number = {id(node): n for n, node in enumerate(order)}
        live = [p for p in parameters if id(p) in number]

        def call(function: str, *arrays: array, i: int = i) -> None:
            pointers = [(ctypes.c_double * len(a)).from_buffer(a) for a in arrays]
            getattr(library, f"{function}_{i}")(*pointers)

        data, grad = array("d", [math.nan] * len(order)), array("d", [math.nan] * len(order))
        for p in live:
            data[number[id(p)]], grad[number[id(p)]] = p.data, 0.0
        for step in range(3):
            numbers = array("d", [rng.choice([0.0, rng.uniform(-1, 1)]) for _ in inputs] or [0.0])
            for leaf, x in zip(inputs, numbers, strict=False):
                leaf.data = x
            loss.recompute()
            loss.backward()
            call("set_input", data, numbers)
            call("forward", data)
            call("backward", data, grad)
            seen = [node for node in order if node._prev or node._op == "weight"]
            assert bits(data) == bits([node.data for node in order]), f"{name}: data in step {step}"
            expected = bits([node.grad for node in seen])
            assert bits([grad[number[id(node)]] for node in seen]) == expected, f"{name}: gradients in step {step}"
            compared += len(seen)
            for p in live:
                p.data -= RATE * p.grad
            call("update", data, grad)
            assert bits([data[number[id(p)]] for p in live]) == bits([p.data for p in live]), f"{name}: update {step}"
    assert compared > 5_000
