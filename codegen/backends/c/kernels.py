"""Scheduled loops -> C functions, and one function for each pass that calls those that it needs.

Example: the kernel

    for k < 50:
        let x = value[800 + k]
        lanes i < 12:
            sum[i] += mul(data[39256 + i + 12k], x)

is printed as

    for (ptrdiff_t k = 0; k < 50; k++) {
        const double x = value[GROUP_0 + k];
        for (ptrdiff_t i = 0; i < 12; i++)
            sum[i] += data[P_LAYERS_1_WEIGHT + i + 12 * k] * x;
    }

The passes in `schedule` take all decisions; this only prints them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.expressions import PRIMARY, Bound, apply_text, index_text
from codegen.backends.shared import together
from codegen.backends.text import formulas, summary
from codegen.ir.graph import Op, used_rows
from codegen.ir.loops import (
    DATA,
    MULTIPLY_ADD,
    VALUE,
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Pass,
    Place,
    Stmt,
    Store,
    statements,
    uses,
)
from codegen.program import Program
from codegen.reroll.layout import TensorPlace
from codegen.schedule.pipeline import Rerolled
from codegen.schedule.rows import RowTensor
from codegen.schedule.skip_zeros import reads_inputs
from micrograd import ops
from micrograd.definitions import c_definitions, lane_template

MAX_COMMENT = 112
INDENT = "    "

WORKSPACE = "struct workspace *restrict w"
IMAGES = "const struct workspace *images, int count, int part, int parts"
PASSES = {
    "compute_loss": (Pass.LOSS, WORKSPACE),
    "compute_adjoints": (Pass.GRADIENTS, WORKSPACE),
    "compute_gradients": (Pass.DENSE_GRADIENTS, IMAGES),
    "compute_prediction": (Pass.PREDICTION, WORKSPACE),
    "compute_outputs": (Pass.OUTPUTS, WORKSPACE),
    "compute_evaluation": (Pass.LOSS | Pass.PREDICTION, WORKSPACE),
}
PREDICTION_PASSES = ("compute_prediction", "compute_outputs")  # of a model that only predicts


@dataclass
class Kernels:
    """A lowering's result: C functions, and the storage that the wrappers read.

    `calls` lists the functions in the order in which they run, each with the passes that need it.
    """

    lowering: str
    definitions: list[str]  # the functions of ops
    tables: list[str]
    functions: list[str]
    calls: list[tuple[Pass, str]]
    offsets: list[tuple[str, int]]  # names for indices into value[]
    tensors: list[TensorPlace]
    tensor_names: list[str]
    row_tensors: list[RowTensor]
    reads_inputs: bool  # from value[], besides those of row tensors
    value_count: int
    data_count: int
    loss: int
    outputs: dict[str, list[int]]
    row_comments: list[str] = field(default_factory=list)  # the groups that are the gradients of row tensors

    def value_name(self, index: int) -> str:
        """An index into value[] by its name if it has one."""
        return {offset: name for name, offset in self.offsets}.get(index, str(index))


def kernels_of(found: Rerolled, scheduled: Loops, program: Program) -> Kernels:
    """Scheduled loops as C functions, and the storage that they use."""
    arithmetic, layout, graph = Arithmetic.of(program), found.layout, found.graph
    functions, calls = kernel_functions(scheduled, found.loops, arithmetic)
    rows = [kernel for kernel in found.loops.kernels if kernel.passes == Pass.ROW_GRADIENTS]
    return Kernels(
        lowering="loops",
        definitions=c_definitions(used_rows(graph), arithmetic.literal, arithmetic.is_float32),
        tables=table_lines(scheduled, arithmetic),
        functions=functions,
        calls=calls,
        offsets=_offsets(found),
        tensors=layout.tensors,
        tensor_names=[region.name for region in scheduled.regions[DATA]],
        row_tensors=list(found.rows.values()),
        row_comments=[str(formula) for kernel in rows for formula in formulas(found.loops, kernel)],
        reads_inputs=reads_inputs(scheduled),
        value_count=layout.value_count,
        data_count=layout.data_count,
        loss=found.place_of(graph.loss),
        outputs={name: [found.place_of(n) for n in nodes] for name, nodes in graph.outputs.items()},
    )


def _offsets(found: Rerolled) -> list[tuple[str, int]]:
    """Names for places in value[]. INPUT and TARGET are always defined, LOSS if the graph has one."""
    places = {"INPUT": 0, "TARGET": found.layout.target_offset}
    places |= {region.name: region.start for region in found.loops.regions[VALUE]}
    if found.graph.loss >= 0:
        places.setdefault("LOSS", found.place_of(found.graph.loss))
    return list(places.items())


def kernel_functions(loops: Loops, plain: Loops, arithmetic: Arithmetic) -> tuple[list[str], list[tuple[Pass, str]]]:
    """The kernels as functions; neighbours that the same passes need share one. `plain`: as reroll made them."""
    printer = _Printer(loops, arithmetic)
    plain_kernels = {kernel.number: kernel for kernel in plain.kernels}
    lines: list[str] = []
    calls: list[tuple[Pass, str]] = []
    for kernels in together(loops.kernels):
        first, last, passes = kernels[0].number, kernels[-1].number, kernels[0].passes
        name = f"group_{first}" if first == last else f"groups_{first}_to_{last}"
        takes_images = passes == Pass.DENSE_GRADIENTS
        lines += [f"static void AT_LEVEL({name})({IMAGES if takes_images else WORKSPACE})", "{"]
        uses_values = any(uses(nest, VALUE) for kernel in kernels for nest in kernel.nests)
        if not takes_images:
            value = f"{arithmetic.type} *restrict const value = w->value;" if uses_values else "(void)w;"
            lines.append(f"{INDENT}{value}")
        elif not uses_values:
            lines.append(f"{INDENT}(void)images;")
        for kernel in kernels:
            lines += [INDENT + line for line in _comment(plain, plain_kernels[kernel.number])]
            for nest in kernel.nests:
                lines += [INDENT + line for line in printer.nest(kernel, nest)]
        lines += ["}", ""]
        calls.append((passes, name))
    return lines, calls


def _comment(plain: Loops, kernel: Kernel) -> list[str]:
    """What a kernel computes, as a formula, and the nodes of the graph."""
    nodes = f"%{kernel.nodes[0]}" + (f" .. %{kernel.nodes[1]}" if kernel.roots > 1 else "")
    text = f"{summary(plain, kernel)}: {nodes}".replace("*/", "* /").replace("/*", "/ *")
    if len(text) <= MAX_COMMENT:
        return [f"/* {text} */"]
    lines = textwrap.wrap(text, MAX_COMMENT, break_long_words=False, break_on_hyphens=False)
    return [f"/* {lines[0]}", *(f" * {line}" for line in lines[1:-1]), f" * {lines[-1]} */"]


def pass_functions(calls: list[tuple[Pass, str]], names: Iterable[str] = PASSES) -> list[str]:
    """One function for each pass, which calls the others in order."""
    lines: list[str] = []
    for function in names:
        passes, parameters = PASSES[function]
        skip = Pass.LOSS if passes == Pass.GRADIENTS else Pass(0)  # forward() has computed these
        arguments = [part.split()[-1].lstrip("*") for part in parameters.split(",")]
        listed = ", ".join(arguments)
        body = [f"{INDENT}AT_LEVEL({name})({listed});" for has, name in calls if has & passes and not has & skip]
        unused = [] if body else [f"{INDENT}(void){name};" for name in arguments]
        lines += [f"static void AT_LEVEL({function})({parameters})", "{", *body, *unused, "}", ""]
    return lines


def table_lines(loops: Loops, arithmetic: Arithmetic) -> list[str]:
    """The tables that kernels look up: indices, or constants."""
    lines = []
    for name, numbers in loops.tables.items():
        is_index = all(isinstance(x, int) for x in numbers)
        values = [str(x) if is_index else arithmetic.literal(x) for x in numbers]
        rows = [f"{INDENT}{', '.join(values[i : i + 8])}," for i in range(0, len(values), 8)]
        lines += [f"TABLE {'int32_t' if is_index else arithmetic.type} {name}[{len(values)}] = {{", *rows, "};"]
    return lines


class _Printer:
    """Statements as lines of C."""

    def __init__(self, loops: Loops, arithmetic: Arithmetic) -> None:
        self.loops, self.arithmetic = loops, arithmetic
        self.kernel = loops.kernels[0] if loops.kernels else None
        self.in_lanes = False
        self.variables: set[str] = set()  # names that are assigned to

    def nest(self, kernel: Kernel, nest: Body) -> list[str]:
        self.kernel = kernel
        self.variables = {
            stmt.target.name
            for stmt in statements(nest)
            if isinstance(stmt, Store | Accumulate) and isinstance(stmt.target, Name)
        }
        lines = [*self.body(nest)]
        if any(isinstance(stmt, Let | Local) for stmt in nest):
            lines = ["{", *(INDENT + line for line in lines), "}"]
        return [*lines, "STORE_BARRIER;"]

    def body(self, body: Body) -> Iterator[str]:
        for stmt in body:
            yield from self.statement(stmt)

    def statement(self, stmt: Stmt) -> Iterator[str]:
        match stmt:
            case For():
                yield from self.loop(stmt)
            case Let():
                assert not isinstance(stmt.value, Index)
                const = "" if stmt.name in self.variables else "const "
                yield f"{const}{self.arithmetic.type} {stmt.name} = {self.expr(stmt.value)[0]};"
            case Local():
                yield f"{self.arithmetic.type} {stmt.name}[{stmt.length}];"
            case Store():
                yield f"{self.expr(stmt.target)[0]} = {self.expr(stmt.value)[0]};"
            case Accumulate():
                target = self.expr(stmt.target)[0]
                if stmt.op == Op.ADD:
                    yield f"{target} += {self.expr(stmt.value)[0]};"
                else:
                    yield f"{target} = {self.expr(Apply(stmt.op, (stmt.target, stmt.value)))[0]};"

    def loop(self, loop: For) -> Iterator[str]:
        counter, count = loop.counter, loop.count
        head = [f"for (ptrdiff_t {counter} = 0; {counter} < {count}; {counter}++)"]
        inside: list[str] = []
        match loop.kind:
            case Kind.ACTIVE:
                head = ["for (int a = 0; a < w->active_count; a++)"]
                inside = [f"const ptrdiff_t {counter} = w->active[a];"]
                inside.append(f"const {self.arithmetic.type} {loop.input} = w->active_value[a];")
            case Kind.IMAGES:
                head = [f"for (int {counter} = 0; {counter} < count; {counter}++)"]
                if uses(loop.body, VALUE):
                    inside = [f"const {self.arithmetic.type} *restrict const value = images[{counter}].value;"]
            case Kind.VECTORS:
                head = ["NOT_UNROLLED", *head]
            case Kind.IN_ORDER:
                inside = ["NOT_VECTORISED;"]
            case Kind.PARALLEL if count == 1:
                assert self.kernel is not None
                head = [f"if (part == {self.kernel.number} % parts)"]
            case Kind.PARALLEL:
                end = f"{count} * (part + 1) / parts"
                head = [f"for (ptrdiff_t {counter} = {count} * part / parts; {counter} < {end}; {counter}++)"]
        around, self.in_lanes = self.in_lanes, loop.kind in (Kind.LANES, Kind.VECTORS)
        lines = [*inside, *self.body(loop.body)]
        self.in_lanes = around
        if len(lines) == 1:
            yield from [*head, INDENT + lines[0]]
        else:
            yield from [*head[:-1], f"{head[-1]} {{", *(INDENT + line for line in lines), "}"]

    def expr(self, expr: Expr) -> Bound:
        match expr:
            case Place():
                return f"{expr.array}[{index_text(self.loops, expr.array, expr.index)}]", PRIMARY
            case Name():
                return expr.name, PRIMARY
            case Const():
                return self.arithmetic.literal(expr.value), PRIMARY
        operands = [self.expr(operand) for operand in expr.operands]
        return apply_text(expr.op, operands, self.template(expr.op))

    def template(self, op: int) -> str:
        if op == MULTIPLY_ADD:
            return "MULTIPLY_ADD({}, {}, {})"
        return lane_template(ops.row(op), self.arithmetic.is_float32) if self.in_lanes else ops.C[op]
