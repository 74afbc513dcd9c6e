"""The pictures for the README, as SVG and, to look at, PNG."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.accuracy import GOAL, Race
from benchmarks.measure import Column, Result
from benchmarks.small.report import ratio

COLOURS = {"nn": "#d62728", "JAX": "#1f77b4", "PyTorch": "#ff7f0e", "NumPy": "#2ca02c", "scikit-learn": "#9467bd"}
OTHER = "#8c564b"
SHADES = ("#fcae91", "#fb6a4a", "#a50f15")  # of batch sizes
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


def small(columns: list[Column], folder: Path) -> None:
    """Bars: how many times longer the best peer takes, a panel for each type, a bar for each batch size."""
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 8, "svg.hashsalt": "micrograd-nn", "svg.fonttype": "none"})
    ratios = {(c.task.dtype, c.task.model, c.task.batch): found for c in columns if (found := ratio(c)) is not None}
    if not ratios:
        return
    dtypes, models, sizes = (list(dict.fromkeys(names)) for names in zip(*ratios, strict=True))
    height = 0.8 / len(sizes)
    figure, axes = plt.subplots(
        1, len(dtypes), figsize=(1.6 + 3.2 * len(dtypes), 0.8 + 0.32 * len(models)), sharey=True, squeeze=False
    )
    for axis, dtype in zip(axes.flat, dtypes, strict=True):
        for k, batch in enumerate(sizes):
            values = [ratios.get((dtype, model, batch), 1.0) for model in models]
            places = [i + (k - (len(sizes) - 1) / 2) * height for i in range(len(models))]
            # Bars begin at 1, where both are as fast.
            axis.barh(
                places, [v - 1 for v in values], height, left=1, color=SHADES[k % len(SHADES)], label=f"batch {batch}"
            )
        axis.set_xscale("log")
        low, high = min(1.0, *ratios.values()) / 1.2, max(1.0, *ratios.values()) * 1.2
        axis.set_xlim(low, high)
        ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= t <= high]
        axis.set_xticks(ticks, [f"{t:g}" for t in ticks], minor=False)
        axis.minorticks_off()
        axis.axvline(1, color="black", lw=0.8)
        axis.set_title("f64, nn strict" if dtype == "f64" else "f32, nn fast", fontsize=8)
        axis.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    axes.flat[0].set_yticks(range(len(models)), models)
    axes.flat[0].invert_yaxis()
    axes.flat[-1].legend(fontsize=7, frameon=False, loc="lower right")
    figure.suptitle("how many times longer the best peer takes: right of 1 nn is faster", fontsize=9)
    figure.tight_layout()
    save(figure, folder, "small")
    plt.close(figure)


def batches(lines: dict[str, dict[int, Result]], folder: Path) -> None:
    """Images a second over the batch size, a line for each system and type."""
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 8, "svg.hashsalt": "micrograd-nn", "svg.fonttype": "none"})
    figure, axis = plt.subplots(figsize=(6.2, 2.8))
    for name, line in lines.items():
        speeds = [1e6 / result.median for result in line.values()]
        style = "-" if name.endswith("f64") else "--"
        axis.plot(list(line), speeds, label=name, color=colour(name), lw=1.3, ls=style, marker=".", ms=4)
    sizes = sorted({size for line in lines.values() for size in line})
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set_ylim(0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_xlabel("batch size")
    axis.set_ylabel("images a second, one thread")
    axis.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    save(figure, folder, "batches")
    plt.close(figure)
