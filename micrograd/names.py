"""What a node's `_op` says, in the words of micrograd's notebooks and of the essay.

Example: for w = Value(2, _op="weight"),

    w._op == "weight", but not bool(w._op)       (w**3)._op == "**3"       exponent_of("**3") == 3.0

Notebooks draw an operation for a node `if n._op:`, and the essay asks whether `o._op in ("weight", "bias")`. Both are
right about a leaf's kind. What decides is `_prev` for a leaf, and `_exponent` for a power; the texts are for readers.
"""

from functools import lru_cache


class Kind(str):
    """A leaf's kind: equal to its text, and false, because it is no operation."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


class FromNumber(Kind):
    """The kind, "", of a leaf that the engine has made of a number, as the 2 of `2 * x`."""

    __slots__ = ()


NUMBER = FromNumber("")


class Op(str):
    """A node's operation as text: "+", "**3", "" for a plain leaf."""

    __slots__ = ()

    def opstr(self) -> str:
        return str(self)


def plain(number: float) -> str:
    """A number as Python writes it, whole ones without `.0`."""
    return repr(number).removesuffix(".0")


@lru_cache(1024)
def power(exponent: float) -> str:
    """The `_op` of a power whose exponent is a number: "**3"."""
    return f"**{plain(exponent)}"


def exponent_of(op: str) -> float | None:
    """The number in the `_op` of a power, None for any other."""
    if op[:2] != "**" or len(op) == 2:
        return None
    try:
        return float(op[2:])
    except ValueError:
        return None
