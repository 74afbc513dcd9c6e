"""The loop language: every pass keeps the numbers and leaves legal loops, and the verifier refuses what is not legal.

Found here is a pass that computes something else, or that reads or writes where it must not, without any compiler.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import models
import pytest
from harness import nightly_but, slow_but

from benchmarks.small.models import gru, logistic_with_l2, physics_loss, sparse_network
from codegen import Floats, Label, Pixels, Program, compile_program
from codegen.ir.graph import Op
from codegen.ir.loops import (
    GRAD,
    VALUE,
    Accumulate,
    Const,
    For,
    Holds,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Pass,
    Phase,
    Place,
    Region,
    Regions,
    Store,
    statements,
)
from codegen.pipeline import batch_of, build_graph, reroll, token_parts
from codegen.reference.interpret import State, run, run_batch
from codegen.reference.print_loops import body_lines
from codegen.reference.verify_loops import verify_loops
from codegen.schedule import each
from codegen.schedule.phases import indices_written
from codegen.schedule.pipeline import (
    batch_passes,
    beside_passes,
    c_passes,
    gradient_passes,
    python_passes,
    schedule,
    single_images,
    stages,
)
from codegen.schedule.roll import roll
from codegen.schedule.sums_of_images import Sums
from codegen.schedule.target import NARROW, WIDE, Target
from micrograd.engine import Value
from tools.fuzz_compiler.reference import Interpreter, LoopInterpreter, with_rows
from tools.fuzz_compiler.systems import compare

STRICT = Target()
NO_SUMS = Sums((), (), (), frozenset())
EVERYTHING = Pass.LOSS | Pass.OUTPUTS | Pass.PREDICTION | Pass.GRADIENTS


def is_over(stmt, counter: str) -> bool:
    return isinstance(stmt, For) and stmt.counter == counter


def is_images(stmt):
    return isinstance(stmt, For) and stmt.kind == Kind.IMAGES


def changed(found, passes, without=()):
    """The stages but those whose pass found nothing to change: their numbers are those of the one before."""
    last = None
    for name, loops in stages(found, passes, without):
        if loops != last:
            yield name, loops
        last = loops


def all_stages(program, target):
    """(name, whether rows may be padded, loops, what they were made from) after each pass of both backends."""
    graph = build_graph(program)
    by_index = token_parts(program)
    for_c = reroll(graph, program, target.cache_line, by_index)
    for backend, found in (
        ("C", for_c),
        ("C, single images", single_images(for_c, target, phases_of(for_c, target))),
        ("Python", reroll(graph, program, 1)),
    ):
        is_padded = False
        for name, loops in changed(
            found, python_passes(found) if backend == "Python" else c_passes(found, target, in_module=True)
        ):
            is_padded = is_padded or name == "pad"
            yield f"{backend}, {name}", is_padded, loops, found


def phases_of(found, target):
    batch = batch_of(found, target)
    return batch.phases if batch is not None else {}


def check_batch(program, target=STRICT):
    """After each pass of batches: three images together get the numbers that each gets alone."""
    found = reroll(build_graph(program), program, target.cache_line)
    images = [one_image(program, found, Random(seed)) for seed in range(3)]
    steps = [*changed(found, batch_passes(found, target))]
    later = beside_passes(target, Sums((), (), (), frozenset()))
    last = replace(found, loops=steps[-1][1])
    for name, loops in (*steps, *changed(last, later, without=["sums last"])):
        verify_loops(loops, is_padded=False)
        written = written_by(loops)
        empty = [[None if i in written else x for i, x in enumerate(s.images[0])] for s in images]
        state = State(loops, images[0].data, [], empty, [s.active[0] for s in images])
        run_batch(state, EVERYTHING)
        for together, alone in zip(state.images, images, strict=True):
            assert list(map(repr, together)) == list(map(repr, alone.images[0])), name


def one_image(program, found, rng):
    """What the interpreter has after a forward and a backward pass over an image."""
    system = LoopInterpreter(program, found.loops, found)
    data, count = Random(9), len(program.target_values)
    system.data = [data.uniform(-1, 1) for _ in system.data]
    is_label, is_pixels = isinstance(program.targets, Label), isinstance(program.inputs, Pixels)
    target = rng.randrange(count) if is_label else [rng.uniform(-1, 1) for _ in range(count)]
    inputs = [rng.choice([0, rng.randrange(256) if is_pixels else rng.uniform(-1, 1)]) for _ in program.input_values]
    system.forward(target, inputs)
    system.backward()
    return system.state


def written_by(loops):
    return {i for kernel in loops.kernels for found in indices_written(loops, kernel) for i in found.tolist()}


def check(program, target=STRICT, steps=3):
    systems = {"interpreter": Interpreter(program, build_graph(program))}
    for name, is_padded, loops, found in all_stages(program, target):
        verify_loops(loops, is_padded)
        if not (target.reorder or target.fma):
            systems[name] = LoopInterpreter(program, with_rows(loops, found.loops), found)
    compare(systems, Random(1), steps)


NOT_WIDE = [name for name in models.REGULAR if name != "wide"]


@pytest.mark.parametrize(
    "name",
    slow_but(
        ["shared_weights"], NOT_WIDE, nightly=[name for name in NOT_WIDE if name not in ("convolution", "recurrence")]
    ),
)
def test_each_pass_keeps_every_bit(name):
    check(models.convolution(6, 2) if name == "convolution" else models.REGULAR[name](), steps=1)


@pytest.mark.parametrize("name", c_passes(None, STRICT, in_module=True))
def test_any_pass_can_be_switched_off(name):
    program = models.mlp()
    graph = build_graph(program)
    found = reroll(graph, program, 8)
    loops = schedule(found, c_passes(found, STRICT, in_module=True), without=[name])
    verify_loops(loops)
    systems = {"interpreter": Interpreter(program, graph)}
    systems["loops"] = LoopInterpreter(program, with_rows(loops, found.loops), found)
    compare(systems, Random(1), steps=2)


@pytest.mark.parametrize("name", nightly_but(["recurrence"], ["xor", "recurrence", "residual", "attention"]))
def test_functions_of_few_numbers_apart_keep_every_bit(name, monkeypatch):
    """In loops over kernels, images and lanes that are too short for it."""
    monkeypatch.setattr(each, "FEWEST_LINES", 1)
    monkeypatch.setattr(each, "CHAIN", 1)
    program = models.REGULAR[name]()
    assert "AT_LEVEL(each_" in compile_program(program).text
    check(program, steps=1)
    check_batch(program)


@pytest.mark.nightly
def test_narrow_registers_keep_every_bit():
    """Of sums that are more than they hold: lanes, tiles of gradients with rests, and images side by side."""
    program = models.mlp((3, 61, 11))
    check(program, STRICT.at(NARROW), steps=1)
    check_batch(program, STRICT.at(NARROW))


@pytest.mark.parametrize("registers", [WIDE, NARROW], ids=["wide", "narrow"])
def test_sums_fit_into_registers(registers):
    """No loop keeps more sums than the registers of its level hold: a compiler would store them for each term."""
    target, program = STRICT.at(registers), models.mlp((9, 130, 70, 10))
    found = reroll(build_graph(program), program, target.cache_line)
    kept: dict[str, int] = {"lanes": 0, "tile": 0, "roots": 0}  # cache lines
    for loops in (schedule(found, c_passes(found, target)), schedule(found, batch_passes(found, target))):
        for nest in (nest for kernel in loops.kernels for nest in kernel.nests):
            is_tile = any(isinstance(stmt, For) and stmt.counter == "row" for stmt in statements(nest))
            for local in (stmt for stmt in statements(nest) if isinstance(stmt, Local)):
                kind = "roots" if local.images else "tile" if is_tile else "lanes"
                lines = local.length if local.images else -(-local.length // target.cache_line)
                kept[kind] = max(kept[kind], lines)
    for kind, lines in kept.items():
        most = getattr(registers, kind)
        assert most / 2 < lines <= most, kind


@pytest.mark.parametrize("name", slow_but(["mlp"], ["mlp", "convolution", "gather"]))
def test_loops_of_fast_programs_are_legal(name):
    check(models.REGULAR[name](), Target("float32", fma=True, reorder=True))


@pytest.mark.parametrize("count", nightly_but([4], [4, 10]))
def test_random_graphs(count):
    check(models.random_programs(3, count), steps=2)
    check_batch(models.random_programs(3, count))


@pytest.mark.parametrize("name", slow_but(["mlp", "xor", "recurrence"], NOT_WIDE))
def test_images_side_by_side_keep_every_bit(name):
    check_batch(models.convolution(6, 2) if name == "convolution" else models.REGULAR[name]())


ODD = {
    "logistic with L2": lambda: logistic_with_l2(models.values(7), models.values(3)),
    "physics": lambda: physics_loss(models.values(3), models.values(1), hidden=5),
    "sparse": lambda: sparse_network(models.values(16), models.values(2)),
    "points": models.points,
}


@pytest.mark.parametrize("name", slow_but(["physics", "logistic with L2", "points"], ODD))
def test_groups_of_images_add_the_same_gradients(name):
    """After each pass, three images in a group add what each adds alone. Some nests have tiles, and rests of them."""
    program, target = ODD[name](), Target("float32", reorder=True)
    found = reroll(build_graph(program), program, target.cache_line)
    images = [one_image(program, found, Random(seed)) for seed in range(3)]
    batch = schedule(found, batch_passes(found, target))
    _, *steps = stages(found, gradient_passes(target, batch, NO_SUMS))
    assert len(steps[-1][1].kernels) >= 2
    for step, loops in (*steps, ("roll", roll(steps[-1][1]))):
        verify_loops(loops)
        state = State(loops, images[0].data, [0.0] * loops.lengths["data"], [s.images[0] for s in images], [])
        run(state, Pass.DENSE_GRADIENTS, parts=3)
        written = [i for i, x in enumerate(state.grad) if x != 0]
        assert len(written) > 10
        alone = [sum(s.grad[i] for s in images) for i in written]
        assert [state.grad[i] for i in written] == pytest.approx(alone, rel=1e-9, abs=1e-12), step


def test_the_order_of_images_is_kept_unless_it_may_change():
    program = ODD["physics"]()
    found = reroll(build_graph(program), program, 16)
    target = Target("float32", fma=True)
    batch = schedule(found, batch_passes(found, target))
    assert not schedule(found, gradient_passes(target, batch, NO_SUMS)).kernels


def test_what_depends_on_parameters_alone_runs_once():
    """But not where it is read together with what depends on the image, or from outside."""
    x, w = models.values(3), models.weights(Random(1), 3)
    norm = models.total([p * p for p in w])
    observed = w[0] * w[1]
    loss = models.total([p * xi for p, xi in zip(w, x, strict=True)]) * norm
    program = Program(Floats(x), None, {"w": w}, loss, {"observed": [observed, x[0]]}, prediction="observed")
    check_batch(program)
    found = reroll(build_graph(program), program, 8)
    loops = schedule(found, batch_passes(found, STRICT))
    phases = {int(found[0]): k.phase for k in loops.kernels for found in indices_written(loops, k)}
    assert Phase.ONCE in phases.values()
    assert phases[found.place_of(found.graph.outputs["observed"][0])] == Phase.SIDE_BY_SIDE


def test_a_short_sum_reads_each_of_its_terms_by_itself():
    """One of these three is the same for all images; the others, which a loop would read with it, are not."""
    x, w = models.values(4), models.weights(Random(1), 4)
    products = [(p * xi).tanh() for p, xi in zip(w, x, strict=True)]
    sums = [models.total(products), models.total([v * v for v in products]), models.total([p * p for p in w])]
    loss = models.total([total * share for total, share in zip(sums, (0.5, 0.25, 0.125), strict=True)])
    program = Program(Floats(x), None, {"w": w}, loss)
    check_batch(program)
    found = reroll(build_graph(program), program, 8)
    once = [kernel for kernel in schedule(found, batch_passes(found, STRICT)).kernels if kernel.phase == Phase.ONCE]
    assert [kernel.passes for kernel in once] == [Pass.LOSS, Pass.GRADIENTS]


@pytest.mark.slow
def test_images_lie_side_by_side_where_so_many_pay():
    """Units at many points fill vectors without other images, few units do not, and 20 leave one half empty. Steps of a
    recurrence fill them, but wait for one another. What is read once fills them too, and would come from the
    second-level cache, as many weights would for each image.
    """

    def batch(points, units, steps, products=0):
        layer = models.weights(Random(1), units, units)
        x = [models.values(units) for _ in range(points)]
        h = x
        for _ in range(steps):
            h = [[models.dot(row, one).tanh() for row in layer] for one in h]
        for n in range(products):
            h = [[v * w + v * (n + 2) for v, w in zip(one, layer[0], strict=True)] for one in h]
        loss = models.total([unit for one in h for unit in one])
        return compile_program(Program(Floats([xi for one in x for xi in one]), None, {"w": layer}, loss)).batch

    few, at_points, recurrence, wide = batch(1, 3, 2), batch(16, 20, 2), batch(1, 16, 6), batch(1, 72, 6)
    assert few.fewest < 6 <= at_points.fewest <= at_points.images
    assert recurrence is not None
    assert wide.fewest < recurrence.fewest
    assert batch(16, 16, 2) is None
    assert batch(16, 16, 1, products=8) is None


@pytest.mark.slow
def test_more_lanes_than_registers():
    """Blocks of lanes, with a rest: 131 roots are 128 and 3. Sums of fewer terms are expressions, without registers."""
    x, w = models.values(5), [[Value(0.01 * (i + j)) for j in range(5)] for i in range(131)]
    out = [models.dot(row, x) + w[0][0] for row in w]
    program = Program(Floats(x), None, {"w": w}, models.total([o * o for o in out]), {"out": out})
    names = {name for name, *_ in all_stages(program, Target())}
    assert "C, tile" in names
    check(program)


@pytest.mark.parametrize("lanes", nightly_but([8], [8, 12, 16, 20]))
@pytest.mark.parametrize("terms", nightly_but([4, 6], [4, 6, 8, 16]))
def test_columns_of_a_matrix(lanes, terms):
    """Adjoints of a layer read columns of its weights: in tiles if their sides are multiples of four."""
    x = models.values(lanes)
    w = [[Value(0.01 * (i * lanes + j)) for j in range(lanes)] for i in range(terms)]
    bias = [Value(0.1 * j) for j in range(lanes)]
    hidden = [(xi + b).tanh() for xi, b in zip(x, bias, strict=True)]
    out = [models.dot(row, hidden).tanh() for row in w]
    program = Program(Floats(x), None, {"w": w, "bias": bias}, models.total([o * o for o in out]), {"out": out})
    found = reroll(build_graph(program), program, 8)
    loops = schedule(found, c_passes(found, STRICT))
    arrays = {s.name for k in loops.kernels for n in k.nests for s in statements(n) if isinstance(s, Local)}
    assert ("tile" in arrays) == (terms % 4 == 0)
    check(program)


@pytest.mark.slow
def test_columns_of_several_matrices():
    """The adjoint of a state that several layers read: each loop over terms has a tile of its own."""
    x, size = models.values(8), 8
    bias = [Value(0.1 * j) for j in range(size)]
    hidden = [(xi + b).tanh() for xi, b in zip(x, bias, strict=True)]
    w = {
        n: [[Value(0.01 * (n + i * size + j)) for j in range(size)] for i in range(rows)]
        for n, rows in enumerate((8, 4))
    }
    out = [models.dot(row, hidden).tanh() for matrix in w.values() for row in matrix]
    parameters = {f"w{n}": matrix for n, matrix in w.items()} | {"bias": bias}
    program = Program(Floats(x), None, parameters, models.total([o * o for o in out]), {"out": out})
    found = reroll(build_graph(program), program, 8)
    loops = schedule(found, c_passes(found, STRICT))
    tiles = [s.name for k in loops.kernels for n in k.nests for s in statements(n) if isinstance(s, Local)]
    assert {"tile", "tile_1"} <= set(tiles)
    check(program)


TILED = [(5, 41), (9, 8), (2, 3), (7, 17), (17, 1), (4, 131)]


@pytest.mark.parametrize("shape", slow_but(TILED[1:2], TILED, nightly=TILED[3:]))
def test_tiles_of_rows(shape):
    """Gradients of a matrix, in tiles with rests in both directions; each row reads its own input, and the weights."""
    rows, lanes = shape
    x, y = models.values(rows), models.values(lanes)
    w = [[Value(0.01 * (i - 2 * j)) for j in range(lanes)] for i in range(rows)]
    hidden = [(xi * 0.5).tanh() for xi in x]
    sums = [models.dot([row[j] for row in w], hidden) for j in range(lanes)]
    errors = [(s - t).tanh() for s, t in zip(sums, y, strict=True)]
    check(Program(Floats(x), Floats(y), {"w": w}, models.total([e * e for e in errors]), {"out": sums}), steps=1)


def layer_of_tokens(tokens: int, lanes: int) -> Program:
    x = models.values(4 * tokens)
    w = [[Value(0.1 * (i - j)) for j in range(4)] for i in range(lanes)]
    out = [models.dot(row, x[4 * t : 4 * t + 4]) for t in range(tokens) for row in w]
    return Program(Floats(x), None, {"w": w}, models.total([(v * 0.5).tanh() for v in out]), {"out": out})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lanes", "registers"),
    [
        pytest.param(10, WIDE, id="a part of a line"),
        pytest.param(16, NARROW, id="two blocks", marks=pytest.mark.slow),
    ],
)
def test_tiles_of_tokens(lanes, registers):
    check(layer_of_tokens(4, lanes), STRICT.at(registers), steps=1)


def test_a_part_of_a_line_takes_as_many_registers_as_gcc_makes_of_it():
    """12 lanes are 8 and 4: with 16 rows of them gcc kept no sum in a register."""
    assert [Target("float32").tile_rows(lanes) for lanes in (4, 12, 14, 16, 28, 64)] == [16, 8, 5, 16, 5, 4]
    assert [Target().at(NARROW).tile_rows(lanes) for lanes in (3, 7, 8, 12, 80)] == [4, 4, 4, 2, 1]


def test_the_width_of_tiles():
    """One line where products are not fused, but no part of a line alone; else up to four with AVX-512."""
    lanes = (7, 12, 20, 64, 72)
    assert [Target().tile_width(count) for count in lanes] == [7, 12, 20, 8, 8]
    assert [Target(fma=True).tile_width(count) for count in lanes] == [7, 12, 20, 32, 24]
    assert [Target(fma=True).at(NARROW).tile_width(count) for count in lanes] == [7, 12, 8, 8, 8]


@pytest.mark.parametrize(("target", "rows"), [(STRICT, "unrolled lanes"), (Target("float32"), "lanes")])
def test_tokens_that_share_weights_are_added_some_at_a_time(target, rows):
    """Half a vector of float32 in each row: gcc would make vectors of the first two unrolled rows alone."""
    program = layer_of_tokens(12, 8)
    found = reroll(build_graph(program), program, 8)
    (term,) = [s for s in statements(schedule(found, c_passes(found, target)).kernels[0].nests[0]) if is_over(s, "k")]
    assert [*body_lines((term,))] == [
        "for k < 4:",
        f"    {rows} row < 6:",
        "        let x = value[k + 24i + 4row]",
        "        vectors j < 8:",
        "            sum[8row + j] += mul(data[8k + j], x)",
    ]


def test_no_tiles_of_values():
    """Of eleven tokens there are no whole ones; tokens with weights of their own share nothing."""
    x, w = models.values(48), [[Value(0.1 * i) for i in range(4)] for _ in range(96)]
    out = [models.dot(row, x[4 * (i // 8) : 4 * (i // 8) + 4]) for i, row in enumerate(w)]
    for program in (layer_of_tokens(11, 8), Program(Floats(x), None, {"w": w}, models.total(out), {"out": out})):
        found = reroll(build_graph(program), program, 8)
        assert "tile values" not in [name for name, _ in changed(found, c_passes(found, STRICT))]


def test_short_rows_of_gradients_become_columns():
    """Of three roots each row would fill a part of a vector; the 12 inputs fill one and a half. And the penalty's term,
    which no image has a part in, is computed once a block.
    """
    program = logistic_with_l2(models.values(12), models.values(3))
    found = reroll(build_graph(program), program, 8)
    (images,) = [s for s in statements(schedule(found, c_passes(found, STRICT)).kernels[-1].nests[0]) if is_images(s)]
    assert [*body_lines((images,))] == [
        "images image < 64:",
        "    lanes row < 3:",
        "        vectors i < 12:",
        "            sum[12row + i] += term[12row + i]",
        "    lanes row < 3:",
        "        let x = value[49 + row]",
        "        vectors i < 12:",
        "            sum[12row + i] += mul(value[i], x)",
    ]


def test_gradients_read_in_one_place_what_a_batch_computes_once():
    """Half of the gradient of a square, which is added twice."""
    x, w = models.values(12), models.weights(Random(1), 12)
    program = Program(Floats(x), None, {"w": w}, models.dot(w, x).tanh() + models.total([v * v for v in w]) * 0.1)
    found = reroll(build_graph(program), program, 8)
    single = single_images(found, STRICT, phases_of(found, STRICT))
    (nest,) = schedule(single, c_passes(single, STRICT, in_module=True)).kernels[-1].nests
    (images,) = [stmt for stmt in statements(nest) if is_images(stmt)]
    assert [*body_lines((images,))] == [
        "images image < 64:",
        "    for k < 2:",
        "        vectors i < 12:",
        "            sum[i] += shared[24 + i]",
        "    let x = value[36]",
        "    vectors i < 12:",
        "        sum[i] += mul(value[i], x)",
    ]
    assert batch_of(found, STRICT).copies.once == []  # nothing to copy to each image


@pytest.mark.parametrize("shape", [(12, 6), (3, 3)], ids=["nearly a vector", "few of either"])
def test_rows_of_gradients_stay(shape):
    program = logistic_with_l2(models.values(shape[0]), models.values(shape[1]))
    found = reroll(build_graph(program), program, 8)
    assert "interchange" not in [name for name, _ in changed(found, c_passes(found, STRICT))]


@pytest.mark.slow
def test_columns_in_two_loops_of_terms():
    """The adjoints of stacked gates: tiles inside two loops over terms, whose counters must all be different."""
    program = gru(models.values(4), models.values(1), steps=2, hidden=4)
    check(program, steps=1)
    check_batch(program)


def test_tiles_of_two_loops():
    """The 3 x 3 weights of a kernel are a tile of nine rows; the channels are lanes."""
    program = models.convolution(6, 4)
    found = reroll(build_graph(program), program, 8)
    loops = schedule(found, c_passes(found, STRICT))
    rows = {(s.counter, s.count) for k in loops.kernels for n in k.nests for s in statements(n) if isinstance(s, For)}
    assert {("row", 3), ("row_1", 3)} <= rows


def test_sums_in_parts_add_the_same_terms():
    """A sum of 102 terms of 1 to 102: four sums of 25 terms, and two terms more."""
    x = models.values(102)
    w = [Value(float(i + 1)) for i in range(102)]
    program = Program(Floats(x), None, {"w": w}, models.dot(w, x))
    target = Target(reorder=True)
    found = reroll(build_graph(program), program, 8)
    loops = schedule(found, c_passes(found, target))
    assert any(
        isinstance(s, For) and s.counter == "from" for k in loops.kernels for n in k.nests for s in statements(n)
    )
    system = LoopInterpreter(program, loops, found)
    assert system.forward(None, [1.0] * 102) == 102 * 103 / 2


@pytest.mark.parametrize("terms", slow_but([8, 31], [8, 16, 31, 37]))
def test_sums_over_neighbours_add_the_same_terms(terms):
    """Rows of inputs forwards, columns of matrices back: whole vectors, rests of 4 + 2 + 1 and of 4 + 1 terms."""
    rng, x, keys = Random(4), models.values(9), [models.values(terms) for _ in range(6)]
    shapes = (terms, 9), (terms, 9), (terms + 3, terms), (13, terms)
    w, q, v, u = (models.weights(rng, *shape) for shape in shapes)
    hidden, query = ([models.dot(row, x).tanh() for row in matrix] for matrix in (w, q))
    out = [models.dot(row, hidden).tanh() for row in [*v, *u]] + [models.dot(key, query) for key in keys]
    inputs = Floats([*x, *(key for row in keys for key in row)])
    program = Program(inputs, None, {"w": w, "q": q, "v": v, "u": u}, models.total([o * o for o in out]))
    found = reroll(build_graph(program), program, 8)
    example = [rng.uniform(-1, 1) for _ in program.input_values]
    *before, after = _up_to("dots", found, Target(reorder=True))
    expected, got = (_gradients(program, loops, found, example) for loops in (before[-1], after))
    names = {s.name for k in after.kernels for n in k.nests for s in statements(n) if isinstance(s, Local)}
    assert {"partial", "partial_1"} <= names
    assert expected != got
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-15)


def _up_to(last, found, target):
    for name, loops in stages(found, c_passes(found, target)):
        verify_loops(loops, is_padded=False)
        yield loops
        if name == last:
            return


def _gradients(program, loops, found, example):
    system = LoopInterpreter(program, loops, found)
    system.forward(None, example)
    system.backward()
    return system.grads


# The verifier


def loops_of(*body, nests=None):
    """One kernel that fills value[4 .. 12), behind four inputs."""
    regions = {
        "data": Regions([Region(0, "P_W", "w", 8, 8, 8)]),
        VALUE: Regions([Region(0, "INPUT", "input", 4, 4, 4, Holds.INPUTS), Region(4, "GROUP_0", "group_0", 6, 8, 8)]),
    }
    kernel = Kernel(0, Pass.LOSS, nests if nests is not None else (body,), (5, 9), 6)
    return Loops((kernel,), {"data": 8, VALUE: 12}, {"table_0_0": [0, 3, 1]}, regions, 4)


def value(base, *steps, **tables):
    return Place(VALUE, Index(base, steps, tuple((name, Index(0, ((1, c),))) for name, c in tables.items())))


LEGAL = For("i", 6, (Store(value(4, (1, "i")), Const(1.0)),))


def test_legal_loops_are_accepted():
    verify_loops(loops_of(LEGAL), is_padded=False)


def rows(more):
    """A sum of inputs over three rows, each of which has `more` terms than the one before, from one input further."""
    term = Accumulate(Name("sum"), int(Op.ADD), value(0, (1, "t"), (1, "k")))
    terms = For("t", 3, (For("k", 3, (term,), steps=((more, "t"),)),))
    return Let("sum", Const(0.0)), terms, Store(value(4), Name("sum"))


def test_rows_of_a_sum_may_shrink_but_not_reach_beyond():
    verify_loops(loops_of(*rows(-1)), is_padded=False)
    with pytest.raises(ValueError, match="value\\[\\] is read before it is written"):
        verify_loops(loops_of(*rows(0)), is_padded=False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((For("i", 9, LEGAL.body),), "out of bounds"),
        ((Store(value(4, (1, "i")), Const(1.0)),), "i is not in scope"),
        ((For("i", 6, (replace(LEGAL, count=1),)),), "i counts twice"),
        ((replace(LEGAL, count=0),), "an empty loop"),
        ((Store(value(4), Name("x")),), "x is not in scope"),
        ((Accumulate(Name("x"), int(Op.ADD), Const(1.0)),), "x is not in scope"),
        ((For("i", 3, (Let("x", Const(1.0)),)), Store(value(4), Name("x"))), "x is not in scope"),
        ((Store(value(4), value(5)),), "read before it is written"),
        ((Store(value(0), Const(1.0)),), "has been written before"),
        ((Store(Place("data", Index(0)), Const(1.0)),), "data cannot be written"),
        ((Store(Place("elsewhere", Index(0)), Const(1.0)),), "no such array as elsewhere"),
        ((For("i", 6, (Store(value(4), Const(1.0)),), Kind.LANES),), "writes the same element"),
        ((For("i", 2, (For("j", 2, (Store(value(4, (1, "i"), (1, "j")), Const(1.0)),)),)),), "in two iterations"),
        ((For("i", 4, (Store(value(4, table_0_0="i"), Const(1.0)),)),), "table_0_0 is too short"),
        ((For("i", 2, (Store(value(4, nowhere="i"), Const(1.0)),)),), "no such table as nowhere"),
        ((Local("sum", 2), For("i", 3, (Store(Place("sum", Index(0, ((1, "i"),))), Const(1.0)),))), "out of bounds"),
        ((Store(Place(GRAD, Index(0, origin="at")), Const(1.0)),), "at is not in scope"),
        ((replace(LEGAL, steps=((1, "t"),)),), "a count that grows with no counter in scope"),
    ],
)
def test_what_is_not_legal_is_refused_with_its_text(body, message):
    with pytest.raises(ValueError, match=message):
        verify_loops(loops_of(*body), is_padded=False)


def test_two_nests_must_not_write_one_element():
    with pytest.raises(ValueError, match="has been written before"):
        verify_loops(loops_of(nests=((LEGAL,), (Store(value(9), Const(2.0)),))), is_padded=False)
