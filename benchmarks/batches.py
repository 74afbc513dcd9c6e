"""Images a second against batch size: the MNIST net with one thread, ours strict and fast, against JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.measure import Bench, Column, Result
from benchmarks.tasks import Task

SIZES = tuple(2**i for i in range(11))
MOST = 20_480  # images a run
# A line of the picture: its name, the type of numbers, and which systems it takes the fastest of.
LINES = (
    ("nn strict", "f64", "^nn strict, train"),
    ("nn fast", "f32", "^nn fast, train"),
    ("JAX, lax.scan", "f64", "^JAX, epoch"),
    ("JAX, lax.scan", "f32", "^JAX, epoch"),
    ("PyTorch", "f64", "^PyTorch, (Seq|by)"),
    ("PyTorch", "f32", "^PyTorch, (Seq|by)"),
)


def tasks(images: int) -> list[Task]:
    """A column for each batch size and type. The rate grows with the batch: 0.1 for 64 and 0.5 for 1,000."""
    return [Task("train", d, b, images=min(MOST, images), rate=0.008 * b**0.6) for b in SIZES for d in ("f64", "f32")]


def columns(bench: Bench, chosen: Iterable[Task]) -> Iterator[Column]:
    for task in chosen:
        yield bench.column(task, "|".join(pattern for _, dtype, pattern in LINES if dtype == task.dtype))


def lines(found: list[Column]) -> dict[str, dict[int, Result]]:
    """The fastest system of each line, by batch size."""
    return {
        f"{name}, {dtype}": best
        for name, dtype, pattern in LINES
        if (
            best := {
                column.task.batch: result
                for column in found
                if column.task.dtype == dtype and (result := column.best(name.startswith("nn"), pattern))
            }
        )
    }


def document(head: Iterable[str], found: list[Column]) -> str:
    """The whole of batches.md."""
    drawn = lines(found)
    sizes = dict.fromkeys(column.task.batch for column in found)
    table = [f"| batch | {' | '.join(drawn)} |", "|---:" * (len(drawn) + 1) + "|"]
    for size in sizes:
        cells = [f"{1e6 / line[size].median:,.0f}" if size in line else "" for line in drawn.values()]
        table.append(f"| {size:,} | {' | '.join(cells)} |")
    title = "# Images a second against batch size\n\nWritten by `make bench`. Training of 784-50-10, one thread."
    return "\n\n".join([title, *head, "\n".join(table)]) + "\n"
