"""What the writers of C and of Python have in common: how a group is announced, and how an index reads.

Example input: a leaf whose index is base 39250 + 1 * lane + 10 * term, the tensor P_LAYERS_1_WEIGHT being at 39250,
becomes `data[P_LAYERS_1_WEIGHT + lane + 10 * term]`, in both languages.
"""

from __future__ import annotations

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.functions import INDENT, Block
from codegen.backends.names import DATA, GRAD, VALUE, Offsets
from codegen.ir.graph import Op
from codegen.reroll.affine import Loop
from codegen.reroll.groups import Need
from codegen.reroll.layout import Layout, Placed
from codegen.reroll.lower import RESULT, Nest, Terms
from codegen.reroll.sparse import RowTensor
from codegen.reroll.trees import ROOT_KIND, Shapes

MAX_EXPRESSION = 8  # terms of a sum that are written as one expression
ARRAYS = {
    int(Op.PARAM): DATA,
    int(Op.GRAD): GRAD,
    int(Op.INPUT): VALUE,
    int(Op.TARGET): VALUE,
    ROOT_KIND: VALUE,
}
INSTANCE_NAMES = ["lane", "i", "j", "k", "l", "m"]
TERM_NAMES = ["term", "u", "v", "s", "t", "q"]


class Emitter:
    """Writes the groups of one layout, each nest by a `writer`."""

    def __init__(
        self,
        layout: Layout,
        shapes: Shapes,
        rows: dict[int, RowTensor],
        inputs: int,
        arithmetic: Arithmetic,
        writer: type[NestWriter],
    ) -> None:
        self.layout = layout
        self.shapes = shapes
        self.arithmetic = arithmetic
        self.reads_inputs = False  # outside of row tensors
        self.offsets = Offsets(layout)
        self.rows = rows
        self.inputs = inputs
        self.writer = writer

    def block(self, placed: Placed, nests: list[Nest]) -> Block:
        """All nests of one group."""
        group = placed.group
        count = len(group.roots)
        where = f"%{group.roots.min()}" + (f" .. %{group.roots.max()}" if count > 1 else "")
        first = nests[0]
        columns = [run.column + k for run in placed.runs for k in range(len(run.kinds))]
        constants = [self.arithmetic.literal(first.literals[c]).strip("()") for c in columns if c in first.literals]
        text = self.shapes.text(group.shape, None if first.tables else iter(constants))
        comment = f"{count} x {text}: {where}"
        need = group.need
        if group.is_gradient:
            need = Need.ROW_GRADIENTS if int(first.first[RESULT]) in self.rows else Need.DENSE_GRADIENTS
        block = Block(placed.number, need, comment)
        for nest in nests:
            self.writer(self, nest, block).write()
        return block


class NestWriter:
    """Writes one nest into a block."""

    def __init__(self, emitter: Emitter, nest: Nest, block: Block) -> None:
        self.emitter, self.nest, self.block = emitter, nest, block
        self.shapes, self.arithmetic, self.literal = emitter.shapes, emitter.arithmetic, emitter.arithmetic.literal
        self.level = 0
        names = INSTANCE_NAMES[: len(nest.loops)] + [f"i{d}" for d in range(len(nest.loops) - 6)]
        self.names = names[::-1]
        self.constant_tables: dict[int, str] = {}  # by identity: segments of one run share a table
        self.index_tables: dict[tuple[int, int], str] = {}

    def write(self) -> None:
        raise NotImplementedError

    def add_table(self, values: list[str], of_indices: bool) -> str:
        """Puts a table in front of the block's function; returns its name."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        self.block.lines.append(INDENT * self.level + text)

    def table_name(self) -> str:
        return f"table_{self.nest.placed.number}_{len(self.block.tables)}"

    def term_names(self, count: int) -> list[str]:
        return (TERM_NAMES[:count] + [f"t{d}" for d in range(count - 6)])[::-1]

    def counters(self, loops: list[Loop], names: list[str], column: int) -> list[str]:
        """What the loops add to a column's index, each with its sign."""
        parts = []
        for loop, name in zip(loops, names, strict=True):
            stride = int(loop.strides[column])
            if stride:
                step = name if abs(stride) == 1 else f"{abs(stride)} * {name}"
                parts.append(f" + {step}" if stride > 0 else f" - {step}")
            if loop.rows is not None and loop.rows[:, column].any():
                key = id(loop), column
                if key not in self.index_tables:
                    self.index_tables[key] = self.add_table([str(x) for x in loop.rows[:, column].tolist()], True)
                parts.append(f" + {self.index_tables[key]}[{name}]")
        return parts

    def place(self, terms: Terms, k: int, base: int) -> tuple[str, str]:
        """The array that leaf k of a run reads, and its index before any counter."""
        index = int(self.nest.first[terms.columns[k]]) + base
        key = terms.run.column + k
        if key in self.nest.tables:
            table = self.nest.tables[key]
            if id(table) not in self.constant_tables:
                self.constant_tables[id(table)] = self.add_table([self.literal(x) for x in table], False)
            return self.constant_tables[id(table)], str(index)
        array = ARRAYS[terms.run.kinds[k]]
        return array, self.emitter.offsets.text(array, index)

    def result_place(self) -> tuple[str, str]:
        array = GRAD if self.nest.placed.group.is_gradient else VALUE
        return array, self.emitter.offsets.text(array, int(self.nest.first[RESULT]))

    def finished(self, text: str) -> str:
        """The unary ops on top of a sum."""
        for op in self.nest.placed.post:
            text = self.arithmetic.ops[op].format(text)
        return text
