"""Wrong numbers from any lowering: engine, ir interpreter, Python, straight-line C and loops must agree by bits."""

import models
import pytest
from harness import compare, nightly_but, slow_but

from benchmarks.small.models import MODELS


@pytest.mark.parametrize("name", slow_but(["mlp"], models.REGULAR))
def test_regular_models(name, tmp_path):
    compare(models.REGULAR[name](), tmp_path, steps=50 if name in ("xor", "mlp") else 6)


def test_a_convolution_without_optimisation(tmp_path):
    compare(models.convolution(), tmp_path, steps=6, flags=["-O0"])


@pytest.mark.slow
def test_rows_with_a_cache_line_between_them(tmp_path):
    """Rows of 1,024 bytes, as a row tensor and as any other."""
    compare(models.mlp((3, 4, 128, 2)), tmp_path, steps=2, flags=["-O1"])


@pytest.mark.parametrize("seed", slow_but([], range(2)))
def test_random_graphs(seed, tmp_path):
    """Many more are in `make fuzz-compiler`."""
    compare(models.random_programs(seed, 50), tmp_path, steps=3, seed=seed, flags=["-O0"])


@pytest.mark.parametrize("name", nightly_but(["LSTM", "graph network", "physics loss"], MODELS))
def test_the_models_of_the_benchmark(name, tmp_path):
    """Larger and of more kinds than those above, at the optimisation of the wheel: functions in vectors."""
    compare(MODELS[name](), tmp_path, steps=2)
