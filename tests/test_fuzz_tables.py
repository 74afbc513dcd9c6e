"""A generator of tables that makes the same one again, or none of a kind that it promises."""

from __future__ import annotations

import random

import pytest

from micrograd.order import creation
from tools.fuzz_compiler.__main__ import kind_of
from tools.fuzz_compiler.programs import Part
from tools.fuzz_compiler.recipe import Recipe
from tools.fuzz_compiler.tables import KINDS, random_table

MAX_NODES = 2000  # a Program of which takes tcc and gcc a few seconds


def test_a_seed_is_a_program():
    texts = [[Recipe.of(random_table(random.Random(seed))).text() for seed in range(12)] for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_small_and_differ(kind):
    sizes = set()
    for seed in range(40):
        part = Part(random.Random(seed), [])
        kind(part)
        sizes.add(len(creation(part.results)))
    assert len(sizes) > 15
    assert max(sizes) < MAX_NODES


def test_every_tenth_program_is_a_table():
    assert [seed for seed in range(30) if kind_of(seed, 0) == "tables"] == [7, 17, 27]
    assert kind_of(27, 3) == "regular"
