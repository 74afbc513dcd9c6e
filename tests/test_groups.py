"""Faults in affine fitting, trees and groups: loops that are not found, or that are not there."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import models
import numpy as np
import pytest
from harness import compare, parse
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen import Floats, Program
from codegen.ir.graph import LEAVES, Graph
from codegen.ir.loops import Pass
from codegen.pipeline import build_graph, compile_program, reroll
from codegen.reroll.affine import Piece, fit, peel
from codegen.reroll.families import Part, distances, find_families
from codegen.reroll.groups import Group, find_groups
from codegen.reroll.layout import Layout, _Slots, declared_order
from codegen.reroll.loops import _Tables
from codegen.reroll.trees import find_trees
from micrograd.arrays import array
from micrograd.functional import total

ROOT = Path(__file__).resolve().parent.parent
INF, NAN = math.inf, math.nan


# Loop nests


def walk(first: np.ndarray, piece: Piece) -> np.ndarray:
    """The rows that a piece's loops visit."""
    rows = first[None, :]
    for loop in piece.loops:
        steps = np.arange(loop.count)[:, None] * loop.strides
        if loop.rows is not None:
            steps = steps + loop.rows
        rows = (steps[:, None, :] + rows[None, :, :]).reshape(-1, len(first))
    return rows


@st.composite
def progressions(draw) -> tuple[np.ndarray, int]:
    """The rows of nested loops, and how many loops they were."""
    columns = draw(st.integers(1, 3))
    strides = st.lists(st.integers(-60, 60), min_size=columns, max_size=columns)
    rows = np.array([draw(strides)], dtype=np.int64)
    counts = draw(st.lists(st.integers(2, 5), max_size=4))
    for count in counts:
        steps = np.arange(count)[:, None] * np.array(draw(strides))
        rows = (steps[:, None, :] + rows[None, :, :]).reshape(-1, columns)
    return rows, len(counts)


@given(progressions())
@settings(deadline=None, max_examples=300)
def test_nested_progressions_are_found_again(example):
    rows, depth = example
    loops, length = peel(rows)
    assert length == len(rows)
    assert len(loops) <= depth
    assert (walk(rows[0], Piece(0, length, loops)) == rows).all()
    assert [(piece.start, piece.length) for piece in fit(rows)] == [(0, len(rows))]


@st.composite
def irregular(draw) -> np.ndarray:
    """Random rows, with progressions among them."""
    columns = draw(st.integers(1, 3))
    row = st.lists(st.integers(-3, 3), min_size=columns, max_size=columns)
    parts = [np.array(draw(st.lists(row, min_size=1, max_size=12)))]
    for _ in range(draw(st.integers(0, 3))):
        start, stride = np.array(draw(row)), np.array(draw(row))
        parts.append(start + np.arange(draw(st.integers(1, 20)))[:, None] * stride)
        parts.append(np.array(draw(st.lists(row, min_size=1, max_size=3))))
    return np.concatenate(parts).astype(np.int64)


@given(irregular())
@settings(deadline=None, max_examples=300)
def test_every_row_is_covered_once_and_in_order(rows):
    pieces = fit(rows)
    covered = [walk(rows[piece.start], piece) for piece in pieces]
    assert [piece.start for piece in pieces] == [0, *np.cumsum([piece.length for piece in pieces])[:-1]]
    assert [len(found) for found in covered] == [piece.length for piece in pieces]
    assert (np.concatenate(covered) == rows).all()


def test_rows_of_two_lengths_are_two_nests():
    """And not 3 times 3, with what is left of the third row and the fourth row behind."""
    places = [10 * row + i for row, length in enumerate([3, 3, 4, 4]) for i in range(length)]
    rows = np.array([[n, place] for n, place in enumerate(places)])
    (first, second) = fit(rows)
    assert [loop.count for loop in first.loops] == [3, 2]
    assert [loop.count for loop in second.loops] == [4, 2]


def test_what_does_not_fit_becomes_one_table():
    rows = np.array([[3 * i, i * i] for i in range(40)])
    (piece,) = fit(rows)
    (loop,) = piece.loops
    assert loop.count == 40
    assert loop.strides.tolist() == [3, 0]
    assert loop.rows.tolist() == [[0, i * i] for i in range(40)]
    assert (walk(rows[0], piece) == rows).all()


# Trees and groups


def group_texts(step: Program) -> list[str]:
    graph = build_graph(step)
    trees = find_trees(graph)
    return [f"{len(g.roots)} x {trees.shapes.text(g.shape)}" for g in find_groups(graph, trees, step.prediction)]


@pytest.mark.parametrize(("pixels", "hidden", "classes"), [(12, 7, 5), (60, 30, 10)])
def test_groups_of_a_perceptron_with_one_hidden_layer(pixels, hidden, classes):
    """Forward, loss, probabilities, adjoints, gradients: the sizes change, the groups do not."""
    assert group_texts(models.mlp((pixels, hidden, classes))) == [
        f"{hidden} x relu(sum(P, {pixels} x mul(P, X)))",
        f"{classes} x sum(P, {hidden} x mul(P, R))",
        f"1 x max({classes} x R)",
        "1 x mul(R, C)",
        f"{classes} x add(R, R)",
        f"{classes} x exp(R)",
        f"1 x sum({classes} x R)",
        "1 x mul(log(R), C)",
        f"1 x sum({classes} x mul(add(R, R), T))",
        "1 x mul(R, C)",
        "1 x div(C, R)",
        f"{classes} x mul(R, R)",
        f"{classes} x mul(T, C)",
        f"1 x sum({classes} x mul(C, R))",
        "1 x mul(R, R)",
        f"{classes} x add(R, mul(R, R))",
        f"{hidden} x sum({classes} x mul(P, R))",
        f"{hidden} x mul(step(R), R)",
        f"{classes * hidden} x add(G, mul(R, R))",
        f"{classes + hidden} x add(G, R)",
        f"{hidden * pixels} x add(G, mul(X, R))",
    ]


def tree_texts(graph: Graph) -> dict[int, str]:
    trees = find_trees(graph)
    return {n: trees.shapes.text(trees.shape_of[n]) for n in trees.roots}


def test_a_sum_that_is_used_twice_is_not_flattened():
    shared = "%0 = param 0\n%1 = input 0\n%2 = add %0 %1\n%3 = add %2 %0\n%4 = add %3 %1\n%5 = mul %4 %2"
    assert tree_texts(parse(shared)) == {2: "add(P, X)", 4: "sum(R, P, X)", 5: "mul(R, R)"}


def test_an_observed_sum_is_not_flattened():
    observed = "%0 = param 0\n%1 = input 0\n%2 = add %0 %1\n%3 = add %2 %0\n%4 = add %3 %1\noutput o %3"
    assert tree_texts(parse(observed)) == {3: "sum(P, X, P)", 4: "add(R, X)"}


def test_only_left_spines_are_flattened():
    right = "%0 = param 0\n%1 = input 0\n%2 = add %0 %1\n%3 = add %1 %2\n%4 = add %0 %3"
    assert tree_texts(parse(right)) == {4: "add(P, add(X, add(P, X)))"}


@pytest.mark.parametrize("name", models.REGULAR)
def test_every_root_is_in_one_group_behind_everything_it_reads(name):
    step = models.REGULAR[name]()
    graph = build_graph(step)
    trees = find_trees(graph)
    computed: set[int] = set()
    for group in find_groups(graph, trees, step.prediction):
        for n, leaves in zip(group.roots.tolist(), group.leaves.tolist(), strict=True):
            assert tuple(leaves) == trees.leaves_of[n]
            assert all(graph.op[leaf] in LEAVES or leaf in computed for leaf in leaves)
        assert computed.isdisjoint(group.roots.tolist())
        computed.update(group.roots.tolist())
    assert {n for n in trees.roots if graph.op[n] not in LEAVES} <= computed


# Stacks and families


def masked(blocks: int, tokens: int = 4, width: int = 4) -> Program:
    """Blocks in which each token takes the mean of those up to it, by weights of their own, and mixes it."""
    x = [models.values(width) for _ in range(tokens)]
    parameters, h = {}, x
    for b in range(blocks):
        share = [models.weights(Random(b), tokens) for _ in range(tokens)]
        mix = [models.weights(Random(10 + b), width) for _ in range(width)]
        parameters |= {f"{b}.share": share, f"{b}.mix": mix}
        seen = [
            [models.total([w * v[j] for w, v in zip(row, h[: t + 1], strict=False)]) / (t + 1) for j in range(width)]
            for t, row in enumerate(share)
        ]
        h = [[models.dot(row, token).tanh() for row in mix] for token in seen]
    return Program(Floats([v for row in x for v in row]), None, parameters, models.total([v * v for v in h[-1]]))


def parts_of(program: Program, tensor_of: np.ndarray | None) -> list[tuple[int, str]]:
    graph = build_graph(program)
    trees = find_trees(graph)
    groups = find_groups(graph, trees, program.prediction, tensor_of)
    return [(len(group.roots), trees.shapes.text(group.shape)) for group in groups if not group.is_gradient]


def test_tokens_of_a_layer_stay_together():
    """Their paths differ in length: a sum of three terms is computed before its mean, one of two terms with it."""
    program = masked(3)
    rows = (16, "tanh(sum(4 x mul(P, R)))")
    assert parts_of(program, declared_order(program)[1]).count(rows) == 2  # of the last layer, one token counts
    assert parts_of(program, None).count(rows) < 2


def asking(blocks: int, tokens: int = 4, width: int = 4) -> Program:
    """Blocks in which each token asks those up to it; the loss reads what the last one of the last block hears."""
    h = [models.values(width) for _ in range(tokens)]
    inputs, parameters = [v for token in h for v in token], {}
    for b in range(blocks):
        ask, tell = ([models.weights(Random(n + b), width) for _ in range(width)] for n in (0, 10))
        parameters |= {f"{b}.ask": ask, f"{b}.tell": tell}
        q, k = ([[models.dot(row, token).tanh() for row in w] for token in h] for w in (ask, tell))
        h = [[models.total([q[t][j] * k[s][j] for s in range(t + 1)]) for j in range(width)] for t in range(tokens)]
    return Program(Floats(inputs), None, parameters, models.total([v * v for v in h[-1]]))


def test_tokens_stay_together_before_a_layer_that_only_the_last_one_asks():
    """The gradients of more tensors depend on it than on the others. That parts them on the way back, not before."""
    program, rows = asking(4), "tanh(sum(4 x mul(P, R)))"
    sizes = [size for size, shape in parts_of(program, declared_order(program)[1]) if shape == rows]
    assert sorted(sizes) == [4, 16, 16, 16, 16, 16]  # the first layer reads inputs


@pytest.mark.parametrize(("hidden", "together"), [(3, 3), (12, 1)])
def test_layers_of_a_recurrence_take_turns_if_they_are_narrow(hidden, together):
    """A step of each of three layers at once, or one layer after the other: slopes of tanh are in as large groups."""
    x, seen, parameters = models.values(5), None, {}
    for layer in range(3):
        own, other = (models.weights(Random(layer + i), hidden, hidden) for i in (0, 10))
        parameters |= {f"{layer}.own": own, f"{layer}.other": other}
        state, states = [v.detach() for v in own[0]], []
        for now in [[v] * hidden for v in x] if seen is None else seen:
            state = [(models.dot(a, now) + models.dot(b, state)).tanh() for a, b in zip(own, other, strict=True)]
            states.append(state)
        seen = states
    program = Program(Floats(x), None, parameters, models.total(seen[-1]))
    groups = parts_of(program, declared_order(program)[1])
    slopes = [size for size, shape in groups if shape.startswith("mul(add(C, mul(mul(R, R), C))")]
    assert max(slopes) == hidden * together


def test_what_reads_a_family_is_one_nest():
    """Three sums of different shapes lie side by side: what mixes them needs no nest for each."""
    program = masked(2)
    kernels = compile_program(program, "masked").plain.kernels
    (mixing,) = [kernel for kernel in kernels if kernel.roots == 16 and kernel.passes & Pass.LOSS]
    assert len(mixing.nests) == 1


@pytest.mark.slow
def test_what_all_layers_read_is_computed_before_them():
    """The derivative of norms that two matrices read is one group for all blocks, and needs none of their gradients."""
    x = h = [models.values(4) for _ in range(3)]
    parameters = {}

    def normed(token):
        scale = (models.dot(token, token) / 4 + 1e-5) ** -0.5
        return [v * scale for v in token]

    for block in range(3):
        one, other = ([models.weights(Random(block + i), 4) for _ in range(4)] for i in (0, 10))
        parameters |= {f"{block}.one": one, f"{block}.other": other}
        keys = [[models.dot(row, normed(token)) for row in one] for token in h]
        values = [[models.dot(row, normed(token)) for row in other] for token in h]
        seen = [
            [models.total([models.dot(keys[t], keys[s]) * values[s][j] for s in range(t + 1)]) for j in range(4)]
            for t in range(3)
        ]
        h = [[a + b.tanh() for a, b in zip(*rows, strict=True)] for rows in zip(h, seen, strict=True)]
    program = Program(
        Floats([v for row in x for v in row]), None, parameters, models.total([v for row in h for v in row])
    )
    kernels = compile_program(program, "stack").plain.kernels
    backward = [kernel.roots for kernel in kernels if kernel.passes == Pass.GRADIENTS]
    assert backward[:2] == [12, 6]  # behind what needs no gradient: three tokens of each block but the first


def part(first, kind, size=2):
    """A group of some roots, whose leaves are nodes of their own."""
    roots = np.arange(first, first + size)
    return Part(Group(kind, Pass.GRADIENTS, False, roots, roots[:, None] + 50), size, kind)


def test_the_last_layer_is_stored_as_the_others_are():
    """Three layers of three groups. One column reads those of the first two; of the last one only two groups."""
    layers = [[part(10 * layer + 3 * k, k) for k in range(3)] for layer in range(3)]
    read = [[*layers[0]], [*layers[1]], layers[2][:2]]
    readers = [
        Group(9, Pass.GRADIENTS, False, np.arange(3), np.array([[some.group.roots[0]] for some in parts])[[0, 1, -1]])
        for parts in read
    ]
    families = find_families(100, readers, [some for layer in layers for some in layer])
    assert [[some.key[0] for some in family] for family in families] == [[6, 3, 0], [16, 13, 10], [26, 23, 20]]


def test_of_what_is_read_together_some_may_look_like_steps():
    """Different steps alone are in no family. With others among them, as tokens behind a mask have, they are."""

    def part(first, step):
        roots = np.arange(first, first + 4)
        return Part(Group(first, Pass.LOSS, False, roots, roots[:, None] + 50, step=step, number=first), 4, None)

    def families(*parts):
        reader = Group(99, Pass.LOSS, False, np.arange(40, 40 + len(parts)), np.array([[p.key[0]] for p in parts]))
        return [[some.key[0] for some in family] for family in find_families(100, [reader], list(parts))]

    assert families(part(0, 2), part(4, 5)) == []
    assert families(part(0, 2), part(4, 5), part(8, -1)) == [[0, 4, 8]]


@pytest.mark.parametrize(
    ("sizes", "kind", "found"),
    [
        ([8, 8, 8], -1, [0, 8, 16, 24]),
        ([6, 6], -1, [0, 8, 16]),  # 6 and padding
        ([2, 4, 6], -1, [0, 2, 6, 12]),
        ([3, 4], -1, None),
        ([1, 3], -1, [0, 1, 4]),
        ([1, 300], -1, None),
        ([1, 1, 11], 5, [0, 1, 2, 13]),  # sums that differ in numbers of terms
    ],
)
def test_distances_of_a_family(sizes, kind, found):
    group = Group(0, Pass.LOSS, False, np.arange(1), np.arange(1)[:, None], kind=kind)
    assert distances([Part(group, size, None) for size in sizes], 8, cache_line=8) == found


def test_members_side_by_side_may_be_one_part():
    def part(*roots):
        return Group(0, Pass.LOSS, False, np.array(roots), np.array(roots)[:, None] + 50)

    members = [Part(part(*range(start, start + 8)), 8, None) for start in (0, 8, 24)]
    slots = _Slots([members], [], Layout([], [], np.zeros(99, np.int64), {}, 0, 0, 0, 8))
    both = slots.slot(part(*range(16)))
    assert both is not None
    assert (both.distance, both.room) == (0, 16)
    assert slots.slot(part(*range(8), *range(24, 32))) is None  # the second is between them
    assert slots.slot(part(*range(4, 12))) is None  # halves
    assert slots.slot(part(*range(4), *range(16, 20))) is None  # a half, and as many roots that are no members
    assert slots.slot(part(16)) is None


def test_equal_tables_are_one():
    """But not those of zeros of two signs, nor an index and the number that is equal to it."""
    tables = _Tables()
    numbers = [[0.0, 1.0], [0.0, 1.0], [-0.0, 1.0], [0, 1]]
    names = [tables.name(found, f"table_{i}") for i, found in enumerate(numbers)]
    assert names == ["table_0", "table_0", "table_2", "table_3"]
    assert [repr(found) for found in tables.named.values()] == ["[0.0, 1.0]", "[-0.0, 1.0]", "[0, 1]"]


def test_gradients_of_tokens_are_stored_as_their_values_are():
    """Lanes over 16 tokens would cost as much as those over 8 units, but be far from what the values of tokens are."""
    x, w = models.values(16 * 8), {f"w{n}": models.weights(Random(n), 8, 8) for n in range(2)}
    h = [x[i : i + 8] for i in range(0, len(x), 8)]
    for rows in w.values():
        h = [[total([a * b for a, b in zip(row, token, strict=True)]).tanh() for row in rows] for token in h]
    program = Program(Floats(x), None, w, total([v * v for token in h for v in token]), {}, 0.01)
    (told,) = [line for line in compile_program(program).explanation().splitlines() if "w1[7" in line]
    assert told == "    group_5[8i + j] = sum_k(w1[7 + 8j - k] * group_4[7 + 8i - k])    i < 16, j < 8, k < 8"


def experts(tokens=8, kinds=3, hidden=8, width=8):
    """Each token is a mean of what all experts say of it. In the order of the sums, shares are the last factor."""
    rng = np.random.default_rng(0)
    x = array(np.zeros((tokens, width)))
    shapes = {"gate": (width, kinds), "a": (kinds, width, hidden), "b": (kinds, hidden, width)}
    p = {name: array(rng.normal(size=shape)) for name, shape in shapes.items()}
    shares = np.exp(x @ p["gate"])
    seen = np.tanh(np.einsum("ti,eij->tej", x, p["a"]))
    out = np.einsum("te,tej,ejk->tk", shares / shares.sum(axis=-1, keepdims=True), seen, p["b"])
    return Program(Floats(x), None, p, (out * out).sum(), {"out": out}, 0.01)


@pytest.mark.parametrize("fewest", [4096, 64])
def test_products_of_a_large_table_are_not_stored(fewest, monkeypatch):
    """Weights times adjoints of tokens, 1,536 of 192 and 64 numbers: sums of gradients multiply them again."""
    monkeypatch.setattr("codegen.reroll.trees.FEWEST_PRODUCTS", fewest)
    program = experts()
    found = reroll(build_graph(program), program, 8)
    assert (max(len(stored.group.roots) for stored in found.layout.groups) == 1536) == (fewest == 4096)


@pytest.mark.slow
def test_products_that_are_computed_again_have_the_bits_of_the_engine(monkeypatch, tmp_path):
    monkeypatch.setattr("codegen.reroll.trees.FEWEST_PRODUCTS", 64)
    compare(experts(), tmp_path, steps=2, flags=["-O0"])
