"""Noise: other numbers than the interpreted model draws, or an order that threads, batches or seeds change."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable

import models
import numpy as np
import pytest
from harness import Extension, Generated, bits, compare, many, parameters, slow_but, state
from test_compile import line

import codegen
from codegen import Floats, Label, Pixels, Program
from codegen.passes.freeze import weights_of
from micrograd.engine import Value
from micrograd.functional import cross_entropy, mse
from micrograd.initial import Normal
from micrograd.nn import MLP, Dropout, Layer, Module
from micrograd.noise import Bernoulli, Noise, drawn, mean, moved


class Net(Module):
    def __init__(self, inputs: int = 12) -> None:
        random.seed(5)
        self.first, self.drop, self.second = Layer(inputs, 9), Dropout(0.25), Layer(9, 4, nonlin=False)

    def __call__(self, x: list[Value]) -> list[Value]:
        return self.second(self.drop(self.first(x)))


def dropout(**options: object) -> Program:
    """Pixels in rows, one unit of four left out."""
    net, x, t = Net(), models.values(12), models.values(4)
    out = net(x)
    named = net.named_parameters()
    return Program(
        Pixels(x, 1 / 255), Label(t), named, cross_entropy(out, t), {"out": out}, noise=net.noise(), **options
    )


def variational() -> Program:
    """Inputs with noise, and a code that is drawn around what the encoder says."""
    random.seed(7)
    encoder, decoder = MLP(6, [5, 4]), MLP(2, [5, 6])
    x, dirt, e = models.values(6), models.values(6), models.values(2)
    code = encoder([a + d for a, d in zip(x, dirt, strict=True)])
    z = [m + (0.5 * s).exp() * n for m, s, n in zip(code[:2], code[2:], e, strict=True)]
    out = decoder(z)
    named = {f"encoder.{k}": v for k, v in encoder.named_parameters().items()}
    named |= {f"decoder.{k}": v for k, v in decoder.named_parameters().items()}
    noise = [Noise(dirt, (-0.1, 0.2)), Noise(np.array(e).reshape(1, 2), Normal(0.0, 1.0, 2.5))]
    initial = {f"encoder.{k}": v for k, v in encoder.initial().items()}
    initial |= {f"decoder.{k}": v for k, v in decoder.initial().items()}
    order = [*encoder.parameters(), *decoder.parameters()]  # in which they were drawn
    return Program(Floats(x), None, named, mse(out, x), {"code": z}, noise=noise, initial=initial, seed=7, order=order)


def alone() -> Program:
    """A loss of parameters and noise."""
    w, n = Value(0.5), Value(0.0)
    return Program(Floats([]), None, {"w": w}, (w - n) ** 2, {"w": [w]}, noise=Noise([n], Normal(3.0, 0.1)))


def moving() -> Program:
    """Two planes of 3 x 4 pixels, moved by up to 2, beside a hidden layer with dropout."""
    net, t = Net(24), models.values(4)
    x = np.array(models.values(24), dtype=object).reshape(2, 3, 4)
    out = net(x.ravel().tolist())
    named = net.named_parameters()
    return Program(
        Pixels(x, 1 / 255, shift=2), Label(t), named, cross_entropy(out, t), {"out": out}, noise=net.noise(), seed=2
    )


PROGRAMS: dict[str, Callable[[], Program]] = {
    "dropout": dropout,
    "variational": variational,
    "alone": alone,
    "moving": moving,
}


@pytest.mark.parametrize("name", slow_but([], PROGRAMS))
def test_all_systems_agree(name, tmp_path):
    """Predictions and evaluations, which have the means, among training steps."""
    compare(PROGRAMS[name](), tmp_path, steps=8, flags=["-O0"])


def interpreted(program: Program, data: tuple, batch_size: int, seed: int, epochs: int = 2) -> list[float]:
    """train(seed=...) by hand, with Values and Python's generator."""
    rng = random.Random(seed)
    count = len(program.input_values)
    inputs = np.frombuffer(data[0], np.uint8).reshape(-1, count) / 255
    order = list(range(len(inputs)))
    for _ in range(epochs):
        rng.shuffle(order)
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            for p in program.parameter_values:
                p.grad = 0.0
            for i in batch:
                for noise in program.noises:
                    noise.draw(rng)
                for value, number in zip(program.input_values, inputs[i].tolist(), strict=True):
                    value.data = number
                for k, value in enumerate(program.target_values):
                    value.data = float(k == data[1][i])
                program.loss.recompute()
                program.loss.backward()
            for p in program.parameter_values:
                p.data -= 0.1 * p.grad / len(batch)
    return [p.data for p in program.parameter_values]


@pytest.fixture(scope="module")
def net(tmp_path_factory) -> Extension:
    return Extension(dropout(), tmp_path_factory.mktemp("noise"), "loops", flags=["-O0"])


@pytest.mark.parametrize("batch_size", slow_but([7], [1, 7, 70]))
def test_train_draws_what_the_interpreted_model_draws(batch_size, net, tmp_path):
    """After the shuffling of each epoch, example after example, from one generator."""
    program = dropout()
    data = many(program, 75)
    data = bytes(x % 4 * 60 for x in data[0]), data[1]
    expected = None
    for threads in (1, 3):
        net.reset()
        net.module.train(*data, batch_size=batch_size, seed=3, epochs=2, threads=threads, learning_rate=0.1)
        expected = expected or state(net.module)
        assert state(net.module) == expected
    python = Generated(program, tmp_path)
    python.module.train(*data, batch_size=batch_size, seed=3, epochs=2, learning_rate=0.1)
    assert bits(parameters(python.module)) == bits(parameters(net.module))
    close = interpreted(dropout(), data, batch_size, 3)  # whose inputs are quotients instead of products
    np.testing.assert_allclose(parameters(net.module), close, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 70])
def test_moved_images_are_those_that_python_moves(batch_size):
    """Training with a shift is training without one on the images that moved() makes."""
    first, second = moving(), moving()
    moves = codegen.compile(Program(**vars_of(first, noise=())), optimize=0)
    still = Program(**vars_of(second, noise=(), inputs=Pixels(second.input_values, 1 / 255)))
    images, labels = many(first, 75)
    rng, order = random.Random(9), list(range(75))
    rng.shuffle(order)
    pictures = [bytes(map(int, moved(images[24 * i :][:24], first.shift, rng))) for i in order]
    assert len(set(pictures)) > 60
    expected = codegen.compile(still, optimize=0)
    losses = expected.train(b"".join(pictures), bytes(labels[i] for i in order), batch_size=batch_size)
    for threads in (1, 2):
        model = codegen.compile(Program(**vars_of(first, noise=())), optimize=0)
        assert model.train(images, labels, batch_size=batch_size, seed=9, threads=threads) == losses
        assert state(model) == state(expected)
    assert moves.evaluate(images, labels) == codegen.compile(still, optimize=0).evaluate(images, labels)


def test_a_move_loses_what_leaves_the_frame():
    image = list(range(1, 13))
    seen = {tuple(moved(image, (1, 3, 4), random.Random(i))) for i in range(200)}
    assert len(seen) == 9
    assert tuple(image) in seen
    assert (0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7) in seen  # down and right
    assert (6, 7, 8, 0, 10, 11, 12, 0, 0, 0, 0, 0) in seen
    assert moved(image, None) == image
    random.seed(3)
    assert moved(image, (1, 3, 4), random.Random(3)) == moved(image, (1, 3, 4))


def test_a_seed_makes_a_run_repeat_itself_and_none_goes_on(net):
    data = many(dropout(), 20)
    net.reset()
    runs = [net.module.train(*data, learning_rate=0.0, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert net.module.train(*data, learning_rate=0.0) != net.module.train(*data, learning_rate=0.0)
    net.reset()
    first = net.module.train(*data, learning_rate=0.0), net.module.accumulate(*data)
    net.reset()
    assert first == (net.module.train(*data, learning_rate=0.0), net.module.accumulate(*data))


def test_a_seed_starts_the_models_own_noise_again(tmp_path):
    """Also where no first weights are drawn from it."""
    for module in (codegen.compile(alone(), optimize=0), Generated(alone(), tmp_path).module):
        for seed in (7, 8, 7):
            module.reset(seed)
            rng = random.Random(seed)
            for _ in range(3):
                assert module.forward(None, None) == (0.5 - drawn(Normal(3.0, 0.1), rng)) ** 2


def test_predictions_have_the_mean_and_do_not_draw(net):
    program = dropout()
    data = many(program, 40)
    net.reset()
    net.module.train(*data, seed=1)
    frozen = codegen.compile(frozen_of(program, net.module), optimize=0)
    row = bytes(data[0][:12])
    for threads in (1, 2):
        rows = np.asarray(net.module.outputs_batch(data[0], threads=threads)["out"])
        assert rows.tobytes() == np.asarray(frozen.outputs_batch(data[0])["out"]).tobytes()
    assert net.module.outputs(row) == frozen.outputs(row)
    assert net.module.evaluate(*data) == net.module.evaluate(*data, threads=3)
    net.module.train(*data, learning_rate=0.0)
    expected = net.module.forward(data[1][0], row)
    net.reset()
    net.module.train(*data, seed=1)
    net.module.train(*data, learning_rate=0.0)
    net.module.outputs(row), net.module.evaluate(*data)
    assert net.module.forward(data[1][0], row) == expected


def frozen_of(program: Program, module: object) -> Program:
    from codegen.passes.freeze import frozen_program

    return frozen_program(program, weights_of(program, parameters(module)))


def test_a_frozen_model_moves_nothing():
    from codegen.passes.freeze import frozen_program

    frozen = frozen_program(moving(), weights_of(moving()))
    assert frozen.shift is None
    assert "_moved" in codegen.compile_program(moving(), target="python").text
    assert "_moved" not in codegen.compile_program(frozen, target="python").text


@pytest.mark.parametrize(
    "distribution",
    [(-2.0, 3.0), Normal(1.0, 2.0), Normal(0.0, 1.0, 0.5), Bernoulli(0.25, 4.0), Bernoulli(1.0), Bernoulli(0.0)],
)
def test_the_mean_is_that_of_many_draws(distribution):
    rng = random.Random(1)
    numbers = [drawn(distribution, rng) for _ in range(20000)]
    assert sum(numbers) / len(numbers) == pytest.approx(mean(distribution), abs=0.06)
    random.seed(2)
    noise = Noise(np.array(models.values(4)).reshape(2, 2), distribution)
    noise.draw()
    seen = [value.data for value in noise.values.ravel()]
    random.seed(2)
    assert seen == [drawn(distribution) for _ in range(4)]
    noise.rest()
    assert {value.data for value in noise.values.ravel()} == {mean(distribution)}


def test_a_bernoulli_is_one_or_zero_and_always_zero_with_the_probability_zero():
    class Zero(random.Random):
        def random(self) -> float:
            return 0.0  # the smallest number that a generator returns

    assert {drawn(Bernoulli(0.5)) for _ in range(100)} == {0.0, 1.0}
    assert drawn(Bernoulli(0.0), Zero()) == 0.0


def test_compiled_models_of_one_program_draw_alike_and_by_themselves():
    one, two = codegen.compile(alone(), optimize=0), codegen.compile(alone(), optimize=0)
    losses = [one.forward(None, None) for _ in range(5)]
    assert [two.forward(None, None) for _ in range(5)] == losses
    assert len(set(losses)) == 5
    assert all(math.isclose(loss, 6.25, rel_tol=0.5) for loss in losses)
    other = codegen.compile(Program(**vars_of(alone(), seed=1)), optimize=0)
    assert other.forward(None, None) != losses[0]


def vars_of(program: Program, **changes: object) -> dict:
    names = ("inputs", "targets", "parameters", "loss", "outputs", "noise", "seed")
    return {name: getattr(program, name) for name in names} | changes


@pytest.mark.slow
def test_float32_draws_the_same_numbers_rounded(tmp_path):
    x, n, w = models.values(1), models.values(1), Value(0.0)
    program = Program(
        Floats(x), None, {"w": w}, w + n[0], {"n": n}, noise=Noise(n, (0.0, 1.0)), dtype="float32", seed=4
    )
    module = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    rng = random.Random(4)
    expected = [np.float32(rng.random()) for _ in range(5)]
    assert [module.forward(None, array("f", [0.0])) for _ in range(5)] == expected


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_dropout_of_no_probability(p):
    with pytest.raises(ValueError, match="0 <= p < 1"):
        Dropout(p)


def test_dropout_of_nested_lists():
    layer = Dropout(0.5)
    out = layer([[Value(2.0), Value(3.0)], [Value(4.0)]])
    assert [[value.data for value in row] for row in out] == [[2.0, 3.0], [4.0]]
    for noise in layer.noise():
        noise.draw(random.Random(0))
    for row in out:
        for value in row:
            value.recompute()
    assert {value.data for row in out for value in row} <= {0.0, 4.0, 6.0, 8.0}
    assert layer.parameters() == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (lambda: Pixels(models.values(4), shift=1), "two or more dimensions that are the only inputs"),
        (lambda: {"a": Pixels(np.array(models.values(4)).reshape(2, 2), shift=1)}, "that are the only inputs"),
        (lambda: Pixels(np.array(models.values(6)).reshape(2, 3), shift=2), "leaves nothing of an image of 2 x 3"),
        (lambda: Pixels(models.values(4), shift=-1), r"the shift of inputs must be 0\.\.2\*\*31-1, got -1"),
    ],
)
def test_wrong_shifts_say_what_is_wrong(kind, message):
    with pytest.raises(ValueError, match=message):
        line(inputs=kind())


def a_value() -> list[Value]:
    return [Value(0.0)]


@pytest.mark.parametrize(
    ("noise", "error", "message"),
    [
        (3, TypeError, "noise must be a Noise or a list of them, not 3"),
        ([Bernoulli(0.5)], TypeError, "noise must be a Noise or a list of them"),
        (Noise([], (0, 1)), ValueError, r"noise\[0\] must have at least one Value"),
        (Noise([1.0], (0, 1)), TypeError, r"noise\[0\]: element 0 must be a Value, not float"),
        (Noise([Value(1.0) + 2.0], (0, 1)), ValueError, "is computed by '\\+', but must be a leaf"),
        (Noise(a_value(), (1, 0)), ValueError, r"must be a range of finite width, got \(1.0, 0.0\)"),
        (Noise(a_value(), (-1e308, 1e308)), ValueError, "range of finite width"),
        (Noise(a_value(), (0, math.nan)), ValueError, "an end of the range must be finite"),
        (Noise(a_value(), "ab"), TypeError, "must be \\(low, high\\), a Normal or a Bernoulli"),
        (Noise(a_value(), Bernoulli(1.5)), ValueError, "the probability must be 0..1, got 1.5"),
        (Noise(a_value(), Bernoulli("a")), TypeError, "the probability must be a number"),
        (Noise(a_value(), Bernoulli(0.5, math.inf)), ValueError, "the value must be finite"),
        (Noise(a_value(), Normal(0, 0)), ValueError, "the deviation must be above 0"),
        (Noise(a_value(), Normal(0, 1, 1e-9)), ValueError, "the limit 0.01 or more"),
    ],
)
def test_wrong_noise_says_what_is_wrong(noise, error, message):
    with pytest.raises(error, match=message):
        line(noise=noise)


def test_noise_is_declared_once():
    n = Value(0.0)
    with pytest.raises(ValueError, match=r"declared twice, as noise\[0\], element 0 and as noise\[1\], element 0"):
        line(noise=[Noise([n], (0, 1)), Noise([n], (0, 1))])
    with pytest.raises(ValueError, match="neither metrics nor gradients of inputs nor noise"):
        Program(Floats([n]), None, {"w": Value(1.0)}, None, {"n": [n]}, noise=Noise([Value(0.0)], (0, 1)))
