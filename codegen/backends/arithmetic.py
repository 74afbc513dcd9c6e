"""How the generated C computes: its type of numbers, and how constants and expressions read in it.

Example: in strict float64 the tree add(R, mul(P, X)) of the leaves a, b and c is `a + (b * c)`, and 0.1 is
0x1.999999999999ap-4. With dtype="float32" that is 0x1.99999ap-4f; with fma=True the tree is MULTIPLY_ADD(b, c, a).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_float
from dataclasses import dataclass
from typing import ClassVar

from codegen.ir.graph import Op
from codegen.program import Program
from codegen.reroll.trees import Shapes
from micrograd import ops
from micrograd.texts import c_literal


@dataclass(frozen=True)
class Arithmetic:
    ops: ClassVar[Sequence[str]] = ops.C  # by the number of an op

    dtype: str = "float64"
    fma: bool = False
    reorder: bool = False

    @classmethod
    def of(cls, program: Program) -> Arithmetic:
        return cls(program.dtype, program.fma, program.reorder)

    @property
    def is_float32(self) -> bool:
        return self.dtype == "float32"

    @property
    def type(self) -> str:
        return "float" if self.is_float32 else "double"

    @property
    def cache_line(self) -> int:
        """Numbers in 64 bytes, which is also the widest vector register."""
        return 16 if self.is_float32 else 8

    @property
    def max_lanes(self) -> int:
        """Sums that are accumulated side by side: in half the vector registers of AVX-512."""
        return 16 * self.cache_line

    def lane_block(self, lanes: int) -> int:
        """How many lanes make a block of at most max_lanes: whole vectors, and blocks of one size if that can be."""
        fewest = -(-lanes // self.max_lanes)
        widths = [-(-lanes // n // self.cache_line) * self.cache_line for n in range(fewest, 4 * fewest + 1)]
        return lanes if fewest == 1 else next((width for width in widths if lanes % width == 0), widths[0])

    def literal(self, value: float) -> str:
        """A C constant with exactly these bits (any nan is the nan), rounded to the type."""
        value = c_float(value).value if self.is_float32 else float(value)
        return c_literal(value, "f" if self.is_float32 else "")

    def expression(self, shapes: Shapes, shape: int, leaves: Iterator[str]) -> tuple[str, bool]:
        """The C text of a tree, and whether it needs parentheses inside + and *."""
        if shapes.is_leaf(shape):
            return next(leaves), False
        op = shapes[shape][0]
        if self.fma and op == Op.ADD:
            left, right = shapes.operands(shape)
            if is_product(shapes, right):
                addend, _ = self.expression(shapes, left, leaves)
                return self._multiply_add(shapes, right, leaves, addend), False
            if is_product(shapes, left):
                (a, _), (b, _) = self._operands(shapes, left, leaves)
                addend, _ = self.expression(shapes, right, leaves)
                return f"MULTIPLY_ADD({a}, {b}, {addend})", False
        parts = self._operands(shapes, shape, leaves)
        infix = op in (Op.ADD, Op.MUL)
        return self.ops[op].format(*(f"({text})" if infix and loose else text for text, loose in parts)), infix

    def added(self, shapes: Shapes, shape: int, leaves: Iterator[str], total: str) -> str:
        """The statement that adds a tree to a total."""
        if self.fma and is_product(shapes, shape):
            return f"{total} = {self._multiply_add(shapes, shape, leaves, total)};"
        return f"{total} += {self.expression(shapes, shape, leaves)[0]};"

    def _operands(self, shapes: Shapes, shape: int, leaves: Iterator[str]) -> list[tuple[str, bool]]:
        return [self.expression(shapes, operand, leaves) for operand in shapes.operands(shape)]

    def _multiply_add(self, shapes: Shapes, product: int, leaves: Iterator[str], addend: str) -> str:
        (a, _), (b, _) = self._operands(shapes, product, leaves)
        return f"MULTIPLY_ADD({a}, {b}, {addend})"


def is_product(shapes: Shapes, shape: int) -> bool:
    return not shapes.is_leaf(shape) and shapes[shape][0] == Op.MUL
