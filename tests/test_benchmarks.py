"""The benchmark without the frameworks: wrong arithmetic, checks that pass anything, tables that flatter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

from benchmarks import accuracy, compile_time, depth, mpi, report, tasks  # noqa: E402
from benchmarks.__main__ import SECTIONS  # noqa: E402
from benchmarks.__main__ import tasks as chosen  # noqa: E402
from benchmarks.accuracy import Race  # noqa: E402
from benchmarks.measure import Bench, Column, Different, Result, check_classes, check_loss, hopeless  # noqa: E402
from benchmarks.mpi_cost import Constants, table  # noqa: E402
from benchmarks.tasks import Data, Missing, Task, initial, loss  # noqa: E402
from benchmarks.worker import Worker  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
F64, F32 = Task("train", "f64", 1), Task("train", "f32", 1)


def data(images: int = 300) -> Data:
    rng = np.random.default_rng(1)
    pixels, labels = rng.integers(0, 256, (images, 784), np.uint8), rng.integers(0, 10, images, np.uint8)
    return Data(pixels, labels, pixels, labels)


def result(name: str, micros: list[float], library: str = "peers_jax", threads: int = 1, task: Task = F64) -> Result:
    return Result(task, library, name, threads, "how", 1000, 0.0, [m * 1e-3 for m in micros])


def column() -> Column:
    results = [
        result("JAX, epoch in one lax.scan", [12.0, 10.0, 11.0]),
        result("JAX, epoch in one lax.scan", [30.0, 20.0, 25.0], threads=2),
        result("PyTorch, by hand", [50.0, 40.0, 45.0], "peers_torch"),
        result("nn strict, four calls", [3.0, 4.0, 2.0], "ours"),
        result("nn strict, train, 1 thread", [2.0, 2.1, 1.9], "ours"),
    ]
    return Column(F64, results, ["NumPy, by hand: no such thing"])


def test_a_result_is_the_median_of_its_rounds_for_one_image():
    assert result("x", [3.0, 100.0, 2.0]).median == pytest.approx(3.0)
    assert result("x", [3.0, 100.0, 2.0]).micros == pytest.approx([2.0, 3.0, 100.0])


def test_table_has_the_better_number_of_threads_and_the_ratio_to_the_best_peer():
    text = report.table([column()])
    assert "| JAX, epoch in one lax.scan | 11.0 (10.0 to 12.0) ·1 |" in text
    assert "| nn strict, train, 1 thread | 2.00 (1.90 to 2.10) |" in text
    assert "| **best peer / best nn** | **5.5** |" in text
    assert "25.0" not in text
    assert text.index("nn strict") < text.index("JAX")


def test_targets_say_honestly_whether_they_were_reached():
    text = report.target_table([column()], [], 2)
    loop, train = [line for line in text.splitlines() if "strict f64, batch 1" in line]
    assert "| 3 | **3.7**, reached |" in loop
    assert "| 5 | **5.5**, reached |" in train
    slow = column()
    slow.results[-1].seconds = [5e-3]
    assert "| 5 | **2.2**, not reached |" in report.target_table([slow], [], 2)


def test_targets_of_what_is_missing():
    only_ours = Column(F64, [r for r in column().results if r.library == "ours"], [])
    only_peers = Column(F64, [r for r in column().results if r.library != "ours"], [])
    assert report.target_table([only_ours], [], 2).count("the peer is missing") == 2
    assert report.target_table([only_peers], [], 2).count("nn is missing") == 2
    assert "| **best peer / best nn** |  |" in report.table([only_ours])


def test_every_target_is_of_a_column_that_a_full_run_has():
    found = {(t.kind, t.dtype, t.batch, t.model) for t in chosen(list(SECTIONS), "", 60_000)}
    wanted = {(t.column.kind, t.column.dtype, t.column.batch, t.column.model) for t in report.targets(2)}
    assert wanted <= found


def test_columns_are_chosen_by_name():
    found = chosen(["training", "inference"], r"f32 (1|64)$", 100)
    assert [(t.kind, t.dtype, t.batch) for t in found] == [
        ("train", "f32", 1),
        ("train", "f32", 64),
        ("infer", "f32", 1),
    ]
    assert found[0].images == 100


def test_the_slower_number_of_threads_is_given_up():
    fast, slow, other = result("a", [1.0]), result("a", [2.5], threads=2), result("b", [9.0])
    assert hopeless(slow, [fast, slow, other])
    assert not hopeless(fast, [fast, slow, other])
    assert not hopeless(other, [fast, slow, other])


def test_same_loss_is_accepted_and_its_distance_told():
    assert check_loss(F64, 2.3, 0.5, 0.5) == 0
    assert check_loss(F64, 2.3, 0.5, 0.5 * (1 + 1e-9)) == pytest.approx(1e-9, rel=1e-3)
    assert check_loss(F32, 2.3, 0.5, 0.51) == pytest.approx(0.02)


@pytest.mark.parametrize("found", [0.50001, 0.49999, 2.3, float("nan"), float("inf")])
def test_a_peer_that_learns_something_else_fails(found):
    with pytest.raises(Different, match="does not learn the same"):
        check_loss(F64, 2.3, 0.5, found)


def test_a_comparison_that_shows_nothing_fails():
    with pytest.raises(Different, match="nothing to compare"):
        check_loss(F64, 2.3, 2.3, 2.3)


def test_classes():
    assert check_classes(F64, [1, 2, 3], [1, 2, 3]) == 0
    with pytest.raises(Different, match=r"33\.33%"):
        check_classes(F64, [1, 2, 3], [1, 2, 4])
    with pytest.raises(Different, match="2 images of 3"):
        check_classes(F64, [1, 2, 3], [1, 2])


def test_loss_is_that_of_softmax():
    weights = [(np.zeros((50, 784)), np.zeros(50)), (np.zeros((10, 50)), np.arange(10.0))]
    images, labels = np.zeros((2, 784), np.uint8), np.array([0, 9], np.uint8)
    total = np.log(np.exp(np.arange(10.0)).sum())
    assert loss(weights, images, labels) == pytest.approx(total - 4.5)
    assert tasks.accuracy(weights, images, labels) == 0.5


def test_initial_weights_are_those_of_nn():
    nn = pytest.importorskip("nn")
    nn.reset(3)
    views = [np.array(view) for view in nn.state_dict().values()]
    flat = [array for layer in initial("784-50-10", 3) for array in layer]
    assert all((a == b).all() for a, b in zip(views, flat, strict=True))


def test_parts_are_whole_batches():
    task = Task("train", "f64", 64, images=200, parts=1)
    [(pixels, labels)] = data().parts(task)
    assert len(pixels) == len(labels) == 192
    task = Task("train", "f64", 10, images=100, parts=3)
    assert [int(y[0]) for _, y in data().parts(task)] == [int(data().labels[i]) for i in (0, 100, 200)]


def test_fastest_takes_the_variant_that_is_fastest():
    class Sleeper:
        def __init__(self, task: Task, data: Data, pause: float) -> None:
            self.pause, self.images, self.note = pause, task.images, str(task.images)

        def load(self, weights: object) -> None: ...

        def run(self, part: int = 0) -> None:
            tasks.perf_counter()
            end = tasks.perf_counter() + self.pause
            while tasks.perf_counter() < end:
                pass

    best = tasks.fastest(Sleeper, F64, data(), [(0.02,), (0.001,), (0.01,)])
    assert (best.pause, best.note) == (0.001, "60000")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a worker's library out of a text."""
    data().save(tmp_path)

    def make(text: str) -> Worker:
        package = Path(tasks.__file__).parent
        name = f"peers_test_{tmp_path.name}".replace("-", "_")
        path = package / f"{name}.py"
        path.write_text(text)
        made.append((Worker(name, 1, tmp_path), path))
        return made[-1][0]

    made: list[tuple[Worker, Path]] = []
    monkeypatch.chdir(Path(tasks.__file__).parents[1])
    yield make
    for worker, path in made:
        worker.end()
        path.unlink()


PEER = """
VERSION = "Peer 1"
class Job:
    note, images = "as it is", 5
    def load(self, weights): self.loaded = weights
    def run(self, part=0): print("chatter"); self.part = part
    def weights(self): return self.loaded, self.part
def jobs(task, data, threads): return {"peer": Job}
"""


def test_a_worker_does_what_it_is_asked(library):
    worker = library(PEER)
    assert worker.version() == "Peer 1"
    assert worker.names(F64) == ["peer"]
    assert worker.open("peer") == ("as it is", 5)
    assert 0 < worker.run("peer", "weights", 2) < 10
    assert worker.weights("peer") == ("weights", 2)


def test_a_peer_that_is_not_installed_is_named_as_missing(library):
    bench = Bench.__new__(Bench)
    bench.workers, bench.versions, bench.missing = [], [], []
    bench.start(library("import a_framework_that_nobody_has"))
    [text] = bench.missing
    assert "a_framework_that_nobody_has" in text
    assert bench.workers == []
    assert text in report.document(["head"], [column()], [], bench.missing, 2)


def test_a_worker_that_dies_is_missing(library):
    worker = library("import os; os._exit(3)")
    with pytest.raises(Missing, match="its process ended"):
        worker.version()


def test_document_names_what_is_missing_and_how_systems_ran():
    text = report.document(["head"], [column()], [], [], 2)
    assert "* NumPy, by hand: no such thing (train f64, batch 1)" in text
    assert "| train f64, batch 1 | JAX, epoch in one lax.scan ·2 | how | 0e+00 |" in text


def test_races():
    def race(name: str, *seconds: float, goal: float = 0.97) -> Race:
        curves = [[(0.0, 0.1), (s, goal)] for s in seconds]
        return Race(name, 1, "f32", None, {1: 3.0, 8: 2.0}, curves)

    ours, jax = race("nn fast, train, 1 thread", 1.0, 3.0, 2.0), race("JAX, epoch", 7.0, 9.0, 8.0)
    assert ours.batch == 8
    assert ours.median == 2.0
    torch, mine = report.race_targets([ours, jax])[0], report.race_targets([ours, jax])[1]
    assert "PyTorch is missing" in torch
    assert "**4.0**, reached" in mine
    assert race("never", 5.0, goal=0.96).median == float("inf")
    assert "| JAX, epoch, f32 ·1 | 8 | 8.000 | 7.000, 9.000, 8.000 | 1: 3.00, 8: 2.00 |" in report.race_table([jax])


def test_the_grid_in_the_code_is_the_grid_in_the_file():
    text = (Path(tasks.__file__).parent / "grid.md").read_text()
    best: dict[int, tuple[float, float]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].isdigit() and not cells[2].startswith("-"):
            batch, rate, thousands = int(cells[0]), float(cells[1]), float(cells[2].split()[0])
            best[batch] = min(best.get(batch, (rate, thousands)), (rate, thousands), key=lambda pair: pair[1])
    assert best == accuracy.GRID


def test_no_peer_is_imported_here():
    assert not {"torch", "jax", "onnxruntime", "sklearn"} & set(sys.modules)


def test_a_rank_is_half_as_efficient_where_the_formula_says():
    """100 Gbit/s and 2 us: from batch 290 on 8 ranks, where an update costs nothing."""
    constants = Constants(image=1.56, update=0, latency=2, byte=8e-5, size=318_080)
    assert [round(constants.half_efficient(ranks), -1) for ranks in (8, 64)] == [290, 3040]
    assert table(constants) in (ROOT / "docs" / "mpi.md").read_text(encoding="utf-8")
    slow = Constants(image=1.56, update=8, latency=20, byte=8e-4, size=318_080)
    for ranks in (2, 8, 64):
        assert slow.speedup(slow.half_efficient(ranks), ranks) == pytest.approx(ranks / 2)
        assert slow.speedup(10**9, ranks) == pytest.approx(ranks, rel=1e-3)
    assert slow.allreduce(1) == 0


def test_ranks_that_learn_something_else_are_not_timed():
    mpi.check("Trainer, exact", 0.5, 0.5)
    mpi.check("Trainer, tree", 0.5 + 1e-9, 0.5)
    for system, found in (("Trainer, exact", 0.5 + 1e-9), ("Trainer, fast", 0.501), ("Trainer, tree", float("nan"))):
        with pytest.raises(RuntimeError, match="does not learn the same"):
            mpi.check(system, found, 0.5)


def test_table_of_ranks_has_medians_and_ratios_to_one_thread():
    one, fast = {b: [4.0, 2.0, 3.0] for b in mpi.BATCHES}, {b: [1.0, 2.0, 1.5] for b in mpi.BATCHES}
    lines = mpi.table({mpi.ONE: one, "Trainer, fast": fast}).splitlines()
    assert lines[2].startswith("| nn.train, 1 thread | 3.00 (2.00 to 4.00) |")
    assert lines[3].startswith("| Trainer, fast | 1.50 (1.00 to 2.00), **2.00** |")


@pytest.mark.nightly
def test_depth_has_a_row_for_each_model(monkeypatch, capsys, tmp_path):
    small = depth.MODELS["residual MLP, 2 and 20 blocks"][0]
    monkeypatch.setattr(depth, "MODELS", {"one": (small, small)})
    monkeypatch.setattr("sys.argv", ["depth", "--output", str(tmp_path / "depth.md")])
    depth.main()
    row = capsys.readouterr().out.splitlines()[-1].split("|")
    assert (row[1].strip(), row[4].strip()) == ("one", "1.00")
    assert int(row[2].replace(",", "")) > 100
    assert (tmp_path / "depth.md").read_text().splitlines()[-1].split("|") == row


def test_compile_time_says_where_it_was_measured():
    assert compile_time.machine(3).startswith(report.processor())
    assert all(compile_time.version(name) in compile_time.machine(3) for name, _ in compile_time.found_compilers())
