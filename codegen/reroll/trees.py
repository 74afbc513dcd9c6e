"""ir -> expression trees: which nodes get storage, and what each of them computes from storage.

Example input (h0 is used twice more, the rest once):

    %6 = mul w00 x0        %7 = add b0 %6
    %8 = mul w01 x1        %9 = add %7 %8
    %10 = relu %9                                   (h0)

becomes one root:

    %10: relu(sum(P, 2 x mul(P, X)))  with the leaves  b0  w00 x0  w01 x1

A left spine of `add` (or of `max`) whose inner nodes have one use is one sum of ordered terms: the order of the
additions is preserved. A node that is used once is part of its user's tree. A node that is used more often, or
observed, or that would make a tree too large, is a *root*: it is computed once, into storage of its own; but each user
computes the products of large tables again. A sum of three or more terms is accumulated in a loop, so it can only be at
the top of a tree, or under unary ops at the top.

A root's *shape* is its tree with the leaves replaced by their kinds (P parameter, G old gradient, X input, T target,
C constant, R another root), equal neighbours in a sum counted. Shapes are interned: equal shape, equal number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import LEAVES, Graph, Op, op_name

ROOT_KIND = len(LEAVES)  # as a leaf: another root
KIND_LETTERS = {Op.PARAM: "P", Op.GRAD: "G", Op.INPUT: "X", Op.TARGET: "T", Op.CONST: "C", ROOT_KIND: "R"}
MAX_TREE = 16  # operations in one tree
FEWEST_OUTER = 8  # products of each number in a table of products that is not stored
FEWEST_PRODUCTS = 4096  # what fits a first-level cache is stored

# (op, shape) and (op, shape, shape) are trees, (op, ((shape, count), ...)) is a sum or a maximum of terms in order.
Shape = tuple[int, ...] | tuple[int, tuple[tuple[int, int], ...]]
# Shape, leaves, operations, and whether a sum is below these, whose own additions do not count.
Tree = tuple[int, tuple[int, ...], int, bool]


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
    trees = Trees(Shapes())
    _Cut(graph, trees).all()
    for n in graph.roots():
        if graph.op[n] in LEAVES:
            trees.shape_of[n], trees.leaves_of[n] = graph.op[n], (n,)
    trees.roots = sorted(trees.shape_of)
    return trees


class _Cut:
    """Visits operations in order, and adds the trees of those that turn out to be roots.

    A node with a single user waits, with its tree, until that user takes the tree as a part of its own, or makes the
    node a root.
    """

    def __init__(self, graph: Graph, trees: Trees) -> None:
        self.graph, self.trees, self.nodes = graph, trees, _Nodes(graph)
        self.intern = trees.shapes.intern
        self.waiting: dict[int, Tree] = {}

    def all(self) -> None:
        pending = self.nodes.pending
        for n in np.flatnonzero(self.nodes.visited).tolist():
            tree = self.tree(n)
            if pending[n]:
                self.waiting[n] = tree
            else:
                self.add_root(n, tree)
        assert not self.waiting, "a node without users"

    def add_root(self, n: int, tree: Tree) -> None:
        self.trees.shape_of[n], self.trees.leaves_of[n], *_ = tree

    def tree(self, n: int) -> Tree:
        """A node's own tree. Marked as a sum (`Graph.sums`), an expression is one of a single term, a copy too."""
        o, left, right = self.graph.op[n], self.graph.a[n], self.graph.b[n]
        is_marked, op = n in self.graph.sums, self.graph.sums.get(n, (o,))[0]
        if self.is_inside(left, o) or (is_marked and o in (op, Op.DETACH)):
            return self.sum(op, self.spine(n))
        if right < 0:
            shape, leaves, size, has_sum = self.operand(left, sum_allowed=True)
            return self.intern((o, shape)), leaves, size + 1, has_sum
        s, s_leaves, s_size, _ = self.operand(left)
        t, t_leaves, t_size, _ = self.operand(right)
        shape, leaves = self.intern((o, s, t)), s_leaves + t_leaves
        if is_marked:
            return self.intern((op, ((shape, 1),))), leaves, 0, True
        return shape, leaves, s_size + t_size + 1, False

    def sum(self, op: int, terms: list[int]) -> Tree:
        """Terms that are added, or of which the largest is taken, in order."""
        parts = [self.operand(term) for term in terms]
        runs = tuple([(shape, len(list(same))) for shape, same in groupby([part[0] for part in parts])])
        return self.intern((op, runs)), tuple([leaf for part in parts for leaf in part[1]]), 0, True

    def spine(self, n: int) -> list[int]:
        """The terms on the left spine below a node, the first one first."""
        op, a, b = self.graph.op, self.graph.a, self.graph.b
        terms = [b[n]] if b[n] >= 0 else []
        below = a[n]
        while self.is_inside(below, op[n]):
            terms.append(b[below])
            below = a[below]
        return [below, *reversed(terms)]

    def is_inside(self, n: int, op: int) -> bool:
        """Whether a left operand of an op continues its spine."""
        return bool(self.nodes.inner[n]) and self.graph.op[n] == op

    def operand(self, n: int, sum_allowed: bool = False) -> Tree:
        """The tree of an operand where it is read: a leaf if it has storage of its own, which may be decided here."""
        kind, op, a, b = self.nodes.kind, self.graph.op, self.graph.a, self.graph.b
        if self.nodes.single[n]:  # built where it is used
            if b[n] < 0:
                return self.intern((op[n], kind[a[n]])), (a[n],), 1, False
            return self.intern((op[n], kind[a[n]], kind[b[n]])), (a[n], b[n]), 1, False
        tree = self.waiting.pop(n, None)
        if tree is None:
            return kind[n], (n,), 0, False
        *_, size, has_sum = tree
        if size <= MAX_TREE and (sum_allowed or not has_sum):
            return tree
        self.add_root(n, tree)
        return ROOT_KIND, (n,), 0, False


class _Nodes:
    """What is known about each node before the graph is cut, one byte per node.

    kind      as a leaf of a tree: its own op, or another root
    inner     inside a left spine: has no tree of its own
    pending   its only user decides whether it is a root
    single    pending, and its operands are leaves or roots: its tree is one operation; or one of a table of products
    visited   the other operations
    """

    def __init__(self, graph: Graph) -> None:
        op, a, b = graph.columns()
        operation, binary = op > Op.TARGET, b >= 0
        used_once = graph.used_once()
        inner = graph.inner_terms(used_once)
        pending = operation & used_once & ~inner
        undecided = pending | inner
        outer = _outer_products(graph, undecided)
        undecided |= outer
        single = pending.copy()
        single[[*graph.sums]] = False
        single[operation] &= ~undecided[a[operation]]
        single[binary] &= ~undecided[b[binary]]
        single |= outer
        self.kind = bytes(np.where(operation, np.uint8(ROOT_KIND), op))
        self.inner, self.pending, self.single = bytes(inner), bytes(pending), bytes(single)
        self.visited = operation & ~inner & ~single


def _outer_products(graph: Graph, undecided: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether each node is one of a large table of products, as b[j] * adjoint[i] is, that is not stored.

    Each number of either side is in FEWEST_OUTER of these at least: reading it again takes less than storing them. Only
    products read them, and gradients of parameters: what other sums share, they gain from. `undecided`: nodes that may
    have no storage.
    """
    op, a, b = graph.columns()
    size, is_product = len(graph), op == Op.MUL
    read = [a[is_product], b[is_product]]
    sums = np.array([*graph.gradients.values()], np.int64)
    while len(sums := sums[op[sums] == Op.ADD]):
        read.append(b[sums])
        sums = a[sums]
    uses = graph.use_counts(size)
    found = uses > 1
    found[[*graph.stored]] = True  # used once, where others of the table are used more often
    found &= is_product & (uses == np.bincount(np.concatenate(read), minlength=size))
    found[[*graph.roots(), *graph.copies(), *graph.sums]] = False
    nodes, is_free = np.flatnonzero(found), undecided | found
    nodes = nodes[~is_free[a[nodes]] & ~is_free[b[nodes]]]
    often = np.bincount(np.concatenate([a[nodes], b[nodes]]), minlength=size) >= FEWEST_OUTER
    nodes = nodes[often[a[nodes]] & often[b[nodes]]]
    found[:] = False
    found[nodes] = len(nodes) >= FEWEST_PRODUCTS
    return found
