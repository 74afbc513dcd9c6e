"""What is printed at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tools.cross.compare import FUNCTIONS, Difference


@dataclass
class Row:
    """A platform: what was done with it, and what came out wrong."""

    target: str
    compiler: str
    compared: str
    good: str  # the result where nothing is wrong
    wrong: list[str] = field(default_factory=list)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns, each as wide as its widest entry. The first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def results(rows: Sequence[Row]) -> str:
    """A line for each platform, then everything that is wrong."""
    lines = [("platform", "compiler", "compared", "result")]
    lines += [(row.target, row.compiler, row.compared, row.good if not row.wrong else "WRONG") for row in rows]
    details = [f"{row.target}: {line}" for row in rows for line in row.wrong]
    return "\n\n".join([table(lines), *(["\n".join(details)] if details else [])])


def library(differences: Mapping[str, Mapping[str, Difference]], count: int) -> str:
    """For each platform, how often the C library's functions give other bits than this machine's."""
    lines: list[tuple[str, ...]] = [("C library", *FUNCTIONS)]
    for target, functions in differences.items():
        cells = (f"{d.count} ({d.units} ulp)" if d.count else "same" for d in functions.values())
        lines.append((target, *cells))
    heading = f"Results with other bits than this machine's, of {count:,} arguments, and how far off at most:"
    return f"{heading}\n{table(lines)}"
