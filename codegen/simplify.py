"""Drops what is not needed: constants folded, repeated nodes merged, dead nodes left out. No bit changes.

Example input:

    %0 = param 0
    %1 = const 2.0
    %2 = const 3.0
    %3 = mul %1 %2
    %4 = mul %0 %3
    %5 = mul %0 %3
    %6 = add %4 %5

becomes:

    %0 = param 0
    %1 = const 6.0
    %2 = mul %0 %1
    %3 = add %2 %2

Two nodes are one when op and operands are (a + b and b + a are two: which one would name the other is not worth a
rule). x * 1, x + -0.0 and x**1 are x. x + 0.0 stays: it turns -0.0 into 0.0. x * 0.0 stays: it may be nan.
"""

from struct import pack

from codegen.ir import BINARY, LEAVES, Graph, Op
from codegen.ops import PYTHON

_MINUS_ZERO = pack("<d", -0.0)


def simplify(graph: Graph) -> Graph:
    """A new graph that computes the same observables, with the live nodes in the same order."""
    out = Graph()
    live = graph.reachable(*graph.roots())
    binary = {int(op) for op in BINARY}
    leaves = {int(op) for op in LEAVES}
    known: dict[int, int] = {}
    new = [-1] * len(graph)
    for n in range(len(graph)):
        if not live[n]:
            continue
        op, a, b = graph.op[n], graph.a[n], graph.b[n]
        if op in leaves:
            if op == Op.CONST:
                a = out.constant_number(graph.constants[a])
        else:
            a = new[a]
            if op in binary:
                b = new[b]
            same = _replacement(out, op, a, b)
            if same >= 0:
                new[n] = same
                continue
            folded = _folded(out, op, a, b)
            if folded is not None:
                op, a, b = Op.CONST, out.constant_number(folded), -1
        key = (op << 64) | (a << 32) | (b + 1)
        number = known.get(key)
        if number is None:
            number = known[key] = out.add(op, a, b)
        new[n] = number
    out.loss = new[graph.loss]
    out.outputs = {name: [new[n] for n in nodes] for name, nodes in graph.outputs.items()}
    out.gradients = {parameter: new[n] for parameter, n in graph.gradients.items()}
    # Folding leaves operands behind that nothing uses any more.
    return out if all(out.reachable(*out.roots())) else simplify(out)


def _replacement(out: Graph, op: int, a: int, b: int) -> int:
    """The operand that a node always equals, or -1."""
    if op == Op.DETACH:
        return a
    if op == Op.POW and out.op[b] == Op.CONST and out.constants[out.a[b]] == 1.0:
        return a
    if op in (Op.ADD, Op.MUL):
        for x, other in ((a, b), (b, a)):
            if out.op[x] == Op.CONST:
                value = out.constants[out.a[x]]
                if value == 1.0 if op == Op.MUL else pack("<d", value) == _MINUS_ZERO:
                    return other
    return -1


def _folded(out: Graph, op: int, a: int, b: int) -> float | None:
    if out.op[a] != Op.CONST or (b >= 0 and out.op[b] != Op.CONST):
        return None
    operands = [out.constants[out.a[x]] for x in (a, b) if x >= 0]
    return PYTHON[Op(op)](*operands)
