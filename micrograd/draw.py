"""Pictures of a `Value` graph, in the look of Andrej Karpathy's notebook, and the graph as JSON.

Example: for a = Value(2, label="a"), b = Value(3, label="b"), `to_dot(a * b)` has the boxes `a | data 2 | grad 0`,
`b | data 3 | grad 0` and `data 6 | grad 0`, and a small `*` between them.

`trace`, `to_dot` and `to_json` need the standard library only. `draw_dot` makes an object of the package graphviz from
the same text. A picture of more than LIMIT nodes would be unreadable, so groups are drawn instead, roots of equal
shape in one box. The package that finds groups, which is the compiler if it is installed, registers the entry point
"groups" in the group "micrograd.draw": a function of a Value and a direction that returns DOT statements.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from micrograd import dot, order

if TYPE_CHECKING:
    import graphviz

    from micrograd.engine import Value

LIMIT = 200  # nodes that are drawn individually: dot lays out as many in seconds, and they are still legible
UNASKED = 20_000  # nodes of which a notebook draws the groups without being asked: it takes half a second
ROW = 6  # operations in a row: a page then takes 200 nodes
MAX_NESTING = 100  # depth of JSON objects
COLORS = {"weight": "#dcebfa", "bias": "#dcebfa", "input": "#e0f2dc", "target": "#fdf0c8"}


def trace(root: Value) -> tuple[list[Value], list[tuple[Value, Value]]]:
    """The nodes in topological order, and an edge (operand, user) for each operand of each node, in order."""
    if not hasattr(root, "_prev"):
        raise TypeError(f"a graph starts at a Value, not at {type(root).__name__}")
    nodes = root.topo()
    return nodes, [(child, node) for node in nodes for child in node._prev]


def to_dot(root: Value, rankdir: str = "LR", limit: int | None = None) -> str:
    """The graph as a DOT file. `rankdir`: "LR", left to right, or "TB", top to bottom.

    A graph of more than `limit` nodes is drawn as its groups, which needs codegen; with None, never.
    Raises TypeError for anything but a Value, ValueError for an unknown direction.
    """
    return dot.text(_picture(root, rankdir, limit))


def draw_dot(root: Value, format: str = "svg", rankdir: str = "LR", limit: int | None = LIMIT) -> graphviz.Digraph:
    """The graph as a graphviz.Digraph: a notebook shows it, `.render("name")` writes a file.

    `format`: "svg", "png", "pdf" or another of Graphviz's. `rankdir` and `limit` as for to_dot(). Raises
    ModuleNotFoundError without the package graphviz; warns where its program dot is missing.
    """
    return dot.digraph(_picture(root, rankdir, limit), format)


def mimebundle(root: Value) -> dict[str, str]:
    """What a notebook shows for a Value: its repr, and its graph as a picture if Graphviz and its package are there.

    Long graphs are wrapped to the width of a page. Beyond LIMIT nodes, the groups that codegen finds are drawn; beyond
    UNASKED nothing is.
    """
    bundle = {"text/plain": repr(root)}
    nodes = root.topo()
    if len(nodes) > UNASKED:
        return bundle
    try:
        is_small = len(nodes) <= LIMIT
        picture = statements([root], rows=in_rows(nodes)) if is_small else _groups(len(nodes))(root, "LR")
        return bundle | {"image/svg+xml": dot.render(picture, "svg").decode()}
    except (ImportError, ValueError, dot.DrawError):  # nothing to draw with, or an op that codegen does not know
        return bundle


def in_rows(nodes: list[Value], length: int = ROW) -> dict[int, int]:
    """A long picture in rows, as text is wrapped: the row of each node, by the Value's identity.

    Example: with at most 2 operations in a row, ((a + b) * c).tanh().exp() is

        row 0:  a, b, a + b, c, (a + b) * c
        row 1:  tanh, exp

    A node stands as far to the right as its users allow. Leaves, and operations on leaves alone, go with their first
    user. `nodes` is the topo() of a graph.
    """
    depth: dict[int, int] = {}
    for node in nodes:
        depth[id(node)] = 1 + max((depth[id(child)] for child in node._prev), default=-1)
    latest = dict.fromkeys(depth, len(nodes))
    latest[id(nodes[-1])] = max(depth.values())
    found: dict[int, int] = dict.fromkeys(depth, len(nodes))
    for node in reversed(nodes):  # users first
        row = found[id(node)]
        if depth[id(node)] > 1 or row == len(nodes):
            row = found[id(node)] = max(0, latest[id(node)] - 1) // length
        for child in node._prev:
            latest[id(child)] = min(latest[id(child)], latest[id(node)] - 1)
            found[id(child)] = min(found[id(child)], row)
    return found


def _picture(root: Value, rankdir: str, limit: int | None) -> list[str]:
    nodes, _ = trace(root)
    if limit is None or len(nodes) <= limit:
        return statements([root], rankdir)
    return _groups(len(nodes))(root, rankdir)


def _groups(count: int) -> Callable[[Value, str], list[str]]:
    """The function that draws groups. `count`, the size of the graph, is for the error without one."""
    for found in entry_points(group="micrograd.draw", name="groups"):
        groups: Callable[[Value, str], list[str]] = found.load()
        return groups
    raise ModuleNotFoundError(
        f"{count} nodes are drawn as the groups that codegen finds: pip install 'micrograd-nn[draw]', "
        "or pass limit=None to draw each of them"
    )


def statements(
    roots: Sequence[Value],
    rankdir: str = "LR",
    leaves: Mapping[int, tuple[str, str]] | None = None,
    rows: Mapping[int, int] | None = None,
) -> list[str]:
    """The DOT statements of a graph, node by node.

    `leaves`: for leaves that have none of their own, a kind (also "target") and a name, by the Value's identity.
    `rows`: the row in which each Value stands, by its identity; by default there is one.
    """
    nodes = order.topo(roots)
    number = {id(node): i for i, node in enumerate(nodes)}
    in_row: dict[int, list[str]] = {}
    across: list[str] = []
    for i, node in enumerate(nodes):
        row = 0 if rows is None else rows[id(node)]
        lines = in_row.setdefault(row, [])
        kind, name = str(node._op) if not node._prev else "", node.label
        if leaves is not None and id(node) in leaves:
            kind, name = kind or leaves[id(node)][0], name or leaves[id(node)][1]
        fields = [f"data {node.data:.4g}", f"grad {node.grad:.4g}"]
        if name or kind:
            fields.insert(0, dot.escaped(name or kind))
        color = {"fillcolor": COLORS[kind]} if kind in COLORS else {}
        lines.append(dot.node(f"n{i}", dot.record(fields, rankdir), **color))
        if not node._prev:
            continue
        lines.append(dot.node(f"op{i}", dot.escaped(operation(node)), shape="ellipse", width=0.4, margin="0.05,0"))
        lines.append(dot.edge(f"op{i}", f"n{i}"))
        for position, child in enumerate(node._prev):
            is_exponent = node._op == "**" and position == 1
            attributes = {"label": "exponent"} if is_exponent else {}
            if rows is None or rows[id(child)] == row:
                lines.append(dot.edge(f"n{number[id(child)]}", f"op{i}", **attributes))
            else:
                attributes |= {"constraint": "false", "color": "gray60"}
                across.append(dot.edge(f"n{number[id(child)]}", f"op{i}", **attributes))
    first, *others = in_row.values()
    if not others:
        return [*dot.defaults(rankdir), *first]
    return [
        *dot.defaults(rankdir),
        *(line for n, r in sorted(in_row.items(), reverse=True) for line in dot.row(n, r)),
        *across,
    ]


def operation(node: Value) -> str:
    """A node's operation, with its exponent if that is a number: `**3`."""
    return node._op if node._exponent is None else f"**{node._exponent:.4g}"


def to_json(root: Value) -> str:
    """The graph as JSON text: the root's object, with its operands' objects inside, and theirs.

        {"id": 2, "operation": "*", "value": 6.0, "gradient": 0.0, "children": [
            {"id": 0, "operation": "weight", "value": 2.0, "gradient": 0.0, "label": "a", "children": []},
            {"id": 1, "operation": "", "value": 3.0, "gradient": 0.0, "children": []}]}

    `id` is the position in topo(). A leaf has no children; its operation is its kind, if it has one.
    `label` is there where it is not empty, `exponent` where the operation is `**` with a number. A number that JSON
    cannot write is one of the strings "nan", "inf" and "-inf", which Python's float() reads as well.

    Every node is written in full once, and as {"id": 0} where it is used again, so the text grows with the number of
    nodes. Objects are nested at most 100 deep, because parsers have limits: a deeper node is {"id": 17}, and in full in
    a list under the root's key "deeper".
    """
    nodes, _ = trace(root)
    number = {id(node): i for i, node in enumerate(nodes)}
    document: dict[str, Any] = {}
    deeper: list[dict[str, Any]] = []
    written = {id(root)}
    waiting = [(root, document, 1)]
    while waiting:
        node, entry, depth = waiting.pop()
        children: list[dict[str, Any]] = []
        entry.update(_entry(node, number[id(node)]), children=children)
        for child in node._prev:
            reference: dict[str, Any] = {"id": number[id(child)]}
            children.append(reference)
            if id(child) not in written:
                written.add(id(child))
                if depth < MAX_NESTING:
                    waiting.append((child, reference, depth + 1))
                else:
                    deeper.append({})
                    waiting.append((child, deeper[-1], 2))
    if deeper:
        document["deeper"] = deeper
    return json.dumps(document, allow_nan=False, ensure_ascii=False)


def _entry(node: Value, number: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": number,
        "operation": str(node._op) if node._exponent is None else "**",
        "value": _json_number(node.data),
        "gradient": _json_number(node.grad),
    }
    if node._exponent is not None:
        entry["exponent"] = _json_number(node._exponent)
    if node.label:
        entry["label"] = str(node.label)
    return entry


def _json_number(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
