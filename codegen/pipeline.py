"""The compiler, pass by pass."""

import gc
import hashlib
import keyword
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from codegen import checks
from codegen.backends.c.inference import inference_files, scales_of
from codegen.backends.c.kernels import kernels_of
from codegen.backends.c.module import module_files
from codegen.backends.c.plain_kernels import plain_functions, plain_loops
from codegen.backends.c.standalone import standalone_files
from codegen.backends.c.straightline import straightline
from codegen.backends.c.trainable import trainable_files, trained_program
from codegen.backends.expressions import Arithmetic
from codegen.backends.python.module import check_strict, is_small, loop_kernels, module_text, statement_kernels
from codegen.backends.text import explanation, in_batches, work
from codegen.backends.updates import explanation as update_explanation
from codegen.ir.graph import Graph, Op, graph_text, used_rows, verify
from codegen.ir.loops import Loops
from codegen.kinds import MAX_VOCABULARY, Part
from codegen.passes.autodiff import add_output_gradients, checked_output, differentiate
from codegen.passes.mistakes import expect_program, warn_of_mistakes
from codegen.passes.padding import store_padding
from codegen.passes.powers import expand_powers
from codegen.passes.short_sums import mark_short_sums
from codegen.passes.simplify import simplify
from codegen.passes.trace import trace
from codegen.passes.updates import Updates, updates_of
from codegen.program import Program
from codegen.reroll.groups import find_groups
from codegen.reroll.layout import declared_order
from codegen.reroll.loops import find_loops
from codegen.reroll.names import DEVICES, HEADERS
from codegen.reroll.storage import assign_storage
from codegen.reroll.trees import find_trees
from codegen.schedule.columns import copy_columns_of_gradients
from codegen.schedule.copies import NO_LOOPS, Batch, Scheduled, plan_batch
from codegen.schedule.phases import with_phases
from codegen.schedule.pipeline import (
    Rerolled,
    batch_passes,
    beside_passes,
    c_passes,
    dense_passes,
    gradient_passes,
    group_passes,
    python_passes,
    schedule,
    single_images,
    step_passes,
    sum_passes,
)
from codegen.schedule.rows import find_row_tensors, mark_row_gradients
from codegen.schedule.sums_of_images import find_sums
from codegen.schedule.target import NARROW, WIDE, Registers, Target
from codegen.schedule.tokens import TokenTable, read_by_index
from micrograd import __version__, ops
from micrograd.definitions import python_definitions
from micrograd.engine import Value
from micrograd.translate import source_of

TARGETS = ("extension", "python", "c")

MAX_NAME = 100  # of a module: files have longer names


@dataclass(repr=False)
class Compiled:
    """A program's final ir and its generated files, by name.

    `found` are the loops as reroll makes them, `loops` as the target has them, `batch` those of batches, which only an
    extension has: it has all of them once for wide registers and once for narrow ones. The straight-line lowering has
    no loops.
    """

    graph: Graph
    digest: str
    lowering: str
    found: Rerolled | None = None
    wide: Scheduled | None = None
    narrow: Scheduled | None = None
    updates: Updates | None = None
    tensors: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        files = ", ".join(f"{name} ({text.count(chr(10))} lines)" for name, text in self.files.items())
        return f"<codegen.Compiled: {len(self.graph):,} nodes, {self.lowering}, {files}>"

    @property
    def loops(self) -> Loops | None:
        return self.wide.single if self.wide is not None else None

    @property
    def batch(self) -> Batch | None:
        return self.wide.batch if self.wide is not None else None

    @property
    def plain(self) -> Loops:
        """The loops as reroll makes them, one root and one term after the other. Raises ValueError without loops."""
        if self.found is None:
            raise ValueError("straight-line code has no loops: compile with lowering='loops'")
        return self.found.loops

    @property
    def text(self) -> str:
        """The text of all files, one after the other."""
        return "".join(self.files.values())

    def explanation(self) -> str:
        """Every group as an assignment, then how much of the work is in loops. Raises ValueError if there are none."""
        summary = [in_batches(self.batch), str(work(self.plain, len(self.graph)))]
        steps = update_explanation(self.updates, self.tensors) if self.updates is not None else []
        return "\n".join([*explanation(self.plain, self.batch), *steps, *summary])


def compile_program(
    program: Program,
    name: str = "nn",
    lowering: str | None = None,
    target: str = "extension",
    *,
    version: str = __version__,
    gradients_of: str | None = None,
) -> Compiled:
    """Value graph in, source files out.

    target    "extension": NAME.c, NAME_kernels.h and NAME_kernels_narrow.h, a Python module in C
              "python":    NAME.py, the same functions without a compiler, in strict float64 only
              "c":         NAME.h and NAME.c, plain C11: it trains if the Program has a loss, and only predicts without
    lowering  "loops", or "straightline" for one statement a node; default: loops, except for small models in Python
    version   of the package that the module belongs to
    gradients_of   of plain C that trains: an output whose gradients by the inputs it computes too

    Raises ValueError for an unknown target or lowering, for a name that the target cannot use, and for a Program that
    the target cannot express.
    """
    expect_program(program, "compile_program")
    target = checks.choice("target", target, TARGETS)
    lowering = checked_lowering(lowering)
    name = checked_name(name, target)
    version = checks.name("the version", version)
    program.check()
    if target == "python":
        check_strict(program)
    if target == "c" and program.loss is not None:
        if lowering == "straightline":
            raise ValueError("plain C that trains has loops: lowering must be 'loops' or None, got 'straightline'")
        program = trained_program(program)
    if program.storage and program.loss is None and (target == "python" or lowering == "straightline"):
        raise ValueError(f"storage={program.storage!r} is for a module or plain C, with loops")
    if gradients_of is not None:
        if target != "c" or program.loss is None:
            raise ValueError("gradients_of is for plain C that trains: target='c' and a Program with a loss")
        gradients_of = checked_output(program, gradients_of)
    with no_garbage_collection():
        graph = traced(program)
        forward = len(graph)
        if gradients_of is not None:
            program = add_output_gradients(graph, program, gradients_of)
        return compile_traced(graph, program, name, lowering, target, version, forward=forward)


def traced(program: Program) -> Graph:
    """The forward graph of a Program that has been checked against it. Warns about what looks like a mistake."""
    undeclared: list[Value] = []
    graph = trace(program, undeclared)
    _check_outputs(graph, program)
    warn_of_mistakes(program, graph, undeclared)
    return graph


def compile_traced(
    graph: Graph,
    program: Program,
    name: str,
    lowering: str | None,
    target: str,
    version: str = __version__,
    registers: Sequence[Registers] = (),
    forward: int | None = None,
) -> Compiled:
    """The forward graph of a Program in, which becomes the whole one; source files out.

    `registers`: of the kernels; default: what the target needs. `forward`: how many nodes are before those of gradients
    of outputs; default: all.
    """
    if not registers:  # plain C: those of most processors
        registers = {"extension": (WIDE, NARROW), "python": (WIDE,), "c": (NARROW,)}[target]
    with no_garbage_collection():
        updates = updates_of(program)  # the rules of micrograd.optim -> ir
        *_, (_, graph) = later_passes(graph, program, forward)
        digest = graph_digest(graph, updates)
        if lowering is None:
            lowering = "straightline" if target == "python" and is_small(program, graph) else "loops"
        if lowering == "straightline":
            compiled = Compiled(graph, digest, lowering, updates=updates)
        else:
            by_index = token_parts(program) if target == "extension" else ()
            cache_line = Target.of(program).cache_line if target == "extension" else 1  # else rows have no padding
            found = reroll(graph, program, cache_line, by_index)  # -> plain loops
            compiled = Compiled(graph, digest, lowering, found, updates=updates)
            loops = [scheduled(found, program, target, kind, updates) for kind in registers]  # -> loops as they run
            compiled.wide, compiled.narrow = loops[0], loops[1] if len(loops) > 1 else None
        compiled.tensors = tuple([tensor.name for tensor in program.tensors])
        compiled.files = write(compiled, program, name, target, version)  # -> text
    return compiled


def scheduled(
    found: Rerolled, program: Program, target: str, registers: Registers, updates: Updates | None
) -> Scheduled:
    """The loops as a target runs them."""
    to = Target.of(program).at(registers)
    if target == "python":
        return Scheduled(found.loops, schedule(found, python_passes(found)))
    if target == "c":
        if program.loss is not None:
            return Scheduled(found.loops, plain_loops(found, to))
        scales = scales_of(program, found.layout.tensors) if program.storage is not None else None
        return Scheduled(found.loops, schedule(found, c_passes(found, to, scales=scales)))
    batch = batch_of(found, to)
    phases = batch.phases if batch is not None else {}
    single = single_images(found, to, phases)
    loops = Scheduled(
        plain=single.loops,
        single=schedule(single, c_passes(single, to, in_module=True)),
        steps=steps_of(found, program, to, updates),
        dense=with_phases(dense_rows_of(found, program, to), phases),
    )
    if batch is None:
        return loops
    return replace(
        loops,
        batch=batch,
        beside=schedule(replace(found, loops=batch.loops), beside_passes(to, batch.sums)),
        in_groups=schedule(replace(found, loops=batch.gradients), group_passes()),
        from_sums=schedule(found.with_kernels(batch.sums.after), sum_passes(found, to)),
    )


def write(compiled: Compiled, program: Program, name: str, target: str, version: str) -> dict[str, str]:
    """The text of each file of a target."""
    graph, found, digest, updates = compiled.graph, compiled.found, compiled.digest, compiled.updates
    wide = compiled.wide
    if target == "python":
        written = (
            loop_kernels(found, wide.single, updates) if found and wide else statement_kernels(graph, program, updates)
        )
        rows = used_rows(graph, *(updates.graphs() if updates is not None else ()))
        return {f"{name}.py": module_text(program, written, name, version, digest, python_definitions(rows))}
    if found is None or wide is None:
        kernels = straightline(trace(program), program, updates)
    elif target == "c" and program.loss is not None:
        printed = plain_functions(wide.single, found, Arithmetic.of(program))
        return trainable_files(program, kernels_of(found, program, wide, None, updates, printed), name, digest)
    else:
        kernels = kernels_of(found, program, wide, compiled.narrow, updates)
    if target == "c":
        return standalone_files(program, kernels, name, digest)
    print_files = module_files if program.loss is not None else inference_files
    return print_files(program, kernels, name, version, digest, len(graph))


def checked_lowering(lowering: str | None) -> str | None:
    """The lowering as a plain string, or None. Raises TypeError or ValueError for any other."""
    if lowering is None:
        return None
    if not isinstance(lowering, str):
        raise TypeError(f"lowering must be a string or None, not {checks.shown(lowering)}")
    if lowering not in ("loops", "straightline"):
        raise ValueError(f"lowering must be 'loops' or 'straightline', got {checks.shown(lowering)}")
    return str.__str__(lowering)


def checked_name(name: str, target: str) -> str:
    """The name of a module as a plain string. Raises ValueError for one that its files or its import cannot have."""
    if not isinstance(name, str):
        raise TypeError(f"a module's name must be a string, not {type(name).__name__}")
    name = str.__str__(name)
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise ValueError(f"a module's name must be an ASCII identifier that is not a keyword, got {checks.shown(name)}")
    if len(name) > MAX_NAME:
        raise ValueError(f"a module's name must have at most {MAX_NAME} characters, got {len(name)}")
    if name.lower() in DEVICES:
        raise ValueError(f"a module's name must be one that files can have: {name!r} is a device on Windows")
    if target == "c" and name.lower() in HEADERS:
        raise ValueError(f"a module's name must not be that of a C header, got {name!r}")
    if target == "c" and name.upper() in ("O", "P"):
        raise ValueError(f"a module's name must not be O or P, which the offsets in its C begin with, got {name!r}")
    if target == "python" and name in sys.stdlib_module_names:
        raise ValueError(f"a module's name must not be that of a module of the standard library, got {name!r}")
    return name


def graph_passes(program: Program) -> Iterator[tuple[str, Graph]]:
    """The ir after each pass, with the pass's name. The next pass may change the graph in place."""
    graph = trace(program)  # Values -> forward ir, nodes in the engine's order
    _check_outputs(graph, program)
    yield "trace", graph
    yield from later_passes(graph, program)


def later_passes(graph: Graph, program: Program, forward: int | None = None) -> Iterator[tuple[str, Graph]]:
    """The same for all passes after the trace, which made the first `forward` nodes; default: all."""
    forward = len(graph) if forward is None else forward
    differentiate(graph, program.input_gradients)  # adjoint nodes appended, gradients accumulated in the engine's order
    yield "autodiff", graph
    padded = store_padding(graph, program, forward)  # constants around values stored with them
    if padded is not graph:
        graph = padded
        yield "padding", graph
    graph = expand_powers(graph)  # constants folded, x**2 and the like as products
    yield "powers", graph
    graph = simplify(graph)  # repeated and dead nodes dropped
    verify(graph)
    yield "simplify", graph
    marked = mark_short_sums(graph)  # sums of few terms are computed as longer ones are
    if marked is not graph:
        verify(marked)
        yield "short sums", marked


def build_graph(program: Program) -> Graph:
    """The final ir of one training step."""
    *_, (_, graph) = graph_passes(program)
    return graph


def reroll(graph: Graph, program: Program, cache_line: int, by_index: Sequence[Part] = ()) -> Rerolled:
    """Final ir in, plain loops out. Rows are padded to multiples of `cache_line` numbers.

    Tokens of the parts `by_index` select rows of tables, if nothing else is read of them.
    """
    trees = find_trees(graph)  # which nodes get storage, and the expression that computes each
    # Equal expressions together, in order of dependence.
    groups = find_groups(graph, trees, program.prediction, declared_order(program)[1])
    is_trained, density = program.loss is not None, Target.of(program).density
    while True:
        layout = assign_storage(graph, trees.shapes, groups, program, cache_line, by_index)  # where every value lives
        loops = find_loops(graph, layout, trees.shapes, program)  # indices as base + sum(stride * counter)
        tables: list[TokenTable] = []
        if by_index:
            loops, tables, refused = read_by_index(loops, layout, by_index, is_trained)  # sums over words as rows
            if refused:
                by_index = tuple([part for part in by_index if part not in refused])
                continue
        rows = find_row_tensors(loops, layout, is_trained, density)  # tensors whose rows a zero input skips
        marked = mark_row_gradients(loops, rows)
        if cache_line > 1:
            # Columns that gradients read become rows.
            marked = copy_columns_of_gradients(marked, cache_line, program.reorder)
        return Rerolled(graph, trees.shapes, layout, marked, rows, tables, tuple(by_index))


def token_parts(program: Program) -> tuple[Part, ...]:
    """The inputs that may be read by index: tokens whose numbers the type of an input holds exactly.

    Those of one vocabulary, which may share a table, are neighbours.
    """
    most = 2**24 if program.dtype == "float32" else MAX_VOCABULARY
    parts = [part for part in program.input_parts if part.kind == "tokens" and part.classes <= most]
    return tuple(sorted(parts, key=lambda part: part.classes))


def batch_of(found: Rerolled, target: Target) -> Batch | None:
    """How a batch of images runs; None for one image after the other."""
    loops = schedule(found, batch_passes(found, target))
    phases = {kernel.number: kernel.phase for kernel in loops.kernels}
    sums = find_sums(found.loops, phases, found.read_outside, target)
    gradients = schedule(found.with_kernels((*sums.added, *sums.own)), gradient_passes(target, loops, sums))
    return plan_batch(loops, gradients, sums, found.loops, found.row_factors, target)


def steps_of(found: Rerolled, program: Program, target: Target, updates: Updates | None) -> Loops:
    """The gradients of one image as steps, if those are of plain gradient descent; else no kernels."""
    if program.loss is None or updates is not None:
        return NO_LOOPS
    return schedule(found, step_passes(found, target))


def dense_rows_of(found: Rerolled, program: Program, target: Target) -> Loops:
    """Row sums of a few images at a time, for modules that train on inputs that are rarely 0; else no kernels."""
    if program.loss is None or not target.is_dense:
        return NO_LOOPS
    return schedule(found, dense_passes(found, target))


def _check_outputs(graph: Graph, program: Program) -> None:
    """Raises ValueError for an output that depends on a target: a prediction has none."""
    if not _reads_target(graph, program, chain(*graph.outputs.values())):
        return
    for name, nodes in graph.outputs.items():
        if _reads_target(graph, program, nodes):
            raise ValueError(
                f"the output {name!r} depends on a target, but a prediction has none: declare it as a metric"
            )


def _reads_target(graph: Graph, program: Program, nodes: Iterable[int]) -> bool:
    """Whether one of some nodes depends on a target. Noise, which comes behind targets, is none."""
    reached = np.frombuffer(graph.reachable(*nodes), dtype=bool)
    op, number, _ = graph.columns()
    return bool(((op == Op.TARGET) & (number < len(program.target_values)) & reached).any())


def registered(*graphs: Graph) -> list[ops.Row]:
    """The user-registered ops of graphs, in the order of the op table."""
    return [row for row in used_rows(*graphs) if row.is_registered]


def graph_digest(graph: Graph, updates: Updates | None = None) -> str:
    """SHA-256 of the ir: op and operand columns as little-endian integers, constants as bits, then the observables."""
    digest = hashlib.sha256(bytes(graph.op))
    for column in (graph.a, graph.b):
        digest.update(np.frombuffer(column, dtype=np.intc).astype("<i4").tobytes())
    digest.update(np.array(graph.constants, dtype="<f8").tobytes())
    digest.update(repr((graph.loss, graph.outputs, sorted(graph.gradients.items()))).encode())
    if graph.metrics or graph.input_gradients:
        digest.update(repr((graph.metrics, sorted(graph.input_gradients.items()))).encode())
    for update in updates.rules if updates is not None else ():
        parts = (dict(update.rule.state), update.rule.takes_norm, graph_text(update.once), graph_text(update.each))
        digest.update(repr(parts).encode())
    if updates is not None:
        digest.update(repr(updates.of_tensor).encode())
    for row in registered(graph, *(updates.graphs() if updates is not None else ())):
        text = row.c_definition or source_of(row.function, row.name)
        digest.update(repr((row.number, row.name, text)).encode())
    return digest.hexdigest()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disables the cyclic collector: it would keep traversing millions of small objects, none in a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # else an older collection would be thawed too
                gc.freeze()  # what has been made becomes old, instead of being traversed at once
                gc.unfreeze()
            gc.enable()
