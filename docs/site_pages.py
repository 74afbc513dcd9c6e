"""What the site needs beyond Sphinx, as an extension of it.

- The front page is README.md, with the contents of the site beside it.
- A link to a file of the checkout leads to a page that shows the file; one to a module leads to the module's API.
- A name in backticks, such as `codegen.compile()` or `codegen/pipeline.py`, leads to the API too.
- Docstrings are plain text: paragraphs, columns, indented code. They become reStructuredText.
- External links are listed in external_links.txt; one that is not a whole https address is a warning.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

ROOT = Path(__file__).resolve().parent.parent
LOGGER = logging.getLogger(__name__)

# The order of the pages. Those that are not named here follow under "Inside", benchmarks under "Figures".
CONTENTS = {
    "Use": [
        "examples",
        "microgpt",
        "trained_elsewhere",
        "coming_from",
        "own_model",
        "layers",
        "numpy",
        "onnx",
        "ops",
        "training",
        "recipes",
        "mpi",
        "wheel",
        "plain_c",
        "pages",
        "commands",
    ],
    "Inside": ["architecture", "tensors", "one_node", "functions", "essay"],
}

PACKAGES = ("codegen", "micrograd")
# Modules that are called like the function that their package has from them, and documents.
NAMESAKES = {"codegen.build", "micrograd.ieee.power"}

# API


def write_api_pages(app: Sphinx) -> None:
    """Writes docs/api/*.rst, which Sphinx reads next."""
    folder = ROOT / "docs" / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for package in PACKAGES:
        pages = api_pages(package)
        for name, modules in pages.items():
            first, *others = (f".. automodule:: {module}\n" for module in modules)
            parts = [heading(name, "="), first]
            if name == package:
                parts.append("\n".join([".. toctree::", "", *(f"   {page}" for page in pages if page != package)]))
            for module, directive in zip(modules[1:], others, strict=True):
                parts += [heading(module, "-"), directive]
            (folder / f"{name}.rst").write_text("\n".join(parts), encoding="utf-8")


def api_pages(package: str) -> dict[str, list[str]]:
    """The pages of a package, and their modules: a page for each module of its own, and one for each folder."""
    pages: dict[str, list[str]] = {}
    for file in sorted((ROOT / package).rglob("*.py")):
        module = module_of(file.relative_to(ROOT))
        is_own = file.parent.name == package
        # Files of the runtime are text for generated modules, and cannot be imported.
        is_text = file.parent.name == "runtime" and file.name != "__init__.py"
        if file.name == "__main__.py" or module in NAMESAKES or is_text:
            continue
        pages.setdefault(module if is_own else module_of(file.parent.relative_to(ROOT)), []).append(module)
    return pages


def heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


# Docstrings

COLUMNS = re.compile(r"\S+( \S+)* {3,}\S")
ROW = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*) {2,}(?=[^\s=|])")  # two columns, the first one of names
FIELD = re.compile(r"([a-z_*][\w*]*(?:, [a-z_*][\w*]*)*): ")
ITEM = re.compile(r"(- |\d+\. )")
CODE = re.compile(r"`+([^`]+)`+")
ADDRESS = re.compile(r"https://[\w-]+(\.[\w-]+)+(/[\w./~%?=&#+-]*)?")
REMOTE = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>")
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".md": "markdown", ".toml": "toml", ".yml": "yaml"}
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def restructured(text: str) -> str:
    """A docstring as reStructuredText."""
    blocks = re.split(r"\n(?:[ ]*\n)+(?=\S)", text.strip("\n"))
    return "\n\n".join(part for block in blocks if block for part in parts(block)) + "\n"


def parts(block: str) -> Iterator[str]:
    """A block that begins in the first column, with the indented ones below it: text, then what is shown as it is."""
    lines = block.split("\n")
    blank = next((i for i, line in enumerate(lines) if not line.strip()), len(lines))
    columns = next((i for i, line in enumerate(lines[:blank]) if COLUMNS.match(line)), blank)
    if columns:
        yield text_of(lines[:columns])
    if columns < blank:
        table = lines[columns:blank]
        is_simple = all(line.startswith(" ") or ROW.match(line) for line in table)
        yield text_of([ROW.sub(r"\1: ", line) for line in table]) if is_simple else literal(table)
    if any(line.strip() for line in lines[blank:]):
        yield literal(lines[blank:])


def literal(lines: list[str]) -> str:
    """Lines shown as they are, highlighted where they are Python."""
    text = dedent("\n".join(lines)).strip("\n")
    try:
        ast.parse(text)
        language = "python"
    except SyntaxError:
        language = "text"
    return f".. code-block:: {language}\n\n" + "\n".join(f"   {line}".rstrip() for line in text.split("\n"))


def text_of(lines: list[str]) -> str:
    """A paragraph, a list, or the lines `name: what it means` as a list."""
    if FIELD.match(lines[0]):
        items: list[str] = []
        for line in lines:
            if found := FIELD.match(line):
                items.append(f"- ``{found[1]}``: {inline(line[found.end() :])}")
            elif line.startswith(" "):
                items.append(f"  {inline(line.strip())}")
            else:
                items.append(f"\n{inline(line)}")
        return "\n".join(items)
    if ITEM.match(lines[0]):
        return "\n".join(inline(line) for line in lines)
    return "\n".join(inline(line.strip()) for line in lines)


def inline(line: str) -> str:
    """A line with its `code` as reStructuredText has it, and nothing else that would mean something there."""
    out, end = "", 0
    for found in CODE.finditer(line):
        code = found[1]
        after = line[found.end() : found.end() + 1]
        out += escape(line[end : found.start()])
        out += f":py:obj:`{code}`" if NAME.fullmatch(code) else f"``{code}``"
        out += "\\ " if after.isalnum() else ""
        end = found.end()
    return out + escape(line[end:])


def escape(text: str) -> str:
    """FILE:LINE would be an address."""
    return re.sub(r"([\\*|`_]|(?<=\w):(?=\w))", r"\\\1", text)


def docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = restructured("\n".join(lines)).split("\n")


def signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Defaults such as <factory>, which are no Python, as an ellipsis; nothing for a Protocol."""
    if arguments == "(*args, **kwargs)" and what == "class":
        return "", returned
    return arguments and re.sub(r"<[^<>]*(<\w+>)?[^<>]*>", "...", arguments), returned


def without_object(app: Sphinx, domain: str, kind: str, content: addnodes.desc_content) -> None:
    """Only other bases than object are worth a line."""
    if content.children and content[0].astext() == "Bases: object":
        content.pop(0)


# Links


def module_of(file: Path) -> str:
    """codegen/ir/loops.py -> codegen.ir.loops"""
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def name_link(name: str, page: str) -> addnodes.pending_xref:
    return addnodes.pending_xref("", refdomain="py", reftype="obj", reftarget=name, refdoc=page, refwarn=True)


class FileLinks(SphinxTransform):
    """Links to files of the checkout, of which MyST makes downloads, and to folders. Notebooks stay downloads."""

    default_priority = 1

    def apply(self, **kwargs: Any) -> None:
        page = self.env.doc2path(self.env.docname).parent
        for node in list(self.document.findall(lambda node: isinstance(node, FILE_NODES))):
            file = page / node.get("reftarget", "")
            is_file = isinstance(node, addnodes.download_reference) and file.suffix != ".ipynb"
            if is_file or (node.get("reftype") == "myst" and file.is_dir()):
                link = file_link(self.app, self.env, file.resolve().relative_to(ROOT))
                link += nodes.inline("", "", *node[0].children)
                node.replace_self(link)


FILE_NODES = (addnodes.download_reference, addnodes.pending_xref)


def file_link(app: Sphinx, env: BuildEnvironment, file: Path) -> nodes.Element:
    if file.parts[0] in PACKAGES and file.suffix == ".py":
        return name_link(module_of(file), env.docname)
    shown(env).add(file.as_posix())
    return nodes.reference(
        "", "", refuri=app.builder.get_relative_uri(env.docname, f"files/{file.as_posix()}"), internal=True
    )


def shown(env: BuildEnvironment) -> set[str]:
    """The files and folders that have a page because another page links to them."""
    return cast("set[str]", vars(env).setdefault("files_shown", set()))


def file_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file or folder that is linked to: its text, highlighted, or those of its files."""
    highlighter = cast(StandaloneHTMLBuilder, app.builder).highlighter
    for name in sorted(shown(app.env)):
        path = ROOT / name
        inside = sorted(file for file in path.rglob("*") if file.suffix in LANGUAGES)
        body = f"<h1>{name}</h1>"
        for file in inside if path.is_dir() else [path]:
            if path.is_dir():
                body += f"<h2>{file.relative_to(path).as_posix()}</h2>"
            body += highlighter.highlight_block(file.read_text("utf-8"), LANGUAGES.get(file.suffix, "text"))
        yield f"files/{name}", {"title": name, "body": body}, "page.html"


def is_linked(node: nodes.Node) -> bool:
    return node is not None and (
        isinstance(node, nodes.reference | addnodes.pending_xref | nodes.title) or is_linked(node.parent)
    )


class NameLinks(SphinxPostTransform):
    """Names of modules, classes and functions in backticks."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(nodes.literal)):
            text = node.astext()
            name = module_of(Path(text)) if text.endswith(".py") and "/" in text else text.partition("(")[0]
            if "." in name and name in self.env.domains.python_domain.objects and not is_linked(node):
                link = name_link(name, self.env.docname)
                node.replace_self(link)
                link += node


def external_links(app: Sphinx, env: BuildEnvironment) -> None:
    """Lists the addresses of other sites, and warns about malformed ones."""
    lines = []
    for page in sorted(env.found_docs):
        for node in env.get_doctree(page).findall(nodes.reference):
            if "refuri" in node and not node.get("internal"):
                lines.append(f"{node['refuri']} {page}\n")
                if not ADDRESS.fullmatch(node["refuri"]):
                    LOGGER.warning("not an https address: %s", node["refuri"], location=node)
    (app.outdir.parent / "external_links.txt").write_text("".join(sorted(set(lines))), encoding="utf-8")


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == app.config.root_doc:
        for caption, pages in contents(app.env.found_docs - {docname}).items():
            source[0] += "\n".join(["", "", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])


def contents(pages: set[str]) -> dict[str, list[str]]:
    """All pages but those of modules, under captions."""
    groups = {caption: [f"docs/{name}" for name in names] for caption, names in CONTENTS.items()}
    named = {page for names in groups.values() for page in names}
    by_folder: dict[str, list[str]] = {}
    for page in sorted(pages - named - {"docs/api", "docs/nn"}):
        by_folder.setdefault(page.rpartition("/")[0], []).append(page)
    groups["Inside"] += by_folder.get("docs", [])
    return groups | {"Reference": ["docs/api"], "Figures": by_folder["benchmarks"], "Project": by_folder[""]}


def finish(app: Sphinx, error: Exception | None) -> None:
    """Makes README the front page, and refuses a page that would load something from the network."""
    if not error:
        for page in app.outdir.rglob("*.html"):
            if found := REMOTE.search(page.read_text(encoding="utf-8")):
                raise ExtensionError(f"{page} loads from the network: {found[0]}")
        shutil.copy(app.outdir / f"{app.config.root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_api_pages)
    app.connect("source-read", add_contents)
    app.connect("env-check-consistency", external_links)
    app.connect("html-collect-pages", file_pages)
    app.connect("autodoc-process-docstring", docstring)
    app.connect("autodoc-process-signature", signature)
    app.connect("object-description-transform", without_object)
    app.connect("build-finished", finish)
    app.add_transform(FileLinks)
    app.add_post_transform(NameLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
