"""Compiling costs what the graph costs: work and memory that grow faster than it, with the models of
benchmarks/compile_time.py, which measures the seconds."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from harness import nightly_but

from codegen import Floats, Program
from codegen.backends.c import printer
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


def lines_run(compile_time: ModuleType, kind: str, name: str) -> tuple[int, int]:
    """The nodes of a model, and the lines of Python that compiling it runs: unlike seconds, the same on any machine."""
    program, lines = getattr(compile_time, kind)(name), 0

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
    runs = [lines_run(compile_time, kind, name) for name in compile_time.MODELS[kind][:sizes]]
    per_node = [lines / nodes for nodes, lines in runs]
    assert per_node == sorted(per_node, reverse=True)  # and what each model costs once tells less
    assert per_node[1] < 110


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
