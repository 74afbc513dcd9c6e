"""Compile times that grow faster than the graph, as benchmarks/compile_time.py measures them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from harness import nightly_but

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


@pytest.mark.slow
def test_a_row_of_the_table(compile_time):
    model = ("convolution", "6x6x2")
    row = compile_time.best(*model, rounds=1)
    assert row["model"] == " ".join(model)
    assert 300 < row["nodes"] < 3000
    assert 0 < row["empty"] <= row["peak"]
    columns = compile_time.line(row).count("|")
    assert {text.count("|") for text in compile_time.header().splitlines()} == {columns}


@pytest.mark.parametrize("kind", nightly_but(["perceptron"], ["perceptron", "convolution"]))
def test_cost_grows_with_the_graph_and_no_faster(compile_time, kind):
    rows = [compile_time.best(kind, name, rounds=2) for name in compile_time.MODELS[kind][:4]]
    assert max(row["to_c"] / row["nodes"] for row in rows[1:]) < 10e-6
    assert compile_time.exponent([row["nodes"] for row in rows], [row["to_c"] for row in rows]) < 1.1
    assert compile_time.exponent([row["nodes"] for row in rows], [row["peak"] - row["empty"] for row in rows]) < 1.1
