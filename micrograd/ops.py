"""The op table: the name of every operation, its function, its derivatives, and its text in generated code.

Example: the row of tanh, and its form in the engine, the ir, C and Python:

    tanh = _row("tanh", "tanh", ieee.tanh, (lambda y, a: 1.0 - y * y,))

    Value.tanh()      %3 = tanh %2      op_tanh(value[2])      tanh(value[2])

Everything that knows an op by name is a view of this table: the engine, the trace, autodiff, constant folding, the
interpreter of the ir, C and Python. A row is also callable, on floats, on Values and on the compiler's own operands
alike: a partial derivative is written once, as a function of the result and the operands, and is evaluated on floats
by the engine, appended to the ir by autodiff and printed as C. The gradient of operand i is always `partial * g`, in
this order.

`register()` adds an op at run time. Nothing has to be forked or subclassed:

    >>> def cubed(x: float) -> float:
    ...     return x * x * x
    >>> cube = register("cube", cubed, partials=[lambda y, a: 3.0 * (a * a)], c="a * a * a")
    >>> cube(2.0)
    8.0
"""

import ast
import math
import numbers
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Self, TypeAlias

from micrograd import ieee
from micrograd.names import exponent_of
from micrograd.translate import library, source_of

# The derivative by one operand: a function of the result and the operands, a constant, or None for no gradient.
Partial: TypeAlias = "Callable[..., Any] | float | None"

IR_LEAVES = ("const", "param", "grad", "input", "target")
FIRST = len(IR_LEAVES)  # the smallest number of an op
MAX_OPS = 256  # the ir stores an op in a byte
LEAF_SYMBOLS = frozenset({"", "weight", "bias", "input", "target"})


@dataclass(frozen=True, eq=False, repr=False)
class Row:
    """One op. `name` is the ir's, `symbol` is `Value._op`; `c` and `python` are templates with a {} for each operand.

    Generated code has the source of `function`, C in translation; see `definitions`. A registered op may bring a
    `c_definition` or a `python_definition` of its own.
    """

    number: int
    name: str
    symbol: str
    function: Callable[..., float]
    partials: tuple[Partial, ...]
    c: str
    python: str
    is_registered: bool = False
    c_definition: str | None = None
    python_definition: str | None = None

    @property
    def arity(self) -> int:
        return len(self.partials)

    @property
    def is_infix(self) -> bool:
        return self.c.startswith("{} ")

    def __call__(self, *operands: Any) -> Any:
        """The op of floats, Values or other operands: the result is of their kind."""
        if len(operands) != self.arity:
            raise TypeError(f"{self.name} takes {self.arity} operand{'s'[: self.arity - 1]}, got {len(operands)}")
        if type(operands[0]) is float and type(operands[-1]) is float:
            return self.function(*operands)
        for operand in operands:
            from_op = getattr(type(operand), "_from_op", None)
            if from_op is not None:
                return from_op(operand, self, operands)
            if not isinstance(operand, numbers.Real):
                raise TypeError(f"{self.name} takes numbers and Values, not {type(operand).__name__}")
        return self.function(*map(float, operands))

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def slope(self, i: int, result: Any, operands: Sequence[Any]) -> Any:
        """The derivative by operand i, of the kind of the operands; None if no gradient flows."""
        partial = self.partials[i]
        return partial(result, *operands) if callable(partial) else partial


class Operand:
    """What partial derivatives are evaluated on besides floats: +, - and * become ops by `_from_op`.

    Division and ** are missing on purpose. Their floats would raise where C gives inf; ops.divide(1.0, x) does not.
    """

    __slots__ = ()

    def _from_op(self, op: Row, operands: Sequence[Any]) -> Any:
        """An op of which self is one of the operands; the others are of the same kind, or numbers."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return add(self, other)

    def __radd__(self, other: Any) -> Any:
        return add(other, self)

    def __mul__(self, other: Any) -> Any:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Any:
        return mul(other, self)

    def __neg__(self) -> Any:
        return mul(self, -1.0)

    def __sub__(self, other: Any) -> Any:
        return add(self, -other)

    def __rsub__(self, other: Any) -> Any:
        left = self._constant(other)  # comes before -self in the ir
        return add(left, -self)

    def _constant(self, number: float) -> Any:
        return number

    def _refuse(self, *_: Any) -> bool:
        raise TypeError("a partial derivative is evaluated on C text and on the ir too: it cannot compare or branch")

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse


class _Symbols(dict[str, Row]):
    """Rows by the engine's symbol, `**3` included. The error for a missing row says how to add one."""

    def __missing__(self, symbol: str) -> Row:
        if exponent_of(symbol) is not None:
            return power
        raise ValueError(f"no op is called {symbol!r}: micrograd.ops.register({symbol!r}, ...) adds one")


class _Names(dict[str, Row]):
    def __missing__(self, name: str) -> Row:
        known = ", ".join(sorted(self))
        raise ValueError(f"no op is called {name!r}: micrograd.ops.register({name!r}, ...) adds one; there are {known}")


# The views. The lists are indexed by number, and their first FIRST entries are not ops.
ROWS: list[Row] = []
BY_NAME = _Names()
BY_SYMBOL = _Symbols()
FUNCTIONS: list[Callable[..., float]] = [lambda *_: math.nan] * FIRST
ARITY = [0] * FIRST
C = [""] * FIRST
PYTHON_TEXT = [""] * FIRST
_lock = Lock()


def row(number: int) -> Row:
    """The row of an ir op."""
    return ROWS[number - FIRST]


def count() -> int:
    """The number of op numbers in use, including those of leaves."""
    return FIRST + len(ROWS)


def apply(op: str | Row, *operands: Any) -> Any:
    """An op by its name or row: `apply("max", x, 2.0)` is `x.max(2.0)`. Raises ValueError for an unknown name."""
    return (op if isinstance(op, Row) else BY_NAME[op])(*operands)


def register(
    name: str,
    function: Callable[..., float],
    partials: Sequence[Partial],
    c: str | None = None,
    *,
    symbol: str | None = None,
    python: str | None = None,
) -> Row:
    """Adds an op to the table and returns its row, which can be called on Values: `cube(x)`, or `x.apply("cube")`.

    name      lower case, as in the ir; generated code calls the op `op_NAME`
    function  takes one or two floats and returns a float. It defines the op, so it must not raise in edge cases, where
              C has inf and nan. See micrograd.ieee.
    partials  the derivative by each operand: a function of the result and the operands that uses +, -, * and other
              ops (`ops.exp(a)`, `ops.power(a, -1.0)`) only, a float if it is the same everywhere, or None for an
              operand to which no gradient flows. The gradient is `partial * g`.
    c         by default the translation of `function`, if it is in the form that micrograd.translate describes. Else a
              C expression of type real in the operands `a` and `b`, or the text of a `static inline` function called
              op_NAME. It may use what csrc/ops.h has and the other ops of the project, op_exp(a) for example, and
              has to give the bits that `function` gives.
    symbol    `Value._op`; by default the name
    python    for generated Python: the source of one function that needs `math` and the functions of
              micrograd.ieee at most; by default the source of `function`

    Raises TypeError or ValueError for arguments that make no op, and for a name or symbol that is taken; then the table
    is unchanged. Register before the first graph is compiled, in the same order in every process: an op's number is its
    position in the table.
    """
    symbol = name if symbol is None else symbol
    if not isinstance(name, str) or not isinstance(symbol, str) or not isinstance(c, str | None):
        raise TypeError("an op's name, symbol and c are strings")
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in IR_LEAVES:
        raise ValueError(f"an op's name is a lower-case identifier and not that of a leaf, got {name!r}")
    if exponent_of(symbol) is not None:
        raise ValueError(f"{symbol!r} is taken already: it is a power")
    if symbol in LEAF_SYMBOLS:
        raise ValueError(f"{symbol!r} is the symbol of a leaf")
    if not isinstance(partials, Sequence):
        raise TypeError(f"{name}: partials must be a list, not {type(partials).__name__}")
    partials = tuple(partials)
    _check_function(name, function, partials)
    _check_source(name, python)
    _check_partials(name, partials)
    with _lock:
        if name in BY_NAME or symbol in BY_SYMBOL:
            raise ValueError(f"there is an op {name!r} already" if name in BY_NAME else f"{symbol!r} is taken already")
        if count() == MAX_OPS:
            raise ValueError(f"the table is full: an op's number is smaller than {MAX_OPS}")
        template = f"op_{name}({', '.join(['{}'] * len(partials))})"
        definition = _c_definition(name, function, c, len(partials))
        return _add(Row(count(), name, symbol, function, partials, template, template, True, definition, python))


def _check_function(name: str, function: Callable[..., float], partials: tuple[Partial, ...]) -> None:
    if len(partials) not in (1, 2):
        raise ValueError(f"{name}: an op has one or two operands and a partial for each, got {len(partials)} partials")
    for x in (0.5, 0.0, -0.5, math.inf, -math.inf, math.nan):
        try:
            result = function(*[x] * len(partials))
        except Exception as error:
            raise ValueError(f"{name}: the function of {len(partials)} floats fails at {x}: {error}") from error
        if type(result) is not float:
            raise TypeError(f"{name}: the function must return a float, but at {x} it is {type(result).__name__}")


def _check_source(name: str, python: str | None) -> None:
    """The source for generated Python must be one def; generated code renames it."""
    if python is None:
        return
    if not isinstance(python, str):
        raise TypeError(f"{name}: python must be the source of a function, not {type(python).__name__}")
    try:
        body = ast.parse(textwrap.dedent(python)).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{name}: python is not the source of a function: {error}") from error
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        raise ValueError(f"{name}: python must be the source of one function")


def _check_partials(name: str, partials: tuple[Partial, ...]) -> None:
    """Evaluates each once, on operands that refuse whatever floats support and ir nodes do not."""
    for i, partial in enumerate(partials):
        if not callable(partial):
            if not isinstance(partial, float | None):
                raise TypeError(f"{name}: partial {i} must be a function, a float or None")
            continue
        try:
            found = partial(*[_Probe()] * (len(partials) + 1))
        except Exception as error:
            raise ValueError(f"{name}: partial {i} is no function of the result and the operands: {error}") from error
        if not isinstance(found, _Probe | float):
            raise TypeError(f"{name}: partial {i} gives {type(found).__name__}")


class _Probe(Operand):
    __eq__ = __ne__ = Operand._refuse
    __hash__ = object.__hash__

    def _from_op(self, op: Row, operands: Sequence[Any]) -> Self:
        if any(not isinstance(x, _Probe | numbers.Real) for x in operands):
            raise TypeError(f"{op.name} of {', '.join(type(x).__name__ for x in operands)}")
        for x in operands:
            if not isinstance(x, _Probe):
                float(x)  # OverflowError for an int that no float holds
        return self


def _c_definition(name: str, function: Callable[..., float], c: str | None, arity: int) -> str | None:
    """The C of an op as a function, None for the translation. Raises ValueError for text that cannot be one."""
    if c is None:
        try:
            key = f"op_{name}"
            library(source_of(function, key)).translated(key, repr)
        except ValueError as error:
            raise ValueError(f"{error}; pass c, the C of the op") from None
        return None
    text = c.strip()
    operands = ["real a", "real b"][:arity]
    if re.search(r"""["'\\#\0]|//|/\*""", text):
        raise ValueError(f"{name}: c must not have quotes, comments, directives or backslashes, got {c!r}")
    if text.startswith("static inline"):
        signature = rf"static inline real op_{name}\(real \w+{', real .w+' * (arity - 1)}\)\s*".replace(".w", r"\w")
        body = re.sub(signature, "", text, count=1)
        if body == text or not body.startswith("{") or not _is_one_block(body):
            raise ValueError(f"{name}: c must be one function static inline real op_{name}({', '.join(operands)})")
        return text
    names = set(re.findall(r"\b[A-Za-z_]\w*", text))
    is_expression = text and not re.search("[;{}\n]", text) and _is_balanced(text)
    if not is_expression or "return" in names or f"op_{name}" in names or (arity == 1 and "b" in names):
        raise ValueError(f"{name}: c must be an expression in {'a and b'[: 4 * arity - 3]}, or define op_{name}()")
    return f"static inline real op_{name}({', '.join(operands)}) {{ return {text}; }}"


def _is_balanced(text: str, pair: str = "()") -> bool:
    depth = 0
    for character in text:
        depth += (character == pair[0]) - (character == pair[1])
        if depth < 0:
            return False
    return depth == 0


def _is_one_block(text: str) -> bool:
    """Whether nothing follows the brace that closes the first one."""
    return _is_balanced(text, "{}") and not any(_is_balanced(text[: i + 1], "{}") for i in range(len(text) - 1))


def _add(new: Row) -> Row:
    ROWS.append(new)
    FUNCTIONS.append(new.function)
    ARITY.append(new.arity)
    C.append(new.c)
    PYTHON_TEXT.append(new.python)
    BY_NAME[new.name] = BY_SYMBOL[new.symbol] = new
    return new


def _row(
    name: str,
    symbol: str,
    function: Callable[..., float],
    partials: tuple[Partial, ...],
    c: str = "",
    python: str = "",
) -> Row:
    """A row whose function is in micrograd.ieee, or which C and Python write by an operator."""
    operands = ", ".join(["{}"] * len(partials))
    python = python or f"{function.__name__}({operands})"
    return _add(Row(count(), name, symbol, function, partials, c or f"op_{name}({operands})", python))


def _left(y: Any, a: Any, b: Any) -> Any:
    return left(a, b)


def _right(y: Any, a: Any, b: Any) -> Any:
    return right(a, b)


def _lower_left(y: Any, a: Any, b: Any) -> Any:
    return left(-a, -b)


def _lower_right(y: Any, a: Any, b: Any) -> Any:
    return right(-a, -b)


def _bell(y: Any, a: Any) -> Any:
    return 1.1283791670955126 * exp(-(a * a))  # 2 / sqrt(pi)


def _by_dividend(y: Any, a: Any, b: Any) -> Any:
    return divide(1.0, b)


def _by_divisor(y: Any, a: Any, b: Any) -> Any:
    return -divide(y, b)


def _by_base(y: Any, a: Any, b: Any) -> Any:
    return b * power(a, b - _is_not_zero(b))  # 0 where b is 0, also at a = 0


def _by_exponent(y: Any, a: Any, b: Any) -> Any:
    at_zero = (1.0 - _is_not_zero(a)) * (1.0 - step(-b))
    return y * log(a + at_zero)  # 0 for 0**b, b >= 0, where the logarithm alone would make it nan


def _is_not_zero(a: Any) -> Any:
    return step(absolute(a))


def _normal(y: Any, a: Any) -> Any:
    tiny = step(2.0**-17 - absolute(a))  # where y / a says little, the distribution function is 0.5 + slope
    slope = a * (0.3989422804014327 * exp(-0.5 * (a * a)))  # 1 / sqrt(2 pi)
    return divide(y + (0.5 + slope) * tiny, a + tiny) + slope


# The ir knows an op by its position here. In a partial, y is the result, a and b are the operands.
# step is 1 above 0, else 0; left is 1 where max takes its left operand, right is 1 where it takes the right one.
add: Row = _row("add", "+", lambda a, b: a + b, (1.0, 1.0), "{} + {}", "{} + {}")
mul: Row = _row("mul", "*", lambda a, b: a * b, (lambda y, a, b: b, lambda y, a, b: a), "{} * {}", "{} * {}")
power: Row = _row("pow", "**", ieee.power, (_by_base, _by_exponent))
maximum: Row = _row("max", "max", ieee.maximum, (_left, _right))
left: Row = _row("left", "left", ieee.takes_left, (None, None))
right: Row = _row("right", "right", ieee.takes_right, (None, None))
exp: Row = _row("exp", "exp", ieee.exp, (lambda y, a: y,))
log: Row = _row("log", "log", ieee.log, (lambda y, a: divide(1.0, a),))
tanh: Row = _row("tanh", "tanh", ieee.tanh, (lambda y, a: 1.0 - y * y,))
relu: Row = _row("relu", "ReLU", ieee.relu, (lambda y, a: step(y),))
sigmoid: Row = _row("sigmoid", "sigmoid", ieee.sigmoid, (lambda y, a: y * (1.0 - y),))
step: Row = _row("step", "step", ieee.positive, (None,))
detach: Row = _row("detach", "detach", lambda a: a, (None,), "{}", "{}")
sqrt: Row = _row("sqrt", "sqrt", ieee.square_root, (lambda y, a: divide(0.5, y),))
sin: Row = _row("sin", "sin", ieee.sin, (lambda y, a: cos(a),))
cos: Row = _row("cos", "cos", ieee.cos, (lambda y, a: -sin(a),))
absolute: Row = _row("abs", "abs", ieee.absolute, (lambda y, a: step(a) - step(-a),))
minimum: Row = _row("min", "min", ieee.minimum, (_lower_left, _lower_right))
erf: Row = _row("erf", "erf", ieee.erf, (_bell,))
softplus: Row = _row("softplus", "softplus", ieee.softplus, (lambda y, a: sigmoid(a),))
divide: Row = _row("div", "/", ieee.divide, (_by_dividend, _by_divisor), "{} / {}")
expm1: Row = _row("expm1", "expm1", ieee.expm1, (lambda y, a: y + 1.0,))
log1p: Row = _row("log1p", "log1p", ieee.log1p, (lambda y, a: divide(1.0, 1.0 + a),))
gelu: Row = _row("gelu", "gelu", ieee.gelu, (_normal,))
