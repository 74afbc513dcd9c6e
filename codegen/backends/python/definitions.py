"""Registered ops -> the source of their functions, for generated Python modules.

Example: the op "cube", registered with

    def cubed(x: float) -> float:
        return x * x * x

becomes, whether that text was given or is found in the file of the function:

    def op_cube(x: float) -> float:
        return x * x * x
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Iterable

from micrograd import ieee, ops

KNOWN = {"math", "INF", "NAN", *vars(builtins), *(name for name in vars(ieee) if inspect.isfunction(vars(ieee)[name]))}


def definitions(rows: Iterable[ops.Row]) -> list[str]:
    """The lines that define the functions of registered ops. Raises ValueError for a missing source."""
    return [line for row in rows for line in ("", "", *_source(row).splitlines())]


def _source(row: ops.Row) -> str:
    text = row.python_definition
    if text is None:
        text = _found_source(row)
    try:
        (function,) = ast.parse(textwrap.dedent(text)).body
    except (SyntaxError, ValueError):
        raise _error(row, "its source is not one def") from None
    if not isinstance(function, ast.FunctionDef):
        raise _error(row, "its source is not a def")
    function.name = f"op_{row.name}"
    function.decorator_list = []
    return ast.unparse(function)


def _found_source(row: ops.Row) -> str:
    function = row.function
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars:
        raise _error(row, "it is not a plain function")
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        raise _error(row, "its source cannot be found") from None
    unknown = sorted(inspect.getclosurevars(function).globals.keys() - KNOWN)
    if unknown:
        raise _error(row, f"it uses {', '.join(unknown)}, but may only use math and the functions of micrograd.ieee")
    return text


def _error(row: ops.Row, reason: str) -> ValueError:
    return ValueError(
        f"the op {row.name!r} cannot be written as Python, {reason}: pass register() python='def op_{row.name}(x): ...'"
    )
