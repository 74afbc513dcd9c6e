"""What the documentation shows is what the compiler prints."""

import math
import re
from array import array
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from codegen import compile_program, generate_python, load
from codegen.ir import graph_text
from codegen.python import STRAIGHT_LINE_NODES
from codegen.trace import trace

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def example():
    return load(ROOT / "docs" / "four_neurons.py")


@pytest.fixture(scope="module")
def printed(example):
    """Everything that the compiler has to say about the example."""
    compiled = compile_program(example, "four")
    comments = re.findall(r"/\* (\d+ x .*): %", compiled.text)
    groups = "\n".join(comments) + "\n"
    shape = compiled.shapes.text(compiled.groups[0][0].group.shape) + "\n"
    return [graph_text(trace(example)), graph_text(compiled.graph), groups, shape, compiled.text]


@pytest.mark.parametrize("listing", [*fenced(ARCHITECTURE, "text"), *fenced(ARCHITECTURE, "c")])
def test_listings_of_the_architecture_page(listing, printed):
    assert any(listing in text for text in printed)


def test_the_pages_python_is_the_examples(example):
    source = (ROOT / "docs" / "four_neurons.py").read_text(encoding="utf-8")
    first, *generated = fenced(ARCHITECTURE, "python")
    assert "".join(f"    {line}\n" for line in first.splitlines()) in source
    assert generated


def test_the_pages_generated_python(example):
    with patch("codegen.python.STRAIGHT_LINE_NODES", -1):
        loops = generate_python(example)
    _, *listings = fenced(ARCHITECTURE, "python")
    for listing in listings:
        assert listing in loops + generate_python(example)
    assert f"at most {STRAIGHT_LINE_NODES:,} nodes" in ARCHITECTURE.replace("\n", " ")


def test_numbers_in_the_architecture_text(example):
    compiled = compile_program(example)
    assert f"{len(compiled.graph)} nodes become eight groups" in ARCHITECTURE
    assert len(compiled.groups) == 8


def test_the_loop_in_the_readme_is_the_generated_one():
    from codegen.mnist import program

    text = compile_program(program()).text
    listings = fenced(README, "c")
    assert listings
    for listing in listings:
        assert listing in text


def test_the_readmes_own_model_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (source,) = [listing for listing in fenced(README, "python") if "import codegen" in listing]
    namespace = {}
    exec(source, namespace)
    assert sorted(p.suffix for p in (tmp_path / "build").iterdir())[:2] == [".c", ".ir"]
    tiny = namespace["tiny"]
    assert tiny.outputs(array("d", [1.0, 2.0])) == {"out": (math.tanh(0.1 * 1.0 + -0.2 * 2.0),)}
    (usage,) = [listing for listing in fenced(README, "python") if "tiny.train" in listing]
    x = np.random.default_rng(0).random((50, 2))
    namespace |= {"X": x, "Y": np.tanh(x @ [0.3, 0.5])}
    before = tiny.evaluate(namespace["X"], namespace["Y"])[0]
    exec(usage, namespace)
    assert tiny.evaluate(namespace["X"], namespace["Y"])[0] < before


def test_the_readme_counts_the_glyphs():
    from micrograd.digits import GLYPHS

    assert f"along {sum(map(len, GLYPHS.values()))} glyphs" in README


def test_the_pipeline_table_names_every_file():
    files = {path.name for path in (ROOT / "codegen").glob("*.py")}
    elsewhere = {"__init__.py", "__main__.py", "build.py", "mnist.py", "names.py", "interpret.py", "reference.py"}
    for name in files - elsewhere:
        assert name in ARCHITECTURE, name
