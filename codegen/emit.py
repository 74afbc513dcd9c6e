"""Loop nests -> C text, with a comment for each group that says which nodes of the graph it computes.

Example input: the nest of 50 x relu(sum(P, 784 x mul(P, X))) becomes:

    double sum[50];
    for (ptrdiff_t lane = 0; lane < 50; lane++)
        sum[lane] = data[P_LAYERS_0_BIAS + lane];
    for (ptrdiff_t term = 0; term < 784; term++) {
        const double x1 = value[INPUT + term];
        for (ptrdiff_t lane = 0; lane < 50; lane++)
            sum[lane] += data[P_LAYERS_0_WEIGHT + lane + 50 * term] * x1;
    }
    for (ptrdiff_t lane = 0; lane < 50; lane++)
        value[GROUP_0 + lane] = op_relu(sum[lane]);

Every lane adds its own terms in the order of the graph, so lanes side by side in a vector register change no bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from codegen.groups import Need
from codegen.ir import Op
from codegen.layout import ALIGNMENT, Layout, Placed, padded
from codegen.lower import RESULT, Nest, Terms
from codegen.names import DATA, GRAD, VALUE, Offsets
from codegen.nests import Loop, Piece
from codegen.ops import C
from codegen.sparse import RowTensor, skips_zero_inputs
from codegen.trees import ROOT_KIND, Shapes

MAX_LANES = 512  # sums that are accumulated side by side
MAX_EXPRESSION = 8  # terms of a single sum that are written as one expression
MAX_FUNCTION = 150  # lines: compilers are super-linear in the length of a function
INDENT = "    "
ARRAYS = {
    int(Op.PARAM): DATA,
    int(Op.GRAD): GRAD,
    int(Op.INPUT): VALUE,
    int(Op.TARGET): VALUE,
    ROOT_KIND: VALUE,
}
LIBRARY_OPS = {Op.POW, Op.EXP, Op.LOG, Op.TANH, Op.SIGMOID}  # too slow for lanes that nobody needs
INSTANCE_NAMES = ["lane", "i", "j", "k", "l", "m"]
TERM_NAMES = ["term", "u", "v", "s", "t", "q"]


@dataclass
class Block:
    """A piece of the generated program: lines of C, which functions need it, and the tables that it reads."""

    need: Need
    comment: str
    lines: list[str]
    tables: list[str] = field(default_factory=list)


def literal(value: float) -> str:
    """A C constant with exactly these bits (any nan is the nan)."""
    value = float(value)
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    if value == int(value) and 0 < abs(value) < 1e6:
        return f"{value:.1f}" if value > 0 else f"({value:.1f})"
    mantissa, exponent = value.hex().split("p")
    text = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"
    return f"({text})" if text.startswith("-") else text


def expression(shapes: Shapes, shape: int, leaves: Iterator[str]) -> tuple[str, bool]:
    """The C text of a tree, and whether it needs parentheses inside + and *."""
    if shapes.is_leaf(shape):
        return next(leaves), False
    op, *operands = shapes[shape]
    parts = [expression(shapes, s, leaves) for s in operands]  # type: ignore[arg-type]
    template = C[Op(op)]
    infix = op in (Op.ADD, Op.MUL)
    return template.format(*(f"({text})" if infix and loose else text for text, loose in parts)), infix


class Emitter:
    """Writes the groups of one layout."""

    def __init__(self, layout: Layout, shapes: Shapes, rows: dict[int, RowTensor], inputs: int) -> None:
        self.layout = layout
        self.shapes = shapes
        self.offsets = Offsets(layout)
        self.rows = rows
        self.inputs = inputs

    def block(self, placed: Placed, nests: list[Nest]) -> Block:
        """All nests of one group."""
        group = placed.group
        count = len(group.roots)
        where = f"%{group.roots.min()}" + (f" .. %{group.roots.max()}" if count > 1 else "")
        first = nests[0]
        columns = [run.column + k for run in placed.runs for k in range(len(run.kinds))]
        constants = [literal(first.literals[c]).strip("()") for c in columns if c in first.literals]
        text = self.shapes.text(group.shape, None if first.tables else iter(constants))
        comment = f"{count} x {text}: {where}"
        is_row_gradient = group.is_gradient and int(first.first[RESULT]) in self.rows
        block = Block(Need.ROW_GRADIENTS if is_row_gradient else group.need, comment, [])
        for nest in nests:
            NestWriter(self, nest, block).write()
        return block


class NestWriter:
    """Writes one nest into a block."""

    def __init__(self, emitter: Emitter, nest: Nest, block: Block) -> None:
        self.emitter, self.nest, self.block = emitter, nest, block
        self.shapes = emitter.shapes
        self.level = 0
        self.lanes = self.lane_count()
        names = INSTANCE_NAMES[: len(nest.loops)] + [f"i{d}" for d in range(len(nest.loops) - 6)]
        self.names = names[::-1]
        self.constant_tables: dict[int, str] = {}  # by identity: segments of one run share a table
        self.index_tables: dict[tuple[int, int], str] = {}
        # The sum that is being accumulated: its C text, and the bounds of the lane loop (None: a single sum).
        self.sum = "sum"
        self.bounds: tuple[str, str] | None = None

    def lane_count(self) -> int:
        """How often the lane loop runs: padded to whole vectors, where nobody sees what the lanes too many do."""
        nest = self.nest
        if not nest.loops:
            return 1
        *others, lane = nest.loops
        if lane.rows is not None or nest.tables or not set(lane.strides.tolist()) <= {0, 1} or not lane.strides[RESULT]:
            return lane.count
        group = nest.placed.group
        if self.shapes.ops(group.shape) & LIBRARY_OPS:
            return lane.count
        if group.is_gradient:
            index = int(nest.first[RESULT])
            tensor = next(t for t in self.emitter.layout.tensors if t.offset <= index < t.offset + t.extent)
            rows = [index - tensor.offset, *(int(loop.strides[RESULT]) for loop in others)]
            owned = (1, lane.count) in zip(tensor.strides, tensor.tensor.shape, strict=True)
            owned = owned and all(row % (ALIGNMENT // 2) == 0 for row in rows)
        else:
            owned = lane.count == len(group.roots)
        return padded(lane.count) if owned else lane.count

    # Lines

    def line(self, text: str) -> None:
        self.block.lines.append(INDENT * self.level + text)

    def open(self, name: str, count: int) -> None:
        self.line(f"for (ptrdiff_t {name} = 0; {name} < {count}; {name}++) {{")
        self.level += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.level -= 1
            self.line("}")

    def table(self, declaration: str, values: list[str]) -> str:
        """A static table in front of the block's function; returns its name."""
        name = f"table_{self.nest.placed.number}_{len(self.block.tables)}"
        rows = [", ".join(values[i : i + 8]) for i in range(0, len(values), 8)]
        body = ",\n".join(INDENT + row for row in rows)
        self.block.tables.append(f"static const {declaration} {name}[{len(values)}] = {{\n{body},\n}};")
        return name

    # Indices

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
                    offsets = [str(x) for x in loop.rows[:, column].tolist()]
                    self.index_tables[key] = self.table("int32_t", offsets)
                parts.append(f" + {self.index_tables[key]}[{name}]")
        return parts

    def leaf(self, terms: Terms, k: int, base: int, extra: list[str]) -> str:
        """Leaf k of a run's term: an element of an array, or a constant."""
        column, key = terms.columns[k], terms.run.column + k
        if key in self.nest.literals:
            return literal(self.nest.literals[key])
        parts = self.counters(self.nest.loops, self.names, column) + extra
        index = int(self.nest.first[column]) + base
        if key in self.nest.tables:
            table = self.nest.tables[key]
            if id(table) not in self.constant_tables:
                self.constant_tables[id(table)] = self.table("double", [literal(x) for x in table])
            return f"{self.constant_tables[id(table)]}[{index}{''.join(parts)}]"
        array = ARRAYS[terms.run.kinds[k]]
        return f"{array}[{self.emitter.offsets.text(array, index)}{''.join(parts)}]"

    def result(self) -> str:
        array = GRAD if self.nest.placed.group.is_gradient else VALUE
        parts = self.counters(self.nest.loops, self.names, RESULT)
        return f"{array}[{self.emitter.offsets.text(array, int(self.nest.first[RESULT]))}{''.join(parts)}]"

    # Nests

    def write(self) -> None:
        if self.nest.placed.combine is None:
            self.elementwise()
        elif not self.nest.loops and self.fits_one_expression():
            self.line(f"{self.result()} = {self.finished(self.whole_sum())};")
        else:
            self.accumulate()

    def fits_one_expression(self) -> bool:
        terms = sum(terms.run.count for terms in self.nest.terms)
        return terms <= MAX_EXPRESSION and self.nest.placed.combine == Op.ADD

    def whole_sum(self) -> str:
        texts = []
        for terms in self.nest.terms:
            for offsets in terms.offsets.tolist():
                leaves = [self.leaf(terms, k, offsets[k], []) for k in range(len(offsets))]
                text, loose = expression(self.shapes, terms.run.shape, iter(leaves))
                texts.append(f"({text})" if loose else text)
        return " + ".join(texts)

    def finished(self, text: str) -> str:
        """The unary ops on top of a sum."""
        for op in self.nest.placed.post:
            text = C[Op(op)].format(text)
        return text

    def elementwise(self) -> None:
        """No sum: one assignment for each instance."""
        (terms,) = self.nest.terms
        if self.skippable_gradient():
            self.line(f"if (all_finite(value + {self.gradient_factor()}, {self.nest.loops[-1].count})) {{")
            self.level += 1
            self.line("touch_active(w);")
            self.loops(terms, active_rows=True)
            self.close()
            self.line("else {")
            self.level += 1
            self.line("touch_all();")
            self.loops(terms)
            self.close()
        else:
            self.loops(terms)

    def skippable_gradient(self) -> bool:
        return self.nest.placed.group.is_gradient and int(self.nest.first[RESULT]) in self.emitter.rows

    def gradient_factor(self) -> str:
        """Where the other factor of add(G, mul(X, R)) begins in value[]."""
        (terms,) = self.nest.terms
        column = terms.columns[terms.run.kinds.index(ROOT_KIND)]
        return self.emitter.offsets.text(VALUE, int(self.nest.first[column]))

    def loops(self, terms: Terms, active_rows: bool = False) -> None:
        """The instance loops around one assignment. What no lane changes is read once, before the lane loop."""
        loops = self.nest.loops
        for loop, name in zip(loops[:-1], self.names, strict=False):
            if active_rows:
                self.open_active(name)
            else:
                self.open(name, loop.count)
        leaves = [self.leaf(terms, k, 0, []) for k in range(len(terms.run.kinds))]
        if len(loops) > 1:
            leaves = self.hoisted(terms, leaves)
        if loops:
            self.line(f"for (ptrdiff_t lane = 0; lane < {self.lanes}; lane++)")
            self.line(INDENT + self.assignment(terms.run.shape, leaves))
        else:
            self.line(self.assignment(terms.run.shape, leaves))
        self.close(len(loops) - 1)

    def assignment(self, shape: int, leaves: list[str]) -> str:
        result = self.result()
        operation = self.shapes[shape] if not self.shapes.is_leaf(shape) else ()
        if len(operation) == 3 and operation[0] == Op.ADD and leaves[0] == result:
            text, _ = expression(self.shapes, operation[2], iter(leaves[1:]))
            return f"{result} += {text};"
        text, _ = expression(self.shapes, shape, iter(leaves))
        return f"{result} = {text};"

    def open_active(self, name: str) -> None:
        self.line("for (int k = 0; k < w->active_count; k++) {")
        self.level += 1
        self.line(f"const ptrdiff_t {name} = w->active[k];")

    def hoisted(self, terms: Terms, leaves: list[str]) -> list[str]:
        """Names for the leaves that are the same for every lane, declared here."""
        lane = self.nest.loops[-1]
        result = []
        for k, text in enumerate(leaves):
            column = terms.columns[k]
            moves = lane.strides[column] != 0 or (lane.rows is not None and lane.rows[:, column].any())
            if not moves and terms.run.column + k not in self.nest.literals:
                self.line(f"const double x{k} = {text};")
                text = f"x{k}"
            result.append(text)
        return result

    def accumulate(self) -> None:
        """A sum (or maximum) of terms for each instance, lanes side by side."""
        loops = self.nest.loops
        for loop, name in zip(loops[:-1], self.names, strict=False):
            self.open(name, loop.count)
        opened = max(len(loops) - 1, 0)
        if opened == 0:
            self.line("{")
            self.level += 1
            opened = 1
        first = self.nest.terms[0]
        rest = self.nest.terms[1:] if first.run.count == 1 else self.nest.terms
        if first.run.count == 1:
            start, _ = self.term_text(first, 0, [])
        else:
            start = "-0.0" if self.nest.placed.combine == Op.ADD else "(-INFINITY)"  # changes no sum, no maximum
        if not loops:
            self.line(f"double sum = {start};")
        else:
            self.sum, self.bounds = "sum[lane]", ("0", str(self.lanes))
            if self.lanes > MAX_LANES:
                self.line(f"for (ptrdiff_t block = 0; block < {self.lanes}; block += {MAX_LANES}) {{")
                self.level += 1
                opened += 1
                self.line(
                    f"const ptrdiff_t end = block + {MAX_LANES} < {self.lanes} ? block + {MAX_LANES} : {self.lanes};"
                )
                self.sum, self.bounds = "sum[lane - block]", ("block", "end")
            self.line(f"double sum[{min(self.lanes, MAX_LANES)}];")
            self.each_lane(f"{self.sum} = {start};")
        for terms in rest:
            self.run(terms)
        self.each_lane(f"{self.result()} = {self.finished(self.sum)};")
        self.close(opened)

    def each_lane(self, text: str) -> None:
        if self.bounds is None:
            self.line(text)
            return
        begin, end = self.bounds
        self.line(f"for (ptrdiff_t lane = {begin}; lane < {end}; lane++)")
        self.level += 1
        self.line(text)
        self.level -= 1

    def term_text(self, terms: Terms, row: int, extra: list[list[str]]) -> tuple[str, bool]:
        offsets = terms.offsets[row].tolist()
        leaves = [self.leaf(terms, k, offsets[k], extra[k] if extra else []) for k in range(len(offsets))]
        if extra and self.nest.loops:
            leaves = self.hoisted(terms, leaves)
        return expression(self.shapes, terms.run.shape, iter(leaves))

    def run(self, terms: Terms) -> None:
        """Adds a run of terms, piece by piece."""
        skip = skips_zero_inputs(self.shapes, self.nest, terms, self.emitter.rows, self.emitter.inputs)
        for piece in terms.pieces:
            self.piece(terms, piece, skip)

    def piece(self, terms: Terms, piece: Piece, skip: bool) -> None:
        loops = piece.loops[::-1]
        names = (TERM_NAMES[: len(loops)] + [f"t{d}" for d in range(len(loops) - 6)])[::-1]
        for loop, name in zip(loops, names, strict=True):
            if skip:
                self.open_active(name)
            else:
                self.open(name, loop.count)
        extra = [self.counters(loops, names, k) for k in range(len(terms.run.kinds))]
        text, _ = self.term_text(terms, piece.start, extra if loops else [])
        if self.nest.placed.combine == Op.MAX:
            self.each_lane(f"{self.sum} = op_max({self.sum}, {text});")
        else:
            self.each_lane(f"{self.sum} += {text};")
        self.close(len(loops))


def functions(blocks: list[Block]) -> tuple[list[str], list[tuple[Need, str]]]:
    """The blocks as C functions, and the calls in order. Neighbours that the same passes need share a function."""
    text: list[str] = []
    calls: list[tuple[Need, str]] = []
    i = 0
    while i < len(blocks):
        j = i
        body: list[str] = []
        while j < len(blocks) and blocks[j].need == blocks[i].need and len(body) < MAX_FUNCTION:
            body += [f"{INDENT}/* {blocks[j].comment} */"]
            body += [INDENT + line for line in blocks[j].lines]
            j += 1
        name = f"group_{i}" if j == i + 1 else f"groups_{i}_to_{j - 1}"
        text += [f"static void AT_LEVEL({name})(struct workspace *restrict w)", "{"]
        text += [f"{INDENT}double *restrict const value = w->value;", *body, "}", ""]
        calls.append((blocks[i].need, name))
        i = j
    return text, calls
