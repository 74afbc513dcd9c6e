"""Scheduled loops -> the kernels of plain C that trains, and the functions that call them.

Example: a loop over active inputs is printed as

    for (ptrdiff_t k = 0; k < 784; k++) {
        const real x_k = value[INPUT + k];
        if (x_k == 0 && !w->nonfinite)
            continue;
        for (ptrdiff_t i = 0; i < 50; i++)
            sum[i] += data[P_LAYERS_0_WEIGHT + i + 50 * k] * x_k;
    }

and the loop over the rows of a gradient in the same way, with the condition that no factor is inf or nan. Without lists
of active inputs and rows that are computed later, a model needs little memory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from codegen.backends.c.kernels import Call, over_kernels
from codegen.backends.c.printer import INDENT, Comments, Printer
from codegen.backends.expressions import Arithmetic
from codegen.backends.shared import group_name, together
from codegen.ir.loops import (
    DATA,
    GRAD,
    VALUE,
    Body,
    Expr,
    For,
    Kernel,
    Kind,
    Loops,
    Name,
    Pass,
    Place,
    has_loop,
    is_rolled,
    map_body,
    statements,
    uses,
)
from codegen.schedule.gradients import keep_in_registers
from codegen.schedule.hoist import hoist
from codegen.schedule.lanes import split_into_lanes
from codegen.schedule.marks import keep_order
from codegen.schedule.nest import result, root_loops
from codegen.schedule.pipeline import Rerolled
from codegen.schedule.roll import roll
from codegen.schedule.rows import RowTensor, is_input
from codegen.schedule.skip_zeros import skip_zeros
from codegen.schedule.target import Target
from codegen.schedule.tile import tile_lanes
from codegen.schedule.unroll import unroll

# Of the functions that a model's own ones call: the passes of their kernels.
PASSES = {
    "compute_loss": Pass.LOSS,
    "compute_gradients": Pass.GRADIENTS | Pass.DENSE_GRADIENTS,
    "compute_prediction": Pass.PREDICTION,
    "compute_outputs": Pass.OUTPUTS,
    "compute_gradients_by_inputs": Pass.METRICS,
}


def plain_loops(found: Rerolled, target: Target) -> Loops:
    """The loops as plain C runs them: one image at a time, and all gradients by loops."""
    loops = found.loops.with_kernels([_gradients(kernel, found) for kernel in found.loops.kernels])
    loops = unroll(skip_zeros(loops, found.rows))
    loops = loops.with_kernels([_in_registers(loops, kernel) for kernel in loops.kernels])
    loops = split_into_lanes(loops)
    loops = keep_order(hoist(tile_lanes(loops, target)))
    rolled = roll(loops)  # time steps and blocks
    return (
        loops if any(is_rolled(nest) and has_loop([nest], Kind.ACTIVE) for nest in _gradient_nests(rolled)) else rolled
    )


def _gradient_nests(loops: Loops) -> Iterator[Body]:
    return (nest for kernel in loops.kernels if kernel.is_gradient for nest in kernel.nests)


def _gradients(kernel: Kernel, found: Rerolled) -> Kernel:
    """The gradients of row tensors as a loop over active inputs."""
    if kernel.passes != Pass.ROW_GRADIENTS:
        return kernel
    kernel = replace(kernel, passes=Pass.DENSE_GRADIENTS)
    return kernel.with_nests(tuple([_active_rows(nest, found) for nest in kernel.nests]))


def _in_registers(loops: Loops, kernel: Kernel) -> Kernel:
    """With the gradients of several terms in registers; one term gains nothing by it without images."""
    if not any(_terms(nest) > 1 for nest in kernel.nests):
        return kernel
    return keep_in_registers(loops.with_kernels([kernel])).kernels[0]


def _terms(nest: Body) -> int:
    """How many statements and loops over terms there are inside of the loops over roots."""
    roots = root_loops(nest)
    return sum(1 for _ in statements(roots[-1].body if roots else nest))


def _active_rows(nest: Body, found: Rerolled) -> Body:
    (rows,) = nest
    assert isinstance(rows, For)
    name = f"x_{rows.counter}"

    def change(expr: Expr) -> Expr:
        is_factor = type(expr) is Place and is_input(expr, found.loops)
        return Name(name) if is_factor else expr

    return (For(rows.counter, rows.count, map_body(rows.body, change), Kind.ACTIVE, name),)


def plain_functions(loops: Loops, found: Rerolled, arithmetic: Arithmetic) -> tuple[list[str], list[Call]]:
    """The kernels as functions of the model."""
    comments = Comments(found.loops)
    printer = _Printer(loops, arithmetic, found.rows, comments)
    lines: list[str] = []
    calls: list[Call] = []
    for kernels in together(loops.kernels):
        name = group_name(kernels[0].number, kernels[-1].number)
        lines += [f"static void {name}(struct MODEL *w)", "{", *_arrays(kernels)]
        for kernel in kernels:
            lines += [INDENT + line for line in (over_kernels(kernel) or comments[kernel.number])]
            for nest in kernel.nests:
                lines += [INDENT + line for line in printer.nest(kernel, nest)]
        lines += ["}", ""]
        calls.append(Call(kernels[0].passes, name))
    return lines, calls


def _arrays(kernels: list[Kernel]) -> Iterator[str]:
    """data[], grad[] and value[] of a function."""
    bodies = [nest for kernel in kernels for nest in kernel.nests]
    for array, const in ((DATA, "const "), (GRAD, ""), (VALUE, "")):
        if any(uses(body, array) for body in bodies):
            yield f"{INDENT}{const}real *restrict const {array} = w->{array};"


def pass_functions(calls: list[Call], names: list[str]) -> list[str]:
    lines: list[str] = []
    for name in names:
        without = Pass.LOSS if name == "compute_gradients" else Pass(0)  # which forward() has computed
        called = [call.name for call in calls if call.passes & PASSES[name] and not call.passes & without]
        body = [f"{INDENT}{function}(w);" for function in called] or [f"{INDENT}(void)w;"]
        lines += [f"static void {name}(struct MODEL *w)", "{", *body, "}", ""]
    return lines


class _Printer(Printer):
    def __init__(self, loops: Loops, arithmetic: Arithmetic, rows: dict[int, RowTensor], comments: Comments) -> None:
        super().__init__(loops, arithmetic, comments=comments)
        self.rows = rows

    def nest(self, kernel: Kernel, nest: Body) -> list[str]:
        lines = super().nest(kernel, nest)
        if not (kernel.is_gradient and has_loop([nest], Kind.ACTIVE)):
            return lines
        row = self.rows[result(nest).index.base]
        skips = f"const int skips = all_finite(value + {row.factor}, {row.lanes});"
        return ["{", INDENT + skips, *(INDENT + line for line in lines), "}"]

    def loop(self, loop: For, instead: Iterable[str] = ()) -> Iterator[str]:
        if loop.kind != Kind.ACTIVE:
            yield from super().loop(loop, instead)
            return
        assert self.kernel is not None
        skips = "skips" if self.kernel.is_gradient else "!w->nonfinite"
        yield f"for (ptrdiff_t {loop.counter} = 0; {loop.counter} < {loop.count}; {loop.counter}++) {{"
        yield f"{INDENT}const {self.arithmetic.type} {loop.input} = value[INPUT + {loop.counter}];"
        yield f"{INDENT}if ({loop.input} == 0 && {skips})"
        yield f"{INDENT * 2}continue;"
        body = loop.body if self.kernel.is_gradient else self.by_rows(loop.body)
        yield from (INDENT + line for line in self.body(body))
        yield "}"
