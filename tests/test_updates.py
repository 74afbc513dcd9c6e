"""Rules that are compiled to other numbers than they are interpreted to, rows that are skipped wrongly, lost state."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import models
import numpy as np
import pytest
from harness import (
    LEVELS,
    Extension,
    Generated,
    batches_by_hand,
    bits,
    compare,
    many,
    nightly_but,
    parameters,
    slow_but,
)

import codegen
from codegen import Program
from codegen.passes.updates import update_of, updates_of
from micrograd import ops, optim
from tools.fuzz_compiler.reference import Engine
from tools.fuzz_compiler.systems import example


@optim.rule(fast=0.0, slow=1.0, count=0.0)
def own(p, g, state, step, rate):
    """A user's: ops of all kinds, a first value that is not 0, a state that nothing changes."""
    fast, slow, count = state
    fast, slow = 0.5 * fast + g.tanh(), ops.maximum(slow * 0.9, abs(g))
    return p - rate * ops.exp(-0.1 * step) * fast / slow, (fast, slow, count)


RULES: dict[str, Callable[[], optim.Rule]] = {
    "sgd": optim.sgd,
    "momentum": lambda: optim.sgd(0.9),
    "nesterov": lambda: optim.sgd(0.8, nesterov=True, weight_decay=0.1),
    "adam": optim.adam,
    "amsgrad": lambda: optim.adamw(amsgrad=True),
    "rmsprop": lambda: optim.rmsprop(momentum=0.5, centered=True),
    "adagrad": lambda: optim.adagrad(lr_decay=0.1, initial_accumulator_value=0.1),
    "lion": lambda: optim.lion(weight_decay=0.1),
    "clip_value": lambda: optim.clip_value(optim.sgd(), 0.01),
    "clip_norm": lambda: optim.clip_norm(optim.adam(), 0.1),
    "clipped sgd": lambda: optim.clip_norm(optim.scale_rate(optim.sgd(), 2.0), 0.1),
    "own": lambda: own,
}


def with_rules(program: Program, *names: str) -> Program:
    """The Program whose tensors have these rules in turn."""
    chosen = [RULES[name]() for name in names]
    program.update = dict(zip((tensor.name for tensor in program.tensors), itertools.cycle(chosen), strict=False))
    program.learning_rate = 0.05
    program.check()
    return program


PROGRAMS = {
    "rows": lambda: with_rules(models.mlp((12, 7, 6, 5)), "adam", "own", "lion", "amsgrad", "clip_value", "adagrad"),
    "rows that are skipped": lambda: with_rules(models.mlp(), "clipped sgd", "momentum", "nesterov", "rmsprop"),
    "rows of descent": models.mlp,
    "no rows": lambda: with_rules(models.attention(), "sgd", "momentum", "clip_norm", "own", "rmsprop"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """built(name) -> the modules of a Program, by level, and in Python; all with fresh state."""
    folder, found = tmp_path_factory.mktemp("updates"), {}

    def get(name: str) -> dict[str, Any]:
        if name not in found:
            extension = Extension(PROGRAMS[name](), folder, "loops", levels=True, flags=["-O0"])
            found[name] = {"python": Generated(extension.program, folder, "loops")}
            for level in LEVELS:
                with suppress(ImportError):
                    found[name][level] = extension.at_level(level)
        for system in found[name].values():
            system.module.reset(*([] if system.program.initial is None else [system.module.info()["seed"]]))
        return found[name]

    return get


def state_of(module: Any) -> dict[str, list[float]]:
    return {name: np.asarray(view).ravel().tolist() for name, view in module.optimizer_state().items()}


@pytest.mark.parametrize("name", slow_but([], [name for name in PROGRAMS if name != "rows of descent"]))
def test_the_bits_are_those_of_the_interpreted_rule(name, built):
    systems = built(name)
    program = systems["python"].program
    examples = [example(program, random.Random(i)) for i in range(40)]
    start = systems["python"].data
    for batch_size in (1, 7, 64):
        engine = Engine(program)
        engine.data = list(start)
        losses = [engine.train(examples, batch_size) for _ in range(2)]
        for (level, system), threads in itertools.product(built(name).items(), (1, 2)):
            if level == "python" and threads == 2:
                continue
            system.module.reset(*([] if program.initial is None else [system.module.info()["seed"]]))
            found = [system.train(examples, batch_size, threads) for _ in range(2)]
            assert bits(found) == bits(losses), (level, batch_size, threads)
            assert bits(system.data) == bits(engine.data), (level, batch_size, threads)
            state = state_of(system.module)
            assert state.pop("step") == [engine.optimizer.steps]
            assert {k: bits(v) for k, v in state.items()} == {k: bits(v) for k, v in engine.optimizer.state.items()}


def test_all_systems_agree_step_by_step(tmp_path):
    compare(with_rules(models.mlp((9, 4, 3)), "own", "momentum", "clip_norm"), tmp_path, flags=["-O0"])


OTHERS = ("xor", "attention", "shared_weights", "convolution")
PAIRS = [*itertools.product(["mlp"], RULES), *itertools.product(OTHERS, RULES)]
IN_TURN = [*zip(itertools.cycle(["mlp", *OTHERS]), list(RULES)[::4], strict=False)]


@pytest.mark.parametrize("pair", nightly_but(IN_TURN, PAIRS), ids="-".join)
def test_every_rule_of_every_model(pair, tmp_path):
    """Optimised, as a user compiles it, in one of the models: a rule is the same loops in each. All pairs nightly."""
    model, rule = pair
    flags = [] if model == "mlp" else ["-O0"]
    compare(with_rules(models.REGULAR[model](), rule), tmp_path, odd=0.2, flags=flags)


def test_which_rows_are_skipped_is_found_in_the_rule():
    kept = {name: update_of(rule()).kept for name, rule in RULES.items()}
    assert {name for name, conditions in kept.items() if conditions is not None} == {"sgd", "clip_value", "clipped sgd"}
    assert kept["sgd"] == (-0.0,)
    assert update_of(optim.Rule(lambda p, g, s, t, r: (p * (1.0 + r * g), s))).kept == (1.0,)
    assert update_of(optim.Rule(lambda p, g, s, t, r: (p * 0.5 - r * g, s))).kept is None
    assert update_of(optim.rule(m=0.0)(lambda p, g, s, t, r: (p - r * g, (s[0] + 1.0,)))).kept is None
    assert update_of(optim.rule(m=0.0)(lambda p, g, s, t, r: (p - r * g, s))).kept == (-0.0,)
    assert update_of(optim.Rule(lambda p, g, s, t, r: (p + 0.0, s))).kept is None  # -0.0 would become 0.0


@pytest.mark.slow
def test_momentum_moves_rows_without_gradients(built):
    """A pixel that was there once, and then never again."""
    module = built("rows")["python"].module
    system = next(reversed(built("rows").values()))
    for each in (module, system.module):
        each.train(bytes([255] * 12), bytes([1]))
        weight = np.array(each.state_dict()["layers.0.weight"])
        each.train(bytes(12), bytes([1]))
        assert (np.array(each.state_dict()["layers.0.weight"]) != weight).any(axis=0).all()


@pytest.mark.parametrize("name", ["rows that are skipped", "rows of descent"])
def test_a_negative_rate_does_not_skip(name, built):
    """p + 0.0 is not p if p is -0.0."""
    for system in built(name).values():
        module = system.module
        weights = {name: np.array(view) for name, view in module.state_dict().items()}
        weights["layers.0.weight"][:] = -0.0
        module.load_state_dict(weights)
        for rate, sign in ((0.1, True), (-0.1, False)):
            module.zero_grad()
            module.forward(1, bytes(12))
            module.backward()
            module.update(learning_rate=rate)
            assert (np.signbit(np.array(module.state_dict()["layers.0.weight"])) == sign).all()


@pytest.mark.slow
def test_steps_are_counted(built):
    for system in built("rows").values():
        module, data = system.module, many(system.program, 10)
        assert state_of(module)["step"] == [0]
        module.train(*data, batch_size=3)
        assert state_of(module)["step"] == [4]
        module.zero_grad()
        module.update(1000)
        assert state_of(module)["step"] == [5]
        module.reset(0)
        assert state_of(module) == state_of(built("rows")["python"].module)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "rows of descent"])
def test_steps_are_counted_to_the_last_that_a_float_can_tell(name, built):
    for system in built(name).values():
        module, data = system.module, many(system.program, 10)
        state = {slot: np.array(view) for slot, view in module.optimizer_state().items()}
        module.load_optimizer_state({**state, "step": 2**53})
        module.update(learning_rate=0.1)
        assert state_of(module)["step"] == [2**53]
        with pytest.raises(FloatingPointError):
            module.train(*data, batch_size=10, learning_rate=1e308, epochs=9, check_finite=True)
        assert state_of(module)["step"] == [2**53]


def test_a_schedule_is_a_rate_for_each_step(built):
    rates = [0.1, 0.05, 0.0, 0.02]
    for system in built("rows").values():
        module, data = system.module, many(system.program, 10)
        module.train(*data, batch_size=3, learning_rate=rates)
        expected = bits(system.data), state_of(module)
        module.reset(module.info()["seed"])
        for step, (batch, _) in enumerate(batches_by_hand(module, *data, batch_size=3)):
            module.update(step, len(batch), learning_rate=rates[step])
        assert (bits(system.data), state_of(module)) == expected


def test_state_goes_on_where_it_was_saved(built):
    """To the bit, through a pickle and from one system to another."""
    systems = built("rows")
    data = many(systems["python"].program, 20)
    first = systems["baseline"].module
    first.train(*data, batch_size=3)
    saved = {name: np.array(view) for name, view in first.state_dict().items()}, first.optimizer_state()
    saved = copy.deepcopy(saved)  # a pickle would need an import of the module
    first.train(*data, batch_size=3)
    expected = bits(parameters(first)), state_of(first)
    for system in systems.values():
        module = system.module
        module.load_state_dict(saved[0])
        module.load_optimizer_state(saved[1])
        module.train(*data, batch_size=3)
        assert bits(system.data) == expected[0]
        assert state_of(module) == expected[1]


def test_views_of_state_are_the_state(built):
    module = built("rows")["baseline"].module
    views = module.optimizer_state()
    assert views["step"].format == "q"
    assert views["step"].shape == ()
    assert views["layers.0.weight.exp_avg"].shape == (7, 12)
    module.train(*many(built("rows")["python"].program, 10))
    before = {name: np.array(view) for name, view in views.items()}
    with pytest.raises(ValueError, match="read-only"):  # it has a range
        np.asarray(views["step"])[...] = 7
    np.asarray(views["layers.0.weight.exp_avg"])[2, 3] = 5.0
    assert np.array(module.optimizer_state()["layers.0.weight.exp_avg"])[2, 3] == 5.0
    module.load_optimizer_state({name: numbers.tolist() for name, numbers in before.items()})
    assert {name: view.tolist() for name, view in views.items()} == {k: v.tolist() for k, v in before.items()}


@pytest.mark.parametrize("kind", ["baseline", "python"])
def test_bad_state_changes_nothing(kind, built):
    module = built("rows")[kind].module
    module.train(*many(built("rows")["python"].program, 10))
    before = state_of(module)
    good = {name: np.array(view) for name, view in module.optimizer_state().items()}
    name = "layers.0.weight.exp_avg"
    for bad, error, message in (
        (3, TypeError, "takes a mapping of names to buffers, not"),
        ({}, ValueError, "the state 'step' is missing"),
        ({k: v for k, v in good.items() if k != name}, ValueError, f"the state '{name}' is missing"),
        ({**good, "other": 1}, ValueError, "'other' is not in the optimizer's state of this model"),
        ({**good, name: good[name].T.copy()}, ValueError, rf"{name} must have the shape \(7, 12\), got \(12, 7\)"),
        ({**good, name: good[name].tobytes()}, TypeError, f"{name} must be real numbers, got <class 'bytes'>"),
        ({**good, "step": -1}, ValueError, "the number of steps must be"),
        ({**good, "step": 2**53 + 1}, ValueError, "the number of steps must be"),
        ({**good, "step": memoryview(b"ab")}, TypeError, "the number of steps must be an int"),
    ):
        with pytest.raises(error, match=message):
            module.load_optimizer_state(bad)
        assert state_of(module) == before


def test_check_finite_takes_back_the_state_too(built):
    for system in built("rows").values():
        module, data = system.module, many(system.program, 6)
        module.train(*data, batch_size=2, check_finite=True)
        with pytest.raises(FloatingPointError, match=r"stopped before step 2 .*images 2\.\.3"):
            module.train(*data, batch_size=2, learning_rate=1e308, check_finite=True)
        taken_back = bits(system.data), state_of(module)
        assert taken_back[1]["step"] == [4]
        module.reset(module.info()["seed"])
        module.train(*data, batch_size=2, check_finite=True)
        module.train(data[0][: 2 * 12], data[1][:2], batch_size=2, learning_rate=1e308)
        assert (bits(system.data), state_of(module)) == taken_back
        module.train(*data, batch_size=2, learning_rate=1e308)
        assert not np.isfinite(system.data).all()
        with pytest.raises(FloatingPointError, match="did not start"):
            module.train(*data, check_finite=True)


@pytest.mark.slow
def test_what_is_not_finite_is_seen_in_rows_of_zeros(tmp_path):
    """0 * inf is nan: rows with an inf are not skipped, from the step on that makes it."""
    to_inf = optim.Rule(lambda p, g, state, step, rate: (p + 1e308 * (step * 10.0), state))
    program = models.mlp(update={"layers.0.weight": to_inf, "*": optim.scale_rate(optim.sgd(), 0.0)})
    for module in (codegen.compile(program), Generated(program, tmp_path, "loops").module):
        module.update()
        assert np.isnan(module.forward(1, bytes(12)))  # before there is a view, which would look for itself
        assert np.isinf(np.array(module.state_dict()["layers.0.weight"])).all()


def test_compiled_models_have_state_of_their_own(unoptimized):
    program = with_rules(models.mlp(), "adam")
    one, other = codegen.compile(program), codegen.compile(program)
    data = many(program, 20)
    one.train(*data, batch_size=3)
    assert state_of(other)["step"] == [0]
    assert not any(state_of(other)["layers.0.weight.exp_avg"])
    again = pickle.loads(pickle.dumps(one))
    kept = pickle.loads(pickle.dumps(one.optimizer_state()))
    assert {name: np.ravel(view).tolist() for name, view in kept.items()} == state_of(one)
    for model in (one, again):
        model.train(*data, batch_size=3)
    assert state_of(again) == state_of(one)
    assert bits(parameters(again)) == bits(parameters(one))
    del one
    assert not any(state_of(codegen.compile(program))["layers.0.weight.exp_avg"])
    plain = codegen.compile(models.mlp())  # not the same code
    assert list(plain.optimizer_state()) == ["step"]


@pytest.mark.slow
def test_float32_computes_once_a_step_in_double(tmp_path):
    """Adam's first step has the size of the rate: 1 - 0.999 in float32 would be wrong by 1e-5."""
    program = models.mlp(dtype="float32", update=optim.adam(eps=0.0), learning_rate=1e-3)
    module = Extension(program, tmp_path, "loops", flags=["-O0"]).module
    weights = {name: np.zeros(view.shape, "f") for name, view in module.state_dict().items()}
    module.load_state_dict(weights)
    module.train(bytes([255] * 12), bytes([1]))
    moved = np.array(module.state_dict()["layers.1.bias"])
    assert np.allclose(np.abs(moved), 1e-3, rtol=3e-7, atol=0)


@pytest.mark.parametrize(
    ("update", "error", "message"),
    [
        ("adam", TypeError, "a rule is a function, not str"),
        ({"layers.9": optim.sgd()}, ValueError, "'layers.9' fits none of the tensors layers.0.weight"),
        ({"*.weight": optim.sgd()}, ValueError, "no rule fits the tensor 'layers.0.bias'"),
        (lambda p, g, s, t, r: (p if g > 0 else -p, s), TypeError, "cannot be traced: a Value has no order"),
    ],
)
def test_a_program_refuses_what_is_no_rule(update, error, message):
    with pytest.raises(error, match=message):
        models.mlp(update=update)


def test_the_explanation_says_what_a_step_does():
    update = {"*.bias": optim.sgd(), "*": optim.sgd(momentum=0.9)}
    lines = codegen.compile_program(models.mlp(update=update)).explanation().splitlines()
    first = lines.index("a step of sgd, for each element i of layers.0.weight, layers.1.weight")
    tiny = f"{optim.TINY:g}"
    assert lines[first + 1 : first + 7] == [
        "    number_0 = rate",
        "    t6 = 0.9 * momentum_buffer[i] + g",
        "    p[i] = p[i] + number_0 * t6 * -1",
        f"    momentum_buffer[i] = t6 + {tiny} + -{tiny}",
        "a step of sgd, for each element i of layers.0.bias, layers.1.bias, except rows whose gradients are all 0",
        "    number_0 = rate",
    ]


def test_the_learning_rate_is_the_rule_s_own(unoptimized):
    program = models.mlp()
    assert program.rate == 0.1
    assert replace(program, update=optim.adam()).rate == 1e-3
    assert models.mlp(update={"*.bias": optim.sgd(), "*": optim.lion()}).rate == 1e-4  # of the first parameter
    assert models.mlp(update=optim.adam(), learning_rate=0.5).rate == 0.5
    assert codegen.compile(models.mlp(update=optim.adam())).info()["learning_rate"] == 1e-3
    with pytest.raises(ValueError, match="the learning rate must be finite in float32"):
        models.mlp(update=optim.Rule(optim.sgd().function, rate=1e300), dtype="float32")


def test_a_program_that_only_predicts_has_no_update():
    program = models.mlp()
    with pytest.raises(ValueError, match="a model without a loss has no update"):
        Program(program.inputs, None, program.parameters, None, program.outputs, update=optim.adam())


@pytest.mark.slow
def test_fields_that_are_set_later_count():
    """docs/training.md sets them so."""
    from micrograd.noise import Noise

    program = models.xor()
    program.update = optim.adam()
    model = codegen.compile(program, optimize=0)
    assert "w1.exp_avg" in model.optimizer_state()
    program.update = optim.sgd(0.9)
    assert "w1.momentum_buffer" in codegen.compile(program, optimize=0).optimizer_state()
    program.update = "junk"
    with pytest.raises(TypeError, match="a rule is a function"):
        codegen.compile(program)
    program.update, program.noise = None, Noise(models.values(1), (0.0, 1.0))
    assert codegen.compile(program, optimize=0).info()["noise"] == 1


def test_a_constant_that_float32_does_not_have():
    with pytest.raises(ValueError, match="the rule adam has the constant 1e-50, which is 0"):
        updates_of(replace(models.xor(), update=optim.adam(eps=1e-50), dtype="float32"))


def test_a_program_without_parameters_may_have_a_rule():
    """It has no state, and nothing to move."""
    x = models.values(2)
    program = Program(codegen.Floats(x), None, {}, x[0] * x[1], update=optim.adam())
    model = codegen.compile(program, optimize=0)
    assert model.train([[2.0, 3.0]], None)[0] == 6.0
