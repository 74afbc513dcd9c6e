"""What is printed at the end."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tools.cross.builds import Failed
from tools.cross.compare import Reference, Run
from tools.cross.driver import EPOCH
from tools.cross.epoch import sha256


@dataclass
class Row:
    """A platform: what was done with it, and what came out wrong."""

    target: str
    compiler: str
    compared: str
    good: str  # the result where nothing is wrong
    epoch: str = ""  # the hash of the weights after it, if there was one
    wrong: list[str] = field(default_factory=list)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns, each as wide as its widest entry. The first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def results(rows: Sequence[Row]) -> str:
    """A line for each platform, then everything that is wrong."""
    lines = [("platform", "compiler", "compared", "after an epoch", "result")]
    lines += [(x.target, x.compiler, x.compared, x.epoch[:16], "WRONG" if x.wrong else x.good) for x in rows]
    details = [f"{row.target}: {line}" for row in rows for line in row.wrong]
    return "\n\n".join([table(lines), *(["\n".join(details)] if details else [])])


def compared(name: str, runs: Future[dict[str, Run]], expected: Reference, stages: tuple[str, ...] = ("",)) -> Row:
    """The row of a platform whose runs must be those of this machine."""
    row = Row(name, "", "", "same bits")
    try:
        found = runs.result()
    except Failed as error:
        row.wrong = [str(error)]
        return row
    row.compiler = " ".join(next(iter(found.values())).info["compiler"].split()[:2])
    row.compared = f"{len(found.keys() - {EPOCH})} programs, {sum(run.count for run in found.values()):,} numbers"
    row.epoch = sha256(found[EPOCH]) if EPOCH in found else ""
    row.wrong = expected.differences(found, stages)
    return row
