"""Compiled -> words: which loop nests stand for the graph of a program, and how much of its work they do.

Example output, for one group of the model in codegen/mnist.py:

    50 x relu(sum(P, 784 x mul(P, X)))
        R0[i] = relu(sum(layers.0.bias[i], 784 x mul(layers.0.weight[i + 56k], X[k])))    i < 50, k < 784

The first line is the group: how many roots of which shape. Below it stands each of its loop nests: the same shape with
the leaves' places, R0 being the results of group 0, and how far every counter runs. i, j, ... walk over the roots,
k, ... over the terms of a sum.

`python -m codegen.backends.text MODEL.py` prints this for the Program that MODEL.py declares by a function program().
"""

from __future__ import annotations

import argparse
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.ir.graph import Op
from codegen.pipeline import Compiled, compile_program
from codegen.program import load
from codegen.reroll.affine import Loop, Piece
from codegen.reroll.layout import Layout
from codegen.reroll.lower import RESULT, Nest, Terms
from codegen.reroll.trees import ROOT_KIND, Shapes

ROOT_COUNTERS = "ijlmno"
TERM_COUNTERS = "kuvwpq"
LEAF = re.compile(r"\b[PGXTCR]\b")  # in the text of a shape


@dataclass(frozen=True)
class Found:
    """A group in words: its count and shape, and for each loop nest an assignment and the ranges of its counters."""

    title: str
    nests: list[tuple[str, str]]


@dataclass(frozen=True)
class Work:
    """Scalar operations of a program: all, those in loops, those in loops whose inner one has strides 0 and 1 only."""

    nodes: int
    groups: int
    operations: int
    in_loops: int
    unit_stride: int

    def __str__(self) -> str:
        share = 100 * self.unit_stride / max(self.operations, 1)
        return (
            f"{self.nodes:,} nodes, {self.operations:,} of them operations, in {self.groups} groups; "
            f"{self.in_loops:,} operations in loops, {self.unit_stride:,} ({share:.1f} %) with unit stride"
        )


def explain(compiled: Compiled) -> list[Found]:
    """Each group, in the order of the generated C. Raises ValueError for the straight-line lowering: it has none."""
    if compiled.layout is None:
        raise ValueError("straight-line code has no groups: compile with lowering='loops'")
    names = _Names(compiled.layout)
    found = []
    for placed, nests in compiled.groups:
        title = f"{len(placed.group.roots)} x {compiled.shapes.text(placed.group.shape)}"
        found.append(Found(title, [_nest_text(compiled.shapes, names, nest) for nest in nests]))
    return found


def work(compiled: Compiled) -> Work:
    """How much of the program is in loops. A sum over terms is a loop too."""
    total = in_loops = unit_stride = 0
    for placed, nests in compiled.groups:
        operations = _operations(compiled.shapes, placed.group.shape)
        for nest in nests:
            amount = operations * len(nest.roots)
            inner = _innermost(nest)
            total += amount
            in_loops += amount * bool(inner)
            unit_stride += amount * (bool(inner) and all(map(_has_unit_stride, inner)))
    return Work(len(compiled.graph), len(compiled.groups), total, in_loops, unit_stride)


def _operations(shapes: Shapes, shape: int) -> int:
    """The operations in one tree of a shape: n terms are added by n - 1 additions."""
    if shapes.is_leaf(shape):
        return 0
    runs = shapes.terms(shape)
    if runs is None:
        return 1 + sum(_operations(shapes, operand) for operand in shapes.operands(shape))
    return sum(count * (1 + _operations(shapes, term)) for term, count in runs) - 1


def _innermost(nest: Nest) -> list[Loop]:
    """The loop over lanes; where there is one root only, the inner loops over the terms of its sum."""
    if nest.loops:
        return nest.loops[-1:]
    return [piece.loops[0] for terms in nest.terms for piece in terms.pieces if piece.loops]


def _has_unit_stride(loop: Loop) -> bool:
    return loop.rows is None and set(loop.strides.tolist()) <= {0, 1}


class _Names:
    """Turns an index into the name of an array and the index in it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.values = [(0, "X"), (layout.target_offset, "T")]
        self.values += [(placed.offset, f"R{placed.number}") for placed in layout.placed if placed.offset >= 0]

    def parameter(self, index: int) -> tuple[str, int]:
        place = self.layout.tensor_at(index)
        return place.tensor.name, index - place.offset

    def value(self, index: int) -> tuple[str, int]:
        start, name = self.values[bisect_right(self.values, index, key=lambda entry: entry[0]) - 1]
        return name, index - start

    def of_kind(self, kind: int, index: int) -> tuple[str, int]:
        name, rest = self.parameter(index) if kind in (Op.PARAM, Op.GRAD) else self.value(index)
        return (f"{name}.grad" if kind == Op.GRAD else name), rest


def _nest_text(shapes: Shapes, names: _Names, nest: Nest) -> tuple[str, str]:
    """One nest as an assignment, and the ranges of its counters."""
    group = nest.placed.group
    counters = [_counter(ROOT_COUNTERS, i) for i in range(len(nest.loops))]
    ranges = [f"{name} < {loop.count}" for name, loop in zip(counters, nest.loops, strict=True)]
    leaves: list[list[str]] = [[] for run in nest.placed.runs for _ in run.kinds]
    starts = [run.column for run in nest.placed.runs]
    widths = [len(run.kinds) for run in nest.placed.runs]
    used = 0
    for terms in nest.terms:  # a run of the shape may be cut in several
        run = bisect_right(starts, terms.run.column) - 1
        for piece in terms.pieces:
            inner = [_counter(TERM_COUNTERS, used + i) for i in range(len(piece.loops))]
            used += len(inner)
            ranges += [f"{name} < {loop.count}" for name, loop in zip(inner, piece.loops, strict=True)]
            for k in range(len(terms.run.kinds)):
                leaves[sum(widths[:run]) + k].append(_leaf_text(names, nest, counters, terms, piece, inner, k))
    texts = iter([" then ".join(parts) for parts in leaves])
    right = LEAF.sub(lambda _: next(texts), shapes.text(group.shape))
    index = int(nest.first[RESULT])
    name, rest = names.of_kind(Op.GRAD if group.is_gradient else ROOT_KIND, index)
    left = _element(name, rest, _steps(nest.loops, counters, RESULT))
    return f"{left} = {right}", ", ".join(ranges)


def _leaf_text(
    names: _Names, nest: Nest, counters: list[str], terms: Terms, piece: Piece, inner: list[str], k: int
) -> str:
    column, key = terms.columns[k], terms.run.column + k
    if key in nest.literals:
        return f"{nest.literals[key]:g}"
    steps = _steps(nest.loops, counters, column) + _steps(piece.loops, inner, k)
    index = int(nest.first[column]) + int(terms.offsets[piece.start][k])
    if key in nest.tables:
        return _element("constants", index, steps)
    return _element(*names.of_kind(terms.run.kinds[k], index), steps)


def _steps(loops: list[Loop], counters: list[str], column: int) -> list[tuple[int, str]]:
    """(stride, counter) of each loop that moves a column; a stride of 1 where a table says how far."""
    steps = [(int(loop.strides[column]), name) for loop, name in zip(loops, counters, strict=True)]
    tables = [
        (1, f"table[{name}]")
        for loop, name in zip(loops, counters, strict=True)
        if loop.rows is not None and loop.rows[:, column].any()
    ]
    return [step for step in steps if step[0]] + tables


def _element(name: str, base: int, steps: list[tuple[int, str]]) -> str:
    """`name[9 + i - 12j]`"""
    text = str(base) if base or not steps else ""
    for stride, counter in steps:
        sign = "-" if stride < 0 else "+" if text else ""
        factor = "" if abs(stride) == 1 else str(abs(stride))
        text += f" {sign} {factor}{counter}" if text else f"{sign}{factor}{counter}"
    return f"{name}[{text}]"


def _counter(letters: str, i: int) -> str:
    return letters[i] if i < len(letters) else f"{letters[0]}{i}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m codegen.backends.text", description="The loops found in a model.")
    parser.add_argument("model", type=Path, help="a Python file with a function program() that returns a Program")
    path = parser.parse_args(arguments).model
    try:
        program = load(path)
    except OSError as error:
        parser.error(f"{path}: {error.strerror}")
    print_groups(compile_program(program))


def print_groups(compiled: Compiled) -> None:
    """Every group with its nests, then the numbers."""
    for found in explain(compiled):
        print(found.title)
        for assignment, ranges in found.nests:
            print(f"    {assignment}    {ranges}".rstrip())
    print(work(compiled))


if __name__ == "__main__":
    main()
