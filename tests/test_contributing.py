"""Pages for contributors that name files, commands and tables which do not exist."""

import re
from pathlib import Path

import pytest

import micrograd

ROOT = Path(__file__).resolve().parent.parent
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")}
PLACES = re.findall(r"^(?:\| |\* in )`([\w/.]+)`(.*(?:\n  .*)*)", PAGES["CONTRIBUTING.md"], flags=re.MULTILINE)


def test_the_changelog_has_a_section_for_this_version():
    assert re.search(rf"^## {re.escape(micrograd.__version__)} - ", PAGES["CHANGELOG.md"], flags=re.MULTILINE)


def test_commands_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"`make ([\w-]+)", PAGES["CONTRIBUTING.md"]))
    assert {"lint", "test", "test-slow"} <= named <= targets


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_files_exist(page):
    names = re.findall(r"(?:`|\]\()([\w./]+/[\w./]*|\w+\.md)(?:`|\))", PAGES[page])
    assert names
    written = "build/"  # by make
    assert [name for name in names if not (name.startswith(written) or (ROOT / name).exists())] == []


@pytest.mark.parametrize(("path", "text"), PLACES, ids=[path for path, _ in PLACES])
def test_places_where_an_op_is_added_exist(path, text):
    """Names in a row about a file stand in that file. `atan` is the page's example."""
    content = (ROOT / path).read_text(encoding="utf-8")
    names = [name for name in re.findall(r"`(\w+)`", text) if "atan" not in name]
    assert [name for name in names if not re.search(rf"\b{name}\b", content)] == []


def test_every_place_is_found():
    assert {"micrograd/engine.py", "micrograd/ops.py", "micrograd/ieee/__init__.py", "tests/test_ops.py"} <= {
        path for path, _ in PLACES
    }
