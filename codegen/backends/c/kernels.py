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

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

from codegen.backends.c.parameters import (
    BESIDE,
    DENSE_ROWS,
    GROUPS,
    IMAGES,
    ROWS,
    STEPS,
    SUM_GRADIENTS,
    SUMS,
    WORKSPACE,
    Parameters,
    array_lines,
)
from codegen.backends.c.printer import INDENT, Comments, Printer, table_lines
from codegen.backends.expressions import Arithmetic
from codegen.backends.shared import MAX_STATEMENTS, group_name, together
from codegen.backends.text import formulas
from codegen.ir.graph import used_rows
from codegen.ir.loops import (
    DATA,
    ROWS_OF_IMAGES,
    VALUE,
    VALUES,
    Body,
    For,
    Holds,
    Index,
    Kernel,
    Kind,
    Loops,
    Pass,
    Phase,
    all_places,
    applied_to_each,
    is_rolled,
    places,
    statements,
)
from codegen.kinds import Part
from codegen.passes.updates import Updates
from codegen.program import Program
from codegen.reroll.layout import TensorPlace
from codegen.reroll.names import comment
from codegen.schedule.copies import Batch, Scheduled, Span, sent_values
from codegen.schedule.nest import is_copy, result
from codegen.schedule.pipeline import Rerolled
from codegen.schedule.rows import RowTensor
from codegen.schedule.skip_zeros import reads_inputs
from codegen.schedule.tokens import TokenTable
from micrograd import ops
from micrograd.definitions import c_definitions, staged_definitions

ALL_ROWS = "w, 0, w->active_count"
PASSES = {
    "compute_loss": (Pass.LOSS, WORKSPACE),
    "start_row_sums": (Pass.ROW_STARTS, WORKSPACE),
    "add_rows": (Pass.ROW_SUMS, ROWS),
    "add_dense_rows": (Pass.DENSE_ROWS, DENSE_ROWS),
    "add_more_dense_rows": (Pass.MORE_DENSE_ROWS, DENSE_ROWS),
    "compute_after_rows": (Pass.LOSS, WORKSPACE),  # the rest of compute_loss
    "compute_adjoints": (Pass.GRADIENTS, WORKSPACE),
    "compute_gradients": (Pass.DENSE_GRADIENTS, IMAGES),
    "compute_other_gradients": (Pass.DENSE_GRADIENTS, IMAGES),  # besides those of groups
    "compute_from_sums": (Pass.FROM_SUMS, SUMS),
    "add_gradients_of_sums": (Pass.SUM_GRADIENTS, SUM_GRADIENTS),
    "take_steps": (Pass.STEPS, STEPS),
    "compute_prediction": (Pass.PREDICTION, WORKSPACE),
    "compute_outputs": (Pass.OUTPUTS, WORKSPACE),
    "compute_evaluation": (Pass.LOSS | Pass.PREDICTION, WORKSPACE),
    "compute_metrics": (Pass.METRICS, WORKSPACE),
}
ROW_PASSES = Pass.ROW_STARTS | Pass.ROW_SUMS
PREDICTION_PASSES = ("compute_prediction", "compute_outputs")  # of a model that only predicts

# What a batch computes for all of its images, in three phases: once, image by image, side by side.
BATCH_PASSES = {
    "training": Pass.LOSS | Pass.GRADIENTS,
    "evaluation": Pass.LOSS | Pass.PREDICTION,
    "prediction": Pass.PREDICTION,
    "outputs": Pass.OUTPUTS,
}
PHASES = {
    Phase.ONCE: ("once", WORKSPACE),
    Phase.BY_IMAGE: ("by_image", WORKSPACE),
    Phase.SIDE_BY_SIDE: ("side_by_side", BESIDE),
}


@dataclass(frozen=True)
class Call:
    """A generated function, and which passes and which phase of a batch need it."""

    passes: Pass
    name: str
    phase: Phase = Phase.BY_IMAGE

    @property
    def has_rows(self) -> bool:
        """Whether it is a part of sums over active inputs, which training computes before all else."""
        return bool(self.passes & ROW_PASSES) and self.phase == Phase.BY_IMAGE

    def is_in(self, function: str) -> bool:
        """Whether a function of a single image calls it."""
        match function:
            case "start_row_sums" | "add_rows":
                needed = self.has_rows
            case "compute_after_rows":
                needed = not self.has_rows
            case "compute_adjoints":
                needed = not self.passes & Pass.LOSS
            case "compute_other_gradients":
                needed = self.phase != Phase.SIDE_BY_SIDE
            case _:
                needed = True
        return needed and bool(self.passes & PASSES[function][0])


@dataclass
class Functions:
    """The text of functions, and which they are, in the order in which they run."""

    lines: list[str]
    calls: list[Call]  # of single images
    batch_calls: list[Call] = field(default_factory=list)
    group_calls: list[Call] = field(default_factory=list)  # the gradients of groups of images
    sum_calls: list[Call] = field(default_factory=list)  # what follows from sums over their images
    step_calls: list[Call] = field(default_factory=list)  # steps that store no gradient
    dense_calls: list[Call] = field(default_factory=list)  # row sums of a few images


@dataclass
class Kernels:
    """A lowering's result: C functions, and the storage that the wrappers read.

    `narrow` are the functions for levels whose registers hold fewer sums than AVX-512's, if they have their own.
    """

    lowering: str
    definitions: list[str]  # the functions of ops
    tables: list[str]
    functions: Functions
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
    narrow: Functions | None = None
    updates: Updates | None = None  # without, plain gradient descent
    batch: Batch | None = None
    metrics: dict[str, int] = field(default_factory=dict)  # their places in value[], like those
    input_gradients: dict[int, int] = field(default_factory=dict)  # of inputs that have one
    token_tables: list[TokenTable] = field(default_factory=list)
    by_index: tuple[Part, ...] = ()  # the parts whose tokens are stored as numbers
    sent: list[Span] = field(default_factory=list)  # values that processes tell one another
    copied: int = 0  # how many of value[] are copies that single images alone have: see schedule.columns

    @property
    def batch_values(self) -> int:
        """How many numbers of value[] a batch needs of each image."""
        return self.value_count - self.copied

    @property
    def loads_groups(self) -> bool:
        """Whether groups of images take inputs and targets as they come: no kernel and no row runs image by image."""
        passes = BATCH_PASSES["training"] | Pass.DENSE_GRADIENTS
        by_image = any(call.phase == Phase.BY_IMAGE and call.passes & passes for call in self.functions.calls)
        return bool(self.functions.group_calls) and not (by_image or self.row_tensors or self.by_index)

    def value_name(self, index: int) -> str:
        """An index into value[] by its name if it has one."""
        return self._value_names.get(index, str(index))

    @cached_property
    def _value_names(self) -> dict[int, str]:
        return {offset: name for name, offset in self.offsets}


def kernels_of(
    found: Rerolled,
    program: Program,
    wide: Scheduled,
    narrow: Scheduled | None = None,
    updates: Updates | None = None,
    printed: tuple[list[str], list[Call]] | None = None,
) -> Kernels:
    """Scheduled loops as C functions, and the storage that they use.

    wide, narrow   the loops for levels with either kind of registers
    printed        the functions of single images, if they are not those of kernel_functions()
    """
    arithmetic, layout, graph = Arithmetic.of(program), found.layout, found.graph
    loops = _by_parameters(wide)
    others = _by_parameters(narrow) if narrow is not None else {}
    plain = dict.fromkeys(loops, Comments(found.loops)) | {WORKSPACE: Comments(wide.plain)}
    if wide.batch is not None:
        sums = wide.batch.sums
        plain |= {
            GROUPS: Comments(found.loops.with_kernels((*sums.added, *sums.own))),
            SUMS: Comments(found.loops.with_kernels(sums.after)),
        }
    by_hand = [kernel for kernel in found.loops.kernels if kernel.passes == Pass.ROW_GRADIENTS]
    rows = [kernel for kernel in by_hand if result(kernel.nests[0]).index.base in found.rows]
    return Kernels(
        lowering="loops",
        updates=updates,
        definitions=definitions(used_rows(graph), updates, arithmetic),
        tables=table_lines([*loops.values(), *others.values()], arithmetic),
        functions=_functions(loops, plain, arithmetic, printed),
        narrow=_functions(others, plain, arithmetic) if others else None,
        batch=wide.batch,
        offsets=_offsets(found, *loops.values(), *others.values()),
        tensors=layout.tensors,
        tensor_names=[region.name for region in found.loops.regions[DATA]],
        row_tensors=list(found.rows.values()),
        row_comments=[comment(str(formula)) for kernel in rows for formula in formulas(found.loops, kernel)],
        reads_inputs=any(reads_inputs(these) for part, these in loops.items() if part != DENSE_ROWS),
        value_count=wide.single.lengths[VALUE],
        copied=wide.plain.lengths[VALUE] - found.loops.lengths[VALUE],
        data_count=layout.data_count,
        loss=found.place_of(graph.loss),
        outputs={name: [found.place_of(n) for n in nodes] for name, nodes in graph.outputs.items()},
        metrics={name: found.place_of(n) for name, n in graph.metrics.items()},
        input_gradients=found.input_gradients,
        token_tables=found.tokens,
        by_index=found.by_index,
        sent=sent_values(found.loops, found.row_factors, wide.batch),
    )


def _applied(loops: Iterable[Loops]) -> list[ops.Row]:
    """The ops that are applied to many numbers, in the order of the op table."""
    nests = [nest for these in loops for kernel in these.kernels for nest in kernel.nests]
    each = [stmt for nest in nests for stmt in statements(nest) if type(stmt) is For and stmt.kind == Kind.EACH]
    found = {applied_to_each(loop)[0] for loop in each}
    return [ops.row(op) for op in sorted(found)]


def _by_parameters(scheduled: Scheduled) -> dict[Parameters, Loops]:
    """The loops of functions, by what these take."""
    dense = scheduled.dense
    return {
        WORKSPACE: scheduled.single,
        BESIDE: scheduled.beside,
        GROUPS: scheduled.in_groups,
        SUMS: scheduled.from_sums,
        STEPS: scheduled.steps,
        DENSE_ROWS: dense.with_kernels([kernel for kernel in dense.kernels if kernel.phase == Phase.BY_IMAGE]),
    }


def _functions(
    loops: dict[Parameters, Loops],
    plain: dict[Parameters, Comments],
    arithmetic: Arithmetic,
    printed: tuple[list[str], list[Call]] | None = None,
) -> Functions:
    lines = staged_definitions(_applied(loops.values()), arithmetic.literal, arithmetic.is_float32)
    calls: dict[Parameters, list[Call]] = {}
    for parameters, these in loops.items():
        if printed is None or parameters != WORKSPACE:
            text, calls[parameters] = kernel_functions(these, plain[parameters], arithmetic, parameters)
        else:
            text, calls[parameters] = printed
        lines += text
    by_image = [call for call in calls[WORKSPACE] if call.phase != Phase.SIDE_BY_SIDE]
    batch = [*by_image, *calls[BESIDE]]
    return Functions(lines, calls[WORKSPACE], batch, calls[GROUPS], calls[SUMS], calls[STEPS], calls[DENSE_ROWS])


def definitions(rows: Iterable[ops.Row], updates: Updates | None, arithmetic: Arithmetic) -> list[str]:
    """The functions of the ops of kernels and of rules. In a model of floats, steps have their own: see updates.py."""
    graphs = [] if updates is None else [update.each for update in updates.rules]
    if updates is not None and not arithmetic.is_float32:
        graphs += [update.once for update in updates.rules]
    found = {row.number: row for row in [*rows, *used_rows(*graphs)]}
    return c_definitions([row for _, row in sorted(found.items())], arithmetic.literal, arithmetic.is_float32)


def _offsets(found: Rerolled, *printed: Loops) -> list[tuple[str, int]]:
    """Names for places in value[], if anything calls them that: of the steps of a loop over kernels the first has one.

    INPUT and TARGET are always defined, NOISE and LOSS if there are any.
    """
    regions = printed[0].regions[VALUE]
    named = [*found.observed, *found.input_gradients.values(), *(row.factor for row in found.rows.values())]
    named += [place.index.base for loops in printed for place in all_places(loops) if place.array in VALUES]
    starts = {regions.at(base).start for base in named}
    places = {"INPUT": 0, "TARGET": found.layout.target_offset}
    places |= {region.name: region.start for region in regions if region.start in starts or region.holds == Holds.NOISE}
    if found.graph.loss >= 0:
        places.setdefault("LOSS", found.place_of(found.graph.loss))
    return list(places.items())


def kernel_functions(
    loops: Loops, comments: Comments, arithmetic: Arithmetic, parameters: Parameters = WORKSPACE
) -> tuple[list[str], list[Call]]:
    """The kernels as functions; neighbours that the same passes need share one."""
    printer = Printer(loops, arithmetic, comments=comments)
    copies = {kernel.number for kernel in comments.plain.kernels if all(map(is_copy, kernel.nests))}
    lines: list[str] = []
    calls: list[Call] = []
    for kernels in together(loops.kernels):
        passes = kernels[0].passes
        name, takes = _name(kernels, copies, parameters), _takes(passes, parameters)
        body: list[str] = []
        own: list[Body] = []  # nests that are not in functions of their own
        part_numbers = count()
        for kernel in kernels:
            about = ["/* Where sums begin. */"] if passes & Pass.ROW_STARTS else comments[kernel.number]
            body += over_kernels(kernel) or about
            for nest in kernel.nests:
                parts, text = _in_parts(printer, kernel, nest, name, takes, part_numbers)
                lines += parts
                body += text
                own += [] if parts else [nest]
        # What gcc 12 unrolls in functions that it inlined counts as code that never runs: it makes no vectors of it.
        lines += [*takes.head(name, "NOT_INLINED void"), "{", *array_lines(takes, own, arithmetic)]
        lines += [*(INDENT + line for line in body), "}", ""]
        calls.append(Call(passes, name, kernels[0].phase))
    return lines, calls


def _name(kernels: list[Kernel], copies: Container[int], parameters: Parameters) -> str:
    """The name of a function of kernels. `copies`: of columns; their numbers are the last, wherever they stand."""
    numbers = [kernel.number for kernel in kernels]
    numbers = [number for number in numbers if number not in copies] or numbers
    name, passes = group_name(numbers[0], numbers[-1]) + parameters.suffix, kernels[0].passes
    if passes & Pass.ROW_STARTS:
        return f"{name}_start"
    if passes & Pass.ROW_SUMS:
        return f"{name}_rows"
    return f"{name}_of_more" if passes & Pass.MORE_DENSE_ROWS else name


def _takes(passes: Pass, parameters: Parameters) -> Parameters:
    """What kernels of some passes take, among those whose loops are for `parameters`."""
    if passes == Pass.SUM_GRADIENTS:
        return SUM_GRADIENTS
    if passes == Pass.DENSE_GRADIENTS and parameters == WORKSPACE:
        return IMAGES
    return ROWS if passes & Pass.ROW_SUMS else parameters


def _in_parts(
    printer: Printer, kernel: Kernel, nest: Body, name: str, takes: Parameters, numbers: Iterator[int]
) -> tuple[list[str], list[str]]:
    """A nest, with functions for parts of its body, numbered on, if it is a loop over many kernels.

    In one function of them all gcc keeps the sums of lanes in memory.
    """
    loop = nest[0]
    if not is_rolled(nest) or not isinstance(loop, For) or sum(1 for _ in statements(nest)) <= MAX_STATEMENTS:
        return [], printer.nest(kernel, nest)
    arguments = ", ".join([*takes.names, loop.counter])
    functions: list[str] = []
    calls: list[str] = []
    for start, end in _parts(loop):
        body, function = loop.body[start:end], f"{name}_part_{next(numbers)}"
        arrays = array_lines(takes, [body], printer.arithmetic)
        if not _depends_on(body, loop.counter):  # a part that runs once: all but the last of two steps have it
            arrays.append(f"{INDENT}(void){loop.counter};")
        text = [INDENT + line for line in printer.nest(kernel, body)]
        head = takes.followed_by(("ptrdiff_t ", loop.counter)).head(function, "NOT_INLINED void")
        functions += [*head, "{", *arrays, *text, "}", ""]
        calls += printer.end_of_last(loop) if loop.last and start == loop.last else []
        calls.append(f"AT_LEVEL({function})({arguments});")
    return functions, [*printer.loop(loop, calls)]


def _depends_on(body: Body, counter: str) -> bool:
    """Whether an index or a count depends on a counter."""
    counts = [Index(0, stmt.steps) for stmt in statements(body) if type(stmt) is For]
    return any(index.depends_on(counter) for index in (*counts, *(place.index for place in places(body))))


def _parts(loop: For) -> Iterator[tuple[int, int]]:
    """Where parts of the body begin and end that are as long as a function may be. One begins where iterations end."""
    start = size = 0
    for i, stmt in enumerate(loop.body):
        if i > start and (size >= MAX_STATEMENTS or i == loop.last):
            yield start, i
            start, size = i, 0
        size += sum(1 for _ in statements((stmt,)))
    yield start, len(loop.body)


def over_kernels(kernel: Kernel) -> list[str]:
    """The comment of a loop over kernels. Those inside have their own."""
    if not is_rolled(kernel.nests[0]):
        return []
    return [f"/* %{kernel.nodes[0]} .. %{kernel.nodes[1]}, step by step: */"]


def pass_functions(calls: list[Call], names: Iterable[str]) -> list[str]:
    """One function for each pass, which calls the others in order."""
    lines: list[str] = []
    for function in names:
        called = [call for call in calls if call.is_in(function)]
        if called or not PASSES[function][0] & ROWS_OF_IMAGES:  # which few modules have, and not at all levels
            lines += _calling(function, PASSES[function][1], called)
    return lines


def batch_passes_of(program: Program) -> list[str]:
    """The passes over a batch that a module has."""
    needs = {
        "training": program.loss is not None,
        "evaluation": program.loss is not None,
        "prediction": program.prediction is not None,
        "outputs": bool(program.outputs),
    }
    return [name for name in BATCH_PASSES if needs[name]]


def batch_functions(functions: Functions, batch: Batch | None, names: Iterable[str]) -> list[str]:
    """The phases of each pass over a batch, as functions, and a table of them; NULL where there is nothing to do. Then
    the gradients of groups of images, if there are any."""
    calls, groups = functions.batch_calls, functions.group_calls
    lines = _calling("compute_group_gradients", GROUPS, groups) if groups else []
    for name in names if batch is not None else ():
        entries = []
        for phase, (title, parameters) in PHASES.items():
            phases = (phase, Phase.SUMMED) if phase == Phase.SIDE_BY_SIDE else (phase,)
            called = [c for c in calls if c.phase in phases and c.passes & BATCH_PASSES[name]]
            if name == "training" or functions.dense_calls:  # whose sums are there before: sum_rows() in passes.h
                called = [call for call in called if not call.has_rows]
            entries.append(f"AT_LEVEL({name}_{title})" if called else "NULL")
            lines += _calling(f"{name}_{title}", parameters, called) if called else []
        head = f"static const struct batch_passes AT_LEVEL({name}_passes) = {{"
        lines += [head, INDENT + ", ".join(entries), "};", ""]
    if functions.sum_calls:
        called = [c for c in calls if c.phase == Phase.SIDE_BY_SIDE and c.passes & BATCH_PASSES["training"]]
        lines += _calling("training_in_groups", BESIDE, called)
    return lines


def _calling(function: str, parameters: Parameters, called: list[Call]) -> list[str]:
    """A function that passes its arguments on to others."""
    some = ", ".join(parameters.names)
    rows = ALL_ROWS if parameters == WORKSPACE else some
    body = [f"{INDENT}AT_LEVEL({c.name})({rows if c.passes & Pass.ROW_SUMS else some});" for c in called]
    unused = [] if body else [f"{INDENT}(void){name};" for name in parameters.names]
    return [*parameters.head(function), "{", *body, *unused, "}", ""]
