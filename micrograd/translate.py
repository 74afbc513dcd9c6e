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
operation is one of IEEE 754, rounded on its own: both compute the same bits. Numbers are `real` in C, bit patterns
`real_bits`: unsigned integers of the same size.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
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
OF_STAGES = frozenset({"numbers", "lines", "blocks", "count", "i"})  # and what ends in _of: see micrograd.stages
CONDITION = "int"
INDENT = "    "
MAX_LINE = 116
DIVISION = 4  # a division or a root takes as long as so many additions; selections and operations on bits take no time

Literal = Callable[[float], str]


@dataclass(frozen=True)
class Term:
    """An expression in C: its text, which needs no parentheses, and its type."""

    text: str
    kind: str
    reads: frozenset[str] = frozenset()  # names
    operations: int = 0
    chain: int = 0  # of the longest chain of operations that wait for one another, how many additions take as long

    @classmethod
    def of(cls, text: str, kind: str, parts: Iterable[Term], operations: int = 0, latency: int = 1) -> Term:
        """One that is made of others, by some operations more, which take as long as `latency` additions."""
        parts = [*parts]
        names = frozenset[str]().union(*(part.reads for part in parts))
        chain = max((part.chain for part in parts), default=0) + (latency if operations else 0)
        return cls(text, kind, names, operations + sum(part.operations for part in parts), chain)


@dataclass(frozen=True)
class Line:
    """const KIND NAME = VALUE; or, without a name, the return."""

    name: str
    value: Term

    def __str__(self) -> str:
        return f"const {self.value.kind} {self.name} = {bare(self.value.text)};"


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
        return _Function(self, self.functions[name], literal, renamed or {}).lines()

    def whole(self, name: str, literal: Literal) -> tuple[str, list[Line], Term]:
        """A function of one number without calls of others: its parameter, its lines and its result."""
        function = _Whole(self, self.functions[name], literal, {})
        (parameter,) = function.parameters()
        (result,) = function.run()
        return parameter.text, needed(function.body, [result]), result


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

    taken: frozenset[str] = frozenset()  # names that C has another use for

    def __init__(
        self, library: Library, function: ast.FunctionDef, literal: Literal, renamed: Mapping[str, str]
    ) -> None:
        self.library, self.function, self.literal, self.renamed = library, function, literal, renamed
        self.known: dict[str, Term] = {}
        self.used = {*self.taken}  # names in C
        self.body: list[Line] = []

    def lines(self) -> list[str]:
        parameters = ", ".join(f"{term.kind} {term.text}" for term in self.parameters())
        name, results = self.c_name(self.function.name), self.results(self.function)
        of = results[0] if len(results) == 1 else f"struct {name}"
        head = [*self.result_type(), *self.comment(), f"INLINED {of} {name}({parameters})"]
        return [*head, "{", *(INDENT + line for line in self.statements()), "}", ""]

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

    def parameters(self) -> list[Term]:
        """Named as in Python, if C has no other use for the name."""
        for argument in self.function.args.args:
            annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
            if annotation not in TYPES:
                self.refuse(argument, "parameters must be annotated float or int")
            name = self.new_name(argument.arg)
            self.known[argument.arg] = Term(name, TYPES[annotation], frozenset([name]))
        return [self.known[argument.arg] for argument in self.function.args.args]

    def comment(self) -> list[str]:
        text = (ast.get_docstring(self.function) or "").split("\n\n")[0].replace("*/", "* /")
        comment = textwrap.wrap(f"/* {text}", MAX_LINE - 3, subsequent_indent=" * ")
        comment[-1] += " */"
        return comment if text else []

    def statements(self) -> list[str]:
        results = self.run()
        whole = results[0]
        if len(results) > 1:  # in a variable, since C++ has no compound literals
            text = f"{{{', '.join(result.text for result in results)}}}"
            whole = self.named("all", Term.of(text, f"struct {self.c_name(self.function.name)}", results))
        return [*map(str, needed(self.body, [whole])), f"return {bare(whole.text)};"]

    def run(self) -> list[Term]:
        """Appends the lines of the function's body, and gives its results."""
        selections: list[tuple[Term, list[Term]]] = []
        for statement in self.function.body:
            match statement:
                case ast.Expr(ast.Constant(str())):
                    pass
                case ast.Assign([ast.Name(name)], value):
                    self.known[name] = self.named(name, self.expression(value))
                case ast.Assign([ast.Tuple(targets)], ast.Call() as call):
                    self.unpack([target.id for target in targets if isinstance(target, ast.Name)], call)
                case ast.If(condition, [ast.Return(ast.expr() as value)], []):
                    test = self.expression(condition)
                    if test.kind != CONDITION:
                        self.refuse(condition, "no condition")
                    selections.append((test, self.returned(value)))
                case ast.Return(ast.expr() as value):
                    return self.selected(selections, value)
                case _:
                    self.refuse(statement, "only assignments, `if ...: return ...` and a return at the end")
        self.refuse(self.function, "it must end with a return")

    def returned(self, node: ast.expr) -> list[Term]:
        """The results that a return gives, as names and literals."""
        if len(self.results(self.function)) == 1:
            return [self.atom(node)]
        if isinstance(node, ast.Call):
            return self.parts(node)
        assert isinstance(node, ast.Tuple)
        return [self.atom(value) for value in node.elts]

    def selected(self, selections: list[tuple[Term, list[Term]]], node: ast.expr) -> list[Term]:
        """The return at the end. The selections are lines, from the last to the first, one for each result."""
        if not selections and len(self.results(self.function)) == 1:
            match node:
                case ast.IfExp(condition, ast.Constant(1.0), ast.Constant(0.0)):
                    test = self.expression(condition)
                    return [Term.of(f"one_if({bare(test.text)})", "real", [test], 1)]
                case ast.IfExp(condition, ast.Constant(0.0), ast.Constant(1.0)):
                    test = self.expression(condition)
                    return [Term.of(f"one_if(!{test.text})", "real", [test], 1)]
            return [self.expression(node)]
        results = self.returned(node)
        for test, values in reversed(selections):
            for i, value in enumerate(values):
                results[i] = self.named("result", _selection(test, value, results[i], "real"))
        return results

    def unpack(self, targets: list[str], call: ast.Call) -> None:
        for target, part in zip(targets, self.parts(call), strict=True):
            self.known[target] = self.named(target, part)

    def parts(self, call: ast.Call) -> list[Term]:
        """The results of a call of a function that has several."""
        whole = self.named(called(call).lstrip("_"), self.expression(call))
        count = len(self.results(self.library.functions[called(call)]))
        return [Term.of(f"{whole.text}.result_{i}", "real", [whole]) for i in range(count)]

    def named(self, name: str, value: Term) -> Term:
        """A new constant of this name, or of this name and a number."""
        new = self.new_name(name)
        self.body.append(Line(new, value))
        return Term(new, value.kind, frozenset([new]))

    def new_name(self, name: str) -> str:
        plain = f"{name}_" if name in RESERVED or name.startswith(("ieee_", "op_", "_")) else name
        versions = (plain if version == 1 else f"{plain}_{version}" for version in count(1))
        new = next(version for version in versions if version not in self.used)
        self.used.add(new)
        return new

    def atom(self, node: ast.expr) -> Term:
        """A name or a literal for what may be selected: computed before, so that nothing is computed conditionally."""
        value = self.expression(node)
        is_atom = isinstance(node, ast.Name) or _constant(node) is not None
        return value if is_atom else self.named("chosen", value)

    def expression(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(bool()):
                pass
            case ast.Constant(float() as number):
                return Term(self.literal(number), "real")
            case ast.Constant(int() as number):
                text = f"{number:#x}u{'ll' * (number >= 1 << 32)}" if number > 99 else f"{number}u"
                return Term(text, "real_bits")
            case ast.UnaryOp(ast.USub(), operand):
                term = self.expression(operand)
                text = term.text[1:] if term.text.startswith("-") else f"-{term.text}"
                return Term.of(text, term.kind, [term])
            case ast.UnaryOp(ast.Not(), operand):
                term = self.expression(operand)
                return Term.of(f"!{term.text}", CONDITION, [term])
            case ast.Name(name) if name in self.known:
                return self.known[name]
            case ast.Name(name) if name in self.library.constants:
                return self.expression(ast.Constant(self.library.constants[name]))
            case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
                one, other = self.expression(left), self.expression(right)
                if one.kind != other.kind or one.kind == CONDITION:
                    self.refuse(node, f"{one.kind} and {other.kind}")
                text = f"({one.text} {OPERATORS[type(operator)]} {other.text})"
                latency = DIVISION if isinstance(operator, ast.Div) else int(one.kind == "real")
                return Term.of(text, one.kind, [one, other], 1, latency)
            case ast.BoolOp(operator, values):
                terms = [self.expression(value) for value in values]
                joined = f" {OPERATORS[type(operator)]} ".join(term.text for term in terms)
                return Term.of(f"({joined})", CONDITION, terms, len(terms) - 1)
            case ast.Compare(left, [operator], [right]) if type(operator) in OPERATORS:
                one, other = self.expression(left), self.expression(right)
                return Term.of(f"({one.text} {OPERATORS[type(operator)]} {other.text})", CONDITION, [one, other], 1)
            case ast.IfExp(test, body, orelse):
                chosen, otherwise = self.atom(body), self.atom(orelse)
                return _selection(self.expression(test), chosen, otherwise, chosen.kind)
            case ast.Call(_, arguments, []):
                return self.call(node, called(node), [self.expression(argument) for argument in arguments])
        self.refuse(node, "not a form that is translated")

    def call(self, node: ast.Call, name: str, arguments: list[Term]) -> Term:
        if name == "divide":
            return Term.of(f"({arguments[0].text} / {arguments[1].text})", "real", arguments, 1, DIVISION)
        texts = ", ".join(bare(argument.text) for argument in arguments)
        if name in PRIMITIVES:
            function, kind = PRIMITIVES[name]
            operations, latency = int(name not in ("to_bits", "from_bits")), DIVISION if name == "sqrt" else 0
            return Term.of(f"{function}({texts})", kind, arguments, operations, latency)
        if name not in self.library.functions:
            self.refuse(node, f"{name} is no definition")
        results = self.results(self.library.functions[name])
        kind = results[0] if len(results) == 1 else f"struct {self.c_name(name)}"
        return Term.of(f"{self.c_name(name)}({texts})", kind, arguments)

    def refuse(self, node: ast.AST, reason: str) -> NoReturn:
        raise Untranslatable(f"{self.function.name}: {ast.unparse(node)!r} cannot be written as C: {reason}")


class _Whole(_Function):
    """The same with the bodies of the functions that it calls in the place of the calls."""

    taken = OF_STAGES

    def new_name(self, name: str) -> str:
        return super().new_name(f"{name}_" if name.endswith("_of") else name)

    def named(self, name: str, value: Term) -> Term:
        return value if value.text in value.reads else super().named(name, value)

    def parts(self, call: ast.Call) -> list[Term]:
        return self.inlined(called(call), [self.expression(argument) for argument in call.args])

    def call(self, node: ast.Call, name: str, arguments: list[Term]) -> Term:
        if name in PRIMITIVES or name not in self.library.functions:
            return super().call(node, name, arguments)
        (result,) = self.inlined(name, arguments)
        return result

    def inlined(self, name: str, arguments: list[Term]) -> list[Term]:
        around = self.function, self.known
        self.function, self.known = self.library.functions[name], {}
        for argument, term in zip(self.function.args.args, arguments, strict=True):
            self.known[argument.arg] = self.named(argument.arg, term) if term.operations else term
        results = self.run()
        self.function, self.known = around
        return results


def needed(lines: Iterable[Line], results: Iterable[Term]) -> list[Line]:
    """The lines that results need."""
    read = {name for result in results for name in result.reads}
    found: list[Line] = []
    for line in reversed([*lines]):
        if line.name in read:
            found.append(line)
            read |= line.value.reads
    return found[::-1]


def _selection(test: Term, chosen: Term, otherwise: Term, kind: str) -> Term:
    text = f"({test.text} ? {chosen.text} : {otherwise.text})"
    return Term.of(text, kind, [test, chosen, otherwise], 1, latency=0)


def called(call: ast.Call) -> str:
    """The name of what is called, without its module."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def bare(text: str) -> str:
    """The text of an expression without the parentheses around it."""
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
