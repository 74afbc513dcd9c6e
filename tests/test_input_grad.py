"""Gradients of inputs, and metrics: outputs that may use the target. Against the engine, bit for bit.

What this kind of test is for: an adjoint that is no one's or another input's, or of a former image; a program that gets
other parameters by asking; a metric of the wrong target, or a mean that depends on threads.
"""

from __future__ import annotations

import random
import re
import warnings
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from harness import LEVELS, Extension, bits, compare, example, gradients, many, slow_but
from test_parts import T, X, each_kind, inputs_of, mixed, module_of, part_of, targets_of

import codegen
from codegen import Floats, Label, ModelWarning, Pixels, Program
from codegen.passes.freeze import frozen_program, weights_of
from micrograd.engine import Value
from tools.fuzz_compiler.reference import Engine

RNG = np.random.default_rng(5)


def exact(numbers: Any) -> list[str]:
    """Bits, the sign of a zero included."""
    return [float.hex(x) for x in numbers]


def engine_gradients(engine: Engine) -> list[float]:
    """Of inputs made for this image, as a user of the engine makes them."""
    for value in engine.program.input_values:
        value.grad = 0.0
    engine.backward()
    return [value.grad for value in engine.program.input_values]


PROGRAMS = {
    "perceptron of pixels": lambda: models.mlp(input_gradients=True),
    "perceptron of floats": lambda: models.mlp_of_floats(input_gradients=True),
    "xor": lambda: _with_gradients(models.xor()),
    "convolution": lambda: _with_gradients(models.convolution(6, 2)),
    "attention": lambda: _with_gradients(models.attention(3, 4)),
    "linear": lambda: linear(),
}


def _with_gradients(program: Program) -> Program:
    program.input_gradients = True
    return program


def linear() -> Program:
    """Gradients that are a parameter, constants, a target, another input, and nothing."""
    x, t, p = models.values(7), models.values(1), [Value(0.5), Value(-3.0)]
    loss = p[0] * x[0] + x[1] * -2.0 + x[2] * t[0] + x[3] * x[4] + p[1] + x[5].detach() + x[6]
    return Program(Floats(x), Floats(t), {"p": p}, loss, {"x": [x[1]]}, input_gradients=True)


@each_kind
@pytest.mark.parametrize("name", slow_but(["perceptron of pixels"], PROGRAMS, nightly=[*PROGRAMS][::2]))
def test_they_are_those_of_the_engine(name, kind, tmp_path):
    program = PROGRAMS[name]()
    module, engine = module_of(kind, program, tmp_path), Engine(program)
    rng = random.Random(1)
    for _ in range(4):
        target, inputs = example(program, rng)
        engine.forward(target, inputs)
        module.forward(target, bytes(inputs) if isinstance(program.inputs, Pixels) else inputs)
        module.backward()
        assert bits(module.input_grad()) == bits(engine_gradients(engine))
        assert bits(module.input_grad()) == bits(module.input_grad())
    assert bits(gradients(module)) == bits(engine.grads)


def test_the_sign_of_a_zero_is_the_engine_s(tmp_path):
    """The engine adds to 0.0, so that -0.0 never comes out."""
    module = module_of("loops", linear(), tmp_path)
    module.load_state_dict({"p": np.array([-0.0, 1.0])})
    module.forward(-0.0, [1, 2, 3, -0.0, -0.0, 5, 6])
    module.backward()
    assert exact(module.input_grad()) == exact([0.0, -2.0, 0.0, 0.0, 0.0, 0.0, 1.0])


@each_kind
def test_they_are_of_the_last_image_alone(kind, tmp_path):
    program = models.mlp_of_floats(input_gradients=True)
    module = module_of(kind, program, tmp_path)
    early = "input_grad() needs a forward() and a backward() before it"
    rows, targets = RNG.normal(size=(80, 12)), RNG.normal(size=(80, 3))
    with pytest.raises(RuntimeError, match=re.escape(early)):
        module.input_grad()
    module.forward(targets[0], rows[0])
    with pytest.raises(RuntimeError, match=re.escape(early)):
        module.input_grad()
    module.backward()
    first = module.input_grad()
    module.backward()
    assert module.input_grad() == first
    module.outputs(rows[1])
    module.evaluate(rows, targets)
    module.zero_grad()
    module.update()
    assert module.input_grad() == first
    module.forward(targets[1], rows[1])
    with pytest.raises(RuntimeError, match=re.escape(early)):
        module.input_grad()
    module.backward()
    assert module.input_grad() != first
    for change in (
        lambda: module.train(rows, targets),
        lambda: module.train(rows, targets, batch_size=80),
        lambda: module.accumulate(rows, targets),
        module.reset,
    ):
        module.forward(targets[0], rows[0])
        module.backward()
        module.input_grad()
        change()
        with pytest.raises(RuntimeError, match=re.escape(early)):
            module.input_grad()


@pytest.mark.slow
@each_kind
def test_by_name(kind, tmp_path):
    program = _with_gradients(mixed())
    module, engine = module_of(kind, program, tmp_path), Engine(program)
    for row in range(3):
        engine.run(targets_of(row), inputs_of(row))
        expected = engine_gradients(engine)
        module.forward(part_of(T, row), part_of(X, row))
        module.backward()
        found = module.input_grad()
        assert [*found] == ["pixels", "maß", "word"]
        assert [len(part) for part in found.values()] == [6, 2, 12]
        assert bits([x for part in found.values() for x in part]) == bits(expected)


def test_training_has_the_same_bits_with_and_without(tmp_path):
    with_them, without = (
        Extension(models.mlp(input_gradients=flag), tmp_path, "loops", flags=["-O0"]) for flag in (True, False)
    )
    images, labels = many(without.program, 100)
    for batch in (1, 7, 100):
        losses = [m.module.train(images, labels, batch_size=batch, threads=2) for m in (with_them, without)]
        assert losses[0] == losses[1]
    assert bits(with_them.data) == bits(without.data)


@pytest.mark.slow
def test_all_systems_agree(tmp_path):
    assert LEVELS
    compare(models.mlp_of_floats(input_gradients=True), tmp_path, flags=["-O0"])


@each_kind
def test_a_model_that_does_not_declare_them_says_so(kind, tmp_path):
    module = module_of(kind, models.mlp(), tmp_path)
    with pytest.raises(RuntimeError, match=re.escape("declare Program(input_gradients=True)")):
        module.input_grad()
    with pytest.raises(RuntimeError, match="this model declares no metrics"):
        module.metrics(bytes(12), b"\0")


def test_it_costs_nothing_where_it_is_not_declared():
    plain = codegen.compile_program(models.mlp())
    assert "compute_metrics" not in plain.text
    assert not plain.graph.input_gradients
    assert not plain.graph.metrics


# Metrics


def measured() -> Program:
    x, t, w = models.values(3), models.values(2), [[Value(0.1 * i - 0.2 * j) for j in range(3)] for i in range(2)]
    out = [(row[0] * x[0] + row[1] * x[1] + row[2] * x[2]).tanh() for row in w]
    loss = (out[0] - t[0]) ** 2 + (out[1] - t[1]) ** 2
    error = ((out[0] - t[0]).abs() + (out[1] - t[1]).abs()) * 0.5
    metrics = {"mean absolute error": error, "größte": out[0].relu(), "loss": loss, "target": t[1], "one": 1.0}
    metrics["one"] = Value(1.0)
    return Program(Floats(x), Floats(t), {"w": w}, loss, {"out": out}, metrics=metrics, constants=[metrics["one"]])


@pytest.mark.slow
@each_kind
def test_means_are_those_of_the_engine(kind, tmp_path):
    program = measured()
    module, engine = module_of(kind, program, tmp_path), Engine(program)
    rows, targets = RNG.normal(size=(300, 3)), RNG.normal(size=(300, 2))
    totals = dict.fromkeys(program.metrics, 0.0)
    for row, target in zip(rows.tolist(), targets.tolist(), strict=True):
        engine.run(target, row)
        for name, value in program.metrics.items():
            totals[name] += value.data
    expected = {name: total / 300 for name, total in totals.items()}
    seen: list[tuple[Any, ...]] = []
    for threads in (1, 3):
        found = module.metrics(rows, targets, threads=threads, progress=lambda *args: seen.append(args))
        assert [*found] == [*program.metrics]
        assert exact(found.values()) == exact(expected.values())
    assert found["loss"] == module.evaluate(rows, targets)[0]
    assert seen[-1] == (300, 300, None)
    assert [*module.outputs(rows[0])] == ["out"]
    assert module.info()["outputs"] == {"out": 2}
    assert module.metrics(rows.astype("f").tolist(), targets) == module.metrics(rows.astype("f"), targets)
    for arguments in ((rows, targets[1:]), (rows.T, targets)):
        with pytest.raises(ValueError, match="must"):
            module.metrics(*arguments)
    with pytest.raises(TypeError, match="targets must be real numbers, got <class 'NoneType'>"):
        module.metrics(rows, None)


@pytest.mark.slow
def test_training_is_not_changed_by_metrics(tmp_path):
    rows, targets = RNG.normal(size=(64, 3)), RNG.normal(size=(64, 2))
    program = measured()
    without = measured()
    without.metrics = {}
    modules = [module_of("loops", p, tmp_path) for p in (program, without)]
    for batch in (1, 16):
        losses = [module.train(rows, targets, batch_size=batch) for module in modules]
        assert losses[0] == losses[1]
    assert bits(np.ravel(modules[0].state_dict()["w"])) == bits(np.ravel(modules[1].state_dict()["w"]))


@pytest.mark.slow
def test_a_model_of_named_inputs_has_metrics(tmp_path):
    program = mixed()
    logits, label = program.outputs["logits"], program.target_values[1:]
    program.metrics = {"probability": sum((a * b for a, b in zip(logits, label, strict=True)), Value(0.0))}
    module = module_of("loops", program, tmp_path)
    engine, total = Engine(program), 0.0
    for row in range(len(X["word"])):
        engine.run(targets_of(row), inputs_of(row))
        total += program.metrics["probability"].data
    assert module.metrics(X, T) == {"probability": total / len(X["word"])}


def test_a_frozen_model_has_neither(tmp_path):
    program = measured()
    program.input_gradients = True
    frozen = frozen_program(program, weights_of(program))
    assert (frozen.metrics, frozen.input_gradients) == ({}, False)
    module = module_of("loops", frozen, tmp_path)
    assert not hasattr(module, "metrics")
    assert not hasattr(module, "input_grad")


def declare(**changes: Any) -> Program:
    x, t, w = models.values(1), models.values(1), [Value(1.0)]
    loss = (w[0] * x[0] - t[0]) ** 2
    return Program(**({"inputs": Floats(x), "targets": Label(t), "parameters": {"w": w}, "loss": loss} | changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"metrics": [1]}, TypeError, "metrics must map names to Values, not be a list"),
        ({"metrics": {"a": [Value(1.0)]}}, TypeError, "the metric 'a' must be one Value, not [Value"),
        ({"metrics": {"": Value(1.0)}}, ValueError, "must not be empty"),
        ({"input_gradients": 1}, TypeError, "input_gradients must be True or False, not 1"),
        ({"input_gradients": True, "inputs": Floats([])}, ValueError, "without inputs has no gradients of inputs"),
        ({"input_gradients": True, "loss": None, "targets": None}, ValueError, "neither metrics nor gradients"),
        ({"metrics": {"a": Value(1.0)}, "loss": None, "targets": None}, ValueError, "neither metrics nor gradients"),
    ],
)  # fmt: skip
def test_declarations_that_make_no_sense(changes, error, message):
    with pytest.raises(error, match=re.escape(message)):
        declare(**changes)


def test_an_output_of_a_target_names_the_way_out():
    x, t, w = models.values(1), models.values(1), [Value(1.0)]
    loss = w[0] * x[0] - t[0]
    program = Program(Floats(x), Floats(t), {"w": w}, loss, {"error": [loss]})
    with pytest.raises(ValueError, match=r"'error' depends on a target, .*: declare it as a metric"):
        codegen.compile_program(program)


def test_the_digest_differs(tmp_path):
    digests = {codegen.compile_program(models.mlp_of_floats(input_gradients=flag)).digest for flag in (False, True)}
    assert len(digests) == 2


@pytest.mark.slow
def test_a_compiled_model_of_the_cache_keeps_them(unoptimized, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    with_them = codegen.compile(models.mlp_of_floats(input_gradients=True))
    without = codegen.compile(models.mlp_of_floats())
    for model in (with_them, without):
        model.forward([0.0] * 3, [1.0] * 12)
        model.backward()
    assert len(with_them.input_grad()) == 12
    with pytest.raises(RuntimeError, match="keeps no gradients of inputs"):
        without.input_grad()


def test_no_warning_for_an_input_that_only_a_metric_reads():
    x, t, w = models.values(2), models.values(1), [Value(1.0)]
    program = Program(Floats(x), Floats(t), {"w": w}, w[0] * x[0] - t[0], metrics={"m": x[1]})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        codegen.compile_program(program)
