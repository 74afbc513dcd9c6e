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
from codegen.backends.c.emit import CWriter
from codegen.backends.c.functions import Block, functions
from codegen.backends.c.inference import inference_files
from codegen.backends.c.module import Kernels, module_files
from codegen.backends.c.straightline import straightline
from codegen.backends.names import group_name, tensor_names
from codegen.backends.writer import Emitter
from codegen.ir.graph import LEAVES, Graph, Op, verify
from codegen.passes.autodiff import differentiate
from codegen.passes.simplify import simplify
from codegen.passes.trace import trace
from codegen.program import Program
from codegen.reroll.groups import Need, find_groups
from codegen.reroll.layout import Layout, Placed, place
from codegen.reroll.lower import Nest, lower
from codegen.reroll.sparse import RowTensor, find_constant_rows, find_row_tensors
from codegen.reroll.trees import Shapes, find_trees
from micrograd import ops


@dataclass
class Compiled:
    """A program's final ir and its C files, by name. `blocks` are the C of each group. The straight-line lowering has
    neither groups nor a layout."""

    graph: Graph
    kernels: Kernels
    files: dict[str, str]
    digest: str
    groups: list[tuple[Placed, list[Nest]]]
    blocks: list[Block]
    shapes: Shapes
    layout: Layout | None

    @property
    def text(self) -> str:
        """All of the C, to be read."""
        return "".join(self.files.values())


def compile_program(program: Program, name: str = "nn", lowering: str = "loops") -> Compiled:
    """Value graph in, nn.c and nn_kernels.h out. Raises ValueError for an unknown lowering or a name C cannot use."""
    if lowering not in ("loops", "straightline"):
        raise ValueError(f"lowering must be 'loops' or 'straightline', got {lowering!r}")
    check_name(name)
    with no_garbage_collection():
        graph = build_graph(program)
        lowered = None
        blocks: list[Block] = []
        if lowering == "straightline":
            kernels = straightline(trace(program), program)
        else:
            lowered, blocks, kernels = _loops(graph, program)
        digest = graph_digest(graph)
        write = module_files if program.loss is not None else inference_files  # constants, tables, passes
        files = write(program, kernels, name, digest, len(graph))
        if lowered is None:
            return Compiled(graph, kernels, files, digest, [], [], Shapes(), None)
        return Compiled(graph, kernels, files, digest, lowered.groups, blocks, lowered.shapes, lowered.layout)


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
class Lowered:
    """A graph as loop nests, group by group in the order in which they are computed."""

    graph: Graph
    shapes: Shapes
    layout: Layout
    groups: list[tuple[Placed, list[Nest]]]
    rows: dict[int, RowTensor]

    def place_of(self, n: int) -> int:
        """Where an observed node stands in value[]; -1 for a loss that there is not."""
        copies = self.layout.copies
        return -1 if n < 0 else copies[n] if n in copies else int(self.layout.index[n])


def lower_graph(graph: Graph, program: Program, cache_line: int) -> Lowered:
    """Final ir in, loop nests out. `cache_line` is to how many numbers rows are padded."""
    trees = find_trees(graph)  # which nodes get storage, and the expression that computes each
    groups = find_groups(graph, trees, program.prediction)  # equal expressions together, in order of dependence
    layout = place(graph, trees.shapes, groups, program, cache_line)  # where every value lives
    lowered = [(placed, lower(graph, layout, placed)) for placed in layout.placed]  # indices as loop nests
    nests = [nest for _, found in lowered for nest in found]
    find_rows = find_row_tensors if program.loss is not None else find_constant_rows
    rows = find_rows(layout, trees.shapes, nests, len(program.inputs.values))  # what a zero input leaves alone
    return Lowered(graph, trees.shapes, layout, lowered, rows)


def _loops(graph: Graph, program: Program) -> tuple[Lowered, list[Block], Kernels]:
    arithmetic = Arithmetic.of(program)
    lowered = lower_graph(graph, program, arithmetic.cache_line)
    layout, rows = lowered.layout, lowered.rows
    emitter = Emitter(layout, lowered.shapes, rows, len(program.inputs.values), arithmetic, CWriter)
    blocks = [emitter.block(placed, found) for placed, found in lowered.groups]  # C text
    text, calls = functions(blocks, arithmetic)
    kernels = Kernels(
        lowering="loops",
        tables=[*definitions(graph), *(table for block in blocks for table in block.tables)],
        functions=text,
        calls=calls,
        offsets=[
            ("INPUT", 0),
            ("TARGET", layout.target_offset),
            *((group_name(p.number), p.offset) for p in layout.placed if p.offset >= 0),
        ],
        tensors=layout.tensors,
        tensor_names=tensor_names(place.tensor.name for place in layout.tensors),
        row_tensors=list(rows.values()),
        row_comments=[block.comment for block in blocks if block.need == Need.ROW_GRADIENTS],
        reads_inputs=emitter.reads_inputs,
        value_count=layout.value_count,
        data_count=layout.data_count,
        loss=lowered.place_of(graph.loss),
        outputs={name: [lowered.place_of(n) for n in nodes] for name, nodes in graph.outputs.items()},
    )
    return lowered, blocks, kernels


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
