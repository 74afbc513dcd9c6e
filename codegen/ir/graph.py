"""The intermediate representation: one training step as a list of scalar operations.

    graph   = node*                       in topological order: operands come before their users
    node    = leaf | op operand [operand]
    leaf    = const bits                  a number
            | param i                     parameter i, in parameters() order
            | grad i                      the gradient of parameter i as it was before this backward pass
            | input i                     input i, after scaling
            | target i                    target i: an element of the one-hot label, or a number
    op      = add | mul | pow | ...       unary or binary: the rows of the op table, micrograd.ops
                                          a constant exponent of pow is an ordinary const operand

A node is three small integers: its op and its operands' numbers (`a` holds a leaf's index or constant number).
Everything is a float64. `micrograd.ops` says what each op computes, how it is differentiated and how it reads in C.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from struct import pack
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from micrograd import ops


class Op:
    """Op numbers: those of the leaves, and those of the table's ops that passes refer to by name."""

    CONST = 0
    PARAM = 1
    GRAD = 2
    INPUT = 3
    TARGET = 4
    ADD: ClassVar[int] = ops.add.number
    MUL: ClassVar[int] = ops.mul.number
    DIV: ClassVar[int] = ops.divide.number
    POW: ClassVar[int] = ops.power.number
    SQRT: ClassVar[int] = ops.sqrt.number
    MAX: ClassVar[int] = ops.maximum.number
    DETACH: ClassVar[int] = ops.detach.number


LEAVES = frozenset(range(ops.FIRST))
CHAINS = (Op.ADD, Op.MAX)  # left spines of these are sums and maxima of terms in order


def op_name(op: int) -> str:
    """The name in the text of the ir: "add"."""
    return ops.IR_LEAVES[op] if op in LEAVES else ops.row(op).name


Column = npt.NDArray[np.intc]
Ints = npt.NDArray[np.int64]


@dataclass
class Padded:
    """Copies that are stored as one array, and where in it: see codegen/passes/padding.py."""

    nodes: list[int]
    places: list[int]


@dataclass
class Graph:
    """The nodes as columns, and which of them are observable.

    `loss` is a node, or -1 in a model that only predicts. `outputs` names lists of nodes, `metrics` nodes. `gradients`
    maps a parameter to the node that is its new gradient; a parameter that is missing there keeps its gradient.
    `input_gradients` maps an input to the loss's derivative by it; without an entry, that is 0 or nobody asked for it.
    `padded` are not observable, but stored; so are `stored`. `sums` has for some nodes ADD or MAX and the number of a
    kind: however few terms these have, they are sums, as the others of their kind: see codegen/passes/short_sums.py.
    """

    op: bytearray = field(default_factory=bytearray)
    a: array[int] = field(default_factory=lambda: array("i"))
    b: array[int] = field(default_factory=lambda: array("i"))
    constants: list[float] = field(default_factory=list)
    loss: int = -1
    outputs: dict[str, list[int]] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)
    gradients: dict[int, int] = field(default_factory=dict)
    input_gradients: dict[int, int] = field(default_factory=dict)
    padded: list[Padded] = field(default_factory=list)
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)
    _constant_numbers: dict[bytes, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.op)

    def add(self, op: int, a: int, b: int = -1) -> int:
        """Appends a node and returns its number."""
        self.op.append(op)
        self.a.append(a)
        self.b.append(b)
        return len(self.op) - 1

    def const(self, value: float) -> int:
        """Appends a constant."""
        return self.add(Op.CONST, self.constant_number(value))

    def constant_number(self, value: float) -> int:
        """The number of a constant, interned by its bits: 0.0 and -0.0 differ, and a nan equals itself."""
        value = float(value)
        key = pack("<d", value)
        number = self._constant_numbers.get(key)
        if number is None:
            number = self._constant_numbers[key] = len(self.constants)
            self.constants.append(value)
        return number

    def roots(self) -> Iterator[int]:
        """Every observable node."""
        if self.loss >= 0:
            yield self.loss
        for nodes in self.outputs.values():
            yield from nodes
        for named in (self.metrics, self.gradients, self.input_gradients):
            yield from named.values()

    def observe(self, graph: Graph, new: Sequence[int]) -> None:
        """Takes over the observables of another graph under their new numbers, and what is padded, except for a -1."""
        self.loss = new[graph.loss] if graph.loss >= 0 else -1
        self.outputs = {name: [new[n] for n in nodes] for name, nodes in graph.outputs.items()}
        self.metrics = {name: new[n] for name, n in graph.metrics.items()}
        self.gradients = {parameter: new[n] for parameter, n in graph.gradients.items()}
        self.input_gradients = {i: new[n] for i, n in graph.input_gradients.items()}
        self.padded = []
        for padded in graph.padded:
            left = [(new[n], place) for n, place in zip(padded.nodes, padded.places, strict=True) if new[n] >= 0]
            self.padded += [Padded([n for n, _ in left], [place for _, place in left])] if left else []

    def copies(self) -> Iterator[int]:
        """The nodes of all padded arrays."""
        for padded in self.padded:
            yield from padded.nodes

    def columns(self) -> tuple[npt.NDArray[np.uint8], Column, Column]:
        """op, a and b for NumPy, without a copy: no node can be added while one of these views is alive."""
        return np.frombuffer(self.op, np.uint8), np.frombuffer(self.a, np.intc), np.frombuffer(self.b, np.intc)

    def use_counts(self, size: int) -> npt.NDArray[np.int64]:
        """How often each of the first `size` nodes is an operand of one of them."""
        op, a, b = (column[:size] for column in self.columns())
        return np.bincount(a[op > Op.TARGET], minlength=size) + np.bincount(b[b >= 0], minlength=size)

    def used_once(self) -> npt.NDArray[np.bool_]:
        """For each node whether one node reads it, once, and nothing else does: it need not be stored."""
        found: npt.NDArray[np.bool_] = self.use_counts(len(self)) == 1
        found[[*self.roots(), *self.copies(), *self.stored]] = False
        return found

    def inner_terms(self, used_once: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """For each node whether it is inside a left spine of additions, or of maxima."""
        op, a, _ = self.columns()
        inner = np.zeros(len(op), dtype=bool)
        for chain in CHAINS:
            below = a[op == chain]
            inner[below[(op[below] == chain) & used_once[below]]] = True
        return inner

    def reachable(self, *roots: int) -> bytearray:
        """For each node, 1 where one of the roots depends on it (a root depends on itself), else 0.

        Works by elimination: unused nodes go first, then those that only they used, and so on. Few nodes are
        unreachable as a rule, so few are visited individually.
        """
        size = max(roots, default=-1) + 1  # no root depends on what comes later
        counts = self.use_counts(size)
        np.add.at(counts, list(roots), 1)
        unused = np.flatnonzero(counts == 0).tolist()
        uses = counts.tolist() if unused else []
        seen = bytearray(b"\1" * size + b"\0" * (len(self) - size))
        op, a, b = self.op, self.a, self.b
        last_leaf = int(Op.TARGET)
        while unused:
            n = unused.pop()
            seen[n] = 0
            for operand in (a[n], b[n]) if op[n] > last_leaf else ():
                if operand >= 0:
                    uses[operand] -= 1
                    if not uses[operand]:
                        unused.append(operand)
        return seen


def linked(sets: Iterable[Sequence[int]]) -> Callable[[int], int]:
    """Union-find: a number for each, the same for those that are in a set together, directly or through others."""
    parent: dict[int, int] = {}

    def root(n: int) -> int:
        while parent.setdefault(n, n) != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for first, *others in filter(len, sets):
        for other in others:
            parent[root(other)] = root(first)
    return root


def with_copies(graph: Graph, sources: Ints) -> tuple[Graph, Ints, Ints]:
    """A new graph in which copies of nodes stand behind these; the new numbers of old nodes, and those of copies."""
    order = np.argsort(sources, kind="stable")
    after, nodes = sources[order], np.arange(len(graph))
    new = nodes + np.searchsorted(after, nodes)
    copies = np.zeros(len(sources), np.int64)
    copies[order] = new[after] + 1 + np.arange(len(after)) - np.searchsorted(after, after)
    old_op, old_a, old_b = graph.columns()
    inner, binary = old_op > Op.TARGET, old_b >= 0
    size = len(graph) + len(sources)
    op, a, b = np.full(size, Op.DETACH, np.uint8), np.zeros(size, np.intc), np.full(size, -1, np.intc)
    op[new], a[new] = old_op, np.where(inner, new[old_a], old_a)
    a[copies], b[new[binary]] = new[sources], new[old_b[binary]]
    columns = bytearray(op.tobytes()), array("i", a.tobytes()), array("i", b.tobytes())
    out = replace(graph, op=columns[0], a=columns[1], b=columns[2], sums={}, stored=set())
    out.observe(graph, new.tolist())
    return out, new, copies


def used_rows(*graphs: Graph) -> list[ops.Row]:
    """The rows of the op table that graphs use, in the order of the table."""
    return [ops.row(op) for op in sorted({op for graph in graphs for op in graph.op} - LEAVES)]


def node_text(graph: Graph, n: int) -> str:
    """One node as the printer, the dumps and the errors show it: `%7 = mul %3 %5`."""
    op = graph.op[n]
    if op == Op.CONST:
        number = graph.a[n]
        known = 0 <= number < len(graph.constants)
        return f"%{n} = const {repr(graph.constants[number]) if known else f'number {number}'}"
    if op in LEAVES:
        return f"%{n} = {op_name(op)} {graph.a[n]}"
    operands = (graph.a[n], graph.b[n])[: ops.row(op).arity]
    return f"%{n} = {op_name(op)} {' '.join(f'%{x}' for x in operands)}"


def graph_lines(graph: Graph) -> Iterator[str]:
    """The whole graph, one node a line, then one line for each observable."""
    for n in range(len(graph)):
        yield node_text(graph, n)
    if graph.loss >= 0:
        yield f"loss %{graph.loss}"
    for name, nodes in graph.outputs.items():
        yield f"output {name} {' '.join(f'%{n}' for n in nodes)}"
    for name, n in graph.metrics.items():
        yield f"metric {name} %{n}"
    for parameter, n in graph.gradients.items():
        yield f"gradient {parameter} %{n}"
    for i, n in graph.input_gradients.items():
        yield f"gradient of input {i} %{n}"


def graph_text(graph: Graph) -> str:
    return "\n".join(graph_lines(graph)) + "\n"


def verify(graph: Graph) -> None:
    """Raises ValueError, with the node's text, for anything that is not a legal graph."""
    if not len(graph.op) == len(graph.a) == len(graph.b):
        raise ValueError(f"columns of unequal length: {len(graph.op)}, {len(graph.a)}, {len(graph.b)}")
    op, a, b = graph.columns()
    number = np.arange(len(op))
    a_before, b_before, no_b = (a >= 0) & (a < number), (b >= 0) & (b < number), b == -1
    leaf = no_b & (a >= 0) & ((op != Op.CONST) | (a < len(graph.constants)))
    arity = np.array(ops.ARITY + [-1] * (ops.MAX_OPS - ops.count()))[op]  # -1: no such op
    legal = np.select([arity == 0, arity == 1, arity == 2], [leaf, a_before & no_b, a_before & b_before], False)
    if not legal.all():
        n = int(legal.argmin())
        if arity[n] < 0:
            raise ValueError(f"%{n}: no such op: {graph.op[n]}")
        if arity[n] == 0:
            raise ValueError(f"a leaf with a bad index: {node_text(graph, n)}")
        raise ValueError(f"operands must come before their user: {node_text(graph, n)}")
    for root in graph.roots():
        if not 0 <= root < len(op):
            raise ValueError(f"an observable that is not a node: %{root}")


class Node(ops.Operand):
    """A node whose arithmetic appends to its graph: a partial derivative evaluated on Nodes emits its own ir."""

    __slots__ = ("graph", "n")

    def __init__(self, graph: Graph, n: int) -> None:
        self.graph, self.n = graph, n

    def _from_op(self, op: ops.Row, operands: Sequence[Any]) -> Node:
        numbers = [x.n if isinstance(x, Node) else self.graph.const(x) for x in operands]
        return Node(self.graph, self.graph.add(op.number, *numbers))

    def _constant(self, number: float) -> Node:
        return Node(self.graph, self.graph.const(number))
