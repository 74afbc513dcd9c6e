"""The page of a report: HTML that needs no other file."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from micrograd.commands import report_figures as figures
from micrograd.commands.run_log import Findings

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
    lines: list[figures.Line] = [
        ("training", figures.TRAINING, [epoch.loss for epoch in found.epochs]),
        ("held out", figures.VALIDATION, [epoch.validation_loss for epoch in found.epochs]),
        ("test", figures.TEST, [epoch.test_loss for epoch in found.epochs]),
    ]
    return figures.curves([epoch.number for epoch in found.epochs], lines, best_epoch(found), is_share=False)


def accuracies(found: Findings) -> str:
    lines: list[figures.Line] = [
        ("held out", figures.VALIDATION, [epoch.validation_accuracy for epoch in found.epochs]),
        ("test", figures.TEST, [epoch.test_accuracy for epoch in found.epochs]),
    ]
    return figures.curves([epoch.number for epoch in found.epochs], lines, best_epoch(found), is_share=True)


def confusion(found: Findings) -> str:
    return figures.confusion(figures.matrix(found.labels, found.predictions))


def calibration(found: Findings) -> str:
    if found.probabilities is None:
        return ""
    shares, accuracies, weights = binned(found)
    error = float((weights * np.abs(accuracies - shares)).sum())
    kept = weights * len(found.labels) >= FEW  # of fewer images a share says little
    shares, accuracies, weights = shares[kept], accuracies[kept], weights[kept]
    text = f"where the model is this sure, how often it is right; on average the two differ by {error:.2%}"
    return section("Calibration", text, figures.calibration(shares, accuracies, weights))


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
    image = f'<img alt="the most wrong digits" src="{figures.digits(found.images[chosen], titles)}">'
    return section("Most wrong", text, image, is_wide=True)


def first_layer(found: Findings) -> str:
    if found.weights is None:
        return ""
    name, weights = found.weights
    text = f"{name}: a tile for each of {len(weights)} units, blue below 0, red above, all on one scale"
    return section(
        "First layer", text, f'<img alt="weights of the first layer" src="{figures.tiles(weights)}">', is_wide=True
    )


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
