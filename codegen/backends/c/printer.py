"""Statements of the loop language -> lines of C.

Example: the statement

    lanes i < 12:
        sum[i] += mul(data[39256 + i + 12k], x)

is printed as

    for (ptrdiff_t i = 0; i < 12; i++)
        sum[i] += data[P_LAYERS_1_WEIGHT + i + 12 * k] * x;
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod

from codegen.backends.expressions import PRIMARY, Arithmetic, Bound, apply_text, bound, index_text
from codegen.backends.text import summary
from codegen.ir.graph import Op
from codegen.ir.loops import (
    APART,
    BESIDE,
    DATA,
    INPUTS,
    MULTIPLY_ADD,
    ROWS_OF_IMAGES,
    VALUE,
    WIDENED,
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
    Nest,
    Pass,
    Place,
    Prefetch,
    Stmt,
    Store,
    applied_to_each,
    is_over_terms,
    map_body,
    moved,
    places,
    reads,
    statements,
    uses,
)
from codegen.reroll.names import comment
from codegen.schedule.copies import NO_LOOPS
from micrograd import ops
from micrograd.definitions import lane_template, near_limit, near_template

MAX_COMMENT = 112
MAX_LINES = 12  # of a comment
MANY = 32  # loops one after the other, whose loads and stores gcc compares with one another: of 500, for a minute
INDENT = "    "
NOT_VECTORISED = (Kind.IN_ORDER, Kind.IMAGES, Kind.FEW_IMAGES, Kind.GROUPS)  # gcc 12 may permute terms: schedule.marks


def table_lines(loops: Iterable[Loops], arithmetic: Arithmetic) -> list[str]:
    """The tables that kernels look up: indices, or constants. Those of one name are equal."""
    lines = []
    tables = {name: numbers for these in loops for name, numbers in these.tables.items()}
    for name, numbers in tables.items():
        is_index = all(isinstance(x, int) for x in numbers)
        values = [str(x) if is_index else arithmetic.literal(x) for x in numbers]
        rows = [f"{INDENT}{', '.join(values[i : i + 8])}," for i in range(0, len(values), 8)]
        lines += [f"TABLE {'int32_t' if is_index else arithmetic.type} {name}[{len(values)}] = {{", *rows, "};"]
    return lines


def statement_lines(body: Body, arithmetic: Arithmetic, in_lanes: bool = False) -> list[str]:
    """Statements outside of kernels, in a loop over lanes or not."""
    return [*Printer(NO_LOOPS, arithmetic, in_lanes).body(body)]


def apart(arithmetic: Arithmetic) -> str:
    """Declares the other name of value[]."""
    return f"const {arithmetic.type} *const apart = apart_from(value);"


def expression_text(expr: Expr, arithmetic: Arithmetic, at_least: int = 0) -> str:
    """An expression outside of kernels, in parentheses if it binds more weakly than `at_least`."""
    return bound(Printer(NO_LOOPS, arithmetic).expr(expr), at_least)


class Comments(dict[int, list[str]]):
    """What each kernel computes, by its number, as a formula, and the nodes of the graph.

    They are written when they are printed: those of most steps of a loop over kernels never are.
    """

    def __init__(self, plain: Loops) -> None:
        self.plain = plain  # as reroll made them
        self.kernels = {kernel.number: kernel for kernel in plain.kernels}

    def __missing__(self, number: int) -> list[str]:
        kernel = self.kernels[number]
        nodes = f"%{kernel.nodes[0]}" + (f" .. %{kernel.nodes[1]}" if kernel.roots > 1 else "")
        text = comment(f"{summary(self.plain, kernel)}: {nodes}")
        lines = textwrap.wrap(text, MAX_COMMENT, break_long_words=False, break_on_hyphens=False)
        if len(lines) > MAX_LINES:
            lines[MAX_LINES - 1 :] = [f"...: {nodes}"]
        self[number] = [f"/* {lines[0]}", *(f" * {line}" for line in lines[1:])]
        self[number][-1] += " */"
        return self[number]


class Printer:
    """Statements as lines of C."""

    def __init__(
        self,
        loops: Loops,
        arithmetic: Arithmetic,
        in_lanes: bool = False,
        comments: Comments | None = None,
    ) -> None:
        self.loops, self.arithmetic = loops, arithmetic
        self.comments = Comments(loops) if comments is None else comments
        self.kernel = loops.kernels[0] if loops.kernels else None
        self.in_lanes = in_lanes
        self.lanes_template: Callable[[ops.Row, bool], str] = lane_template
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
        for i, stmt in enumerate(body):
            yield from self.statement(stmt)
            if type(stmt) is For and i % MANY == MANY - 1:
                yield "STORE_BARRIER;"

    def statement(self, stmt: Stmt) -> Iterator[str]:
        match stmt:
            case For() if stmt.near:
                yield from self.near_or_not(stmt)
            case For() if stmt.kind == Kind.EACH:
                yield self.each(stmt)
            case For() if stmt.kind == Kind.TRANSPOSED:
                yield self.transposed(stmt)
            case For():
                yield from self.loop(stmt)
            case Nest():
                assert self.kernel is not None
                yield from [*self.comments[stmt.number], *self.nest(self.kernel, stmt.body)]
            case Let():
                assert not isinstance(stmt.value, Index)
                const = "" if stmt.name in self.variables else "const "
                yield f"{const}{self.arithmetic.type} {stmt.name} = {self.expr(stmt.value)[0]};"
            case Local():
                images = "[SIDE_BY_SIDE]" if stmt.images else ""
                yield f"{self.arithmetic.type} {stmt.name}[{stmt.length}]{images};"
            case Prefetch():
                yield self.prefetch(stmt)
            case Store():
                yield f"{self.expr(stmt.target)[0]} = {self.expr(stmt.value)[0]};"
            case Accumulate():
                target = self.expr(stmt.target)[0]
                if stmt.op == Op.ADD:
                    yield f"{target} += {self.expr(stmt.value)[0]};"
                else:
                    yield f"{target} = {self.expr(Apply(stmt.op, (stmt.target, stmt.value)))[0]};"

    def each(self, loop: For) -> str:
        """A call of a function of some cache lines of numbers; images side by side fill one."""
        op, place = applied_to_each(loop)
        first = self.expr(replace(place, image=""))[0] if place.image else f"&{self.expr(place)[0]}"
        count = loop.count if place.image else loop.count // self.arithmetic.cache_line
        lines = index_text(None, "", Index(count, loop.steps))
        return f"AT_LEVEL(each_{ops.row(op).name})({first}, {lines});"

    def transposed(self, loop: For) -> str:
        """A call of a function for rows of a matrix, all as far apart."""
        first, second, *_ = loop.body
        assert isinstance(first, Store)
        assert isinstance(first.target, Place)
        (row,), (below,) = reads(first), reads(second)
        distance, apart = below.index.base - row.index.base, first.target.index.stride(loop.counter)
        starts = [replace(place, index=moved(place.index, loop.counter, Index(0))) for place in (first.target, row)]
        to, source = (f"&{self.expr(place)[0]}" for place in starts)
        return f"AT_LEVEL(transpose_rows)({to}, {apart}, {source}, {distance}, {loop.count});"

    def prefetch(self, stmt: Prefetch) -> str:
        """`later`: by how many numbers; images have workspaces of their own."""
        stride = stmt.place.index.stride(stmt.counter)
        later = f"{stmt.ahead * stride}" if stride else f"{stmt.ahead} * WORKSPACE_NUMBERS"
        return f"PREFETCH_LATER({self.expr(stmt.place)[0]}, {later});"

    def near_or_not(self, loop: For) -> Iterator[str]:
        """A loop with the short forms of functions, for arguments that are all near 0, and one that calls them."""
        limit = self.arithmetic.literal(near_limit(self.arithmetic.is_float32))
        tests = [f"beyond |= FABS({self.expr(argument)[0]}) > {limit};" for argument in loop.near]
        yield from ["{", f"{INDENT}real_bits beyond = 0;"]
        yield from (INDENT + line for line in self.loop(loop, tests))
        for head, template in (("if (!beyond) {", near_template), ("} else {", lambda row, _: ops.C[row.number])):
            self.lanes_template = template
            yield INDENT + head
            yield from (2 * INDENT + line for line in self.loop(loop))
        self.lanes_template = lane_template
        yield from [f"{INDENT}}}", "}"]

    def totals(self, added: For) -> Iterator[str]:
        """Sums of images side by side are added up all together, before each of them goes to its place."""

        def change(expr: Expr) -> Expr:
            return replace(expr, array="total", image="") if type(expr) is Place and expr.image else expr

        (sums,) = {place.array for place in places(added.body) if place.image}
        count = prod(stmt.count for stmt in statements(added.body) if isinstance(stmt, For))
        yield f"{self.arithmetic.type} total[{count}];"
        yield f"AT_LEVEL(add_up)(total, {sums}, {count}, count);"
        yield from self.body(map_body(added.body, change))

    def loop(self, loop: For, instead: Iterable[str] = ()) -> Iterator[str]:
        """`instead`: lines in the place of its body."""
        counter, count = loop.counter, index_text(None, "", Index(loop.count, loop.steps))
        head = [f"for (ptrdiff_t {counter} = 0; {counter} < {count}; {counter}++)"]
        inside: list[str] = []
        match loop.kind:
            case Kind.ACTIVE if self.kernel is not None and self.kernel.passes & ROWS_OF_IMAGES:
                head = [f"for (ptrdiff_t {counter} = first; {counter} < end; {counter}++)"]
            case Kind.ACTIVE:
                assert self.kernel is not None
                is_part = self.kernel.passes & Pass.ROW_SUMS
                head = [
                    f"for (int a = {'first' if is_part else '0'}; a < {'end' if is_part else 'w->active_count'}; a++)"
                ]
                inside = [f"const ptrdiff_t {counter} = w->active[a];"]
                inside.append(f"const {self.arithmetic.type} {loop.input} = w->active_value[a];")
            case Kind.IMAGES | Kind.FEW_IMAGES:
                end, const = ("count", "const ") if loop.kind == Kind.IMAGES else (count, "")
                head = [f"for (int {counter} = 0; {counter} < {end}; {counter}++)"]
                if uses(loop.body, VALUE):
                    inside = [f"{const}{self.arithmetic.type} *restrict const value = images[{counter}].value;"]
                    inside += [apart(self.arithmetic)] if uses(loop.body, APART) else []
            case Kind.SIDE_BY_SIDE:
                head = [f"EACH_IMAGE({counter})"]
            case Kind.GROUPS:
                head = [f"for (int {counter} = 0; {counter} < groups; {counter}++)"]
                if uses(loop.body, VALUE):
                    of_group = f"images[{counter}].value"
                    inside = [f"const {self.arithmetic.type}(*restrict const value)[SIDE_BY_SIDE] = {of_group};"]
            case Kind.ADDED:
                yield from self.totals(loop)
                return
            case Kind.VECTORS:
                head[0] = f"VECTORS({count}) {head[0]}"
            case Kind.PARALLEL if loop.count == 1:
                assert self.kernel is not None
                head = [f"if (part == {self.kernel.number} % parts)"]
            case Kind.PARALLEL:
                end = f"{count} * (part + 1) / parts"
                head = [f"for (ptrdiff_t {counter} = {count} * part / parts; {counter} < {end}; {counter}++)"]
        if loop.unrolled:
            head[0] = f"UNROLLED({count}) {head[0]}"
        if loop.kind in NOT_VECTORISED:
            inside.insert(0, "NOT_VECTORISED;")
        around, self.in_lanes = self.in_lanes, loop.kind in BESIDE
        body = self.by_rows(loop.body) if self.has_rows(loop) else loop.body
        always, rest = loop.with_body(body).halves
        lines = [*inside, *(instead or self.body(always))]
        if rest and not instead:
            lines += [*self.end_of_last(loop), *self.body(rest)]
        self.in_lanes = around
        if len(lines) == 1 and loop.kind == Kind.SIDE_BY_SIDE and len(head[0] + lines[0]) < MAX_COMMENT:
            yield f"{head[0]} {lines[0]}"
        elif len(lines) == 1:
            yield from [*head, INDENT + lines[0]]
        else:
            yield from [*head[:-1], f"{head[-1]} {{", *(INDENT + line for line in lines), "}"]

    def end_of_last(self, loop: For) -> list[str]:
        """Where the last iteration of a loop over kernels ends early."""
        last = index_text(None, "", Index(loop.count - 1, loop.steps))
        return [f"if ({loop.counter} == {last})", f"{INDENT}break;"]

    def has_rows(self, loop: For) -> bool:
        """Whether a loop over terms has lanes right inside, or tiles of them, or those of a few images."""
        if loop.kind not in (Kind.SEQUENTIAL, Kind.IN_ORDER, Kind.ACTIVE) or not is_over_terms(loop):
            return False
        inside = (*BESIDE, Kind.FEW_IMAGES)
        return all(not isinstance(stmt, For) or stmt.kind in inside for stmt in statements(loop.body))

    def by_rows(self, body: Body) -> Body:
        """The body of a loop over terms, with (data + P_W + 56 * k)[i] for data[P_W + i + 56 * k].

        gcc 12 keeps the sums of the lanes in registers only if it sees that a pointer to the row cannot point to them.
        """
        lanes = [s.counter for s in statements(body) if type(s) is For and s.kind in (Kind.LANES, Kind.VECTORS)]

        def change(expr: Expr) -> Expr:
            if type(expr) is not Place or expr.array != DATA:
                return expr
            steps = expr.index.steps
            start = replace(expr.index, steps=tuple([step for step in steps if step[1] not in lanes]))
            lane = Index(0, tuple([step for step in steps if step[1] in lanes]))
            if not lane.steps:
                return expr
            return Place(f"(data + {index_text(self.loops, DATA, start)})", lane)

        return map_body(body, change) if lanes else body

    def expr(self, expr: Expr) -> Bound:
        match expr:
            case Place() if expr.array == INPUTS:  # all of them are active
                return f"images[{expr.image}].active_value[{index_text(self.loops, INPUTS, expr.index)}]", PRIMARY
            case Place():
                image = f"[{expr.image}]" if expr.image else ""
                return f"{expr.array}[{index_text(self.loops, expr.array, expr.index)}]{image}", PRIMARY
            case Name():
                return expr.name, PRIMARY
            case Const():
                return self.arithmetic.literal(expr.value), PRIMARY
        operands = [self.expr(operand) for operand in expr.operands]
        return apply_text(expr.op, operands, self.template(expr.op))

    def template(self, op: int) -> str:
        if op == MULTIPLY_ADD:
            return "MULTIPLY_ADD({}, {}, {})"
        if op == WIDENED:
            return "WIDENED({})"
        return self.lanes_template(ops.row(op), self.arithmetic.is_float32) if self.in_lanes else ops.C[op]
