"""Random Programs that compute tables: states that read their neighbours, alignments, networks of exchanges.

Example: random_table(Random(2)) may give a trellis of six steps over five states, each the sum of two neighbours before
it, times a number that is seen; or two sequences whose cells take the least of three cells before; or numbers that are
exchanged in pairs, as sorting networks and Fourier transforms do it.

Rows of such tables are alike but for their ends, and each number is read at another distance than the one before it.
"""

from __future__ import annotations

from random import Random

from codegen.program import Program
from micrograd.engine import Value
from micrograd.functional import total
from tools.fuzz_compiler.programs import ACTIVATIONS, Part, finished, reduce

TABLES = "tables"  # the kind of these Programs
MAX_RESULTS = 40


def trellis(part: Part) -> None:
    """Steps over a row of states, each of which reads some before it: a Markov model from left to right, a filter."""
    rng = part.rng
    steps, states, reach = rng.randint(2, 9), rng.randint(2, 16), rng.randint(1, 3)
    seen = part.sources()
    weights = part.matrix("moves", states, reach + 1) if rng.random() < 0.7 else None
    scales = part.vector("scales", states)
    wraps, activation = rng.random() < 0.2, rng.choice(ACTIVATIONS)
    state = [seen[k % len(seen)] * scales[k] for k in range(states)]
    for step in range(1, steps):
        row: list[Value] = []
        for k in range(states):
            read = [i for i in range(reach + 1) if wraps or k >= i]
            terms = [state[k - i] * weights[k][i] if weights else state[k - i] for i in read]
            row.append(activation(total(terms) * (seen[(step * states + k) % len(seen)] * scales[k])))
        state = row
    part.results = state


def alignment(part: Part) -> None:
    """A cell for each pair of numbers, from up to three cells before it: dynamic time warping, an edit distance."""
    rng = part.rng
    seen, scale = part.sources(), part.vector("scale", 1)[0]
    rows, columns = rng.randint(2, 6), rng.randint(2, 6)
    kind, from_corner = rng.choice(["least", "sum", "soft"]), rng.random() < 0.5
    cells: dict[tuple[int, int], Value] = {}
    for i in range(rows):
        for j in range(columns):
            cost = seen[i % len(seen)] * scale - seen[(rows + j) % len(seen)]
            places = [(i - 1, j), (i, j - 1), (i - 1, j - 1)]
            before = [cells[place] for place in (places[::-1] if from_corner else places) if place in cells]
            if not before:
                cells[i, j] = cost * cost
            elif kind == "least":
                cells[i, j] = cost * cost + (before[0].min(*before[1:]) if len(before) > 1 else before[0])
            elif kind == "sum":
                cells[i, j] = (cost + total(before) * 0.3).tanh()
            else:
                cells[i, j] = cost * cost - total([(-cell).exp() for cell in before]).log()
    part.results = [cells[rows - 1, j] for j in range(columns)]


def exchanges(part: Part) -> None:
    """Numbers that change places with partners, a level after the other: butterflies, and networks that sort."""
    rng = part.rng
    levels = rng.randint(1, 4)
    seen = part.sources()
    numbers = [seen[i % len(seen)] * scale for i, scale in enumerate(part.vector("scales", 2**levels))]
    sorts, weights = rng.random() < 0.5, part.matrix("turns", levels, 2**levels)
    for level in range(levels if not sorts else rng.randint(2, 2**levels)):
        distance = 2 ** (level % levels) if not sorts else 1
        firsts = (
            range(level % 2, len(numbers) - 1, 2) if sorts else [i for i in range(len(numbers)) if not i & distance]
        )
        for i in firsts:
            a, b = numbers[i], numbers[i + distance]
            if sorts:
                numbers[i], numbers[i + distance] = a.min(b), a.max(b)
            else:
                turned = weights[level][i] * b
                numbers[i], numbers[i + distance] = a + turned, a - turned
    part.results = numbers


KINDS = (trellis, alignment, exchanges)


def random_table(rng: Random) -> Program:
    """A Program with one table, and at times the sum of it among its results."""
    part = Part(rng, [Value(0.0) for _ in range(rng.choice([0, 1, 3, 8, 12, 30, 64]))])
    rng.choice(KINDS)(part)
    if rng.random() < 0.3:
        part.results = [reduce(rng, part.results), *part.results]
    return finished(part, {}, part.results[:MAX_RESULTS])
