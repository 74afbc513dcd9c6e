"""The DOT language of Graphviz: statements, text, and pictures made from it.

Example: `text([node("a", "x | y"), edge("a", "b")])` is

    digraph {
        "a" [label="x \\| y"]
        "a" -> "b"
    }

Statements are plain strings: only `digraph` and `render` need a package or a program.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from micrograd.errors import UserError

if TYPE_CHECKING:
    import graphviz

MAX_NAME = 60  # characters of a name
INDENT = "    "
FORMATS = ("svg", "png", "pdf")

NO_PACKAGE = "drawing needs the package graphviz: pip install 'micrograd-nn[draw]'"
NO_PROGRAM = (
    "pictures are drawn by Graphviz's program dot, which is not on the PATH: install it with apt, dnf, brew, choco or "
    "conda (the package is called graphviz), or from https://graphviz.org/download/"
)


class DrawError(UserError):
    """A picture cannot be drawn; the message says why."""


def escaped(name: object, max_length: int | None = MAX_NAME) -> str:
    """A text as part of a label, even of a record. Control characters become spaces, long texts are cut."""
    text = str(name).replace("\r\n", "\n")
    if max_length is not None and len(text) > max_length:
        text = text[: max_length - 1] + "…"
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    for special in "\\{}|<>":
        text = text.replace(special, "\\" + special)
    return text.replace("&", "&amp;").replace("\n", "\\n")


def record(fields: Sequence[str], rankdir: str, stacked: bool = False) -> str:
    """The label of a box of several fields, which are escaped already: side by side, or stacked.

    Graphviz rotates records with the direction of the picture.
    """
    # No spaces around fields: before one that does not begin in ASCII, some versions of dot drop all its other spaces.
    label = "|".join(fields)
    return f"{{{label}}}" if stacked == (rankdir == "TB") else label


def node(name: str, label: str, **attributes: object) -> str:
    """A node. The label is escaped already: `|` in a record divides fields."""
    return f"{_quoted(name)} {_attributes({'label': label, **attributes})}"


def edge(tail: str, head: str, **attributes: object) -> str:
    return f"{_quoted(tail)} -> {_quoted(head)}{f' {_attributes(attributes)}' if attributes else ''}"


def defaults(rankdir: str, **graph: object) -> list[str]:
    """What every picture starts with. Raises ValueError for an unknown direction."""
    if rankdir not in ("LR", "TB"):
        raise ValueError(f"rankdir must be 'LR' (left to right) or 'TB' (top to bottom), got {rankdir!r}")
    font = {"fontname": "Helvetica", "fontsize": 11}
    return [
        f"graph {_attributes({'rankdir': rankdir, **font, **graph})}",
        f"node {_attributes({**font, 'shape': 'record', 'height': 0.3, 'style': 'filled', 'fillcolor': 'white'})}",
        f"edge {_attributes({**font, 'fontsize': 10, 'arrowsize': 0.7})}",
    ]


def cluster(name: str, label: str, statements: Iterable[str]) -> list[str]:
    """Statements in a frame with a title."""
    head = f'label={_quoted(label)} labeljust="l" color="gray70" fontsize="13"'
    return [f"subgraph {_quoted(f'cluster_{name}')} {{", *(INDENT + line for line in (head, *statements)), "}"]


def row(number: int, statements: Iterable[str]) -> list[str]:
    """Statements that stand together, apart from other rows."""
    return [
        f"subgraph {_quoted(f'cluster_row{number}')} {{",
        *(INDENT + line for line in ('style="invis"', *statements)),
        "}",
    ]


def text(statements: Sequence[str]) -> str:
    """A whole DOT file."""
    return "".join(["digraph {\n", *_body(statements), "}\n"])


def digraph(statements: Sequence[str], format: str = "svg") -> graphviz.Digraph:
    """The same as an object that notebooks show and that renders itself: its `source` is `text(statements)`.

    Raises ModuleNotFoundError without the package graphviz; warns where the program dot is missing.
    """
    try:
        from graphviz import Digraph
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NO_PACKAGE, name="graphviz") from error
    if shutil.which("dot") is None:
        warnings.warn(NO_PROGRAM, stacklevel=3)
    return Digraph(format=format, body=_body(statements))


def render(statements: Sequence[str], format: str) -> bytes:
    """The picture as the content of a file. Raises DrawError where dot is missing or fails."""
    if shutil.which("dot") is None:
        raise DrawError(NO_PROGRAM)
    picture = digraph(statements, format)
    from graphviz import CalledProcessError

    try:
        content: bytes = picture.pipe()
        return content
    except CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip() if error.stderr else f"exit code {error.returncode}"
        raise DrawError(f"dot failed: {' '.join(reason.split())}") from error


def _body(statements: Sequence[str]) -> list[str]:
    return [f"{INDENT}{statement}\n" for statement in statements]


def _attributes(attributes: dict[str, object]) -> str:
    return "[" + " ".join(f"{name}={_quoted(str(value))}" for name, value in attributes.items()) + "]"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"').encode("utf-8", "replace").decode("utf-8") + '"'
