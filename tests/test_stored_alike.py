"""What is read once is stored where others of its layer are: else it is apart from them, and so is all around it."""

from __future__ import annotations

import random

import models
from harness import compare, parse

from codegen import Floats, Program
from codegen.ir.graph import Graph
from codegen.passes.stored_alike import store_alike
from codegen.pipeline import build_graph, compile_program
from micrograd.functional import total


def cells(first: int = 2, end: int = 6, steps: int = 4, width: int = 8) -> Program:
    """Cells in a ring, each of which sees its neighbours' states; the last states from `first` to `end` are read."""
    x, w = models.values(steps * width), models.weights(random.Random(1), 3)
    (keep,) = rest = models.weights(random.Random(2), 1)
    state = cell = x[:width]
    for at in range(width, len(x), width):
        seen = [total([w[k] * state[(i + k - 1) % width] for k in range(3)]).tanh() for i in range(width)]
        cell = [keep * c + s * v for c, s, v in zip(cell, seen, x[at : at + width], strict=True)]
        state = [c.tanh() for c in cell]
    out = state[first:end]
    return Program(Floats(x), None, {"w": w, "keep": rest}, total([v * v for v in out]), {"out": out}, 0.01)


def stored(graph: Graph) -> list[int]:
    store_alike(graph)
    return sorted(graph.stored)


def example(*used: str) -> Graph:
    """Two sums of two products, their functions, and what else reads the sums."""
    lines = [f"%{n} = param {n}" for n in range(4)]
    lines += ["%4 = mul %0 %1", "%5 = mul %2 %3", "%6 = mul %0 %3", "%7 = mul %1 %2"]
    lines += ["%8 = add %4 %5", "%9 = add %6 %7", "%10 = tanh %8", "%11 = tanh %9", *used]
    return parse("\n".join(lines))


def test_the_other_sum_of_a_layer_is_stored():
    assert stored(example("%12 = mul %8 %10", "%13 = mul %12 %11", "loss %13")) == [9]


def test_sums_that_are_all_read_once_are_not():
    assert stored(example("%12 = mul %10 %11", "loss %12")) == []


def test_other_layers_and_other_readers_are_not_alike():
    later = ["%12 = mul %10 %11", "%13 = mul %12 %0", "%14 = add %12 %13", "%15 = mul %14 %14", "%16 = mul %15 %14"]
    assert stored(example(*later, "loss %16")) == []
    assert stored(example("%12 = exp %9", "%13 = mul %8 %10", "%14 = mul %12 %13", "loss %14")) == []


def test_few_are_stored_for_each_that_has_to_be():
    """Of ten sums one is read twice: four more would be stored for it, nine would not."""

    def of(count: int) -> Graph:
        x, w = models.values(2), models.weights(random.Random(1), 2 * count)
        sums = [w[2 * i] * x[0] + w[2 * i + 1] * x[1] for i in range(count)]
        loss = total([*(s.tanh() for s in sums), sums[0] * sums[0]])
        return build_graph(Program(Floats(x), None, {"w": w}, loss, {}, 0.01))

    assert len(of(5).stored) >= 4
    assert not of(10).stored


def test_what_is_read_of_the_last_state_costs_no_lines():
    """466 instead of 506, and 585 if the others were not stored."""
    whole, part = (compile_program(cells(*cut)).files["nn_kernels.h"].count("\n") for cut in ((0, 8), (3, 4)))
    assert part <= whole


def test_the_bits_of_the_engine(tmp_path):
    program = cells()
    assert build_graph(program).stored
    compare(program, tmp_path, steps=2, flags=["-O0"])
