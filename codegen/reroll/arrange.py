"""Groups -> parts that one index formula serves, with their instances in the order in which they are stored.

Example input: a group of 16 roots mul(R, R), 12 of which read the results of group 3, and 4 those of group 7

    value[140 + 3] * value[8], value[140 + 0] * value[8], ... value[300 + 1] * value[8] ...

becomes two parts, whose instances follow the numbers that they read: value[140 + i] * value[8] for i < 12, and
value[300 + i] * value[8] for i < 4. Where groups are stored as one array, a family, their readers stay one part.
"""

import math
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from codegen.ir.graph import Op
from codegen.reroll.affine import Loop, peel
from codegen.reroll.boxes import Box, find_boxes
from codegen.reroll.groups import Group, Ints
from codegen.reroll.runs import Run, equal_rows
from codegen.reroll.trees import ROOT_KIND

MIN_LANES = 4
MAX_LITERALS = 4  # more distinct constants in one position become a table
Margin = tuple[int, int]  # zeros before and behind the results of a group


@dataclass
class Arrangement:
    """What is known of each node's storage while groups are arranged one after the other.

    index         the index in its array
    leaf_number   the number of a leaf, among those of its kind
    array         which array it belongs to: a tensor, or the offset of a group
    family        the same for all members of a family
    rows          how many roots the smallest group has of a kind of sums that differ in numbers of terms
    by_creation   whether rows of lanes follow one another in the order in which they were created, not in that of what
                  they read; `has_choice` says whether that is another order
    in_tables     whether a group that is one nest stays whole where a few constants take turns in it, and reads them
                  from a table; `has_tables` says whether one does
    boxes         by offset, the groups that fill a part of a box
    extents       by offset, how many elements a group has, and its margins; `wanted` has those that boxes would read
    """

    index: Ints
    leaf_number: Ints
    array: Ints
    family: Ints
    cache_line: int
    rows: dict[object, int]
    by_creation: bool
    in_tables: bool
    has_choice: bool = False
    has_tables: bool = False
    boxes: dict[int, Box] = field(default_factory=dict)
    extents: dict[int, tuple[int, Margin]] = field(default_factory=dict)
    wanted: dict[int, Margin] = field(default_factory=dict)

    def parts(self, group: Group, runs: list[Run]) -> list[Group]:
        """Those that read from different arrays; where one nest serves a family of arrays, they are one."""
        found: list[Group] = []
        for family in self.split(group, self.family):
            for part in self.of_literals(family, runs):
                parts = self.split(part, self.array)
                is_one = len(parts) > 1 and (self.is_regular(part, runs) or self.box(part, runs) is not None)
                found += [part] if is_one else parts
        return found

    def ordered(self, part: Group, runs: list[Run], is_free: bool, may_fill: bool = True) -> tuple[Group, Box | None]:
        """The part as it is stored, and the box that it fills a part of, if it may. `is_free`: see with_lanes."""
        found = self.box(part, runs) if may_fill else None
        return found or (self.with_lanes(self.sorted(part, runs), runs, is_free), None)

    def box(self, group: Group, runs: list[Run]) -> tuple[Group, Box] | None:
        """The box that a group fills a part of, and its instances in that order."""
        if group.is_gradient or len(group.roots) < MIN_LANES or (group.leaves[:, 0] == group.roots).all():
            return None
        indices = self.places_of_leaves(group, runs)
        relative = [(run.columns(indices) - run.columns(indices)[:, :1]).reshape(len(indices), -1) for run in runs]
        if any((part != part[0]).any() for part in relative) or self.is_regular(group, runs):
            return None
        firsts = np.hstack([run.columns(indices)[:, 0] for run in runs])
        arrays = [column for run in runs for column in run.columns(self.array[group.leaves]).transpose(2, 0, 1)]
        kinds = [kind for run in runs for kind in run.kinds]
        keys: list[Ints] = []
        for kind, column, numbers in zip(kinds, arrays, firsts.T, strict=True):
            array = int(column[0, 0])
            box = self.boxes.get(array) if kind == ROOT_KIND and (column[:, 0] == array).all() else None
            if box:  # the row of the box that is read
                keys.append((numbers - array) // box.length)
        is_roots = np.array([kind == ROOT_KIND for kind in kinds])
        found = [*find_boxes(firsts, [*keys, *firsts.T], is_roots)]
        if not found:
            return None
        known = {box.needed for box in self.boxes.values()}  # what is read together is stored alike
        order, box = next((some for some in found if some[1].needed in known), found[0])
        whole = box.filled(firsts[order])
        assert whole is not None
        alike = zip(runs, relative, strict=True)
        terms = [offsets for run, part in alike for offsets in part[0].reshape(run.count, -1).T]
        is_written = [
            self.are_written(np.unique(column).tolist(), numbers, offsets)
            for is_root, column, numbers, offsets in zip(is_roots, arrays, whole.T, terms, strict=True)
            if is_root
        ]
        return (group.select(order), box) if all(is_written) else None

    def are_written(self, arrays: list[int], firsts: Ints, terms: Ints) -> bool:
        """Whether all first terms and the others, so far from them, are elements of groups that have been arranged.

        Or of the margins of a single one: these then are wanted.
        """
        indices = np.unique(firsts[:, None] + terms)
        if any(array not in self.extents for array in arrays):
            return False
        if len(arrays) == 1:
            end = arrays[0] + self.extents[arrays[0]][0]
            before, behind = self.wanted.get(arrays[0], (0, 0))
            margin = max(before, arrays[0] - int(indices.min())), max(behind, int(indices.max()) + 1 - end)
            if any(margin):
                self.wanted[arrays[0]] = margin
        inside = np.zeros(len(indices), dtype=bool)
        for array in arrays:
            size, (before, behind) = self.extents[array]
            inside |= (indices >= array - before) & (indices < array + size + behind)
        return bool(inside.all())

    def is_regular(self, group: Group, runs: list[Run]) -> bool:
        """Whether one nest computes the group."""
        indices = self.places_of_leaves(self.sorted(group, runs), runs)
        moves = np.diff(indices, axis=0)
        firsts = np.hstack([run.columns(indices)[:, 0] for run in runs])
        relative = np.hstack([(run.columns(moves) - run.columns(moves)[:, :1]).reshape(len(moves), -1) for run in runs])
        return not relative.any() and peel(firsts)[1] == len(firsts)

    def places_of_leaves(self, group: Group, runs: list[Run]) -> Ints:
        """Where all leaves are. Constants are in no order yet: those that differ will be a table."""
        indices = self.index[group.leaves]
        constant = [
            run.column + k
            for run in runs
            for k in range(run.count * len(run.kinds))
            if run.kinds[k % len(run.kinds)] == Op.CONST
        ]
        indices[:, constant] = 0
        return indices

    def split(self, group: Group, array: Ints) -> list[Group]:
        """The parts that read from different arrays."""
        if len(group.roots) == 1:
            return [group]
        return [group.select(rows) for rows in equal_rows(array[group.leaves])]

    def of_literals(self, group: Group, runs: list[Run]) -> list[Group]:
        """The parts with different literals. If these are not blocks, the group may stay whole: see `in_tables`."""
        columns = [
            np.arange(run.column + k, run.column + run.count * len(run.kinds), len(run.kinds))
            for run in runs
            for k, kind in enumerate(run.kinds)
            if kind == Op.CONST
        ]
        few = [some for some in columns if 1 < len(np.unique(self.leaf_number[group.leaves[:, some]])) <= MAX_LITERALS]
        if len(group.roots) == 1 or not few:
            return [group]
        literals = np.hstack(few)
        if self.in_tables and self.is_regular(group, runs):
            in_order = self.leaf_number[self.sorted(group, runs).leaves[:, literals]]
            blocks = 1 + int((in_order[1:] != in_order[:-1]).any(axis=1).sum())
            if blocks > min(MAX_LITERALS, len(np.unique(in_order, axis=0))):
                self.has_tables = True
                return [group]
        return [group.select(rows) for rows in equal_rows(self.leaf_number[group.leaves[:, literals]])]

    def sorted(self, group: Group, runs: list[Run]) -> Group:
        """Instances in the order of their leaves' indices: the walk of the loop that computes them."""
        if len(group.roots) == 1:
            return group
        keys = [
            self.index[group.leaves[:, run.column + k]]
            for run in runs
            for k, kind in enumerate(run.kinds)
            if kind != Op.CONST
        ]
        return group.select(np.lexsort(keys[::-1])) if keys else group

    def with_lanes(self, group: Group, runs: list[Run], is_free: bool) -> Group:
        """The group's instances in an order in which neighbours are lanes that read what is side by side.

        Lanes that read from any distance but 0 or 1 need a load each. Of lanes that cost the same, those are taken that
        were created one after the other, as units of a token were: gradients are stored as values are. Two or three
        neighbours are no lanes.
        `is_free`: tensors are still to be placed so that the lanes of these groups are neighbours.
        """
        if group.is_gradient or len(group.roots) < MIN_LANES:
            return group
        dims, length = peel(self.index[np.hstack([run.columns(group.leaves)[:, 0] for run in runs])])
        if len(dims) < 2 or length < len(group.roots):
            return group
        counts = np.repeat([run.count for run in runs], [len(run.kinds) for run in runs])
        kinds = np.array([kind for run in runs for kind in run.kinds])
        loads = counts * (kinds != Op.CONST)

        def cost(dim: Loop) -> float:
            """Loads for one root."""
            is_far = (dim.strides != 0) & (dim.strides != 1) & ~(is_free & (kinds == Op.PARAM))
            return float((loads * np.where(is_far, 1, -(-dim.count // self.cache_line) / dim.count)).sum())

        dims.reverse()  # the outermost first
        inner = _inner([dim.count for dim in dims], self.rows.get(group.kin, length))
        places = np.arange(length).reshape([dim.count for dim in dims])
        steps = [int(group.roots[stride // places.itemsize] - group.roots[0]) for stride in places.strides]
        cheapest = min(cost(dims[d]) for d in inner)
        found = [d for d in inner if cost(dims[d]) == cheapest]
        are_lanes = all(dims[d].count >= MIN_LANES for d in found)
        lanes = min(found, key=lambda d: abs(steps[d])) if are_lanes else found[-1]
        rows = [d for d in range(len(dims)) if d not in inner] + [d for d in inner if d != lanes]
        created = sorted(rows, key=lambda d: (d in inner, -abs(steps[d])))
        self.has_choice |= created != rows
        return group.select(places.transpose(*(created if self.by_creation else rows), lanes).ravel())


def _inner(counts: list[int], row: int) -> list[int]:
    """The loops, of these counts, that go over one row: as many roots as the smallest group of the kind has.

    So longer sums are stored as shorter ones are, and what reads both is one nest.
    """
    every = range(len(counts))
    some = [dims for size in every[1:] for dims in combinations(every, size)]
    sets = [dims for dims in some if math.prod([counts[d] for d in dims]) == row]
    return [*sets[-1]] if sets else [*every]
