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


Constants that are a table: what is alike but for them stays alike.

Example input: two rows of a rotation by the angles 0 and 1, cosines times x and sines times y,

    %8 = mul %0 %4      (x0 * 1.0)           %10 = mul %2 %6     (x1 * 0.54)
    %9 = mul %1 %5      (y0 * 0.0)           %11 = mul %3 %7     (y1 * 0.84)

becomes marks: %8 may not be replaced by x0, although x * 1 is x. The rows would not be one loop any more, nor would
what reads them. In the same way a matrix of zeros and ones, as of a graph or of a mask, stays a matrix: products that
are the same by accident, with equal constants, are not merged.

Nodes are alike if they are the same op on operands that are alike; all constants are, all parameters, and so on. If
nothing is a table, nothing is marked: a gradient times 1.0, the same for all, disappears.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from struct import pack

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op
from micrograd import ops

MOST_NODES = 1.5  # times the smallest graph: what tables may cost that stay regular
_MINUS_ZERO = pack("<d", -0.0)

Ints = npt.NDArray[np.int64]


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


# Constants that are a table


@dataclass(frozen=True)
class Tables:
    """Which nodes, one byte each, have a constant from a table as an operand.

    whole   may not be replaced by their other operand
    apart   may not be merged with others
    """

    whole: bytes
    apart: bytes


def find_tables(graph: Graph) -> Tables | None:
    """The nodes of a graph with folded constants whose constants are from a table; None if there are none."""
    op, a, b = graph.columns()
    binary = np.flatnonzero((op > Op.TARGET) & (b >= 0))
    nodes = binary[(op[a[binary]] == Op.CONST) != (op[b[binary]] == Op.CONST)]
    is_left = op[a[nodes]] == Op.CONST
    constant = a[np.where(is_left, a[nodes], b[nodes])].astype(np.int64)
    other = np.where(is_left, b[nodes], a[nodes])
    if not _of_tables(op[other].astype(np.int64), constant).any():  # so those that are alike are no table either
        return None
    _, first, alike = np.unique(_alike(graph)[nodes], return_index=True, return_inverse=True)
    is_table = _of_tables(alike, constant)
    _, pair = np.unique(alike * len(graph.constants) + constant, return_inverse=True)
    _, same, times = np.unique(pair * len(graph) + other, return_inverse=True, return_counts=True)
    is_uneven = np.zeros(len(first), dtype=bool)  # some are repeated more often than others
    is_uneven[alike[times[same] != times[same[first]][alike]]] = True
    whole, apart = np.zeros(len(graph), dtype=bool), np.zeros(len(graph), dtype=bool)
    whole[nodes] = is_table
    apart[nodes] = is_table & is_uneven[alike]
    return Tables(whole.tobytes(), apart.tobytes()) if is_table.any() else None


def _of_tables(kind: Ints, constant: Ints) -> npt.NDArray[np.bool_]:
    """The nodes of kinds whose constants, in the order of the nodes, are more than a block for each."""
    order = np.argsort(kind, kind="stable")
    is_change = (np.diff(kind[order]) == 0) & (np.diff(constant[order]) != 0)
    count = int(kind.max(initial=0)) + 1
    changes = np.bincount(kind[order[1:]][is_change], minlength=count)
    size = int(constant.max(initial=0)) + 1
    constants = np.bincount(np.unique(kind * size + constant) // size, minlength=count)
    found: npt.NDArray[np.bool_] = ((constants > 1) & (changes >= constants))[kind]
    return found


def _alike(graph: Graph) -> Ints:
    """A number for each node, the same for those that are alike."""
    size = len(graph)
    number = [0] * size
    known: list[dict[int, int]] = [{} for _ in range(ops.count())]
    count = last_leaf = int(Op.TARGET)
    for n, (o, x, y) in enumerate(zip(graph.op, graph.a, graph.b, strict=True)):
        if o <= last_leaf:
            number[n] = o
            continue
        key = number[x] * (size + last_leaf + 2) + (number[y] + 1 if y >= 0 else 0)
        found = known[o].get(key)
        if found is None:
            count += 1
            found = known[o][key] = count
        number[n] = found
    return np.array(number, dtype=np.int64)
