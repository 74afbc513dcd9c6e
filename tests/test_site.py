"""The site's own code: docs/site_pages.py. `make site` itself fails on a broken link."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sphinx", reason="needs the extra `site`")

ROOT = Path(__file__).resolve().parent.parent
site_pages = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "site_pages.py")))


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("A sum, `a + b`.", "A sum, ``a + b``."),
        ("`Value`s of `codegen.Program`.", r":py:obj:`Value`\ s of :py:obj:`codegen.Program`."),
        ("*args, state_, a|b and FILE:LINE", r"\*args, state\_, a\|b and FILE\:LINE"),
        ("Use:\n\n    x = f(1)\n\n    y = x", "Use:\n\n.. code-block:: python\n\n   x = f(1)\n\n   y = x"),
        ("Becomes:\n\n    %1 = add %0\n\nAt last.", "Becomes:\n\n.. code-block:: text\n\n   %1 = add %0\n\nAt last."),
        ("A list:\nname   what\n       more\nrate   how", "A list:\n\n- ``name``: what\n  more\n- ``rate``: how"),
        ("leaf   = a\n       | c", ".. code-block:: text\n\n   leaf   = a\n          | c"),
        (
            "x: a row\n    of numbers.\ny, z: others.\nThen text.",
            "- ``x``: a row\n  of numbers.\n- ``y, z``: others.\n\nThen text.",
        ),
        ("- one\n- two_", "- one\n- two\\_"),
        ("", ""),
    ],
)
def test_docstrings_become_restructured_text(docstring: str, expected: str) -> None:
    assert site_pages.restructured(docstring).strip("\n") == expected


def test_every_module_has_a_place_in_the_reference() -> None:
    for package in site_pages.PACKAGES:
        listed = [module for modules in site_pages.api_pages(package).values() for module in modules]
        files = [file for file in (ROOT / package).rglob("*.py") if "runtime" not in file.parts]
        modules = {site_pages.module_of(file.relative_to(ROOT)) for file in files if file.stem != "__main__"}
        runtime = {"codegen.backends.python.runtime"} if package == "codegen" else set()
        assert sorted(listed) == sorted(modules - site_pages.NAMESAKES | runtime)


def test_every_page_is_in_the_contents_once() -> None:
    names = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("*.md")} - {"README"}
    for folder in ("docs", "benchmarks"):
        names |= {path.relative_to(ROOT).with_suffix("").as_posix() for path in (ROOT / folder).glob("*.md")}
    new = names | {"docs/a_new_page"}
    listed = [page for pages in site_pages.contents(new | {"docs/api/nn"}).values() for page in pages]
    assert sorted(listed) == sorted(new | {"docs/api"})


@pytest.mark.parametrize("address", ["http://a.org", "https://", "https://a", "https://a.org/x y", "mailto:a@b.org"])
def test_addresses_that_are_refused(address: str) -> None:
    assert not site_pages.ADDRESS.fullmatch(address)
    assert site_pages.ADDRESS.fullmatch("https://a-b.org/x_y/?q=1#z")


def test_defaults_that_are_no_python() -> None:
    call = site_pages.signature(None, "", "", None, None, "(a=<factory>, b=<function f.<lambda>>, c=1)", None)
    assert call == ("(a=..., b=..., c=1)", None)


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://a.org/x.js">',
        '<link rel="stylesheet" href="//a.org/x.css" />',
        '<img alt="" src="http://a/b">',
    ],
)
def test_what_comes_from_the_network_is_refused(element: str, tmp_path: Path) -> None:
    page = tmp_path / "README.html"
    page.write_text('<a href="https://a.org">a</a><script src="_static/x.js"></script>', encoding="utf-8")
    app = SimpleNamespace(outdir=tmp_path, config=SimpleNamespace(root_doc="README"))
    site_pages.finish(app, None)
    assert (tmp_path / "index.html").exists()
    page.write_text(element, encoding="utf-8")
    with pytest.raises(site_pages.ExtensionError, match="loads from the network"):
        site_pages.finish(app, None)
