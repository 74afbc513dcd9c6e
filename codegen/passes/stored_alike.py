"""Numbers that one node reads, where others of their layer are read more often -> stored as these are.

Example input: cells of a recurrence over an image whose last step needs those in the middle alone

    %10 = add %6 %7    %12 = tanh %10    %20 = mul %19 %10
    %11 = add %8 %9    %13 = tanh %11

becomes the same graph with %11 in `Graph.stored`. Else %13 would be tanh(add(R, R)), and %12 tanh(R) of a number that
is stored: two groups, and so would be all that reads them, and what those read in the steps before. No bit changes.

Nodes are of one layer if they are as many steps from leaves, a sum of many terms one step, and computed by the same
ops, to a depth of DEPTH; and if the same op reads them as the same operand.
"""

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op

DEPTH = 2
MOST = 4  # times as many as are read more often: fewer lines are not worth any number of stores
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so no two numbers become one by it


def store_alike(graph: Graph) -> None:
    """Adds to `graph.stored`."""
    op, a, b = graph.columns()
    operation, binary = op > Op.TARGET, b >= 0
    once = graph.used_once()
    inner = graph.inner_terms(once)
    left, number, zero = np.where(operation, a, 0), op.astype(np.uint64), np.uint64(0)
    colour = number
    for _ in range(DEPTH):
        colour = number + MIX * (np.where(operation, colour[left], zero) + MIX * np.where(binary, colour[b], zero))
    read = np.concatenate([a[operation], b[binary]])
    user = np.concatenate([number[operation], ~number[binary]])
    is_own = (operation & ~inner)[read]
    read, place = read[is_own], (colour[read] + MIX * user)[is_own]
    place = np.where(np.isin(place, place[~once[read]]), place, zero)
    if not (place != 0)[once[read]].any():
        return
    _, place = np.unique(place + MIX * _steps(graph, inner)[read], return_inverse=True)
    stored = np.unique(place[~once[read]] * len(graph) + read[~once[read]]) // len(graph)
    many, few = np.bincount(stored, minlength=len(place)), np.bincount(place[once[read]], minlength=len(place))
    found = once[read] & ((few <= MOST * many) & (many > 0))[place]
    graph.stored.update(read[found].tolist())


def _steps(graph: Graph, inner: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """How many each node is from leaves."""
    found = [0] * len(graph)
    is_inner = inner.tolist()
    for n, (op, a, b) in enumerate(zip(graph.op, graph.a, graph.b, strict=True)):
        if op > Op.TARGET:
            found[n] = max(found[a] + (not is_inner[a]), found[b] + 1 if b >= 0 else 0)
    return np.array(found, np.uint64)
