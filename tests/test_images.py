"""Pictures of digits as people have them: dark on light, large, transparent, grainy, and files that are none."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import nn_infer
import pytest

Image = pytest.importorskip("PIL.Image")

from micrograd.__main__ import main  # noqa: E402
from micrograd.commands.images import read_image  # noqa: E402
from micrograd.data import digits  # noqa: E402
from micrograd.errors import UsageError  # noqa: E402

COUNT = 12
PIXELS, LABELS = digits.generate(COUNT, seed=5)
DIGITS = [PIXELS[784 * i : 784 * i + 784] for i in range(COUNT)]


def light(pixels: bytes) -> Image.Image:
    """Light on black, 280 x 280."""
    return Image.frombytes("L", (28, 28), pixels).resize((280, 280), Image.Resampling.BICUBIC)


def dark(pixels: bytes) -> Image.Image:
    return light(pixels).point(lambda level: 255 - level)


def page(pixels: bytes) -> Image.Image:
    """Grey strokes in a corner of grainy paper."""
    paper = Image.effect_noise((640, 480), 10).point(lambda level: min(255, level + 90))
    paper.paste(40, (330, 20), mask=light(pixels))
    return paper


def transparent(pixels: bytes, colour: tuple[int, ...]) -> Image.Image:
    picture = Image.new("RGBA", (280, 280), (0, 0, 0, 0))
    picture.paste(colour, mask=light(pixels))
    return picture


PICTURES: dict[str, Callable[[bytes], Image.Image]] = {
    "light": light,
    "dark": dark,
    "a page": page,
    "dark and transparent": lambda pixels: transparent(pixels, (10, 20, 120, 255)),
    "light and transparent": lambda pixels: transparent(pixels, (255, 255, 255, 255)),
    "grey and transparent": lambda pixels: transparent(pixels, (60, 60, 60, 255)).convert("LA"),
    "a palette": lambda pixels: dark(pixels).convert("RGB").quantize(16),
    "16 bits": lambda pixels: dark(pixels).convert("I").point(lambda level: level * 257).convert("I;16"),
    "1 bit": lambda pixels: dark(pixels).convert("1", dither=0),
    "small": lambda pixels: dark(pixels).resize((20, 20)),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_are_read_as_the_digits_that_they_show(kind: str, tmp_path: Path) -> None:
    expected = [nn_infer.predict(pixels) for pixels in DIGITS]
    found = []
    for pixels in DIGITS:
        PICTURES[kind](pixels).save(tmp_path / "x.png")
        found.append(nn_infer.predict(read_image(tmp_path / "x.png")))
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= COUNT - 1


def test_a_picture_of_28_x_28_keeps_its_pixels(tmp_path: Path) -> None:
    picture = Image.frombytes("L", (28, 28), DIGITS[0])
    picture.save(tmp_path / "x.png")
    assert read_image(tmp_path / "x.png") == DIGITS[0]
    picture.point(lambda level: 255 - level).save(tmp_path / "x.png")
    assert read_image(tmp_path / "x.png") == DIGITS[0]
    inverted = bytes(255 - level for level in DIGITS[0])
    (tmp_path / "x.pgm").write_bytes(b"P5 28 28 255\n" + inverted)
    assert read_image(tmp_path / "x.pgm") == DIGITS[0]
    (tmp_path / "raw").write_bytes(inverted)
    assert read_image(tmp_path / "raw") == inverted


def test_what_is_drawn_is_centred_by_its_mass(tmp_path: Path) -> None:
    picture = Image.new("L", (200, 100), 255)
    picture.paste(0, (120, 10, 160, 50))
    picture.save(tmp_path / "x.png")
    square = [bytes(4) + bytes([255]) * 20 + bytes(4)] * 20
    assert read_image(tmp_path / "x.png") == bytes(28 * 4) + b"".join(square) + bytes(28 * 4)
    picture = Image.new("L", (100, 100), 0)  # an L, whose mass lies left and low of its box's middle
    picture.paste(255, (10, 0, 20, 100))
    picture.paste(255, (10, 90, 60, 100))
    picture.save(tmp_path / "x.png")
    image = read_image(tmp_path / "x.png")
    columns = [x for x in range(28) if any(image[x::28])]
    lines = [y for y in range(28) if any(image[28 * y : 28 * y + 28])]
    assert (columns[0], columns[-1]) == (12, 21)
    assert (lines[0], lines[-1]) == (1, 20)


def test_predict_shows_a_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dark(DIGITS[0]).save(tmp_path / "x.png")
    assert main(["predict", str(tmp_path / "x.png")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'x.png'}: predicted {LABELS[0]}\n")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, rows: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


BAD = {
    "blank": (
        png(40, 40, (b"\0" + b"\xc8" * 40) * 40),
        "nothing is drawn on it: ",
    ),
    "a header alone": (b"\x89PNG\r\n\x1a\n", "not a whole PNG: "),
    "cut off": (png(40, 40, bytes(41 * 40))[:-40], "not a whole PNG: "),
    "damaged": (png(40, 40, bytes(41 * 40)).replace(b"IDAT", b"IDAX"), "not a whole PNG: "),
    "large, which Pillow warns about": (png(10000, 10000, b""), "10000 x 10000 pixels, more than 50,000,000"),
    "a bomb": (png(100_000, 100_000, b""), "not a whole PNG: "),
    "no pixels": (png(0, 28, b""), "not a whole PNG: "),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", BAD)
def test_files_that_show_nothing(kind: str, tmp_path: Path) -> None:
    content, message = BAD[kind]
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_image(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_without_pillow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    (tmp_path / "x.png").write_bytes(BAD["blank"][0])
    assert main(["predict", str(tmp_path / "x.png")]) == 2
    assert capsys.readouterr().err == "error: reading a PNG needs Pillow: pip install 'micrograd-nn[draw]'\n"
