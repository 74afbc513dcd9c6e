"""The compiler's passes one by one: declaration, trace, autodiff, simplify, trees, groups and loop nests."""

from __future__ import annotations

import hashlib
import math
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import models
import numpy as np
import pytest
from harness import parse

from codegen import Floats, Program, compile_program
from codegen.ir.graph import LEAVES, Graph, Op, graph_text, node_text, verify
from codegen.passes import autodiff, simplify, trace
from codegen.pipeline import build_graph
from codegen.reroll import affine as nests
from codegen.reroll.affine import peel
from micrograd.engine import Value

ROOT = Path(__file__).resolve().parent.parent
INF, NAN = math.inf, math.nan


def program(loss: Value, parameters: object = (), inputs: object = (), **options: object) -> Program:
    return Program(
        inputs=Floats(list(inputs)),
        targets=None,
        parameters={"p": list(parameters)} if parameters else {},
        loss=loss,
        **options,
    )


def blocks(module: ModuleType) -> list[str]:
    """The indented paragraphs of a module's docstring."""
    paragraphs = re.split(r"\n\s*\n", module.__doc__)
    return [textwrap.dedent(p) for p in paragraphs if all(line.startswith("    ") for line in p.splitlines())]


# The printer


@pytest.mark.parametrize("name", models.REGULAR)
def test_the_printed_graph_says_everything(name):
    graph = build_graph(models.REGULAR[name]())
    text = graph_text(graph)
    assert graph_text(parse(text)) == text


# "Example input ... becomes ..." of each pass


def test_example_of_trace():
    expression, expected = blocks(trace)
    w, x = Value(0.5), Value(0.0)
    loss = eval(expression.replace("2.0", "Value(2.0)"), {"w": w, "x": x, "Value": Value})
    assert graph_text(trace.trace(program(loss, [w], [x]))) == expected + "\n"


def test_example_of_autodiff():
    before, after = blocks(autodiff)
    graph = parse(before)
    autodiff.differentiate(graph)
    assert graph_text(graph) == after + "\n"


def test_example_of_simplify():
    before, after, *_ = blocks(simplify)  # and an example of tables
    assert graph_text(simplify.simplify(parse(before))) == graph_text(parse(after))


def test_example_of_nests():
    rows, found = blocks(nests)
    loops, length = peel(np.array(eval(rows)))
    assert length == 6
    texts = [f"{loop.count} times, strides ({', '.join(map(str, loop.strides))})" for loop in loops]
    assert found == "    ".join(texts)


# verify


def legal() -> Graph:
    return parse("%0 = param 0\n%1 = const 2.0\n%2 = mul %0 %1\n%3 = exp %2\nloss %3\noutput o %2\ngradient 0 %1")


def column(name: str, n: int, number: int) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        getattr(graph, name)[n] = number

    return change


def test_a_legal_graph_passes():
    verify(legal())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (column("op", 2, 99), "%2: no such op: 99"),
        (column("a", 2, 2), "operands must come before their user: %2 = mul %2 %1"),
        (column("b", 2, 3), "%2 = mul %0 %3"),
        (column("a", 2, -1), "%2 = mul %-1 %1"),
        (column("b", 2, -1), "%2 = mul %0 %-1"),
        (column("a", 3, 3), "%3 = exp %3"),
        (column("b", 3, 0), "%3 = exp %2"),
        (column("a", 0, -1), "a leaf with a bad index: %0 = param -1"),
        (column("b", 0, 0), "%0 = param 0"),
        (column("a", 1, -1), "%1 = const"),
        (column("a", 1, 1), "%1 = const"),
        (lambda graph: graph.a.append(0), "4, 5, 4"),
        (lambda graph: graph.op.append(Op.PARAM), "5, 4, 4"),
        (lambda graph: graph.outputs.update(o=[-1]), "%-1"),
        (lambda graph: setattr(graph, "loss", 4), "%4"),
        (lambda graph: graph.outputs.update(o=[0, 5]), "%5"),
        (lambda graph: graph.gradients.update({0: 6}), "%6"),
    ],
)
def test_an_illegal_graph_is_refused_with_its_node(change, message):
    graph = legal()
    change(graph)
    with pytest.raises(ValueError, match=re.escape(message)):
        verify(graph)


# trace


def test_nodes_are_numbered_as_topo_walks_the_loss_and_then_the_outputs():
    a, x = Value(1.0), Value(0.0)
    shared = a * x
    loss = shared.exp() + a
    graph = trace.trace(program(loss, [a], [x], outputs={"late": [x.tanh()], "early": [shared]}))
    assert graph_text(graph).splitlines() == [
        "%0 = param 0",
        "%1 = input 0",
        "%2 = mul %0 %1",
        "%3 = exp %2",
        "%4 = add %3 %0",
        "%5 = tanh %1",
        "loss %4",
        "output late %5",
        "output early %2",
    ]


def test_undeclared_leaves_are_constants_and_declared_ones_keep_their_number():
    a, b, x, t = Value(1.0), Value(2.0), Value(3.0), Value(4.0)
    step = Program(
        inputs=Floats([x]),
        targets=Floats([t]),
        parameters={"a": a, "b": b},
        order=[b, a],
        loss=models.total([a, b, x, t, Value(5.0)]),
    )
    leaves = [node_text(graph, n) for graph in [trace.trace(step)] for n in range(len(graph)) if graph.op[n] in LEAVES]
    assert leaves == ["%0 = param 1", "%1 = param 0", "%2 = input 0", "%3 = target 0", "%4 = const 5.0"]


def test_a_constant_exponent_is_an_operand_and_exponent_zero_cuts_the_gradient():
    a, b = Value(2.0), Value(3.0)
    graph = trace.trace(program(a**2 + b**0 + a**b, [a, b]))
    text = graph_text(graph)
    assert "%2 = const 2.0\n%3 = pow %0 %2\n" in text
    assert "%4 = detach %1\n%5 = const 0.0\n%6 = pow %4 %5\n" in text
    assert "= pow %0 %1\n" in text


# Constants and parameters


@pytest.mark.parametrize(("symbol", "count", "arity"), [("exp", 2, 1), ("+", 1, 2), ("*", 3, 2)])
def test_a_node_with_the_operands_of_another_op_is_refused(symbol, count, arity):
    x = Value(1.0)
    message = f"{symbol!r} takes {arity} operands, but Value(data=1, grad=0) has {count}"
    with pytest.raises(ValueError, match=re.escape(message)):
        trace.trace(program(Value(1.0, [x] * count, symbol), [x]))


def test_constants_are_one_where_their_bits_are():
    graph = Graph()
    numbers = [graph.constant_number(x) for x in (1, 1.0, True, 0.0, -0.0, 0, NAN, -1.0, NAN, 1.0)]
    assert numbers == [0, 0, 0, 1, 2, 1, 3, 4, 3, 0]


def test_simplify_merges_constants_by_their_bits():
    x = Value(0.0)
    constants = [Value(c) for c in (1, 1.0, True, 0.0, -0.0, 0, NAN, NAN)]
    loss = models.total([x.max(c) for c in constants])
    graph = simplify.simplify(trace.trace(program(loss, (), [x])))
    found = [node_text(graph, n).split(" = ")[1] for n in range(len(graph)) if graph.op[n] == Op.CONST]
    assert found == ["const 1.0", "const 0.0", "const -0.0", "const nan"]


def test_leaves_with_equal_data_stay_apart():
    a, b, c, x, y = (Value(0.5) for _ in range(5))
    graph = build_graph(program(a * x + b * y + c * x, [a, b], [x, y]))
    leaves = [node_text(graph, n).split(" = ")[1] for n in range(len(graph)) if graph.op[n] in LEAVES - {Op.GRAD}]
    assert leaves == ["param 0", "param 1", "const 0.5", "input 0", "input 1"]
    assert len({graph.gradients[0], graph.gradients[1]}) == 2


# simplify


def simplified(expression: Callable[[Value], Value]) -> list[str]:
    """The nodes of an expression of the input %0."""
    x = Value(0.0)
    graph = simplify.simplify(trace.trace(program(expression(x), (), [x])))
    verify(graph)
    lines = graph_text(graph).splitlines()
    assert lines.pop() == f"loss %{len(graph) - 1}"
    return lines


@pytest.mark.parametrize(
    "expression",
    [
        lambda x: x * 1.0,
        lambda x: 1 * x,
        lambda x: x / 1.0,
        lambda x: x + -0.0,
        lambda x: -0.0 + x,
        lambda x: x - 0.0,
        lambda x: x**1,
        lambda x: x.detach(),
        lambda x: ((x * 1.0 + -0.0).detach() * 1.0) ** 1.0,
    ],
)
def test_what_changes_nothing_vanishes(expression):
    assert simplified(expression) == ["%0 = input 0"]


@pytest.mark.parametrize(
    ("expression", "constant", "node"),
    [
        (lambda x: x + 0.0, "0.0", "add %0 %1"),
        (lambda x: x - -0.0, "0.0", "add %0 %1"),
        (lambda x: x * 0.0, "0.0", "mul %0 %1"),
        (lambda x: x * -0.0, "-0.0", "mul %0 %1"),
        (lambda x: x * -1.0, "-1.0", "mul %0 %1"),
        (lambda x: x**2, "2.0", "pow %0 %1"),
        (lambda x: x**-1, "-1.0", "pow %0 %1"),
        (lambda x: x.max(-INF), "-inf", "max %0 %1"),
    ],
)
def test_what_might_change_a_bit_stays(expression, constant, node):
    assert simplified(expression) == ["%0 = input 0", f"%1 = const {constant}", f"%2 = {node}"]


@pytest.mark.parametrize(("divisor", "is_product"), [(2.0**126, 1), (-(2.0**-126), 1), (2.0**127, 0), (2.0**-127, 0)])
def test_a_division_becomes_a_product_with_what_float32_has_too(divisor, is_product):
    x = Value(0.0)
    graph = build_graph(program((x / divisor) ** 3.5, inputs=[x]))
    assert (Op.MUL in graph.op) == is_product != (Op.DIV in graph.op)


def test_operands_are_not_swapped():
    assert simplified(lambda x: x.exp() * x + x * x.exp()) == [
        "%0 = input 0",
        "%1 = exp %0",
        "%2 = mul %1 %0",
        "%3 = mul %0 %1",
        "%4 = add %2 %3",
    ]


def test_constants_fold_to_the_bits_that_the_engine_computes():
    third = (Value(1.0) / 3.0 + 0.1).exp().log().tanh().sigmoid().relu().max(0.2) ** 1.5 - 0.3
    assert f"%0 = const {third.data!r}" in simplified(lambda x: x * third)
    assert "%1 = const nan" in simplified(lambda x: x * (Value(0.0) * INF))


def test_sums_are_not_reassociated():
    assert simplified(lambda x: (x + 0.1) + 0.2) == [
        "%0 = input 0",
        "%1 = const 0.1",
        "%2 = add %0 %1",
        "%3 = const 0.2",
        "%4 = add %2 %3",
    ]


def test_dead_nodes_are_left_out():
    dead = parse("%0 = input 0\n%1 = exp %0\n%2 = tanh %0\n%3 = param 4\n%4 = mul %0 %2\nloss %4")
    assert graph_text(simplify.simplify(dead)) == "%0 = input 0\n%1 = tanh %0\n%2 = mul %0 %1\nloss %2\n"


# autodiff


def test_gradients_start_from_the_old_gradient_and_add_up_in_the_engines_order():
    graph = parse("%0 = param 0\n%1 = input 0\n%2 = mul %0 %1\n%3 = mul %2 %0\nloss %3")
    autodiff.differentiate(graph)
    assert graph_text(graph).splitlines()[4:] == [
        "%4 = const 1.0",
        "%5 = mul %0 %4",
        "%6 = mul %2 %4",
        "%7 = grad 0",
        "%8 = add %7 %6",
        "%9 = mul %1 %5",
        "%10 = add %8 %9",
        "loss %3",
        "gradient 0 %10",
    ]


def test_parameters_without_a_path_to_the_loss_have_no_gradient():
    a, b, c, x = (Value(1.0) for _ in range(4))
    graph = trace.trace(program(a * x + b.detach() * x + c**0, [a, b, c], [x]))
    autodiff.differentiate(graph)
    verify(graph)
    assert list(graph.gradients) == [0]


# Reproducible


def test_numbers_do_not_depend_on_other_values_in_the_process():
    def build(noise: Callable[[Value], object]) -> str:
        w, x = [Value(0.5), Value(0.25)], models.values(2)
        noise(w[0])
        first = w[0] * x[0]
        noise(first)
        loss = (first + w[1] * x[1]).tanh()
        noise(loss)
        return compile_program(program(loss, w, x, outputs={"out": [first]})).text

    quiet = build(lambda value: None)
    assert build(lambda value: [value + Value(1.0) * i for i in range(50)]) == quiet
    assert build(lambda value: compile_program(models.xor())) == quiet
    assert build(lambda value: value.exp().backward()) == quiet


@pytest.mark.slow
def test_the_text_is_the_same_in_every_process():
    names = ["mlp", "convolution", "recurrence", "gather", "edges"]
    script = (
        "import hashlib, models, codegen\n"
        f"for name in {names}:\n"
        "    text = codegen.compile_program(models.REGULAR[name]()).text\n"
        "    print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "4242")
    ]
    here = [hashlib.sha256(compile_program(models.REGULAR[name]()).text.encode()).hexdigest() for name in names]
    for run in runs:
        out, _ = run.communicate(timeout=60)
        assert run.returncode == 0
        assert out.split() == here
