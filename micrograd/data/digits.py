"""Digits that look handwritten, for training without MNIST.

A digit is a few strokes of a pen: smooth curves through control points. Each image is one of several ways to write
its digit, with the control points moved a little, the whole of it bent, slanted and turned, and the pen broad or
fine. It is placed as MNIST places its digits: scaled to a box of 20 x 20 pixels and centred by its ink in 28 x 28.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.float64]

SIDE = 28  # pixels, the images' width and height
BOX = 20  # pixels, the longer side of a digit
CENTRE = 14.5  # pixels from the left and the top, where MNIST has the centre of the ink: the middle of pixel 14
GRID = 2 * SIDE  # cells on a side of the grid that collects the ink before it spreads into pixels
SPREAD = 0.85  # pixels, how far it spreads: the standard deviation of a Gaussian
DOT = 1.5  # pixels of stroke: the extra ink where the pen comes down and where it lifts
SPACING = 2  # hundredths of a digit's height, between neighbouring points of a stroke
BATCH = 1000  # images drawn at a time: it bounds the memory

# The ways to write each digit. Points are x,y in hundredths of the digit's height, y downwards; a stroke is a smooth
# curve through its points, "!" makes a point a corner, ";" lifts the pen.
GLYPHS: dict[int, tuple[str, ...]] = {
    0: (
        "36,2 14,16 4,52 16,92 36,98 58,80 64,42 52,10 34,3",
        "50,6 22,8 3,50 10,90 30,98 56,70 62,30 46,4 30,14",
        "30,4 8,30 4,66 24,97 50,86 66,50 60,16 34,2 22,12",
        "42,0 10,26 2,64 14,96 42,94 62,62 60,24 40,10 24,24",
        "50,4 20,8 2,50 14,92 44,98 72,66 74,26 56,4 40,6",
        "20,14 40,2 62,20 64,60 44,96 14,90 4,54 16,18 34,6",
        "46,2 16,24 2,58 8,86 30,98 56,78 72,42 66,14 44,2",
        "60,10 30,4 4,30 6,66 30,82 66,76 84,44 66,10 44,4",
    ),
    1: (
        "20,2 20,50 20,98",
        "24,2 18,50 18,98",
        "20,2 24,50 20,98",
        "6,22 26,2! 24,50 24,98",
        "6,20 28,2! 28,98!; 4,98 52,98",
        "60,2 30,52 6,98",
        "46,2 20,60 14,98",
        "20,14 40,2! 34,50 26,98",
    ),
    2: (
        "6,22 18,4 44,2 56,22 42,52 6,96! 36,94 66,96",
        "6,24 20,4 46,4 54,28 36,64 14,94 4,88 14,76 34,86 68,94",
        "4,18 24,2 50,10 52,36 30,74 8,92 6,76 24,76 46,92 70,86",
        "4,10 30,4 54,8 50,34 28,70 4,96! 66,92",
        "10,30 14,8 36,0 56,14 52,42 26,76 4,98! 30,88 50,98 66,90",
        "14,24 30,4 52,6 54,30 34,66 10,92 0,84 14,74 40,88 84,96",
        "10,14 36,2 50,14 38,50 4,92! 40,88 84,84",
        "6,8 50,4! 40,40 6,96! 60,94",
        "14,30 20,8 46,2 62,18 50,48 26,78 8,94 2,82 20,70 44,80 60,96 78,98",
        "4,26 8,8 30,2 46,14 44,40 26,70 6,94! 40,86 56,88 76,98",
        "12,20 40,2 66,14 58,40 36,60 6,80! 40,76 80,82",
        "20,34 14,16 34,2 56,12 54,44 36,80 14,98 0,90 8,76 36,82 66,94",
    ),
    3: (
        "6,14 26,2 50,10 50,30 22,46! 52,54 60,76 40,96 4,92",
        "6,14 30,2 52,14 44,36 20,48 44,50 62,68 50,92 26,98 2,88",
        "6,6 54,4! 24,42! 52,50 60,74 40,96 4,92",
        "8,18 26,2 50,12 42,38 20,50 28,42 54,56 58,80 34,98 4,86",
        "4,10 34,2 54,16 44,38 16,46! 46,50 56,72 40,92 8,98",
        "16,10 44,2 66,10 56,32 26,44! 52,52 56,74 32,96 2,92",
        "0,10 40,4 52,16 40,36 26,42! 44,60 42,84 16,98 2,86",
        "4,22 20,4 46,4 54,20 34,40 20,46! 46,48 70,62 66,86 36,98 8,94 0,82",
        "14,8 40,2 54,10 46,30 30,44! 50,48 54,66 36,88 4,98",
        "6,4 30,8 60,4! 40,28 26,44 50,54 58,74 40,96 8,90",
    ),
    4: (
        "10,4 4,52! 34,54 64,46; 54,2 52,50 48,98",
        "22,2 4,56! 66,54; 52,10 48,54 44,98",
        "42,2 4,64! 66,62; 46,2 46,98",
        "8,6 6,40 24,54 50,46; 58,2 50,50 44,98",
        "6,4 10,40 28,50 54,32 58,4! 54,50 46,98",
        "34,2 2,62! 34,64 62,58; 40,34 36,70 34,98",
        "20,2 2,46 10,56 40,52 78,44; 56,14 46,56 38,98",
        "16,10 4,44 20,50 50,40; 58,6 48,50 40,98",
        "12,8 4,54! 58,50! 60,2! 54,98",
        "50,2 10,42 4,56 60,54; 52,0 50,54 44,98",
        "30,4 10,34 6,50 24,56 48,46; 66,0 44,52 24,98",
        "4,8 4,36 20,46 44,36 54,6! 50,50 50,98",
        "16,4 6,34 16,46 40,40 56,8 50,44 34,98",
        "60,2 8,54! 36,56 76,52; 60,2 52,50 46,98",
    ),
    5: (
        "16,6 12,44! 34,38 56,56 50,84 26,98 2,90; 16,6 40,4 64,2",
        "62,2 18,6! 12,44! 36,40 54,58 46,86 22,98 2,88",
        "64,4 36,6 18,18 16,40 40,52 50,74 32,96 4,92",
        "14,12 12,46! 38,40 56,60 44,90 20,98 2,86; 12,10 40,12 66,4",
        "70,6 26,4! 16,44! 42,56 44,82 24,98 2,84",
        "94,2 60,6 32,10! 24,46! 50,56 52,82 28,98 2,90",
        "26,24 18,48 44,52 54,72 34,94 4,96; 26,22 54,18 92,4",
        "50,4 18,8 6,34 30,46 54,60 52,88 24,98 6,84",
        "58,8 28,4 10,14 8,38 36,44 58,62 54,86 28,98 4,92",
        "6,14 12,48! 36,44 48,62 34,88 6,98; 6,14 40,12 80,2",
        "80,4 40,10 30,12! 20,40 38,52 40,74 22,96 2,92",
        "20,4 8,44! 30,40 62,50 66,76 40,96 2,92; 20,4 60,2",
    ),
    6: (
        "46,2 20,26 4,62 14,94 38,96 52,76 40,56 20,62 8,82",
        "40,0 16,36 4,74 18,98 44,92 54,68 36,56 12,74",
        "30,2 10,40 4,78 24,98 50,86 48,64 28,58 8,74",
        "54,2 26,18 6,54 8,88 30,98 52,82 46,60 26,62 12,80",
        "28,0 8,50 12,92 40,96 58,78 48,60 24,70 16,90",
        "50,2 22,34 6,70 18,96 46,92 72,70 56,56 30,70 20,92",
        "20,2 4,44 10,86 34,98 62,84 62,60 38,52 16,70",
        "26,2 4,40 2,78 22,98 48,90 56,66 42,56 24,74 30,92",
        "60,4 30,20 8,54 8,86 30,98 58,84 56,58 34,50 12,74",
        "24,2 10,40 4,74 14,96 32,96 42,80 34,66 18,74 8,88",
        "66,2 36,32 10,72 14,94 44,96 74,78 66,62 34,68 16,88",
    ),
    7: (
        "4,12 30,8 58,4! 44,44 30,98",
        "4,6 56,6! 26,98",
        "6,24 10,8! 34,8 58,4! 42,46 32,98",
        "4,10 30,10 58,4! 40,44 26,98; 18,52 40,50 60,46",
        "2,14 20,4 38,10 58,2 50,34 34,66 28,98",
        "4,8 56,8! 50,50 48,98",
        "2,32 10,8! 34,10 54,4 54,30 48,60 46,98",
        "2,16 24,8 52,4 54,22 36,56 30,98",
        "0,16 40,8 80,2! 52,40 30,98",
        "4,10 30,10 58,4! 44,44 36,98; 12,58 70,48",
        "2,28 8,10! 36,8 56,6 52,36 40,70 36,98",
        "4,6 34,10 58,14 44,56 40,98",
        "8,34 4,12! 40,12 76,4! 56,40 30,70 16,98",
    ),
    8: (
        "54,10 34,2 12,14 18,36 42,54 52,78 34,98 10,88 12,66 36,46 52,26 50,10",
        "48,8 26,2 10,20 24,42 46,62 46,88 22,98 6,82 22,58 44,38 54,18 40,4",
        "32,2 12,12 14,34 32,46 52,32 50,10 32,2; 32,46 6,66 10,92 34,98 54,86 50,60 32,46",
        "58,10 30,4 10,20 22,42 44,58 40,88 16,98 4,80 20,60 44,44 62,20",
        "62,6 40,2 22,16 28,36 42,56 34,88 12,98 4,82 20,60 50,36 66,14",
        "66,16 40,4 8,14 14,34 46,54 62,78 40,98 14,88 24,62 52,40 70,8",
        "26,40 8,26 14,8 40,2 52,18 40,36 20,54 10,80 28,98 48,84 40,60 22,38",
        "50,14 34,2 18,8 18,28 40,44 66,62 70,86 36,98 6,84 14,62 40,42 54,24 48,10",
        "70,20 48,6 20,8 8,24 30,40 44,58 40,86 20,98 8,84 22,60 50,42 84,16",
        "46,4 20,4 12,22 28,40 30,60 26,90 12,98 6,84 20,58 44,34 52,14 40,2",
        "60,14 36,2 10,14 16,36 50,46 72,68 54,96 16,94 8,70 40,46 62,24 52,8",
    ),
    9: (
        "52,12 28,2 6,20 10,44 34,46 52,20! 52,56 48,98",
        "50,16 30,2 8,18 10,42 32,46 50,26! 44,64 34,98",
        "48,10 24,2 6,24 18,46 42,38 52,10! 54,46 44,84 14,94",
        "44,6 20,6 6,30 20,48 42,34 48,8 52,40 46,98",
        "54,20 40,2 14,8 6,34 24,46 46,34! 40,66 22,98",
        "58,10 36,2 8,20 4,40 24,44 50,24 60,6! 48,46 28,98",
        "46,28 54,8 36,2 10,18 6,38 26,42 48,24! 40,60 34,98",
        "56,26 52,4 24,2 6,22 16,38 44,34 58,16! 54,60 50,98",
        "52,20 36,4 12,12 6,36 24,46 48,30 54,14! 50,50 40,80 36,98",
        "62,12 50,2 22,10 6,30 14,44 36,40 60,16! 44,54 20,98",
        "40,26 38,6 18,4 6,24 20,36 36,26 44,10! 46,50 52,98",
    ),
}


def load(train: int = 60000, test: int = 10000, seed: int = 0) -> tuple[bytes, bytes, bytes, bytes]:
    """(train images, train labels, test images, test labels), as `generate` gives them, drawn independently."""
    return (*generate(train, (seed, 0)), *generate(test, (seed, 1)))


def generate(count: int, seed: int | Sequence[int] = 0) -> tuple[bytes, bytes]:
    """(images, labels): count x 28 x 28 bytes, from 0 for paper to 254 for ink, and count bytes 0..9, in random order.

    The same count and seed give the same images, as long as NumPy's random streams stay as they are. Raises
    ValueError for a negative count or seed and ImportError if NumPy is not installed.
    """
    try:
        import numpy as np
    except ImportError as error:
        raise ImportError("the built-in digits need numpy: pip install 'micrograd-nn[train]'") from error
    if count < 0:
        raise ValueError(f"the number of digits must be 0 or more, got {count}")
    rng = np.random.Generator(np.random.PCG64(seed))
    labels = rng.integers(0, 10, count, dtype=np.uint8)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    for digit, glyphs in GLYPHS.items():
        places = np.flatnonzero(labels == digit)
        choice = rng.integers(0, len(glyphs), len(places))
        for number, glyph in enumerate(glyphs):
            chosen = places[choice == number]
            for start in range(0, len(chosen), BATCH):
                batch = chosen[start : start + BATCH]
                images[batch] = _draw(rng, glyph, len(batch))
    return images.tobytes(), labels.tobytes()


def _draw(rng: np.random.Generator, glyph: str, count: int) -> npt.NDArray[np.uint8]:
    """`count` images of one glyph, (count, 28, 28)."""
    import numpy as np

    radius = np.exp(rng.normal(np.log(1.12), 0.3, (count, 1))).clip(0.6, 2.6)  # of the pen, in pixels
    points, pen_down = _write(rng, glyph, count)

    # Segments of the strokes: where their middles lie, and how long they are.
    low, high = points.min(1, keepdims=True), points.max(1, keepdims=True)
    scale = (BOX - 2 * radius) / (high - low).max(2)
    points = (points - low) * scale[:, :, None] + radius[:, :, None]
    middles = (points[:, 1:] + points[:, :-1]) / 2
    lengths = np.hypot(*np.moveaxis(np.diff(points, axis=1), 2, 0)) * pen_down
    lifts = np.flatnonzero(pen_down == 0)
    lengths[:, [0, *(lifts - 1), *(lifts + 1), -1]] += DOT

    centre = (middles * lengths[:, :, None]).sum(1, keepdims=True) / lengths.sum(1)[:, None, None]
    room = SIDE - (high - low) * scale[:, :, None] - 2 * radius[:, :, None]
    shift = np.rint(CENTRE - centre).clip(0, room)
    return _ink(rng, middles + shift, lengths, radius)


def _write(rng: np.random.Generator, glyph: str, count: int) -> tuple[Floats, Floats]:
    """The strokes of `count` copies of a glyph, each written differently.

    Returns the points along them, (count, points, 2) in heights of the digit, and for each pair of neighbours 1, or 0
    where the pen was lifted in between, (points - 1,).
    """
    import numpy as np

    def vary(mean: float, deviation: float) -> Floats:
        return mean + deviation * rng.standard_normal((count, 1)).clip(-2.5, 2.5)

    controls, curves = _parse(glyph)
    basis, pen_down = (np.array(rows) for rows in _interpolate(controls, curves))
    nearby = np.eye(len(controls))  # neighbours on a curve move together, or it would get kinks
    for curve in curves:
        for one, other in itertools.pairwise(curve):
            nearby[one, other] += 0.5
            nearby[other, one] += 0.5
    nearby /= np.sqrt((nearby**2).sum(1, keepdims=True))
    moves = nearby @ rng.normal(0, 0.05, (count, len(controls), 2))
    points = basis @ ((np.array(controls) - np.mean(controls, axis=0)) / 100 + moves)

    waves = rng.normal(0, 4, (count, 2, 2))
    phases = rng.uniform(0, 2 * np.pi, (count, 1, 2))
    points += rng.normal(0, 0.045, (count, 1, 2)) * np.sin(points @ waves + phases)

    x, y = points[:, :, 0], points[:, :, 1]
    x = x * np.exp(vary(0.12, 0.15) + vary(0, 0.5) * y)  # wider or narrower, and more so towards the foot
    y = y + vary(0, 0.2) * (0.25 - y * y)  # a larger head or a larger belly
    x = x - vary(0.08, 0.21) * y  # most hands slant to the right
    angle = vary(0, 0.11)
    return np.stack([np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y], 2), pen_down


def _ink(rng: np.random.Generator, places: Floats, lengths: Floats, radius: Floats) -> npt.NDArray[np.uint8]:
    """Images of strokes, (count, 28, 28).

    places: the strokes' segments, (count, segments, 2) in pixels; lengths: (count, segments), in pixels;
    radius: of the pen, (count, 1), in pixels.

    Ink laid along a line and spread by a Gaussian falls off across the line as exp(-d**2 / (2 * SPREAD**2)) at the
    distance d. So the logarithm of the spread ink tells each pixel's distance from the stroke, for all strokes at
    once, and two products of small matrices spread it.
    """
    import numpy as np

    count, segments = lengths.shape
    along = np.linspace(0, 1, segments) * rng.uniform(2, 9, (count, 1)) + rng.uniform(0, 2 * np.pi, (count, 1))
    pressure = np.exp(rng.normal(0, 0.15, (count, 1)) * np.sin(along))

    cells = (places * (GRID / SIDE)).astype(np.int64).clip(0, GRID - 1)
    index = (np.arange(count)[:, None] * GRID + cells[:, :, 1]) * GRID + cells[:, :, 0]
    ink = np.bincount(index.ravel(), (lengths * pressure).ravel(), count * GRID * GRID).reshape(count, GRID, GRID)

    apart = np.arange(SIDE)[:, None] + 0.5 - (np.arange(GRID) + 0.5) * (SIDE / GRID)
    kernel = np.exp(-(apart**2) / (2 * SPREAD**2))
    spread = kernel @ ink @ kernel.T / (SPREAD * np.sqrt(2 * np.pi))
    distance = SPREAD * np.sqrt(-2 * np.log(spread.clip(1e-30, 1)))

    edge = rng.normal(1.2, 0.2, (count, 1, 1)).clip(0.6, 1.6)  # pixels from full ink to blank paper
    shade = (radius[:, :, None] - distance) / edge + 0.5
    images: npt.NDArray[np.uint8] = np.rint(shade.clip(0, 1) * 254).astype(np.uint8)
    return images


def _parse(glyph: str) -> tuple[list[tuple[float, float]], list[list[int]]]:
    """The control points of a glyph, and its smooth curves as indices of them.

    Curves that meet in a corner share that point. Example: "0,0 9,0! 9,9; 3,3 6,6" has the five points and the
    curves [0, 1], [1, 2] and [3, 4].
    """
    controls: list[tuple[float, float]] = []
    curves: list[list[int]] = []
    for stroke in glyph.split(";"):
        curve: list[int] = []
        for point in stroke.split():
            x, y = point.rstrip("!").split(",")
            curve.append(len(controls))
            controls.append((float(x), float(y)))
            if point.endswith("!"):
                curves.append(curve)
                curve = curve[-1:]
        curves.append(curve)
    return controls, curves


def _interpolate(
    controls: Sequence[tuple[float, float]], curves: Sequence[Sequence[int]]
) -> tuple[list[list[float]], list[float]]:
    """Points along the curves, as sums of the control points.

    Returns for each point the weights of all control points, from Catmull and Rom's splines, and for each pair of
    neighbouring points 1, or 0 where the pen is lifted in between.
    """
    rows: list[list[float]] = []
    joined: list[float] = []  # for each point, whether a stroke leads to it from the point before
    last = None  # the control point where the curve before this one ended
    for curve in curves:
        joined.append(float(curve[0] == last))
        last = curve[-1]
        ends = (curve[0], *curve, curve[-1])
        for k in range(1, len(curve)):
            (x, y), (u, v) = controls[ends[k]], controls[ends[k + 1]]
            steps = max(2, round(math.hypot(u - x, v - y) / SPACING))
            for step in range(0 if k == 1 else 1, steps + 1):
                t = step / steps
                weights = (-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, t**3 - t**2)
                row = [0.0] * len(controls)
                for control, weight in zip(ends[k - 1 : k + 3], weights, strict=True):
                    row[control] += weight / 2
                rows.append(row)
                joined.append(1.0)
        joined.pop()
    return rows, joined[1:]
