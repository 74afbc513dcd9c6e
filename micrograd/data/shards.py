"""Shards: the images of a folder in many files, read in pieces, so that not one of them has to fit in memory.

A shard is a .npy file of n images, bytes of the shape (n, 784) or (n, 28, 28), or an idx file, plain or .gz. The labels
of `x-images.npy` are in `x-labels.npy`, and those of `x-images-idx3-ubyte` in `x-labels-idx1-ubyte`.

Files are read, not mapped: a file that somebody truncates meanwhile is an error then, and not a signal.
"""

from __future__ import annotations

import math
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from micrograd.data import mnist
from micrograd.data.mnist import SIDE, DataError

if TYPE_CHECKING:
    import numpy as np

ENDINGS = (".npy", "-ubyte", ".idx3-ubyte", "-ubyte.gz", ".idx3-ubyte.gz")
PIECE = 4096  # images that are read at a time
IMAGES = (mnist.IMAGES_MAGIC, "images", (SIDE, SIDE))
LABELS = (mnist.LABELS_MAGIC, "labels", ())


def shards_of(folder: Path) -> list[Path]:
    """The shards of a folder, by name. Raises FileNotFoundError and DataError if there are none."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    names = (path for path in folder.iterdir() if path.name.endswith(ENDINGS) and not path.name.startswith("."))
    shards = sorted(path for path in names if "labels" not in path.name)
    if not shards:
        raise DataError(f"{folder}: no shards, which are files *.npy, *-ubyte and *-ubyte.gz")
    return shards


def labels_of(shard: Path) -> Path:
    """The file with a shard's labels. Raises DataError if the shard's name does not lead to one."""
    if "images" not in shard.name:
        raise DataError(f"{shard}: labels are in the file with 'labels' for 'images', which this name does not have")
    return shard.with_name(shard.name.replace("images", "labels").replace("idx3", "idx1"))


def count_images(shard: Path) -> int:
    """How many images the header of a shard declares. Raises OSError and DataError."""
    with _opened(shard, *IMAGES) as (_, count):
        return count


def images(shard: Path) -> Iterator[bytes]:
    """PIECE images at a time, 28 x 28 bytes each. Raises OSError and DataError."""
    return _pieces(shard, *IMAGES)


def labels(path: Path) -> Iterator[bytes]:
    """PIECE labels at a time, one byte each, 0..9. Raises OSError and DataError."""
    for i, piece in enumerate(_pieces(path, *LABELS)):
        mnist.check_labels(path, piece, i * PIECE)
        yield piece


def labelled(shard: Path) -> Iterator[tuple[bytes, bytes]]:
    """The pieces of a shard, images and their labels. Raises OSError and DataError."""
    path = labels_of(shard)
    with _opened(path, *LABELS) as (_, found):
        if found != (count := count_images(shard)):
            raise DataError(f"{path}: {found} labels, expected {count}, one for each image in {shard}")
    return zip(images(shard), labels(path), strict=True)


def npy_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran's order, and dtype of a .npy file. Parsed as a literal; raises ValueError."""
    import numpy as np

    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        return readers[np.lib.format.read_magic(file)](file)
    except (KeyError, TypeError, OverflowError, RecursionError, SyntaxError, tokenize.TokenError) as error:
        raise ValueError(str(error)) from error


@contextmanager
def _opened(path: Path, magic: int, items: str, shape: tuple[int, ...]) -> Iterator[tuple[BinaryIO, int]]:
    """A file after its header, and its number of items."""
    if path.suffix != ".npy":
        with mnist.opened(path, magic, items, shape) as found:
            yield found
        return
    with path.open("rb") as file:
        try:
            found_shape, is_fortran, dtype = npy_header(file)
        except ValueError as error:
            raise DataError(f"{path}: not an array, as numpy.save() writes it: {error}") from error
        if dtype != "u1" or (is_fortran and shape) or not _fits(found_shape, shape):
            order = " in Fortran's order" if is_fortran and shape else ""
            rows = f"(n, {SIDE * SIDE}) or (n, {SIDE}, {SIDE})" if shape else "(n,)"
            raise DataError(f"{path}: {dtype} of the shape {found_shape}{order}, expected {items}: uint8, {rows}")
        yield file, found_shape[0]


def _fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(found) > 0 and found[0] >= 0 and found[1:] in {shape, (math.prod(shape),) if shape else ()}


def _pieces(path: Path, magic: int, items: str, shape: tuple[int, ...]) -> Iterator[bytes]:
    size = math.prod(shape)
    with _opened(path, magic, items, shape) as (file, count):
        for first in range(0, count, PIECE):
            piece = file.read(expected := size * min(PIECE, count - first))
            if len(piece) < expected:
                raise DataError(f"{path}: truncated: {first + len(piece) // size} {items}, expected {count}")
            yield piece
        if file.read(1):  # at the end of a .gz its checksum is compared
            raise DataError(f"{path}: more than the expected {count} {items}")
