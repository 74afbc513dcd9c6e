"""Constants that are a table: what is alike but for them stays alike.

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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op
from micrograd import ops

Ints = npt.NDArray[np.int64]


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
