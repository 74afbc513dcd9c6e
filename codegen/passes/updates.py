"""The rules of a Program -> ir: what a step computes once, what it computes for each parameter, and what it may skip.

Example input, sgd() with a weight decay:

    p - rate * (g + 0.1 * p)

becomes, with `input 0 .. 2` for step, rate and norm in `once`, and for the numbers that `once` computes in `each`:

    once    %0 = input 1                    number %0
    each    %0 = param 0
            %1 = grad 0
            %2 = input 0
            ...                             p %9

A rule has one parameter (`param 0`) with one gradient (`grad 0`); the numbers of its state are `target 0`, `target 1`,
and so on. With the gradient 0.0 a rule may leave a parameter and its state as they are, whatever they are. Then rows of
zeros can be skipped: `kept` lists what numbers must equal for that, by bits. It depends on the learning rate, for
instance: p - rate * 0.0 is p, but for p = -0.0 only if the rate is not negative. If there is no such list, `kept` is
None, as with momentum.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from struct import pack

import numpy as np

from codegen.ir.graph import Graph, Op, verify
from codegen.passes.powers import expand_powers
from codegen.passes.simplify import simplify
from codegen.passes.trace import Leaves, number_values
from codegen.program import Program
from micrograd import optim
from micrograd.engine import Value

PARAMETER, STATE, NUMBERS, CONDITIONS = "p", "state", "numbers", "conditions"


@dataclass(frozen=True)
class Update:
    """A rule as ir.

    `once` has the output NUMBERS, `each` the outputs PARAMETER and STATE, and CONDITIONS: nodes that depend on numbers
    alone, and equal the constants in `kept` if a gradient of 0.0 changes nothing.
    """

    rule: optim.Rule
    number: int
    once: Graph
    each: Graph
    kept: tuple[float, ...] | None
    first_number: int = 0  # of its numbers among those of all rules

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(self.rule.state)

    @property
    def numbers(self) -> int:
        return len(self.once.outputs[NUMBERS])


@dataclass(frozen=True)
class Updates:
    """The rules of a Program, each once, and for each of its tensors the rule's number."""

    rules: tuple[Update, ...]
    of_tensor: tuple[int, ...]

    def of(self, tensor: int) -> Update:
        return self.rules[self.of_tensor[tensor]]

    @property
    def slots(self) -> int:
        """The most numbers that a parameter has as its state."""
        return max(len(update.slots) for update in self.rules)

    @property
    def takes_norm(self) -> bool:
        return any(update.rule.takes_norm for update in self.rules)

    def graphs(self) -> Iterable[Graph]:
        return chain.from_iterable((update.once, update.each) for update in self.rules)


def updates_of(program: Program) -> Updates | None:
    """The rules of a Program as ir; None for plain gradient descent, which csrc/ has by hand."""
    if not program.rules:  # or no parameters
        return None
    rules = list({id(rule): rule for rule in program.rules.values()}.values())
    numbers = {id(rule): i for i, rule in enumerate(rules)}
    found: list[Update] = []
    for i, rule in enumerate(rules):
        first = found[-1].first_number + found[-1].numbers if found else 0
        found.append(update_of(rule, i, first, program.dtype))
    return Updates(
        tuple(found),
        tuple([numbers[id(program.rules[tensor.name])] for tensor in program.tensors]),
    )


def update_of(rule: optim.Rule, number: int = 0, first_number: int = 0, dtype: str = "float64") -> Update:
    graph = traced_rule(rule, optim.TINY_FLOAT32 if dtype == "float32" else optim.TINY)
    if dtype == "float32":
        _check_constants(rule, graph)
    once, each = split(graph)
    each, kept = with_conditions(each)
    return Update(rule, number, once, each, kept, first_number)


def _check_constants(rule: optim.Rule, graph: Graph) -> None:
    """Raises ValueError for a constant that is 0 or inf in float32, and nothing of the kind in float64."""
    for constant in graph.constants:
        with np.errstate(over="ignore", under="ignore"):
            narrow = float(np.float32(constant))
        if isfinite(constant) and constant and not (narrow and isfinite(narrow)):
            raise ValueError(f"the rule {rule.name} has the constant {constant!r}, which is {narrow!r} in float32")


def traced_rule(rule: optim.Rule, tiny: float = optim.TINY) -> Graph:
    """The whole rule, simplified."""
    found = optim.traced(rule, tiny)
    graph = Graph()
    kinds: tuple[tuple[int, tuple[Value, ...]], ...] = (
        (Op.PARAM, (found.p,)),
        (Op.GRAD, (found.g,)),
        (Op.INPUT, found.of_step),
        (Op.TARGET, found.state),
    )
    leaves: Leaves = [(op, {id(value): i for i, value in enumerate(values)}) for op, values in kinds]
    numbers = number_values(graph, found.results, leaves)
    graph.outputs = {PARAMETER: [numbers[id(found.new_p)]], STATE: [numbers[id(x)] for x in found.new_state]}
    graph = simplify(expand_powers(graph))
    verify(graph)
    return graph


def split(graph: Graph) -> tuple[Graph, Graph]:
    """What depends on step, rate and norm alone, and the rest, which reads it as inputs."""
    shared = shared_nodes(graph)
    wanted = dict.fromkeys(chain.from_iterable(graph.outputs.values()))
    for n in range(len(graph)):
        if not shared[n]:
            wanted |= dict.fromkeys(operands(graph, n))
    numbers = [n for n in sorted(wanted) if shared[n] and graph.op[n] != Op.CONST]
    once, each = copied(graph), Graph()
    once.outputs = {NUMBERS: numbers}
    new: dict[int, int] = {}
    for n in range(len(graph)):
        if n in numbers:
            new[n] = each.add(Op.INPUT, numbers.index(n))
        elif not shared[n] or (graph.op[n] == Op.CONST and n in wanted):
            new[n] = append(each, graph, n, new)
    each.outputs = {name: [new[n] for n in nodes] for name, nodes in graph.outputs.items()}
    return simplify(once), simplify(each)


def with_conditions(each: Graph) -> tuple[Graph, tuple[float, ...] | None]:
    """The graph with the conditions under which a gradient of 0.0 changes nothing, and what they must equal."""
    still = copied(each)
    for n, op in enumerate(still.op):
        if op == Op.GRAD:
            still.op[n], still.a[n] = Op.CONST, still.constant_number(0.0)
    still = simplify(still)
    shared = shared_nodes(still)
    conditions: list[tuple[int, float]] = []
    results = [(still.outputs[PARAMETER][0], Op.PARAM, 0)]
    results += [(n, Op.TARGET, slot) for slot, n in enumerate(still.outputs[STATE])]
    for n, leaf, index in results:
        if not _is_kept(still, n, (leaf, index), shared, conditions):
            each.outputs[CONDITIONS] = []
            return each, None
    new: dict[int, int] = {}
    for n in range(len(still)):
        if shared[n]:
            new[n] = append(each, still, n, new)
    each.outputs[CONDITIONS] = [new[n] for n, _ in conditions]
    return each, tuple([value for _, value in conditions])


def _is_kept(
    graph: Graph, n: int, leaf: tuple[int, int], shared: bytearray, conditions: list[tuple[int, float]]
) -> bool:
    """Whether a node equals a leaf, whatever the leaf is, under conditions on shared nodes, which are added."""
    while (graph.op[n], graph.a[n]) != leaf:
        if graph.op[n] not in (Op.ADD, Op.MUL):
            return False
        neutral = -0.0 if graph.op[n] == Op.ADD else 1.0
        a, b = operands(graph, n)
        condition, n = (a, b) if shared[a] else (b, a)
        if not shared[condition]:
            return False
        if graph.op[condition] != Op.CONST:
            conditions.append((condition, neutral))
        elif pack("<d", graph.constants[graph.a[condition]]) != pack("<d", neutral):
            return False
    return True


def shared_nodes(graph: Graph) -> bytearray:
    """For each node 1 if it depends on constants and inputs alone, so that it is the same for all parameters."""
    shared = bytearray(len(graph))
    for n, op in enumerate(graph.op):
        shared[n] = op in (Op.CONST, Op.INPUT) if op <= Op.TARGET else all(shared[x] for x in operands(graph, n))
    return shared


def operands(graph: Graph, n: int) -> tuple[int, ...]:
    if graph.op[n] <= Op.TARGET:
        return ()
    return (graph.a[n],) if graph.b[n] < 0 else (graph.a[n], graph.b[n])


def append(to: Graph, graph: Graph, n: int, new: dict[int, int]) -> int:
    """Appends a node of another graph, whose operands have their new numbers."""
    if graph.op[n] == Op.CONST:
        return to.const(graph.constants[graph.a[n]])
    if graph.op[n] <= Op.TARGET:
        return to.add(graph.op[n], graph.a[n])
    return to.add(graph.op[n], *[new[x] for x in operands(graph, n)])


def copied(graph: Graph) -> Graph:
    out = Graph(bytearray(graph.op), array("i", graph.a), array("i", graph.b))
    for value in graph.constants:
        out.constant_number(value)
    out.outputs = {name: list(nodes) for name, nodes in graph.outputs.items()}
    return out
