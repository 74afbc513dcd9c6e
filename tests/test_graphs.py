"""Passes that change a bit, leave work behind, or recurse: on random graphs, and on a very deep one."""

from __future__ import annotations

import math
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen import Floats, Program, compile_program
from codegen.ir.graph import LEAVES, Graph, Op, graph_text, verify
from codegen.passes import simplify
from codegen.reference.interpret import interpret
from micrograd import ops
from micrograd.engine import Value

INF, NAN = math.inf, math.nan
BUILT_IN = [row.number for row in ops.ROWS if not row.is_registered]  # without what other tests register


@st.composite
def graphs(draw) -> Graph:
    """Any graph: two leaves of each kind, then operations on whatever stands before them."""
    graph = Graph()
    for op in sorted(LEAVES - {Op.CONST}):
        graph.add(op, 0)
        graph.add(op, 1)
    for number in draw(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, NAN]), max_size=4)):
        graph.const(number)
    back = st.integers(1, 8)  # how far back an operand is: deep graphs, and chains of nodes that nothing reads
    for op, x, y in draw(st.lists(st.tuples(st.sampled_from(BUILT_IN), back, back), min_size=1)):
        size = len(graph)
        graph.add(op, size - x, size - y if ops.ARITY[op] == 2 else -1)
    graph.loss = len(graph) - 1 - draw(st.integers(0, 3))
    graph.outputs = {"o": draw(st.lists(st.integers(0, len(graph) - 1), max_size=3))}
    verify(graph)
    return graph


def operands(graph: Graph, n: int) -> list[int]:
    return [] if graph.op[n] in LEAVES else [x for x in (graph.a[n], graph.b[n]) if x >= 0]


@given(graphs())
@settings(deadline=None)
def test_reachable_is_what_a_walk_from_the_roots_visits(graph):
    visited, stack = set(), list(graph.roots())
    while stack:
        n = stack.pop()
        visited.add(n)
        stack += operands(graph, n)
    assert list(graph.reachable(*graph.roots())) == [int(n in visited) for n in range(len(graph))]
    assert not any(graph.reachable())


@given(graphs())
@settings(deadline=None)
def test_use_counts(graph):
    counts = Counter(x for n in range(len(graph)) for x in operands(graph, n))
    assert graph.use_counts(len(graph)).tolist() == [counts[n] for n in range(len(graph))]


@given(graphs())
@settings(deadline=None)
def test_simplify_keeps_every_bit_and_leaves_nothing_to_do(graph):
    before = graph_text(graph)
    small = simplify.simplify(graph)
    assert graph_text(graph) == before
    verify(small)
    assert all(small.reachable(*small.roots()))
    assert graph_text(simplify.simplify(small)) == graph_text(small)
    nodes = [(small.op[n], small.a[n], small.b[n]) for n in range(len(small))]
    assert len(set(nodes)) == len(nodes)
    leaves = ([0.5, -2.0], [0.25, 3.0], [1.5, -0.0], [INF, 1e-310])
    want, found = interpret(graph, *leaves), interpret(small, *leaves)
    for old, new in zip(graph.roots(), small.roots(), strict=True):
        assert want[old].hex() == found[new].hex()


@pytest.mark.slow
def test_no_pass_recurses():
    """And the C grows with the graph, no faster."""
    x = w = Value(0.5)
    constant = Value(0.5)
    for _ in range(3 * sys.getrecursionlimit()):
        x = (x * w).tanh()
        constant = constant * 0.99
    step = Program(inputs=Floats([]), targets=None, parameters={"w": w}, loss=x + constant)
    compiled = compile_program(step)
    graph = compiled.graph
    assert len(graph) > 20_000
    assert compiled.text.count("\n") < 2 * len(graph)
    assert Counter(graph.op)[Op.CONST] == len(graph.constants) == 3  # the folded one, and those of tanh's derivative
