"""The files of a project that a model's file is made of: itself, and what it imports from its own folder.

Example: model.py with `import layers` and `from data import iris` is made of model.py, layers.py, data/__init__.py and
data/iris.py, and of what those import in turn. Imports are read, not run, so a name that is computed is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from codegen.loading import KEPT


def files_of(program: str, root: Path) -> list[str]:
    """Paths relative to the root, sorted. A file that is no Python stands for itself: loading it will say so."""
    folder = PurePosixPath(program).parent
    found: set[str] = set()
    waiting = [PurePosixPath(program)]
    while waiting:
        path = waiting.pop()
        if path.as_posix() in found:
            continue
        found.add(path.as_posix())
        waiting += [file for name in _imported(path, folder, root) for file in _beside(name, folder, root)]
    return sorted(found)


def _imported(path: PurePosixPath, folder: PurePosixPath, root: Path) -> Iterator[str]:
    """The dotted names that a file imports, from the folder's point of view."""
    try:
        tree = ast.parse((root / path).read_bytes())
    except (SyntaxError, ValueError):
        return
    package = path.parent.relative_to(folder).parts  # of a helper in a package; () for what lies in the folder itself
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" if module else alias.name for alias in node.names)


def _beside(name: str, folder: PurePosixPath, root: Path) -> Iterator[PurePosixPath]:
    """The files of the folder that importing a dotted name runs: packages on the way, and the module."""
    parts = name.split(".")
    if not parts[0] or parts[0] in KEPT:
        return
    for end in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:end])
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if (root / file).is_file():
                yield file
