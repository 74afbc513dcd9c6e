"""Promises of SECURITY.md that do not hold: a table of its sentences, then the tests that are not elsewhere."""

from __future__ import annotations

import ast
import gzip
import http.server
import json
import os
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from codegen.backends.shared import csrc
from codegen.weights import read_weights
from micrograd.commands import checkpoint
from micrograd.commands.images import read_image
from micrograd.data import mnist
from micrograd.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
TESTS = Path(__file__).parent

# The beginning of each sentence, and file: test.
PROMISES = {
    "`tests/test_security.py` has a test": ["test_security: test_every_promise_has_its_tests"],
    "Files are data.": ["test_security: test_nothing_runs_what_a_file_says"],
    "Weights are safetensors": [
        "test_checkpoint: test_other_files",
        "test_mnist: test_bad_images",
        "test_cli: test_bad_images",
    ],
    "Nothing is unpickled": ["test_security: test_nothing_runs_what_a_file_says"],
    "No name in a file becomes a path": ["test_security: test_a_name_in_a_weight_file_is_no_path"],
    "Sizes are bounded": ["test_security: test_a_header_that_announces_too_much"],
    "An idx file has at most 500,000": [
        "test_mnist: test_bad_images",
        "test_mnist: test_a_gzip_bomb_is_not_unpacked",
        "test_security: test_many_members_of_gzip_are_a_bomb_too",
    ],
    "A download of MNIST is at most": [
        "test_mnist: test_wrong_content_is_refused",
        "test_mnist: test_a_bomb_is_not_unpacked",
    ],
    "The header of a weight file": ["test_security: test_a_header_that_announces_too_much"],
    "The SHA-256 in a checkpoint": ["test_checkpoint: test_every_flipped_bit_is_noticed"],
    "Of a picture no more than": [
        "test_security: test_a_picture_of_any_size_is_read_to_its_limit",
        "test_images: test_files_that_show_nothing",
    ],
    "A device in place of": ["test_security: test_a_device_is_no_file"],
    "One thing uses the network": ["test_security: test_no_other_command_uses_the_network"],
    "It goes over TLS": [
        "test_security: test_the_mirrors_are_asked_over_tls",
        "test_security: test_a_redirection_is_not_followed",
        "test_mnist: test_wrong_content_is_refused",
    ],
    "`--data`, `$MICROGRAD_MNIST` and": ["test_security: test_no_other_command_uses_the_network"],
    "`import nn` touches no file": ["test_security: test_the_import_opens_nothing"],
    "Files are written whole": ["test_checkpoint: test_a_failure_leaves_the_old_file"],
    "`--save` replaces a file": [
        "test_checkpoint: test_another_file_is_replaced_and_nothing_else_is_left",
        "test_checkpoint: test_a_link_stays_a_link",
    ],
    "The same goes for checkpoints": ["test_files: test_the_disk_is_full_at_every_byte"],
    "An output that would replace": [
        "test_files: test_no_output_is_a_companion_of_the_checkpoint",
        "test_files: test_no_output_is_a_file_of_the_data",
    ],
    "Files are read by copying": ["test_files: test_nothing_maps_a_file"],
    "No command and no function that takes a path maps a file": [
        "test_files: test_nothing_maps_a_file",
        "test_files: test_data_that_is_cut_off_during_a_run",
        "test_files: test_a_checkpoint_that_is_cut_off_while_it_is_read",
    ],
    "Buffers are checked": [
        "test_bad_input: test_what_is_refused_leaves_the_model_as_it_was",
        "test_interference: test_a_wrong_label_is_found_before_the_first_step",
    ],
    "While a call uses a buffer": ["test_interference: test_a_buffer_in_use_can_be_neither_resized_nor_released"],
    "The tests run the generated C under": [
        "test_build: test_sanitizers_find_nothing",
        "test_build: test_threads_do_not_race",
        "test_concurrency: test_threads_that_call_everything_do_not_race",
        "test_concurrency: test_a_planted_race_is_found",
    ],
}


def test_every_promise_has_its_tests():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = text.partition("## What is promised")[2].partition("\n## ")[0]
    plain = " ".join(section.replace("\n* ", " ").replace("**", "").split())
    sentences = re.split(r"(?<=[.])\s+(?=[A-Z`])", plain)
    beginnings = list(PROMISES)
    assert len(sentences) == len(beginnings), sentences
    for sentence, beginning in zip(sentences, beginnings, strict=True):
        assert sentence.startswith(beginning), sentence
    for entry in {entry for entries in PROMISES.values() for entry in entries}:
        file, _, name = entry.partition(": ")
        assert f"\ndef {name}(" in (TESTS / f"{file}.py").read_text(encoding="utf-8"), entry


# Nothing runs what a file says

FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "copyreg", "xmlrpc", "code"}
RUNS = {"eval", "exec", "compile", "__import__"}
LOADS = {"os.system", "os.popen", "np.load", "numpy.load", "runpy.run_path", "runpy.run_module"}
# Who may run something, and what: model files, which are Python, compilers, cached modules, and this package itself.
ALLOWED = {
    ("codegen/loading.py", "exec"),
    ("codegen/loading.py", "compile"),
    ("codegen/loading.py", "importlib"),  # forgets what it knows of folders
    ("codegen/models.py", "importlib"),
    ("codegen/models.py", "copyreg"),  # tells pickle how models are pickled; reads none
    ("codegen/toolchain.py", "subprocess"),
    ("codegen/toolchain.py", "importlib"),  # whether a package is there
    ("codegen/build.py", "importlib"),
    ("micrograd/commands/inputs.py", "importlib"),
    ("micrograd/commands/tree.py", "importlib"),  # the files of the commands
    ("micrograd/neighbours.py", "importlib"),  # finds modules, and imports none
    ("micrograd/commands/comparison.py", "subprocess"),
    ("micrograd/commands/check.py", "importlib"),
    ("micrograd/commands/comparison.py", "importlib"),
    ("micrograd/commands/predict.py", "np.load"),  # results of its own
    ("micrograd/commands/predict.py", "allow_pickle"),  # not allowed, nor here:
    ("micrograd/commands/shards.py", "allow_pickle"),
    ("micrograd/draw.py", "importlib"),  # who draws groups says so in its metadata
    ("codegen/backends/expressions.py", "ctypes"),  # float32's rounding
}


def risks(tree: ast.AST) -> set[str]:
    """What a file uses of all that could run something."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [alias.name for alias in node.names]
            modules = named if isinstance(node, ast.Import) else [node.module or ""]
            for module in {name.partition(".")[0] for name in modules}:
                if module in FORBIDDEN_MODULES | {"subprocess", "importlib", "runpy", "ctypes", "socket", "urllib"}:
                    found.add(module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS:
            found.add(node.func.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func) in LOADS:
                found.add(ast.unparse(node.func))
        elif isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
            found.add(node.arg)
    return found


def test_nothing_runs_what_a_file_says():
    found = set()
    paths = [path for folder in ("micrograd", "codegen") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 40
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        found |= {(name, risk) for risk in risks(ast.parse(path.read_text(encoding="utf-8")))}
    found -= {("micrograd/data/mnist.py", "urllib")}  # urlsplit, for an error
    assert found == ALLOWED
    for header in csrc().glob("*.h"):
        assert not re.search(
            r"\b(system|popen|exec[lv]p?e?|dlopen|fopen|open|socket|PyRun_\w+)\s*\(", header.read_text()
        )


@pytest.mark.parametrize(
    ("text", "risk"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle"),
        ("import os.path, marshal", "marshal"),
        ("def f(x): return eval(x)", "eval"),
        ("np.load(x, allow_pickle=True)", "np.load"),
        ("g(allow_pickle=True)", "allow_pickle"),
        ("os.system('x')", "os.system"),
    ],
)
def test_what_would_be_found(text, risk):
    assert risk in risks(ast.parse(text))


# Files


def weight_file(header: object, numbers: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def entry(shape: object, end: int = 8) -> dict:
    return {"dtype": "F64", "shape": shape, "data_offsets": [0, end]}


TOO_MUCH = {
    "header": struct.pack("<Q", 2**63) + b"{}",
    "header by one": struct.pack("<Q", 3) + b"{}",
    "header of the whole memory": struct.pack("<Q", 99_999_999) + b"{}",
    "elements": weight_file({"w": entry([2**40], 2**43)}, bytes(8)),
    "elements beyond 64 bits": weight_file({"w": entry([2**61 + 1], 8)}, bytes(8)),
    "a dimension beyond 64 bits": weight_file({"w": entry([0, 10**30], 0)}),
    "dimensions": weight_file({"w": entry([1] * 70)}, bytes(8)),
    "depth": weight_file(b'{"w":' + b"[" * 60_000, b""),
    "digits": weight_file(b'{"w":{"dtype":"F64","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}', bytes(8)),
    "bytes": weight_file({"w": entry([1])}, bytes(9)),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_header_that_announces_too_much(what, tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(TOO_MUCH[what])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read_weights(path)
    with pytest.raises(checkpoint.CheckpointError, match=re.escape(str(path))):
        checkpoint.load(path, {"w": (1,)})


def test_a_name_in_a_weight_file_is_no_path(tmp_path, monkeypatch):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    path = inside / "weights.safetensors"
    names = ["../../x", "/etc/passwd", "..", "a/../../y", "w\\..\\z", ""]
    header = {name: {"dtype": "F64", "shape": [1], "data_offsets": [8 * i, 8 * i + 8]} for i, name in enumerate(names)}
    path.write_bytes(weight_file(header, bytes(8 * len(names))))
    before = sorted(tmp_path.rglob("*"))
    assert set(read_weights(path)) == set(names)
    with pytest.raises(checkpoint.CheckpointError, match="no tensor 'w'"):
        checkpoint.load(path, {"w": (1,)})
    loaded = checkpoint.load(path, dict.fromkeys(names, (1,)))
    checkpoint.save("copy.safetensors", loaded, {})
    assert sorted(tmp_path.rglob("*")) == sorted([*before, inside / "copy.safetensors"])


def test_many_members_of_gzip_are_a_bomb_too(tmp_path):
    image = struct.pack(">4I", 0x803, 1, 28, 28) + bytes(784)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(image[:100]) + gzip.compress(image[100:]))
    assert mnist.read_images(path) == bytes(784)  # what gzip itself makes of two members
    path.write_bytes(gzip.compress(image) + gzip.compress(bytes(1 << 20)) * 500)
    with pytest.raises(mnist.DataError, match="more than the expected 784 bytes"):
        mnist.read_images(path)
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 2**31, 28, 28) + bytes(784)))
    with pytest.raises(mnist.DataError, match="a count of 2147483648 images"):
        mnist.read_images(path)


ENDLESS = Path("/dev/zero")


@pytest.mark.skipif(not ENDLESS.exists(), reason="no /dev/zero on this platform")
def test_a_device_is_no_file(tmp_path):
    for name in mnist.FILES:
        (tmp_path / name).symlink_to(ENDLESS)
    with pytest.raises(FileNotFoundError, match="no train-images"):
        mnist.read(tmp_path)
    with pytest.raises(mnist.DataError, match="the magic number is 0x0"):
        mnist.read_images(ENDLESS)
    with pytest.raises(ValueError, match="/dev/zero: not a file but a device or a pipe"):
        read_weights(ENDLESS)
    with pytest.raises(checkpoint.CheckpointError, match="/dev/zero: not a file but a device or a pipe"):
        checkpoint.load(ENDLESS, {"w": (1,)})
    with pytest.raises(UsageError, match="65536 or more bytes and no PNG or binary PGM"):
        read_image(ENDLESS)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="pipe: not a file but a device or a pipe"):
            read_weights(tmp_path / "pipe")
        with pytest.raises(checkpoint.CheckpointError, match="pipe: not a file but a device or a pipe"):
            checkpoint.load_metadata(tmp_path / "pipe")


PICTURES = {
    "many comments": b"P5" + b"#\n" * (1 << 20) + b"28 28 255\n" + bytes(784),
    "a comment without an end": b"P5 #" + b"x" * (1 << 20),
    "spaces": b"P5" + b" " * (1 << 20),
    "huge sizes": b"P5 999999999 999999999 255\n" + bytes(784),
    "digits": b"P5 " + b"9" * (1 << 20),
    "too many pixels": b"P5 28 28 255\n" + bytes(1 << 24),
}


@pytest.mark.parametrize("what", PICTURES)
def test_a_picture_of_any_size_is_read_to_its_limit(what, tmp_path):
    path = tmp_path / "picture.pgm"
    path.write_bytes(PICTURES[what])
    with pytest.raises(UsageError, match=r"picture\.pgm: "):
        read_image(path)


# The network

WATCHED = """
import sys
used = []
def watch(event, arguments):
    if event.startswith(("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.bind", "socket.sendto")):
        used.append((event, arguments))
        raise OSError("no network here: " + repr(arguments))
sys.addaudithook(watch)
from micrograd.data import digits
from micrograd.__main__ import main
digits.load = lambda: (bytes(784 * 20), bytes(20), bytes(784 * 20), bytes(20))  # drawing them takes seconds
code = main(sys.argv[1:])
print("network:", [(event, arguments[0], arguments[1]) for event, arguments in used])
sys.exit(code)
"""


def watched(*arguments: object, **environment: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MICROGRAD_")}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *map(str, arguments)],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mnist")
    for name in mnist.FILES:
        header = (0x803, 20, 28, 28) if "images" in name else (0x801, 20)
        items = bytes(20 * 784) if "images" in name else bytes(20)
        (folder / name).write_bytes(struct.pack(f">{len(header)}I", *header) + items)
    return folder


def test_no_other_command_uses_the_network(data, tmp_path):
    weights = tmp_path / "model.safetensors"
    nothing = "network: []"
    assert watched("train", "--epochs", 1, "--data", data, "--save", weights) == nothing
    assert watched("eval", "--load", weights, MICROGRAD_MNIST=str(data)) == nothing
    assert watched("predict", "--data", data) == nothing
    assert watched("predict", "--digits", "--index", 0) == nothing


def test_the_mirrors_are_asked_over_tls(tmp_path):
    assert all(mirror.startswith("https://") for mirror in mnist.MIRRORS)
    used = watched("predict", "--index", 0, MICROGRAD_CACHE=str(tmp_path))
    hosts = [mirror.removeprefix("https://").partition("/")[0] for mirror in mnist.MIRRORS]
    asked = re.findall(r"\('socket\.getaddrinfo', '([^']+)', (\d+)\)", used)
    assert {port for _, port in asked} <= {"443"}
    assert asked
    assert {host for host, _ in asked} <= set(hosts)
    assert list(tmp_path.iterdir()) == []


def test_a_redirection_is_not_followed(tmp_path):
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            with pytest.raises(mnist.DownloadError, match="SHA-256"):
                mnist.download(tmp_path, [f"http://127.0.0.1:{server.server_address[1]}/mnist/"])
        finally:
            server.shutdown()
            thread.join()
    assert asked == [f"/mnist/{next(iter(mnist.FILES))}.gz"]
    assert list(tmp_path.iterdir()) == []


IMPORT = """
import importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
events = []
def watch(event, arguments):
    if event.startswith(("open", "socket", "os.", "subprocess")):
        events.append(event)
sys.addaudithook(watch)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.predict(bytes(784))
if sys.argv[1] == "nn":
    module.reset()
    module.train(bytes(784 * 20), bytes(20), threads=2, epochs=2, seed=1, batch_size=5)
    module.load_state_dict(module.state_dict())
print(events)
"""


@pytest.mark.parametrize("name", ["nn", "nn_infer"])
def test_the_import_opens_nothing(name, run_python):
    assert run_python(IMPORT, name).strip() == "[]"
