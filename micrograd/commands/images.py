"""Pictures of digits in files -> images as MNIST has them: 28 x 28 pixels, light strokes on black.

Example: a PNG of 640 x 480 pixels, a black 7 on white paper, becomes light on black; what is drawn is shrunk to fit
into 20 x 20 pixels, and lies with its centre of mass in the middle of 28 x 28, as in MNIST. A picture that is 28 x 28
already keeps its pixels.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from micrograd.data.mnist import SIDE
from micrograd.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

PIXELS = SIDE * SIDE
BOX = 20  # pixels of the square into which MNIST's digits fit
WHITE = 255
FAINT = 0.1  # of the strongest stroke: what is less is paper
FINE = 4 * SIDE  # pixels in which strokes are looked for
MAX_PIXELS = 50_000_000  # of a PNG: more than cameras take

PGM_SPACE = rb"(?:\s|#[^\n]*\n)+"
PGM_HEADER = re.compile(rb"P5" + 3 * (PGM_SPACE + rb"(\d{1,9})") + rb"\s")
PNG_START = b"\x89PNG\r\n\x1a\n"


def read_image(path: Path) -> bytes:
    """The pixels of a raw, PGM or PNG file. Raises OSError, UsageError, and ImportError for a PNG without Pillow.

    Raw bytes are taken as they are; a picture with a light border is inverted.
    """
    with path.open("rb") as file:
        content = file.read(2**16)
    if content.startswith(PNG_START):
        return read_png(path)
    if len(content) == PIXELS:
        return content
    header = PGM_HEADER.match(content)
    if header is None:
        raise UsageError(
            f"{path}: {len(content)}{' or more' * (len(content) == 2**16)} bytes and no PNG or binary PGM (P5) header, "
            f"expected one of these or {PIXELS} bytes"
        )
    width, height, white = map(int, header.groups())
    pixels = content[header.end() :]
    if (width, height, white) != (SIDE, SIDE, WHITE):
        raise UsageError(
            f"{path}: {width} x {height} pixels up to {white}, expected {SIDE} x {SIDE} pixels up to {WHITE}"
        )
    if len(pixels) != PIXELS:
        raise UsageError(f"{path}: {len(pixels)} bytes follow the PGM header, expected {PIXELS}")
    return inverted(pixels) if paper(pixels, SIDE) > WHITE / 2 else pixels


def read_png(path: Path) -> bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("reading a PNG needs Pillow: pip install 'micrograd-nn[draw]'") from error
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=["PNG"]) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise UsageError(f"{path}: {picture.width} x {picture.height} pixels, more than {MAX_PIXELS:,}")
            found = grey(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path}: not a whole PNG: {error}") from error
    background = paper(found.tobytes(), found.width)
    if background > WHITE / 2:
        found, background = found.point(lambda level: WHITE - level), WHITE - background
    if found.size == (SIDE, SIDE):
        return found.tobytes()
    strokes = drawn(found, background)
    if strokes is None:
        raise UsageError(f"{path}: nothing is drawn on it: every pixel is as light as its border")
    return centred(strokes).tobytes()


def grey(picture: Image) -> Image:
    """One byte per pixel; what is transparent shows light paper under dark strokes, and black under light ones."""
    from PIL import Image, ImageStat

    if picture.mode.startswith("I"):  # 16 bits
        picture = picture.convert("F").point(lambda level: level * (1 / 256))
    if not (picture.mode in ("LA", "RGBA") or "transparency" in picture.info):
        return picture.convert("L")
    strokes, opacity = picture.convert("LA").split()
    level = ImageStat.Stat(strokes, mask=opacity).mean[0] if opacity.getbbox() else 0
    under = Image.new("L", picture.size, WHITE if level <= WHITE / 2 else 0)
    under.paste(strokes, mask=opacity)
    return under


def paper(pixels: bytes, width: int) -> float:
    """How light the border is, half of whose pixels are darker."""
    sides = pixels[::width] + pixels[width - 1 :: width]
    return median(pixels[:width] + pixels[-width:] + sides)


def inverted(pixels: bytes) -> bytes:
    return bytes(WHITE - level for level in pixels)


def drawn(picture: Image, background: float) -> Image | None:
    """The part of a picture with strokes on it, from 0 to 255; None without any. It is searched for in a smaller copy,
    in which the grain of paper and cameras has vanished."""
    while True:
        step = max(1, max(picture.size) // FINE)
        found = without_paper(picture.reduce(step), background)
        if found is None:
            return None
        left, top, right, bottom = (step * side for side in found.getbbox() or (0, 0, 0, 0))
        box = (left, top, min(right, picture.width), min(bottom, picture.height))
        if step == 1:
            return found.crop(box)
        if box == (0, 0, *picture.size):
            return without_paper(picture, background)
        picture = picture.crop(box)


def without_paper(picture: Image, background: float) -> Image | None:
    """The strokes alone, the strongest 255; None where every pixel is as dark as the paper."""
    reach = max(picture.tobytes()) - background
    if not reach > 0:
        return None

    def stroke(level: int) -> float:
        share = (level - background) / reach
        return WHITE * share if share >= FAINT else 0

    return picture.point(stroke)


def centred(strokes: Image) -> Image:
    """As MNIST's digits were made: in a box of 20 x 20 pixels, its centre of mass in the middle of 28 x 28."""
    from PIL import Image

    scale = BOX / max(strokes.size)
    width, height = (max(1, round(length * scale)) for length in strokes.size)
    small = strokes.resize((width, height), Image.Resampling.BOX if scale < 1 else Image.Resampling.BICUBIC)
    pixels = small.tobytes()
    mass = sum(pixels)
    x = sum(level * (i % width + 0.5) for i, level in enumerate(pixels)) / mass
    y = sum(level * (i // width + 0.5) for i, level in enumerate(pixels)) / mass
    image = Image.new("L", (SIDE, SIDE), 0)
    image.paste(small, (round(SIDE / 2 - x), round(SIDE / 2 - y)))
    return image
