"""Powers with a small constant exponent -> products, quotients and square roots; x / 4 -> x * 0.25. No bit changes.

Example input:

    %0 = param 0
    %1 = const 2.0
    %2 = pow %0 %1
    %3 = const -3.0
    %4 = pow %0 %3

becomes:

    %0 = param 0
    %1 = mul %0 %0
    %2 = const 1.0
    %3 = mul %1 %0
    %4 = div %2 %3

micrograd.ieee's power() defines these exponents so. Exponents 0 and 1 are gone before: see `trace` and `simplify`.
Divisions by powers of 2, whose reciprocals are exact in float32 too, become products.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from codegen.ir.graph import Graph, Op
from codegen.passes.simplify import simplify

Build = Callable[[Graph, int], int]  # appends a power of a node, and returns its number


def _inverse(power: Build) -> Build:
    return lambda graph, x: graph.add(Op.DIV, graph.const(1.0), power(graph, x))


def _square(graph: Graph, x: int) -> int:
    return graph.add(Op.MUL, x, x)


def _cube(graph: Graph, x: int) -> int:
    return graph.add(Op.MUL, _square(graph, x), x)


def _fourth(graph: Graph, x: int) -> int:
    return _square(graph, _square(graph, x))


def _root(graph: Graph, x: int) -> int:
    return graph.add(Op.SQRT, x)


def _root_of_cube(graph: Graph, x: int) -> int:
    return graph.add(Op.MUL, x, _root(graph, x))


_POSITIVE: dict[float, Build] = {
    0.5: _root,
    1.0: lambda graph, x: x,
    1.5: _root_of_cube,  # the slopes of norms have it: 1 / sqrt(x) has that of x**-1.5
    2.0: _square,
    3.0: _cube,
    4.0: _fourth,
}
POWERS = _POSITIVE | {-exponent: _inverse(power) for exponent, power in _POSITIVE.items()}


def expand_powers(graph: Graph) -> Graph:
    """The graph itself if it has neither, else a new one, simplified again: squares may repeat products."""
    if Op.POW not in graph.op and Op.DIV not in graph.op:
        return graph
    out = Graph()
    new: list[int] = []
    for op, a, b in zip(graph.op, graph.a, graph.b, strict=True):
        if op == Op.CONST:
            new.append(out.const(graph.constants[a]))
        elif op <= Op.TARGET:
            new.append(out.add(op, a))
        elif op == Op.POW and graph.op[b] == Op.CONST and (power := POWERS.get(graph.constants[graph.a[b]])):
            new.append(power(out, new[a]))
        elif op == Op.DIV and graph.op[b] == Op.CONST and _has_exact_reciprocal(graph.constants[graph.a[b]]):
            new.append(out.add(Op.MUL, new[a], out.const(1.0 / graph.constants[graph.a[b]])))
        else:
            new.append(out.add(op, new[a], new[b] if b >= 0 else -1))
    out.observe(graph, new)
    return simplify(out)


def _has_exact_reciprocal(number: float) -> bool:
    return abs(math.frexp(number)[0]) == 0.5 and 2.0**-126 <= abs(number) <= 2.0**126
