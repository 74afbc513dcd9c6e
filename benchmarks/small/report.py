"""The small models as Markdown: a table for each type of numbers and number of threads. No measuring here."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.measure import Column
from benchmarks.report import missing, number
from benchmarks.small.bench import DISTANCE, EXAMPLES, WIDE_EXAMPLES


def ratio(column: Column) -> float | None:
    """How many times longer the best peer takes."""
    ours, peer = column.best(True), column.best(False)
    return peer.median / ours.median if ours and peer else None


def table(columns: list[Column]) -> str:
    """Columns of the benchmark as rows: models and batch sizes down, systems across."""
    every = sorted((r for c in columns for r in c.results), key=lambda r: not r.ours)
    names = list(dict.fromkeys(r.name for r in every))
    lines = [
        f"| µs an example | batch | {' | '.join(names)} | best peer / nn |",
        "|---" + "|---:" * (len(names) + 2) + "|",
    ]
    for column in columns:
        found = {r.name: number(r.median) for r in column.results}
        share = ratio(column)
        cells = [found.get(name, "") for name in names] + [f"**{share:.2f}**" if share else ""]
        lines.append(f"| {column.task.model} | {column.task.batch} | {' | '.join(cells)} |")
    return "\n".join(lines)


def document(head: Iterable[str], groups: dict[int, list[Column]], general: Iterable[str]) -> str:
    """The whole of small.md. `groups` has the columns by the number of threads."""
    parts = ["# Small models of many kinds\n\nWritten by `make bench`.", *head, ABOUT]
    for threads, columns in groups.items():
        for dtype, mode in (("f64", "f64, nn strict"), ("f32", "f32, nn fast")):
            found = [c for c in columns if c.task.dtype == dtype]
            if found:
                parts += [f"## {mode}, {threads} thread{'s' * (threads > 1)}", table(found)]
    columns = [c for found in groups.values() for c in found]
    return "\n\n".join([*parts, "## Missing", missing(general, columns)]) + "\n"


ABOUT = f"""One epoch of {EXAMPLES} examples, {WIDE_EXAMPLES} for wide layers, of which slow systems see fewer, from the
same weights each time; medians of the rounds. Our call is `train()`, once an epoch. torch.compile takes up to a minute
for each column, so it runs at one batch size only.

Before a system is timed, it makes the very run that is timed. Its parameters then lie within {DISTANCE["f64"]:g} (f64)
or {DISTANCE["f32"]:g} (f32) of those of strict float64, as a share of the way from the start. `benchmarks/small/` has
the models: `models.py` for nn, `peers_*.py` for the others."""
