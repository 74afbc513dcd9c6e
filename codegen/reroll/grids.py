"""Families whose groups lie between one another -> grids: one array in the order of the values, whatever their groups.

Example input: a convolution over 10 x 10 pixels, which leaves out what would be beyond the border, is three groups

    group 0: 4 roots, sum(4 x mul(P, X))    group 1: 32 roots, sum(6 x mul(P, X))    group 2: 64 roots, sum(9 x ...)

since a corner has 4 neighbours, a side 6 and the others 9. It becomes the grid (0, 1, 2): pixel r, s is
value[base + 10r + s], whichever group computes it. So what reads pixels has one index formula; else it would look up a
table, or be a group for each side and each corner.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codegen.ir.graph import Graph, Op
from codegen.ir.loops import Pass
from codegen.reroll.families import Part
from codegen.reroll.groups import Group, Ints

MIN_LANES = 4
LINE = 8  # numbers that are loaded together
MOST_EMPTY = 1.25  # times as many places as roots
MAX_LEAVES = 16  # of what reads values together with their gradients


@dataclass(frozen=True, eq=False)
class Grid:
    """Roots of several groups, in the order in which they are stored, and where: from 0 on, with few places empty."""

    roots: Ints
    at: Ints

    @property
    def size(self) -> int:
        """How many numbers are stored."""
        return int(self.at[-1]) + 1

    def places(self, roots: Ints) -> Ints:
        """Where roots are, from the grid's start on."""
        order, sorted_ = self._sorted
        found: Ints = self.at[order[np.searchsorted(sorted_, roots)]]
        return found

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.roots)
        return order, self.roots[order]


def find_grid(family: list[Part], readers: list[Group], graph: Graph, index: Ints) -> Grid | None:
    """The grid of a family; None if it is stored like that already.

    Gradients are as far from one another as the values whose gradients they are, if most of these have one.

    index   where each node is stored
    """
    roots = np.concatenate([part.group.roots for part in family])
    if len(roots) < MIN_LANES * len(family):
        return None
    owner = np.repeat(np.arange(len(family)), [len(part.group.roots) for part in family])
    order = np.argsort(roots)
    if family[0].group.passes == Pass.GRADIENTS:
        like = (
            _stored_like(roots[order], values) for values in _values_of(family, roots[order], readers, graph, index)
        )
        found = next((grid for grid in like if grid.size <= MOST_EMPTY * len(roots)), None)
    else:
        orders = order, order[_lanes_last(owner[order])]
        found = min([_dense(roots[some]) for some in orders], key=lambda grid: _loads(family, grid, graph, index))
    return None if found is None or (index[found.roots] - index[found.roots[0]] == found.at).all() else found


def _dense(roots: Ints) -> Grid:
    return Grid(roots, np.arange(len(roots)))


def _stored_like(roots: Ints, values: Ints) -> Grid:
    """The roots as far from one another as their values are."""
    order = np.argsort(values)
    distances = values[order] - values.min()
    return Grid(roots[order], distances // np.gcd.reduce(distances))


def _lanes_last(owner: Ints) -> Ints:
    """An order with the axis innermost along which no group ends, as the channels of a convolution.

    owner   the group of each root, in the order of the nodes
    """
    size = len(owner)
    for count in range(size // 2, MIN_LANES - 1, -1):
        for inner in range(1, size // count + 1) if size % count == 0 else ():
            if size % (count * inner) == 0:
                axes = owner.reshape(-1, count, inner)
                if (axes == axes[:, :1]).all():
                    return np.moveaxis(np.arange(size).reshape(axes.shape), 1, -1).ravel()
    return np.arange(size)


def _loads(family: list[Part], grid: Grid, graph: Graph, index: Ints) -> int:
    """How many lines the groups load if neighbours in a grid are lanes. Tensors will be placed so that they are few."""
    loads = 0
    for part in family:
        places = grid.places(part.group.roots)
        order = np.argsort(places)
        leaves = part.group.leaves[order]
        is_far = ~np.isin(np.diff(index[leaves], axis=0), (0, 1)) & (graph.columns()[0][leaves[1:]] != Op.PARAM)
        is_far |= (np.diff(places[order]) != 1)[:, None]
        for column in is_far.T:
            lanes = np.diff(np.flatnonzero(np.concatenate([[True], column, [True]])))
            loads += int((-(-lanes // LINE)).sum())
    return loads


def _values_of(family: list[Part], roots: Ints, readers: list[Group], graph: Graph, index: Ints) -> Iterator[Ints]:
    """Where the values may be whose gradients the roots are, in their order: those that they read, or are read with.

    As in mul(step(R), R), the gradient of a relu: the one R is the value, and the other one the gradient behind it.
    """
    found = np.full(len(roots), -1)
    for part in family:
        own = next(_own_values(part.group.leaves, graph, index), None)
        if own is None:
            break
        found[np.searchsorted(roots, part.group.roots)] = own
    else:
        if len(np.unique(found)) == len(roots):
            yield found
    is_root = np.zeros(len(index), dtype=bool)
    is_root[roots] = True
    for group in readers:
        for column in group.leaves.T if group.leaves.shape[1] <= MAX_LEAVES else ():
            rows = np.flatnonzero(is_root[column])
            if len(rows) == len(roots):
                rows = rows[np.argsort(column[rows])]
                if (column[rows] == roots).all():
                    yield from _own_values(group.leaves[rows], graph, index)


def _own_values(leaves: Ints, graph: Graph, index: Ints) -> Iterator[Ints]:
    """Where the values are that instances of a group read, each one of its own and no gradient."""
    for column in leaves.T if leaves.shape[1] <= MAX_LEAVES else ():
        is_value = (column <= graph.loss) & ~np.isin(graph.columns()[0][column], (Op.PARAM, Op.GRAD, Op.CONST))
        if is_value.all() and len(np.unique(index[column])) == len(column):
            yield index[column]
