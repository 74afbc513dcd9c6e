"""The pictures of a report, drawn by matplotlib: SVG text for charts, PNG for what is made of pixels."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from micrograd.data.mnist import CLASSES, SIDE

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Bytes = npt.NDArray[np.uint8]
    Counts = npt.NDArray[np.int64]

INK, FAINT, GRID = "#1f2430", "#6b7280", "#e5e7eb"
TRAINING, VALIDATION, TEST = "#9ca3af", "#d97706", "#2563eb"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # the page's own fonts
    "svg.hashsalt": "micrograd",  # the same run gives the same bytes
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "legend.frameon": False,
}
Line = tuple[str, str, Sequence[float]]  # name, colour, a number for each epoch


def curves(numbers: Sequence[int], lines: Sequence[Line], best: int, is_share: bool) -> str:
    """Lines over the epochs. `best`: the epoch to mark, 0 for none; nan: not measured."""
    with mpl.rc_context(STYLE):
        figure, axes = chart(5.6, 3.3)
        for name, colour, values in lines:
            if not all(math.isnan(value) for value in values):
                axes.plot(numbers, values, color=colour, label=name, linewidth=2, marker="o", markersize=3.5)
        if best:
            axes.axvline(best, color=FAINT, linewidth=1, linestyle=":")
            axes.annotate(
                "best", (best, 1), xycoords=("data", "axes fraction"), color=FAINT, ha="center", va="bottom", fontsize=9
            )
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if is_share:
            axes.yaxis.set_major_formatter(lambda y, _: f"{y:.1%}")
        axes.legend()
        return svg(figure)


def confusion(counts: Counts) -> str:
    """Rows are the true digits. Mistakes are shaded by their number; the diagonal, which dwarfs them, is not."""
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = chart(4.6, 4.4)
        mistakes = counts * (1 - np.eye(len(counts), dtype=np.int64))
        most = max(int(mistakes.max()), 1)
        axes.imshow(mistakes, cmap="Oranges", vmin=0, vmax=most)
        for row, column in np.ndindex(counts.shape):
            count = counts[row, column]
            colour = FAINT if row == column else "white" if count > 0.6 * most else INK
            if count:
                axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=8.5)
        axes.set(xticks=range(len(counts)), yticks=range(len(counts)), xlabel="predicted", ylabel="true digit")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        return svg(figure)


def calibration(shares: Floats, accuracies: Floats, weights: Floats) -> str:
    """How often the model is right where it is this sure; the bars below say how often it is."""
    with mpl.rc_context(STYLE):
        figure, axes = chart(4.6, 4.4)
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--", label="well calibrated")
        axes.bar(shares, weights, width=0.07, color=GRID, label="share of the images")
        axes.plot(shares, accuracies, color=TEST, linewidth=2, marker="o", markersize=4, label="the model")
        axes.set(
            xlim=(0, 1.02), ylim=(0, 1.02), xlabel="probability of the predicted digit", ylabel="share that is right"
        )
        axes.legend(loc="upper left")
        return svg(figure)


def digits(images: Bytes, titles: Sequence[str], columns: int = 8) -> str:
    """Pictures in rows, each with a title below it."""
    with mpl.rc_context({**STYLE, "axes.grid": False, "font.size": 8}):
        rows = -(-len(images) // columns)
        figure = Figure(figsize=(columns * 1.15, rows * 1.5), layout="constrained")
        for i, (image, title) in enumerate(zip(images, titles, strict=True)):
            axes = figure.add_subplot(rows, columns, i + 1)
            axes.imshow(image.reshape(SIDE, SIDE), cmap="gray_r", vmin=0, vmax=255)
            axes.set_xlabel(title, color=INK)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(True)
        return png(figure, 110)


def tiles(weights: Floats, columns: int = 10) -> str:
    """Weights of units as images, all on one scale: blue is below 0, red above."""
    gap, rows = 2, -(-len(weights) // columns)
    step = SIDE + gap
    sheet = np.full((rows * step - gap, columns * step - gap), np.nan)
    for i, unit in enumerate(weights):
        top, left = i // columns * step, i % columns * step
        sheet[top : top + SIDE, left : left + SIDE] = unit.reshape(SIDE, SIDE)
    most = float(np.quantile(np.abs(weights), 0.995)) or 1.0
    pixels = mpl.colormaps["RdBu_r"]((np.clip(sheet, -most, most) / most + 1) / 2)
    pixels[np.isnan(sheet)] = 0  # transparent
    big = np.kron(np.rint(pixels * 255).astype(np.uint8), np.ones((2, 2, 1), np.uint8))
    figure = Figure(figsize=(big.shape[1] / 100, big.shape[0] / 100))
    figure.figimage(big)
    return png(figure, 100)


def chart(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def png(figure: Figure, resolution: int) -> str:
    """As the address of an image that is inside the page."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=resolution, transparent=True, metadata={"Software": None})
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def matrix(labels: Bytes, predictions: Bytes) -> Counts:
    counts = np.zeros((CLASSES, CLASSES), np.int64)
    np.add.at(counts, (labels, predictions), 1)
    return counts
