"""Results as Markdown: tables, ratios, targets. No measuring here."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy import Race
from benchmarks.measure import CLASSES, LOSS, Column, Result
from benchmarks.tasks import MANY, SMALL, Task

SCAN, STEP = "^JAX, epoch in one", "^nn strict, four calls"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(result: Result | None) -> str:
    """Median and spread; after a dot the threads of a peer, of which there may be several."""
    if result is None:
        return ""
    low, high = result.micros[0], result.micros[-1]
    threads = "" if result.ours else f" ·{result.threads}"
    return f"{number(result.median)} ({number(low)} to {number(high)}){threads}"


def title(task: Task) -> str:
    if task.kind == "infer":
        return f"{task.dtype}, {task.batch:,} image{'s' * (task.batch > 1)} a call"
    return f"{task.dtype}, batch {task.batch:,}"


def table(columns: list[Column]) -> str:
    """Systems down, columns across: µs an image. Of a peer's numbers of threads the better one."""
    every = sorted((r for c in columns for r in c.results), key=lambda r: not r.ours)
    names = dict.fromkeys(r.name for r in every)
    lines = [f"| µs an image | {' | '.join(title(c.task) for c in columns)} |", "|---" + "|---:" * len(columns) + "|"]
    for name in names:
        found = [min((r for r in c.results if r.name == name), key=lambda r: r.median, default=None) for c in columns]
        lines.append(f"| {name} | {' | '.join(map(cell, found))} |")
    ratios = []
    for column in columns:
        ours, peer = column.best(True), column.best(False)
        ratios.append(f"**{peer.median / ours.median:.1f}**" if ours and peer else "")
    lines.append(f"| **best peer / best nn** | {' | '.join(ratios)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Target:
    """A ratio that is wanted: peers matching `peer` against ours matching `ours`, in one column."""

    text: str
    column: Task
    ours: str
    peer: str
    ratio: float


def targets(threads: int) -> list[Target]:
    several = f"train, {threads} thread"
    found = [
        Target("loop of four calls, strict f64, batch 1 / JAX scan", Task("train", "f64", 1), STEP, SCAN, 3),
        Target(
            "train, strict f64, batch 1, 1 thread / JAX scan", Task("train", "f64", 1), "strict, train, 1 t", SCAN, 5
        ),
        Target("train, f32, batch 1, 1 thread / JAX scan", Task("train", "f32", 1), "train, 1 t", SCAN, 4),
    ]
    for dtype in ("f64", "f32"):
        for batch in (64, 1000):
            for mode in ("strict ", "fast ") if dtype == "f64" else ("",):
                text = f"train, {mode}{dtype}, batch {batch}, {threads} threads / best peer"
                found.append(Target(text, Task("train", dtype, batch), f"{mode and mode[:-1] + ', '}{several}", "", 3))
    predict = f"predict, {threads} thread"
    return [
        *found,
        Target("predict one image / ONNX Runtime", Task("infer", "f32", 1), "", "^ONNX", 8),
        Target(f"{MANY:,} images, f32, {threads} threads / best peer", Task("infer", "f32", MANY), predict, "", 3),
    ]


def target_row(target: Target, columns: list[Column]) -> str:
    """What was wanted, what it is, and of which two systems."""
    wanted = target.column
    key = wanted.kind, wanted.dtype, wanted.batch, wanted.model
    column = next((c for c in columns if (c.task.kind, c.task.dtype, c.task.batch, c.task.model) == key), None)
    ours = column.best(True, target.ours) if column else None
    peer = column.best(False, target.peer) if column else None
    if ours is None or peer is None:
        return f"| {target.text} | {target.ratio:g} | | {'nn' if ours is None else 'the peer'} is missing |"
    ratio = peer.median / ours.median
    systems = f"{number(ours.median)} µs ({ours.name}), {number(peer.median)} µs ({peer.name}, {peer.threads})"
    return f"| {target.text} | {target.ratio:g} | {verdict(ratio, target.ratio)} | {systems} |"


def verdict(ratio: float, wanted: float) -> str:
    return f"**{ratio:.1f}**, {'reached' if ratio >= wanted else 'not reached'}"


def race_targets(races: list[Race]) -> list[str]:
    ours = next((r for r in races if r.name.startswith("nn")), None)
    rows = []
    for peer in ("PyTorch", "JAX"):
        other = next((r for r in races if r.name.startswith(peer)), None)
        text = f"time to 97 % / {peer}"
        if ours is None or other is None:
            rows.append(f"| {text} | 3 | | {'nn' if ours is None else peer} is missing |")
            continue
        systems = f"{ours.median:.3f} s ({ours.name}, {ours.dtype}), {other.median:.3f} s ({other.name})"
        rows.append(f"| {text} | 3 | {verdict(other.median / ours.median, 3)} | {systems} |")
    return rows


def target_table(columns: list[Column], races: list[Race], threads: int) -> str:
    """The targets of every column that was asked for."""
    asked = {(c.task.kind, c.task.dtype, c.task.batch) for c in columns}
    rows = [
        target_row(t, columns) for t in targets(threads) if (t.column.kind, t.column.dtype, t.column.batch) in asked
    ]
    head = "| nn / peer, within this run | target | times faster | of |\n|---|---:|---|---|\n"
    return head + "\n".join([*rows, *(race_targets(races) if races else [])])


def race_table(races: list[Race]) -> str:
    lines = ["| | batch | seconds to 97 % | of each initialisation | first promised |", "|---|---:|---:|---|---|"]
    for race in races:
        each = ", ".join(f"{s:.3f}" for s in race.seconds)
        promised = ", ".join(f"{batch}: {s:.2f}" for batch, s in race.trials.items())
        name = (
            f"{race.name}, {race.dtype}" if race.name.startswith("nn") else f"{race.name}, {race.dtype} ·{race.threads}"
        )
        lines.append(f"| {name} | {race.batch} | {race.median:.3f} | {each} | {promised} |")
    return "\n".join(lines)


def notes(columns: list[Column]) -> str:
    """How each system ran, and how far from strict float64 it arrived."""
    lines = ["| column | system | how | distance |", "|---|---|---|---:|"]
    for column in columns:
        name = f"{column.task.kind} {'' if column.task.model == SMALL else column.task.model + ' '}{title(column.task)}"
        lines += [f"| {name} | {r.label} | {r.note} | {r.distance:.0e} |" for r in column.results]
    return "\n".join(lines)


def missing(general: Iterable[str], columns: list[Column]) -> str:
    where: dict[str, list[str]] = {}
    for column in columns:
        for text in column.missing:
            where.setdefault(text, []).append(f"{column.task.kind} {title(column.task)}")
    found = [*general, *(f"{text} ({'; '.join(names)})" for text, names in where.items())]
    return "\n".join(f"* {text}" for text in found) or "Nothing."


def document(head: list[str], columns: list[Column], races: list[Race], general: list[str], threads: int) -> str:
    """The whole of results.md, of what was measured."""
    parts = ["# Speed\n\nWritten by `make bench`.", *head]
    parts += ["How fast the same graph is without its loops is in [essay.md](essay.md)."]
    if columns:
        parts += ["## Targets", target_table(columns, races, threads)]
    groups: list[tuple[str, Callable[[Task], bool]]] = [
        (f"## Training, {SMALL}, f64", lambda t: t.kind == "train" and t.dtype == "f64" and t.model == SMALL),
        (f"## Training, {SMALL}, f32", lambda t: t.kind == "train" and t.dtype == "f32" and t.model == SMALL),
        ("## Inference", lambda t: t.kind == "infer"),
        ("## Training, a deeper model: 784-200-100-10", lambda t: t.model != SMALL),
    ]
    for heading, belongs in groups:
        found = [c for c in columns if belongs(c.task)]
        if found:
            parts += [heading, table(found)]
    if races:
        parts += ["## Time to 97 % of MNIST's test set", RACE, race_table(races)]
    if columns:
        parts += ["## How they ran", CHECK, notes(columns), "## Missing", missing(general, columns)]
    return "\n\n".join(parts) + "\n"


CHECK = f"""Before it is timed, each system makes the very run that is timed, from the same weights. Training: the loss
on the test set afterwards lies within {LOSS["f64"]:g} (f64) or {LOSS["f32"]:g} (f32, where a relu may fall on the other
side of 0) of strict float64, relatively; the distance is in the table. Inference: at most
{CLASSES["f64"]:g} (f64) or {CLASSES["f32"]:g} (f32) of the classes differ. After the dot: threads of a peer."""

RACE = """Everybody starts from the same weights and goes through the file in the same order, with the learning rates of
[grid.md](grid.md) and the batch size with the shortest promise: µs an image in a trial, times the images that the grid
says it takes. Only training is on the clock; compilation, moving data to the device and looking at the test set (every
6,000 images) are not."""
