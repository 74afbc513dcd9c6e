"""The compiler, pass by pass."""

from __future__ import annotations

import gc
import hashlib
import keyword
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress

import numpy as np

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.inference import inference_files
from codegen.backends.c.kernels import kernel_functions, table_lines
from codegen.backends.c.module import Kernels, module_files
from codegen.backends.c.straightline import straightline
from codegen.backends.text import explanation, formulas, work
from codegen.ir.graph import LEAVES, Graph, Op, verify
from codegen.ir.loops import DATA, VALUE, Loops, Pass
from codegen.passes.autodiff import differentiate
from codegen.passes.simplify import simplify
from codegen.passes.trace import trace
from codegen.program import Program
from codegen.reroll.groups import find_groups
from codegen.reroll.layout import Layout, place
from codegen.reroll.loops import find_loops
from codegen.reroll.trees import Shapes, find_trees
from codegen.schedule.pipeline import schedule_c
from codegen.schedule.rows import RowTensor, find_row_tensors, mark_row_gradients
from codegen.schedule.skip_zeros import reads_inputs
from micrograd import ops


@dataclass
class Compiled:
    """A program's final ir and its C files, by name.

    `plain` are the loops as reroll makes them, `loops` as the C has them. The straight-line lowering has neither loops
    nor a layout.
    """

    graph: Graph
    kernels: Kernels
    files: dict[str, str]
    digest: str
    plain: Loops | None = None
    loops: Loops | None = None
    shapes: Shapes | None = None
    layout: Layout | None = None

    @property
    def text(self) -> str:
        """All of the C, to be read."""
        return "".join(self.files.values())

    def explanation(self) -> str:
        """Every group as an assignment, then how much of the work is in loops. ValueError if there are no loops."""
        if self.plain is None:
            raise ValueError("straight-line code has no loops: compile with lowering='loops'")
        return "\n".join([*explanation(self.plain), str(work(self.plain, len(self.graph)))])


def compile_program(program: Program, name: str = "nn", lowering: str = "loops") -> Compiled:
    """Value graph in, nn.c and nn_kernels.h out. Raises ValueError for an unknown lowering or a name C cannot use."""
    if lowering not in ("loops", "straightline"):
        raise ValueError(f"lowering must be 'loops' or 'straightline', got {lowering!r}")
    check_name(name)
    with no_garbage_collection():
        graph = build_graph(program)
        digest = graph_digest(graph)
        write = module_files if program.loss is not None else inference_files  # constants, tables, passes
        if lowering == "straightline":
            kernels = straightline(trace(program), program)
            return Compiled(graph, kernels, write(program, kernels, name, digest, len(graph)), digest)
        found, scheduled, kernels = _loops(graph, program)
        files = write(program, kernels, name, digest, len(graph))
        return Compiled(graph, kernels, files, digest, found.loops, scheduled, found.shapes, found.layout)


def check_name(name: str) -> None:
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise ValueError(f"a module's name must be an ASCII identifier and no keyword, got {name!r}")


def passes(program: Program) -> Iterator[tuple[str, Graph]]:
    """The ir after each pass, with the pass's name. The next pass may change the graph in place."""
    graph = trace(program)  # Values -> forward ir, nodes in the engine's order
    _check_outputs(graph)
    yield "trace", graph
    differentiate(graph)  # adjoint nodes appended, gradients accumulated in the engine's order
    yield "autodiff", graph
    graph = simplify(graph)  # constants folded, repeated and dead nodes dropped
    verify(graph)
    yield "simplify", graph


def build_graph(program: Program) -> Graph:
    """The final ir of one training step."""
    *_, (_, graph) = passes(program)
    return graph


@dataclass
class Rerolled:
    """A graph as loops, one root and one term after the other, and what is known about where it keeps things."""

    graph: Graph
    shapes: Shapes
    layout: Layout
    loops: Loops
    rows: dict[int, RowTensor]

    def place_of(self, n: int) -> int:
        """Where an observed node stands in value[]; -1 if there is no loss."""
        copies = self.layout.copies
        return -1 if n < 0 else copies[n] if n in copies else int(self.layout.index[n])


def reroll(graph: Graph, program: Program, cache_line: int) -> Rerolled:
    """Final ir in, plain loops out. `cache_line` is to how many numbers rows are padded."""
    trees = find_trees(graph)  # which nodes get storage, and the expression that computes each
    groups = find_groups(graph, trees, program.prediction)  # equal expressions together, in order of dependence
    layout = place(graph, trees.shapes, groups, program, cache_line)  # where every value lives
    loops = find_loops(graph, layout, trees.shapes, program)  # indices as base + sum(stride * counter)
    rows = find_row_tensors(loops, layout, program.loss is not None)  # what a zero input leaves alone
    return Rerolled(graph, trees.shapes, layout, mark_row_gradients(loops, rows), rows)


def _loops(graph: Graph, program: Program) -> tuple[Rerolled, Loops, Kernels]:
    arithmetic = Arithmetic.of(program)
    found = reroll(graph, program, arithmetic.cache_line)
    layout, rows = found.layout, found.rows
    *_, (_, scheduled) = schedule_c(found.loops, rows, arithmetic)  # how the loops run
    functions = kernel_functions(scheduled, found.loops, arithmetic)  # C text
    kernels = Kernels(
        lowering="loops",
        tables=[*definitions(graph), *table_lines(scheduled, arithmetic)],
        functions=functions.lines,
        calls=functions.calls,
        offsets=_offsets(found),
        tensors=layout.tensors,
        tensor_names=[region.name for region in scheduled.regions[DATA]],
        row_tensors=list(rows.values()),
        row_comments=[
            str(formula)
            for kernel in found.loops.kernels
            if kernel.passes == Pass.ROW_GRADIENTS
            for formula in formulas(found.loops, kernel)
        ],
        reads_inputs=reads_inputs(scheduled),
        value_count=layout.value_count,
        data_count=layout.data_count,
        loss=found.place_of(graph.loss),
        outputs={name: [found.place_of(n) for n in nodes] for name, nodes in graph.outputs.items()},
    )
    return found, scheduled, kernels


def _offsets(found: Rerolled) -> list[tuple[str, int]]:
    """Names for places in value[]. INPUT, TARGET and LOSS are there even if nothing has them."""
    places = {"INPUT": 0, "TARGET": found.layout.target_offset}
    places |= {region.name: region.start for region in found.loops.regions[VALUE]}
    if found.graph.loss >= 0:
        places.setdefault("LOSS", found.place_of(found.graph.loss))
    return list(places.items())


def _check_outputs(graph: Graph) -> None:
    """Raises ValueError for an output that depends on a target: a prediction has none."""
    for name, nodes in graph.outputs.items():
        if Op.TARGET in compress(graph.op, graph.reachable(*nodes)):
            raise ValueError(f"the output {name!r} depends on a target, but a prediction has none")


def registered(graph: Graph) -> list[ops.Row]:
    """The ops of a graph that a user has registered, in the order of the op table."""
    return [row for row in map(ops.row, sorted(set(graph.op) - LEAVES)) if row.c_definition]


def definitions(graph: Graph) -> list[str]:
    """The C of registered ops."""
    return [row.c_definition for row in registered(graph)]


def graph_digest(graph: Graph) -> str:
    """SHA-256 of the ir: op and operand columns as little-endian integers, constants as bits, then the observables."""
    digest = hashlib.sha256(bytes(graph.op))
    for column in (graph.a, graph.b):
        digest.update(np.frombuffer(column, dtype=np.intc).astype("<i4").tobytes())
    digest.update(np.array(graph.constants, dtype="<f8").tobytes())
    digest.update(repr((graph.loss, graph.outputs, sorted(graph.gradients.items()))).encode())
    for row in registered(graph):
        digest.update(repr((row.number, row.name, row.c_definition)).encode())
    return digest.hexdigest()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Millions of small objects, none of them in a cycle: the collector would walk them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
