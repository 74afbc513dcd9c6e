"""The loop language as text, for tests, dumps and errors.

Example: the kernel of 50 x relu(sum(P, 784 x mul(P, X))) is printed as

    kernel 0 (loss prediction outputs evaluation): 50 roots, %3139 .. %118632
        for i < 50:
            let sum = data[39200 + i]
            for k < 784:
                sum += mul(data[i + 50k], value[k])
            value[800 + i] = relu(sum)
"""

from collections.abc import Iterator

from codegen.backends.text import index_text
from codegen.ir.graph import Op, op_name
from codegen.ir.loops import (
    MULTIPLY_ADD,
    WIDENED,
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Let,
    Local,
    Name,
    Nest,
    Place,
    Prefetch,
    Stmt,
    Store,
)

PSEUDO_OPS = {MULTIPLY_ADD: "multiply_add", WIDENED: "widened"}


def kernel_lines(kernel: Kernel) -> Iterator[str]:
    passes = " ".join((flag.name or "").lower() for flag in kernel.passes)
    yield f"kernel {kernel.number} ({passes}): {kernel.roots} roots, %{kernel.nodes[0]} .. %{kernel.nodes[1]}"
    for nest in kernel.nests:
        yield from (f"    {line}" for line in body_lines(nest))


def body_lines(body: Body) -> Iterator[str]:
    for stmt in body:
        yield from statement_lines(stmt)


def statement_lines(stmt: Stmt) -> Iterator[str]:
    match stmt:
        case For():
            always, rest = stmt.halves
            value = f", {stmt.input} = value[{stmt.counter}]" if stmt.input else ""
            near = f", near {', '.join(map(expr_text, stmt.near))}" if stmt.near else ""
            kind = f"unrolled {stmt.kind.value}" if stmt.unrolled else stmt.kind.value
            yield f"{kind} {stmt.counter} < {index_text(Index(stmt.count, stmt.steps))}{value}{near}:"
            yield from (f"    {line}" for line in body_lines(always))
            if rest:
                yield f"    leave the loop where {stmt.counter} = {index_text(Index(stmt.count - 1, stmt.steps))}"
                yield from (f"    {line}" for line in body_lines(rest))
        case Nest():
            yield f"nest of kernel {stmt.number}:"
            yield from (f"    {line}" for line in body_lines(stmt.body))
        case Let():
            value = f"place {index_text(stmt.value)}" if isinstance(stmt.value, Index) else expr_text(stmt.value)
            yield f"let {stmt.name} = {value}"
        case Local():
            yield f"local {stmt.name}[{stmt.length}]" + ("[images]" if stmt.images else "")
        case Prefetch():
            yield f"prefetch {expr_text(stmt.place)} for {stmt.counter} + {stmt.ahead}"
        case Store():
            yield f"{expr_text(stmt.target)} = {expr_text(stmt.value)}"
        case Accumulate():
            target, value = expr_text(stmt.target), expr_text(stmt.value)
            yield f"{target} += {value}" if stmt.op == Op.ADD else f"{target} = {op_name(stmt.op)}({target}, {value})"


def expr_text(expr: Expr) -> str:
    match expr:
        case Place():
            return f"{expr.array}[{index_text(expr.index)}]" + (f"[{expr.image}]" if expr.image else "")
        case Name():
            return expr.name
        case Const():
            return f"{expr.value:g}"
        case Apply():
            name = PSEUDO_OPS[expr.op] if expr.op in PSEUDO_OPS else op_name(expr.op)
            return f"{name}({', '.join(map(expr_text, expr.operands))})"
