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

Nodes of the same op and operands are merged. a + b and b + a stay two nodes: no rule says which would represent both.
x * 1, x / 1, x + -0.0 and x**1 are x. x + 0.0 stays: it turns -0.0 into 0.0. x * 0.0 stays: it may be nan.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from struct import pack

import numpy as np

from codegen.ir.graph import Graph, Op
from codegen.passes.tables import Tables, find_tables
from micrograd import ops

MOST_NODES = 1.5  # times the smallest graph: what tables may cost that stay regular
_MINUS_ZERO = pack("<d", -0.0)


def simplify(graph: Graph) -> Graph:
    """A new graph that computes the same observables, with the live nodes in the same order."""
    live = _without_dead_nodes(graph)
    if fold(live):
        live = _without_dead_nodes(live)
    while (tables := find_tables(live)) is not None:
        smallest, regular = _merged(live), _merged(live, tables)
        if len(regular) > MOST_NODES * len(smallest):
            return smallest
        if len(regular) == len(live):
            return regular
        live = regular  # in which less is repeated unevenly
    return _merged(live)


def fold(graph: Graph) -> bool:
    """Makes constants of operations on constants, in place. Returns whether there were any."""
    column, left, right = graph.columns()
    inner = column > Op.TARGET
    known = np.append(column == Op.CONST, True)  # the last one for b = -1, the operand that unary ops lack
    if not (known[left[inner]] & known[right[inner]]).any():
        return False
    op, a, b, is_constant = graph.op, graph.a, graph.b, bytearray(known)
    last_leaf, constant, copies = Op.TARGET, Op.CONST, set(graph.copies())
    for n, (o, x, y) in enumerate(zip(op, a, b, strict=True)):
        if o > last_leaf and is_constant[x] and is_constant[y] and n not in copies:
            number = graph.constant_number(_folded(graph, o, x, y))
            op[n], a[n], b[n], is_constant[n] = constant, number, -1, 1
    return True


def _merged(graph: Graph, tables: Tables | None = None) -> Graph:
    """A new graph in which the first of repeated nodes is read, and an operand instead of a node that equals it.

    A node's replacement depends on those of its operands, so this visits the nodes one by one, in a tight loop.
    """
    merged = replace(graph, a=graph.a[:], b=graph.b[:])
    op, a, b = merged.op, merged.a, merged.b
    last_leaf, constant, detach = Op.TARGET, Op.CONST, Op.DETACH
    size = len(graph)
    whole, apart = (bytearray(tables.whole), bytearray(tables.apart)) if tables else (bytearray(size), bytearray(size))
    for n in graph.copies():
        whole[n] = apart[n] = 1
    # For each node, the one that is read instead, and whether it is a constant. Both have an extra
    # last element for b = -1, the operand that leaves and unary ops lack.
    same = array("i", np.append(np.arange(size, dtype=np.intc), np.intc(-1)).tobytes())
    is_constant = bytes(graph.columns()[0] == constant) + b"\0"
    # For each op: both operands as one integer -> the first such node.
    known: list[dict[int, int]] = [{} for _ in range(ops.count())]
    for n, (o, x, y) in enumerate(zip(op, a, b, strict=True)):
        if o > last_leaf:
            x, y = same[x], same[y]
            if (is_constant[x] or is_constant[y] or o == detach) and not whole[n]:
                operand = _replacement(graph, o, x, y)
                if operand >= 0:
                    same[n] = operand
                    continue
            a[n], b[n] = x, y
        if not apart[n]:
            first = known[o].setdefault(x * size + y, n)
            if first != n:
                same[n] = first
    merged.observe(graph, same)
    return _without_dead_nodes(merged)


def _without_dead_nodes(graph: Graph) -> Graph:
    """The nodes that something observable depends on, and the constants among them, both in the same order."""
    live = np.frombuffer(graph.reachable(*graph.roots()), dtype=bool)
    new = np.where(live, np.cumsum(live, dtype=np.intc) - 1, np.intc(-1)).astype(np.intc)
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
    out.observe(graph, new.data)
    return out


def _replacement(graph: Graph, op: int, a: int, b: int) -> int:
    """The operand that a node always equals, or -1."""
    if op == Op.DETACH:
        return a
    if op in (Op.POW, Op.DIV) and graph.op[b] == Op.CONST and graph.constants[graph.a[b]] == 1.0:
        return a
    if op in (Op.ADD, Op.MUL):
        for x, other in ((a, b), (b, a)):
            if graph.op[x] == Op.CONST:
                value = graph.constants[graph.a[x]]
                if value == 1.0 if op == Op.MUL else pack("<d", value) == _MINUS_ZERO:
                    return other
    return -1


def _folded(graph: Graph, op: int, a: int, b: int) -> float:
    """The value of an operation on constants."""
    return ops.FUNCTIONS[op](*[graph.constants[graph.a[x]] for x in (a, b) if x >= 0])
