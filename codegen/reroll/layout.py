"""Storage: data[] and grad[] for parameters, value[] for inputs, targets and roots.

Example input: a group of 50 roots relu(sum(P, 784 x mul(P, X))), its P being two tensors

    layers.0.weight (50, 784)   layers.0.bias (50,)

becomes:

    data[0 .. 39200)       layers.0.weight, stored [784][50]: what the 50 sums read in one step is contiguous
    data[39200 .. 39250)   layers.0.bias
    value[GROUP_0 .. +50)  the group's results, in the order of its leaves: neuron 0, 1, 2, ...

A group whose instances read from different arrays is split first, so that one index formula serves each part.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from codegen.ir.graph import Graph, Op
from codegen.ir.loops import Pass
from codegen.kinds import Part
from codegen.program import Program, Tensor
from codegen.reroll.affine import peel
from codegen.reroll.arrange import Arrangement, Margin
from codegen.reroll.boxes import Box
from codegen.reroll.families import Part as Member
from codegen.reroll.families import distances
from codegen.reroll.grids import Grid
from codegen.reroll.groups import Group, Ints, Key
from codegen.reroll.runs import Run, split_shape
from codegen.reroll.trees import Shapes

SETS_APART = 16  # in cache lines: of 64 sets, rows as far apart use four at most
FIRST_TOKEN = 2**40  # index of token[0] while storage is assigned: further than any array is long


NO_MARGIN = 0, 0


@dataclass
class GroupLayout:
    """A group with its runs and its storage: results go to value[offset ...], or to grad[] for gradients."""

    group: Group
    runs: list[Run]
    post: list[int]  # unary ops on the sum, the innermost first
    combine: int | None  # ADD or MAX where the runs are terms, None for a plain expression
    box: Box | None = None  # that the roots are a part of
    grid: Grid | None = None  # the same, with the roots of other groups
    margin: Margin = NO_MARGIN
    number: int = -1
    offset: int = -1

    @property
    def size(self) -> int:
        """How many numbers are computed."""
        return self.box.size if self.box else len(self.group.roots)

    @property
    def extent(self) -> int:
        """How many elements it has, with its margins."""
        return sum(self.margin) + self.size

    @property
    def start(self) -> int:
        """The first of them."""
        return self.offset - self.margin[0]

    @property
    def places(self) -> Ints:
        """Where each root is, from the offset on."""
        if self.grid:
            return self.grid.places(self.group.roots)
        return self.box.places if self.box else np.arange(len(self.group.roots))


@dataclass(frozen=True)
class TensorPlace:
    """A tensor's first index in data[] and grad[], and the distance of neighbours along each axis, in elements.

    It takes `extent` elements, `size` of them its own and the others padding.
    """

    tensor: Tensor
    offset: int
    strides: tuple[int, ...]
    extent: int

    @property
    def size(self) -> int:
        return len(self.tensor.numbers)

    @property
    def row(self) -> tuple[int, int]:
        """Elements along the innermost axis, without and with padding."""
        lengths = [n for n, stride in zip(self.tensor.shape, self.strides, strict=True) if stride == 1]
        row = max(lengths, default=1)
        return row, self.extent * row // self.size


@dataclass
class Layout:
    groups: list[GroupLayout]
    tensors: list[TensorPlace]
    index: Ints  # node -> index in its array; for constants the number of the constant
    copies: dict[int, int]  # observed leaf -> index in value[] of the copy
    target_offset: int
    value_count: int
    data_count: int
    cache_line: int  # in numbers
    readers: list[Group] = field(default_factory=list)  # the groups in parts that read the same tensors
    parameter_index: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # parameter -> index in data[]
    family: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # node -> the same for arrays of one family
    input_index: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # input -> index in value[] or token[]
    has_choice: bool = False  # whether groups would be stored in another order `by_creation`: see arrange.py
    has_tables: bool = False  # whether groups would be split without `in_tables`
    chains: dict[object, list[int]] = field(default_factory=dict)  # the numbers of the parts of each Group.chain
    wanted: dict[Key, Margin] = field(default_factory=dict)  # with which more groups would fill a part of a box

    @property
    def input_count(self) -> int:
        """How many inputs are in value[]."""
        return int((self.input_index < FIRST_TOKEN).sum())

    @property
    def token_count(self) -> int:
        """How many are in token[]."""
        return len(self.input_index) - self.input_count

    def tensor_at(self, index: int) -> TensorPlace:
        """The tensor that has this element of data[] or grad[]."""
        return self.tensors[bisect_right(self.tensors, index, key=lambda place: place.offset) - 1]


@dataclass(frozen=True)
class Plan:
    """What storage.py decides: what is stored together, zeros around it, and the order of instances: see arrange.py."""

    families: list[list[Member]]
    grids: list[Grid]  # besides the arrays with padding
    margins: Mapping[Key, Margin]
    by_creation: bool = False
    in_tables: bool = True


class Assignment:
    """Storage that grows group by group: `layout` says where nodes are, `known` what their readers can know of that."""

    def __init__(
        self,
        graph: Graph,
        shapes: Shapes,
        groups: list[Group],
        program: Program,
        cache_line: int,
        by_index: Collection[Part],
        plan: Plan,
    ) -> None:
        self.graph, self.shapes, self.groups, self.program, self.margins = graph, shapes, groups, program, plan.margins
        op = np.frombuffer(graph.op, dtype=np.uint8)
        self.leaf_number = np.frombuffer(graph.a, dtype=np.intc).astype(np.int64)
        self.declared, tensor_of = declared_order(program)
        self.is_parameter = (op == Op.PARAM) | (op == Op.GRAD)
        is_input, is_target = op == Op.INPUT, op == Op.TARGET
        input_index = _input_index(program, by_index)
        target_offset = aligned(int((input_index < FIRST_TOKEN).sum()), cache_line)
        index = self.leaf_number.copy()
        index[self.is_parameter] = self.declared[self.leaf_number[self.is_parameter]]
        index[is_input] = input_index[self.leaf_number[is_input]]
        index[is_target] += target_offset
        self.tensor = np.zeros(len(graph), dtype=np.int64)  # which array a leaf belongs to
        self.tensor[self.is_parameter] = tensor_of[self.leaf_number[self.is_parameter]]
        self.tensor[is_input] = index[is_input] >= FIRST_TOKEN
        value_count = target_offset + aligned(len(program.target_leaves), cache_line)
        self.layout = Layout([], [], index, {}, target_offset, value_count, 0, cache_line, input_index=input_index)
        arrays = [Grid(np.array(array.nodes), np.array(array.places)) for array in graph.padded]
        self.slots = _Slots(plan.families, [*arrays, *plan.grids], self.layout)
        self.known = Arrangement(
            index,
            self.leaf_number,
            self.tensor.copy(),
            self.tensor.copy(),
            cache_line,
            _fewest_roots(groups),
            plan.by_creation,
            plan.in_tables,
        )

    def assign(self) -> Layout:
        """Splits and orders the groups' instances, and assigns storage to every tensor and root: see storage.py.

        Until place_tensors() has decided, parameters are one tensor after the other, in C order.
        """
        used = Pass.LOSS if self.program.loss is not None else Pass.OUTPUTS
        parts: list[list[GroupLayout]] = [[] for _ in self.groups]
        for decides in (True, False):  # how tensors are stored: these groups come first
            for group, stored in zip(self.groups, parts, strict=True):
                if bool(group.passes & used) == decides:
                    stored += self.parts_of(group, decides)
            self.layout.groups = [part for stored in parts for part in stored]
            if decides:
                self.place_tensors()
        return self.finished()

    def parts_of(self, group: Group, is_free: bool) -> Iterator[GroupLayout]:
        """The parts of a group, stored. `is_free`: the tensors that it reads are still to be placed."""
        runs, post, combine = split_shape(self.shapes, group.shape, group.is_gradient)
        for some in self.known.split(group, self.tensor):
            self.layout.readers += self.known.of_literals(some, runs)
        for part in self.known.parts(group, runs):
            grid = self.slots.grid(part)
            ordered, box = self.known.ordered(part, runs, is_free, may_fill=grid is None)
            margin = NO_MARGIN if grid else margin_of(part, self.margins, self.layout.cache_line)
            stored = GroupLayout(ordered, runs, post, combine, box, grid, margin)
            self.store(part, stored)
            yield stored

    def store(self, part: Group, stored: GroupLayout) -> None:
        """Assigns places to a part, as it is stored, and tells those that read it."""
        known = self.known
        start, place = self.slots.place(part, stored.extent) or (None, None)
        _allocate(self.layout, stored, known.array, place)
        if stored.grid is None:  # whose other groups may come later
            known.extents[stored.offset] = stored.size, stored.margin
        known.family[part.roots] = known.array[part.roots] if start is None else start
        if stored.box is not None:
            known.boxes[stored.offset] = stored.box

    def place_tensors(self) -> None:
        _place_tensors(self.layout, self.program, self.declared)
        places = self.layout.parameter_index[self.leaf_number[self.is_parameter]]
        self.layout.index[self.is_parameter] = places

    def finished(self) -> Layout:
        layout, known = self.layout, self.known
        layout.family = known.family
        layout.has_choice, layout.has_tables = known.has_choice, known.has_tables
        wanted = known.wanted
        layout.wanted = {part.group.key: wanted[part.offset] for part in layout.groups if part.offset in wanted}
        for number, placed in enumerate(layout.groups):
            placed.number = number
            layout.chains.setdefault(placed.group.chain, []).append(number)
        if self.graph.gradients:
            layout.index[list(self.graph.gradients.values())] = layout.parameter_index[list(self.graph.gradients)]
        return layout


def _fewest_roots(groups: list[Group]) -> dict[object, int]:
    """Of each kind of sums that differ in numbers of terms, the roots of the smallest group."""
    found: dict[object, int] = {}
    for group in groups:
        if group.kin is not None:
            found[group.kin] = min(len(group.roots), found.get(group.kin, len(group.roots)))
    return found


def _input_index(program: Program, by_index: Collection[Part]) -> Ints:
    """Where each input is: one part after the other in value[], and those by index in token[]."""
    index = np.zeros(len(program.input_values), dtype=np.int64)
    stored = [part for part in program.input_parts if part not in by_index]
    for parts, start in ((stored, 0), (by_index, FIRST_TOKEN)):
        for part in parts:
            index[part.first : part.first + part.count] = start + np.arange(part.count)
            start += part.count
    return index


class _Slot(NamedTuple):
    """A place in a family: how far from its start, the room there, and how many roots are meant for it."""

    family: int
    distance: int
    room: int
    roots: int


class _Slots:
    """Where the members of families are stored: where the first one would be.

    Families across the layers of a stack are in front of all others, so that layers are an equal distance apart.
    """

    def __init__(self, families: list[list[Member]], grids: list[Grid], layout: Layout) -> None:
        self.layout = layout
        self.grids = grids
        self.grid_of = np.full(len(layout.index), -1)
        for number, grid in enumerate(grids):
            self.grid_of[grid.roots] = number
        self.grid_starts: dict[int, int] = {}
        self.members: list[_Slot] = []
        self.member_of = np.full(len(layout.index), -1)
        self.starts: dict[int, int] = {}
        self.extents: dict[int, int] = {}
        for number, members in enumerate(families):
            found = distances(members, padded(members[0].size, layout.cache_line), layout.cache_line)
            if found is not None:
                self.extents[number] = found[-1]
                for part, distance in zip(members, found, strict=False):
                    self.member_of[part.group.roots] = len(self.members)
                    self.members.append(_Slot(number, distance, part.size, len(part.group.roots)))
                if len({part.group.place for part in members}) > 1:
                    self.starts[number] = _take(layout, found[-1], found[-1])

    def place(self, part: Group, size: int) -> tuple[int, int] | None:
        """Where the part's family starts, and the index of its first root; None if it belongs to no family.

        A part that fills a box only since something else is in a grid may need more room than its family has for it.
        """
        number = int(self.grid_of[part.roots[0]])
        grid = self.grid(part)
        if grid is not None:
            if number not in self.grid_starts:
                size = grid.size
                self.grid_starts[number] = _take(self.layout, size, padded(size, self.layout.cache_line))
            return self.grid_starts[number], self.grid_starts[number]
        slot = self.slot(part)
        if slot is None or size > slot.room:
            return None
        if slot.family not in self.starts:
            self.starts[slot.family] = _take(self.layout, self.extents[slot.family], self.extents[slot.family])
        return self.starts[slot.family], self.starts[slot.family] + slot.distance

    def slot(self, part: Group) -> _Slot | None:
        """Of the member that the part is, or of members side by side that are one part now that families are known."""
        numbers: list[int] = np.unique(self.member_of[part.roots]).tolist()
        if numbers[0] < 0:
            return None
        found = sorted([self.members[i] for i in numbers], key=lambda slot: slot.distance)
        ends = [(slot.family, slot.distance + slot.room) for slot in found]
        if sum(slot.roots for slot in found) != len(part.roots) or ends[:-1] != [slot[:2] for slot in found[1:]]:
            return None
        return _Slot(*found[0][:2], sum(slot.room for slot in found), len(part.roots))

    def grid(self, part: Group) -> Grid | None:
        """The grid that all roots of a part are in."""
        numbers = np.unique(self.grid_of[part.roots])
        return self.grids[int(numbers[0])] if len(numbers) == 1 and numbers[0] >= 0 and not part.is_gradient else None


def margin_of(part: Group, margins: Mapping[Key, Margin], cache_line: int) -> Margin:
    """Results begin with a cache line, as they do without a margin."""
    before, behind = margins.get(part.key, NO_MARGIN)
    return aligned(before, cache_line), behind


def _take(layout: Layout, size: int, count: int) -> int:
    """The index of the first of `count` new elements of value[], `size` of them no padding."""
    if size >= layout.cache_line:
        layout.value_count = aligned(layout.value_count, layout.cache_line)
    layout.value_count += count
    return layout.value_count - count


def _allocate(layout: Layout, stored: GroupLayout, array: Ints, place: int | None = None) -> None:
    roots = stored.group.roots
    if stored.group.is_gradient:
        return
    start = _take(layout, stored.extent, padded(stored.extent, layout.cache_line)) if place is None else place
    stored.offset = start + stored.margin[0]
    places = stored.places + stored.offset
    if (stored.group.leaves[0] == roots[0]).all():  # copies of leaves: users still read the leaf itself
        layout.copies.update(zip(roots.tolist(), places.tolist(), strict=True))
    else:
        layout.index[roots] = places
        # Single roots share an array, so that one loop can still read many of them side by side.
        array[roots] = stored.offset if len(roots) > 1 or stored.grid else -1


def aligned(count: int, cache_line: int) -> int:
    return -(-count // cache_line) * cache_line


def padded(count: int, cache_line: int) -> int:
    """`count` rounded up to whole vectors, or else to half vectors, if that adds at most a quarter; else `count`.

    From two vectors on, whole ones may add a third: a row that straddles cache lines is read at half the speed.
    """
    whole = aligned(count, cache_line)
    if count > 2 * cache_line and 3 * whole <= 4 * count:
        return whole
    for width in (cache_line, cache_line // 2):
        whole = aligned(count, width)
        if 4 * whole <= 5 * count:
            return whole
    return count


def _apart(shape: list[int], cache_line: int) -> int:
    """A line more for long rows whose elements of one column would share a few sets of a cache."""
    return cache_line if len(shape) > 1 and cache_line > 1 and shape[-1] % (SETS_APART * cache_line) == 0 else 0


def declared_order(program: Program) -> tuple[Ints, Ints]:
    """For each parameter: its position when all tensors are laid out one after the other, and its tensor."""
    count = len(program.parameter_values)
    position, owner = np.zeros(count, np.int64), np.zeros(count, np.int64)
    start = 0
    for t, tensor in enumerate(program.tensors):
        numbers = np.array(tensor.numbers, dtype=np.int64)
        position[numbers] = start + np.arange(len(numbers))
        owner[numbers] = t
        start += len(numbers)
    return position, owner


def _place_tensors(layout: Layout, program: Program, declared: Ints) -> None:
    layout.parameter_index = np.zeros(len(declared), dtype=np.int64)
    inner = _innermost_axes(layout, program)
    for tensor in program.tensors:
        axes = list(range(len(tensor.shape)))
        if tensor.name in inner:
            axes.append(axes.pop(inner[tensor.name]))
        shape = [tensor.shape[a] for a in axes]
        if shape:
            shape[-1] = padded(shape[-1], layout.cache_line)
            shape[-1] += _apart(shape, layout.cache_line)
        stored = np.arange(int(np.prod(shape))).reshape(shape)
        by_axis = stored.transpose(np.argsort(axes)) if axes else stored
        by_axis = by_axis[tuple(slice(length) for length in tensor.shape)]
        strides = tuple(stride // by_axis.itemsize for stride in by_axis.strides)
        layout.tensors.append(TensorPlace(tensor, layout.data_count, strides, stored.size))
        layout.parameter_index[list(tensor.numbers)] = layout.data_count + by_axis.ravel()
        layout.data_count = aligned(layout.data_count + stored.size, layout.cache_line)


def _innermost_axes(layout: Layout, program: Program) -> dict[str, int]:
    """For each tensor the axis along which the instances of the group that reads it most often advance."""
    starts = np.cumsum([0, *(len(tensor.numbers) for tensor in program.tensors)])
    most: dict[str, int] = {}
    axes: dict[str, int] = {}
    for stored in layout.groups:
        group = stored.group
        if len(group.roots) == 1:
            continue
        first = np.hstack([run.columns(group.leaves)[:, 0] for run in stored.runs])
        kinds = [kind for run in stored.runs for kind in run.kinds]
        counts = [run.count for run in stored.runs for _ in run.kinds]
        dims, _ = peel(layout.index[first])
        for column, kind in enumerate(kinds):
            reads = len(group.roots) * counts[column]
            if kind != Op.PARAM:
                continue
            t = int(np.searchsorted(starts, layout.index[first[0, column]], side="right")) - 1
            tensor = program.tensors[t]
            strides = [int(np.prod(tensor.shape[a + 1 :])) for a in range(len(tensor.shape))]
            moving = [int(dim.strides[column]) for dim in dims if dim.strides[column]]
            if moving and moving[0] in strides and reads > most.get(tensor.name, 0):
                most[tensor.name] = reads
                axes[tensor.name] = strides.index(moving[0])
    return axes
