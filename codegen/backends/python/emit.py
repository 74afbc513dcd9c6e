"""Loop nests -> Python text; for small graphs, expression trees -> one statement each.

Example input: the nest of 10 x sum(P, 50 x mul(P, R)) becomes:

    for lane in range(10):
        total = data[P_LAYERS_1_BIAS + lane]
        at1 = P_LAYERS_1_WEIGHT + lane
        for term in range(50):
            total += data[at1 + 10 * term] * value[GROUP_0 + term]
        value[GROUP_1 + lane] = total

What the innermost loop does not change stands before it, as Python would compute it again each time. These are the
loops of the C (emit.py), over lists: PyPy compiles them to machine code, and CPython runs them as fast as slices and
comprehensions. The built-in sum() of floats is not used: it adds with a compensation from Python 3.12 on.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from math import isinf, isnan
from typing import ClassVar

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.functions import INDENT, MAX_FUNCTION, Block
from codegen.backends.names import GRAD, VALUE
from codegen.backends.writer import MAX_EXPRESSION, Emitter, NestWriter
from codegen.ir.graph import Graph, Op
from codegen.program import Program
from codegen.reroll.affine import Loop
from codegen.reroll.groups import Ints, Need, needs
from codegen.reroll.layout import split_shape
from codegen.reroll.lower import RESULT, Nest, Terms
from codegen.reroll.sparse import skips_zero_inputs
from codegen.reroll.trees import Trees, find_trees
from micrograd.ops import PYTHON_TEXT

PASSES = {
    "compute_loss": Need.LOSS,
    "compute_gradients": Need.GRADIENTS | Need.DENSE_GRADIENTS | Need.ROW_GRADIENTS,
    "compute_prediction": Need.PREDICTION,
    "compute_outputs": Need.OUTPUTS,
    "compute_evaluation": Need.LOSS | Need.PREDICTION,
}
MAX_LINE = 116

Opened = tuple[Loop, str, bool]  # a loop, the name of its counter, whether it goes over terms or over instances


def parameters(need: Need) -> str:
    """What a function or a pass takes."""
    return f"data, {'grad, ' * bool(need & (Need.DENSE_GRADIENTS | Need.ROW_GRADIENTS))}value, active"


class PythonText(Arithmetic):
    """Strict float64 in Python."""

    ops: ClassVar[Sequence[str]] = PYTHON_TEXT

    def literal(self, value: float) -> str:
        """A constant with exactly these bits (any nan is the nan)."""
        if isnan(value):
            return "NAN"
        if isinf(value):
            return "INF" if value > 0 else "-INF"
        return repr(float(value))

    def combined(self, op: int | None, parts: list[tuple[str, bool]]) -> str:
        """The sum or the maximum of texts, from left to right; of a single one, that one."""
        if len(parts) == 1:
            return parts[0][0]
        if op == Op.ADD:
            return " + ".join(f"({text})" if loose else text for text, loose in parts)
        result = parts[0][0]
        for text, _ in parts[1:]:
            result = f"maximum({result}, {text})"
        return result


class PythonWriter(NestWriter):
    """Writes one nest as Python."""

    arithmetic: PythonText
    active = ""  # the name of the input, inside a loop over the active inputs

    def __init__(self, emitter: Emitter, nest: Nest, block: Block) -> None:
        super().__init__(emitter, nest, block)
        self.hoists = 0  # how many
        self.hoisted: dict[str, str] = {}  # before the loop that is opened next: text -> name

    def add_table(self, values: list[str], of_indices: bool) -> str:
        name = self.table_name()
        self.block.tables += [f"{name} = [", *wrapped(", ".join(values)), "]"]
        return name

    def open(self, loops: Iterable[Opened]) -> None:
        self.hoisted.clear()
        for loop, name, _ in loops:
            self.line(f"for {name} in range({loop.count}):")
            self.level += 1

    def instances(self) -> list[Opened]:
        return [(loop, name, False) for loop, name in zip(self.nest.loops, self.names, strict=True)]

    # Indices

    def moved(self, opened: list[Opened], column: int, k: int = -1) -> str:
        """What loops add to an index: `column` is the instances' column, `k` the leaf of a term."""
        parts = (self.counters([loop], [name], k if is_term else column) for loop, name, is_term in opened)
        return "".join(text for found in parts for text in found)

    def hoist(self, name: str, text: str) -> str:
        """Gives a name to what the innermost loop, which is opened next, does not change."""
        if text not in self.hoisted:
            self.hoists += 1
            self.hoisted[text] = f"{name}{self.hoists}"
            self.line(f"{name}{self.hoists} = {text}")
        return self.hoisted[text]

    def element(self, array: str, start: str, fixed: str, moving: str, has_loop: bool) -> str:
        if not moving:
            text = f"{array}[{start}{fixed}]"
            return self.hoist("x", text) if has_loop else text
        if fixed:
            start = self.hoist("at", start + fixed)
        return f"{array}[{start}{moving}]"

    def leaves(self, terms: Terms, row: int, outer: list[Opened], inner: list[Opened]) -> Iterator[str]:
        """The leaves of one term, inside a last loop (`inner`, if there is one) that is still to be opened."""
        result = []
        for k, offset in enumerate(terms.offsets[row].tolist()):
            if terms.run.column + k in self.nest.literals:
                result.append(self.literal(self.nest.literals[terms.run.column + k]))
            elif self.active and terms.run.kinds[k] == Op.INPUT:
                result.append(self.active)
            else:
                fixed, moving = (self.moved(loops, terms.columns[k], k) for loops in (outer, inner))
                result.append(self.element(*self.place(terms, k, offset), fixed, moving, bool(inner)))
        return iter(result)

    def result(self, outer: list[Opened], inner: list[Opened]) -> str:
        fixed, moving = (self.moved(loops, RESULT) for loops in (outer, inner))
        return self.element(*self.result_place(), fixed, moving, has_loop=False)

    def term(self, terms: Terms, row: int, outer: list[Opened], inner: list[Opened]) -> tuple[str, bool]:
        """The text of one term, and whether it needs parentheses inside + and *."""
        return self.arithmetic.expression(self.shapes, terms.run.shape, self.leaves(terms, row, outer, inner))

    # Nests

    def write(self) -> None:
        count = sum(terms.run.count for terms in self.nest.terms)
        if self.block.need == Need.ROW_GRADIENTS:
            self.row_gradient()
        elif any(self.skips(terms) for terms in self.nest.terms):
            self.sums()
        elif count <= MAX_EXPRESSION:
            self.assignment()
        else:
            self.total()
        self.level = 0

    def skips(self, terms: Terms) -> bool:
        return skips_zero_inputs(self.shapes, self.nest, terms, self.emitter.rows, self.emitter.inputs)

    def assignment(self) -> None:
        """One expression for each instance."""
        outer, inner = self.instances()[:-1], self.instances()[-1:]
        self.open(outer)
        parts = [self.term(terms, row, outer, inner) for terms in self.nest.terms for row in range(len(terms.offsets))]
        adds = self.nest.placed.group.is_gradient and len(parts) == 2  # to the gradient that is there
        text = self.finished(self.arithmetic.combined(self.nest.placed.combine, parts[adds:]))
        result = self.result(outer, inner)
        self.open(inner)
        self.block.lines += [INDENT * self.level + line for line in assigned(result, "+=" if adds else "=", text)]

    def start(self, outer: list[Opened], inner: list[Opened]) -> tuple[str, list[Terms]]:
        """What a sum or a maximum starts from, which changes no sum and no maximum, and the terms that follow."""
        first, *rest = self.nest.terms
        if first.run.count == 1:
            return self.term(first, 0, outer, inner)[0], rest
        return "-0.0" if self.nest.placed.combine == Op.ADD else "-INF", self.nest.terms

    def added(self, total: str, text: str) -> str:
        return f"{total} += {text}" if self.nest.placed.combine == Op.ADD else f"{total} = maximum({total}, {text})"

    def total(self) -> None:
        """A sum or a maximum of many terms for each instance."""
        instances = self.instances()
        self.open(instances)
        start, rest = self.start(instances, [])
        self.line(f"total = {start}")
        for terms in rest:
            for piece in terms.pieces:
                walk = self.walk(piece.loops)
                level = self.level
                self.open(walk[:-1])
                text, _ = self.term(terms, piece.start, instances + walk[:-1], walk[-1:])
                self.open(walk[-1:])
                self.line(self.added("total", text))
                self.level = level
        self.line(f"{self.result(instances, [])} = {self.finished('total')}")

    def walk(self, loops: list[Loop]) -> list[Opened]:
        names = self.term_names(len(loops))
        return [(loop, name, True) for loop, name in zip(loops[::-1], names, strict=True)]

    def sums(self) -> None:
        """All lanes' sums side by side, so that the row of an input that is 0 is skipped for all of them at once."""
        (lane,) = instances = self.instances()
        start, rest = self.start([], instances)
        self.line(f"sums = [{start} for lane in range({lane[0].count})]")
        for terms in rest:
            for piece in terms.pieces:
                walk = self.walk(piece.loops)
                if self.skips(terms):
                    self.open_rows(walk[0][1], "active")
                else:
                    self.open(walk)
                text, _ = self.term(terms, piece.start, walk, instances)
                self.open(instances)
                self.line(f"sums[lane] += {text}")
                self.level, self.active = 0, ""
        self.open(instances)
        self.line(f"{self.result([], instances)} = {self.finished('sums[lane]')}")

    def row_gradient(self) -> None:
        """The gradient of a row tensor: the rows of active inputs, if that is all that can change."""
        row, lane = self.instances()
        terms = self.nest.terms[1]
        name = self.emitter.offsets.text(VALUE, self.emitter.rows[int(self.nest.first[RESULT])].factor)
        self.line(f"factors = value[{name} : {name} + {lane[0].count}]")
        self.open_rows(row[1], "changed_rows(factors, value, active)")
        leaves = ("x" if kind == Op.INPUT else "factors[lane]" for kind in terms.run.kinds)
        text, _ = self.arithmetic.expression(self.shapes, terms.run.shape, leaves)
        result = self.result([row], [lane])
        self.open([lane])
        self.line(f"{result} += {text}")

    def open_rows(self, name: str, rows: str) -> None:
        self.hoisted.clear()
        self.active = "x"
        self.line(f"for {name}, x in {rows}:")
        self.level += 1


def functions(blocks: list[Block]) -> list[str]:
    """Blocks -> functions of a bearable length, and one for each pass, which calls those that it needs."""
    lines: list[str] = []
    calls: list[tuple[Need, str]] = []
    i = 0
    while i < len(blocks):
        first, need, body = i, blocks[i].need, list[str]()
        while i < len(blocks) and blocks[i].need == need and len(body) < MAX_FUNCTION:
            lines += blocks[i].tables
            body += [f"{INDENT}# {blocks[i].comment}", *(INDENT + line for line in blocks[i].lines)]
            i += 1
        numbers = [str(blocks[k].number) for k in sorted({first, i - 1})]
        name = f"group{'s' * (len(numbers) > 1)}_{'_to_'.join(numbers)}"
        lines += ["", "", f"def {name}({parameters(need)}):", *body]
        calls.append((need, f"{name}({parameters(need)})"))
    for name, need in PASSES.items():
        skip = Need.LOSS if need & Need.GRADIENTS else Need(0)  # forward has left these behind
        body = [INDENT + call for has, call in calls if has & need and not has & skip]
        lines += ["", "", f"def {name}({parameters(need)}):", *(body or [INDENT + "pass"])]
    return lines


def assigned(target: str, sign: str, text: str) -> list[str]:
    """An assignment, in parentheses over several lines where it is too long for one."""
    line = f"{target} {sign} {text}"
    return [line] if len(line) <= MAX_LINE - 16 else [f"{target} {sign} (", *wrapped(text), ")"]


def wrapped(text: str) -> list[str]:
    """A text over several lines, between an opening and a closing line: it is broken at spaces alone."""
    wrapper = textwrap.TextWrapper(MAX_LINE, INDENT, INDENT, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)


class StraightLine:
    """A small graph, one statement for each root, everything but the arrays in local variables.

    Names: p0, p1, ... parameters, x inputs, t targets, r the roots. `slots` is where a root stands in value[], behind
    inputs and targets; those of the loss come first.
    """

    def __init__(self, graph: Graph, program: Program, places: Ints) -> None:
        self.graph, self.places = graph, places
        self.text = PythonText()
        self.trees: Trees = find_trees(graph)
        self.inputs, self.targets = len(program.inputs.values), len(program.target_values)
        masks = needs(graph, program.prediction)
        parameter_of = {n: i for i, n in graph.gradients.items() if self.trees.leaves_of[n] != (n,)}
        observed = [n for n in self.trees.roots if masks[n] & ~Need.GRADIENTS]
        adjoints = [n for n in self.trees.roots if masks[n] == Need.GRADIENTS and n not in parameter_of]
        order = sorted(observed, key=lambda n: not masks[n] & Need.LOSS)
        self.slots = {n: self.inputs + self.targets + i for i, n in enumerate(order)}
        self.of_loss = sum(bool(masks[n] & Need.LOSS) for n in order)
        self.names = {n: f"r{i}" for i, n in enumerate([*order, *adjoints])}
        self.statements: list[tuple[int, list[str]]] = []  # which passes need it, and its lines
        for n in self.trees.roots:
            if n in parameter_of:
                target = f"{GRAD}[{places[parameter_of[n]]}]"
            elif n in self.names and (n in self.slots or self.trees.leaves_of[n] != (n,)):
                target = f"{self.names[n]} = {VALUE}[{self.slots[n]}]" if n in self.slots else self.names[n]
            else:
                continue
            self.statements.append((masks[n], self.statement(n, target, n in parameter_of)))

    def statement(self, n: int, target: str, is_gradient: bool) -> list[str]:
        shapes = self.trees.shapes
        runs, post, combine = split_shape(shapes, self.trees.shape_of[n], is_gradient)
        leaves = iter(self.trees.leaves_of[n])
        parts = [
            self.text.expression(shapes, run.shape, iter([self.operand(next(leaves), kind) for kind in run.kinds]))
            for run in runs
            for _ in range(run.count)
        ]
        adds = is_gradient and len(parts) == 2  # to the gradient that is there
        text = self.text.combined(combine, parts[adds:])
        for op in post:
            text = self.text.ops[op].format(text)
        return assigned(target, "+=" if adds else "=", text)

    def operand(self, n: int, kind: int) -> str:
        number = self.graph.a[n]
        match kind:
            case Op.CONST:
                return self.text.literal(self.graph.constants[number])
            case Op.PARAM:
                return f"p{self.places[number]}"
            case Op.GRAD:
                return f"{GRAD}[{self.places[number]}]"
            case Op.INPUT:
                return f"x{number}"
            case Op.TARGET:
                return f"t{number}"
            case _:
                return self.names[n]

    def functions(self) -> list[str]:
        lines: list[str] = []
        leaves = [f"x{i}" for i in range(self.inputs)] + [f"t{i}" for i in range(self.targets)]
        for name, need in PASSES.items():
            backward = bool(need & Need.GRADIENTS)
            skip = Need.LOSS if backward else Need(0)  # forward has left these behind
            known = leaves + [f"r{i}" for i in range(self.of_loss)] if backward else leaves
            body = [line for has, found in self.statements if has & need and not has & skip for line in found]
            unpacked = [
                *unpack([f"p{i}" for i in range(len(self.places))], "data", body),
                *unpack(known, f"value[:{len(known)}]", body),
            ]
            lines += ["", "", f"def {name}({parameters(need)}):"]
            lines += [INDENT + line for line in [*unpacked, *body] or ["pass"]]
        return lines


def unpack(names: list[str], source: str, body: list[str]) -> list[str]:
    """Local variables for the elements of a list, if the lines that follow use any of them."""
    if not set(names) & {word for line in body for word in re.findall(r"\w+", line)}:
        return []
    if len(names) > 12:
        return ["(", *wrapped(", ".join(names) + ","), f") = {source}"]
    return [f"{', '.join(names)}{',' * (len(names) == 1)} = {source}"]
