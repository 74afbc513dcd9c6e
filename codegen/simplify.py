"""Drops what is not needed: constants folded, repeated nodes merged, dead nodes left out. No bit changes.

Example input:

    %0 = param 0
    %1 = const 2.0
    %2 = const 3.0
    %3 = mul %1 %2
    %4 = mul %0 %3
    %5 = mul %0 %3
    %6 = add %4 %5

becomes:

    %0 = param 0
    %1 = const 6.0
    %2 = mul %0 %1
    %3 = add %2 %2

Two nodes are one when op and operands are (a + b and b + a are two: which one would name the other is not worth a
rule). x * 1, x + -0.0 and x**1 are x. x + 0.0 stays: it turns -0.0 into 0.0. x * 0.0 stays: it may be nan.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import pack

import numpy as np

from codegen.ir import Graph, Op
from codegen.ops import PYTHON

_MINUS_ZERO = pack("<d", -0.0)


def simplify(graph: Graph) -> Graph:
    """A new graph that computes the same observables, with the live nodes in the same order."""
    # Folding leaves operands behind that nothing uses any more.
    return _without_dead_nodes(_merged(_without_dead_nodes(graph)))


def _merged(graph: Graph) -> Graph:
    """Constants folded and repeated nodes merged. Every node of the graph is visited, so this loop is kept tight."""
    out = Graph()
    for value in graph.constants:
        out.constant_number(value)
    last_leaf, constant, detach = int(Op.TARGET), int(Op.CONST), int(Op.DETACH)
    op, size, width = out.op, 0, len(graph) + 1
    new = array("i")  # a node's number in `out`, by its number in `graph`
    known: list[dict[int, int]] = [{} for _ in Op]  # for each op: both operands as one integer -> number in `out`
    for o, a, b in zip(graph.op, graph.a, graph.b, strict=True):
        if o > last_leaf:
            a = new[a]
            if b >= 0:
                b = new[b]
            if op[a] == constant or (b >= 0 and op[b] == constant) or o == detach:
                same = _replacement(out, o, a, b)
                if same >= 0:
                    new.append(same)
                    continue
                folded = _folded(out, o, a, b)
                if folded is not None:
                    o, a, b = constant, out.constant_number(folded), -1
        number = known[o].setdefault(a * width + b, size)
        if number == size:
            out.add(o, a, b)
            size += 1
        new.append(number)
    _observe(out, graph, new)
    return out


def _without_dead_nodes(graph: Graph) -> Graph:
    """The nodes that something observable depends on, and the constants among them, both in the same order."""
    live = np.frombuffer(graph.reachable(*graph.roots()), dtype=bool)
    new = np.cumsum(live, dtype=np.intc) - 1
    op, a, b = (column[live] for column in graph.columns())
    inner, binary, constant = op > Op.TARGET, b >= 0, op == Op.CONST
    a[inner], b[binary] = new[a[inner]], new[b[binary]]
    used, first = np.unique(a[constant], return_index=True)
    used = used[np.argsort(first)]
    out = Graph()
    number = np.zeros(len(graph.constants), dtype=np.intc)
    number[used] = [out.constant_number(graph.constants[i]) for i in used.tolist()]
    a[constant] = number[a[constant]]
    out.op = bytearray(op.tobytes())
    out.a.frombytes(a.tobytes())
    out.b.frombytes(b.tobytes())
    _observe(out, graph, new.tolist())
    return out


def _observe(out: Graph, graph: Graph, new: Sequence[int]) -> None:
    """The observables of `graph`, under their new numbers."""
    out.loss = new[graph.loss]
    out.outputs = {name: [new[n] for n in nodes] for name, nodes in graph.outputs.items()}
    out.gradients = {parameter: new[n] for parameter, n in graph.gradients.items()}


def _replacement(out: Graph, op: int, a: int, b: int) -> int:
    """The operand that a node always equals, or -1."""
    if op == Op.DETACH:
        return a
    if op == Op.POW and out.op[b] == Op.CONST and out.constants[out.a[b]] == 1.0:
        return a
    if op in (Op.ADD, Op.MUL):
        for x, other in ((a, b), (b, a)):
            if out.op[x] == Op.CONST:
                value = out.constants[out.a[x]]
                if value == 1.0 if op == Op.MUL else pack("<d", value) == _MINUS_ZERO:
                    return other
    return -1


def _folded(out: Graph, op: int, a: int, b: int) -> float | None:
    if out.op[a] != Op.CONST or (b >= 0 and out.op[b] != Op.CONST):
        return None
    operands = [out.constants[out.a[x]] for x in (a, b) if x >= 0]
    return PYTHON[Op(op)](*operands)
