"""A generator of regular Programs that are not regular, not the same again, or never of a kind that it promises."""

from __future__ import annotations

import os
import random

import pytest

from codegen import Floats, compile_program
from codegen.ir.loops import is_rolled
from codegen.pipeline import build_graph
from micrograd.order import creation
from tools.fuzz_compiler import regular
from tools.fuzz_compiler.__main__ import kind_of, main
from tools.fuzz_compiler.recipe import Recipe
from tools.fuzz_compiler.regular import MAX_NODES, random_regular


def programs(count):
    return [random_regular(random.Random(seed)) for seed in range(count)]


def test_a_seed_is_a_program():
    texts = [[Recipe.of(program).text() for program in programs(12)] for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 12


@pytest.mark.slow
def test_layers_are_of_every_kind():
    scans = [regular.Scan(random.Random(seed), 3, 6, 4) for seed in range(100)]
    assert {scan.start for scan in scans} == {"shared", "zeros", "learned", "first", "input"}
    assert {(scan.states, scan.backwards) for scan in scans} == {(n, b) for n in (1, 2, 3) for b in (True, False)}
    masks = [regular.Mask(random.Random(seed), 3, 6, 4) for seed in range(100)]
    assert {mask.kind for mask in masks} == {"attention", "sum", "mean", "triangle", "decay", "product"}
    assert {mask.heads for mask in masks} == {1, 2, 3}
    assert {mask.adds for mask in masks if mask.kind == "attention"} == {True, False}
    fixed = [regular.Fixed(random.Random(seed), 6, 6, 4) for seed in range(100)]
    assert {layer.kind for layer in fixed} == {"add", "multiply", "rotate", "matrix"}
    assert {0.0, 1.0} in [{*map(abs, row)} for layer in fixed for row in layer.table]
    blocks = [regular.Block(random.Random(seed), 3, 4, [regular.Each]) for seed in range(20)]
    assert {type(block.layers[0]) for block in blocks} == {regular.Fixed, regular.Each}
    padded = [regular.Padded(random.Random(seed), 3) for seed in range(100)]
    assert {(layer.before, layer.size) for layer in padded} == {(0, 2), (1, 2), (1, 3), (2, 3), (2, 5), (4, 5)}
    assert {layer.per_channel for layer in padded} == {True, False}
    assert {layer.border for layer in padded} == {0.0, 1.0, -0.5, "nearest", "other side"}
    assert sum(bool(build_graph(program).padded) for program in programs(40)) >= 2
    mask = masks[0]
    seen = {}
    assert {(mask.back, mask.ahead) for mask in masks if mask.sees == "window"} == {(1, 0), (0, 1), (1, 1)}
    for mask.sees in {mask.sees for mask in masks}:
        mask.window, mask.back, mask.ahead = 2, 1, 0
        seen[mask.sees] = [[*mask.seen(t, 4)] for t in range(4)]
    assert seen == {
        "causal": [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]],
        "before": [[], [0], [0, 1], [0, 1, 2]],
        "window": [[0], [0, 1], [0, 1, 2], [1, 2, 3]],
        "after": [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]],
        "all": [[0, 1, 2, 3]] * 4,
    }


@pytest.mark.slow
def test_programs_are_of_every_shape(monkeypatch):
    seen = set()
    for name, shape in regular.SHAPES.items():
        monkeypatch.setitem(regular.SHAPES, name, lambda *given, n=name, s=shape: (seen.add(n), s(*given))[1])
    made = programs(40)
    assert seen == {*regular.SHAPES}
    nodes = [len(creation(program.roots())) for program in made]
    assert max(nodes) < MAX_NODES + 300  # the loss comes on top
    assert sum(count > 500 for count in nodes) > 10
    assert {part.kind for program in made for part in program.input_parts} >= {"floats", "tokens"}
    assert {type(program.targets) for program in made} >= {Floats, type(None)}
    assert any(program.update for program in made)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::codegen.ModelWarning")
def test_programs_are_regular():
    """Most are loops over kernels."""
    kernels = [compile_program(program).loops.kernels for program in programs(6)]
    assert sum(any(is_rolled(nest) for kernel in each for nest in kernel.nests) for each in kernels) >= 3


def test_a_recipe_is_the_program():
    program = random_regular(random.Random(3))
    assert Recipe.of(Recipe.of(program).program()) == Recipe.of(program)


def test_every_third_program_is_regular():
    assert [kind_of(seed, 3) for seed in range(4)] == ["regular", None, None, "regular"]
    assert kind_of(3, 0) is None


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a case is a forked process")
def test_the_command_makes_them(capfd):
    assert main(["--seed", "15", "--count", "1", "--every", "2"]) == 0
    assert "regular: 1" in capfd.readouterr().out
