"""Trees -> groups: roots of one shape, which one loop nest can compute, in an order that respects dependences.

Example input: the roots of a layer, and of the layer after it

    %10, %14, %18: relu(sum(P, 2 x mul(P, X)))      %30, %41: sum(P, 3 x mul(P, R))

becomes two groups, of three roots and of two.

Roots of equal shape may differ in depth: the gradients in a chain of max are all at different depths, and still form
one loop. A group is split by depth only if it would depend on itself, directly or through others, as the steps of a
recurrence do: in the strongly connected components of the graph of groups (Tarjan, 1972).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Graph, Op
from codegen.ir.loops import Pass
from codegen.reroll.trees import Trees

MIN_LEAVES = 120  # of a step of a group, in layers that do not take turns
MIN_LEAVES_OF_TWO = 375  # of them

Ints = npt.NDArray[np.int64]
Key = tuple[int, int]  # of a part of a group: its first root, and how many there are


@dataclass
class Group:
    """Roots of one shape: node numbers, and a row of leaves (node numbers) for each of them.

    `step`: which one, if others of its shape depend on it, as in a recurrence; else -1. `place`: where it stands in a
    stack of layers: the last tensor that it depends on, and those whose gradients depend on it.
    """

    shape: int
    passes: Pass
    is_gradient: bool
    roots: Ints
    leaves: Ints
    step: int = -1
    place: tuple[int, int] = (0, 0)
    kind: int = -1  # of sums, whatever the number of their terms: see codegen/passes/short_sums.py
    number: int = -1  # the same for all parts of a group

    @property
    def key(self) -> Key:
        """Tells the parts of groups apart."""
        return int(self.roots.min()), len(self.roots)

    @property
    def kin(self) -> object:
        """Equal for groups of sums that differ in numbers of terms; None for others."""
        return (self.passes, self.place, self.step, self.kind) if self.kind >= 0 else None

    @property
    def chain(self) -> object:
        """Equal for steps of a recurrence that do the same; for the parts of other groups."""
        return (self.shape, self.passes, self.place) if self.step >= 0 else self.number

    def select(self, rows: Ints) -> Group:
        return replace(self, roots=self.roots[rows], leaves=self.leaves[rows])


def find_groups(graph: Graph, trees: Trees, prediction: str | None, tensor_of: Ints | None = None) -> list[Group]:
    """The groups, each after every group that it reads from. `tensor_of`: the tensor of each parameter, by number."""
    gradients = {n for parameter, n in graph.gradients.items() if trees.leaves_of[n] != (n,)}
    masks = passes_of(graph, prediction)
    members: dict[tuple[int, int, bool, int, int], list[int]] = {}
    observed = set(graph.input_gradients.values())
    array_of = {n: number for number, array in enumerate(graph.padded) for n in array.nodes}
    for n in trees.roots:
        if n in gradients or n in observed or masks[n] & ~Pass.GRADIENTS or trees.leaves_of[n] != (n,):
            kind = graph.sums[n][1] if n in graph.sums else -1
            key = trees.shape_of[n], masks[n], n in gradients, array_of.get(n, -1), kind
            members.setdefault(key, []).append(n)
    groups = [_group(trees, key, roots) for key, roots in members.items()]
    places = _Places(graph, tensor_of, groups, array_of)
    groups = [part for component in _components(len(graph), groups) for part in _acyclic(len(graph), component, places)]
    return [replace(group, number=number) for number, group in enumerate(_in_order(len(graph), groups))]


def _group(trees: Trees, key: tuple[int, int, bool, int, int], roots: list[int]) -> Group:
    leaves = np.array([trees.leaves_of[n] for n in roots], dtype=np.int64)
    return Group(key[0], Pass(key[1]), key[2], np.array(roots, dtype=np.int64), leaves, kind=key[4])


def passes_of(graph: Graph, prediction: str | None) -> list[int]:
    """For each node the passes that need it, as a Pass."""
    everything = [n for nodes in graph.outputs.values() for n in nodes]
    sets = {
        Pass.LOSS: [graph.loss] if graph.loss >= 0 else [],
        Pass.PREDICTION: graph.outputs[prediction] if prediction is not None else [],
        Pass.OUTPUTS: everything,
        Pass.GRADIENTS: [*graph.gradients.values(), *graph.input_gradients.values()],
        Pass.METRICS: list(graph.metrics.values()),
    }
    masks = np.zeros(len(graph), dtype=np.uint16)
    for flag, roots in sets.items():
        masks |= np.frombuffer(graph.reachable(*roots), dtype=np.uint8) * np.uint16(flag)
    result: list[int] = masks.tolist()
    return result


def computed_by(size: int, groups: list[Group]) -> Ints:
    """For each node the number of the group that computes it, -1 if none does. A copied leaf stays a leaf."""
    owner = np.full(size, -1, dtype=np.int64)
    for i, group in enumerate(groups):
        computed = group.roots[(group.leaves != group.roots[:, None]).all(axis=1)]
        owner[computed] = i
    return owner


def _reads(owner: Ints, group: Group) -> list[int]:
    found: list[int] = np.unique(owner[group.leaves]).tolist()
    return [g for g in found if g >= 0]


def _components(size: int, groups: list[Group]) -> list[list[Group]]:
    """Strongly connected components. A single group that does not read itself is a component of its own."""
    owner = computed_by(size, groups)
    reads = [_reads(owner, group) for group in groups]
    index = [-1] * len(groups)
    low = [0] * len(groups)
    on_path = [False] * len(groups)
    path: list[int] = []
    components: list[list[Group]] = []
    count = 0
    for start in range(len(groups)):
        if index[start] >= 0:
            continue
        work = [(start, 0)]
        while work:
            g, edge = work.pop()
            if edge == 0:
                index[g] = low[g] = count
                count += 1
                path.append(g)
                on_path[g] = True
            else:
                low[g] = min(low[g], low[reads[g][edge - 1]])
            while edge < len(reads[g]):
                other = reads[g][edge]
                edge += 1
                if index[other] < 0:
                    work.append((g, edge))
                    work.append((other, 0))
                    break
                if on_path[other]:
                    low[g] = min(low[g], index[other])
            else:
                if low[g] == index[g]:
                    component = []
                    while True:
                        member = path.pop()
                        on_path[member] = False
                        component.append(groups[member])
                        if member == g:
                            break
                    components.append(component)
    return components


class _Places:
    """Where in a stack of layers each node stands: which tensors it depends on, and whose gradients depend on it.

    Layers with tensors of their own stand at different places, whatever their depth; the steps of a recurrence do not.
    """

    def __init__(self, graph: Graph, tensor_of: Ints | None, groups: list[Group], array_of: dict[int, int]) -> None:
        self.groups = groups
        self.array_of = array_of  # of a node in an array with padding
        self.tensors: dict[int, int] = {}  # of a node that is a parameter
        if tensor_of is not None:
            op, numbers, _ = graph.columns()
            is_parameter = (op == Op.PARAM) | (op == Op.GRAD)
            self.tensors = {int(n): int(tensor_of[numbers[n]]) for n in np.flatnonzero(is_parameter)}

    def by_tensors(self, component: list[Group]) -> list[Group]:
        """The groups of a component, with the roots together that depend on the same tensor at last.

        Tensors are in the order in which the component reads them. What else a root depends on says nothing: behind
        the last token, which alone the loss reads, gradients go other ways than behind the tokens before it.
        """
        order: dict[int, int] = {}
        last: dict[int, int] = {}
        rows: dict[tuple[int, int], list[int]] = {}
        for n, g, row in _roots_of(component):
            leaves = component[g].leaves[row].tolist()
            read = [order.setdefault(self.tensors[leaf], len(order) + 1) for leaf in leaves if leaf in self.tensors]
            last[n] = max([*read, *[last.get(leaf, 0) for leaf in leaves]])
            rows.setdefault((g, last[n]), []).append(row)
        return [replace(component[g].select(np.sort(found)), place=(t, 0)) for (g, t), found in rows.items()]

    def by_gradients(self, component: list[Group]) -> list[Group]:
        """The groups of a component, with the roots together on which the gradients of the same tensors depend."""
        rows: dict[tuple[int, int], list[int]] = {}
        for n, g, row in _roots_of(component):
            rows.setdefault((g, self.gradients.get(n, 0)), []).append(row)
        return [
            replace(component[g].select(np.sort(found)), place=(component[g].place[0], d))
            for (g, d), found in rows.items()
        ]

    @cached_property
    def gradients(self) -> dict[int, int]:
        """The tensors whose gradients depend on a node, as a set of bits."""
        found: dict[int, int] = {}
        for n, g, row in reversed(_roots_of(self.groups)):
            leaves = self.groups[g].leaves[row].tolist()
            below = 1 << self.tensors.get(leaves[0], 0) if self.groups[g].is_gradient else found.get(n, 0)
            for leaf in leaves if below else ():
                found[leaf] = found.get(leaf, 0) | below
        return found


def _roots_of(component: list[Group]) -> list[tuple[int, int, int]]:
    """The roots of some groups in the order of the graph: their numbers, groups and rows."""
    return sorted((int(n), g, row) for g, group in enumerate(component) for row, n in enumerate(group.roots))


def _acyclic(size: int, component: list[Group], places: _Places) -> list[Group]:
    """The groups of a component in parts, none of which depends on itself.

    A stack of layers is split by place: behind a causal mask, tokens of one layer differ in depth, and those of
    different layers may not. On the way to the loss, what a node depends on tells layers apart; on the way back, whose
    gradients depend on it. A recurrence is at one place for most of its steps, and is split by depth: it keeps two
    thirds or more of its longest chain of steps, a stack of two layers 0.4 or less. For stacks of recurrences
    see _is_by_layer().
    """
    by_depth = _by_depth(size, component, places.array_of)
    if not _steps(by_depth):
        return by_depth
    by_place: list[Group] = []
    for layers in _components(size, places.by_tensors(component)):
        inner = _components(size, places.by_gradients(layers)) if _is_cyclic(layers) else [layers]
        by_place += [part for groups in inner for part in _by_depth(size, groups, places.array_of, is_layer=True)]
    is_short = 2 * _steps(by_place) <= _steps(by_depth)
    return by_place if is_short or _is_by_layer(by_place, _steps(by_depth)) else by_depth


def _is_by_layer(by_place: list[Group], in_turns: int) -> bool:
    """Whether each layer of a stack of recurrences makes all its steps before the next one begins.

    Or layers take turns, `in_turns` steps in all: none waits for another then, but where some have nothing to do yet,
    or nothing more, is code of its own, n (n - 1) / 2 steps of n layers at each end. Steps that do little wait longest.
    """
    layers: dict[tuple[int, int], list[Group]] = {}
    for part in by_place:
        if part.step >= 0:
            layers.setdefault(part.place, []).append(part)
    stack = [layer for layer in layers.values() if 2 * _steps(layer) >= _steps(by_place)]
    leaves = sum([part.leaves.size for layer in stack for part in layer])
    least = MIN_LEAVES_OF_TWO if len(stack) == 2 else MIN_LEAVES
    least *= 2 if by_place[0].passes == Pass.GRADIENTS else 1  # two products for each
    return len(stack) > 1 and _steps(by_place) < in_turns and leaves >= least * sum(map(_steps, stack))


def _steps(groups: list[Group]) -> int:
    """The length of the longest chain of parts of one group."""
    return max(group.step for group in groups) + 1


def _is_cyclic(component: list[Group]) -> bool:
    return len(component) > 1 or bool(np.isin(component[0].leaves, component[0].roots).any())


@dataclass(frozen=True)
class _Root:
    """A root of a component: what it reads, and where it is among the component's groups.

    `stored` is the node, or the array with padding that it is an element of.
    """

    node: int
    stored: int
    group: int
    row: int
    reads: list[int]


def _by_depth(size: int, component: list[Group], array_of: dict[int, int], is_layer: bool = False) -> list[Group]:
    """Splits the groups of one component so that none depends on itself: by the longest path inside it.

    Where chains of steps differ in length, as in a sum over paths, whose first state takes one addition a step and the
    others a logarithm of sums, steps of the shorter one are as late as what reads them allows, if more parts then
    follow one another as others do. A sum that reads just the padding of an array is as deep as those that read its
    values.
    """
    if not _is_cyclic(component):
        return component
    stored = {n: -1 - array for n, array in array_of.items()}
    roots = [
        _Root(n, stored.get(n, n), g, row, [stored.get(leaf, leaf) for leaf in component[g].leaves[row].tolist()])
        for n, g, row in _roots_of(component)
    ]
    early = _earliest(roots)
    late = _latest(roots, early, is_layer)
    found = []
    for depth in (early, late) if late != early else (early,):
        rows: dict[tuple[int, int], list[int]] = {}
        for root in roots:
            rows.setdefault((root.group, depth[root.node]), []).append(root.row)
        found.append([replace(component[g].select(np.array(of)), step=step) for (g, step), of in rows.items()])
    return min(found, key=lambda parts: _neighbours(_in_order(size, parts))) if len(found) > 1 else found[0]


def _earliest(roots: list[_Root]) -> dict[int, int]:
    """The length of the longest path to each root."""
    found: dict[int, int] = {}
    known: dict[int, int] = {}
    for root in roots:
        found[root.node] = 1 + max(known.get(n, -1) for n in root.reads)
        known[root.stored] = max(known.get(root.stored, 0), found[root.node])
    return found


def _latest(roots: list[_Root], early: dict[int, int], is_layer: bool) -> dict[int, int]:
    """The same, but steps of a recurrence, which depend on others of their group, come right before what reads them.

    The first ones of a layer depend on others elsewhere.
    """
    found = dict(early)
    groups: dict[int, int] = {}  # that a root is of or depends on, as a set of bits
    steps: set[int] = set()
    for root in roots:
        above = 0
        for n in root.reads:
            above |= groups.get(n, 0)
        if above >> root.group & 1:
            steps.add(root.node)
        groups[root.stored] = groups.get(root.stored, 0) | above | 1 << root.group
    due: dict[int, int] = {}
    users: dict[int, int] = {}  # the same of what depends on a root
    for root in reversed(roots):
        below = users.get(root.stored, 0)
        if root.node in steps or (is_layer and below >> root.group & 1):
            found[root.node] = max(early[root.node], due.get(root.stored, 0))
        for n in root.reads:
            due[n] = min(due.get(n, found[root.node] - 1), found[root.node] - 1)
            users[n] = users.get(n, 0) | below | 1 << root.group
    return found


def _neighbours(groups: list[Group]) -> int:
    """How many kinds of groups that follow one another there are: few, if loops repeat."""
    kinds = [(group.shape, len(group.roots)) for group in groups]
    return len(set(pairwise(kinds)))


def _in_order(size: int, groups: list[Group]) -> list[Group]:
    """Topological order; among those that are ready, the group with the earliest node comes first.

    What several layers of a stack read, and needs none of them, comes in front: inside of one of them it would be what
    tells this layer from the others. Parameters' gradients come last: nothing reads them, and they are computed for
    many images at a time.
    """
    owner = computed_by(size, groups)
    reads = [_reads(owner, group) for group in groups]
    users: list[list[int]] = [[] for _ in groups]
    for i, others in enumerate(reads):
        for other in others:
            users[other].append(i)
    first = {group.passes: int(group.roots[0]) for group in sorted(groups, key=lambda group: -int(group.roots[0]))}

    # The shorter and longer sums of one kind come together, so that loops over them need nothing else inside.
    kinds = [group.kin or i for i, group in enumerate(groups)]
    earliest: dict[object, int] = {}
    for kind, group in zip(kinds, groups, strict=True):
        earliest[kind] = min(earliest.get(kind, size), int(group.roots[0]))

    def rank(i: int) -> tuple[bool, int, int, int]:
        passes = groups[i].passes
        is_ready = all(groups[other].passes != passes for other in reads[i])
        is_shared = is_ready and len({(groups[user].place, groups[user].step) for user in users[i]}) > 1
        node = first[passes] - 1 if is_shared else earliest[kinds[i]]
        return groups[i].is_gradient, node, int(groups[i].roots[0]), i

    waits = [len(others) for others in reads]
    ready = [rank(i) for i in range(len(groups)) if not waits[i]]
    heapq.heapify(ready)
    order: list[Group] = []
    while ready:
        *_, i = heapq.heappop(ready)
        order.append(groups[i])
        for user in users[i]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, rank(user))
    assert len(order) == len(groups), "a group depends on itself"
    return order
