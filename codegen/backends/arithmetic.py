"""The C type and the C literals of numbers.

Example: in float64 0.1 is 0x1.999999999999ap-4, with dtype="float32" it is 0x1.99999ap-4f.
"""

from __future__ import annotations

from ctypes import c_float
from dataclasses import dataclass

from codegen.schedule.target import Target
from micrograd.texts import c_literal


@dataclass(frozen=True)
class Arithmetic(Target):
    @property
    def type(self) -> str:
        return "float" if self.is_float32 else "double"

    def literal(self, value: float) -> str:
        """A C constant with exactly these bits (all nans become NAN), rounded to the type."""
        value = c_float(value).value if self.is_float32 else float(value)
        return c_literal(value, "f" if self.is_float32 else "")
