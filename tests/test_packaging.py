"""Source distributions that do not build where a C compiler is, or do not say what is missing where none is.

Each test takes a build or two, so these are slow ones. `make wheel` has the rest: isolation, reproducibility, audits.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheels import run, wheel_of

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("codegen", "csrc", "micrograd", "weights")
FILES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="POSIX compilers and permissions")]

USE = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import nn, nn_infer
nn.forward(3, bytes(range(196)) * 4)
nn.backward()
nn.update()
images = bytes(i * i % 251 for i in range(784 * 64))
nn.train(images, bytes(i % 10 for i in range(64)), batch_size=8, learning_rate=0.1, epochs=2)
data = hashlib.sha256(nn.flat_data()).hexdigest() + (sys.float_info.min / 2).hex()
print(data, nn_infer.outputs(images[:784]), nn.info()["compiler"], sep="|")
"""


@pytest.fixture
def source(tmp_path):
    """The project's sources, as an sdist has them, in a folder with a space."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def used_wheel(source, out, **options):
    """What USE prints of the wheel of the sources."""
    unpacked = out / "unpacked"
    zipfile.ZipFile(wheel_of(source, out, **options)).extractall(unpacked)
    return run(sys.executable, "-c", USE, unpacked, cwd=out.parent).stdout.split("|")


@pytest.fixture(scope="module")
def here():
    """What the modules of this environment compute."""
    path = Path(__import__("nn").__file__).parent
    return run(sys.executable, "-c", USE, path, cwd=ROOT).stdout.split("|")


@pytest.mark.nightly
def test_building_in_place_twice_makes_nothing_again(source):
    run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=source)
    built = [*source.glob("nn*.so"), *source.glob("build/temp*/nn*.c"), *source.glob("build/temp*/**/nn*.o")]
    assert {path.suffix for path in built} == {".so", ".c", ".o"}
    before = {path: path.stat().st_mtime_ns for path in built}
    run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=source)
    assert {path: path.stat().st_mtime_ns for path in built} == before
    (header,) = source.glob("csrc/ops.h")
    header.write_text(header.read_text() + "\n/* changed */\n")
    run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=source)
    after = {path: path.stat().st_mtime_ns for path in built}
    assert {path.suffix for path in built if after[path] != before[path]} == {".so", ".o"}  # compiled, not traced


@pytest.mark.nightly
@pytest.mark.parametrize("flags", ["-O0 -g -ffast-math", "-Ofast -funsafe-math-optimizations"])
def test_the_environments_flags_do_not_take_speed_or_bits_away(flags, source, tmp_path, here):
    assert used_wheel(source, tmp_path / "out", CFLAGS=flags) == here


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
def test_clang_gives_the_same_bits(source, tmp_path, here):
    found = used_wheel(source, tmp_path / "out", CC="clang")
    assert found[2].startswith("clang")
    assert found[:2] == here[:2]


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def can_mount(folder):
    """Whether a folder can be made read-only, even for root, for the length of one command."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, folder, "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.nightly
def test_a_source_folder_that_cannot_be_written(source, tmp_path, here):
    if not can_mount(source):
        pytest.skip("no right to mount a folder read-only")
    before = sorted(source.rglob("*"))
    assert used_wheel(source, tmp_path / "out", prefix=["unshare", "--mount", "sh", "-c", READ_ONLY, source]) == here
    assert sorted(source.rglob("*")) == before


@pytest.mark.parametrize(("compiler", "why"), [("/no/such/compiler", "/no/such/compiler"), ("true", "wrote no module")])
def test_a_missing_compiler_is_explained(compiler, why, source, tmp_path):
    out = tmp_path / "out"
    done = run(
        sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-index", "--no-deps", "-w", out, source,
        cwd=tmp_path, check=False, CC=compiler,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode
    assert "nn is compiled while it is installed, and the C compiler failed" in said
    assert why in said
    assert "apt install gcc python3-dev" in said


def test_a_failing_trace_is_explained(source, tmp_path):
    model = source / "micrograd" / "model.py"
    model.write_text(model.read_text().replace("MLP(PIXELS, ", "MLP(PIXELS - 1, "))
    done = run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=source, check=False)
    assert done.returncode
    assert f"the C of nn could not be made from codegen/mnist.py: {source / 'codegen' / 'mnist.py'}:" in done.stderr
    assert re.search(r"mnist\.py:\d+: ValueError: .*783", done.stderr)
