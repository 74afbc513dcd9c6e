"""Built-in digits that change, are not placed as in MNIST, or are too easy or impossible to learn."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest

from micrograd.data import digits

COUNT = 2000


@pytest.fixture(scope="module")
def drawn() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    images, labels = digits.generate(COUNT, 1)
    return np.frombuffer(images, np.uint8).reshape(COUNT, 28, 28) / 255, np.frombuffer(labels, np.uint8)


def test_sizes_and_labels() -> None:
    images, labels = digits.generate(500, 3)
    assert type(images) is bytes
    assert len(images) == 500 * 28 * 28
    assert type(labels) is bytes
    assert len(labels) == 500
    assert set(labels) == set(range(10))
    assert max(images) == 254
    assert min(images) == 0


def test_the_same_seed_gives_the_same_digits() -> None:
    assert digits.generate(300, 5) == digits.generate(300, 5)


def test_another_seed_gives_others() -> None:
    assert digits.generate(300, 5) != digits.generate(300, 6)


def test_no_image_is_drawn_twice() -> None:
    train_images, train_labels, test_images, test_labels = digits.load(350, 350, seed=0)
    assert (len(train_labels), len(test_labels)) == (350, 350)
    images = train_images + test_images
    assert len({images[i : i + 784] for i in range(0, len(images), 784)}) == 700
    assert digits.load(350, 350, seed=1)[0] != train_images


def test_batches_are_a_matter_of_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "BATCH", 3)
    images, labels = digits.generate(200, 2)
    blank = bytes(784)
    assert len(labels) == 200
    assert all(images[i : i + 784] != blank for i in range(0, len(images), 784))


def test_none_and_fewer() -> None:
    assert digits.generate(0, 1) == (b"", b"")
    with pytest.raises(ValueError, match="got -1"):
        digits.generate(-1, 1)


def test_without_numpy_it_names_the_extra() -> None:
    script = "import sys; sys.modules['numpy'] = None\nfrom micrograd.data import digits\ndigits.generate(1)"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'micrograd-nn[train]'" in result.stderr


def test_as_much_ink_as_in_mnist(drawn: tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]) -> None:
    images, labels = drawn
    assert 0.17 < (images > 0).mean() < 0.21  # MNIST: 0.191
    assert 0.11 < images.mean() < 0.15  # MNIST: 0.131
    ink = [images[labels == digit].mean() for digit in range(10)]
    assert min(ink) == ink[1] < 0.7 * np.mean(ink)


def test_digits_fill_a_box_of_20_pixels(drawn: tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]) -> None:
    dark = drawn[0] > 0.5
    longer = np.maximum(dark.any(1).sum(1), dark.any(2).sum(1))
    assert longer.max() <= 22
    assert 19 <= np.median(longer) <= 20


def test_digits_are_centred_by_their_ink(drawn: tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]) -> None:
    images = drawn[0]
    ink, pixels = images.sum((1, 2)), np.arange(28)
    for axis in (1, 2):
        centre = (images.sum(axis) * pixels).sum(1) / ink
        assert abs(centre.mean() - 14) < 0.2  # MNIST: 14.0, and never more than 1 away from it
        assert np.percentile(abs(centre - 14), 99) < 1.5


def test_a_task_to_learn(drawn: tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]) -> None:
    """The nearest mean image is right for MNIST in 82 of 100 cases, the nearest of 60,000 images in 97."""
    images, labels = drawn[0].reshape(COUNT, -1), drawn[1]
    half = COUNT // 2
    means = np.stack([images[:half][labels[:half] == digit].mean(0) for digit in range(10)])
    distances = ((images[half:, None, :] - means) ** 2).sum(2)
    assert 0.65 < (distances.argmin(1) == labels[half:]).mean() < 0.92


@pytest.mark.parametrize("digit", range(10))
def test_every_way_to_write_a_digit_leaves_ink(digit: int) -> None:
    rng = np.random.default_rng(0)
    assert len(digits.GLYPHS[digit]) == len(set(digits.GLYPHS[digit])) >= 5
    for glyph in digits.GLYPHS[digit]:
        images = digits._draw(rng, glyph, 40)
        assert images.shape == (40, 28, 28)
        assert images.max((1, 2)).min() > 200
        assert (images > 0).mean((1, 2)).min() > 0.03


def test_parse() -> None:
    controls, curves = digits._parse("0,0 9,0! 9,9; 3,3 6,6")
    assert controls == [(0, 0), (9, 0), (9, 9), (3, 3), (6, 6)]
    assert curves == [[0, 1], [1, 2], [3, 4]]


def test_curves_pass_through_their_points_and_only_lifts_interrupt_them() -> None:
    controls, curves = digits._parse("0,0 30,40 60,0! 60,90; 10,10 20,10")
    rows, joined = digits._interpolate(controls, curves)
    points = np.array(rows) @ np.array(controls)
    for control in controls:
        assert np.abs(points - control).sum(1).min() < 1e-9
    assert np.allclose(np.sum(rows, axis=1), 1)
    assert len(joined) == len(points) - 1
    steps = np.hypot(*np.diff(points, axis=0).T)
    assert [round(step) for step, on in zip(steps, joined, strict=True) if not on] == [94]  # (60, 90) to (10, 10)
    assert max(step for step, on in zip(steps, joined, strict=True) if on) < 2 * digits.SPACING


def test_strokes_have_the_width_of_the_pen() -> None:
    """A long vertical line: about two radii across, everywhere the same, and with ends."""
    rng = np.random.default_rng(0)
    y = np.linspace(4, 24, 101)
    places = np.stack([np.full_like(y, 14.5), y], 1)[None]
    for radius in (1.0, 2.0):
        image = digits._ink(rng, places, np.full((1, 101), 0.2), np.array([[radius]]))[0] / 254
        across = image[8:20].sum(1)
        assert abs(across.mean() - 2 * radius) < 0.5
        assert np.ptp(across) < 0.5
        assert image[:2].sum() == 0
        assert image[26:].sum() == 0
