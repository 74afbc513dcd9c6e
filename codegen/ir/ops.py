"""What each op means, one table a meaning: its Python value, its text in C and in Python, its derivative.

A test keeps their keys equal.

A derivative is written as ir again. `g` is the adjoint of the node (the derivative of the loss with respect to it),
and each rule returns what is added to one operand's adjoint. The order of the multiplications is the engine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from codegen.ir.graph import Graph, Op
from micrograd import ieee

PYTHON: dict[Op, Callable[..., float]] = {
    Op.ADD: lambda a, b: a + b,
    Op.MUL: lambda a, b: a * b,
    Op.POW: ieee.power,
    Op.MAX: ieee.maximum,
    Op.LEFT: ieee.takes_left,
    Op.RIGHT: ieee.takes_right,
    Op.EXP: ieee.exp,
    Op.LOG: ieee.log,
    Op.TANH: math.tanh,
    Op.RELU: ieee.relu,
    Op.SIGMOID: ieee.sigmoid,
    Op.STEP: ieee.positive,
    Op.DETACH: lambda a: a,
}

# The functions are those of csrc/ops.h. An operand is always one C primary expression.
C: dict[Op, str] = {
    Op.ADD: "{} + {}",
    Op.MUL: "{} * {}",
    Op.POW: "op_pow({}, {})",
    Op.MAX: "op_max({}, {})",
    Op.LEFT: "op_left({}, {})",
    Op.RIGHT: "op_right({}, {})",
    Op.EXP: "op_exp({})",
    Op.LOG: "op_log({})",
    Op.TANH: "op_tanh({})",
    Op.RELU: "op_relu({})",
    Op.SIGMOID: "op_sigmoid({})",
    Op.STEP: "op_step({})",
    Op.DETACH: "{}",
}

# The functions are those of micrograd.ieee, whose text a generated Python module carries along.
PYTHON_TEXT: dict[Op, str] = {
    Op.ADD: "{} + {}",
    Op.MUL: "{} * {}",
    Op.POW: "power({}, {})",
    Op.MAX: "maximum({}, {})",
    Op.LEFT: "takes_left({}, {})",
    Op.RIGHT: "takes_right({}, {})",
    Op.EXP: "exp({})",
    Op.LOG: "log({})",
    Op.TANH: "math.tanh({})",
    Op.RELU: "relu({})",
    Op.SIGMOID: "sigmoid({})",
    Op.STEP: "positive({})",
    Op.DETACH: "{}",
}

Rule = Callable[[Graph, int, int], int]


def _pow_base(graph: Graph, n: int, g: int) -> int:
    a, b = graph.a[n], graph.b[n]
    power = graph.add(Op.POW, a, graph.add(Op.ADD, b, graph.const(-1.0)))
    return graph.add(Op.MUL, graph.add(Op.MUL, b, power), g)


def _pow_exponent(graph: Graph, n: int, g: int) -> int:
    return graph.add(Op.MUL, graph.add(Op.MUL, n, graph.add(Op.LOG, graph.a[n])), g)


def _log(graph: Graph, n: int, g: int) -> int:
    return graph.add(Op.MUL, graph.add(Op.POW, graph.a[n], graph.const(-1.0)), g)


def _one_minus(graph: Graph, n: int) -> int:
    return graph.add(Op.ADD, graph.const(1.0), graph.add(Op.MUL, n, graph.const(-1.0)))


def _tanh(graph: Graph, n: int, g: int) -> int:
    return graph.add(Op.MUL, _one_minus(graph, graph.add(Op.MUL, n, n)), g)


def _sigmoid(graph: Graph, n: int, g: int) -> int:
    return graph.add(Op.MUL, graph.add(Op.MUL, n, _one_minus(graph, n)), g)


def _max_left(graph: Graph, n: int, g: int) -> int:
    return graph.add(Op.MUL, graph.add(Op.LEFT, graph.a[n], graph.b[n]), g)


def _max_right(graph: Graph, n: int, g: int) -> int:
    return graph.add(Op.MUL, graph.add(Op.RIGHT, graph.a[n], graph.b[n]), g)


# One rule for each operand that gradient flows to. No rules: piecewise constant, or cut on purpose.
DERIVATIVE: dict[Op, tuple[Rule, ...]] = {
    Op.ADD: (lambda graph, n, g: g, lambda graph, n, g: g),
    Op.MUL: (
        lambda graph, n, g: graph.add(Op.MUL, graph.b[n], g),
        lambda graph, n, g: graph.add(Op.MUL, graph.a[n], g),
    ),
    Op.POW: (_pow_base, _pow_exponent),
    Op.MAX: (_max_left, _max_right),
    Op.LEFT: (),
    Op.RIGHT: (),
    Op.EXP: (lambda graph, n, g: graph.add(Op.MUL, n, g),),
    Op.LOG: (_log,),
    Op.TANH: (_tanh,),
    Op.RELU: (lambda graph, n, g: graph.add(Op.MUL, graph.add(Op.STEP, n), g),),
    Op.SIGMOID: (_sigmoid,),
    Op.STEP: (),
    Op.DETACH: (),
}
