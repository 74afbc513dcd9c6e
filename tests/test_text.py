"""What `explain` says about a program is what its loops compute: formulas that give other numbers are found here."""

from __future__ import annotations

import math
import re
from functools import reduce
from itertools import product
from pathlib import Path

import models
import pytest
from harness import slow_but

from benchmarks.depth import classified
from benchmarks.small.models import lstm
from codegen import Floats, Program, compile_program, load
from codegen.backends.text import Work, formulas, work
from codegen.ir.graph import Op
from codegen.ir.loops import DATA, VALUE, Pass
from codegen.reference.interpret import new_state, run
from micrograd import ops
from micrograd.__main__ import main
from micrograd.engine import Value

ROOT = Path(__file__).resolve().parent.parent
ELEMENT = re.compile(r"([A-Za-z_][\w.]*)(?:\[([^][]*)\])?(?!\w*\()")
REDUCTION = re.compile(r"\b(sum|max)_([a-z]+)\(")


def evaluated(loops, kernel, formula, arrays):
    """The numbers that a formula says its nest computes, by their place."""
    ranges = {part.split(" < ")[0]: range(int(part.split(" < ")[1])) for part in formula.ranges.split(", ") if part}
    left, sign, right = re.split(r" (\+?=) ", formula.assignment, maxsplit=1)
    names = {region.title: (array, region.start) for array in (DATA, VALUE) for region in loops.regions[array]}
    names |= {f"{region.title}.grad": ("grad", region.start) for region in loops.regions[DATA]}

    def element(found):
        name, index = found[1], re.sub(r"(\d)([a-z])", r"\1*\2", found[2] or "0")
        if name not in names:
            return found[0]
        array, start = names[name]
        return f"arrays[{array!r}][{start} + {index}]"

    def reduction(found):
        counters = ", ".join(found[2])
        return f"reduction({found[1]!r}, {list(found[2])!r}, lambda {counters}: "

    def reduction_of(op, counters, term):
        numbers = [term(*values) for values in product(*(ranges[counter] for counter in counters))]
        return reduce(ops.add if op == "sum" else ops.maximum, numbers)

    text = REDUCTION.sub(reduction, ELEMENT.sub(element, right))
    own = {name: ranges[name] for name in ranges if re.search(rf"\b\d*{name}\b", left)}
    functions = {row.name: row.function for row in ops.ROWS} | {"arrays": arrays, "reduction": reduction_of, "max": max}
    for values in product(*own.values()):
        counters = dict(zip(own, values, strict=True))
        place = eval(re.sub(r"arrays\['\w+'\]\[(.*)\]", r"\1", ELEMENT.sub(element, left)), counters)
        old = arrays["grad"][place] if sign == "+=" else 0.0
        yield place, old + eval(text, functions | counters, counters)


@pytest.mark.parametrize(
    "name",
    slow_but(
        ["convolution", "recurrence"], [name for name in models.REGULAR if name not in ("wide", "gather", "edges")]
    ),
)
def test_formulas_are_what_loops_compute(name):
    compiled = compile_program(models.REGULAR[name]())
    loops = compiled.plain
    state = new_state(loops, [0.1 + 0.01 * (i % 7) for i in range(loops.lengths[DATA])], [0.5] * loops.lengths[DATA])
    values = state.images[0]
    leaves = range(compiled.found.layout.target_offset + 50)
    values[: len(leaves)] = [0.05 * (i % 5) for i in leaves]
    run(state, ~Pass(0) & ~(Pass.DENSE_GRADIENTS | Pass.ROW_GRADIENTS))
    before = {"data": state.data, "value": values, "grad": [*state.grad]}
    run(state, Pass.DENSE_GRADIENTS | Pass.ROW_GRADIENTS)
    checked = 0
    for kernel in loops.kernels:
        for formula in formulas(loops, kernel):
            for place, expected in evaluated(loops, kernel, formula, before):
                found = (state.grad if kernel.is_gradient else values)[place]
                assert math.isclose(found, expected, rel_tol=1e-5), formula  # constants have six digits
                checked += 1
    assert checked == sum(kernel.roots for kernel in loops.kernels)


@pytest.mark.parametrize(
    "name", slow_but(["mlp", "recurrence"], [name for name in models.REGULAR if name not in ("gather", "edges")])
)
def test_every_operation_is_counted_once(name):
    compiled = compile_program(models.REGULAR[name]())
    found = work(compiled.plain, len(compiled.graph))
    assert found.operations == sum(op > Op.TARGET for op in compiled.graph.op)
    assert 0 < found.unit_stride <= found.in_loops <= found.operations


def test_the_example_of_the_architecture_page():
    compiled = compile_program(load(ROOT / "docs" / "four_neurons.py"))
    found = [str(formula) for kernel in compiled.plain.kernels for formula in formulas(compiled.plain, kernel)]
    assert found[0] == "group_0[i] = relu(bias[i] + sum_k(weight[i + 4k] * input[k]))    i < 4, k < 3"
    assert found[3] == "loss = group_2 * group_2"
    assert "weight.grad[4i + j] += input[i] * group_5[j]    i < 3, j < 4" in found
    # 4 neurons of 3 products, 3 additions and relu, ...: all but the difference (2), the square and its derivative.
    assert work(compiled.plain, 109) == Work(109, 8, 71, 67, 67)
    assert str(work(compiled.plain, 109)) == (
        "109 nodes, 71 of them operations, in 8 groups; 67 operations in loops, 67 (94.4 %) with unit stride"
    )


@pytest.mark.parametrize(
    ("picked", "terms", "ranges", "in_unit_stride"),
    [
        ([8 * r + c for r in range(3) for c in range(5)], "sum_ku(input[8k + u])", "k < 3, u < 5", True),
        ([8 * r + c for c in range(5) for r in range(3)], "sum_ku(input[k + 8u])", "k < 5, u < 3", False),
        ([*range(5), *range(20, 24)], "sum_k(input[k]) + sum_u(input[20 + u])", "k < 5, u < 4", True),
    ],
)
def test_the_terms_of_one_sum(picked, terms, ranges, in_unit_stride):
    x, w = models.values(30), Value(0.5)
    loss = models.total([x[i] for i in picked]).tanh() * w
    compiled = compile_program(Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=loss))
    assert str(formulas(compiled.plain, compiled.plain.kernels[0])[0]) == f"group_0 = tanh({terms})    {ranges}"
    found = work(compiled.plain, len(compiled.graph))
    assert found.in_loops == len(picked) - 1  # additions; tanh stands behind the loop
    assert found.unit_stride == found.in_loops * in_unit_stride


@pytest.mark.slow
def test_tables_and_several_pieces_have_words_too():
    text = compile_program(models.gather()).explanation()
    assert re.search(r"\[\d* \+ table_\d+_\d+\[[ik]", text) or re.search(r"\[table_\d+_\d+\[[ik]", text)
    assert work(compile_program(models.edges()).plain, 0).operations > 0


def test_the_straight_line_lowering_has_no_loops():
    with pytest.raises(ValueError, match="lowering='loops'"):
        compile_program(models.xor(), lowering="straightline").explanation()


def test_the_command_prints_the_groups_of_a_file(capsys):
    assert main(["explain", str(ROOT / "docs" / "four_neurons.py")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 roots, image by image: 36 or 36"
    assert lines[1] == "    group_0[i] = relu(bias[i] + sum_k(weight[i + 4k] * input[k]))    i < 4, k < 3"
    assert lines[-1].startswith("109 nodes, ")
    assert len(lines) == 2 * 8 + 2


def test_the_command_says_when_there_is_no_file(capsys, tmp_path):
    assert main(["explain", str(tmp_path / "none.py")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.slow
def test_steps_of_a_recurrence_are_told_once():
    """In a loop, with the groups of the first one; what is before and behind it as ever."""
    program = lstm(models.values(40), models.values(2), steps=10, hidden=4)
    lines = compile_program(program).explanation().splitlines()
    assert [line for line in lines if line.endswith(" times")][:2] == ["9 times", "9 times"]
    told = [line.startswith("    " * 2) for line in lines if "tanh(" in line]
    assert told == [False, True, True, False]  # the gate of step 1, state and gate in the loop, the last state
    assert lines.index("    all but the last time") < lines.index("9 times", lines.index("9 times") + 1)


@pytest.mark.slow
def test_blocks_are_told_once():
    """Of four blocks of attention, where groups have nests of which some are in loops: one block, and the last."""
    compiled = compile_program(classified(4, 5))
    lines = compiled.explanation().splitlines()
    roots = [line for line in lines if " root" in line and "side" in line]
    formulas = [line.strip() for line in lines if "] = " in line]
    assert "4 times" not in lines
    assert "3 times" in lines
    assert len(roots) < 0.7 * len(compiled.plain.kernels)
    assert len(set(formulas)) == len(formulas)
    assert sum("gelu(" in line for line in lines) == 2
