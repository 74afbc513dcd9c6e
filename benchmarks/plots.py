"""Two pictures for the README, as SVG and, to look at, PNG."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.accuracy import GOAL, Race
from benchmarks.measure import Column

COLOURS = {"nn": "#d62728", "JAX": "#1f77b4", "PyTorch": "#ff7f0e", "NumPy": "#2ca02c", "scikit-learn": "#9467bd"}
OTHER = "#8c564b"
CUT = " »"
# Names in a picture: ours in its best mode, and each library in its best form.
RACES = ("nn fast", "nn strict", "JAX", "PyTorch, by hand", "PyTorch, Sequential")
FAMILIES = ("nn", "JAX", "PyTorch", "scikit-learn", "NumPy", "ONNX Runtime")


def colour(name: str) -> str:
    return next((c for family, c in COLOURS.items() if name.startswith(family)), OTHER)


def best(column: Column, family: str) -> float | None:
    found = [r.median for r in column.results if r.name.startswith(family)]
    return min(found, default=None)


def heading(column: Column) -> str:
    task = column.task
    what = f"batch {task.batch:,}" if task.kind == "train" else "1 image a call" if task.batch == 1 else "10,000 a call"
    return f"{'train' if task.kind == 'train' else 'predict'} {task.dtype}, {what}"


def save(figure: Any, folder: Path, name: str) -> None:
    for suffix, more in ((".svg", {"metadata": {"Date": None}}), (".png", {"dpi": 110})):
        figure.savefig(folder / f"{name}{suffix}", bbox_inches="tight", **more)


def speed(columns: list[Column], folder: Path) -> None:
    """Bars: µs an image, a panel for each column, each library in its best form."""
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 8, "svg.hashsalt": "micrograd-nn", "svg.fonttype": "none"})
    shown = [c for c in columns if c.task.model == "784-50-10" and (c.task.kind == "train" or c.task.dtype == "f32")]
    if not shown:
        return
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    figure, axes = plt.subplots(down, across, figsize=(3.1 * across, 1.25 * down), squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, column in zip(axes.flat, shown, strict=False):
        pairs = [(family, value) for family in FAMILIES if (value := best(column, family)) is not None]
        pairs.sort(key=lambda pair: -pair[1])
        names, values = zip(*pairs, strict=True)
        axis.barh(names, values, color=[colour(name) for name in names], height=0.75)
        # Bars that are far longer than ours are cut, or nothing else could be seen.
        limit = min(max(values), 25 * min(values)) * 1.3
        axis.set_xlim(0, limit)
        for i, value in enumerate(values):
            inside = value > 0.7 * limit
            words = f"{value:.3g}{CUT if value > limit else ''}"
            axis.text(
                min(value, limit) + limit * (-0.02 if inside else 0.02), i, words,
                va="center", ha="right" if inside else "left", color="white" if inside else "black",
            )  # fmt: skip
        axis.set_title(heading(column), fontsize=8)
        axis.set_xticks([])
        axis.tick_params(length=0)
        for side in ("top", "right", "bottom"):
            axis.spines[side].set_visible(False)
    figure.suptitle("µs an image: shorter is faster (» longer than drawn)", fontsize=9)
    figure.tight_layout()
    save(figure, folder, "speed")
    plt.close(figure)


def accuracy(races: list[Race], folder: Path) -> None:
    """Accuracy on the test set over seconds of training: the best of each group, its middle initialisation."""
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 8, "svg.hashsalt": "micrograd-nn", "svg.fonttype": "none"})
    figure, axis = plt.subplots(figsize=(6.2, 2.8))
    styles: dict[str, int] = {}
    for race in [next((r for r in races if r.name.startswith(group)), None) for group in RACES]:
        if race is None:
            continue
        middle = sorted(race.curves, key=lambda c: c[-1][0])[len(race.curves) // 2]
        family = colour(race.name)
        styles[family] = styles.get(family, -1) + 1
        label = f"{race.name} {race.dtype}, batch {race.batch}: {statistics.median(race.seconds):.2f} s"
        seconds, right = zip(*middle[1:], strict=True)
        axis.plot(seconds, right, label=label, color=family, lw=1.3, ls=("-", "--", ":", "-.")[styles[family] % 4])
    axis.axhline(GOAL, color="gray", lw=0.6)
    axis.set_xscale("log")
    axis.set_ylim(0.88, 0.975)
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("accuracy on the test set")
    axis.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    save(figure, folder, "accuracy")
    plt.close(figure)
