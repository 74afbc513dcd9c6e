"""Rows of the op table -> the functions that generated code defines for them, in C and in Python.

Example: C code with the rows of relu and exp contains, besides the helpers that they call,

    INLINED real op_relu(real x) { ... }
    INLINED real ieee_exp(real x) { ... }
    NOT_INLINED real op_exp(real a) { return ieee_exp(a); }

A loop over lanes evaluates ieee_exp(), a copy in each loop, which a compiler turns into vectors. Many numbers go to
each_exp(), which staged_definitions() defines for each SIMD level. Everything else calls op_exp(). A short function is
always copied. Generated Python contains the source of micrograd.ieee's exp() itself.
"""

import ast
import builtins
import re
from collections.abc import Iterable
from functools import cache

from micrograd import ops, stages
from micrograd.translate import PRIMITIVES, Library, Literal, Untranslatable, library, named_source, source_of

SHORT = 8  # operations of a function that is always inlined
NEAR_FORMS = {"sin": "near_sin", "cos": "near_cos"}  # of micrograd.ieee, for arguments up to near_limit()


def c_definitions(rows: Iterable[ops.Row], literal: Literal, is_float32: bool = False) -> list[str]:
    """The lines of C that define the functions of ops. `literal` writes a number as a constant of type real."""
    wanted = _with_used(rows)
    known = _library(wanted, is_float32)
    names = _c_names(known, wanted)
    lines: list[str] = []
    near = [NEAR_FORMS[row.name] for row in wanted if row.name in NEAR_FORMS]
    for name in known.needed([*(_key(row) for row in wanted if _is_translated(row)), *near]):
        if name not in PRIMITIVES:
            lines += known.translated(name, literal, names)
    for row in wanted:
        if row.c_definition:
            lines += [*row.c_definition.splitlines(), ""]
        elif _is_translated(row) and names.get(_key(row)) != f"op_{row.name}":
            operands = ["a", "b"][: row.arity]
            head = f"NOT_INLINED real op_{row.name}({', '.join(f'real {x}' for x in operands)})"
            lines += [f"{head} {{ return {lane_template(row, is_float32).format(*operands)}; }}", ""]
    return lines


def c_names(rows: Iterable[ops.Row]) -> list[str]:
    """The names of the functions, and of their types, that c_definitions() defines."""
    wanted = _with_used(rows)
    known = _library(wanted, is_float32=False)
    names = _c_names(known, wanted)
    needed = known.needed([_key(row) for row in wanted if _is_translated(row)])
    found = [names.get(name, f"ieee_{name.lstrip('_')}") for name in needed if name not in PRIMITIVES]
    return list(dict.fromkeys([*found, *(f"op_{row.name}" for row in wanted if not row.is_infix)]))


@cache
def lane_template(row: ops.Row, is_float32: bool = False) -> str:
    """How a loop over lanes writes an op in C: as a function that is inlined."""
    if not _is_translated(row):
        return row.c
    key = _key(row)
    name = _c_names(_library([row], is_float32), [row]).get(key, f"ieee_{key}")
    return f"{name}({', '.join(['{}'] * row.arity)})"


def near_template(row: ops.Row, is_float32: bool = False) -> str:
    """How a loop over lanes writes an op whose argument is near 0."""
    return f"ieee_{NEAR_FORMS[row.name]}({{}})" if row.name in NEAR_FORMS else lane_template(row, is_float32)


def near_limit(is_float32: bool = False) -> float:
    """What is near 0: up to this size."""
    return library(is_float32=is_float32).constants["NEAR"]


@cache
def chain_of(row: ops.Row, is_float32: bool = False) -> int:
    """How many additions take as long as the chain of an op that C can compute in stages; 0 for other ops."""
    if not _is_translated(row) or row.arity != 1 or row.name in NEAR_FORMS or not is_long(row):
        return 0
    _, lines, result = _library([row], is_float32).whole(_key(row), repr)
    return stages.chain_of(lines, result)


def staged_definitions(rows: Iterable[ops.Row], literal: Literal, is_float32: bool = False) -> list[str]:
    """The lines of C that define each_NAME() for ops that have stages."""
    lines: list[str] = []
    for row in rows:
        lines += stages.staged(row.name, *_library([row], is_float32).whole(_key(row), literal))
    return lines


def python_definitions(rows: Iterable[ops.Row]) -> list[str]:
    """The lines of Python that define the functions of ops, and the constants that they use besides INF and NAN.

    Raises ValueError for a registered op whose function has no source, or uses more than math and micrograd.ieee.
    """
    wanted = [row for row in rows if row.python.endswith(")")]
    known = library("\n\n".join(_python_source(row) for row in wanted if row.is_registered))
    names = known.needed(map(_key, wanted))
    used = known.used_constants(names)
    constants = [f"{name} = {number!r}" for name, number in used.items() if name not in ("INF", "NAN")]
    return [*constants, *(line for name in names for line in ("", "", *known.sources[name].splitlines()))]


def _key(row: ops.Row) -> str:
    """The name of a row's function in the library."""
    return f"op_{row.name}" if row.is_registered else row.function.__name__


@cache
def is_long(row: ops.Row) -> bool:
    """Whether an op's function takes many operations. One that C defines itself counts as such: nobody knows."""
    if row.c_definition is not None:
        return True
    return _is_translated(row) and _library([row], is_float32=False).size(_key(row)) > SHORT


def _is_translated(row: ops.Row) -> bool:
    return row.c.endswith(")") and row.c_definition is None


def _library(rows: Iterable[ops.Row], is_float32: bool) -> Library:
    own = [source_of(row.function, _key(row)) for row in rows if row.is_registered and row.c_definition is None]
    return library("\n\n".join(own), is_float32)


def _c_names(known: Library, rows: Iterable[ops.Row]) -> dict[str, str]:
    """The C names of functions that are not called ieee_NAME: short ones and registered ones."""
    names = {f"op_{row.name}": f"inlined_{row.name}" for row in rows if row.is_registered}
    for row in [*(row for row in ops.ROWS if not row.is_registered), *rows]:
        if _is_translated(row) and known.size(_key(row)) <= SHORT:
            names[_key(row)] = f"op_{row.name}"
    return names


def _with_used(rows: Iterable[ops.Row]) -> list[ops.Row]:
    """The rows and those that the C of registered ones calls, in the order of the table."""
    found = {row.number: row for row in rows}
    for row in [*found.values()]:
        for name in re.findall(r"\bop_(\w+)", row.c_definition or ""):
            if name in ops.BY_NAME:
                found[ops.BY_NAME[name].number] = ops.BY_NAME[name]
    return [row for _, row in sorted(found.items())]


def _python_source(row: ops.Row) -> str:
    """The source of a registered op, under its name."""
    try:
        if row.python_definition is not None:
            return named_source(row.python_definition, _key(row))
        text = source_of(row.function, _key(row))
        if unknown := sorted(_outside(ast.parse(text))):
            known = "may only use math and the functions of micrograd.ieee"
            raise Untranslatable(f"it uses {', '.join(unknown)}, but {known}")
    except Untranslatable as error:
        advice = f"pass register() python='def op_{row.name}(x): ...'"
        raise ValueError(f"the op {row.name!r} cannot be written as Python, {error}: {advice}") from None
    return text


def _outside(function: ast.AST) -> set[str]:
    """The names that a function takes from its module, without what generated Python has."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name | ast.arg)]
    own = {node.arg if isinstance(node, ast.arg) else node.id for node in names if not _is_read(node)}
    read = {node.id for node in names if isinstance(node, ast.Name)}
    return read - own - {"math", *vars(builtins), *library().functions, *library().constants}


def _is_read(node: ast.Name | ast.arg) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
