"""Powers with a small constant exponent -> products, quotients and square roots; x / 4 -> x * 0.25. No bit changes.

Example input:

    %0 = param 0
    %1 = const 2.0
    %2 = pow %0 %1
    %3 = const -3.0
    %4 = pow %0 %3

becomes, simplified:

    %0 = param 0
    %1 = mul %0 %0
    %2 = const 1.0
    %3 = mul %1 %0
    %4 = div %2 %3

micrograd.ieee's power() defines these exponents so. Divisions by powers of 2, whose reciprocals are exact in float32
too, become products. Operations on constants are folded before, as an exponent or a divisor may be one.
"""

import math
from array import array
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codegen.ir.graph import Graph, Op
from codegen.passes.simplify import fold

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
    """The graph itself, its constants folded, if it has neither, else a new one."""
    fold(graph)
    op, _, b = graph.columns()
    candidates = np.flatnonzero(((op == Op.POW) | (op == Op.DIV)) & (op[b] == Op.CONST)).tolist()
    built = {n: build for n in candidates if (build := _build(graph, n))}
    if not built:
        return graph
    out, new, start = replace(graph, op=bytearray(), a=array("i"), b=array("i")), np.arange(len(graph)), 0
    for n in (*built, len(graph)):  # what is between two of them as a whole
        new[start:n] += len(out) - start
        out.op += graph.op[start:n]
        out.a += graph.a[start:n]
        out.b += graph.b[start:n]
        if n in built:
            new[n] = built[n](out, int(new[graph.a[n]]))
        start = n + 1
    taken = np.delete(new, [*built])
    op, a, b = out.columns()
    for column, nodes in ((a, taken[op[taken] > Op.TARGET]), (b, taken[b[taken] >= 0])):
        column[nodes] = new[column[nodes]]
    out.observe(graph, new.tolist())
    return out


def _build(graph: Graph, n: int) -> Build | None:
    """What computes a power or a quotient by a constant instead."""
    constant = graph.constants[graph.a[graph.b[n]]]
    if graph.op[n] == Op.POW:
        return POWERS.get(constant)
    if not _has_exact_reciprocal(constant):
        return None
    return lambda graph, x: graph.add(Op.MUL, x, graph.const(1.0 / constant))


def _has_exact_reciprocal(number: float) -> bool:
    return abs(math.frexp(number)[0]) == 0.5 and 2.0**-126 <= abs(number) <= 2.0**126
