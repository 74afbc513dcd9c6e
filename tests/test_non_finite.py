"""inf and nan in weights, gradients, inputs and targets: systems that lose one on the way, in steps or in train().

What a zero input leaves out, and what a batch or a thread does in another order, must not show: 0 * inf is nan.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import models
import numpy as np
import pytest
from harness import LEVELS, Extension, Generated, bits, example

from codegen import Floats, Program
from codegen.passes.freeze import weights_of
from codegen.pipeline import build_graph
from micrograd.engine import Value
from tools.fuzz_compiler.reference import Engine, Interpreter, Reference
from tools.fuzz_compiler.systems import require_same

pytestmark = pytest.mark.usefixtures("rows_of_any_size")

ODD = [math.nan, math.inf, -math.inf, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324, -0.0]


def edge_of_each_op() -> Program:
    """Every op with an edge, on weights and inputs that may be anything: log, powers, max, relu, a quotient."""
    x, y, w = models.values(6), models.values(1), [[Value(0.5) for _ in range(6)] for _ in range(6)]
    h = [models.dot(row, x) for row in w]
    out = [h[0].relu(), h[1].log(), h[2] ** 0.5, h[3] ** -1, h[4].max(h[5], x[0]), h[5].sigmoid(), h[0].tanh()]
    out += [h[1] ** h[2], h[3] / h[4], (h[0] * 0.0).exp(), h[2].relu() * h[3].relu(), h[1] ** 3]
    losses = [o * 1e-3 for o in out]
    return Program(Floats(x), Floats(y), {"w": w}, models.total([*losses, y[0] * y[0]]), {"out": out}, 0.01)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "floats": models.mlp_of_floats,
    "ops": edge_of_each_op,
    "mlp": models.mlp,
    "wide": lambda: models.mlp((5, 300, 2)),
    "two rows": lambda: models.REGULAR["shared_weights"](),
    "recurrence": models.recurrence,
    "convolution": models.convolution,
    "random": lambda: models.random_programs(11, 8),
}
SLOW = ["ops", "floats"]
OF_PIXELS = {"mlp", "wide", "two rows", "convolution"}  # whose examples are always finite


def cases(*places: str, quick: Sequence[str] = ()) -> list:
    """Each program with each place for an odd number that it has; some of them in quick tests, some every night."""
    return [
        pytest.param(
            name, what, marks=[] if name in quick else pytest.mark.slow if name in SLOW else pytest.mark.nightly
        )
        for name in PROGRAMS
        for what in places
        if what != "example" or name not in OF_PIXELS
    ]


class Systems:
    """One Program everywhere, all with the same parameters and gradients."""

    def __init__(self, program: Program, folder) -> None:
        self.program = program
        self.loops = Extension(program, folder, "loops", levels=True, flags=["-O1"])
        self.all: dict[str, Reference | Extension] = {
            "engine": Engine(program),
            "interpreter": Interpreter(program, build_graph(program)),
            "Python, loops": Generated(program, folder, "loops"),
            "Python, statements": Generated(program, folder, "straightline"),
            "straightline": Extension(program, folder, "straightline", flags=["-O0"]),
            "loops": self.loops,
        }
        for level in LEVELS:
            with suppress(ImportError):  # an older processor, or not an x86 one
                self.all[f"loops at {level}"] = self.loops.at_level(level)
        self.first = list(self.all["engine"].data)

    def load(self, data: list[float]) -> None:
        for system in self.all.values():
            if isinstance(system, Reference):
                system.data = list(data)
            else:
                system.module.load_state_dict(weights_of(self.program, data))
            system.zero_grad()

    def write_gradient(self, number: int, value: float) -> None:
        (place,) = [
            (t.name, index)
            for t in self.program.tensors
            for i, index in zip(t.numbers, np.ndindex(t.shape), strict=True)
            if i == number
        ]
        for system in self.all.values():
            if isinstance(system, Reference):
                system.grads[number] = value
            elif isinstance(system, Generated):
                module = system.module  # its grad_dict() is a copy
                module._grad[module._order[number]] = value
                module._dirty.update(range(len(self.program.input_values)))
            else:
                np.asarray(system.module.grad_dict()[place[0]])[place[1]] = value

    def agree(self, what: str, also_gradients: bool = True) -> None:
        require_same(self.all, f"{what}: parameters", lambda s: s.data)
        if also_gradients:
            require_same(self.all, f"{what}: gradients", lambda s: s.grads)


@pytest.fixture(scope="module")
def systems(tmp_path_factory) -> Callable[[str], Systems]:
    made: dict[str, Systems] = {}

    def get(name: str) -> Systems:
        if name not in made:
            made[name] = Systems(PROGRAMS[name](), tmp_path_factory.mktemp("non_finite"))
        made[name].load(made[name].first)
        return made[name]

    return get


def spoiled(program: Program, rng: random.Random, value: float) -> tuple[object, list]:
    """An example with `value` among its inputs or its targets, where they are floats."""
    target, inputs = example(program, rng)
    if isinstance(program.inputs, Floats):
        inputs[rng.randrange(len(inputs))] = value
        if isinstance(target, list) and rng.random() < 0.5:
            target[rng.randrange(len(target))] = value
    return target, inputs


@pytest.mark.parametrize("looks", [True, False], ids=["all seen", "gradients unseen"])
@pytest.mark.parametrize(("name", "what"), cases("weight", "gradient", "example"))
def test_steps(name, what, looks, systems):
    """Some steps with one odd number in them; gradients that nobody looks at may never be written down."""
    one, program = systems(name), systems(name).program
    places = len(one.first)
    for i, value in enumerate(ODD):
        rng = random.Random(i)
        for number in sorted({0, places // 2, places - 1, rng.randrange(places)}):
            data = list(one.first)
            if what == "weight":
                data[number] = value
            one.load(data)
            if what == "gradient":
                one.write_gradient(number, value)
            for step in range(3):
                which = f"{value} in {what} {number}, step {step}"
                if step or what != "gradient":
                    for system in one.all.values():
                        system.zero_grad()
                for _ in range(rng.choice([1, 2])):
                    target, inputs = spoiled(program, rng, value) if what == "example" else example(program, rng)
                    require_same(one.all, f"{which}: loss", lambda s, t=target, x=inputs: [s.forward(t, x)])
                    for output in program.outputs:
                        require_same(one.all, f"{which}: output {output}", lambda s, o=output: s.outputs()[o])
                    for system in one.all.values():
                        system.backward()
                for system in one.all.values():
                    system.update(2)
                one.agree(which, looks)


BATCHES = [(1, 1), (1, 2), (7, 1), (7, 3), (70, 1), (70, 2)]  # of images, and threads


@pytest.mark.parametrize(("name", "what"), cases("weight", "example"))
def test_train_and_evaluate(name, what, systems):
    """Batches smaller and larger than a block, with threads, at every SIMD level, and in Python."""
    one, program = systems(name), systems(name).program
    engine, rng = Engine(program), random.Random(3)
    count = 70
    for value, (batch_size, threads) in zip(itertools.cycle(ODD[:4]), BATCHES * 2, strict=False):
        data = list(one.first)
        if what == "weight":
            data[rng.randrange(len(data))] = value
        examples = [example(program, rng) for _ in range(count)]
        if what == "example":
            examples[rng.randrange(count)] = spoiled(program, rng, value)
        engine.data = list(data)
        expected = bits([engine.train(examples, batch_size)]), bits(engine.data), bits(engine.grads)
        one.load(data)
        for kind, system in one.all.items():
            if not isinstance(system, Extension):
                continue
            which = f"{value} in a {what}, {batch_size} images a batch, {threads} threads: {kind}"
            loss = system.train(examples, batch_size, threads)
            assert (bits([loss]), bits(system.data), bits(system.grads)) == expected, which
        after = bits([engine.evaluate(examples)])
        for kind, system in one.all.items():
            if isinstance(system, Extension):
                assert bits([system.evaluate(examples, threads)]) == after, kind


@pytest.mark.slow
def test_a_zero_input_times_a_weight_that_is_not_finite(systems):
    """The shortest form of it: only the product 0 * inf can make this loss a nan."""
    one = systems("floats")
    for value in (math.inf, -math.inf, math.nan):
        data = list(one.first)
        data[3 * 13 + 4] = value
        one.load(data)
        losses = {name: system.forward([0.0] * 3, [0.0] * 12) for name, system in one.all.items()}
        assert all(map(math.isnan, losses.values())), losses


def test_a_weight_that_an_update_makes_infinite(systems):
    """The update itself must notice, also where the gradient is that of a row which nothing else has visited."""
    one = systems("floats")
    number = 3 * 13 + 4
    data = list(one.first)
    data[number] = -1.7976931348623157e308
    one.load(data)
    one.write_gradient(number, 1.7976931348623157e308)
    for system in one.all.values():
        system.update()
    one.agree("an update that overflows")
    assert one.all["engine"].data[number] == -math.inf
    losses = {name: system.forward([0.0] * 3, [0.0] * 12) for name, system in one.all.items()}
    assert all(map(math.isnan, losses.values())), losses
