"""Pictures of what the compiler sees, as DOT statements: a graph as its groups, the ir pass by pass, the loops.

Example: the graph of the MNIST model's loss, 120,000 nodes, becomes seven boxes, and three more for its leaves:

    parameters (39,760) -> 50 x relu(sum(P, 784 x mul(P, X))) -> 10 x sum(P, 50 x mul(P, R)) -> ...

An edge is as thick as there are scalars that flow along it. What only gradients need has a colour of its own, and
what a caller can observe has a bold border. A picture of groups has at most MAX_BOXES boxes and MAX_EDGES edges,
whatever the graph.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from codegen.ir.graph import LEAVES, Graph, Op, node_text, op_name
from codegen.ir.loops import VALUE, Body, For, Kind, Loops, Nest, Pass, Stmt, is_rolled
from codegen.passes.trace import trace, trace_value
from codegen.pipeline import build_graph, graph_passes, reroll
from codegen.program import Program
from codegen.reroll.groups import Group, computed_by, find_groups
from codegen.reroll.names import tensor_names
from codegen.reroll.runs import split_shape
from codegen.reroll.trees import Shapes, find_trees
from codegen.schedule.pipeline import c_passes, schedule
from codegen.schedule.roll import roll
from codegen.schedule.target import Target
from micrograd import dot, ops
from micrograd.draw import COLORS, LIMIT, statements
from micrograd.engine import Value
from micrograd.order import topo

ADJOINT = "#fbe3d8"
LEAF_COLORS = {
    Op.PARAM: COLORS["weight"],
    Op.INPUT: COLORS["input"],
    Op.TARGET: COLORS["target"],
    Op.GRAD: ADJOINT,
    Op.CONST: "gray95",
}
LEAF_NAMES = {Op.PARAM: "parameters", Op.INPUT: "inputs", Op.TARGET: "targets", Op.GRAD: "old gradients"}
LETTERS = "P parameter, X input, T target, G old gradient, C constant, R result of another box"
FRAMES = "bold: what a caller can see; red: what gradients alone need"
WIDTH = 44  # characters of a line in a box
MAX_BOXES = 60  # of groups: dot lays out as many in seconds, however they are connected
MAX_EDGES = 150  # between groups; the thinnest are left out
LINES = 8  # of a shape, or of loops


@dataclass(frozen=True)
class Around:
    """A loop over kernels: time steps, blocks, tokens. `name` is its own, as there may be others with its head."""

    name: str
    head: str


Position: TypeAlias = "tuple[tuple[Around, ...], int]"


@dataclass
class Box:
    """What a box says, line by line and field by field, and which nodes it computes from which."""

    fields: list[list[str]]
    groups: list[Group]
    color: str = "white"
    is_observed: bool = False
    writes: list[tuple[str, int]] = field(default_factory=list)  # other boxes, and how many scalars
    around: tuple[Around, ...] = ()  # the loops over kernels that it is in, outermost first

    def node(self, name: str, rankdir: str = "LR") -> str:
        attributes: dict[str, object] = {"penwidth": 2} if self.is_observed else {}
        label = dot.record([_left(lines) for lines in self.fields], rankdir, stacked=True)
        return dot.node(name, label, fillcolor=self.color, **attributes)


def scalars(program: Program, limit: int = LIMIT) -> list[str]:
    """The scalar graph of the loss with the leaves' names, or its groups where it has more than `limit` nodes.

    Without a loss it is the graph of the outputs.
    """
    if program.loss is not None:
        program = replace(program, outputs={}, prediction=None, threshold=None)
    roots = list(program.roots())
    if len(topo(roots)) > limit:
        return _groups_alone(trace(program), "LR")
    return statements(roots, leaves=_leaf_names(program))


def value_groups(root: Value, rankdir: str = "LR") -> list[str]:
    """The groups of a Value's graph. Leaves without a kind are constants."""
    return _groups_alone(trace_value(root), rankdir)


def ir(program: Program, limit: int = LIMIT) -> list[str]:
    """The ir after each pass, one below the other: node by node, or as groups where it has more than `limit` nodes."""
    clusters = []
    legend = FRAMES
    for name, graph in graph_passes(program):
        title = f"{name}: {len(graph):,} nodes"
        if len(graph) <= limit:
            inner = list(_nodes(graph, f"{name}_"))
        else:
            inner = _groups(graph, program.prediction, f"{name}_")
            title, legend = f"{title} as groups of equal shape", f"{FRAMES}\\n{LETTERS}"
        clusters.append(dot.cluster(name, title, inner))
    # dot stacks clusters from the bottom upwards
    return [*dot.defaults("LR", label=legend), *(line for lines in reversed(clusters) for line in lines)]


def loops(program: Program) -> list[str]:
    """The loop nests of the generated C, framed where a loop runs several, with the arrays that they read and write."""
    found = reroll(build_graph(program), program, Target.of(program).cache_line)
    scheduled = schedule(found, c_passes(found, Target.of(program)), without=["roll"])
    positions = _positions(scheduled, roll(scheduled))
    nests: dict[int, list[Body]] = {}  # of a group; gradients of row tensors are not scheduled
    for kernel in (*scheduled.kernels, *(k for k in found.loops.kernels if k.passes == Pass.ROW_GRADIENTS)):
        nests.setdefault(kernel.number, []).extend(kernel.nests)
    graph, shapes = found.graph, found.shapes
    arrays = _Arrays(graph, program)
    groups = [stored.group for stored in found.layout.groups]
    boxes = []
    for members in _merged(groups, positions):
        around = {positions[i][0] if i in positions else () for i in members}
        box = _box(graph, shapes, [groups[i] for i in members], around.pop() if len(around) == 1 else ())
        box.fields.append(list(dict.fromkeys(head for i in members for head in _loop_heads(nests[i]))))
        if len(members) > 1:
            box.fields.append([f"{len(members):,} groups"])
        elif not box.groups[0].is_gradient:
            place = found.layout.groups[members[0]].offset
            box.fields.append([f"value[{found.loops.region(VALUE, place).name}]"])
        box.writes = arrays.gradients(box.groups)
        boxes.append(box)
    label = f"{len(graph):,} nodes, {len(groups)} groups\\n{FRAMES}\\n{LETTERS}"
    lines = dot.defaults("LR", label=label, newrank="true")  # or dot loses edges
    return lines + _connected(graph, boxes, "", arrays.sources()) + arrays.nodes()


def _leaf_names(program: Program) -> dict[int, tuple[str, str]]:
    """Kind and name of each declared leaf, by the Value's identity: `weight[0, 2]`, `input[3]`."""
    names: dict[int, tuple[str, str]] = {}
    for tensor in program.tensors:
        for position, number in zip(np.ndindex(tensor.shape), tensor.numbers, strict=True):
            index = f"[{', '.join(map(str, position))}]" if position else ""
            names[id(program.parameter_values[number])] = "weight", tensor.name + index
    for kind, values in (("input", program.input_values), ("target", program.target_values)):
        names |= {id(value): (kind, f"{kind}[{i}]") for i, value in enumerate(values)}
    return names


# Node by node


def _nodes(graph: Graph, prefix: str) -> Iterator[str]:
    marks = _observables(graph)
    forward = graph.reachable(*(n for n in (graph.loss, *chain(*graph.outputs.values())) if n >= 0))
    for n in range(len(graph)):
        op = graph.op[n]
        color = LEAF_COLORS.get(op, "white") if op in LEAVES else "white"
        fields = [[node_text(graph, n)]] + ([[", ".join(marks[n])]] if n in marks else [])
        yield Box(fields, [], color if forward[n] else ADJOINT, n in marks).node(f"{prefix}{n}")
        if op not in LEAVES:
            for operand in [graph.a[n], graph.b[n]][: ops.row(op).arity]:
                yield dot.edge(f"{prefix}{operand}", f"{prefix}{n}")


def _observables(graph: Graph) -> dict[int, list[str]]:
    """What each observable node is, in words."""
    marks: dict[int, list[str]] = {graph.loss: ["loss"]} if graph.loss >= 0 else {}
    for name, nodes in graph.outputs.items():
        for i, n in enumerate(nodes):
            marks.setdefault(n, []).append(f"output {name}[{i}]" if len(nodes) > 1 else f"output {name}")
    for parameter, n in graph.gradients.items():
        marks.setdefault(n, []).append(f"gradient {parameter}")
    return marks


# Groups


def _groups_alone(graph: Graph, rankdir: str) -> list[str]:
    title = f"{len(graph):,} nodes as groups of equal shape\\n{LETTERS}"
    return dot.defaults(rankdir, label=title) + _groups(graph, None, "", rankdir)


def _groups(graph: Graph, prediction: str | None, prefix: str, rankdir: str = "LR") -> list[str]:
    trees = find_trees(graph)
    groups = find_groups(graph, trees, prediction)
    boxes = [_box(graph, trees.shapes, [groups[i] for i in members]) for members in _merged(groups)]
    used = np.unique(np.concatenate([group.leaves.ravel() for group in groups]))
    counts = Counter(graph.op[n] for n in used.tolist())
    sources = {}
    lines = []
    for op, name in LEAF_NAMES.items():
        if counts[op]:
            source = f"{prefix}{op_name(op).upper()}"
            sources.update({n: source for n in used.tolist() if graph.op[n] == op})
            lines.append(Box([[f"{name} ({counts[op]:,})"]], [], LEAF_COLORS[op]).node(source, rankdir))
    return lines + _connected(graph, boxes, prefix, sources, rankdir)


def _merged(groups: Sequence[Group], positions: Mapping[int, Position] = MappingProxyType({})) -> list[list[int]]:
    """The groups of each box: those of one place in loops over kernels share a box, others have one each; if those are
    too many, one shape each; then the smallest share a box."""
    together: dict[object, list[int]] = {}
    for i in range(len(groups)):
        together.setdefault(positions.get(i, i), []).append(i)
    boxes = [*together.values()]
    if len(boxes) > MAX_BOXES:
        alike: dict[object, list[int]] = {}
        for members in boxes:
            group, (around, _) = groups[members[0]], positions.get(members[0], ((), 0))
            alike.setdefault((around, group.shape, group.passes, group.is_gradient), []).extend(members)
        boxes = list(alike.values())
    if len(boxes) > MAX_BOXES:
        boxes.sort(key=lambda members: -sum(len(groups[i].roots) for i in members))
        boxes[MAX_BOXES - 1 :] = [[i for members in boxes[MAX_BOXES - 1 :] for i in members]]
    return boxes


def _box(graph: Graph, shapes: Shapes, groups: list[Group], around: tuple[Around, ...] = ()) -> Box:
    roots = {n for group in groups for n in group.roots.tolist()}
    different = {group.shape for group in groups}
    if len(different) == 1:
        text = f"{len(roots):,} x {_shape_text(graph, shapes, groups)}"
    elif around:  # sums that grow from step to step
        first, last = [_shape_text(graph, shapes, [group]) for group in (groups[0], groups[-1])]
        text = f"{len(roots):,} x {first} to {last}"
    else:
        text = f"{len(roots):,} roots of {len(different):,} other shapes"
    fields = [_wrapped(text)]
    names = [name for name, nodes in graph.outputs.items() if roots.intersection(nodes)]
    marks = (["loss"] if graph.loss in roots else []) + [f"output {name}" for name in names]
    if marks:
        fields.append([", ".join(marks)])
    is_gradient = any(group.is_gradient for group in groups)
    if is_gradient:
        fields.append(["new gradients in grad[]"])
    adjoint = all(not group.passes & ~Pass.GRADIENTS for group in groups)
    return Box(fields, groups, ADJOINT if adjoint else "white", bool(marks) or is_gradient, around=around)


def _shape_text(graph: Graph, shapes: Shapes, groups: list[Group]) -> str:
    """The shape, with the constants that are the same everywhere."""
    first = groups[0]
    leaves = np.vstack([group.leaves for group in groups])
    constants = []
    for run in split_shape(shapes, first.shape, first.is_gradient)[0]:
        for k, kind in enumerate(run.kinds):
            if kind == Op.CONST:
                values = {graph.a[n] for n in np.unique(run.columns(leaves)[:, :, k]).tolist()}
                constants.append(f"{graph.constants[values.pop()]:.4g}" if len(values) == 1 else "C")
    return shapes.text(first.shape, iter(constants))


def _connected(graph: Graph, boxes: list[Box], prefix: str, sources: dict[int, str], rankdir: str = "LR") -> list[str]:
    """The boxes, and an edge from each box and each source of leaves to those that read from it."""
    groups = [group for box in boxes for group in box.groups]
    box_of = [f"{prefix}box{i}" for i, box in enumerate(boxes) for _ in box.groups]
    owner = computed_by(len(graph), groups)
    flows: Counter[tuple[str, str]] = Counter()
    for i, box in enumerate(boxes):
        name = f"{prefix}box{i}"
        for n in np.unique(np.concatenate([group.leaves.ravel() for group in box.groups])).tolist():
            if owner[n] >= 0:
                flows[box_of[owner[n]], name] += 1
            elif n in sources:
                flows[sources[n], name] += 1
        flows.update({(name, target): count for target, count in box.writes})
    lines = _framed([(box.around, box.node(f"{prefix}box{i}", rankdir)) for i, box in enumerate(boxes)])
    drawn = dict(flows.most_common(MAX_EDGES))
    lines += [_flow(*ends, count) for ends, count in flows.items() if ends in drawn]
    if len(drawn) < len(flows):
        note = f"the {len(flows) - len(drawn):,} thinnest edges are not drawn"
        lines.append(dot.node(f"{prefix}note", note, shape="plaintext"))
    return lines


def _framed(nodes: Iterable[tuple[tuple[Around, ...], str]]) -> list[str]:
    """The nodes, with a frame around those in each loop over kernels."""
    lines: list[str] = []
    inside: dict[Around, list[tuple[tuple[Around, ...], str]]] = {}
    for around, line in nodes:
        if around:
            inside.setdefault(around[0], []).append((around[1:], line))
        else:
            lines.append(line)
    for loop, inner in inside.items():
        lines += dot.cluster(loop.name, loop.head, _framed(inner))
    return lines


def _flow(tail: str, head: str, count: int) -> str:
    label = {"label": f"{count:,}"} if count > 1 else {}
    return dot.edge(tail, head, penwidth=f"{1 + math.log10(count) / 2:.2f}", **label)


# Loops and arrays


class _Arrays:
    """data[] and grad[] by tensors, and the inputs and targets in value[]."""

    def __init__(self, graph: Graph, program: Program) -> None:
        self.graph, self.program = graph, program
        self.names = tensor_names(tensor.name for tensor in program.tensors)
        self.tensor_of = {number: t for t, tensor in enumerate(program.tensors) for number in tensor.numbers}
        self.parameter_of = {n: parameter for parameter, n in graph.gradients.items()}
        self.used: dict[str, Box] = {}

    def sources(self) -> dict[int, str]:
        """For each leaf that lives in an array, the array's box."""
        sources = {}
        for n, op in enumerate(self.graph.op):
            if op == Op.PARAM:
                sources[n] = self._tensor("data", self.graph.a[n])
            elif op in (Op.INPUT, Op.TARGET):
                sources[n] = self._array(f"value[{op_name(op).upper()}]", len(self._values(op)), LEAF_COLORS[op])
        return sources

    def gradients(self, groups: list[Group]) -> list[tuple[str, int]]:
        """Which tensors' gradients a box adds to, and how many numbers of each."""
        written = [n for group in groups if group.is_gradient for n in group.roots.tolist()]
        return list(Counter(self._tensor("grad", self.parameter_of[n]) for n in written).items())

    def nodes(self) -> list[str]:
        return [box.node(name) for name, box in self.used.items()]

    def _values(self, op: int) -> Sequence[Value]:
        return self.program.input_values if op == Op.INPUT else self.program.target_leaves

    def _tensor(self, array: str, parameter: int) -> str:
        t = self.tensor_of[parameter]
        tensor = self.program.tensors[t]
        color = LEAF_COLORS[Op.PARAM if array == "data" else Op.GRAD]
        return self._array(f"{array}[{self.names[t]}]", len(tensor.numbers), color, f"{tensor.name} {tensor.shape}")

    def _array(self, name: str, count: int, color: str, about: str = "") -> str:
        if name not in self.used:
            self.used[name] = Box([[name], [about or f"{count:,} number{'s' if count > 1 else ''}"]], [], color)
        return name


def _positions(plain: Loops, rolled: Loops) -> dict[int, Position]:
    """Where each group is that loops over kernels compute: the loops around it, and the number of its nest there."""
    numbers = iter([kernel.number for kernel in plain.kernels for _ in kernel.nests])
    positions: dict[int, Position] = {}

    def visit(loop: Stmt, around: tuple[Around, ...], name: str, at: dict[str, int]) -> None:
        assert type(loop) is For
        around = (*around, Around(name, _head(loop)))
        times = loop.count + sum([step * at[counter] for step, counter in loop.steps])
        for i in range(times):
            for place, stmt in enumerate(loop.halves[0] if i == times - 1 else loop.body):
                if type(stmt) is Nest:
                    positions.setdefault(next(numbers), (around, place))
                else:
                    visit(stmt, around, f"{name}_{place}", {**at, loop.counter: i})

    for kernel in rolled.kernels:
        for i, nest in enumerate(kernel.nests):
            if is_rolled(nest):
                visit(nest[0], (), f"loop{kernel.number}_{i}", {})
            else:
                next(numbers)
    return positions


def _loop_heads(nests: Iterable[Body]) -> Iterator[str]:
    """For each innermost loop, the heads of its nest, outermost first: `k < 784, i < 50`."""
    paths = [path for nest in nests for path in _innermost(nest, [])]
    yield from [", ".join(path) for path in paths] if paths else ["no loop"]


def _innermost(body: Body, around: list[str]) -> Iterator[list[str]]:
    for stmt in body:
        if isinstance(stmt, For) and not (stmt.kind == Kind.PARALLEL and stmt.count == 1):
            path = [*around, _head(stmt)]
            inner = list(_innermost(stmt.body, path))
            yield from inner or [path]
        elif isinstance(stmt, For):
            yield from _innermost(stmt.body, around)


def _head(loop: For) -> str:
    match loop.kind:
        case Kind.ACTIVE:
            return f"active {loop.counter} < {loop.count}"
        case Kind.IMAGES:
            return "images"
        case _:
            return f"{loop.counter} < {loop.count}"


# Text


def _wrapped(text: str) -> list[str]:
    joined = text.replace(" x ", "\xa0x\xa0")  # a count stays with what it counts
    lines = textwrap.wrap(joined, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def _left(lines: list[str]) -> str:
    """Lines of a field, from the left where there are several."""
    if len(lines) == 1:
        return dot.escaped(lines[0], None)
    shown = lines if len(lines) <= LINES else [*lines[: LINES - 1], f"... {len(lines) - LINES + 1:,} more lines"]
    return "".join(dot.escaped(line, None) + "\\l" for line in shown)
