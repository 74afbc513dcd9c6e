"""Ops that are not in the table: micrograd's own way to add one, by `out._backward = closure`.

Example, as in micrograd's notebooks:

    def sinh(x):
        out = Value(math.sinh(x.data), (x,), "sinh")
        def _backward():
            x.grad += math.cosh(x.data) * out.grad
        out._backward = _backward
        return out

The engine calls the closure where a row of the table would have been used. Nothing else can: neither the compiler nor
recompute() knows what the node computes. They name it, and say how to make a row of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from micrograd import ops

if TYPE_CHECKING:
    from micrograd.engine import Value

assigned = 0  # closures so far in this process: while there are none, nobody looks for them


def assign(node: Value, function: Callable[[], Any]) -> None:
    """Gives a node a _backward of its own. Raises TypeError for what cannot be called."""
    global assigned
    if not callable(function):
        raise TypeError(f"_backward must be a function without arguments, not {type(function).__name__}")
    node._own = function
    assigned += 1


def closure(node: Value) -> Callable[[], Any] | None:
    """The node's own _backward, if it has one."""
    return getattr(node, "_own", None) if assigned else None


def having(nodes: Iterable[Value]) -> list[Value]:
    """The nodes with a _backward of their own."""
    return [node for node in nodes if getattr(node, "_own", None) is not None] if assigned else []


def refuse(nodes: Iterable[Value], what: str) -> None:
    """Raises ValueError if there is a node with a _backward of its own; `what` is what cannot be done."""
    for node in having(nodes):
        name = node._op if node._op.isidentifier() else "name"
        raise ValueError(
            f"{node!r}, made by {str(node._op)!r}, has a _backward of its own: it cannot be {what}. "
            f"micrograd.ops.register({name!r}, ...) makes an op that can"
        )


def row(node: Value) -> ops.Row:
    """The row of a node's operation, for a compiler. Raises ValueError, which names the node, if there is none."""
    refuse([node], "compiled")
    return known_row(node)


def known_row(node: Value) -> ops.Row:
    """The row of a node's operation. Raises ValueError, which names the node, for an unknown one."""
    try:
        return ops.BY_SYMBOL[node._op]
    except ValueError as error:
        raise ValueError(f"{node!r}: {error}, or give the node a _backward") from None
