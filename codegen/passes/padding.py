"""Constants around values -> an array that has both: padding, as of a convolution that keeps the size of an image.

Example input: three weights on four numbers with a zero on either side; products in the order of the sums

    w0 * 0.0   w0 * x0   w0 * x1   w0 * x2
    w1 * x0    w1 * x1   w1 * x2   w1 * x3
    w2 * x1    w2 * x2   w2 * x3   w2 * 0.0

becomes the array  0.0 x0 x1 x2 x3 0.0  of copies, and

    w0 * array[0]   w0 * array[1]   w0 * array[2]   w0 * array[3]
    w1 * array[1]   w1 * array[2]   w1 * array[3]   w1 * array[4]
    w2 * array[2]   w2 * array[3]   w2 * array[4]   w2 * array[5]

Without it, sums at a border would differ from those inside, and so would all that reads them: a loop for each side and
each corner. The gradients of weights are sums of the same products, and read the array too. No bit changes. The border
may also be elements again, as the nearest ones or those of the other side, and elements may be repeated inside, as in
an image that was made larger: see windows.py.

All values come before all products: the states of a recurrence are no array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op, Padded
from codegen.passes.windows import FEWEST_USES, find_windows
from codegen.program import Program

Ints = npt.NDArray[np.int64]


def store_padding(graph: Graph, program: Program, forward: int) -> Graph:
    """The graph itself if it has no padding. `forward`: how many nodes come before the adjoints."""
    products = _products(graph, forward)
    arrays: list[_Array] = []
    for tensor in program.tensors if products else ():
        uses = [products.get(number) for number in tensor.numbers]
        lengths = {len(found) if found is not None else 0 for found in uses}
        if len(lengths) == 1 and lengths != {0}:
            found = _array_of(graph, np.array(tensor.numbers), np.array(uses))
            if found is not None:
                arrays.append(found)
    return _with_arrays(graph, arrays) if arrays else graph


def _products(graph: Graph, forward: int) -> dict[int, Ints]:
    """The forward products of each parameter that has a few with something else."""
    op, a, b = graph.columns()
    nodes = np.flatnonzero(op[:forward] == Op.MUL)
    left, right = op[a[nodes]] == Op.PARAM, op[b[nodes]] == Op.PARAM
    nodes, left = nodes[left != right], left[left != right]
    parameter = a[np.where(left, a[nodes], b[nodes])]
    has_few = np.bincount(parameter)[parameter] >= FEWEST_USES if len(nodes) else np.zeros(0, bool)
    if not has_few.any():
        return {}
    live = np.frombuffer(graph.reachable(*graph.roots()), dtype=bool)[nodes]
    nodes, parameter = nodes[has_few & live], parameter[has_few & live]
    order = np.argsort(parameter, kind="stable")
    numbers, starts = np.unique(parameter[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(nodes[order].astype(np.int64), starts[1:]), strict=True))


@dataclass(frozen=True)
class _Array:
    """What some nodes read, and where that is in an array."""

    readers: list[tuple[Ints, npt.NDArray[np.bool_]]]  # products, and whether it is the first operand
    read: Ints
    places: Ints


def _array_of(graph: Graph, numbers: Ints, products: Ints) -> _Array | None:
    op, a, b = graph.columns()
    is_first = op[a[products]] != Op.PARAM
    read = np.where(is_first, a[products], b[products]).astype(np.int64)
    is_value = op[read] != Op.CONST
    if not is_value.any() or read[is_value].max() > products.min():
        return None
    places = find_windows(np.where(is_value, read, -1 - a[read]))
    if places is None:
        return None
    source = np.where(is_value, read, _earliest(graph)[np.where(is_value, 0, a[read])])
    of_place = np.zeros(int(places.max()) + 1, np.int64)
    of_place[places] = source
    if (of_place[places] != source).any():
        return None  # two nodes in the same place
    readers = [(products, is_first)]
    if graph.gradients:
        terms = _terms(graph, numbers, products.shape[1])
        if terms is None or (op[terms] != Op.MUL).any() or ((a[terms] == read) == (b[terms] == read)).any():
            return None
        readers.append((terms, a[terms] == read))
    return _Array(readers, source, places)


def _earliest(graph: Graph) -> Ints:
    """The first node of each constant: each use has a node of its own."""
    op, number, _ = graph.columns()
    nodes = np.flatnonzero(op == Op.CONST)
    found = np.full(len(graph.constants), len(graph), np.int64)
    np.minimum.at(found, number[nodes], nodes)
    return found


def _terms(graph: Graph, numbers: Ints, uses: int) -> Ints | None:
    """The last terms of these parameters' gradients, one for each use, the last use first; None if they are fewer."""
    op, a, b = graph.columns()
    if not all(int(number) in graph.gradients for number in numbers):
        return None
    node = np.array([graph.gradients[int(number)] for number in numbers])
    terms = np.zeros((len(numbers), uses), np.int64)
    for use in range(uses):
        if (op[node] != Op.ADD).any():
            return None
        terms[:, use] = b[node]
        node = a[node]
    return terms


def _with_arrays(graph: Graph, arrays: list[_Array]) -> Graph:
    """A new graph with a copy behind each node that is read, and arrays of these copies."""
    op, a, b = graph.columns()
    copied = [np.unique(array.places, return_index=True) for array in arrays]
    source = np.concatenate([array.read.ravel()[first] for array, (_, first) in zip(arrays, copied, strict=True)])
    order = np.argsort(source, kind="stable")
    after = source[order]
    old = np.arange(len(graph))
    new = old + np.searchsorted(after, old)
    copy = np.zeros(len(source), np.int64)
    copy[order] = new[after] + 1 + np.arange(len(after)) - np.searchsorted(after, after)
    out = Graph(constants=graph.constants[:], _constant_numbers=dict(graph._constant_numbers))
    size = len(graph) + len(source)
    ops, left, right = np.full(size, Op.DETACH, np.uint8), np.zeros(size, np.intc), np.full(size, -1, np.intc)
    inner, binary = op > Op.TARGET, b >= 0
    ops[new] = op
    left[new] = np.where(inner, new[a], a)
    right[new[binary]] = new[b[binary]]
    left[copy] = new[source]
    out.observe(graph, new.tolist())
    start = 0
    for array, (places, _) in zip(arrays, copied, strict=True):
        nodes = copy[start : start + len(places)]
        start += len(places)
        out.padded.append(Padded(nodes.tolist(), places.tolist()))
        element = nodes[np.searchsorted(places, array.places)]
        for readers, is_first in array.readers:
            left[new[readers[is_first]]] = element[is_first]
            right[new[readers[~is_first]]] = element[~is_first]
    out.op = bytearray(ops.tobytes())
    out.a.frombytes(left.tobytes())
    out.b.frombytes(right.tobytes())
    return out
