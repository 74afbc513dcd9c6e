"""The two orders of a graph's nodes: depth first, and order of creation.

Example: after w = Value(2), x = Value(3), y = x * x, z = y + w

    topo([z])        is x, y, w, z      as a reader follows the expression
    creation([z])    is w, x, y, z      as the program made them

Both have operands before their users. Numbers that people see follow topo(). Gradients are accumulated in the order of
creation, backwards: it is regular wherever the program that built the graph was regular, so the compiler finds the
loops of that program again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from micrograd import foreign, ops

if TYPE_CHECKING:
    from micrograd.engine import Value

_by_creation = attrgetter("_id")


def topo(roots: Sequence[Value]) -> list[Value]:
    """Every node that one of the roots depends on: depth first, operands and roots from left to right."""
    order: list[Value] = []
    entered: set[int] = set()
    left: set[int] = set()
    stack = [*reversed(roots)]
    while stack:
        node = stack[-1]
        key = id(node)
        if key not in entered:
            entered.add(key)
            stack.extend([child for child in reversed(tuple(node._prev)) if id(child) not in entered])
        else:
            stack.pop()
            if key not in left:
                left.add(key)
                order.append(node)
    return order


def creation(roots: Iterable[Value]) -> list[Value]:
    """Every node that one of the roots depends on, from the oldest to the youngest."""
    found = list(dict.fromkeys(roots))
    seen = set(found)
    for node in found:  # which grows during the loop
        for child in node._prev:
            if child not in seen:
                seen.add(child)
                found.append(child)
    found.sort(key=_by_creation)
    return found


def gradient_order(order: list[Value]) -> Iterator[Value]:
    """The nodes of a root's creation() that pass a gradient on to their operands, from the root to the oldest.

    Only what the root depends on by a path that carries gradient takes part: a node that is reached through detach()
    or x**0 alone has no gradient to pass on, and 0 * inf would make one.
    """
    rows = ops.BY_SYMBOL
    reached = {id(order[-1])}
    own = set(map(id, foreign.having(order)))
    for node in reversed(order):
        if own and id(node) in own:
            if id(node) in reached:
                reached.update(map(id, node._prev))
                yield node
        elif node._prev and id(node) in reached:
            try:
                partials = rows[node._op].partials
            except ValueError:
                partials = foreign.known_row(node).partials  # an error that names the node
            if node._exponent == 0.0:  # x**0 is 1 everywhere: its gradient is 0, at x = 0 too
                continue
            if None not in partials:
                reached.update(map(id, node._prev))
                yield node
            elif any(partial is not None for partial in partials):
                reached.update(id(x) for x, p in zip(node._prev, partials, strict=True) if p is not None)
                yield node
