"""Where every value lives: storage is assigned until no families and no grids of groups are found any more.

What reads a family may be one group then, and a family with others; so there are rounds, each of which assigns
everything anew. Grids come last, for what families leave in too many groups.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from codegen.ir.graph import Graph, Op
from codegen.ir.loops import Pass
from codegen.kinds import Part
from codegen.program import Program
from codegen.reroll.families import Part as Member
from codegen.reroll.families import find_families, read_together
from codegen.reroll.grids import Grid, find_grid
from codegen.reroll.groups import Group
from codegen.reroll.layout import GroupLayout, Layout, assign
from codegen.reroll.lower import lower
from codegen.reroll.trees import Shapes

MAX_ROUNDS = 6


def assign_storage(
    graph: Graph,
    shapes: Shapes,
    groups: list[Group],
    program: Program,
    cache_line: int,
    by_index: Collection[Part] = (),
) -> Layout:
    """Splits and orders the groups' instances, and assigns storage to every tensor and root.

    The inputs of the parts `by_index` are in token[]: their indices begin at FIRST_TOKEN, behind those of value[].
    """
    assigned = partial(assign, graph, shapes, groups, program, cache_line, by_index)
    layout = assigned([], [])
    readers = layout.readers
    families: list[list[Member]] = []
    for _ in range(MAX_ROUNDS):
        found = find_families(len(graph), readers, _members(shapes, layout.groups))
        if _keys(found) == _keys(families):
            break
        better = assigned(found, [])
        if len(better.groups) > len(layout.groups):
            break
        layout, families = better, found
    if sum(len({part.group.place for part in family}) > 1 for family in families) > 1:
        return layout  # a stack of layers, an equal distance apart, so that loops go over them: grids would move some
    grids: list[Grid] = []
    for of_gradients in (False, True):  # which are stored as the values are
        # One round may need more nests, until what reads its grids is a grid too: all rounds together must need fewer.
        with_grids, found_grids = layout, grids
        for _ in range(MAX_ROUNDS):
            new = _new_grids(graph, shapes, with_grids, readers, of_gradients)
            better = assigned(families, found_grids + new) if new else with_grids
            if len(better.groups) >= len(with_grids.groups):
                break
            with_grids, found_grids = better, found_grids + new
        if found_grids != grids and _all_nests(graph, with_grids) < _all_nests(graph, layout):
            layout, grids = with_grids, found_grids
    return layout


def _keys(families: list[list[Member]]) -> list[list[tuple[int, int]]]:
    return [[part.key for part in family] for family in families]


def _members(shapes: Shapes, groups: list[GroupLayout]) -> list[Member]:
    return [Member(stored.group, stored.size, _kind(shapes, stored)) for stored in groups]


def _new_grids(graph: Graph, shapes: Shapes, layout: Layout, readers: list[Group], of_gradients: bool) -> list[Grid]:
    """Those of families outside of grids, whose groups need no more loop nests for it."""
    stored = {int(part.group.roots[0]): part for part in layout.groups}
    free = [part for part in layout.groups if part.grid is None and part.box is None and not part.group.is_gradient]
    free = [part for part in free if (part.group.passes == Pass.GRADIENTS) == of_gradients]
    found: list[Grid] = []
    for family in read_together(len(graph), readers, _members(shapes, free)):
        grid = find_grid(family, readers, graph, layout.index) if len(family) > 1 else None
        members = [stored[int(part.group.roots[0])] for part in family]
        if grid and all(_nests(graph, layout, part, grid) <= _nests(graph, layout, part) for part in members):
            found.append(grid)
    return found


def _all_nests(graph: Graph, layout: Layout) -> int:
    return sum(_nests(graph, layout, part, part.grid) for part in layout.groups)


def _nests(graph: Graph, layout: Layout, stored: GroupLayout, grid: Grid | None = None) -> int:
    """How many loop nests and tables compute a group."""
    nests = lower(graph, layout, replace(stored, grid=grid))
    return sum(1 + sum(loop.rows is not None for loop in nest.loops) for nest in nests)


def _kind(shapes: Shapes, stored: GroupLayout) -> tuple[tuple[int, ...], int]:
    """The shape of a group's terms, and the unary ops on top of them, whatever the number of terms."""
    term = stored.runs[-1].shape
    while not shapes.is_leaf(term) and shapes.terms(term) is None and shapes[term][0] in (Op.ADD, Op.MAX):
        left, right = shapes.operands(term)
        if left != right:
            break
        term = left
    return tuple(stored.post), term
