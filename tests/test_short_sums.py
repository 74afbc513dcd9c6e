"""Sums of one and two terms where others have more: found where they are none, or left out where they are.

What a mask leaves of the first tokens is computed as what it leaves of the others, and no bit changes.
"""

from __future__ import annotations

import random
from collections import Counter

import models
import pytest
from harness import compare, slow_but
from test_boxes import attention
from test_grids import windows

from benchmarks.depth import attending
from codegen import Floats, Program
from codegen.ir.graph import Op
from codegen.passes.short_sums import mark_short_sums
from codegen.pipeline import compile_program, graph_passes
from codegen.schedule.forms import Growing
from micrograd.functional import softmax, total


def parts_of(count):
    """Each number divided by the sum of those up to it."""
    x, w = models.values(count), models.weights(random.Random(3), count)
    y = [(a * b).tanh() for a, b in zip(x, w, strict=True)]
    out = [y[i] / total([y[j] * y[i] for j in range(i + 1)]) for i in range(count)]
    return Program(Floats(x), None, {"w": w}, total([v * v for v in out]), {"out": out}, 0.01)


def triangular():
    """Two layers of lower triangular matrices; the first number of each reads one."""
    x, rng = models.values(7), random.Random(1)
    first, second = models.weights(rng, 7, 7), models.weights(rng, 7, 7)
    h = [total([w * v for w, v in zip(row[: i + 1], x, strict=False)]).tanh() for i, row in enumerate(first)]
    out = [total([w * v for w, v in zip(row[: i + 1], h, strict=False)]) for i, row in enumerate(second)]
    used = {f"{name}{i}": row[: i + 1] for name, rows in (("a", first), ("b", second)) for i, row in enumerate(rows)}
    return Program(Floats(x), None, used, total([v * v for v in out]), {"out": out}, 0.01)


def looking_back(last):
    """Tokens that take from the last few, themselves among them."""
    x, w = models.values(9 * 4), models.weights(random.Random(5), 4, 4)
    h = [x[i : i + 4] for i in range(0, 36, 4)]
    q = [[total([a * b for a, b in zip(row, token, strict=True)]) for row in w] for token in h]
    out = []
    for t, query in enumerate(q):
        seen = range(max(0, t + 1 - last), t + 1)
        share = softmax([total([a * b for a, b in zip(query, h[i], strict=True)]) for i in seen])
        out += [total([s * h[i][a] for s, i in zip(share, seen, strict=True)]) for a in range(4)]
    return Program(Floats(x), None, {"w": w}, total([v * v for v in out]), {"out": out}, 0.01)


def masks(*blocks):
    """Blocks of exponentials of products, so many of each row, in which each block has other masks than another."""
    count, rng = len(blocks[0]), random.Random(2)
    x = models.values(2 * count)
    a, b = [v.tanh() for v in x[:count]], [v.tanh() for v in x[count:]]
    parameters, used = {}, []
    for k, lengths_of_rows in enumerate(blocks):
        rows = [[(a[t] * b[i]).exp() for i in range(length)] for t, length in enumerate(lengths_of_rows)]
        used += [v for row in rows for v in row]
        w, u = parameters[f"w{k}"], parameters[f"u{k}"] = models.weights(rng, 2, count)
        a, b = [(rows[t][0] * w[t]).tanh() for t in range(count)], [(rows[-1][i] * u[i]).tanh() for i in range(count)]
    return Program(Floats(x), None, parameters, total([*used, *a, *b]), {}, 0.01)


def gates(count, size=9):
    """Tokens that are compared with those up to them, by a function of a sum of more terms than an expression has."""
    x, w = models.values(count * size), models.weights(random.Random(1), size)
    h = [x[i : i + size] for i in range(0, count * size, size)]
    query = [[a * b for a, b in zip(w, token, strict=True)] for token in h]
    found = [
        total([a * b for a, b in zip(query[t], h[i], strict=True)]).tanh() for t in range(count) for i in range(t + 1)
    ]
    return Program(Floats(x), None, {"w": w}, total([v * v for v in found]), {}, 0.01)


def marked(program):
    """The graph before the pass, and what it makes of it."""
    before = next(graph for name, graph in graph_passes(program) if name == "simplify")
    return before, mark_short_sums(before)


def lengths(graph):
    """How many terms the marked sums have."""
    inner, found = graph.inner_terms(graph.used_once()), []
    for n, (op, _) in graph.sums.items():
        count = 1
        while graph.op[n] == op:
            n, count = graph.a[n], count + 1
            if not inner[n]:
                break
        found.append(count)
    return sorted(found)


def test_a_number_alone_is_a_sum_of_one_term():
    before, graph = marked(parts_of(5))
    copies = [n for n in graph.sums if graph.op[n] == Op.DETACH]
    assert len(graph) > len(before)
    assert copies
    assert set(lengths(graph)) == {1, 2, 3, 4, 5}
    users = [n for n in range(len(graph)) if graph.b[n] in copies or (graph.op[n] > Op.TARGET and graph.a[n] in copies)]
    assert all(graph.op[n] not in (Op.ADD, Op.MAX) for n in users)  # terms of sums are still the numbers themselves


def test_what_nothing_else_reads_needs_no_copy():
    """The first number of each layer: a product that is read as a sum alone."""
    before, graph = marked(triangular())
    assert len(graph) == len(before) + 1  # an input is copied
    assert {graph.op[n] for n in graph.sums} >= {Op.MUL, Op.ADD}


@pytest.mark.parametrize(
    "program",
    [
        lambda: looking_back(2),  # eight sums of two terms, none of three
        lambda: parts_of(2),
        models.mlp,
        models.recurrence,
    ],
)
def test_no_short_sums(program):
    before, graph = marked(program())
    assert graph is before


@pytest.mark.filterwarnings("ignore::codegen.ModelWarning")
def test_numbers_of_leaves_are_no_nodes():
    """The last of many parameters, in a graph of few nodes."""
    x, w = models.values(1), models.weights(random.Random(1), 60)
    program = Program(Floats(x), None, {"w": w}, (w[59] + x[0]).tanh(), {}, 0.01)
    before, graph = marked(program)
    assert graph is before
    assert len(graph) < 60


def test_a_running_sum_may_be_long():
    """What tells kinds of sums apart is looked for to some depth, not to the start of what they add."""
    x, w = models.values(700), models.weights(random.Random(1), 5, 5)
    sums, seen = x[0], []
    for v in x[1:]:
        sums = sums + v.tanh()
        seen.append(sums.tanh())
    out = [total([a * (sums + b) for a, b in zip(row[: i + 1], w[0], strict=False)]) for i, row in enumerate(w)]
    program = Program(Floats(x), None, {"w": w}, total([*[v.tanh() for v in out], *seen]), {"out": out}, 0.01)
    assert marked(program)[1].sums


def test_behind_a_mask_no_token_is_apart():
    """All sums of the forward pass and the backward pass begin with one term, or end with it."""
    compiled = compile_program(attention(8), "masked")
    told = [line for line in compiled.explanation().splitlines() if "+ t" in line or "- t" in line]
    assert told
    assert all(line.endswith(("k < 1 + t", "k < 7 - t")) for line in told)  # the last token is an output
    nests = [nest for kernel in compiled.plain.kernels for nest in kernel.nests]
    assert sum(nest in Growing(compiled.plain) for nest in nests) >= 7 * len(told)


def test_gradients_of_queries_and_keys_are_kinds_of_their_own():
    """Both are sums of one to five products, with the last terms of longer ones, or the first."""
    _, graph = marked(attending(1, 5))
    kinds = Counter(kind for _, kind in graph.sums.values())
    of_two_heads, of_a_width = 5 * 2, 5 * 8
    assert sorted(kinds.values()) == 3 * [of_two_heads] + 4 * [of_a_width]
    # Maxima, sums of exponentials, their gradients; what tokens take, gradients of values, keys and queries.


@pytest.mark.slow
def test_a_grid_of_sums_has_fewer_loops():
    """Pixels in few windows: what reads all of them is one nest."""
    kernels = compile_program(windows(), "windows").plain.kernels
    assert sum(len(kernel.nests) for kernel in kernels) < 30  # and 43 if those in one or two windows were expressions


MODELS = {
    "parts": lambda: parts_of(6),
    "triangular": triangular,
    "window": lambda: looking_back(4),
    "masks": lambda: masks(*2 * [[1, 2, 3, 4, 5]], *3 * [[2, 3, 4, 5, 5]]),  # the third is no repeat of the second
    "gates": lambda: gates(17),  # with registers for sixteen sums
    "masked": lambda: attention(5, block_count=2),
    "pixels": windows,
}


@pytest.mark.parametrize("name", slow_but({"parts", "triangular", "window", "masks", "gates"}, MODELS))
def test_the_bits_of_the_engine(name, tmp_path):
    compare(MODELS[name](), tmp_path, steps=2, flags=["-O0"])
