"""The page of a report: HTML that needs no other file. Charts are SVG, pictures of pixels PNG, both by matplotlib."""

import base64
import io
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from micrograd.commands.run_log import Findings
from micrograd.data.mnist import CLASSES, SIDE

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]

MOST_WRONG = 24  # digits
BINS = 10  # of the calibration
FEW = 10  # images

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 0; background: #f6f7f9; color: #1f2430; font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }}
main {{ max-width: 1040px; margin: 0 auto; padding: 32px 20px 60px; }}
h1 {{ font-size: 24px; margin: 0; }}
h2 {{ font-size: 16px; margin: 0 0 2px; }}
p {{ margin: 0 0 10px; color: #6b7280; }}
section {{ background: white; border: 1px solid #e5e7eb; border-radius: 10px; padding: 16px 18px; min-width: 0; }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 16px; margin-top: 16px; }}
.wide {{ grid-column: 1 / -1; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 16px; margin-top: 20px; }}
.tiles b {{ display: block; font-size: 24px; font-weight: 600; }}
.tiles span {{ color: #6b7280; font-size: 13px; }}
svg, img {{ max-width: 100%; height: auto; display: block; margin: 0 auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px; }}
td {{ padding: 3px 0; border-top: 1px solid #e5e7eb; }}
td:first-child {{ color: #6b7280; padding-right: 16px; white-space: nowrap; }}
pre {{ overflow-x: auto; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; margin: 10px 0 0; }}
summary {{ cursor: pointer; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{subtitle}</p>
<div class="tiles">{tiles}</div>
<div class="grid">{sections}</div>
</main>
</body>
</html>
"""

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


def html(found: Findings) -> str:
    right = found.predictions == found.labels
    sections = [
        section("Loss", "of the model during each epoch, and after it on images it is not trained on", losses(found)),
        section("Accuracy", "after each epoch", accuracies(found)),
        section("Confusion", "mistakes are shaded, what is right is not", confusion(found)),
        calibration(found),
        most_wrong(found, right),
        first_layer(found),
        section("How it was trained", "", settings(found), is_wide=True),
        section(
            "The model's loops", "what the compiler finds in the graph, and how it runs", loops(found), is_wide=True
        ),
    ]
    recipe = found.settings["recipe"]
    return PAGE.format(
        title=escape(found.info["architecture"] or "A model"),
        subtitle=escape(f"{found.info['dtype']}, {recipe.update()}, {found.source}"),
        tiles="".join(map(tile, facts(found, right))),
        sections="\n".join(text for text in sections if text),
    )


def tile(fact: tuple[str, str]) -> str:
    number, name = map(escape, fact)
    return f"<section><b>{number}</b><span>{name}</span></section>"


def facts(found: Findings, right: Any) -> list[tuple[str, str]]:
    """The numbers on top, each with its name."""
    count = len(right)
    best = best_epoch(found)
    seconds = found.epochs[-1].seconds if found.epochs else math.nan
    facts = [
        (f"{right.mean():.2%}", f"of {count:,} test images right"),
        (f"{count - int(right.sum()):,}", "mistakes"),
        (f"{len(found.epochs)}", f"epochs, the best is {best}" if best else "epochs"),
        (f"{found.info['parameters']:,}", "parameters"),
    ]
    return facts if math.isnan(seconds) else [*facts, (f"{seconds:.1f} s", "of training")]


def section(title: str, text: str, content: str, is_wide: bool = False) -> str:
    wide = ' class="wide"' if is_wide else ""
    return f"<section{wide}><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def best_epoch(found: Findings) -> int:
    """The epoch with the highest accuracy on the images held out, 0 if there were none."""
    held = [(-epoch.validation_accuracy, epoch.number) for epoch in found.epochs if epoch.validation_loss >= 0]
    return min(held)[1] if held else 0


def losses(found: Findings) -> str:
    lines: list[Line] = [
        ("training", TRAINING, [epoch.loss for epoch in found.epochs]),
        ("held out", VALIDATION, [epoch.validation_loss for epoch in found.epochs]),
        ("test", TEST, [epoch.test_loss for epoch in found.epochs]),
    ]
    return curves([epoch.number for epoch in found.epochs], lines, best_epoch(found), is_share=False)


def accuracies(found: Findings) -> str:
    lines: list[Line] = [
        ("held out", VALIDATION, [epoch.validation_accuracy for epoch in found.epochs]),
        ("test", TEST, [epoch.test_accuracy for epoch in found.epochs]),
    ]
    return curves([epoch.number for epoch in found.epochs], lines, best_epoch(found), is_share=True)


def confusion(found: Findings) -> str:
    return shaded(matrix(found.labels, found.predictions))


def calibration(found: Findings) -> str:
    if found.probabilities is None:
        return ""
    shares, accuracies, weights = binned(found)
    error = float((weights * np.abs(accuracies - shares)).sum())
    kept = weights * len(found.labels) >= FEW  # of fewer images a share says little
    shares, accuracies, weights = shares[kept], accuracies[kept], weights[kept]
    text = f"where the model is this sure, how often it is right; on average the two differ by {error:.2%}"
    return section("Calibration", text, reliability(shares, accuracies, weights))


def binned(found: Findings) -> tuple[Any, Any, Any]:
    """Of each bin of probabilities with images in it: their mean, the share that is right, and how many there are."""
    assert found.probabilities is not None
    sure = found.probabilities[np.arange(len(found.labels)), found.predictions]
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    kept = counts > 0
    shares = np.bincount(bins, sure, BINS)[kept] / counts[kept]
    right = np.bincount(bins, found.predictions == found.labels, BINS)[kept] / counts[kept]
    return shares, right, counts[kept] / counts.sum()


def most_wrong(found: Findings, right: Any) -> str:
    """The digits to which the model gives the least probability of being what they are."""
    wrong = np.flatnonzero(~right)
    if not len(wrong):
        return ""
    if found.probabilities is None:
        chosen = wrong[:MOST_WRONG]
        titles = [f"{found.labels[i]}, not {found.predictions[i]}" for i in chosen]
    else:
        truth = found.probabilities[wrong, found.labels[wrong]]
        chosen = wrong[np.argsort(truth, kind="stable")][:MOST_WRONG]
        sure = found.probabilities[chosen, found.predictions[chosen]]
        titles = [
            f"{found.labels[i]}, not {found.predictions[i]} ({share:.0%})"
            for i, share in zip(chosen, sure, strict=True)
        ]
    text = "test images whose true digit got the least probability; in brackets, that of the predicted one"
    image = f'<img alt="the most wrong digits" src="{digits(found.images[chosen], titles)}">'
    return section("Most wrong", text, image, is_wide=True)


def first_layer(found: Findings) -> str:
    if found.weights is None:
        return ""
    name, weights = found.weights
    text = f"{name}: a tile for each of {len(weights)} units, blue below 0, red above, all on one scale"
    return section("First layer", text, f'<img alt="weights of the first layer" src="{tiles(weights)}">', is_wide=True)


def settings(found: Findings) -> str:
    recipe = found.settings["recipe"]
    rows = {
        "model": recipe.model or f"{found.info['architecture']}, digest {found.info['digest'][:16]}",
        "optimizer": recipe.update(),
        **{name.replace("_", " "): value for name, value in found.settings.items() if is_shown(name, value)},
        "kernels": f"{found.info['simd']}, {found.info['compiler']}",
    }
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<table>{cells}</table>"


def is_shown(name: str, value: Any) -> bool:
    return name not in ("recipe", "data", "digits") and value is not None


def loops(found: Findings) -> str:
    return f"<details><summary>explain</summary><pre>{escape(found.explanation)}</pre></details>"


# Pictures


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


def shaded(counts: Counts) -> str:
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


def reliability(shares: Floats, accuracies: Floats, weights: Floats) -> str:
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
