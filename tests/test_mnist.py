"""Readers that accept damaged idx files, downloads that trust a bad server, data found in the wrong place."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from micrograd import cache
from micrograd.data import digits, mnist
from micrograd.data.mnist import Data, DataError, DownloadError

NAMES = tuple(mnist.FILES)
Parts: TypeAlias = tuple[bytes, bytes, bytes, bytes]


def idx(magic: int, *numbers: int, items: bytes) -> bytes:
    return struct.pack(f">{1 + len(numbers)}I", magic, *numbers) + items


def images_file(count: int, seed: int = 0) -> bytes:
    return idx(0x0803, count, 28, 28, items=random.Random(seed).randbytes(count * 784))


def labels_file(count: int) -> bytes:
    return idx(0x0801, count, items=bytes(i % 10 for i in range(count)))


def files(train: int = 20, test: int = 10) -> dict[str, bytes]:
    contents = (images_file(train, 1), labels_file(train), images_file(test, 2), labels_file(test))
    return dict(zip(NAMES, contents, strict=True))


def write(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.fixture(autouse=True)
def _nothing_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MICROGRAD_MNIST", raising=False)
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Four small files that mnist takes for the real ones."""
    contents = files(train=150)
    known = {name: (hashlib.sha256(content).hexdigest(), len(content)) for name, content in contents.items()}
    monkeypatch.setattr(mnist, "FILES", known)
    return contents


@pytest.fixture
def built_in(monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Fewer built-in digits than 70,000: they are only to be recognised."""
    some = (bytes(784), b"\1", bytes(784), b"\2")
    monkeypatch.setattr(digits, "load", lambda: some)
    return some


def parts(data: Data) -> Parts:
    return data.train_images, data.train_labels, data.test_images, data.test_labels


def items(contents: dict[str, bytes]) -> Parts:
    a, b, c, d = (contents[name] for name in NAMES)
    return a[16:], b[8:], c[16:], d[8:]


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_read(tmp_path: Path, dotted: bool, compressed: bool) -> None:
    contents = files()
    for name, content in contents.items():
        spelling = (name.replace("-idx", ".idx") if dotted else name) + (".gz" if compressed else "")
        (tmp_path / spelling).write_bytes(gzip.compress(content) if compressed else content)
    data = mnist.read(tmp_path)
    assert parts(data) == items(contents)
    assert str(tmp_path) in data.source


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, files())
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no {name} and no {name}.gz"):
        mnist.read(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        mnist.read(tmp_path / "nowhere")


def test_images_and_labels_must_be_as_many(tmp_path: Path) -> None:
    write(tmp_path, {**files(), NAMES[3]: labels_file(9)})
    with pytest.raises(DataError, match=rf"{NAMES[3]}: 9 labels, expected 10, one for each image in .*{NAMES[2]}"):
        mnist.read(tmp_path)


GOOD = images_file(3)
BAD_IMAGES = {
    "empty": (b"", "truncated: 0 bytes, expected a header of 16"),
    "labels": (labels_file(30), "the magic number is 0x801, expected 0x803 for images"),
    "text": (b"<html>not found</html>", "the magic number is 0x3c68746d, expected 0x803 for images"),
    "the other byte order": (struct.pack("<4I", 0x803, 3, 28, 28) + GOOD[16:], "the magic number is 0x3080000"),
    "32 x 32": (idx(0x803, 1, 32, 32, items=bytes(1024)), "images of 32 x 32 bytes, expected 28 x 28"),
    "none": (idx(0x803, 0, 28, 28, items=b""), r"a count of 0 images, expected 1\.\.500000"),
    "billions": (idx(0x803, 2**32 - 1, 28, 28, items=b""), r"a count of 4294967295 images, expected 1\.\.500000"),
    "truncated": (GOOD[:-1], "truncated: 2351 bytes follow the header, expected 2352: 3 images"),
    "a count too high": (idx(0x803, 4, 28, 28, items=GOOD[16:]), "truncated: 2352 bytes .*, expected 3136: 4 images"),
    "a count too low": (idx(0x803, 2, 28, 28, items=GOOD[16:]), "more than the expected 1568 bytes .*: 2 images"),
    "trailing": (GOOD + b"\0", "more than the expected 2352 bytes follow the header: 3 images"),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", BAD_IMAGES)
def test_bad_images(tmp_path: Path, kind: str, compressed: bool) -> None:
    content, message = BAD_IMAGES[kind]
    path = tmp_path / ("images.gz" if compressed else "images")
    path.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(DataError, match=message) as caught:
        mnist.read_images(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert isinstance(caught.value, ValueError)


BAD_LABELS = {
    "images": (GOOD, "the magic number is 0x803, expected 0x801 for labels"),
    "truncated": (labels_file(30)[:-2], "truncated: 28 bytes follow the header, expected 30: 30 labels"),
    "trailing": (labels_file(30) + b"\1", "more than the expected 30 bytes follow the header: 30 labels"),
    "ten": (idx(0x801, 3, items=b"\1\x0a\2"), r"label 1 is 10, expected 0\.\.9"),
    "all ones": (idx(0x801, 3, items=b"\1\2\xff"), r"label 2 is 255, expected 0\.\.9"),
}


@pytest.mark.parametrize("kind", BAD_LABELS)
def test_bad_labels(tmp_path: Path, kind: str) -> None:
    content, message = BAD_LABELS[kind]
    path = tmp_path / "labels"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        mnist.read_labels(path)


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


BAD_GZIP = {
    "not gzip": GOOD,
    "empty member": gzip.compress(GOOD)[:10],
    "truncated": gzip.compress(GOOD)[:-200],
    "without its checksum": gzip.compress(GOOD)[:-8],
    "a wrong checksum": flipped(gzip.compress(GOOD), -8),
    "a wrong block": flipped(gzip.compress(GOOD), 10),
    "garbage behind it": gzip.compress(GOOD) + b"garbage",
}


@pytest.mark.parametrize("kind", BAD_GZIP)
def test_bad_gzip(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(BAD_GZIP[kind])
    with pytest.raises(DataError, match="not a whole gzip file") as caught:
        mnist.read_images(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """64 MB of zeros behind one image: only the first few bytes of them are ever asked for."""
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(images_file(1) + bytes(64 << 20)))
    with little_memory(), pytest.raises(DataError, match="more than the expected 784 bytes"):
        mnist.read_images(path)


@dataclass
class Server:
    url: str
    requests: list[str]  # the paths, as they came


@contextmanager
def serving(contents: dict[str, bytes]) -> Iterator[Server]:
    """A server that has NAME.gz for each of the names."""
    requests: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            content = contents.get(self.path.removeprefix("/mnist/").removesuffix(".gz"))
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{server.server_address[1]}/mnist/", requests)
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that accepts every connection and then does `answer`, which may fail when we hang up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def converse(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            answer(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        listener.close()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}/"


def zipped(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {name: gzip.compress(content) for name, content in contents.items()}


@pytest.mark.parametrize("unpacked", [False, True])
def test_download(tmp_path: Path, small: dict[str, bytes], unpacked: bool) -> None:
    """Some HTTP servers and clients agree to unpack what they transfer."""
    folder = tmp_path / "new" / "cache"
    with serving(small if unpacked else zipped(small)) as server:
        mnist.download(folder, [server.url])
        assert sorted(os.listdir(folder)) == sorted(NAMES)
        assert parts(mnist.read(folder)) == items(small)
        mnist.download(folder, [server.url])
        assert len(server.requests) == 4  # nothing is fetched twice


def test_the_hashes_are_of_the_real_sizes() -> None:
    assert [size for _, size in mnist.FILES.values()] == [16 + 60000 * 784, 8 + 60000, 16 + 10000 * 784, 8 + 10000]
    assert all(len(bytes.fromhex(digest)) == 32 for digest, _ in mnist.FILES.values())
    assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in mnist.MIRRORS)


def test_a_damaged_file_in_the_cache_is_fetched_again(tmp_path: Path, small: dict[str, bytes]) -> None:
    write(tmp_path, {**small, NAMES[0]: flipped(small[NAMES[0]], 100), NAMES[3]: small[NAMES[3]][:-1]})
    with serving(zipped(small)) as server:
        mnist.download(tmp_path, [server.url])
        assert server.requests == [f"/mnist/{NAMES[0]}.gz", f"/mnist/{NAMES[3]}.gz"]
    assert parts(mnist.read(tmp_path)) == items(small)


def test_the_next_mirror_has_what_the_first_has_not(tmp_path: Path, small: dict[str, bytes]) -> None:
    first = zipped(small)
    del first[NAMES[2]]
    with serving(first) as one, serving(zipped(small)) as other:
        mnist.download(tmp_path, [one.url, other.url])
        assert other.requests == [f"/mnist/{NAMES[2]}.gz", f"/mnist/{NAMES[3]}.gz"]
    assert parts(mnist.read(tmp_path)) == items(small)


WRONG: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another file": (lambda good: gzip.compress(flipped(good, 50)), "has the SHA-256 [0-9a-f]{64}, expected"),
    "too long": (lambda good: gzip.compress(good + b"\0"), "grows past the expected 117616 bytes"),
    "a bomb": (lambda good: gzip.compress(bytes(64 << 20)), "grows past the expected 117616 bytes"),
    "truncated gzip": (lambda good: gzip.compress(good)[:-30], "has the SHA-256"),
    "damaged gzip": (lambda good: flipped(gzip.compress(good), 10), "gz is damaged"),
    "a page": (lambda good: b"<html>log in first</html>", "has the SHA-256"),
    "endless": (lambda good: bytes(1 << 20), "more than the expected 217616 bytes"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_content_is_refused(tmp_path: Path, small: dict[str, bytes], kind: str) -> None:
    spoil, message = WRONG[kind]
    contents = {**zipped(small), NAMES[0]: spoil(small[NAMES[0]])}
    with serving(contents) as server, pytest.raises(DownloadError, match=rf"127\.0\.0\.1:[0-9]+: .*{message}"):
        mnist.download(tmp_path / "cache", [server.url])
    assert not (tmp_path / "cache").exists()


def test_a_bomb_is_not_unpacked(tmp_path: Path, small: dict[str, bytes]) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    with serving({NAMES[0]: bomb}) as server, little_memory(), pytest.raises(DownloadError, match="grows past"):
        mnist.download(tmp_path, [server.url])


def test_no_network(tmp_path: Path, small: dict[str, bytes]) -> None:
    start = time.monotonic()
    with pytest.raises(DownloadError, match=r"refused.*; 127\.0\.0\.1:.*refused"):
        mnist.download(tmp_path, [closed_port(), closed_port()])
    assert time.monotonic() - start < 5


def silence(connection: socket.socket) -> None:
    connection.recv(1)


def trickle(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def trickle_of_header(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    trickle(connection)


def trickle_of_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n\x1f\x8b")
    trickle(connection)


def stall(connection: socket.socket) -> None:
    """A fast beginning earns no endless wait at the end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + bytes(90000))
    connection.recv(1)


@pytest.mark.parametrize("answer", [silence, trickle_of_header, trickle_of_body, stall])
def test_patience_ends(tmp_path: Path, small: dict[str, bytes], answer: Callable[[socket.socket], None]) -> None:
    with answering(answer) as one, answering(answer) as other:
        start = time.monotonic()
        with pytest.raises(DownloadError, match=r"slow one, in 0\.2 s; .*slow one, in 0\.2 s"):
            mnist.download(tmp_path, [one, other], patience=0.4)
        assert 0.3 < time.monotonic() - start < 1.5
    assert os.listdir(tmp_path) == []


def test_the_patience_is_for_all_files_together(tmp_path: Path, small: dict[str, bytes]) -> None:
    """Each answer comes within the time, but four of them do not."""
    packed = zipped(small)

    def sluggish(connection: socket.socket) -> None:
        time.sleep(0.3)
        content = packed[NAMES[1]]  # a few bytes: they hardly count
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + content)

    write(tmp_path, {NAMES[0]: small[NAMES[0]], NAMES[2]: small[NAMES[2]]})
    with answering(sluggish) as url, pytest.raises(DownloadError, match=r"slow one, in 0\.5 s"):
        mnist.download(tmp_path, [url], patience=0.5)
    assert (tmp_path / NAMES[1]).read_bytes() == small[NAMES[1]]


def test_a_steady_server_may_take_longer(
    tmp_path: Path, small: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mnist, "MIN_SPEED", 5000)
    content = zlib.compress(small[NAMES[0]], 0, wbits=zlib.MAX_WBITS | 16)

    def steady(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for start in range(0, len(content), 8192):
            connection.sendall(content[start : start + 8192])
            time.sleep(0.06)

    write(tmp_path, {name: small[name] for name in NAMES[1:]})
    with answering(steady) as url:
        start = time.monotonic()
        mnist.download(tmp_path, [url], patience=0.6)
        assert time.monotonic() - start > 0.8
    assert parts(mnist.read(tmp_path)) == items(small)


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, small: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with serving(zipped(small)) as server, pytest.raises(KeyboardInterrupt):
        mnist.download(tmp_path, [server.url])
    assert os.listdir(tmp_path) == []


def test_the_named_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "named", files(train=5))
    write(tmp_path / "variable", files(train=6))
    monkeypatch.setenv("MICROGRAD_MNIST", str(tmp_path / "variable"))
    assert len(mnist.load(tmp_path / "named").train_labels) == 5
    assert len(mnist.load().train_labels) == 6


def test_a_named_folder_is_not_replaced_by_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=NAMES[0]):
        mnist.load(tmp_path)
    monkeypatch.setenv("MICROGRAD_MNIST", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=NAMES[0]):
        mnist.load()
    write(tmp_path, {**files(), NAMES[1]: b"damaged"})
    with pytest.raises(DataError, match=NAMES[1]):
        mnist.load()


def test_the_cache_is_filled_and_then_used(tmp_path: Path, small: dict[str, bytes]) -> None:
    with serving(zipped(small)) as server:
        assert parts(mnist.load(mirrors=[server.url])) == items(small)
    data = mnist.load(mirrors=[closed_port()])
    assert parts(data) == items(small)
    assert str(tmp_path / "cache") in data.source


def test_without_the_variable_the_cache_is_where_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    monkeypatch.delenv("MICROGRAD_CACHE")
    assert cache.home() == Path(pooch.os_cache("micrograd-nn"))


@pytest.mark.usefixtures("small")
def test_the_built_in_digits_stand_in(tmp_path: Path, built_in: Parts, capsys: pytest.CaptureFixture[str]) -> None:
    data = mnist.load(mirrors=[closed_port()])
    assert parts(data) == built_in
    assert "built-in digits" in data.source
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "built-in digits" in err
    assert "refused" in err
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_said_so(
    tmp_path: Path, small: dict[str, bytes], built_in: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    with serving(zipped(small)) as server:
        assert parts(mnist.load(mirrors=[server.url])) == built_in
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(tmp_path / "cache") in err


def test_digits_on_request(
    built_in: Parts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MICROGRAD_MNIST", "nowhere")
    assert parts(mnist.load(source="digits")) == built_in
    assert capsys.readouterr() == ("", "")


def test_without_pooch_it_names_the_extra() -> None:
    script = "import sys; sys.modules['pooch'] = None\nfrom micrograd.data import mnist\nmnist.load()"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'micrograd-nn[train]'" in result.stderr
