"""Target `idx`: bytes -> files of images and labels, plain and compressed, for micrograd/data/mnist.py.

What the reader must do with some content is said a second time here, in a few lines. It must give that content, or
DataError, and nothing else, and must not unpack more of a compressed file than its header announces.
"""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from functools import cache
from pathlib import Path

from micrograd.data.mnist import (
    CLASSES,
    FILES,
    IMAGES_MAGIC,
    LABELS_MAGIC,
    MAX_ITEMS,
    SIDE,
    DataError,
    read,
    read_images,
    read_labels,
)
from tools.fuzz.choices import Choices
from tools.fuzz.common import Wrong, scratch_folder

SLACK = 4_000_000  # bytes that a reader may take beyond those that the header announces
BOMB = 16_000_000  # zeros in one member of a compressed file


def expected(content: bytes, labels: bool) -> bytes | None:
    """What an idx file of this content holds, None where it is not one."""
    header = ">II" if labels else ">IIII"
    size = struct.calcsize(header)
    if len(content) < size:
        return None
    magic, count, *sides = struct.unpack_from(header, content)
    if magic != (LABELS_MAGIC if labels else IMAGES_MAGIC) or not 1 <= count <= MAX_ITEMS:
        return None
    if sides != ([] if labels else [SIDE, SIDE]) or len(content) != size + count * (1 if labels else SIDE**2):
        return None
    items = content[size:]
    return items if not labels or max(items) < CLASSES else None


@cache
def bomb() -> bytes:
    return gzip.compress(bytes(BOMB), 9)


def announced(content: bytes) -> int:
    """How many bytes the header speaks of, as far as the reader may believe it."""
    if len(content) < 8:
        return 0
    magic, count = struct.unpack_from(">II", content)
    if count > MAX_ITEMS:
        return 0
    return int(count) * (SIDE**2 if magic == IMAGES_MAGIC else 1)


def read_one(path: Path, labels: bool) -> bytes | None:
    """What the reader makes of a file, None where it refuses it."""
    try:
        return (read_labels if labels else read_images)(path)
    except DataError as error:
        if str(path) not in str(error):
            raise Wrong(f"an error that does not name the file: {error}") from error
        return None


class Idx:
    """The target."""

    def __init__(self) -> None:
        self.folder = scratch_folder()
        tracemalloc.start()  # and never stopped: each time would cost some memory for good

    def __call__(self, data: bytes) -> None:
        """Raises Wrong where something does not hold."""
        c = Choices(data)
        labels, form = c.chance(128), c.below(6)
        content = c.rest()
        wanted = expected(content, labels)
        if form == 0:
            self.compare("plain", content, labels, wanted)
        elif form == 1:
            self.compare("whole.gz", gzip.compress(content, 1), labels, wanted)
        elif form == 2:  # as it comes: mostly no gzip file at all
            self.compare("raw.gz", content, labels, self.unpacked(content, labels))
        elif form == 3:  # two members are one content
            half = len(content) // 2
            self.compare("two.gz", gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1), labels, wanted)
        elif form == 4:
            self.explode(content, labels)
        else:
            self.read_folder(content)

    def compare(self, name: str, stored: bytes, labels: bool, wanted: bytes | None) -> None:
        path = self.folder / name
        path.write_bytes(stored)
        found = read_one(path, labels)
        if found != wanted:
            raise Wrong(f"{name}: read {_short(found)}, expected {_short(wanted)}")

    def unpacked(self, stored: bytes, labels: bool) -> bytes | None:
        try:
            return expected(gzip.decompress(stored), labels)
        except (EOFError, OSError, zlib.error, struct.error):
            return None

    def explode(self, content: bytes, labels: bool) -> None:
        """The content, and then far more than it announces."""
        path = self.folder / "bomb.gz"
        path.write_bytes(gzip.compress(content, 1) + bomb() * 2)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        found = read_one(path, labels)
        peak = tracemalloc.get_traced_memory()[1] - before
        if found is not None and found != expected(content + bytes(2 * BOMB), labels):
            raise Wrong("a file that goes on after its content was read")
        size = announced(content)
        # The place for all of it, and what was unpacked, first in pieces and then in one.
        if peak > size + 2 * min(size, 2 * BOMB) + SLACK:
            raise Wrong(f"{peak} bytes of memory for a file that announces {size}")

    def read_folder(self, content: bytes) -> None:
        """Four files: the numbers of images and labels must agree."""
        images = struct.pack(">IIII", IMAGES_MAGIC, 2, SIDE, SIDE) + bytes(2 * SIDE**2)
        for name in FILES:
            (self.folder / name).write_bytes(content if "labels" in name else images)
        found = expected(content, True)
        try:
            labels = read(self.folder).train_labels
        except DataError:
            if found is not None and len(found) == 2:
                raise
        else:
            if labels != found or len(labels) != 2:
                raise Wrong(f"read {_short(labels)}, expected {_short(found)}")


def _short(content: bytes | None) -> str:
    return "nothing" if content is None else f"{len(content)} bytes, {content[:16]!r}"


def seeds() -> list[bytes]:
    """Good files and nearly good ones, in all forms."""
    images = struct.pack(">IIII", IMAGES_MAGIC, 1, SIDE, SIDE) + bytes(SIDE**2)
    labels = struct.pack(">II", LABELS_MAGIC, 2) + b"\x03\x09"
    most = struct.pack(">IIII", IMAGES_MAGIC, MAX_ITEMS, SIDE, SIDE)
    contents = [(0, images), (255, labels), (0, images[:-1]), (255, labels + b"\0"), (0, most), (255, b"")]
    found = [bytes([kind, form]) + content for kind, content in contents for form in range(6)]
    packed = [(0, gzip.compress(images, 9, mtime=0)), (255, gzip.compress(labels, 9, mtime=0))]
    return [*found, *(bytes([kind, 2]) + content for kind, content in packed)]
