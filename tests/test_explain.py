"""What codegen.backends.text says about a program is what the compiler does: every index and every operation."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

import models
import numpy as np
import pytest

from codegen import Floats, Program, compile_program, load
from codegen.backends import text as explain
from codegen.ir.graph import Op
from codegen.reroll.layout import Layout
from codegen.reroll.trees import KIND_LETTERS, ROOT_KIND
from micrograd.engine import Value

ROOT = Path(__file__).resolve().parent.parent
ELEMENT = re.compile(r"([\w.]+)\[([^\]]*)\]")
REGULAR = [name for name in models.REGULAR if name not in ("gather", "edges")]  # those have tables, for instance


@pytest.fixture(scope="module", params=REGULAR)
def compiled(request):
    return compile_program(models.REGULAR[request.param]())


def arrays(layout: Layout) -> dict[str, int]:
    """Where each array that an explanation names begins."""
    starts = {"X": 0, "T": layout.target_offset}
    starts |= {f"R{placed.number}": placed.offset for placed in layout.placed if placed.offset >= 0}
    for place in layout.tensors:
        starts |= {place.tensor.name: place.offset, f"{place.tensor.name}.grad": place.offset}
    return starts


def walked(starts: dict[str, int], element: str, ranges: dict[str, int]) -> Counter:
    """Every index that an element of an assignment has, counters running."""
    name, index = ELEMENT.fullmatch(element).groups()
    formula = compile(re.sub(r"(\d)([a-z])", r"\1*\2", index), "index", "eval")
    counters = [dict(zip(ranges, values, strict=True)) for values in itertools.product(*map(range, ranges.values()))]
    return Counter(starts[name] + eval(formula, {}, counter) for counter in counters)


def test_assignments_walk_over_exactly_the_elements_of_their_group(compiled):
    starts = arrays(compiled.layout)
    checked = 0
    for (placed, nests), found in zip(compiled.groups, explain.explain(compiled), strict=True):
        assert found.title == f"{len(placed.group.roots)} x {compiled.shapes.text(placed.group.shape)}"
        if len(nests) > 1 or " then " in found.nests[0][0]:
            continue
        ((assignment, ranges_text),) = found.nests
        ranges = {part[0]: int(part[4:]) for part in ranges_text.split(", ") if part}
        result, *leaves = re.findall(r"[\w.]+\[[^\]]*\]", assignment)
        roots = {name: ranges[name] for name in re.findall(r"[a-z]", ELEMENT.fullmatch(result)[2])}
        group = placed.group
        is_gradient = group.is_gradient
        expected = compiled.layout.index[group.roots] if is_gradient else np.arange(len(group.roots)) + placed.offset
        assert walked(starts, result, roots) == Counter(expected.tolist())
        columns = [run.columns(group.leaves)[:, :, k] for run in placed.runs for k in range(len(run.kinds))]
        kinds = [kind for run in placed.runs for kind in run.kinds]
        columns = [column for column, kind in zip(columns, kinds, strict=True) if kind != Op.CONST]
        for element, column in zip(leaves, columns, strict=True):
            own = set(re.findall(r"[a-z]", ELEMENT.fullmatch(element)[2]))
            steps = compiled.layout.index[column]
            seen = {name: ranges[name] for name in ranges if name in own}
            assert set(walked(starts, element, seen)) == set(steps.ravel().tolist())
            checked += 1
    assert checked > 10


def test_every_operation_is_counted_once(compiled):
    graph = compiled.graph
    work = explain.work(compiled)
    assert work.operations == sum(op > Op.TARGET for op in graph.op)
    assert (work.nodes, work.groups) == (len(graph), len(compiled.groups))
    assert 0 < work.unit_stride <= work.in_loops <= work.operations


def test_the_example_of_the_architecture_page():
    compiled = compile_program(load(ROOT / "docs" / "four_neurons.py"))
    found = explain.explain(compiled)
    assert found[0].title == "4 x relu(sum(P, 3 x mul(P, X)))"
    assert found[0].nests == [("R0[i] = relu(sum(bias[i], 3 x mul(weight[i + 4k], X[k])))", "i < 4, k < 3")]
    assert found[3].nests == [("R3[0] = pow(R2[0], 2)", "")]
    assert found[6].nests == [("weight.grad[4i + j] = add(weight.grad[4i + j], mul(X[i], R5[j]))", "i < 3, j < 4")]
    # 4 neurons of 3 products, 3 additions and relu, ...: all but the difference (2), the square and its derivative.
    assert explain.work(compiled) == explain.Work(109, 8, 71, 67, 67)
    assert str(explain.work(compiled)) == (
        "109 nodes, 71 of them operations, in 8 groups; 67 operations in loops, 67 (94.4 %) with unit stride"
    )


def test_work_without_unit_stride_is_told_apart():
    """In a product with the transposed matrix, 7 x sum(5 x mul(P, R)), lanes read columns. One sum goes backwards."""
    work = explain.work(compile_program(models.mlp((12, 7, 5))))
    transposed, backwards = 7 * (5 + 4), 5 + 4
    assert work.in_loops - work.unit_stride == transposed + backwards


@pytest.mark.parametrize(
    ("picked", "element", "ranges", "in_unit_stride"),
    [
        ([8 * r + c for r in range(3) for c in range(5)], "X[k + 8u]", "k < 5, u < 3", True),
        ([8 * r + c for c in range(5) for r in range(3)], "X[8k + u]", "k < 3, u < 5", False),
        ([*range(5), *range(20, 24)], "X[k] then X[20 + u]", "k < 5, u < 4", True),
    ],
)
def test_the_terms_of_one_sum(picked, element, ranges, in_unit_stride):
    x, w = models.values(30), Value(0.5)
    loss = models.total([x[i] for i in picked]).tanh() * w
    compiled = compile_program(Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=loss))
    (found,) = [found for found in explain.explain(compiled) if "sum" in found.title]
    assert found.nests == [(f"R0[0] = tanh(sum({len(picked)} x {element}))", ranges)]
    work = explain.work(compiled)
    assert work.in_loops == len(picked)  # additions and tanh
    assert work.unit_stride == len(picked) * in_unit_stride


def test_tables_and_several_pieces_have_words_too():
    text = "\n".join(
        assignment for found in explain.explain(compile_program(models.gather())) for assignment, _ in found.nests
    )
    assert "[table[" in text or "+ table[" in text
    assert "constants[" in text
    assert explain.work(compile_program(models.edges())).operations > 0


def test_letters_that_are_leaves_are_all_letters_that_shapes_use():
    letters = set(KIND_LETTERS.values())
    assert {letter for letter in letters if explain.LEAF.fullmatch(letter)} == letters
    assert KIND_LETTERS[ROOT_KIND] == "R"


def test_the_straight_line_lowering_has_no_groups():
    with pytest.raises(ValueError, match="lowering='loops'"):
        explain.explain(compile_program(models.xor(), lowering="straightline"))


def test_the_command_prints_the_groups_of_a_file(capsys):
    explain.main([str(ROOT / "docs" / "four_neurons.py")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 x relu(sum(P, 3 x mul(P, X)))"
    assert lines[1] == "    R0[i] = relu(sum(bias[i], 3 x mul(weight[i + 4k], X[k])))    i < 4, k < 3"
    assert lines[-1].startswith("109 nodes, ")
    assert len(lines) == 2 * 8 + 1


def test_the_command_says_when_there_is_no_file(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        explain.main([str(tmp_path / "none.py")])
    assert ended.value.code == 2
    assert "none.py: No such file" in capsys.readouterr().err
