"""Nodes and derivative rules -> C expressions, for what writes one statement a node.

Example input, where %0 is a parameter and %1 an input:

    %2 = mul %0 %1

becomes what the node computes, and what it adds to the adjoint of its first operand:

    data[0] * value[0]
    value[0] * value[7]

Where operands and adjoints stand is the business of a subclass: `straightline` has arrays for a whole Program,
`statements` numbers the Values of a graph.
"""

from __future__ import annotations

from codegen.backends.arithmetic import Arithmetic
from codegen.ir.graph import Graph, Op
from codegen.ir.ops import C, Rule


class Texts:
    """The expressions of one graph, which only grows meanwhile."""

    def __init__(self, graph: Graph, arithmetic: Arithmetic) -> None:
        self.graph, self.literal = graph, arithmetic.literal
        self.size = len(graph)

    def operand(self, n: int) -> str:
        """A node where it is used: one C primary expression."""
        raise NotImplementedError

    def adjoint(self, n: int) -> str:
        """The variable that a node's adjoint is accumulated in."""
        raise NotImplementedError

    def template(self, op: Op) -> str:
        return C[op]

    def definition(self, n: int) -> str:
        """What an operation computes from its operands."""
        graph = self.graph
        return self.template(Op(graph.op[n])).format(*(self.operand(x) for x in (graph.a[n], graph.b[n]) if x >= 0))

    def contribution(self, n: int, rule: Rule) -> str:
        """What a rule adds to an operand's adjoint: its ir, written into the graph, read as C and taken back."""
        graph = self.graph
        g = graph.add(Op.DETACH, n)  # stands for the adjoint of n
        text = self._tree(rule(graph, n, g), g, n)
        for column in (graph.op, graph.a, graph.b):
            del column[self.size :]
        return text

    def _tree(self, n: int, g: int, node: int) -> str:
        if n == g:
            return self.adjoint(node)
        if n < g:
            return self.operand(n)
        graph = self.graph
        op = Op(graph.op[n])
        if op == Op.CONST:
            return self.operand(n)
        parts = []
        for x in (graph.a[n], graph.b[n]):
            if x >= 0:
                text = self._tree(x, g, node)
                parts.append(f"({text})" if x > g and graph.op[x] in (Op.ADD, Op.MUL) else text)
        return self.template(op).format(*parts)
