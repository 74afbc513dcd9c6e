"""A long picture in rows, as text is wrapped: which row each node of a graph stands in.

Example: with at most 2 operations in a row, ((a + b) * c).tanh().exp() is

    row 0:  a, b, a + b, c, (a + b) * c
    row 1:  tanh, exp

A node stands as far to the right as its users allow. Leaves, and operations on leaves alone, go with their first user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from micrograd.engine import Value

LENGTH = 6  # operations in a row: a page then takes 200 nodes


def rows(nodes: list[Value], length: int = LENGTH) -> dict[int, int]:
    """The row of each node, by the Value's identity. `nodes` is the topo() of a graph."""
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
