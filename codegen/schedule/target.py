"""What the loops are scheduled for: the type of numbers, and which relaxations of strict mode a Program allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from codegen.program import Program


@dataclass(frozen=True)
class Target:
    dtype: str = "float64"
    fma: bool = False
    reorder: bool = False
    density: float = field(default=1.0, compare=False)  # the share of inputs that are expected not to be 0

    @classmethod
    def of(cls, program: Program) -> Self:
        parts = program.input_parts
        count = sum(part.count for part in parts)
        density = sum(part.density * part.count for part in parts) / count if count else 1.0
        return cls(program.dtype, program.fma, program.reorder, density)

    @property
    def is_dense(self) -> bool:
        """Whether no input is expected to be 0."""
        return self.density == 1

    @property
    def is_float32(self) -> bool:
        return self.dtype == "float32"

    @property
    def cache_line(self) -> int:
        """Numbers in 64 bytes, which is also the widest vector register."""
        return 16 if self.is_float32 else 8

    @property
    def max_lanes(self) -> int:
        """Sums that are accumulated side by side: in half the vector registers of AVX-512."""
        return 16 * self.cache_line

    def tile_width(self, lanes: int) -> int:
        """The lanes of a tile of rows: whole vectors, at most a quarter of max_lanes, in blocks of about equal size."""
        vectors = -(-lanes // self.cache_line)
        blocks = -(-4 * vectors * self.cache_line // self.max_lanes)
        return min(lanes, -(-vectors // blocks) * self.cache_line)

    def tile_rows(self, width: int) -> int:
        """The most rows of a tile whose sums fit into registers."""
        return self.max_lanes // (-(-width // self.cache_line) * self.cache_line)

    def lane_block(self, lanes: int) -> int:
        """The lanes of a block, at most max_lanes: whole vectors, and blocks of equal size if possible."""
        fewest = -(-lanes // self.max_lanes)
        widths = [-(-lanes // n // self.cache_line) * self.cache_line for n in range(fewest, 4 * fewest + 1)]
        return lanes if fewest == 1 else next((width for width in widths if lanes % width == 0), widths[0])
