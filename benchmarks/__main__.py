"""`make bench`, or `python -m benchmarks`: this module against the frameworks, interleaved in one run.

    training    us an image: f64 and f32, batches of 1, 64 and 1000
    inference   one image a call, and 10,000
    deeper      training of 784-200-100-10
    accuracy    time to 97 % of the real MNIST's test set
    batches     training, images a second against batch size
    optimizers  momentum and Adam
    small       small models of many kinds, and wide layers

    python -m benchmarks --quick                            a minute or two: two columns of each, one round
    python -m benchmarks --sections small --models LSTM GRU --columns "f64 (1|32)$" --systems "nn|JAX"
    python -m benchmarks --sections training --columns "f32 (1|64)$" --systems "nn|JAX" --rounds 3

A peer that is not installed is named, and the rest runs.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import batches, optimizers, report
from benchmarks.accuracy import GRID, Race, race
from benchmarks.measure import Bench, Column
from benchmarks.small import bench as small
from benchmarks.small import report as small_report
from benchmarks.small.models import MODELS, SMALL, WIDE
from benchmarks.tasks import DEEP, MANY, Data, Task
from benchmarks.worker import CLOCK, WALL
from micrograd.data import mnist

SECTIONS = ("training", "inference", "deeper", "accuracy")
ALL = (*SECTIONS, "batches", "optimizers", "small")
PARTIAL = Path("build/benchmarks")
QUICK = r"(train f(64|32) 1|infer f32 1|batches f(64|32) (1|32|1024)|small f64 (1|32))$"


def tasks(sections: list[str], columns: str, images: int) -> list[Task]:
    """The columns that are asked for: `columns` is searched in names like "train f64 1000"."""
    found: list[Task] = []
    if "training" in sections:
        found += [Task("train", d, batch, images=images) for d in ("f64", "f32") for batch in (1, 64, 1000)]
    if "inference" in sections:
        found += [Task("infer", d, batch) for d in ("f64", "f32") for batch in (1, MANY)]
    if "deeper" in sections:
        most = min(images, 12_800)
        found += [Task("train", d, batch, DEEP, most) for d, batch in (("f64", 1), ("f32", 1), ("f32", 64))]
    return [task for task in found if re.search(columns, f"{task.kind} {task.dtype} {task.batch}")]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the MNIST files")
    parser.add_argument("--digits", action="store_true", help="the built-in digits")
    parser.add_argument("--sections", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--models", nargs="+", choices=[*SMALL], metavar="NAME", help="small models")
    parser.add_argument("--columns", default="", help='what to search in names like "train f64 1000"')
    parser.add_argument("--systems", default="", help='what to search in names like "JAX, epoch in one lax.scan"')
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=60_000, help="images a run for the fast systems")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="beside one")
    parser.add_argument("--quick", action="store_true", help="few columns, one round, fewer images")
    parser.add_argument("--output", type=Path, help="folder for results.md and the pictures of a full run")
    options = parser.parse_args()
    if options.quick:
        if options.sections == ALL:
            options.sections = ["training", "inference", "small"]
        options.columns = options.columns or QUICK
        options.rounds, options.images = 1, min(options.images, 12_000)

    chosen = options.quick or options.systems or options.columns or options.models
    if any(section in options.sections for section in SECTIONS):
        partial = chosen or not set(SECTIONS) <= set(options.sections)
        frameworks(options, destination(options, partial))
    if "batches" in options.sections:
        batch_sizes(options, destination(options, chosen))
    if "optimizers" in options.sections:
        rules(options, destination(options, chosen))
    if "small" in options.sections:
        small_models(options, destination(options, chosen))
    return 0


def destination(options: argparse.Namespace, partial: Any) -> Path | None:
    return PARTIAL if partial and options.output else options.output


def machine() -> str:
    return (
        f"{report.processor()}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, "
        f"CPython {platform.python_version()}"
    )


def images(options: argparse.Namespace) -> tuple[Data, str]:
    """MNIST, and what to call it."""
    digits = mnist.load(options.data, "digits" if options.digits else "auto")
    return Data.of(digits), "the built-in digits" if "built-in" in digits.source else "MNIST"


def summary(versions: Iterable[str], source: str, options: argparse.Namespace, started: datetime) -> str:
    minutes = (datetime.now(UTC) - started).total_seconds() / 60
    what = f"Times are those of {CLOCK}. " if CLOCK != WALL else ""
    return (
        f"{machine()}; {', '.join(versions)}. {source}{options.rounds} rounds, all systems in turns, "
        f"{minutes:.0f} minutes. {what}".rstrip()
    )


def frameworks(options: argparse.Namespace, output: Path | None) -> None:
    """The MNIST nets: this module against the others."""
    data, source = images(options)
    started = datetime.now(UTC)
    columns: list[Column] = []
    races: list[Race] = []
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(data, Path(place), options.threads, options.systems, options.rounds)
        try:
            for task in tasks(options.sections, options.columns, options.images):
                columns.append(bench.column(task, "^(nn|JAX, epoch|PyTorch)" if task.model == DEEP else ""))
            if "accuracy" in options.sections and source == "MNIST" and GRID:
                races = race(bench, min(5, options.rounds))
        finally:
            bench.end()
    head = [
        summary(bench.versions, f"Data: {source}. ", options, started),
        "Medians, in brackets the lowest and the highest round. A peer ran with 1 and with "
        f"{options.threads} threads, of which the better is shown, after the dot."
        if options.threads > 1
        else "Medians, in brackets the lowest and the highest round. One thread.",
    ]
    publish(report.document(head, columns, races, bench.missing, options.threads), output, "results.md")
    if any(column.results for column in columns):
        draw("speed", columns, output)
    if races:
        draw("accuracy", races, output)


def batch_sizes(options: argparse.Namespace, output: Path | None) -> None:
    """Images a second of one net, for many batch sizes."""
    data, source = images(options)
    started = datetime.now(UTC)
    chosen = [t for t in batches.tasks(options.images) if re.search(options.columns, f"batches {t.dtype} {t.batch}")]
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(data, Path(place), 1, options.systems, options.rounds)
        try:
            columns = list(batches.columns(bench, chosen))
        finally:
            bench.end()
    head = summary(bench.versions, f"Data: {source}. ", options, started)
    publish(batches.document([head], columns), output, "batches.md")
    draw("batches", batches.lines(columns), output)


def rules(options: argparse.Namespace, output: Path | None) -> None:
    """Momentum and Adam, with one thread and with several."""
    data, source = images(options)
    started = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(data, Path(place), options.threads, options.systems, options.rounds)
        try:
            chosen = optimizers.tasks(options.columns, options.images)
            columns = [bench.column(task, optimizers.SYSTEMS) for task in chosen]
        finally:
            bench.end()
    head = summary(bench.versions, f"Data: {source}. ", options, started)
    publish(optimizers.document([head], columns, bench.missing), output, "optimizers.md")


def small_models(options: argparse.Namespace, output: Path | None) -> None:
    """Many kinds of models with one thread, wide layers with several threads too."""
    started = datetime.now(UTC)
    names = options.models or ([*MODELS][:3] if options.quick else [*SMALL])
    counts = {1: small.tasks(names, ("f64", "f32"), (1, 32, 256))}
    if options.threads > 1:
        counts[options.threads] = small.tasks([n for n in names if n in WIDE], ("f64", "f32"), (64, 256))
    groups: dict[int, list[Column]] = {}
    versions: dict[str, None] = {}
    missing: dict[str, None] = {}
    for threads, every in counts.items():
        chosen = [task for task in every if re.search(options.columns, f"small {task.dtype} {task.batch}")]
        if not chosen:
            continue
        with tempfile.TemporaryDirectory() as place:
            bench = small.SmallBench(Path(place), threads, options.systems, options.rounds)
            try:
                groups[threads] = [bench.column(task) for task in chosen]
            finally:
                bench.end()
        versions |= dict.fromkeys(bench.versions)
        missing |= dict.fromkeys(bench.missing)
    head = summary(versions, "", options, started)
    publish(small_report.document([head], groups, missing), output, "small.md")
    draw("small", groups.get(1, []), output)


def publish(text: str, folder: Path | None, name: str) -> None:
    """Prints a page, and writes it where there is a folder for it."""
    print(text)
    if folder:
        if folder == PARTIAL:
            print(f"part of the benchmark: {PARTIAL} has its results", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def draw(picture: str, results: Any, folder: Path | None) -> None:
    """One of the functions of benchmarks.plots."""
    if not folder or not results:
        return
    try:
        from benchmarks import plots

        getattr(plots, picture)(results, folder)
    except ImportError as error:
        print(f"no pictures: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
