"""The models of benchmarks/twins, against the engine, bit for bit.

What this kind of test is for: graphs that the compiler was not written with, in NumPy's notation.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import compare, slow_but

from benchmarks.twins import tables  # noqa: F401 - more of them
from benchmarks.twins.models import TWINS
from benchmarks.twins.ours import program

QUICK = ("quantiles", "associative memory")
SLOW = ("capsules", "chain of labels", "characters", "clipped policy", "coupling flow", "fixed point", "hypernetwork")
SLOW += (
    "masked autoregression",
    "mixture of experts",
    "highway network",
    "radiance field",
    "Runge and Kutta",
    "variational autoencoder",
)


@pytest.mark.parametrize("name", slow_but(QUICK, TWINS, set(TWINS) - {*QUICK, *SLOW}))
def test_it_has_the_bits_of_the_engine(name: str, tmp_path: Path) -> None:
    compare(program(TWINS[name], "f64"), tmp_path, steps=2, flags=["-O0"])
