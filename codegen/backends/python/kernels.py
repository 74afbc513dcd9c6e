"""Scheduled loops -> Python functions, and one function for each pass that calls those that it needs.

Example: the nest of 10 x sum(P, 50 x mul(P, R)) is printed as

    for i in range(10):
        sum = data[P_LAYERS_1_BIAS + i]
        at = P_LAYERS_1_WEIGHT + i
        for k in range(50):
            sum += data[at + 10 * k] * value[GROUP_0 + k]
        value[GROUP_1 + i] = sum

The loops run over lists: PyPy compiles them to machine code, and CPython runs them as fast as slices and
comprehensions. The built-in sum() is not used: from Python 3.12 on it compensates the rounding errors of floats.
"""

import textwrap
from collections.abc import Iterator
from math import isinf, isnan

from codegen.backends.expressions import PRIMARY, Bound, apply_text, index_text
from codegen.backends.shared import group_name, together
from codegen.backends.text import summary
from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Pass,
    Place,
    Stmt,
    Store,
)
from codegen.reroll.names import comment
from codegen.schedule.copies import NO_LOOPS
from micrograd import ops

PASSES = {
    "compute_loss": Pass.LOSS,
    "compute_gradients": Pass.GRADIENTS | Pass.DENSE_GRADIENTS,
    "compute_prediction": Pass.PREDICTION,
    "compute_outputs": Pass.OUTPUTS,
    "compute_evaluation": Pass.LOSS | Pass.PREDICTION,
    "compute_metrics": Pass.METRICS,
}
INDENT = "    "
MAX_LINE = 116


def parameters(passes: Pass) -> str:
    """The parameters of a function or a pass."""
    return f"data, {'grad, ' * bool(passes & Pass.DENSE_GRADIENTS)}value, active"


def literal(value: float) -> str:
    """A constant with exactly these bits (all nans become NAN)."""
    if isnan(value):
        return "NAN"
    if isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))


def functions(loops: Loops, plain: Loops) -> list[str]:
    """Kernels -> functions of bounded size, and one for each pass, which calls those that it needs."""
    lines: list[str] = []
    calls: list[tuple[Pass, str]] = []
    plain_kernels = {kernel.number: kernel for kernel in plain.kernels}
    for name, numbers in loops.tables.items():
        values = [str(x) if isinstance(x, int) else literal(x) for x in numbers]
        lines += [f"{name} = [", *wrapped(", ".join(values)), "]"]
    for kernels in together(loops.kernels):
        name = group_name(kernels[0].number, kernels[-1].number)
        passes = kernels[0].passes
        lines += ["", "", f"def {name}({parameters(passes)}):"]
        for kernel in kernels:
            about = comment(summary(plain, plain_kernels[kernel.number]))
            lines += textwrap.wrap(about, MAX_LINE, initial_indent="    # ", subsequent_indent="    #   ")
            for nest in kernel.nests:
                lines += [INDENT + line for line in _body(loops, nest)]
        calls.append((passes, f"{name}({parameters(passes)})"))
    for name, passes in PASSES.items():
        skip = Pass.LOSS if passes & Pass.GRADIENTS else Pass(0)  # forward() has computed these
        body = [INDENT + call for has, call in calls if has & passes and not has & skip]
        lines += ["", "", f"def {name}({parameters(passes)}):", *(body or [INDENT + "pass"])]
    return lines


def body_text(body: Body) -> list[str]:
    """Statements outside of kernels."""
    return [*_body(NO_LOOPS, body)]


def _body(loops: Loops, body: Body) -> Iterator[str]:
    for stmt in body:
        yield from _statement(loops, stmt)


def _statement(loops: Loops, stmt: Stmt) -> Iterator[str]:
    match stmt:
        case For():
            head = f"for {stmt.counter} in range({stmt.count}):"
            if stmt.kind == Kind.ACTIVE:
                head = f"for {stmt.counter}, {stmt.input} in active:"
            yield head
            yield from (INDENT + line for line in _body(loops, stmt.body))
        case Let():
            named = stmt.value
            known = loops if loops.regions.get(DATA) else None  # a Program may have no parameters
            text = index_text(known, DATA, named) if isinstance(named, Index) else expr_text(named, loops)
            yield f"{stmt.name} = {text}"
        case Local():
            yield f"{stmt.name} = [0.0] * {stmt.length}"
        case Store():
            yield from assigned(expr_text(stmt.target, loops), "=", expr_text(stmt.value, loops))
        case Accumulate() if stmt.op == Op.ADD:
            yield from assigned(expr_text(stmt.target, loops), "+=", expr_text(stmt.value, loops))
        case Accumulate():
            value = expr_text(Apply(stmt.op, (stmt.target, stmt.value)), loops)
            yield from assigned(expr_text(stmt.target, loops), "=", value)


def expr_text(expr: Expr, loops: Loops | None = None) -> str:
    return _expr(expr, loops)[0]


def _expr(expr: Expr, loops: Loops | None) -> Bound:
    match expr:
        case Place():
            return f"{expr.array}[{index_text(loops, expr.array, expr.index)}]", PRIMARY
        case Name():
            return expr.name, PRIMARY
        case Const():
            return literal(expr.value), PRIMARY
    operands = [_expr(operand, loops) for operand in expr.operands]
    return apply_text(expr.op, operands, ops.PYTHON_TEXT[expr.op])


def assigned(target: str, sign: str, text: str) -> list[str]:
    """An assignment, in parentheses over several lines if it is too long for one."""
    line = f"{target} {sign} {text}"
    return [line] if len(line) <= MAX_LINE - 16 else [f"{target} {sign} (", *wrapped(text), ")"]


def wrapped(text: str) -> list[str]:
    """A text as indented lines, broken only at spaces."""
    wrapper = textwrap.TextWrapper(MAX_LINE, INDENT, INDENT, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)
