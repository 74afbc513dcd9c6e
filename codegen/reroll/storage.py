"""Where every value lives: storage is assigned until no families and no grids of groups are found any more.

What reads a family may be one group then, and a family with others; so there are rounds, each of which assigns
everything anew, with zeros around the arrays where boxes of the round before would read them. Grids come last, for what
families leave in too many groups: of some steps, and then of all. Of several ways to store everything the one counts
whose loop nests are few and load few vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from codegen.ir.graph import Graph, Op
from codegen.ir.loops import Pass
from codegen.kinds import Part
from codegen.program import Program
from codegen.reroll.affine import Loop
from codegen.reroll.arrange import Margin
from codegen.reroll.families import Part as Member
from codegen.reroll.families import find_families, read_together
from codegen.reroll.grids import LINE, Grid, find_grid
from codegen.reroll.groups import Group, Ints, Key
from codegen.reroll.layout import Assignment, GroupLayout, Layout, Plan, margin_of
from codegen.reroll.lower import RESULT, Nest, lower
from codegen.reroll.trees import Shapes

Margins = dict[Key, Margin]
Assigned = Callable[[Plan], Layout]

MAX_ROUNDS = 6
HALF = LINE // 2
MORE_LOADS = 1.2  # as many as without grids, for fewer loop nests
MORE_LOADS_FOR_HALF = 1.4  # for half as many loop nests or fewer
MORE_LOADS_FOR_MARGINS = 1.5  # than without: what would look up tables, which are not counted, is rows of lanes
MORE_GROUPS = 1.1  # as many as in the order of what they read, for fewer loads


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

    def assigned(plan: Plan) -> Layout:
        return Assignment(graph, shapes, groups, program, cache_line, by_index, plan).assign()

    layout = _assign_with_rows(graph, shapes, assigned, in_tables=True)
    if not layout.has_tables:
        return layout
    other = _assign_with_rows(graph, shapes, assigned, in_tables=False)
    return layout if _is_better(_cost(graph, layout), _cost(graph, other)) else other


def _assign_with_rows(graph: Graph, shapes: Shapes, assigned: Assigned, in_tables: bool) -> Layout:
    """In that order of rows of lanes in which loads are fewer."""
    plan, layout = _assign_with_margins(graph, shapes, assigned, Plan([], [], {}, False, in_tables))
    if not layout.has_choice:
        return layout
    start = Plan(plan.families, [], {}, True, in_tables)
    _, other = _assign_with_margins(graph, shapes, assigned, start)
    are_few = len(other.groups) <= MORE_GROUPS * len(layout.groups)
    return other if are_few and _cost(graph, other).loads < _cost(graph, layout).loads else layout


def _assign_with_margins(graph: Graph, shapes: Shapes, assigned: Assigned, start: Plan) -> tuple[Plan, Layout]:
    """With zeros around what boxes read, if that pays. The search for families begins with those of `start`."""
    first = assigned(start)
    plan, layout = _Search(graph, shapes, assigned, has_margins=False).layout(start, first)
    if layout.wanted:
        other_plan, other = _Search(graph, shapes, assigned, has_margins=True).layout(start, first)
        if _is_better(_cost(graph, other), _cost(graph, layout), MORE_LOADS_FOR_MARGINS):
            return other_plan, other
    return plan, layout


@dataclass(frozen=True)
class _Search:
    """Looks for families and margins, then for grids."""

    graph: Graph
    shapes: Shapes
    assigned: Assigned
    has_margins: bool

    def layout(self, start: Plan, first: Layout) -> tuple[Plan, Layout]:
        """The storage with what is found. `first`: that of the start."""
        plan, layout = self.with_families(start, first)
        # A stack of layers is stored an equal distance apart, so that loops go over them: grids would move it.
        is_stack = sum(map(_is_across_layers, plan.families)) > 1
        for of_gradients in () if is_stack else (False, True):  # which are stored as the values are
            plan, layout = self.with_grids(plan, layout, first.readers, of_gradients)
        return plan, layout

    def with_families(self, plan: Plan, first: Layout) -> tuple[Plan, Layout]:
        layout = first
        for _ in range(MAX_ROUNDS):
            margins = self.margins(layout)
            outside = [stored for stored in layout.groups if stored.grid is None]  # of arrays with padding
            members = _members(self.shapes, outside, _sizes(layout, margins))
            families = find_families(len(self.graph), first.readers, members)
            if (_keys(families), margins) == (_keys(plan.families), plan.margins):
                break
            better_plan = replace(plan, families=families, grids=[], margins=margins)
            better = self.assigned(better_plan)
            if len(better.groups) > len(layout.groups):
                break
            plan, layout = better_plan, better
        return plan, layout

    def with_grids(self, plan: Plan, layout: Layout, readers: list[Group], of_gradients: bool) -> tuple[Plan, Layout]:
        """One round may need more nests, until what reads its grids is a grid too: all together must need fewer."""
        before = plan, layout
        rounds: list[tuple[Cost, int, Plan, Layout]] = []
        while len(rounds) < MAX_ROUNDS:
            new = _new_grids(self.graph, self.shapes, layout, readers, of_gradients)
            margins = self.margins(layout)
            if not new and margins == plan.margins:
                break
            plan = replace(plan, grids=plan.grids + new, margins=margins)
            layout = self.assigned(plan)
            rounds.append((_cost(self.graph, layout), len(rounds), plan, layout))
        cost = _cost(self.graph, before[1]) if rounds else Cost(0, 0)
        good = [found for found in rounds if _is_better(found[0], cost)]
        return min(good)[2:] if good else before

    def margins(self, layout: Layout) -> Margins:
        return layout.wanted if self.has_margins else {}


def _is_across_layers(family: list[Member]) -> bool:
    """Whether it has the same part of several layers, and not of steps."""
    places = {part.group.place for part in family if part.group.step < 0}
    return len(places) > 1 and len({part.size for part in family}) == 1


def _sizes(layout: Layout, margins: Margins) -> dict[Key, int]:
    """How many elements each part takes with margins."""
    line = layout.cache_line
    return {part.group.key: part.size + sum(margin_of(part.group, margins, line)) for part in layout.groups}


def _is_better(found: Cost, before: Cost, most: float = 0.0) -> bool:
    """Whether loop nests are fewer, and loads not many more: at most so many times, if that is given."""
    most = most or (MORE_LOADS if found.nests > before.nests // 2 else MORE_LOADS_FOR_HALF)
    return found.nests < before.nests and found.loads <= most * before.loads


def _keys(families: list[list[Member]]) -> list[list[tuple[int, int]]]:
    return [[part.key for part in family] for family in families]


def _members(shapes: Shapes, groups: list[GroupLayout], sizes: dict[Key, int]) -> list[Member]:
    return [Member(part.group, sizes[part.group.key], _kind(shapes, part)) for part in groups]


def _new_grids(graph: Graph, shapes: Shapes, layout: Layout, readers: list[Group], of_gradients: bool) -> list[Grid]:
    """Those of families outside of grids, whose groups need no more loop nests for it."""
    stored = {int(part.group.roots[0]): part for part in layout.groups}
    free = [part for part in layout.groups if part.grid is None and part.box is None and not any(part.margin)]
    free = [part for part in free if not part.group.is_gradient]
    free = [part for part in free if (part.group.passes == Pass.GRADIENTS) == of_gradients]
    members = _members(shapes, free, _sizes(layout, {}))
    shape_of = np.zeros(len(graph), dtype=np.int64)
    found, rest = [], []
    for family in read_together(len(graph), readers, members):
        grid = find_grid(family, readers, graph, layout.index) if len(family) > 1 else None
        parts = [stored[int(part.group.roots[0])] for part in family]
        for part in parts:
            shape_of[part.group.roots] = part.group.shape
        if grid and all(_nests(graph, layout, part, grid) <= _nests(graph, layout, part) for part in parts):
            found.append(grid)
        else:
            rest.append(family)
    return found + _of_later_steps(found, rest, shape_of)


def _of_later_steps(found: list[Grid], families: list[list[Member]], shape_of: Ints) -> list[Grid]:
    """Grids like those found, of families of the same shapes: they read earlier steps, which are no grids yet."""
    known = {}
    for grid in found:
        roots = np.sort(grid.roots)
        known[shape_of[roots].tobytes()] = np.searchsorted(roots, grid.roots), grid.at
    later = []
    for family in families:
        roots = np.sort(np.concatenate([part.group.roots for part in family]))
        if (pattern := shape_of[roots].tobytes()) in known:
            order, at = known[pattern]
            later.append(Grid(roots[order], at))
    return later


class Cost(NamedTuple):
    nests: int
    loads: int


def _cost(graph: Graph, layout: Layout) -> Cost:
    single = [part for part in layout.groups if len(part.group.roots) == 1]  # as most are of an irregular graph
    nests = [nest for part in layout.groups if len(part.group.roots) > 1 for nest in lower(graph, layout, part)]
    loads = sum(map(_loads, nests)) + sum(part.group.leaves.size + 1 for part in single)
    return Cost(sum(map(_beginnings, nests)) + len(single), loads)


def _loads(nest: Nest) -> int:
    """How many vectors are loaded and stored: lanes that fill half a vector as one, other lanes one by one."""
    inner = nest.loops[-1] if nest.loops and nest.loops[-1].strides[RESULT] == 1 else Loop(1, np.zeros_like(nest.first))
    vectors = inner.count // LINE + inner.count % LINE // HALF + inner.count % HALF
    columns = {0: 1, 1: vectors}
    read = sum(
        len(terms.offsets) * columns.get(int(inner.strides[column]), inner.count)
        for part in nest.terms
        for terms in part
        for column in terms.columns
    )
    return math.prod(loop.count for loop in nest.loops) // inner.count * (read + vectors)


def _beginnings(nest: Nest) -> int:
    """The nest, and its tables."""
    return 1 + sum(loop.rows is not None for loop in nest.loops)


def _nests(graph: Graph, layout: Layout, stored: GroupLayout, grid: Grid | None = None) -> int:
    """How many loop nests and tables compute a group."""
    return sum(map(_beginnings, lower(graph, layout, replace(stored, grid=grid))))


def _kind(shapes: Shapes, stored: GroupLayout) -> tuple[tuple[int, ...], int, int]:
    """The shape of a group's terms, the unary ops on top of them, and the kind of sum, whatever the number of terms."""
    term = stored.runs[-1].shape
    while not shapes.is_leaf(term) and shapes.terms(term) is None and shapes[term][0] in (Op.ADD, Op.MAX):
        left, right = shapes.operands(term)
        if left != right:
            break
        term = left
    return tuple(stored.post), term, stored.group.kind
