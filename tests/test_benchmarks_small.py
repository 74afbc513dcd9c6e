"""The small models of the benchmark without the frameworks: checks that pass anything, tables that flatter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

from benchmarks import batches, tasks  # noqa: E402
from benchmarks.measure import Column, Different, Result  # noqa: E402
from benchmarks.small import bench, report  # noqa: E402
from benchmarks.small.models import SMALL, neighbours, wiring  # noqa: E402
from benchmarks.tasks import Task  # noqa: E402
from benchmarks.worker import Worker  # noqa: E402

F64 = Task("small", "f64", 32, "LSTM", 1000)


def result(name: str, micros: float, library: str = "small.peers_jax", task: Task = F64) -> Result:
    return Result(task, library, name, 1, "", 1000, 0.0, [micros * 1e-3])


def column() -> Column:
    results = [result("JAX, lax.scan", 12.0), result("nn strict", 3.0, "small.ours"), result("PyTorch", 40.0)]
    return Column(F64, results, ["torch.compile: no compiler"])


def test_the_table_has_our_column_first_and_the_ratio_to_the_best_peer():
    text = report.table([column()])
    assert "| µs an example | batch | nn strict | JAX, lax.scan | PyTorch | best peer / nn |" in text
    assert "| LSTM | 32 | 3.00 | 12.0 | 40.0 | **4.00** |" in text


def test_a_system_that_is_missing_leaves_its_cell_empty():
    alone = Column(Task("small", "f64", 1, "GRU"), [result("JAX, lax.scan", 7.0)], [])
    assert report.ratio(alone) is None
    assert "| GRU | 1 |  | 7.00 |  |  |" in report.table([column(), alone])


def test_the_document_has_a_table_for_each_type_and_number_of_threads():
    fast = Column(Task("small", "f32", 32, "LSTM"), [], [])
    text = report.document(["head"], {1: [column(), fast], 2: [column()]}, ["numpy: not installed"])
    for heading in ("## f64, nn strict, 1 thread\n", "## f32, nn fast, 1 thread\n", "## f64, nn strict, 2 threads\n"):
        assert heading in text
    assert "* torch.compile: no compiler (small f64, batch 32; small f64, batch 32)" in text
    assert "* numpy: not installed" in text


START = {"w": np.array([0.0, 1.0]), "b": np.array([2.0])}
GOAL = {"w": np.array([0.0, 1.5]), "b": np.array([2.25])}


def test_the_same_parameters_are_accepted_and_their_distance_told():
    assert bench.check_parameters(F64, START, GOAL, GOAL) == 0
    near = GOAL | {"b": GOAL["b"] + 2**-40}
    assert bench.check_parameters(F64, START, GOAL, near) == 2**-38


@pytest.mark.parametrize("found", [2.25 + 1e-9, 2.0, float("nan")])
def test_other_parameters_are_not(found):
    with pytest.raises(Different, match="its b differs"):
        bench.check_parameters(F64, START, GOAL, GOAL | {"b": np.array([found])})


def test_parameters_that_did_not_move_show_nothing():
    with pytest.raises(Different, match="left b where it was"):
        bench.check_parameters(F64, START, GOAL | {"b": START["b"]}, GOAL | {"b": START["b"]})


def test_other_names_are_told():
    with pytest.raises(Different, match=r"its parameters are \['w'\], ours \['b', 'w'\]"):
        bench.check_parameters(F64, START, GOAL, {"w": GOAL["w"]})


@pytest.mark.parametrize("name", SMALL)
def test_fewer_examples_are_the_first_of_more(name):
    (few, labels), (many, more) = (SMALL[name].examples(count) for count in (5, 50))
    assert (few == many[:5]).all()
    assert labels is None or (labels == more[:5]).all()


def test_columns_of_small_models():
    found = bench.tasks(["GRU", "256-128-128-10"], ("f64", "f32"), (1, 32))
    assert [(t.model, t.dtype, t.batch) for t in found[:4]] == [
        ("GRU", "f64", 1),
        ("GRU", "f64", 32),
        ("GRU", "f32", 1),
        ("GRU", "f32", 32),
    ]
    assert {t.model: t.images for t in found} == {"GRU": 2048, "256-128-128-10": 512}
    assert all(t.images % batch == 0 for t in found for batch in (1, 32, 64, 256))


def test_the_graph_is_one_and_the_wiring_goes_forward():
    near = neighbours()
    assert all(a in near[b] for a in range(len(near)) for b in near[a])
    assert sum(map(len, near)) == 2 * (12 + 8)
    sources, kinds = wiring(16)
    assert all(source < 16 + level * 24 for level, units in enumerate(sources) for unit in units for source in unit)
    assert {kind for units in kinds for kind in units} == {0, 1, 2, 3}


def test_lines_of_the_picture_take_the_fastest_system_of_each_size():
    one, two = Task("train", "f64", 1), Task("train", "f64", 2)
    columns = [
        Column(one, [result("nn strict, train, 1 thread", 4.0, "ours", one), result("PyTorch, by hand", 50.0)], []),
        Column(two, [result("PyTorch, Sequential", 20.0), result("PyTorch, by hand", 25.0)], []),
    ]
    drawn = batches.lines(columns)
    assert {name: {size: r.median for size, r in line.items()} for name, line in drawn.items()} == {
        "nn strict, f64": {1: pytest.approx(4.0)},
        "PyTorch, f64": {1: pytest.approx(50.0), 2: pytest.approx(20.0)},
    }
    text = batches.document(["head"], columns)
    assert "| 1 | 250,000 | 20,000 |" in text
    assert "| 2 |  | 50,000 |" in text


def test_batch_sizes_have_the_rates_of_the_table():
    found = {t.batch: t for t in batches.tasks(60_000)}
    assert list(found) == [2**i for i in range(11)]
    assert found[1].learning_rate == tasks.RATES[1]
    assert found[64].learning_rate == pytest.approx(tasks.RATES[64], rel=0.05)


def test_another_checkout_brings_its_own_compiler(tmp_path: Path):
    other, place = tmp_path / "other", tmp_path / "place"
    python = other / ".venv" / "bin" / "python"
    for folder in (python.parent, other / "codegen", place):
        folder.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (other / "codegen" / "__init__.py").write_text("raise ImportError('the other compiler')")
    worker = Worker(bench.OURS, 1, place, other)
    try:
        with pytest.raises(tasks.Missing, match="the other compiler"):
            worker.version()
    finally:
        worker.end()
    assert worker.title == "other"
