"""MNIST: find, download, verify and read its four idx files.

An idx file is a header of big-endian 32-bit numbers, the magic number and the size of each dimension, and then the
items: one byte per pixel or label.
"""

import gzip
import hashlib
import math
import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal
from urllib.parse import urlsplit

from micrograd import cache
from micrograd.data import digits
from micrograd.errors import UserError
from micrograd.files import write_whole

SIDE = 28  # pixels
CLASSES = 10
LABELS_MAGIC = 0x0801  # unsigned bytes, one dimension
IMAGES_MAGIC = 0x0803  # unsigned bytes, three dimensions
MAX_ITEMS = 500_000  # in a file; the header of a damaged one may claim billions

# SHA-256 and size in bytes of each file, uncompressed: mirrors compress it differently.
FILES = {
    "train-images-idx3-ubyte": ("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", 47_040_016),
    "train-labels-idx1-ubyte": ("65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", 60_008),
    "t10k-images-idx3-ubyte": ("0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", 7_840_016),
    "t10k-labels-idx1-ubyte": ("ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", 10_008),
}
MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
PATIENCE = 10.0  # seconds to wait, for all mirrors together
MIN_SPEED = 50_000  # bytes per second that count as progress and not as waiting


class DataError(UserError, ValueError):
    """An idx file with invalid content."""


class DownloadError(OSError):
    """No mirror gave the files."""


@dataclass(frozen=True, slots=True)
class Data:
    """Images, 28 x 28 bytes each, 0 is paper; labels, one byte each, 0..9; and in words where they came from."""

    train_images: bytes
    train_labels: bytes
    test_images: bytes
    test_labels: bytes
    source: str


def load(
    data: Path | None = None,
    source: Literal["auto", "digits"] = "auto",
    *,
    mirrors: Sequence[str] = MIRRORS,
    patience: float = PATIENCE,
) -> Data:
    """The training and the test set.

    From the folder `data` if given, else the folder $MICROGRAD_MNIST if set, else the user's cache ($MICROGRAD_CACHE,
    or where the system keeps caches), filled by a download if need be. If that fails, one line on stderr says why,
    and the built-in digits replace MNIST; `source="digits"` selects them directly.

    Raises FileNotFoundError and DataError for a named folder without valid files, and ImportError if the built-in
    digits or a download need a package that is not installed.
    """
    if source == "digits":
        return _built_in()
    named = data if data is not None else os.environ.get("MICROGRAD_MNIST")
    if named:
        return read(Path(named))
    try:
        folder = cache.home()
        download(folder, mirrors, patience)
    except OSError as error:
        print(
            f"MNIST could not be downloaded ({error}): using the built-in digits instead (--digits asks for them)",
            file=sys.stderr,
        )
        return _built_in()
    return read(folder)


def read(folder: Path) -> Data:
    """The four idx files of a folder, each plain or .gz. Raises FileNotFoundError and DataError."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    train_images, train_labels, test_images, test_labels = FILES
    return Data(
        *_read_set(folder, train_images, train_labels),
        *_read_set(folder, test_images, test_labels),
        source=f"the idx files in {folder}",
    )


def read_images(path: Path) -> bytes:
    """The images of an idx file, 28 x 28 bytes each. Raises OSError and DataError."""
    return _read(path, IMAGES_MAGIC, "images", (SIDE, SIDE))


def read_labels(path: Path) -> bytes:
    """The labels of an idx file, one byte each, 0..9. Raises OSError and DataError."""
    labels = _read(path, LABELS_MAGIC, "labels", ())
    check_labels(path, labels)
    return labels


def check_labels(path: Path, labels: bytes, first: int = 0) -> None:
    """Raises DataError for a label above 9, with its number; `first` is that of the first one."""
    if max(labels) >= CLASSES:
        i = next(i for i, label in enumerate(labels) if label >= CLASSES)
        raise DataError(f"{path}: label {first + i} is {labels[i]}, expected 0..{CLASSES - 1}")


def download(folder: Path, mirrors: Sequence[str] = MIRRORS, patience: float = PATIENCE) -> None:
    """Downloads those of MNIST's files that `folder` does not have, or has with wrong content.

    mirrors: base URLs, tried in turn; patience: the seconds to wait for them without an answer or with too slow a one.
    A file gets its name in the folder only when it is complete and verified. Raises DownloadError with a reason for
    each mirror, OSError if the folder cannot be written and ImportError if pooch is not installed.
    """
    missing = [name for name in FILES if not _is_whole(folder, name)]
    reasons = []
    for mirror in mirrors:
        if not missing:
            return
        clock = _Clock(patience / len(mirrors))
        try:
            while missing:
                content = _fetch(mirror.rstrip("/") + "/", missing[0], clock)
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(folder / missing[0], content)
                del missing[0]
        except DownloadError as error:
            reasons.append(f"{urlsplit(mirror).netloc}: {error}")
    if missing:
        raise DownloadError("; ".join(reasons) or "no mirrors")


class _Clock:
    """The deadline of a server: `seconds` from the start, and later as bytes come in."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def count(self, received: int) -> None:
        self._end = min(self._end + received / MIN_SPEED, time.monotonic() + self.seconds)

    def left(self) -> float:
        return self._end - time.monotonic()


class _Sink:
    """A file for pooch to write a download to: in memory, bounded, closed when the waiting ends."""

    def __init__(self, limit: int, clock: _Clock) -> None:
        self.content = bytearray()
        self.closed = False
        self._limit = limit
        self._clock = clock

    def write(self, chunk: bytes) -> None:
        if self.closed:
            raise DownloadError("timed out")
        self.content += chunk
        self._clock.count(len(chunk))
        if len(self.content) > self._limit:
            raise DownloadError(f"more than the expected {self._limit} bytes")

    def flush(self) -> None:
        pass


def _fetch(mirror: str, name: str, clock: _Clock) -> bytes:
    """The verified content of one file.

    Another thread does the download: the HTTP client's timeout applies to each packet, and does not cover name
    resolution. It only ends that thread, some time after this function has given up.
    """
    try:
        import pooch
    except ImportError as error:
        raise ImportError("the download of MNIST needs pooch: pip install 'micrograd-nn[train]'") from error
    digest, size = FILES[name]
    sink = _Sink(size + 100_000, clock)
    errors: list[Exception] = []
    done = threading.Event()

    def receive() -> None:
        try:
            download = pooch.HTTPDownloader(timeout=2 * clock.seconds, allow_redirects=False)  # they may lead anywhere
            download(mirror + name + ".gz", sink, None)
        except Exception as error:
            errors.append(error)
        done.set()

    threading.Thread(target=receive, daemon=True).start()
    while (left := clock.left()) > 0 and not done.wait(left):
        pass  # bytes that came meanwhile may have moved the deadline
    sink.closed = True
    if not done.is_set():
        raise DownloadError(f"no answer, or a very slow one, in {clock.seconds:g} s")
    if errors:
        raise DownloadError(_root(errors[0])) from errors[0]

    content = bytes(sink.content)
    if content[:2] == b"\x1f\x8b":
        try:
            content = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, size + 1)
        except zlib.error as error:
            raise DownloadError(f"{name}.gz is damaged: {error}") from error
    if len(content) > size:
        raise DownloadError(f"{name} grows past the expected {size} bytes")
    if (found := hashlib.sha256(content).hexdigest()) != digest:
        raise DownloadError(f"{name} has the SHA-256 {found}, expected {digest}")
    return content


def _root(error: BaseException) -> str:
    """The root cause: HTTP clients wrap a "Connection refused" in several layers of their own."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error)


def _is_whole(folder: Path, name: str) -> bool:
    digest, size = FILES[name]
    path = folder / name
    return path.is_file() and path.stat().st_size == size and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _read_set(folder: Path, images_name: str, labels_name: str) -> tuple[bytes, bytes]:
    images_path, labels_path = _find(folder, images_name), _find(folder, labels_name)
    images, labels = read_images(images_path), read_labels(labels_path)
    count = len(images) // SIDE**2
    if len(labels) != count:
        raise DataError(f"{labels_path}: {len(labels)} labels, expected {count}, one for each image in {images_path}")
    return images, labels


def candidates(folder: Path, names: Iterable[str] = FILES) -> Iterator[Path]:
    """Where the files of these names may be."""
    for name in names:
        for spelling in (name, name.replace("-idx", ".idx")):
            yield from (folder / spelling, folder / f"{spelling}.gz")


def _find(folder: Path, name: str) -> Path:
    for path in candidates(folder, [name]):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder}: no {name} and no {name}.gz")


@contextmanager
def opened(path: Path, magic: int, items: str, shape: tuple[int, ...]) -> Iterator[tuple[BinaryIO, int]]:
    """An idx file after its header, and how many items follow. Raises DataError if they are others."""
    header = struct.Struct(f">{2 + len(shape)}I")
    with unpacked(path) as file:
        start = file.read(header.size)
        if len(start) < header.size:
            raise DataError(f"{path}: truncated: {len(start)} bytes, expected a header of {header.size}")
        found_magic, count, *found_shape = header.unpack(start)
        if found_magic != magic:
            raise DataError(f"{path}: the magic number is {found_magic:#x}, expected {magic:#x} for {items}")
        if tuple(found_shape) != shape:
            found = " x ".join(map(str, found_shape))
            raise DataError(f"{path}: {items} of {found} bytes, expected {' x '.join(map(str, shape))}")
        yield file, count


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """A file to read, decompressed if it is a .gz. Raises OSError, and DataError for a damaged one."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]  # a GzipFile reads as any other
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}") from error


def _read(path: Path, magic: int, items: str, shape: tuple[int, ...]) -> bytes:
    """The content of an idx file after its header, which must declare `items` of `shape` bytes. Raises DataError."""
    with opened(path, magic, items, shape) as (file, count):
        if not 1 <= count <= MAX_ITEMS:
            raise DataError(f"{path}: a count of {count} {items}, expected 1..{MAX_ITEMS}")
        size = count * math.prod(shape)
        content = file.read(size + 1)  # to the end, where gzip compares its checksum; but no further
    if len(content) < size:
        raise DataError(f"{path}: truncated: {len(content)} bytes follow the header, expected {size}: {count} {items}")
    if len(content) > size:
        raise DataError(f"{path}: more than the expected {size} bytes follow the header: {count} {items}")
    return content


def _built_in() -> Data:
    return Data(*digits.load(), source="the built-in digits")
