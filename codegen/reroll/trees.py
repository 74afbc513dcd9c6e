"""ir -> expression trees: which nodes get storage, and what each of them computes from storage.

Example input (h0 is used twice more, the rest once):

    %6 = mul w00 x0        %7 = add b0 %6
    %8 = mul w01 x1        %9 = add %7 %8
    %10 = relu %9                                   (h0)

becomes one root:

    %10: relu(sum(P, 2 x mul(P, X)))  with the leaves  b0  w00 x0  w01 x1

A left spine of `add` (or of `max`) whose inner nodes have one use is one sum of ordered terms: the order of the
additions is preserved. A node that is used once is part of its user's tree. A node that is used more often, or
observed, or that would make a tree too large, is a *root*: it is computed once, into storage of its own. A sum of
three or more terms is accumulated in a loop, so it can only be at the top of a tree, or under unary ops at the top.

A root's *shape* is its tree with the leaves replaced by their kinds (P parameter, G old gradient, X input, T target,
C constant, R another root), equal neighbours in a sum counted. Shapes are interned: equal shape, equal number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from codegen.ir.graph import LEAVES, Graph, Op, op_name

ROOT_KIND = len(LEAVES)  # as a leaf: another root
KIND_LETTERS = {Op.PARAM: "P", Op.GRAD: "G", Op.INPUT: "X", Op.TARGET: "T", Op.CONST: "C", ROOT_KIND: "R"}
MAX_TREE = 16  # operations in one tree

# (op, shape) and (op, shape, shape) are trees, (op, ((shape, count), ...)) is a sum or a maximum of terms in order.
Shape = tuple[int, ...] | tuple[int, tuple[tuple[int, int], ...]]
Tree = tuple[int, tuple[int, ...], int]  # shape, leaves, operations in it


class Shapes:
    """The interned shapes. Leaf kinds are their own numbers; the shape of a tree is ROOT_KIND + 1 or larger."""

    def __init__(self) -> None:
        self._numbers: dict[Shape, int] = {}
        self._shapes: list[Shape] = []

    def intern(self, shape: Shape) -> int:
        number = self._numbers.get(shape)
        if number is None:
            number = self._numbers[shape] = len(self._shapes) + ROOT_KIND + 1
            self._shapes.append(shape)
        return number

    def __getitem__(self, number: int) -> Shape:
        return self._shapes[number - ROOT_KIND - 1]

    def is_leaf(self, number: int) -> bool:
        return number <= ROOT_KIND

    def terms(self, number: int) -> tuple[tuple[int, int], ...] | None:
        """The (shape, count) runs of a sum or maximum, None for anything else."""
        if not self.is_leaf(number):
            inner = self[number][1]
            if isinstance(inner, tuple):
                return inner
        return None

    def operands(self, number: int) -> list[int]:
        """The operand shapes of an op that is not a sum or maximum of runs."""
        return [x for x in self[number][1:] if isinstance(x, int)]

    def kinds(self, number: int) -> list[int]:
        """The kind of each leaf, in order; a run counts as one term."""
        if self.is_leaf(number):
            return [number]
        runs = self.terms(number)
        parts = [s for s, _ in runs] if runs is not None else self.operands(number)
        return [kind for part in parts for kind in self.kinds(part)]

    def text(self, number: int, constants: Iterator[str] | None = None) -> str:
        """`relu(sum(P, 784 x mul(P, X)))`. With `constants`, they replace the letter C, in order."""
        if number == Op.CONST and constants is not None:
            return next(constants)
        if self.is_leaf(number):
            return KIND_LETTERS[number]
        op = self[number][0]
        runs = self.terms(number)
        if runs is None:
            operands = [self.text(x, constants) for x in self.operands(number)]
            return f"{op_name(op)}({', '.join(operands)})"
        terms = [(count, self.text(s, constants)) for s, count in runs]
        listed = ", ".join(text if count == 1 else f"{count} x {text}" for count, text in terms)
        return f"{'sum' if op == Op.ADD else 'max'}({listed})"


@dataclass
class Trees:
    """The roots of a graph in topological order, with their shapes and their leaves (node numbers, in order)."""

    shapes: Shapes
    roots: list[int] = field(default_factory=list)
    shape_of: dict[int, int] = field(default_factory=dict)
    leaves_of: dict[int, tuple[int, ...]] = field(default_factory=dict)


def find_trees(graph: Graph) -> Trees:
    """Cuts a graph, all of whose nodes are live, into trees."""
    op, a, b, sums = graph.op, graph.a, graph.b, graph.sums
    nodes = _Nodes(graph)
    kind, inner, single, pending = nodes.kind, nodes.inner, nodes.single, nodes.pending
    trees = Trees(Shapes())
    intern = trees.shapes.intern
    # A node waits here until its only user has decided whether to inline it: shape, leaves, size (0: has a sum).
    waiting: dict[int, Tree] = {}

    def operand(n: int, sum_allowed: bool = False) -> Tree:
        if single[n]:  # built where it is used
            if b[n] < 0:
                return intern((op[n], kind[a[n]])), (a[n],), 1
            return intern((op[n], kind[a[n]], kind[b[n]])), (a[n], b[n]), 1
        tree = waiting.pop(n, None)
        if tree is None:
            return kind[n], (n,), 0
        if 0 < tree[2] <= MAX_TREE or (tree[2] == 0 and sum_allowed):
            return tree
        trees.shape_of[n], trees.leaves_of[n], _ = tree
        return ROOT_KIND, (n,), 0

    for n in np.flatnonzero(nodes.visited).tolist():
        o, left, right = op[n], a[n], b[n]
        top = sums[n][0] if n in sums else -1
        if (inner[left] and op[left] == o) or top == o or (top >= 0 and o == Op.DETACH):
            terms = [right] if right >= 0 else []
            while inner[left] and op[left] == o:
                terms.append(b[left])
                left = a[left]
            terms.append(left)
            parts = [operand(term) for term in reversed(terms)]
            runs = tuple([(s, len(list(same))) for s, same in groupby([part[0] for part in parts])])
            tree = (intern((o if top < 0 else top, runs)), tuple([leaf for part in parts for leaf in part[1]]), 0)
        elif right >= 0:
            s, s_leaves, s_size = operand(left)
            t, t_leaves, t_size = operand(right)
            tree = (intern((o, s, t)), s_leaves + t_leaves, s_size + t_size + 1)
            if top >= 0:
                tree = (intern((top, ((tree[0], 1),))), tree[1], 0)
        else:
            s, leaves, size = operand(left, sum_allowed=True)
            has_sum = size == 0 and trees.shapes.terms(_innermost(trees.shapes, s)) is not None
            tree = (intern((o, s)), leaves, 0 if has_sum else size + 1)
        if pending[n]:
            waiting[n] = tree
        else:
            trees.shape_of[n], trees.leaves_of[n], _ = tree
    assert not waiting, "a node without users"
    for n in graph.roots():
        if op[n] in LEAVES:
            trees.shape_of[n], trees.leaves_of[n] = op[n], (n,)
    trees.roots = sorted(trees.shape_of)
    return trees


def _innermost(shapes: Shapes, shape: int) -> int:
    """What is left of a shape without the unary ops on top."""
    while not shapes.is_leaf(shape) and len(shapes[shape]) == 2 and shapes.terms(shape) is None:
        shape = shapes[shape][1]  # type: ignore[assignment]
    return shape


class _Nodes:
    """What is known about each node before the graph is cut, one byte per node.

    kind      as a leaf of a tree: its own op, or another root
    inner     inside a left spine: has no tree of its own
    pending   its only user decides whether it is a root
    single    pending, and its operands are leaves or roots: its tree is one operation
    visited   the other operations
    """

    def __init__(self, graph: Graph) -> None:
        op, a, b = graph.columns()
        operation, binary = op > Op.TARGET, b >= 0
        used_once = graph.used_once()
        inner = graph.inner_terms(used_once)
        pending = operation & used_once & ~inner
        undecided = pending | inner
        single = pending.copy()
        single[[*graph.sums]] = False
        single[operation] &= ~undecided[a[operation]]
        single[binary] &= ~undecided[b[binary]]
        self.kind = bytes(np.where(operation, np.uint8(ROOT_KIND), op))
        self.inner, self.pending, self.single = bytes(inner), bytes(pending), bytes(single)
        self.visited = operation & ~inner & ~single
