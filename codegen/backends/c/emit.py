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

from codegen.backends.c.functions import INDENT, Block
from codegen.backends.names import VALUE
from codegen.backends.writer import MAX_EXPRESSION, Emitter, NestWriter
from codegen.ir.graph import Op
from codegen.reroll.affine import Loop, Piece
from codegen.reroll.groups import Need
from codegen.reroll.layout import padded
from codegen.reroll.lower import RESULT, Nest, Terms
from codegen.reroll.sparse import skips_zero_inputs
from micrograd import ops

PARTS = 4  # of a sum that may be reordered: as many additions are under way at a time
PEELED = 16  # lanes that gcc unrolls at most before it looks for sums to vectorise: see NOT_VECTORISED in csrc/ops.h
LIBRARY_OPS = {Op.POW, Op.EXP, Op.LOG, Op.TANH, Op.SIGMOID}  # too slow for lanes that nobody needs
LIBRARY_OPS |= {op.number for op in (ops.sin, ops.cos, ops.erf, ops.softplus)}


class CWriter(NestWriter):
    """Writes one nest as C."""

    def __init__(self, emitter: Emitter, nest: Nest, block: Block) -> None:
        super().__init__(emitter, nest, block)
        self.type = self.arithmetic.type
        self.lanes = self.lane_count()
        # The sum that is being accumulated: its C text, and the bounds of the lane loop (None: a single sum).
        self.sum = "sum"
        self.bounds: tuple[str, str] | None = None
        self.width = 1  # of the array of sums
        self.in_parts = False  # whether there are PARTS such arrays
        self.active_inputs = False  # inside a loop over the active inputs

    def lane_count(self) -> int:
        """How often the lane loop runs: padded to whole vectors where the padding lanes are unobservable."""
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
            tensor = self.emitter.layout.tensor_at(index)
            rows = [index - tensor.offset, *(int(loop.strides[RESULT]) for loop in others)]
            owned = (1, lane.count) in zip(tensor.strides, tensor.tensor.shape, strict=True)
            owned = owned and all(row % (self.arithmetic.cache_line // 2) == 0 for row in rows)
        else:
            owned = lane.count == len(group.roots)
        return padded(lane.count, self.arithmetic.cache_line) if owned else lane.count

    # Lines

    def open(self, name: str, count: int) -> None:
        self.line(f"for (ptrdiff_t {name} = 0; {name} < {count}; {name}++) {{")
        self.level += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.level -= 1
            self.line("}")

    def add_table(self, values: list[str], of_indices: bool) -> str:
        name, number_type = self.table_name(), "int32_t" if of_indices else self.type
        rows = [", ".join(values[i : i + 8]) for i in range(0, len(values), 8)]
        body = ",\n".join(INDENT + row for row in rows)
        self.block.tables.append(f"TABLE {number_type} {name}[{len(values)}] = {{\n{body},\n}};")
        return name

    # Indices

    def leaf(self, terms: Terms, k: int, base: int, extra: list[str]) -> str:
        """Leaf k of a run's term: an element of an array, or a constant."""
        key = terms.run.column + k
        if key in self.nest.literals:
            return self.literal(self.nest.literals[key])
        if terms.run.kinds[k] == Op.INPUT:
            if self.active_inputs:
                return "w->active_value[k]"
            self.emitter.reads_inputs = True
        parts = self.counters(self.nest.loops, self.names, terms.columns[k]) + extra
        array, start = self.place(terms, k, base)
        return f"{array}[{start}{''.join(parts)}]"

    def result(self) -> str:
        array, start = self.result_place()
        return f"{array}[{start}{''.join(self.counters(self.nest.loops, self.names, RESULT))}]"

    # Nests

    def write(self) -> None:
        self.write_nest()
        self.line("STORE_BARRIER;")

    def write_nest(self) -> None:
        if self.block.need == Need.ROW_GRADIENTS:
            self.row_gradient()
        elif self.block.need == Need.DENSE_GRADIENTS:
            self.gradient()
        elif self.nest.placed.combine is None:
            self.elementwise(self.nest.terms[0])
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
                text, loose = self.arithmetic.expression(self.shapes, terms.run.shape, iter(leaves))
                texts.append(f"({text})" if loose else text)
        return " + ".join(texts)

    # One assignment for each instance

    def elementwise(self, terms: Terms) -> None:
        self.open_outer_loops()
        leaves = self.leaves(terms, 0, [])
        text, _ = self.arithmetic.expression(self.shapes, terms.run.shape, iter(leaves))
        self.each_instance(f"{self.result()} = {text};")

    def row_gradient(self) -> None:
        """What csrc/rows.h computes for a row tensor: the rows of active inputs, if that is all that can change.

        These lines are for whoever looks at loops, as the pictures do: functions() leaves them out of the C.
        """
        factor = self.emitter.rows[int(self.nest.first[RESULT])].factor
        name = self.emitter.offsets.text(VALUE, factor)
        self.line(f"if (all_finite(value + {name}, {self.nest.loops[-1].count})) {{")
        self.level += 1
        self.open_active(self.names[0])
        self.active_inputs = True
        self.each_instance(self.gradient_term())
        self.active_inputs = False
        self.level -= 1
        self.line("}")
        self.line("else {")
        self.level += 1
        reads_inputs = self.emitter.reads_inputs
        self.open_outer_loops()
        self.each_instance(self.gradient_term())
        self.emitter.reads_inputs = reads_inputs  # they are not read from value[]
        self.close()

    def gradient_term(self) -> str:
        terms = self.nest.terms[1]
        return self.arithmetic.added(self.shapes, terms.run.shape, iter(self.leaves(terms, 0, [])), self.result())

    def each_instance(self, statement: str) -> None:
        """The innermost instance loop, and the ends of all others."""
        if self.nest.loops:
            self.line(f"for (ptrdiff_t lane = 0; lane < {self.lanes}; lane++)")
            self.line(INDENT + statement)
        else:
            self.line(statement)
        self.close(len(self.nest.loops) - 1)

    def open_outer_loops(self) -> None:
        for loop, name in zip(self.nest.loops[:-1], self.names, strict=False):
            self.open(name, loop.count)

    def open_active(self, name: str) -> None:
        self.line("for (int k = 0; k < w->active_count; k++) {")
        self.level += 1
        self.line(f"const ptrdiff_t {name} = w->active[k];")

    def leaves(self, terms: Terms, row: int, extra: list[list[str]]) -> list[str]:
        """The leaves of one term. What no lane changes gets a name of its own, before the lane loop."""
        offsets = terms.offsets[row].tolist()
        result = [self.leaf(terms, k, offsets[k], extra[k] if extra else []) for k in range(len(offsets))]
        if not extra and len(self.nest.loops) < 2:
            return result
        return self.hoisted(terms, result) if self.nest.loops else result

    def hoisted(self, terms: Terms, leaves: list[str]) -> list[str]:
        lane = self.nest.loops[-1]
        result = []
        for k, text in enumerate(leaves):
            column = terms.columns[k]
            moves = lane.strides[column] != 0 or (lane.rows is not None and lane.rows[:, column].any())
            if not moves and terms.run.column + k not in self.nest.literals:
                self.line(f"const {self.type} x{k} = {text};")
                text = f"x{k}"
            result.append(text)
        return result

    # Sums and maxima

    def accumulate(self) -> None:
        """A sum (or maximum) of terms for each instance, lanes side by side."""
        self.open_outer_loops()
        opened = max(len(self.nest.loops) - 1, 0) + self.open_lanes()
        if not opened:
            self.line("{")
            self.level += 1
            opened = 1
        first = self.nest.terms[0]
        rest = self.nest.terms
        start = "-0.0" if self.nest.placed.combine == Op.ADD else "(-INFINITY)"  # changes no sum, no maximum
        if first.run.count == 1:
            rest = self.nest.terms[1:]
            leaves = self.leaves(first, 0, []) if len(self.nest.loops) < 2 else self.unhoisted(first)
            start, _ = self.arithmetic.expression(self.shapes, first.run.shape, iter(leaves))
        in_parts = any(self.goes_in_parts(terms, piece) for terms in rest for piece in terms.pieces)
        self.declare_sums(start, in_parts)
        for terms in rest:
            self.run(terms)
        total = self.sum
        if in_parts:
            sums = [self.sum.replace("sum", f"sum[{part}]", 1) for part in range(PARTS)]
            total = f"(({sums[0]} + {sums[1]}) + ({sums[2]} + {sums[3]}))"
        self.each_lane(f"{self.result()} = {self.finished(total)};")
        self.close(opened)

    def gradient(self) -> None:
        """A parameter's gradient: what is there already, then the terms of each image, in order.

        In registers, but for a row of gradients with one term an image: there is nothing to keep between two terms.
        """
        loops = self.nest.loops
        if len(loops) > 1:
            name, count = self.names[0], loops[0].count
            self.line(
                f"for (ptrdiff_t {name} = {count} * part / parts; {name} < {count} * (part + 1) / parts; {name}++) {{"
            )
            self.level += 1
            for loop, inner in zip(loops[1:-1], self.names[1:], strict=False):
                self.open(inner, loop.count)
        else:
            self.line(f"if (part == {self.nest.placed.number} % parts) {{")
            self.level += 1
        opened = max(len(loops) - 1, 1)
        in_place = len(loops) < 2 and all(terms.run.count == 1 for terms in self.nest.terms)
        if in_place:
            self.sum, self.bounds = self.result(), ("0", str(self.lanes)) if loops else None
        else:
            opened += self.open_lanes()
            self.declare_sums(self.result(), False)
        self.line("for (int image = 0; image < count; image++) {")
        self.level += 1
        body = len(self.block.lines)
        for terms in self.nest.terms[1:]:
            self.run(terms)
        if any("value[" in line for line in self.block.lines[body:]):
            declaration = f"const {self.type} *restrict const value = images[image].value;"
            self.block.lines.insert(body, INDENT * self.level + declaration)
        self.close()
        if not in_place:
            self.each_lane(f"{self.result()} = {self.sum};")
        self.close(opened)

    def unhoisted(self, terms: Terms) -> list[str]:
        return [self.leaf(terms, k, offset, []) for k, offset in enumerate(terms.offsets[0].tolist())]

    def open_lanes(self) -> int:
        """Opens a loop over blocks of lanes, where there are too many for the registers; returns how many loops."""
        if not self.nest.loops:
            return 0
        self.sum, self.bounds = "sum[lane]", ("0", str(self.lanes))
        self.width = self.arithmetic.lane_block(self.lanes)
        if self.width == self.lanes:
            return 0
        self.line(f"for (ptrdiff_t block = 0; block < {self.lanes}; block += {self.width}) {{")
        self.level += 1
        end = f"block + {self.width}"
        if self.lanes % self.width:
            self.line(f"const ptrdiff_t end = {end} < {self.lanes} ? {end} : {self.lanes};")
            end = "end"
        self.sum, self.bounds = "sum[lane - block]", ("block", end)
        return 1

    def declare_sums(self, start: str, in_parts: bool) -> None:
        parts = f"[{PARTS}]" if in_parts else ""
        if self.bounds is None:
            self.line(f"{self.type} sum{parts or f' = {start}'};")
        else:
            self.line(f"{self.type} sum{parts}[{self.width}];")
        if in_parts:
            for part in range(PARTS):
                self.each_lane(f"{self.sum.replace('sum', f'sum[{part}]', 1)} = {start if part == 0 else '-0.0'};")
        elif self.bounds is not None:
            self.each_lane(f"{self.sum} = {start};")
        self.in_parts = in_parts

    def each_lane(self, text: str) -> None:
        if self.bounds is None:
            self.line(text)
            return
        begin, end = self.bounds
        self.line(f"for (ptrdiff_t lane = {begin}; lane < {end}; lane++)")
        self.level += 1
        self.line(text)
        self.level -= 1

    def run(self, terms: Terms) -> None:
        """Adds a run of terms, piece by piece."""
        skip = skips_zero_inputs(self.shapes, self.nest, terms, self.emitter.rows, self.emitter.inputs)
        for piece in terms.pieces:
            if self.in_parts and self.goes_in_parts(terms, piece):
                self.piece_in_parts(terms, piece)
            else:
                self.piece(terms, piece, skip)

    def piece(self, terms: Terms, piece: Piece, skip: bool) -> None:
        loops = piece.loops[::-1]
        names = self.term_names(len(loops))
        for loop, name in zip(loops, names, strict=True):
            if skip:
                self.open_active(name)
            else:
                self.open(name, loop.count)
        opened = len(loops)
        if loops and not skip and self.lanes <= PEELED and (loops[-1].strides < 0).any():
            self.line("NOT_VECTORISED;")
        if not loops and self.needs_scopes():
            self.line("{")
            self.level += 1
            opened = 1
        self.active_inputs = skip
        self.term(terms, piece, loops, names, self.sum.replace("sum", "sum[0]", 1) if self.in_parts else self.sum)
        self.active_inputs = False
        self.close(opened)

    def needs_scopes(self) -> bool:
        """Whether several terms that stand in no loop of their own may each name what no lane changes."""
        pieces = [piece for terms in self.nest.terms for piece in terms.pieces if not piece.loops]
        return len(self.nest.loops) > 1 and len(pieces) > 1

    def term(self, terms: Terms, piece: Piece, loops: list[Loop], names: list[str], total: str) -> None:
        """One term, added to a total in each lane."""
        extra = [self.counters(loops, names, k) for k in range(len(terms.run.kinds))] if loops else []
        leaves = iter(self.leaves(terms, piece.start, extra))
        if self.nest.placed.combine == Op.MAX:
            text, _ = self.arithmetic.expression(self.shapes, terms.run.shape, leaves)
            self.each_lane(f"{total} = op_max({total}, {text});")
        else:
            self.each_lane(self.arithmetic.added(self.shapes, terms.run.shape, leaves, total))

    # Sums that may be reordered

    def goes_in_parts(self, terms: Terms, piece: Piece) -> bool:
        """A long loop whose additions would wait for one another: too few lanes to keep the processor busy."""
        return (
            self.arithmetic.reorder
            and self.nest.placed.combine == Op.ADD
            and self.lanes <= 2 * self.arithmetic.cache_line
            and len(piece.loops) > 0
            and piece.loops[0].count >= 2 * PARTS
            and not skips_zero_inputs(self.shapes, self.nest, terms, self.emitter.rows, self.emitter.inputs)
        )

    def piece_in_parts(self, terms: Terms, piece: Piece) -> None:
        """The innermost loop PARTS terms at a time, each to a sum of its own."""
        loops = piece.loops[::-1]
        names = self.term_names(len(loops))
        for loop, name in zip(loops[:-1], names, strict=False):
            self.open(name, loop.count)
        inner, count = names[-1], loops[-1].count
        whole = count // PARTS * PARTS
        self.line(f"for (ptrdiff_t from = 0; from < {whole}; from += {PARTS})")
        self.level += 1
        self.line(f"for (ptrdiff_t part = 0; part < {PARTS}; part++) {{")
        self.level += 1
        self.line(f"const ptrdiff_t {inner} = from + part;")
        self.term(terms, piece, loops, names, self.sum.replace("sum", "sum[part]", 1))
        self.close()
        self.level -= 1
        if whole < count:
            self.line(f"for (ptrdiff_t {inner} = {whole}; {inner} < {count}; {inner}++) {{")
            self.level += 1
            self.term(terms, piece, loops, names, self.sum.replace("sum", "sum[0]", 1))
            self.close()
        self.close(len(loops) - 1)
