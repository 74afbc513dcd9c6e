"""The small models of the peers are ours: the same parameters after a few steps. Needs what `make bench` installs:

.venv-bench/bin/python -m pytest -m slow tests/test_benchmarks_peers.py
"""

from __future__ import annotations

import importlib

import pytest

np = pytest.importorskip("numpy")

from benchmarks.small import ours  # noqa: E402
from benchmarks.small.bench import check_parameters  # noqa: E402
from benchmarks.small.models import BORDERS, MODELS, SMALL  # noqa: E402
from benchmarks.tasks import Missing, Task  # noqa: E402

PEERS = {"jax": "peers_jax", "torch": "peers_torch", "numpy": "peers_numpy"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *BORDERS, "256-128-128-10"])
def test_peers_learn_the_same(name, tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "folder", tmp_path)
    libraries = [importlib.import_module(f"benchmarks.small.{PEERS[n]}") for n in PEERS if pytest.importorskip(n)]
    for batch in (1, 4):
        task = Task("small", "f64", batch, name, 16)
        job = ours.Train(task, 1)
        job.nn.reset()
        start = job.weights()
        job.run()
        for library in libraries:
            try:
                peers = library.jobs(task, None, 1)
            except Missing:
                continue
            for make in peers.values():
                peer = make()
                peer.load(start)
                peer.run()
                check_parameters(task, start, job.weights(), peer.weights())


@pytest.mark.slow
def test_every_model_is_written_for_the_frameworks():
    for name in ("jax", "torch"):
        pytest.importorskip(name)
        assert list(importlib.import_module(f"benchmarks.small.{PEERS[name]}").LOSSES) == [*SMALL]
