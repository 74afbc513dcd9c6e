"""Roll: kernels that repeat become a loop. Depth costs neither lines of C nor bits.

Found here is a loop where something does not advance evenly, and repeats that are not found. That the numbers stay the
same after this pass, as after each, is tested in test_schedule.py, and for whole modules in test_differential.py.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

import models
import pytest
from harness import compare, nightly_but, slow_but

from benchmarks.depth import attending, classified
from benchmarks.small.models import gru, lstm, residual_network
from codegen import Floats, Program
from codegen.ir.graph import Op
from codegen.ir.loops import (
    VALUE,
    Accumulate,
    Apply,
    Const,
    For,
    Holds,
    Index,
    Kernel,
    Let,
    Loops,
    Name,
    Nest,
    Pass,
    Phase,
    Place,
    Region,
    Regions,
    Store,
    statements,
)
from codegen.pipeline import compile_program
from codegen.reference.print_loops import body_lines, kernel_lines
from codegen.schedule.nest import in_time
from codegen.schedule.phases import with_phases
from codegen.schedule.roll import roll
from codegen.schedule.skip_zeros import reads_inputs
from micrograd.engine import Value
from micrograd.functional import log_softmax


def kernels(*nests):
    """One kernel for each nest, in a value[] of 10,000 numbers, 10 of them inputs."""
    found = [Kernel(i, Pass.LOSS, (nest,), (i, i), 1) for i, nest in enumerate(nests)]
    return Loops(tuple(found), {VALUE: 10_000, "data": 100}, {}, {}, 10)


def nest(to, *of, count=12, constant=1.0):
    """i < count: value[to + i] = value[of + i] + ... + constant"""
    total = Const(constant)
    for start in of:
        total = Apply(int(Op.ADD), (total, Place(VALUE, Index(start, ((1, "i"),)))))
    return (For("i", count, (Store(Place(VALUE, Index(to, ((1, "i"),))), total),)),)


def lines(loops):
    return [line for kernel in loops.kernels for line in kernel_lines(kernel)]


def chain(steps, first=100):
    """Two nests a step, each of which reads what the one before it has written."""
    return [
        n
        for t in range(steps)
        for n in (
            nest(first + 40 * t + 20, first + 40 * t),
            nest(first + 40 * t + 40, first + 40 * t + 20, constant=2.0),
        )
    ]


def test_a_recurrence_becomes_a_loop_over_time():
    assert lines(roll(kernels(*chain(5)))) == [
        "kernel 0 (loss): 10 roots, %0 .. %9",
        "    for t < 5:",
        "        nest of kernel 0:",
        "            for i < 12:",
        "                value[120 + i + 40t] = add(1, value[100 + i + 40t])",
        "        nest of kernel 1:",
        "            for i < 12:",
        "                value[140 + i + 40t] = add(2, value[120 + i + 40t])",
    ]


@pytest.mark.parametrize("layers", [4, 20])
def test_loops_nest(layers):
    """Blocks of equal layers and another one: a loop of layers in a loop of blocks, and what is around them."""

    def block(start):
        return *(nest(start + 20 * k, 100) for k in range(layers)), nest(start + 20 * layers, 200, 300, count=3)

    blocks = [n for start in range(200, 5200, 1000) for n in block(start)]
    rolled = roll(kernels(nest(5000, 5), *blocks, nest(5100, 7, count=2)))
    loops = [
        (stmt.counter, stmt.count)
        for k in rolled.kernels
        for n in k.nests
        for stmt in statements(n)
        if isinstance(stmt, For)
    ]
    assert loops == [("i", 12), ("t", 5), ("s", layers), ("i", 12), ("i", 3), ("i", 2)]


def test_kernels_repeat_whose_own_nests_are_a_loop():
    """Four columns of each of five layers."""
    layers = kernels(
        *[nest(1000 * layer + 20 * k, 1000 * layer - 500 + 20 * k) for layer in range(5) for k in range(4)]
    )
    columns = [layers.kernels[4 * layer :][:4] for layer in range(5)]
    found = [replace(of[0], number=layer, nests=tuple(k.nests[0] for k in of)) for layer, of in enumerate(columns)]
    rolled = roll(layers.with_kernels(found))
    assert [line.strip() for line in lines(rolled)[1:3]] == ["for s < 5:", "for t < 4:"]


def counts(loops):
    """How often each loop over kernels runs."""
    return [n[0].count for kernel in loops.kernels for n in kernel.nests if isinstance(n[0].body[0], Nest | For)]


@pytest.mark.parametrize(
    "other",
    [
        nest(100 + 40 * 3 + 21, 100 + 40 * 3),
        nest(100 + 40 * 3 + 20, 100 + 40 * 3, constant=3.0),
        nest(100 + 40 * 3 + 20, 100 + 40 * 3, count=11),
        nest(100 + 40 * 3 + 20, 100 + 40 * 3, 100),
    ],
    ids=["a distance", "a constant", "a count", "a term"],
)
def test_a_step_that_differs_stays_outside(other):
    """The fourth of seven: three steps in a loop before it, three behind it."""
    nests = chain(7)
    nests[6] = other
    assert counts(roll(kernels(*nests))) == [3, 3]


def integrated(times):
    """Steps of an integrator: a nest that adds the time, and one that does not."""
    return [
        n
        for t, time in enumerate(times)
        for n in (nest(120 + 40 * t, 100 + 40 * t, constant=time), nest(140 + 40 * t, 120 + 40 * t, 100 + 40 * t))
    ]


def test_constants_that_differ_are_in_a_table():
    times = [0.1, 0.2, -0.0, 0.4, 0.5]
    rolled = roll(kernels(*integrated(times)))
    ((name, table),) = rolled.tables.items()
    assert [*map(repr, table)] == [*map(repr, times)]
    assert lines(rolled)[1:5] == [
        "    for t < 5:",
        "        nest of kernel 0:",
        "            for i < 12:",
        f"                value[120 + i + 40t] = add({name}[t], value[100 + i + 40t])",
    ]
    assert counts(roll(kernels(*integrated(times[:2])))) == []  # two steps may be alike by accident
    by_turns = [nest(100 + 20 * t, 80 + 20 * t, constant=[1.0, 2.0, 4.0][t % 3]) for t in range(12)]
    assert counts(roll(kernels(*by_turns))) == [4]


def test_zeros_of_two_signs_differ():
    nests = [nest(100 + 20 * t, 80 + 20 * t, constant=-0.0 if t == 5 else 0.0) for t in range(20)]
    assert counts(roll(kernels(*nests))) == [5, 14]


def test_loops_of_a_sum_become_one():
    """Each of these has a counter of its own. Five are too few, and so are six that do not advance evenly."""

    def summed(*places):
        terms = [Place(VALUE, Index(place, ((1, f"k{i}"),))) for i, place in enumerate(places)]
        loops = [For(f"k{i}", 16, (Accumulate(Name("sum"), int(Op.ADD), term),) * 2) for i, term in enumerate(terms)]
        return kernels((Let("sum", Const(-0.0)), *loops, Store(Place(VALUE, Index(9)), Name("sum"))))

    assert [*body_lines(roll(summed(*range(100, 300, 32))).kernels[0].nests[0])] == [
        "let sum = -0",
        "for t < 7:",
        "    for k0 < 16:",
        "        sum += value[100 + k0 + 32t]",
        "        sum += value[100 + k0 + 32t]",
        "value[9] = sum",
    ]
    for plain in (summed(*range(100, 260, 32)), summed(100, 132, 164, 180, 228, 260)):
        assert roll(plain).kernels == plain.kernels


def test_what_runs_at_different_times_differs():
    """Kernels of the forward and of the backward pass, and of phases of a batch."""
    plain = kernels(*[nest(100 + 20 * t, 80 + 20 * t) for t in range(20)])
    backward = plain.with_kernels(
        [replace(k, passes=Pass.GRADIENTS if k.number > 9 else Pass.LOSS) for k in plain.kernels]
    )
    assert counts(roll(backward)) == [10, 10]
    assert counts(roll(with_phases(plain, dict.fromkeys(range(10), Phase.ONCE)))) == [10, 10]
    assert counts(roll(with_phases(plain, dict.fromkeys(range(0, 20, 2), Phase.ONCE)))) == []


def test_blocks_come_before_what_repeats_in_them():
    """Three equal layers in each of two blocks, 20 apart in one and 30 in the other: two loops of them save less."""

    def block(first, distance):
        layers = [nest(first + distance * (k + 1), first + distance * k) for k in range(3)]
        return [*layers, *(nest(first + 100 + 20 * k, first + 90 + 20 * k, constant=2.0 + k) for k in range(3))]

    rolled = roll(kernels(*block(100, 20), *block(400, 30)))
    assert [len(kernel.nests) for kernel in rolled.kernels] == [1]
    assert lines(rolled)[1] == "    for t < 2:"


def in_order(loops):
    """Every nest, in the order in which they run."""
    return [[*body_lines(nest)] for kernel in in_time(loops) for nest in kernel.nests]


def block(first, size=8, start=None):
    """A chain of nests, each of one term more. The first one reads from `start`, if it is not in front of it."""
    begin = first - 20 if start is None else start
    return [nest(first + 20 * k, *[begin if k == 0 else first + 20 * k - 20] * (k + 1)) for k in range(size)]


def test_a_table_has_the_distances_of_what_lies_elsewhere():
    """The first of four blocks reads inputs, the others what the block before them has written."""
    plain = kernels(*block(100, start=0), *block(260), *block(420), *block(580))
    rolled = roll(plain)
    assert lines(rolled)[1:5] == [
        "    for t < 4:",
        "        nest of kernel 0:",
        "            for i < 12:",
        "                value[100 + i + 160t] = add(1, value[i + steps_240_160x2[t]])",
    ]
    assert rolled.tables == {"steps_240_160x2": (0, 240, 400, 560)}
    assert in_order(rolled) == in_order(plain)
    few = kernels(*block(100, 4, start=0), *block(260, 4), *block(420, 4), *block(580, 4))
    assert counts(roll(few)) == [3]  # no table for twelve statements


def test_the_last_iteration_may_end_early():
    nests = [n for k in range(4) for n in block(100 + 160 * k)]
    plain = kernels(*nests[:-2], nest(5000, 5, count=3))
    rolled = roll(plain)
    assert [len(kernel.nests[0]) for kernel in rolled.kernels] == [1, 1]
    assert "        leave the loop where t = 3" in lines(rolled)
    assert (
        lines(rolled).index("        leave the loop where t = 3")
        == lines(rolled).index("        nest of kernel 6:") - 1
    )
    assert in_order(rolled) == in_order(plain)
    assert counts(roll(kernels(*nests[:-7]))) == [3]  # for the sake of a single nest no loop ends early


def test_steps_are_a_loop_though_what_they_read_advances_differently_in_each_layer():
    """Backwards, not at all and forwards: as one loop over layers, their steps would be written out."""

    def layers(count):
        firsts = range(100, 100 + 800 * count, 800)
        steps = [(k, t, first + 40 * t) for k, first in enumerate(firsts) for t in range(5)]
        return [
            n
            for k, t, at in steps
            for n in (nest(at + 20, at, 6000 + 40 * k + 20 * (k - 1) * t), nest(at + 40, at + 20, constant=2.0))
        ]

    assert counts(roll(kernels(*layers(3)))) == [5, 5, 5]
    assert counts(roll(kernels(*layers(6)))) == [6]  # which is shorter: five steps instead of six layers


@pytest.mark.parametrize("seed", range(60))
def test_rolled_or_not_nests_run_in_one_order(seed):
    """Blocks that lie evenly but for some, that begin or end early, with layers in them and other nests around."""
    rng = random.Random(seed)

    def noise():
        return [
            nest(rng.randrange(9000), rng.randrange(9000), count=rng.choice([2, 12])) for _ in range(rng.randrange(4))
        ]

    size, times = rng.randrange(3, 14), rng.randrange(2, 7)
    places = [[rng.randrange(100, 8000) for _ in range(3)] for _ in range(size)]
    kinds = [(rng.choice([3, 12]), float(rng.randrange(1, 5)), rng.randrange(2, 4)) for _ in range(size)]
    blocks = [
        nest(
            *(place + 40 * k + (rng.randrange(90) if rng.random() < 0.02 else 0) for place in at[:many]),
            count=n,
            constant=c,
        )
        for k in range(times)
        for at, (n, c, many) in zip(places, kinds, strict=True)
    ]
    cut = blocks[rng.randrange(size) : len(blocks) - rng.randrange(size)]
    plain = kernels(*noise(), *cut, *noise())
    rolled = roll(plain)
    assert in_order(rolled) == in_order(plain)
    if not any(kernel.nests != other.nests for kernel, other in zip(plain.kernels, rolled.kernels, strict=False)):
        assert len(rolled.kernels) == len(plain.kernels)


def test_inputs_that_a_later_step_reads_are_seen():
    """What has to be in value[] is asked of every step: on the way back the last one reads inputs."""

    def back(last):
        regions = {
            VALUE: Regions(
                [Region(0, "INPUT", "input", 10, 10, 10, Holds.INPUTS), Region(10, "REST", "rest", 9990, 9990, 9990)]
            )
        }
        nests = [*block(580), *block(420), *block(260), *block(100, start=last)]
        return replace(roll(kernels(*nests)), regions=regions)

    assert [len(back(last).kernels) for last in (0, 80)] == [1, 1]
    assert [reads_inputs(back(last)) for last in (0, 80)] == [True, False]


def filtered(steps, size=6):
    """A state and a gain, which depends on parameters alone: between two steps of one stands a step of the other."""
    rng = random.Random(1)
    x, weight, gain = models.values(size * steps), models.weights(rng, size, size), models.weights(rng, size)
    state, now = x[:size], gain
    for t in range(1, steps):
        now = [models.dot(row, now).tanh() for row in weight]
        state = [(k * s + seen).tanh() for k, s, seen in zip(now, state, x[size * t : size * (t + 1)], strict=True)]
    loss = models.total([s * s for s in state])
    return Program(Floats(x), None, {"weight": weight, "gain": gain}, loss, {"state": state}, 0.01)


def paths(steps):
    """A sum over paths through three states, by logarithms. The first takes one addition a step, as no other does."""
    x = models.values(2 * steps)
    weight = models.weights(random.Random(1), 3, 2)
    scores = [log_softmax([models.dot(row, x[t : t + 2]) for row in weight]) for t in range(0, 2 * steps, 2)]
    path, state = scores[0][:2], [0, 1, 0]
    for score in scores[1:]:
        ways = [[*path[s : s + 1], *path[max(s - 1, 0) : s]] for s in range(len(state))]
        path = [(log_sum(way) if len(way) > 1 else way[0]) + score[k] for way, k in zip(ways, state, strict=True)]
    return Program(Floats(x), None, {"weight": weight}, -log_sum(path[1:]), {"path": path}, 0.01)


def log_sum(numbers):
    most = numbers[0].max(*numbers[1:]).detach()
    return most + models.total([(x - most).exp() for x in numbers]).log()


def in_time_steps(steps):
    """An equation whose right side depends on the time, by Euler's method."""
    x, rng = models.values(3), random.Random(1)
    weight, back = models.weights(rng, 8, 4), models.weights(rng, 3, 8)
    state = x
    for t in range(steps):
        hidden = [(models.dot(row[:3], state) + row[3] * (0.1 * t + 0.05)).tanh() for row in weight]
        state = [s + 0.1 * models.dot(row, hidden) for s, row in zip(state, back, strict=True)]
    loss = models.total([s * s for s in state])
    return Program(Floats(x), None, {"weight": weight, "back": back}, loss, {"state": state}, 0.01)


def tagged(steps):
    """What two recurrences say of each step, one of which comes from the last one: their distance differs."""
    x, rng = [models.values(2) for _ in range(steps)], random.Random(1)
    parameters, told = {}, []
    for way in (x, x[::-1]):
        own, other = models.weights(rng, 6, 2), models.weights(rng, 6, 6)
        parameters |= {f"{len(told)}.own": own, f"{len(told)}.other": other}
        state = [models.dot(row, way[0]).tanh() for row in own]
        states = [state]
        for now in way[1:]:
            state = [(models.dot(a, now) + models.dot(b, state)).tanh() for a, b in zip(own, other, strict=True)]
            states.append(state)
        told.append(states if way is x else states[::-1])
    parameters["out"] = out = models.weights(rng, 3, 12)
    heard = [models.dot(row, [*a, *b]).tanh() for a, b in zip(*told, strict=True) for row in out]
    loss = models.total([h * h for h in heard])
    return Program(Floats([v for row in x for v in row]), None, parameters, loss, {"heard": heard}, 0.01)


def stacked(layers, steps, ways=1, hidden=12):
    """Layers of a recurrence; or of two, of which one begins with the last step, and all read both."""
    rng, parameters = random.Random(1), {}
    x = seen = [models.values(3) for _ in range(steps)]
    for layer in range(layers):
        told = []
        for way in range(ways):
            own, other = models.weights(rng, hidden, len(seen[0])), models.weights(rng, hidden, hidden)
            parameters |= {f"{layer}.{way}.own": own, f"{layer}.{way}.other": other}
            states = []
            for now in seen[::-1] if way else seen:
                new = [models.dot(row, now) for row in own]
                if states:
                    new = [v + models.dot(row, states[-1]) for v, row in zip(new, other, strict=True)]
                states.append([v.tanh() for v in new])
            told.append(states[::-1] if way else states)
        seen = [[v for states in both for v in states] for both in zip(*told, strict=True)]
    loss = models.total([v * v for row in seen for v in row])
    return Program(Floats([v for row in x for v in row]), None, parameters, loss, {"last": seen[-1]}, 0.01)


def leaky(steps):
    """A learned leak, whose gradient is one sum of what all units of all steps add in turns."""
    x, rng = models.values(2 * steps), random.Random(1)
    own, other, leak = models.weights(rng, 6, 2), models.weights(rng, 6, 6), Value(0.3)
    state = [models.dot(row, x[:2]).tanh() for row in own]
    for t in range(1, steps):
        new = [models.dot(a, x[2 * t : 2 * t + 2]) + models.dot(b, state) for a, b in zip(own, other, strict=True)]
        state = [leak * n.tanh() + (1.0 - leak) * s for n, s in zip(new, state, strict=True)]
    loss = models.total([s * s for s in state])
    return Program(Floats(x), None, {"own": own, "other": other, "leak": leak}, loss, {"state": state}, 0.01)


DEEP = {
    "leak": leaky,
    "tagger": tagged,
    "time": in_time_steps,
    "filter": filtered,
    "paths": paths,
    "stack": lambda depth: stacked(3, depth),
    "both ways": lambda depth: stacked(2, depth, ways=2),
    "LSTM": lambda depth: lstm(models.values(4 * depth), models.values(2), depth, hidden=6),
    "GRU": lambda depth: gru(models.values(4 * depth), models.values(2), depth, hidden=6),
    "residual": lambda depth: residual_network(models.values(8), models.values(8), blocks=depth),
}


@pytest.mark.parametrize("name", slow_but(["both ways", "filter", "leak", "paths", "tagger", "time"], DEEP))
def test_depth_costs_no_kernels(name):
    """The kernels of 18 steps or blocks are as many lines as those of 6; or of 10, where the middle is shorter."""
    few = 10 if name == "both ways" else 6
    found = [compile_program(DEEP[name](depth), "deep").files["deep_kernels.h"].count("\n") for depth in (few, 18)]
    assert found[1] <= 1.02 * found[0]


def test_layers_of_a_recurrence_cost_no_kernels():
    """As each is a loop of its own, and the ends of the stack are no longer than those of a shorter one."""
    few, many = [compile_program(stacked(n, 6), "deep").files["deep_kernels.h"].count("\n") for n in (3, 5)]
    assert many <= 1.02 * few


def test_the_first_step_of_a_layer_is_in_its_loop():
    """It is no step of the chain that later ones are, as it depends on other tensors; its gates wait as theirs do."""
    h, rng, parameters = [models.values(3) for _ in range(6)], random.Random(1), {}
    inputs = [v for row in h for v in row]
    for layer in range(3):
        weights = {
            name: models.weights(rng, 12, 12 if "h" in name else len(h[0]))
            for name in ("zx", "zh", "rx", "rh", "nx", "nh")
        }
        parameters |= {f"{layer}.{name}": tensor for name, tensor in weights.items()}
        state = [Value(0.5) for _ in range(12)]
        parameters[f"{layer}.start"] = state
        for t, now in enumerate(h):
            z, r = [
                [(models.dot(a, now) + models.dot(b, state)).sigmoid() for a, b in zip(own, other, strict=True)]
                for own, other in ((weights["zx"], weights["zh"]), (weights["rx"], weights["rh"]))
            ]
            reset = [g * s for g, s in zip(r, state, strict=True)]
            rows = zip(weights["nx"], weights["nh"], strict=True)
            new = [(models.dot(a, now) + models.dot(b, reset)).tanh() for a, b in rows]
            state = h[t] = [(1.0 - g) * s + g * n for g, s, n in zip(z, state, new, strict=True)]
    program = Program(Floats(inputs), None, parameters, models.total([s * s for s in state]))
    forward, _, _ = compile_program(program, "gated").explanation().partition("loss =")
    assert [line for line in forward.splitlines() if line in ("4 times", "5 times")] == ["5 times"] * 3


@pytest.mark.parametrize("name", slow_but(["time"], ["both ways", "leak", "paths", "stack", "tagger", "time"]))
def test_bits_of_loops_over_steps(name, tmp_path):
    compare(DEEP[name](7), tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_what_a_batch_computes_once_comes_first(tmp_path):
    program = filtered(4)
    assert "groups_0_to_2" in compile_program(program, "deep").files["deep_kernels.h"]
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_depth_costs_no_kernels_where_the_last_token_alone_counts():
    """The last block computes one token, and the block before it gets gradients from one and from all."""
    found = [compile_program(classified(blocks, 5), "deep").files["deep_kernels.h"].count("\n") for blocks in (2, 4)]
    assert found[1] <= 1.1 * found[0]


@pytest.mark.parametrize("tokens", nightly_but([4], [4, 8]))
def test_blocks_of_attention_cost_no_kernels(tokens):
    """Where a group has nests whose distances are their own in each block, and sums of what many groups compute."""
    few, many = [
        compile_program(attending(depth, tokens), "deep").files["deep_kernels.h"].count("\n") for depth in (4, 6)
    ]
    assert many <= 1.02 * few
    assert few <= 1.02 * many  # four are no other kind of model


def test_a_token_with_as_many_terms_as_another_product_is_no_step():
    """The fourth token mixes four values, and a query and a key of a head have four elements."""
    few, many = [compile_program(attending(n, 5), "deep").files["deep_kernels.h"].count("\n") for n in (2, 4)]
    assert many <= 1.05 * few


@pytest.mark.parametrize("blocks", nightly_but([2], [2, 3]))
def test_bits_of_a_loop_over_many_kernels(blocks, tmp_path):
    """Its body is in functions of bounded length, which have no more variables than they use. Of two blocks one alone
    has what is behind an early end, and does not use the counter."""
    program = attending(blocks, tokens=3)
    text = compile_program(program, "deep").files["deep_kernels.h"]
    assert "_part_1)(struct workspace *restrict w, ptrdiff_t t)" in text
    assert "_side_by_side_part_1)" in text
    compare(program, tmp_path, steps=2, flags=["-O0"])


@pytest.mark.slow
def test_parts_of_two_loops_in_one_function_have_their_own_names(monkeypatch):
    monkeypatch.setattr("codegen.backends.c.kernels.MAX_STATEMENTS", 2)
    text = compile_program(classified(3, 3), "deep").files["deep_kernels.h"]
    names = re.findall(r"NOT_INLINED void AT_LEVEL\((\w+_part_\d+)\)", text)
    assert len(names) == len({*names}) > 90


@pytest.mark.nightly
def test_width_costs_no_kernels():
    """Of more lanes than in_order.MAX_UNROLLED, as fewer have marks against gcc's vectors, and enough for stages."""
    found = [
        compile_program(gru(models.values(16), models.values(2), steps=4, hidden=hidden), "wide").files[
            "wide_kernels.h"
        ]
        for hidden in (48, 64)
    ]
    assert found[0].count("\n") == found[1].count("\n")


def test_each_group_in_a_loop_is_named():
    """The comment of a group says which nodes the first step has; that of the loop, all of them."""
    x, w = models.values(3), Value(0.5)
    out = x[0]
    for _ in range(12):
        out = (out * w + x[1]).tanh() * x[2]
    text = compile_program(Program(Floats(x), None, {"w": w}, out), "deep").files["deep_kernels.h"]
    assert "step by step: */" in text
    assert text.count("for (ptrdiff_t t = 0;") >= 2  # forward and backward
