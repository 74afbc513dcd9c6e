"""Rows of the op table as C, for printers of one statement per node.

Example: with the operands `data[0]` and `data[1]` and the gradient `grad[2]`, the row of pow becomes what the node
computes, and what it adds to the gradient of its left operand:

    op_pow(data[0], data[1])
    (data[1] * op_pow(data[0], (data[1] + -1.0))) * grad[2]

The second is the row's own partial derivative, evaluated on `Text` operands. The compiler's straight-line code and the
C of one node (`statements`) are printed like this; they differ in the names of operands and in spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from micrograd import ops


@dataclass
class Dialect:
    """How literals are written, and whether + and * have no spaces (`tight`). `rows` collects those printed."""

    literal: Callable[[float], str]
    tight: bool = False
    rows: dict[int, ops.Row] = field(default_factory=dict)

    @property
    def used(self) -> list[ops.Row]:
        """The rows that were printed, in the order of the table."""
        return [row for _, row in sorted(self.rows.items())]

    def definition(self, op: ops.Row, operands: Sequence[Text]) -> Text:
        """An op applied to operands, which get parentheses if they need them."""
        self.rows[op.number] = op
        template = op.c.replace(" ", "") if self.tight and op.is_infix else op.c
        parts = [f"({x.text})" if x.loose else x.text for x in operands]
        return Text(template.format(*parts), self, op.is_infix)

    def contribution(self, op: ops.Row, i: int, result: Text, operands: Sequence[Text | float], g: Text) -> str:
        """The term added to the gradient of operand i, which must have one. A constant operand is a float."""
        slope = op.slope(i, result, operands)
        text: Text = g if isinstance(slope, float) and slope == 1.0 else ops.mul(slope, g)
        return text.text


class Text(ops.Operand):
    """A C expression. A loose one has + or * at the top: as an operand it needs parentheses."""

    __slots__ = ("dialect", "loose", "text")

    def __init__(self, text: str, dialect: Dialect, loose: bool = False) -> None:
        self.text, self.dialect, self.loose = text, dialect, loose

    def _from_op(self, op: ops.Row, operands: Sequence[Any]) -> Text:
        dialect = self.dialect
        parts = [x if isinstance(x, Text) else Text(dialect.literal(float(x)), dialect) for x in operands]
        return dialect.definition(op, parts)


def c_literal(value: float, suffix: str = "") -> str:
    """A C constant with exactly these bits (all nans become NAN). `suffix` is the type's: "f" for float."""
    value = float(value)
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    if value == int(value) and 0 < abs(value) < 1e6:
        return f"{value:.1f}{suffix}"
    mantissa, exponent = value.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}{suffix}"
