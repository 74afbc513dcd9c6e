"""Documentation that shows something other than what the compiler prints."""

import importlib.util
import random
import re
from array import array
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from models import xor

from codegen import compile_program, load
from codegen.backends.python.module import STRAIGHT_LINE_NODES
from codegen.backends.text import formulas
from codegen.ir.graph import graph_text
from codegen.passes.trace import trace
from codegen.reference.print_loops import body_lines
from micrograd import ieee

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")

spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)


def fenced(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def example():
    return load(ROOT / "docs" / "four_neurons.py")


@pytest.fixture(scope="module")
def printed(example):
    """Everything that the compiler has to say about the example."""
    compiled = compile_program(example, "four")
    plain, scheduled = compiled.plain, compiled.loops
    groups = "".join(f.assignment + "\n" for kernel in plain.kernels for f in formulas(plain, kernel))
    shape = compiled.found.shapes.text(compiled.found.layout.groups[0].group.shape) + "\n"
    first = [[nest for k in found.kernels if k.number == 0 for nest in k.nests] for found in (plain, scheduled)]
    loops = ["".join(f"{line}\n" for nest in nests for line in body_lines(nest)) for nests in first]
    beside = [nest for kernel in compiled.wide.beside.kernels for nest in kernel.nests]
    loops += ["".join(f"{line}\n" for line in body_lines(nest)) for nest in beside]
    return [graph_text(trace(example)), graph_text(compiled.graph), groups, shape, *loops, compiled.text]


@pytest.mark.parametrize("listing", [*fenced(ARCHITECTURE, "text"), *fenced(ARCHITECTURE, "c")])
def test_listings_of_the_architecture_page(listing, printed):
    assert any(listing in text for text in printed)


def test_the_pages_python_is_the_examples(example):
    source = (ROOT / "docs" / "four_neurons.py").read_text(encoding="utf-8")
    first, *generated = fenced(ARCHITECTURE, "python")
    assert "".join(f"    {line}\n" for line in first.splitlines()) in source
    assert generated


def test_the_pages_generated_python(example):
    with patch("codegen.backends.python.module.STRAIGHT_LINE_NODES", -1):
        loops = compile_program(example, target="python").text
    _, *listings = fenced(ARCHITECTURE, "python")
    for listing in listings:
        assert listing in loops + compile_program(example, target="python").text
    assert f"at most {STRAIGHT_LINE_NODES:,} nodes" in ARCHITECTURE.replace("\n", " ")


def test_numbers_in_the_architecture_text(example):
    compiled = compile_program(example)
    assert f"{len(compiled.graph)} nodes become eight groups" in ARCHITECTURE
    assert len(compiled.plain.kernels) == 8


@pytest.mark.slow
def test_the_python_of_the_essays_page_is_generated(compiled_mnist):
    page = (ROOT / "docs" / "essay.md").read_text(encoding="utf-8")
    texts = [compiled_mnist("python").text, compile_program(xor(), target="python").text]
    listings = fenced(page, "python")
    assert len(listings) == len(texts)
    assert all(listing in text for listing, text in zip(listings, texts, strict=True))
    loops = texts[0].split("def groups_0")[1].split("# Arguments that hold many numbers")[0]
    assert (len(texts[0].splitlines()) + 50) // 100 == 15
    assert "has 1,500 lines, of which the loops are 140" in page
    assert round(len(loops.splitlines()), -1) == 140


def test_the_loop_in_the_readme_is_the_generated_one(compiled_mnist):
    text = compiled_mnist().text
    listings = fenced(README, "c")
    assert listings
    for listing in listings:
        assert listing in text


def test_the_readmes_own_model_runs(tmp_path, unoptimized, monkeypatch):
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    (source,) = [listing for listing in fenced(README, "python") if "import codegen" in listing]
    namespace = {}
    exec(source, namespace)
    tiny = namespace["tiny"]
    assert tiny.outputs(array("d", [1.0, 2.0])) == {"out": (ieee.tanh(0.1 * 1.0 + -0.2 * 2.0),)}
    (usage,) = [listing for listing in fenced(README, "python") if "tiny.train" in listing]
    x = np.random.default_rng(0).random((50, 2))
    namespace |= {"np": np, "X": x, "Y": np.tanh(x @ [0.3, 0.5])}
    before = tiny.evaluate(namespace["X"], namespace["Y"])[0]
    exec(usage, namespace)
    assert tiny.evaluate(namespace["X"], namespace["Y"])[0] < before


@pytest.mark.slow
def test_the_page_about_a_model_of_ones_own_runs(tmp_path, unoptimized, monkeypatch):
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    random.seed(1)
    names: dict[str, object] = {}
    for listing in fenced((ROOT / "docs" / "own_model.md").read_text(encoding="utf-8"), "python"):
        exec(listing, names)
    assert names["losses"][-1] < 0.1 < names["losses"][0]
    assert names["accuracy"] > 0.95
    assert len(list((tmp_path / "models").iterdir())) == 4


@pytest.mark.slow
def test_the_page_about_training_runs(unoptimized):
    names: dict[str, object] = {}
    for listing in fenced((ROOT / "docs" / "training.md").read_text(encoding="utf-8"), "python"):
        exec(listing, names)
    assert len(names["accuracy"]) == 5
    assert max(names["accuracy"]) > 0.8


@pytest.mark.slow
def test_the_page_of_recipes_runs(tmp_path, unoptimized, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    random.seed(1)
    names: dict[str, object] = {}
    for listing in fenced((ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"), "python"):
        exec(listing, names)
    assert 2.5 < names["fakes"].mean() < 3.5
    assert names["frozen"].outputs([1.0, 2.0]) == names["decoder"].outputs([1.0, 2.0])
    assert all(
        np.array_equal(w, names["tuned"].state_dict()[name]) for name, w in names["old"].items() if "body" in name
    )
    assert names["accuracy"] > 0.9


# Whose listings tests compare with what they are taken from, or run, here or in a file of their own.
PAGES_WITH_TESTS = {"README.md", "architecture.md", "essay.md", "examples.md", "functions.md", "numpy.md"}
PAGES_WITH_TESTS |= {
    "microgpt.md",
    "onnx.md",
    "own_model.md",
    "pages.md",
    "recipes.md",
    "trained_elsewhere.md",
    "training.md",
    "wheel.md",
}


@pytest.mark.parametrize(
    "page", [page for page in build.pages() if page.name not in PAGES_WITH_TESTS], ids=lambda page: page.name
)
def test_listings_of_other_pages_run(page, tmp_path, unoptimized, monkeypatch):
    """A new page needs no test of its own: its Python runs from top to bottom."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    names: dict[str, object] = {}
    for listing in fenced(page.read_text(encoding="utf-8"), "python"):
        if not listing.startswith(">>>"):  # doctests run below
            exec(listing, names)


def test_the_readme_counts_the_glyphs():
    from micrograd.data.digits import GLYPHS

    assert f"along {sum(map(len, GLYPHS.values()))} glyphs" in README


def test_the_pipeline_table_names_every_file():
    files = {
        path.name for folder in ("passes", "reroll", "backends") for path in (ROOT / "codegen" / folder).rglob("*.py")
    }
    for name in files - {"__init__.py", "arithmetic.py", "arguments.py", "model.py", "definitions.py"}:
        assert name in ARCHITECTURE, name


PAGES = [pytest.param(page, id=page.name) for page in build.pages()]
LONG = "tensors.md"  # seconds; `make docs` has it too


@pytest.mark.parametrize(
    "page",
    [pytest.param(*page.values, id=page.id, marks=[pytest.mark.slow] * (page.id == LONG)) for page in PAGES],
)
def test_code_and_tables_are_current(page, monkeypatch):
    monkeypatch.setattr(build, "output", lambda command, old, report: old)  # examples/test_examples.py runs them
    report = build.Report()
    assert build.rebuilt(page, report) == page.read_text(encoding="utf-8")
    assert not report.errors


@pytest.mark.parametrize("page", PAGES)
def test_doctests(page):
    assert not build.doctest_failures(page)


@pytest.mark.parametrize("page", PAGES)
def test_links_between_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_stubs_take_their_texts_from_the_modules(checkout, monkeypatch, capsys):
    monkeypatch.setattr(build, "MODULES", ("nn", "nn_infer"))
    expected = {}
    for name in build.MODULES:
        path = checkout / "csrc" / f"{name}-stubs" / "__init__.pyi"
        path.parent.mkdir(parents=True)
        expected[path] = (ROOT / "csrc" / path.parent.name / path.name).read_text(encoding="utf-8")
        path.write_text(expected[path].replace("Describes this module, as a dict", ""), encoding="utf-8")
    assert build.main(["--check"]) == 1
    assert capsys.readouterr().out.count("out of date: csrc/nn") == 2
    assert build.main([]) == 0
    assert {path: path.read_text(encoding="utf-8") for path in expected} == expected


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small project that docs/build.py takes for its own: one page, one script, one picture."""
    for folder in ("docs/pictures", "examples"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Nothing\n")
    script = '''"""Counts."""\n\nimport time\n\nprint(1 + 1)\nprint(f"{time.time():.3f} s, {0.1.hex()}")\n'''
    (tmp_path / "examples" / "count.py").write_text(script)
    (tmp_path / "examples" / "model.py").write_text((ROOT / "docs" / "four_neurons.py").read_text())
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "PICTURES", tmp_path / "docs" / "pictures")
    monkeypatch.setattr(build, "DRAWN", {})
    monkeypatch.setattr(build, "MODULES", ())
    build.printed.cache_clear()
    return tmp_path


def page_of(checkout, text):
    page = checkout / "docs" / "page.md"
    page.write_text(text)
    return page


def test_a_page_is_rebuilt_and_then_current(checkout, capsys):
    page = page_of(
        checkout,
        "Text.\n\n<!-- code examples/count.py -->\nold\n<!-- end -->\n\n"
        "```console\n$ python examples/count.py\n3\n$ make nothing\nas it was\n```\n",
    )
    before = page.read_text()
    assert build.main(["--check"]) == 1
    assert page.read_text() == before
    assert capsys.readouterr().out == "out of date: docs/page.md\n"
    assert build.main([]) == 0
    assert capsys.readouterr().out == "rewritten: docs/page.md\n"
    after = page.read_text()
    assert "```python\nimport time\n\nprint(1 + 1)\n" in after
    assert re.search(r"count.py\n2\n\d+\.\d{3} s, 0x1\.999999999999ap-4\n\$ make nothing\nas it was\n```\n$", after)
    build.printed.cache_clear()
    assert build.main(["--check"]) == 0  # although the time is another one
    assert capsys.readouterr().out == ""


def test_what_a_benchmark_has_measured_stands_on_a_page_as_it_is(checkout):
    (checkout / "measured.md").write_text("# Heading\n\nA machine.\n\n| µs |\n|---|\n| 2.00 |\n")
    page = page_of(checkout, "<!-- measured measured.md -->\n| 1.00 |\n<!-- end -->\n")
    assert build.main(["--check"]) == 1
    assert build.main([]) == 0
    table = "A machine.\n\n| µs |\n|---|\n| 2.00 |\n"
    assert page.read_text() == f"<!-- measured measured.md -->\n{table}<!-- end -->\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [("2\n", "3\n"), (" s, ", " ms, "), ("999ap-4", "999ap-3"), ("0x1.99", "0x1.98"), ("2\n", ""), ("2\n", "2\n2\n")],
)
def test_every_difference_in_an_output_counts_but_times(checkout, old, new):
    page = page_of(checkout, "```console\n$ python examples/count.py\n```\n")
    build.main([])
    right = page.read_text()
    assert build.main(["--check"]) == 0
    page.write_text(right.replace(old, new, 1))
    assert page.read_text() != right
    assert build.main(["--check"]) == 1


def test_a_table_of_groups_keeps_the_names_that_its_author_gave(checkout, capsys):
    page = page_of(checkout, "<!-- groups examples/model.py -->\n<!-- end -->\n")
    assert build.main([]) == 1
    assert capsys.readouterr().err.count("docs/page.md: give the group ") == 8
    names = iter("abcdefgh")
    named = re.sub(
        r"(` for .*|`) \|  \|$", lambda row: f"{row[1]} | name {next(names)} |", page.read_text(), flags=re.M
    )
    page.write_text(named.replace("i < 4, k < 3", "i < 5, k < 3"))
    assert build.main([]) == 0
    assert page.read_text() == named
    assert "` for i < 4, k < 3 | name a |" in named
    assert named.count("name ") == 8


def test_a_failing_doctest_is_an_error(checkout, capsys):
    page = page_of(checkout, "```python\n>>> x = 1\n>>> x + 1\n2\n```\n\nand\n\n```\n>>> x\n1\n```\n")
    assert build.main(["--check"]) == 0
    page.write_text(page.read_text().replace("\n2\n", "\n3\n"))
    assert build.main([]) == 1
    assert "docs/page.md" in capsys.readouterr().err


def test_an_example_that_fails_is_an_error(checkout, capsys):
    page_of(checkout, "```console\n$ python examples/missing.py\n```\n")
    assert build.main([]) == 1
    assert "python examples/missing.py failed" in capsys.readouterr().err


def test_a_picture_is_stale_when_what_it_is_drawn_from_changes(checkout, capsys, monkeypatch):
    monkeypatch.setattr(build, "DRAWN", {"count": "dot"})
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    script = checkout / "examples" / "count.py"
    script.write_text('import sys\nopen(sys.argv[1], "w").write("digraph { a }")\n')
    picture = build.PICTURES / "count.svg"
    picture.write_text("<svg/>\n" + build.stamp("digraph { a }"))
    assert build.main(["--check"]) == 0
    script.write_text(script.read_text().replace("a }", "b }"))
    assert build.main(["--check"]) == 1
    assert capsys.readouterr().out == "out of date: docs/pictures/count.svg\n"
    assert build.main([]) == 0
    assert capsys.readouterr().out == (
        "left out: docs/pictures/count.svg, which is out of date: drawing it needs Graphviz\n"
    )


def test_the_output_of_mnist_is_left_out_where_there_is_none(checkout, capsys, monkeypatch):
    page_of(checkout, "```console\n$ python examples/mnist.py\nas it was\n```\n")
    monkeypatch.delenv("MICROGRAD_MNIST", raising=False)
    assert build.main(["--check"]) == 0
    assert capsys.readouterr().out.startswith("left out: the output of examples/mnist.py")
