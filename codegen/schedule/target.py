"""What loops are scheduled for: the type of numbers, relaxations of strict mode that a Program allows, registers."""

from dataclasses import dataclass, field, replace
from typing import Self

from codegen.program import Program


@dataclass(frozen=True)
class Registers:
    """How many cache lines of sums the loops of a SIMD level keep in its vector registers.

    More would be stored and loaded again for each term, which takes twice as long or longer. csrc/level_begin.h says
    which level has which registers.
    """

    lanes: int  # side by side: each term takes a register or two besides
    tile: int  # of lanes and rows, at most `lanes`: operands that several sums share have registers too
    width: int  # of such a tile
    roots: int  # of a block of images side by side, a line each


WIDE = Registers(lanes=16, tile=16, width=4, roots=16)  # AVX-512: 32 registers of a line
NARROW = Registers(lanes=7, tile=4, width=1, roots=5)  # AVX2: 16 of half a line; NEON: 32 of a quarter


@dataclass(frozen=True)
class Target:
    dtype: str = "float64"
    fma: bool = False
    reorder: bool = False
    density: float = field(default=1.0, compare=False)  # the share of inputs that are expected not to be 0
    registers: Registers = WIDE

    @classmethod
    def of(cls, program: Program) -> Self:
        parts = program.input_parts
        count = sum(part.count for part in parts)
        density = sum(part.density * part.count for part in parts) / count if count else 1.0
        return cls(program.dtype, program.fma, program.reorder, density)

    def at(self, registers: Registers) -> Self:
        """The same, for a SIMD level with other registers."""
        return replace(self, registers=registers)

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
    def bytes(self) -> int:
        """Of a number."""
        return 64 // self.cache_line

    @property
    def max_lanes(self) -> int:
        """Sums that are accumulated side by side."""
        return self.registers.lanes * self.cache_line

    @property
    def product_lines(self) -> int:
        """The lines of a tile that are multiplied by a number for each row.

        For several lines an instruction copies the number to all lanes of a register, which costs a Zen 4 an addition
        where products are not fused. For one line the multiplication itself copies it.
        """
        return self.registers.width if self.fma else 1

    def tile_width(self, lanes: int) -> int:
        """The lanes of a tile of rows: whole lines, in blocks of about equal size, none of a part of a line alone."""
        lines = -(-lanes // self.cache_line)
        most = self.registers.width if lanes % self.cache_line else self.product_lines
        blocks = -(-lines // most) if lanes >= 2 * self.cache_line else 1
        return min(lanes, -(-lines // blocks) * self.cache_line)

    def tile_rows(self, width: int) -> int:
        """The most rows of a tile whose sums fit into registers: gcc takes two for 12 lanes, of 8 and 4."""
        lines, rest = divmod(width, self.cache_line)
        return max(self.registers.tile // (lines + (rest.bit_count() if self.registers == WIDE else rest > 0)), 1)

    def lane_block(self, lanes: int) -> int:
        """The lanes of a block, at most max_lanes: whole vectors, and blocks of equal size if possible."""
        fewest = -(-lanes // self.max_lanes)
        widths = [-(-lanes // n // self.cache_line) * self.cache_line for n in range(fewest, 4 * fewest + 1)]
        return lanes if fewest == 1 else next((width for width in widths if lanes % width == 0), widths[0])
