"""What is needed of the rows of a box. test_boxes.py and test_fuzz_regular.py have the bits of masked models."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from test_boxes import attention

from codegen.ir.graph import Op
from codegen.ir.loops import (
    DATA,
    VALUE,
    Apply,
    Const,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Loops,
    Nest,
    Pass,
    Place,
    Region,
    Regions,
    Store,
    reads,
    substituted,
)
from codegen.pipeline import compile_program
from codegen.reference.print_loops import body_lines
from codegen.reference.verify_loops import verify_loops
from codegen.schedule.needed import compute_needed
from codegen.schedule.phases import kernel_cost
from micrograd import ops

SIDE_BY_SIDE = "side by side image < 8:"


def at(start, *strides):
    return Place(VALUE, Index(start, tuple(zip(strides, "ijl", strict=False))), "image")


def product(a, b):
    return Apply(int(Op.MUL), (a, b))


def of_images(target, value, *counts, kind=Kind.SEQUENTIAL):
    """Loops over roots, the innermost of a kind, and over images that store a value."""
    body = (For("image", 8, (Store(target, value),), Kind.SIDE_BY_SIDE),)
    for counter, count in reversed(list(zip("ijl", counts, strict=False))):
        body = (For(counter, count, body, kind if counter == "ijl"[len(counts) - 1] else Kind.SEQUENTIAL),)
    return body


def computations(body, **counters):
    """Where loops write, and what they read for it, as indices."""
    for stmt in body:
        if isinstance(stmt, For):
            more = sum(step * counters[name] for step, name in stmt.steps)
            for i in range(1 if stmt.kind == Kind.SIDE_BY_SIDE else stmt.count + more):
                yield from computations(stmt.body, **counters, **{stmt.counter: i})
        else:
            found = (stmt.target, *reads(stmt))
            yield [place.index.base + sum(step * counters[name] for step, name in place.index.steps) for place in found]


def written(body):
    return [target for target, *_ in computations(body)]


def loops(nest, needed):
    kernel = Kernel(0, Pass.LOSS, (nest,), (0, 0), 1, box=tuple(needed))
    return Loops((kernel,), {VALUE: 1000, DATA: 10}, {}, {VALUE: Regions([Region(0, "A", "a", 1000, 1000, 1000)])}, 0)


def computed(nest, needed):
    """The nest, of which these places of each row are needed."""
    changed = compute_needed(loops(nest, needed))
    verify_loops(changed)
    return changed.kernels[0].nests[0]


def lines(nest, *needed):
    return [*body_lines(computed(nest, needed))]


def first(*counts):
    return [range(count) for count in counts]


def rows(count, length=4):
    """Each number is that of a row times that of a column."""
    return of_images(at(500, length, 1), product(at(100, 1), at(200, 0, 1)), count, length)


def function(count, kind=Kind.EACH):
    """Of all numbers of a box, one after the other."""
    return of_images(at(500, 1), Apply(ops.BY_NAME["tanh"].number, (at(500, 1),)), count, kind=kind)


def test_rows_that_grow_and_rows_that_shrink():
    assert lines(rows(4), *first(1, 2, 3, 4)) == [
        "for row < 4:",
        "    for j < 1 + row:",
        f"        {SIDE_BY_SIDE}",
        "            value[500 + j + 4row][image] = mul(value[100 + row][image], value[200 + j][image])",
    ]
    assert lines(rows(4), *first(4, 3, 2, 1))[1] == "    for j < 4 - row:"


def test_rows_of_heads_that_are_alike():
    heads = of_images(at(500, 8, 4, 1), product(at(100, 2, 1), at(200, 0, 4, 1)), 3, 2, 4)
    alike = lines(heads, *first(2, 2, 3, 3, 4, 4))
    assert alike == [
        "for row < 3:",
        "    for part < 2:",
        "        for l < 2 + row:",
        f"            {SIDE_BY_SIDE}",
        "                value[500 + l + 4part + 8row][image] = "
        "mul(value[100 + part + 2row][image], value[200 + l + 4part][image])",
    ]
    flat = of_images(at(500, 1), product(at(700, 1), Const(0.5)), 24)
    assert lines(flat, *first(2, 2, 3, 3, 4, 4))[:3] == [
        "for row < 3:",
        "    for part < 2:",
        "        for i < 2 + row:",
    ]


def test_a_parameter_of_each_number():
    (loop,) = rows(4)
    (inner,) = loop.body
    named = Let("x", Place(DATA, Index(0, ((1, "j"),))))
    nest = (replace(loop, body=(replace(inner, body=(named, *inner.body)),)),)
    assert lines(nest, *first(1, 2, 3, 4))[:3] == ["for row < 4:", "    for j < 1 + row:", "        let x = data[j]"]


def test_rows_of_a_window_that_begin_late():
    """Two for each token, as of two heads. Whole rows are one loop, over all of their numbers."""
    heads = [row for start in (3, 2, 1, 0, 0, 0) for row in 2 * [range(start, 4)]]
    assert lines(function(48), *heads) == [
        "for row < 4:",
        "    for part < 2:",
        "        each i < 1 + row:",
        f"            {SIDE_BY_SIDE}",
        "                value[503 + i + 4part + 7row][image] = tanh(value[503 + i + 4part + 7row][image])",
        "each i < 16:",
        f"    {SIDE_BY_SIDE}",
        "        value[532 + i][image] = tanh(value[532 + i][image])",
    ]


@pytest.mark.parametrize("nest", [rows, lambda count: function(4 * count)], ids=["rows", "function"])
@pytest.mark.parametrize(
    "needed",
    [
        first(1, 2, 2, 4),
        first(1, 1, 2, 2, 4),  # the last token has one row, the others two
        [range(2, 4), range(1, 2), range(4), range(4)],
        [range(row, min(row + 2, 4)) for row in range(4)],
    ],
)
def test_rows_that_grow_unevenly_are_a_few_loops(nest, needed):
    places = [500 + 4 * row + place for row, some in enumerate(needed) for place in some]
    assert written(computed(nest(len(needed)), needed)) == places


@st.composite
def boxes(draw):
    """Rows of heads, tokens of which see others in order, and a nest over all of them in one, two or three loops."""
    length, heads = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    tokens = draw(st.lists(st.tuples(st.integers(0, length - 1), st.integers(1, length)), min_size=3, max_size=8))
    needed = [range(first, min(first + count, length)) for first, count in tokens for _ in range(heads)]
    needed += [range(length)] * heads
    count, read = len(needed) // heads, at(100, 7, 1, 50)
    flat = Place(VALUE, Index(300, ((1, "i"),)), "image")
    nest = draw(
        st.sampled_from(
            [
                of_images(at(500, heads * length, length, 1), product(read, at(200, 0, 9, 2)), count, heads, length),
                of_images(at(500, length, 1), product(at(100, 3, 1), at(200, 0, 5)), count * heads, length),
                of_images(at(500, 1), product(flat, Const(0.5)), count * heads * length),
                function(count * heads * length),
            ]
        )
    )
    return needed, nest


@given(boxes())
@settings(max_examples=300, deadline=None)
def test_random_boxes(drawn):
    """What is needed is computed once, of the same numbers as before; and what is not, not at all, or all of it."""
    needed, nest = drawn
    length = max(places.stop for places in needed)
    places = {500 + row * length + place for row, some in enumerate(needed) for place in some}
    before = [*computations(nest)]
    after = [*computations(compute_needed(loops(nest, needed)).kernels[0].nests[0])]
    assert sorted(after) in (sorted(before), sorted(found for found in before if found[0] in places))


def test_loops_over_kernels_have_boxes_of_their_own():
    body = substituted(rows(4), "i", Index(0, ((1, "i"),)))
    steps = (For("t", 2, (Nest(0, body, tuple(first(1, 2, 3, 4))), Nest(1, function(12)))),)
    for of_all in ([], first(1, 2, 3, 4)):  # of the first one
        shown = [line.strip() for line in body_lines(compute_needed(loops(steps, of_all)).kernels[0].nests[0])]
        assert "for j < 1 + row:" in shown
        assert "each i < 12:" in shown


@pytest.mark.parametrize(
    ("nest", "needed"),
    [
        (rows(4), first(4, 4, 3, 3)),
        (rows(12), first(4, 1, 2, 4, 3, 1, 4, 4, 2, 1, 3, 2)),
        (rows(3), first(1, 2, 3, 4)),
        (of_images(at(500, 1, 4), at(100, 4, 1), 4, 4), first(1, 2, 3, 4)),
        (of_images(at(500, 8, 1), at(100, 4, 1), 4, 4), first(1, 2, 3, 4)),
        (of_images(at(500, 1), Const(0.0), 16), first(1, 2, 3, 4)),
        (of_images(at(500), at(100)), first(1, 2, 3, 4)),
        (rows(4), []),
    ],
    ids=[
        "much is needed",
        "many loops",
        "a block of rows",
        "columns first",
        "gaps",
        "a margin",
        "one number",
        "no box",
    ],
)
def test_what_stays_whole(nest, needed):
    """Of a block of rows, as many as registers have sums for, nobody says which rows it has."""
    assert computed(nest, needed) == nest


def test_masked_attention_computes_no_score_in_vain():
    """With images side by side. `plain` has all of the box."""
    compiled = compile_program(attention(8), "masked")
    boxes = [kernel for kernel in compiled.wide.beside.kernels if kernel.box]
    assert len(boxes) == 5  # of scores, and what is read with them
    for kernel in boxes:
        numbers = [place for nest in kernel.nests for place in written(nest)]
        assert len({*numbers}) == sum(map(len, kernel.box)) == kernel.roots


def test_what_is_left_out_costs_nothing():
    """Where it is decided whether images run side by side: half of the scores of many tokens are left out."""
    compiled = compile_program(attention(8), "masked")
    boxes = [kernel for kernel in compiled.plain.kernels if kernel.box]
    for kernel in boxes:
        whole = kernel_cost(kernel, compiled.batch.target).side_by_side
        share = kernel.roots / (len(kernel.box) * max(places.stop for places in kernel.box))
        assert compiled.batch.costs[kernel.number].side_by_side == pytest.approx(whole * share)
        assert share < 0.6
    assert boxes
