"""The house: a file imports only what stands before it, and there are no circles.

Imports inside functions count like any others. Those under `if TYPE_CHECKING` do not: nothing runs them.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("micrograd", "codegen")
    for path in sorted((ROOT / folder).rglob("*.py"))
}

# From the ground up. A module belongs to the longest prefix that fits, and imports from its own floor or lower ones.
FLOORS = [
    ["micrograd"],
    ["micrograd.data"],
    ["codegen.checks", "codegen.kinds", "codegen.program"],
    ["codegen.ir"],
    ["codegen.passes"],
    ["codegen.reroll"],
    ["codegen.schedule"],
    ["codegen.backends"],
    ["codegen"],  # pipeline, build and what else stands beside the folders
    ["codegen.pages", "codegen.wheels"],
    ["codegen.backends.pictures"],  # of every stage
    ["micrograd.commands", "micrograd.__main__", "micrograd.plugin"],
    ["codegen.reference"],  # which wheels do not have
]
FLOOR = {prefix: i for i, prefixes in enumerate(FLOORS) for prefix in prefixes}


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(text: str, name: str = "", is_package: bool = False) -> set[str]:
    """The modules of this project that a file's text imports."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")
            start = parts[: len(parts) - node.level + is_package] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            inner = {f"{module}.{alias.name}" for alias in node.names}
            found |= {x if x in FILES else module for x in inner}
        elif is_for_types(node):
            waiting += node.orelse  # type: ignore[attr-defined]
        else:
            waiting += ast.iter_child_nodes(node)
    return {module for module in found if module in FILES}


@cache
def all_imports() -> dict[str, set[str]]:
    """Of each module of this project."""
    return {
        name: imports(path.read_text(encoding="utf-8"), name, path.name == "__init__.py") - {name}
        for name, path in FILES.items()
    }


def floor(module: str) -> int:
    while module not in FLOOR:
        module = module.rpartition(".")[0]
    return FLOOR[module]


def test_imports_are_found():
    text = "import micrograd.nn\nif TYPE_CHECKING:\n    from micrograd import data\n"
    text += "def f():\n    from codegen import ir, load"
    assert imports(text) == {"micrograd.nn", "codegen.ir", "codegen"}
    assert imports("from . import ops\nfrom .engine import Value", "micrograd.nn") == {
        "micrograd.ops",
        "micrograd.engine",
    }
    assert "micrograd.ops" in all_imports()["micrograd.engine"]
    assert "codegen.ir.graph" in all_imports()["codegen.passes.trace"]


def test_there_is_no_circle():
    try:
        list(TopologicalSorter(all_imports()).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_nothing_imports_upwards():
    upwards = {(a, b) for a, imported in all_imports().items() for b in imported if floor(b) > floor(a)}
    assert upwards == set()


def test_micrograd_knows_nothing_of_codegen():
    above = ("micrograd.commands", "micrograd.__main__", "micrograd.plugin")
    users = {name for name in FILES if name.startswith("micrograd") and not name.startswith(above)}
    assert {(a, b) for a in users for b in all_imports()[a] if b.startswith("codegen")} == set()


def test_the_text_that_a_user_writes_models_with_needs_the_standard_library_alone():
    names = (
        "foreign",
        "rows",
        "names",
        "statements",
        "dot",
        "draw",
        "engine",
        "initial",
        "module",
        "layers",
        "nn",
        "functional",
        "optim",
    )
    for name in (*names, "ieee", "ops", "order"):
        assert all(module.startswith("micrograd.") for module in all_imports()[f"micrograd.{name}"])
        text = FILES[f"micrograd.{name}"].read_text(encoding="utf-8")
        assert "numpy" not in text


@pytest.mark.parametrize("other", ["descent.py", "optimizer.py"])
def test_the_parts_of_a_python_module_define_nothing_twice(other):
    """They become one file, where a second definition would silently replace the first. A module has one of the two."""
    owners: dict[str, str] = {}
    for path in sorted((ROOT / "codegen" / "backends" / "python" / "runtime").glob("*.py*")):
        if path.name == other:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
            for name in [getattr(target, "name", getattr(target, "id", None)) for target in targets]:
                if name is not None:
                    assert owners.setdefault(name, path.name) == path.name, name
