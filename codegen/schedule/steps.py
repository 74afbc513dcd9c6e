"""The gradients of one image -> steps of gradient descent, which store no gradient.

Example input:

    for i < 64:
        for j < 32:
            grad[40 + 32i + j] += mul(value[i], value[80 + j])

becomes, with the passes of all other kernels in between:

    parallel i < 64:
        let x = value[i]
        lanes j < 32:
            data[40 + 32i + j] += mul(add(0, mul(x, value[80 + j])), step[0])

where step[0] is minus the learning rate: in a batch of one image, the parameter has the bits of p - rate * gradient. A
dense layer has as many parameters as an image has products, so to clear, write, and read gradients takes as long as all
else that a single image needs.

This requires that no gradient reads another parameter than its own. Where a gradient has many terms that no loop adds,
it stays: its terms take the time then, and C compilers minutes, for what would be there twice. Run-time code computes
the gradients of row tensors and of tables of tokens: see csrc/rows.h and tokens.h.
"""

from dataclasses import replace

from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    GRAD,
    STEP,
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Let,
    Loops,
    Name,
    Nest,
    Pass,
    Place,
    Stmt,
    Store,
    map_body,
    reads,
    statements,
)
from codegen.schedule.nest import around, result, roots_and_body

MOST_TERMS = 16  # that no loop adds
SUM = "sum"
RATE = Place(STEP, Index(0))


def gradients_from_zero(loops: Loops) -> Loops:
    """The gradients of one image as sums that begin with 0; no kernels if one of them must be stored."""
    gradients = [kernel for kernel in loops.kernels if kernel.passes & Pass.DENSE_GRADIENTS]
    if not all(_can_step(kernel) for kernel in gradients):
        gradients = []
    return loops.with_kernels(
        [replace(kernel.with_nests(tuple(map(_from_zero, kernel.nests))), passes=Pass.STEPS) for kernel in gradients]
    )


def _can_step(kernel: Kernel) -> bool:
    """Whether gradients of few terms are all that is computed, and read no other parameters than their own."""
    return kernel.passes == Pass.DENSE_GRADIENTS and all(
        sum(isinstance(stmt, Accumulate) for stmt in statements(nest)) <= MOST_TERMS
        and all(
            place.index == result(nest).index
            for stmt in statements(nest)
            for place in reads(stmt)
            if place.array == DATA
        )
        for nest in kernel.nests
    )


def _from_zero(nest: Body) -> Body:
    found, body = roots_and_body(nest)
    place = result(nest)

    def to_sum(expr: Expr) -> Expr:
        return Name(SUM) if expr == place else expr

    terms = map_body(body, to_sum)
    return around(found, (Let(SUM, Const(0.0)), *terms, Store(place, Name(SUM))))


def take_steps(loops: Loops) -> Loops:
    """Adds gradients to parameters, times minus the rate, instead of storing them."""
    return loops.with_kernels([kernel.with_nests(tuple(map(_with_steps, kernel.nests))) for kernel in loops.kernels])


def _with_steps(body: Body) -> Body:
    return tuple(map(_stepping, body))


def _stepping(stmt: Stmt) -> Stmt:
    match stmt:
        case For() | Nest():
            return stmt.with_body(_with_steps(stmt.body))
        case Store(Place(array) as target, gradient) if array == GRAD:
            return Accumulate(replace(target, array=DATA), Op.ADD, Apply(Op.MUL, (gradient, RATE)))
    return stmt
