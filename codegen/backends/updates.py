"""Rules in ir -> bodies of loops over parameters, for every printer.

Example: the rule of sgd(momentum=0.9) becomes, for each element i of a tensor,

    let next_0 = add(mul(state_0[i], 0.9), g)
    let next_p = add(p[i], mul(mul(number_0, next_0), -1))
    p[i] = next_p
    state_0[i] = next_0

p[] and state_0[], state_1[], ... begin where the tensor does; g is the gradient of the element, number_0 the first of
the numbers that a step computes once.
"""

from collections.abc import Sequence

from codegen.backends.expressions import PRIMARY, Bound, words_text
from codegen.ir.graph import Graph, Op
from codegen.ir.loops import Apply, Const, Expr, Index, Let, Name, Place, Stmt, Store
from codegen.passes.updates import CONDITIONS, NUMBERS, PARAMETER, STATE, Update, Updates, operands

STEP_NAMES = ("step", "rate", "norm")
COUNTER = "i"
MAX_DEPTH = 32  # of an expression


def each_body(update: Update) -> tuple[list[Let], list[Store]]:
    """What happens to one parameter and its state: names, the results last, then stores of the results."""
    here = Index(0, ((1, COUNTER),))
    names: dict[int, Expr] = {Op.PARAM: Place("p", here), Op.GRAD: Name("g")}
    found = _Statements(update.each, lambda op, i: names.get(op) or _number_or_state(op, i, here))
    graph = update.each
    results = [("next_p", n) for n in graph.outputs[PARAMETER]]
    results += [(f"next_{slot}", n) for slot, n in enumerate(graph.outputs[STATE])]
    lets = found.lets([n for _, n in results])
    lets += [Let(name, found.value(n)) for name, n in results]
    targets = [Place("p", here), *(Place(f"state_{slot}", here) for slot in range(len(update.slots)))]
    return lets, [Store(to, Name(name)) for to, (name, _) in zip(targets, results, strict=True)]


def once_body(update: Update) -> tuple[tuple[Stmt, ...], tuple[Expr, ...]]:
    """What a step computes once: statements, and the numbers."""
    found = _Statements(update.once, lambda _, i: Name(STEP_NAMES[i]), f"u{update.number}_")
    numbers = update.once.outputs[NUMBERS]
    return tuple(found.lets(numbers)), tuple([found.value(n) for n in numbers])


def conditions(update: Update) -> tuple[tuple[Stmt, ...], tuple[tuple[Expr, float], ...]]:
    """Statements, and numbers that must be those constants if a gradient of 0.0 changes nothing."""
    found = _Statements(update.each, lambda _, i: Name(f"number_{i}"), f"u{update.number}_")
    nodes = update.each.outputs[CONDITIONS]
    lines = tuple(found.lets(nodes))
    return lines, tuple([(found.value(n), value) for n, value in zip(nodes, update.kept or (), strict=True)])


def explanation(updates: Updates, tensors: Sequence[str]) -> list[str]:
    """Each rule with its tensors: what a step computes once, then what happens to each parameter."""
    lines: list[str] = []
    for update in updates.rules:
        names = [name for name, rule in zip(tensors, updates.of_tensor, strict=True) if rule == update.number]
        skips = "" if update.kept is None else ", except rows whose gradients are all 0"
        lines.append(f"a step of {update.rule.name}, for each element i of {', '.join(names)}{skips}")
        body, numbers = once_body(update)
        found = [Let(f"number_{k}", number) for k, number in enumerate(numbers)]
        lines += [f"    {_line(stmt, update)}" for stmt in (*body, *found, *_plain(*each_body(update)))]
    return lines


def _plain(lets: list[Let], stores: list[Store]) -> list[Stmt]:
    """Without the names of results, which are last: p[i] = ... instead of next_p = ...; p[i] = next_p."""
    names, results = lets[: -len(stores)], lets[-len(stores) :]
    return [*names, *(Store(s.target, result.value) for s, result in zip(stores, results, strict=True))]  # type: ignore[arg-type]


def _line(stmt: Stmt, update: Update) -> str:
    assert isinstance(stmt, Let | Store)
    assert not isinstance(stmt.value, Index)
    target = stmt.name if isinstance(stmt, Let) else _words(stmt.target, update)[0]
    return f"{target} = {_words(stmt.value, update)[0]}"


def _words(expr: Expr, update: Update) -> Bound:
    match expr:
        case Place():
            slots = {f"state_{k}": slot for k, slot in enumerate(update.slots)}
            return f"{slots.get(expr.array, expr.array)}[i]", PRIMARY
        case Name():
            return expr.name, PRIMARY
        case Const():
            return f"{expr.value:g}", PRIMARY
    operands = [_words(operand, update) for operand in expr.operands]
    return words_text(expr.op, operands)


def _number_or_state(op: int, i: int, here: Index) -> Expr:
    return Name(f"number_{i}") if op == Op.INPUT else Place(f"state_{i}", here)


class _Statements:
    """The nodes of a graph as expressions; what is used several times gets a name."""

    def __init__(self, graph: Graph, leaf: object, prefix: str = "t") -> None:
        self.graph, self.leaf, self.prefix = graph, leaf, prefix
        self.named: dict[int, Name] = {}

    def lets(self, roots: list[int]) -> list[Let]:
        """Names for the operations that the roots use more than once, and for those of long expressions."""
        graph, needed = self.graph, self.graph.reachable(*roots)
        uses = [0] * len(graph)
        for x in [*roots, *(x for n in range(len(graph)) if needed[n] for x in operands(graph, n))]:
            uses[x] += 1
        lines: list[Let] = []
        depth = [0] * len(graph)
        for n in range(len(graph)):
            depth[n] = 1 + max([depth[x] for x in operands(graph, n) if x not in self.named], default=0)
            if needed[n] and graph.op[n] > Op.TARGET and (uses[n] > 1 or depth[n] > MAX_DEPTH):
                value = self.value(n)
                self.named[n] = Name(f"{self.prefix}{n}")
                lines.append(Let(self.named[n].name, value))
        return lines

    def value(self, n: int) -> Expr:
        graph = self.graph
        if n in self.named:
            return self.named[n]
        if graph.op[n] == Op.CONST:
            return Const(graph.constants[graph.a[n]])
        if graph.op[n] <= Op.TARGET:
            return self.leaf(graph.op[n], graph.a[n])  # type: ignore[no-any-return, operator]
        return Apply(graph.op[n], tuple([self.value(x) for x in operands(graph, n)]))
