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

All values of an array come before all products that read it: each state of a recurrence is an array of its own.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op, Padded, with_copies
from codegen.passes.windows import FEWEST_USES, Ints, find_windows
from codegen.program import Program

MAX_EMPTY = 4  # times as many uses in all, if each weight of a tensor had as many as the one with most


def store_padding(graph: Graph, program: Program, forward: int) -> Graph:
    """The graph itself if it has no padding. `forward`: how many nodes come before the adjoints."""
    products = _products(graph, forward)
    arrays: list[_Array] = []
    for tensor in program.tensors:
        uses = [products[number] for number in tensor.numbers if number in products]
        if len(uses) == len(tensor.numbers):
            arrays += _arrays_of(graph, np.array(tensor.numbers), uses)
    return _with_arrays(graph, arrays) if arrays else graph


def _products(graph: Graph, forward: int) -> dict[int, Ints]:
    """The forward products with something else of each parameter that has enough for windows."""
    op, a, b = graph.columns()
    nodes = np.flatnonzero(op[:forward] == Op.MUL)
    left, right = op[a[nodes]] == Op.PARAM, op[b[nodes]] == Op.PARAM
    nodes, left = nodes[left != right], left[left != right]
    parameter = a[np.where(left, a[nodes], b[nodes])]
    is_used_often = np.bincount(parameter)[parameter] >= FEWEST_USES
    if not is_used_often.any():
        return {}
    live = np.frombuffer(graph.reachable(*graph.roots()), dtype=bool)[nodes]
    nodes, parameter = nodes[is_used_often & live], parameter[is_used_often & live]
    order = np.argsort(parameter, kind="stable")
    numbers, starts = np.unique(parameter[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(nodes[order].astype(np.int64), starts[1:]), strict=True))


@dataclass(frozen=True)
class _Array:
    """What some nodes read, and where that is in an array."""

    readers: list[tuple[Ints, npt.NDArray[np.bool_]]]  # products, and whether it is the first operand
    source: Ints
    places: Ints


def _arrays_of(graph: Graph, numbers: Ints, uses: list[Ints]) -> Iterator[_Array]:
    """What the weights of a tensor are multiplied with. A weight with fewer uses than others has the later ones."""
    op, a, b = graph.columns()
    most = max(map(len, uses))
    if most * len(uses) > MAX_EMPTY * sum(map(len, uses)):
        return
    products = np.array([np.pad(some, (most - len(some), 0), constant_values=-1) for some in uses])
    is_first = op[a[products]] != Op.PARAM
    read = np.where(is_first, a[products], b[products]).astype(np.int64)
    is_value = (products >= 0) & (op[read] != Op.CONST)
    found: list[tuple[tuple[Ints, Ints], Ints]] = []
    cuts = {most - len(some) for some in uses}
    for start, end in _states(np.where(is_value, read, -1), np.where(products >= 0, products, len(op)), cuts):
        rows = np.flatnonzero(is_value[:, start:end].any(axis=1))
        here = rows[:, None], np.arange(start, end)
        nodes = read[here]
        places = find_windows(np.where(is_value[here], nodes, -1 - a[nodes])) if (products[here] >= 0).all() else None
        found += [(here, places)] if places is not None else []
    terms = _terms(graph, numbers, products >= 0) if found and graph.gradients else products
    earliest = _earliest(graph) if found else products
    for here, places in found:
        nodes, term, kept = read[here], terms[here], is_value[here]
        source = nodes.copy()
        source[~kept] = earliest[a[nodes[~kept]]]
        of_place = np.zeros(int(places.max()) + 1, np.int64)
        of_place[places] = source
        if (of_place[places] != source).any():
            continue  # two nodes in the same place
        readers = [(products[here], is_first[here])]
        if graph.gradients:
            if (op[term] != Op.MUL).any() or ((a[term] == nodes) == (b[term] == nodes)).any():
                continue
            readers.append((term, a[term] == nodes))
        yield _Array(readers, source, places)


def _states(read: Ints, products: Ints, cuts: Container[int]) -> Iterator[tuple[int, int]]:
    """Where uses start and end whose products all come after all values that they read: steps of a recurrence.

    `read` is -1 where that is no value, as in the first step of one that starts with zeros. `cuts`: where some weights
    are used first, as those of a gate that the first step lacks.
    """
    newest, oldest = read.max(axis=0).tolist(), products.min(axis=0).tolist()
    start, last, first = 0, -1, oldest[0]  # the last value that is read since then, and the first product
    for end in range(len(newest) + 1):
        if end == len(newest) or newest[end] > first or end in cuts:
            if 0 <= last < first and end - start >= FEWEST_USES:
                yield start, end
            if end == len(newest):
                return
            start, last, first = end, -1, oldest[end]
        last, first = max(last, newest[end]), min(first, oldest[end])


def _earliest(graph: Graph) -> Ints:
    """The first node of each constant: each use has a node of its own."""
    op, number, _ = graph.columns()
    nodes = np.flatnonzero(op == Op.CONST)
    found = np.full(len(graph.constants), len(graph), np.int64)
    np.minimum.at(found, number[nodes], nodes)
    return found


def _terms(graph: Graph, numbers: Ints, is_used: npt.NDArray[np.bool_]) -> Ints:
    """The last terms of these parameters' gradients, one for each use, the last use first; 0 where they are fewer."""
    op, a, b = graph.columns()
    node = np.array([graph.gradients.get(int(number), 0) for number in numbers], np.int64)
    terms = np.zeros(is_used.shape, np.int64)
    for use in range(is_used.shape[1]):
        rows = np.flatnonzero(is_used[:, use] & (op[node] == Op.ADD))
        terms[rows, use], node[rows] = b[node[rows]], a[node[rows]]
    return terms


def _with_arrays(graph: Graph, arrays: list[_Array]) -> Graph:
    """A new graph with a copy behind each node that is read, and arrays of these copies, none of them twice."""
    contents: dict[tuple[bytes, bytes], tuple[Ints, Ints]] = {}
    keys: list[tuple[bytes, bytes]] = []
    for read in arrays:
        found, first = np.unique(read.places, return_index=True)
        sources = read.source.ravel()[first]
        keys.append((found.tobytes(), sources.tobytes()))
        contents[keys[-1]] = found, sources
    out, new, copies = with_copies(graph, np.concatenate([sources for _, sources in contents.values()]))
    _, a, b = out.columns()
    ends = np.cumsum([len(sources) for _, sources in contents.values()])
    parts = dict(zip(contents, np.split(copies, ends[:-1]), strict=True))
    out.padded += [Padded(parts[key].tolist(), found.tolist()) for key, (found, _) in contents.items()]
    for read, key in zip(arrays, keys, strict=True):
        element = parts[key][np.searchsorted(contents[key][0], read.places)]
        for readers, is_first in read.readers:
            a[new[readers[is_first]]] = element[is_first]
            b[new[readers[~is_first]]] = element[~is_first]
    return out
