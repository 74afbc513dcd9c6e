"""Functions of numbers, from Python to C: what `ieee` defines, in the form that C compilers turn into vectors.

Example input:

    def relu(x: float) -> float:
        if x < 0.0:
            return 0.0
        return x

becomes:

    INLINED real ieee_relu(real x)
    {
        const real result = (x < 0.0) ? 0.0 : x;
        return result;
    }

A definition is straight-line Python: assignments, early returns, and a return at the end. Its expressions have
+ - * /, comparisons, `a if condition else b`, calls of other definitions and of PRIMITIVES, and on the bit patterns
that to_bits() gives & | ^ << >> + -. Python leaves at the first return that applies; C computes everything and selects,
so nothing branches: a function that is `1.0 if condition else 0.0`, which products follow, takes the 1 by a mask. Every
operation is one of IEEE 754, rounded on its own: both compute the same bits.

Numbers are `real` in C, bit patterns `real_bits`: unsigned integers of the same size.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

# What both languages have, to the bit: its name in C, and the type of the result. `divide(a, b)` is a / b in C.
PRIMITIVES = {
    "sqrt": ("SQRT", "real"),
    "fabs": ("FABS", "real"),
    "copysign": ("COPYSIGN", "real"),
    "to_bits": ("to_bits", "real_bits"),
    "from_bits": ("from_bits", "real"),
    "divide": ("", "real"),
}
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "&",
    ast.Or: "|",
}
TYPES = {"float": "real", "int": "real_bits"}
# Names that a variable must not have in C: keywords, types, and what headers of Windows define as macros.
WORDS = (
    "auto char const default do double enum extern float goto inline int long register restrict short signed sizeof "
    "static struct switch typedef typeof union unsigned void volatile case real real_bits one_if "
    "far near small hyper interface min max I linux unix"
)
RESERVED = frozenset(WORDS.split())
CONDITION = "int"
INDENT = "    "
MAX_LINE = 116

Typed = tuple[str, str]  # the text of an expression, which needs no parentheses, and its type in C
Literal = Callable[[float], str]


@dataclass
class Library:
    """Definitions, their text in Python, and the constants that they use, by their names."""

    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    constants: dict[str, float | int] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)  # the names that each function calls
    operations: dict[str, int] = field(default_factory=dict)  # of each function itself

    @classmethod
    def of(cls, *texts: str) -> Library:
        """The definitions of modules, given as text. Of two of the same name the later one counts."""
        found = cls()
        for text in texts:
            lines = text.splitlines()
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef):
                    found.functions[node.name] = node
                    found.sources[node.name] = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                    parts = [*ast.walk(node)]
                    found.calls[node.name] = [called(part) for part in parts if isinstance(part, ast.Call)]
                    kinds = (ast.BinOp, ast.Compare, ast.IfExp)
                    found.operations[node.name] = sum(isinstance(part, kinds) for part in parts)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    number = _constant(node.value)
                    if number is not None:
                        found.constants[node.targets[0].id] = number
        return found

    def needed(self, names: Iterable[str]) -> list[str]:
        """The functions and all that they call, callees first."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name not in found:
                for other in self.calls[name]:
                    if other in self.functions and other != name:
                        visit(other)
                found[name] = None

        for name in names:
            visit(name)
        return list(found)

    def size(self, name: str) -> int:
        """The number of operations of a function and of all that it calls."""
        return sum(self.operations[other] for other in self.needed([name]))

    def used_constants(self, names: Iterable[str]) -> dict[str, float | int]:
        """The constants that functions use."""
        nodes = [node for name in names for node in ast.walk(self.functions[name])]
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        return {name: number for name, number in self.constants.items() if name in used}

    def translated(self, name: str, literal: Literal, renamed: Mapping[str, str] | None = None) -> list[str]:
        """One function as lines of C, `renamed` being names for functions. Raises Untranslatable."""
        return _Function(self, self.functions[name], literal, renamed or {}).lines


MODULES = ("arithmetic", "exponential", "power", "circular", "normal")  # of micrograd.ieee
FLOAT32_MODULES = ("float32", "float32_circular")


@cache
def library(text: str = "", is_float32: bool = False) -> Library:
    """The definitions of micrograd.ieee, for float32 its own where there are any, and those in `text`."""
    modules = [*MODULES, *FLOAT32_MODULES] if is_float32 else MODULES
    texts = [
        Path(__file__).with_name("ieee").joinpath(f"{module}.py").read_text(encoding="utf-8") for module in modules
    ]
    return Library.of(*texts, text)


def source_of(function: Callable[..., Any], name: str) -> str:
    """The text of a function, which must be one def, under another name.

    Raises Untranslatable, saying why it cannot be had.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars:
        raise Untranslatable("it is not a plain function")
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        raise Untranslatable("its source cannot be found") from None
    return named_source(text, name)


def named_source(text: str, name: str) -> str:
    """The text of one def, under another name. Raises Untranslatable for anything else."""
    try:
        (function,) = ast.parse(textwrap.dedent(text)).body
    except (SyntaxError, ValueError):
        raise Untranslatable("its source is not one def") from None
    if not isinstance(function, ast.FunctionDef):
        raise Untranslatable("its source is not a def")
    function.name = name
    function.decorator_list = []
    return ast.unparse(function)


class Untranslatable(ValueError):
    """A function that is not in the form which this module translates."""


class _Function:
    """The translation of one function. Each assignment makes a constant of its own: the second x is x_2."""

    def __init__(
        self, library: Library, function: ast.FunctionDef, literal: Literal, renamed: Mapping[str, str]
    ) -> None:
        self.library, self.function, self.literal, self.renamed = library, function, literal, renamed
        self.known: dict[str, Typed] = {}
        self.versions: dict[str, int] = {}
        self.body: list[tuple[str, str]] = []  # the name that a line defines, and the line
        self.read: set[str] = set()
        self.lines = [*self.result_type(), *self.head(), "{", *self.statements(), "}", ""]

    def c_name(self, name: str) -> str:
        """ieee_exp, and for a helper _reduced ieee_reduced."""
        return self.renamed.get(name, f"ieee_{name.lstrip('_')}")

    def result_type(self) -> list[str]:
        """A struct for a function of several results."""
        results = self.results(self.function)
        if len(results) == 1:
            return []
        members = "; ".join(f"real result_{i}" for i in range(len(results)))
        return [f"struct {self.c_name(self.function.name)} {{ {members}; }};"]

    def results(self, function: ast.FunctionDef) -> list[str]:
        returns = function.returns
        if isinstance(returns, ast.Subscript) and isinstance(returns.slice, ast.Tuple):
            return [TYPES[ast.unparse(part)] for part in returns.slice.elts]
        if returns is None or ast.unparse(returns) not in TYPES:
            self.refuse(function, "results must be annotated float, int or tuple[float, ...]")
        return [TYPES[ast.unparse(returns)]]

    def head(self) -> list[str]:
        parameters = []
        for argument in self.function.args.args:
            annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
            if annotation not in TYPES:
                self.refuse(argument, "parameters must be annotated float or int")
            name, _ = self.known[argument.arg] = self.new_name(argument.arg), TYPES[annotation]
            parameters.append(f"{TYPES[annotation]} {name}")
        name, results = self.c_name(self.function.name), self.results(self.function)
        of = results[0] if len(results) == 1 else f"struct {name}"
        text = (ast.get_docstring(self.function) or "").split("\n\n")[0].replace("*/", "* /")
        comment = textwrap.wrap(f"/* {text}", MAX_LINE - 3, subsequent_indent=" * ")
        comment[-1] += " */"
        return [*(comment if text else []), f"INLINED {of} {name}({', '.join(parameters)})"]

    def statements(self) -> list[str]:
        selections: list[tuple[str, list[str]]] = []
        for statement in self.function.body:
            match statement:
                case ast.Expr(ast.Constant(str())):
                    pass
                case ast.Assign([ast.Name(name)], value):
                    self.known[name] = self.named(name, self.expression(value))
                case ast.Assign([ast.Tuple(targets)], ast.Call() as call):
                    self.unpack([target.id for target in targets if isinstance(target, ast.Name)], call)
                case ast.If(condition, [ast.Return(ast.expr() as value)], []):
                    test, kind = self.expression(condition)
                    if kind != CONDITION:
                        self.refuse(condition, "no condition")
                    selections.append((test, self.returned(value)))
                case ast.Return(ast.expr() as value):
                    self.end(selections, value)
                case _:
                    self.refuse(statement, "only assignments, `if ...: return ...` and a return at the end")
        return [INDENT + line for name, line in self.body if not name or name in self.read]

    def returned(self, node: ast.expr) -> list[str]:
        """The results that a return gives, as names and literals."""
        if len(self.results(self.function)) == 1:
            return [self.atom(node)[0]]
        if isinstance(node, ast.Call):
            return self.parts(node)
        assert isinstance(node, ast.Tuple)
        return [self.atom(value)[0] for value in node.elts]

    def end(self, selections: list[tuple[str, list[str]]], node: ast.expr) -> None:
        """The return at the end. The selections are statements, from the last to the first, one for each result."""
        if not selections and not isinstance(node, ast.Tuple):
            match node:
                case ast.IfExp(condition, ast.Constant(1.0), ast.Constant(0.0)):
                    result = f"one_if({_bare(self.expression(condition)[0])})"
                case ast.IfExp(condition, ast.Constant(0.0), ast.Constant(1.0)):
                    result = f"one_if(!{self.expression(condition)[0]})"
                case _:
                    result = _bare(self.expression(node)[0])
            self.body.append(("", f"return {result};"))
            return
        results = self.returned(node)
        for test, values in reversed(selections):
            for i, value in enumerate(values):
                results[i], _ = self.named("result", (f"{test} ? {value} : {results[i]}", "real"))
                self.read.add(results[i])
        whole = results[0]
        if len(results) > 1:  # in a variable, since C++ has no compound literals
            kind = f"struct {self.c_name(self.function.name)}"
            whole, _ = self.named("all", (f"{{{', '.join(results)}}}", kind))
            self.read.add(whole)
        self.body.append(("", f"return {whole};"))

    def unpack(self, targets: list[str], call: ast.Call) -> None:
        for target, part in zip(targets, self.parts(call), strict=True):
            self.known[target] = self.named(target, (part, "real"))

    def parts(self, call: ast.Call) -> list[str]:
        """The results of a call of a function that has several."""
        whole, _ = self.named(called(call).lstrip("_"), self.expression(call))
        self.read.add(whole)
        return [f"{whole}.result_{i}" for i in range(len(self.results(self.library.functions[called(call)])))]

    def named(self, name: str, value: Typed) -> Typed:
        """A new constant of this name, or of this name and a number."""
        text, kind = value
        new = self.new_name(name)
        self.body.append((new, f"const {kind} {new} = {_bare(text)};"))
        return new, kind

    def new_name(self, name: str) -> str:
        version = self.versions[name] = self.versions.get(name, 0) + 1
        plain = f"{name}_" if name in RESERVED or name.startswith(("ieee_", "op_", "_")) else name
        return plain if version == 1 else f"{plain}_{version}"

    def atom(self, node: ast.expr) -> Typed:
        """A name or a literal for what may be selected: computed before, so that nothing is computed conditionally."""
        value = self.expression(node)
        is_atom = isinstance(node, ast.Name) or _constant(node) is not None
        if is_atom:
            return value
        chosen = self.named("chosen", value)
        self.read.add(chosen[0])
        return chosen

    def expression(self, node: ast.expr) -> Typed:
        match node:
            case ast.Constant(bool()):
                pass
            case ast.Constant(float() as number):
                return self.literal(number), "real"
            case ast.Constant(int() as number):
                return f"{number:#x}u{'ll' * (number >= 1 << 32)}" if number > 99 else f"{number}u", "real_bits"
            case ast.UnaryOp(ast.USub(), operand):
                text, kind = self.expression(operand)
                return (text[1:] if text.startswith("-") else f"-{text}"), kind
            case ast.UnaryOp(ast.Not(), operand):
                return f"!{self.expression(operand)[0]}", CONDITION
            case ast.Name(name) if name in self.known:
                self.read.add(self.known[name][0])
                return self.known[name]
            case ast.Name(name) if name in self.library.constants:
                return self.expression(ast.Constant(self.library.constants[name]))
            case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
                one, other = self.expression(left), self.expression(right)
                if one[1] != other[1] or one[1] == CONDITION:
                    self.refuse(node, f"{one[1]} and {other[1]}")
                return f"({one[0]} {OPERATORS[type(operator)]} {other[0]})", one[1]
            case ast.BoolOp(operator, values):
                return f"({f' {OPERATORS[type(operator)]} '.join(self.expression(x)[0] for x in values)})", CONDITION
            case ast.Compare(left, [operator], [right]) if type(operator) in OPERATORS:
                texts = self.expression(left)[0], self.expression(right)[0]
                return f"({texts[0]} {OPERATORS[type(operator)]} {texts[1]})", CONDITION
            case ast.IfExp(test, body, orelse):
                (chosen, kind), (otherwise, _) = self.atom(body), self.atom(orelse)
                return f"({self.expression(test)[0]} ? {chosen} : {otherwise})", kind
            case ast.Call(_, arguments, []):
                return self.call(node, called(node), [self.expression(argument)[0] for argument in arguments])
        self.refuse(node, "not a form that is translated")

    def call(self, node: ast.Call, name: str, arguments: list[str]) -> Typed:
        if name == "divide":
            return f"({arguments[0]} / {arguments[1]})", "real"
        bare = ", ".join(map(_bare, arguments))
        if name in PRIMITIVES:
            return f"{PRIMITIVES[name][0]}({bare})", PRIMITIVES[name][1]
        if name not in self.library.functions:
            self.refuse(node, f"{name} is no definition")
        results = self.results(self.library.functions[name])
        return f"{self.c_name(name)}({bare})", results[0] if len(results) == 1 else f"struct {self.c_name(name)}"

    def refuse(self, node: ast.AST, reason: str) -> NoReturn:
        raise Untranslatable(f"{self.function.name}: {ast.unparse(node)!r} cannot be written as C: {reason}")


def called(call: ast.Call) -> str:
    """The name of what is called, without its module."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _bare(text: str) -> str:
    """Without the parentheses around a whole expression."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text


def _constant(node: ast.expr) -> float | int | None:
    """The number that a module's constant has: a literal, float.fromhex("..."), math.inf or math.nan."""
    match node:
        case ast.Constant(float() | int() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(ast.USub(), operand):
            positive = _constant(operand)
            return None if positive is None else -positive
        case ast.Call(ast.Attribute(ast.Name("float"), "fromhex"), [ast.Constant(str() as text)]):
            return float.fromhex(text)
        case ast.Attribute(ast.Name("math"), "inf" | "nan" as name):
            return float(name)
    return None
