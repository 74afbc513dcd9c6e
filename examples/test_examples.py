"""Every example prints what docs/examples.md shows, and its pictures are those of the page."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import codegen

ROOT = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
LISTINGS = dict(
    listing.split("\n", 1)
    for block in build.CONSOLE.findall(PAGE)
    for listing in re.split(r"^\$ ", block, flags=re.M)[1:]
)
# They compile with -O3. `make docs` runs them, as it runs everything that pages show, and checks output and pictures.
OPTIMIZED = {"four_points.py", "higher_derivatives.py", "microgpt.py", "moons.py"}
LARGEST = 100_000  # bytes of a picture


@pytest.mark.parametrize("command", [command for command in LISTINGS if Path(command).name not in OPTIMIZED])
def test_an_example_prints_what_the_page_shows(command):
    report = build.Report()
    assert build.output(command, LISTINGS[command], report) == LISTINGS[command]
    assert not report.errors


def test_every_example_is_on_the_page():
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")} - {Path(__file__).name}
    listed = {command.removeprefix("python examples/") for command in LISTINGS}
    assert scripts == listed | {"convolution.py", "attention.py", "microgpt.py", "mpi.py"}
    for name in scripts:
        assert f"`{name}`" in PAGE or f"[{name}]" in PAGE


@pytest.mark.parametrize(("name", "groups"), [("convolution", 28), ("attention", 30)])
def test_an_example_model_prints_its_groups(name, groups):
    lines = build.printed(f"examples/{name}.py").splitlines()
    assert len(lines) == 2 * groups + 2
    assert re.match(rf"[\d,]+ nodes, [\d,]+ of them operations, in {groups} groups; ", lines[-1])


@pytest.fixture
def microgpt(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module("microgpt")


def test_microgpt_fits_its_cities(microgpt):
    """Names fit eight tokens with the mark, each letter once in the vocabulary, and the page counts parameters."""
    assert len(set(microgpt.CITIES)) == len(microgpt.CITIES) > 200
    for city in microgpt.CITIES:
        tokens, following, weights = microgpt.example(city)
        assert len(tokens) == len(following) == len(weights) == microgpt.TOKENS
        assert math.isclose(sum(weights), 1.0)
        assert tokens[1:] == following[:-1]
        assert [token for token, weight in zip(following, weights, strict=True) if weight][-1] == microgpt.MARK
    assert sum(len(row) for matrix in microgpt.new_parameters().values() for row in matrix) == 4064
    assert len((ROOT / "examples" / "microgpt.py").read_text(encoding="utf-8").splitlines()) < 120


def test_a_smaller_microgpt_trains_as_interpreted_and_samples(microgpt, monkeypatch):
    for name, size in {"TOKENS": 4, "WIDTH": 4, "HEADS": 2, "SIZE": 2}.items():
        monkeypatch.setattr(microgpt, name, size)
    names = ["ufa", "fez", "ufa"]
    model = codegen.compile(microgpt.program(), optimize=0)
    assert [microgpt.train(model, [name]) for name in names] == list(microgpt.train_interpreted(names))
    microgpt.train(model, ["ufa"] * 200)
    assert microgpt.sample(model) == "ufa"


def test_mnist_reads_any_idx_files(tmp_path):
    """A few random images: random labels are not learned, but every report comes."""
    for name, count in (("train", 60), ("t10k", 20)):
        images = struct.pack(">4I", 0x0803, count, 28, 28) + os.urandom(784 * count)
        labels = struct.pack(">2I", 0x0801, count) + bytes(i % 10 for i in range(count))
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(images)
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(labels)
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "mnist.py"],
        env=os.environ | {"MICROGRAD_MNIST": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    *reports, time = done.stdout.splitlines()
    for i, report in enumerate(reports, 1):
        assert re.fullmatch(rf" *{10 * i} images: loss \d+\.\d{{4}}, \d+\.00% of the test set right", report)
    assert len(reports) == 6
    assert re.fullmatch(r"epoch 1: \d+\.\d\d s", time)


PICTURES = [name for name in build.DRAWN if f"{name}.py" not in OPTIMIZED]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_current_and_small(name):
    assert build.is_current(name, build.source_of(name))
    path = build.PICTURES / f"{name}.svg"
    assert path.stat().st_size < LARGEST
    assert any(f"pictures/{name}.svg)" in page.read_text(encoding="utf-8") for page in build.pages())
    ElementTree.parse(path)


def drawn(name):
    if build.DRAWN[name] == "matplotlib":
        pytest.importorskip("matplotlib")
    elif shutil.which("dot") is None:
        pytest.skip("needs Graphviz's program dot")
    return build.draw(name, build.source_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_drawn(name):
    picture = drawn(name)
    assert build.stamp(build.source_of(name)) in picture
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert not re.search(r"graphviz version|Matplotlib v|\d{4}-\d\d-\d\d", picture)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "neuron" else pytest.mark.nightly) for n in build.DRAWN]
)
def test_the_same_drawing_is_the_same_file(name):
    assert drawn(name) == drawn(name)
