"""Constants that are a table: what is alike but for them stays alike.

Example input: two rows of a rotation by the angles 0 and 1, cosines times x and sines times y,

    %8 = mul %0 %4      (x0 * 1.0)           %10 = mul %2 %6     (x1 * 0.54)
    %9 = mul %1 %5      (y0 * 0.0)           %11 = mul %3 %7     (y1 * 0.84)

becomes marks: %8 may not be replaced by x0, although x * 1 is x. The rows would not be one loop any more, nor would what
reads them. In the same way a matrix of zeros and ones, as of a graph or of a mask, stays a matrix: products that are the
same by accident, with equal constants, are not merged.

Nodes are alike if they are the same op on operands that are alike; all constants are, all parameters, and so on. If
nothing is a table, nothing is marked: a gradient times 1.0, the same for all, disappears.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op
from micrograd import ops

MIN_NODES = 4  # that are alike; fewer are no loop


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
    constant, other = a[np.where(is_left, a[nodes], b[nodes])], np.where(is_left, b[nodes], a[nodes])
    if len(nodes) < MIN_NODES or (constant == constant[0]).all():
        return None
    _, alike = np.unique(_alike(graph)[nodes], return_inverse=True)
    pairs = np.stack([alike, constant, other], axis=1)
    constants = np.bincount(np.unique(pairs[:, :2], axis=0)[:, 0])  # how many different ones
    order = np.argsort(alike, kind="stable")
    is_change = (np.diff(alike[order]) == 0) & (np.diff(constant[order]) != 0)
    changes = np.bincount(alike[order][1:][is_change], minlength=len(constants))
    is_table = (constants > 1) & (changes >= constants)
    kinds, times = np.unique(pairs, axis=0, return_counts=True)
    least, most = np.full(len(is_table), len(nodes)), np.zeros(len(is_table), dtype=np.int64)
    np.minimum.at(least, kinds[:, 0], times)
    np.maximum.at(most, kinds[:, 0], times)
    whole, apart = np.zeros(len(graph), dtype=bool), np.zeros(len(graph), dtype=bool)
    whole[nodes] = is_table[alike]
    apart[nodes] = (is_table & (least != most))[alike]
    return Tables(whole.tobytes(), apart.tobytes())


def _alike(graph: Graph) -> npt.NDArray[np.int64]:
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
