"""Compiling costs what the graph costs: work and memory that grow faster than it, with the models of
benchmarks/compile_time.py, which measures the seconds."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from harness import nightly_but

from codegen import Floats, Program
from codegen.backends.c import printer
from codegen.passes import windows
from codegen.pipeline import compile_program
from micrograd.engine import Value
from micrograd.functional import total

pytest.importorskip("resource")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def compile_time(monkeypatch) -> ModuleType:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.compile_time")


def test_the_exponent_of_a_power_law_is_found(compile_time):
    nodes = [10_000, 70_000, 900_000]
    assert compile_time.exponent(nodes, [3e-6 * n**1.25 for n in nodes]) == pytest.approx(1.25)


@pytest.mark.nightly
def test_a_row_of_the_table(compile_time):
    model = ("convolution", "6x6x2")
    row = compile_time.best(*model, rounds=1)
    assert row["model"] == " ".join(model)
    assert 300 < row["nodes"] < 3000
    assert 0 < row["empty"] <= row["peak"]
    columns = compile_time.line(row).count("|")
    assert {text.count("|") for text in compile_time.header().splitlines()} == {columns}


def lines_run(program: Program) -> tuple[int, int]:
    """The nodes of a model, and the lines of Python that compiling it runs: unlike seconds, the same on any machine."""
    lines = 0

    def count(*_):
        nonlocal lines
        lines += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        compiled = compile_program(program, "model")
    finally:
        sys.settrace(before)
    return len(compiled.graph), lines


@pytest.mark.parametrize("sizes", nightly_but([2], [2, 3]))
@pytest.mark.parametrize("kind", nightly_but(["perceptron"], ["perceptron", "convolution"]))
def test_work_grows_with_the_graph_and_no_faster(compile_time, kind, sizes):
    runs = [lines_run(getattr(compile_time, kind)(name)) for name in compile_time.MODELS[kind][:sizes]]
    per_node = [lines / nodes for nodes, lines in runs]
    assert per_node == sorted(per_node, reverse=True)  # and what each model costs once tells less
    assert per_node[1] < 110


def many_outputs(count: int) -> Program:
    """A chain, each link of which is an output."""
    x, w = ([Value(0.1) for _ in range(4)] for _ in range(2))
    outputs, h = {}, x[0]
    for i in range(count):
        h = (h * w[i % 4] + x[(i + 1) % 4]).tanh()
        outputs[f"o{i}"] = [h]
    return Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=None, outputs=outputs)


def unary_above_a_sum(count: int) -> Program:
    x, w = ([Value(0.1) for _ in range(3)] for _ in range(2))
    out = total([a * b for a, b in zip(x, w, strict=True)])
    for _ in range(count):
        out = out.tanh()
    return Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=None, outputs={"out": [out]})


@pytest.mark.parametrize(("make", "count"), [(many_outputs, 250), (unary_above_a_sum, 250)])
def test_work_of_unusual_graphs_grows_no_faster_either(make, count):
    lines = [lines_run(make(size))[1] for size in (count, 4 * count)]
    assert lines[1] < 4.1 * lines[0]


def test_no_box_is_filled_that_is_too_large(monkeypatch):
    """Each of 50 weights is multiplied by four values, again and again: each use would have a place of its own."""
    monkeypatch.setattr(windows, "_boxes", lambda *_: pytest.fail("looks for boxes"))
    assert windows.find_windows(np.random.default_rng(1).integers(0, 4, (50, 1000))) is None


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["perceptron", "convolution"])
def test_memory_grows_with_the_graph_and_no_faster(compile_time, kind):
    rows = [compile_time.in_new_process(kind, name, run_compilers=False) for name in compile_time.MODELS[kind][:4]]
    assert compile_time.exponent([row["nodes"] for row in rows], [row["peak"] - row["empty"] for row in rows]) < 1.1


def test_long_irregular_sums_are_cut_for_the_c_compiler():
    """gcc compares what neighbours load and store, each with each: 528 terms took it 68 s. And comments end."""
    rng = random.Random(1)
    x, p = [[Value(rng.random()) for _ in range(40)] for _ in range(2)]
    a, b = [[v.tanh() for v in values] for values in (x, p)]
    pairs = [(rng.choice(a), b[i * i % 41 % 40]) for i in range(150)]
    terms = [term for v, w in pairs for term in (v * w, (v * v).exp() * w)]
    program = Program(Floats(x), None, {"p": p}, total(terms) * total(a) * total(b), {"out": a})
    text = compile_program(program).files["nn_kernels.h"]
    assert max(part.count("EACH_IMAGE(image)") for part in text.split("STORE_BARRIER;")) <= printer.MANY
    assert max(part[part.rfind("/*") :].count("\n") for part in text.split("*/")) < printer.MAX_LINES


WITHOUT_COLLECTIONS = """
import gc
from codegen.pipeline import no_garbage_collection
collections = []
gc.collect()
gc.callbacks.append(lambda phase, info: collections.append(info))
with no_garbage_collection():
    made = [[] for _ in range(100_000)]
more = [[] for _ in range(gc.get_threshold()[0] // 2)]
assert not collections, collections
assert gc.isenabled() and not gc.get_freeze_count()
gc.freeze()
with no_garbage_collection():
    pass
assert gc.get_freeze_count() > len(made)
gc.disable()
with no_garbage_collection():
    pass
assert not gc.isenabled()
"""


def test_nothing_that_a_compilation_makes_is_traversed_at_its_end():
    """In a process of its own, where nothing is frozen. What its caller has frozen stays so."""
    subprocess.run([sys.executable, "-c", WITHOUT_COLLECTIONS], check=True, cwd=ROOT)
