"""Expressions as text, for every printer: which operands need parentheses, and how an index reads.

Example: with the operands `a + b` and `c`, apply_text(Op.MUL, ...) gives `(a + b) * c`. The index 39250 + 10k of data[]
is `P_LAYERS_1_WEIGHT + 10 * k`, if the tensor of that name starts at 39250.

C and Python read sums, products and indices alike. Literals and all other ops differ, so each printer brings its own.
"""

from collections.abc import Sequence
from ctypes import c_float
from dataclasses import dataclass

from codegen.ir.graph import Op, op_name
from codegen.ir.loops import DATA, GRAD, VALUES, Index, Loops
from codegen.schedule.target import Target
from micrograd.statements import c_literal

ADDITION, PRODUCT, PRIMARY = 1, 2, 3  # binding strength, the weakest first

Bound = tuple[str, int]  # an expression's text and its binding strength


@dataclass(frozen=True)
class Arithmetic(Target):
    """The C type and the C literals of numbers: in float64 0.1 is 0x1.999999999999ap-4, in float32 0x1.99999ap-4f."""

    @property
    def type(self) -> str:
        return "float" if self.is_float32 else "double"

    def literal(self, value: float) -> str:
        """A C constant with exactly these bits (all nans become NAN), rounded to the type."""
        value = c_float(value).value if self.is_float32 else float(value)
        return c_literal(value, "f" if self.is_float32 else "")


def apply_text(op: int, operands: Sequence[Bound], template: str) -> Bound:
    """An op applied to printed operands: + and *, and / in C, are infix; anything else fills `template`.

    A right operand as weak as the operator gets parentheses: a + (b + c) and (a + b) + c round differently.
    """
    if op == Op.ADD:
        return f"{bound(operands[0], ADDITION)} + {bound(operands[1], PRODUCT)}", ADDITION
    if op == Op.MUL or template == "{} / {}":
        sign = "*" if op == Op.MUL else "/"
        return f"{bound(operands[0], PRODUCT)} {sign} {bound(operands[1], PRIMARY)}", PRODUCT
    return template.format(*(text for text, _ in operands)), PRIMARY


def words_text(op: int, operands: Sequence[Bound]) -> Bound:
    """An op applied to printed operands, as people write it."""
    call = f"{op_name(op)}({', '.join('{}' for _ in operands)})"
    return apply_text(op, operands, "{} / {}" if op == Op.DIV else call)


def bound(part: Bound, at_least: int) -> str:
    """The text, in parentheses if it binds more weakly than `at_least`."""
    text, strength = part
    return text if strength >= at_least else f"({text})"


def index_text(loops: Loops | None, array: str, index: Index) -> str:
    """`P_WEIGHT + i + 10 * k`: indices into data[], grad[] and value[] start from their region's name.

    Without `loops` there are no regions, and the index starts from its base.
    """
    parts = [index.origin] if index.origin else []
    base = index.base
    if loops is not None and array in (DATA, GRAD, *VALUES) and not index.origin:
        region = loops.region(array, base)
        parts.append(region.name)
        base -= region.start
    if base or not (parts or index.steps or index.tables):
        parts.append(str(base))
    text = " + ".join(parts)
    for stride, counter in index.steps:
        step = counter if abs(stride) == 1 else f"{abs(stride)} * {counter}"
        text += f" {'-' if stride < 0 else '+'} {step}" if text else ("-" if stride < 0 else "") + step
    for table, inner in index.tables:
        text += f"{' + ' if text else ''}{table}[{index_text(loops, table, inner)}]"
    return text
