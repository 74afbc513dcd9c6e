"""Bad input that is accepted, crashes, changes the model, or is refused with the wrong words (tests/bad_arguments.py).

Each refusal says what came and what was expected, and afterwards the model has the bits that it had: its
parameters, its gradients, and what the next backward() adds.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import bad_arguments as bad
import models
import nn
import nn_infer
import numpy as np
import pytest
from bad_arguments import MAX, Bad
from harness import Extension, Generated, bits, many, slow_but

from codegen import Label, Pixels, Program
from codegen.passes.freeze import frozen_program, weights_of
from micrograd.engine import Value

COUNT = 3  # images
OF_FROZEN = ["forward", "accumulate", "train", "evaluate", "predict", "predict_batch", "probabilities", "outputs"]
OF_FROZEN += ["outputs_batch", "probabilities_batch", "info"]


class Subject:
    """A module, good arguments for each of its functions, and what each of its parameters refuses."""

    def __init__(self, name: str, module: ModuleType, program: Program) -> None:
        self.name, self.module, self.program = name, module, program
        self.frozen = program.loss is None
        self.width, self.height = len(program.input_values), len(program.target_values)
        self.real = "f" if program.dtype == "float32" else "d"
        self.input = "B" if isinstance(program.inputs, Pixels) else self.real
        self.rows = "images" if self.input == "B" else "rows"  # in messages
        self.labelled = isinstance(program.targets, Label)
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        if self.frozen:  # in Python, what needs parameters is there and has nothing to do
            names = [name for name in names if name in OF_FROZEN]
        self.functions = {name: getattr(module, name) for name in names}
        if self.width:
            self.images, self.labels = many(program, COUNT, seed=7)
        else:
            self.images, self.labels = None, None
        self.image = None if self.images is None else self.images[: self.width]
        label = None if self.labels is None else self.labels[:1] if self.labelled else self.labels[: self.height]
        self.label = label[0] if self.labelled and label is not None else label
        self.path = os.path.join(tempfile.mkdtemp(), "good.safetensors")
        if not self.frozen:
            module.reset()  # whatever other tests have left
            module.save_weights(self.path)
            self.state = {name: np.array(view) for name, view in module.state_dict().items()}

    def called(self, parameter: str) -> str:
        """The name of a parameter in this module: compiled modules have the words of their Program."""
        if self.module.__file__.endswith(".py"):
            return parameter
        if parameter in ("images", "pixels"):
            return parameter if self.input == "B" else "inputs"
        return "targets" if parameter in ("label", "labels") and not self.labelled else parameter

    def good(self) -> dict[str, dict[str, Any]]:
        """Of each function the arguments of a call that works."""
        return {
            function: {self.called(name): value for name, value in arguments.items()}
            for function, arguments in self.usual().items()
        }

    def usual(self) -> dict[str, dict[str, Any]]:
        """The same by the names that pixels and labels have."""
        many_images = {"images": self.images, "labels": self.labels}
        options = {"threads": 2, "progress": lambda *_: None}
        return {
            "forward": {"label": self.label, "pixels": self.image},
            **{name: {"pixels": self.image} for name in ("predict", "probabilities", "outputs")},
            **{
                name: {}
                for name in (
                    "backward",
                    "input_grad",
                    "zero_grad",
                    "info",
                    "state_dict",
                    "grad_dict",
                    "flat_data",
                    "flat_grad",
                )
            },
            "update": {"step": 3, "batch_size": 2, "learning_rate": 0.01},
            "predict_batch": {"images": self.images, **options},
            "outputs_batch": {"images": self.images, "out": self.rooms(), **options},
            "probabilities_batch": {
                "images": self.images,
                "out": self.rooms().get("probabilities", np.zeros(0, self.real)),
                **options,
            },
            "evaluate": many_images | options,
            "accumulate": many_images | options,
            "metrics": many_images | options,
            "train": many_images
            | {"batch_size": 2, "learning_rate": 0.01, "epochs": 2, "seed": 5}
            | options
            | {"check_finite": True},
            "load_state_dict": {"mapping": {} if self.frozen else self.state},
            "optimizer_state": {},
            "load_optimizer_state": {"mapping": {"step": 3}},
            "save_weights": {"path": self.path},
            "load_weights": {"path": self.path},
            "data": {"i": 0},
            "grad": {"i": 0},
            "reset": {"seed": None},
        }

    def rooms(self) -> dict[str, Any]:
        """Buffers for the outputs of all images."""
        count = COUNT if self.width else 1
        return {name: np.zeros((count, len(values)), self.real) for name, values in self.program.outputs.items()}

    def refused(self, function: str, parameter: str) -> Iterator[Bad]:
        """What a parameter refuses, where the function is there for this kind of model at all."""
        parameter = next((name for name in self.usual()[function] if self.called(name) == parameter), parameter)
        if parameter == "pixels" and not self.width:
            sized = bad.sized("pixels", self.input, 0)
            yield from (each for each in sized if each.make() is not None)
        elif parameter == "pixels":
            yield from bad.sized("pixels" if self.input == "B" else "inputs", self.input, self.width)
        elif parameter == "images" and not self.width:
            yield from bad.nones(self.rows, "inputs")
        elif parameter == "images":
            yield from bad.multiples(self.rows, self.input, self.width)
        elif parameter in ("label", "labels") and self.program.targets is None:
            yield from bad.nones("the first argument" if parameter == "label" else "targets")
        elif parameter == "label" and self.labelled:
            yield from bad.ints("label", 0, self.height - 1)
        elif parameter == "label":
            yield from bad.sized("targets", self.real, self.height)
        elif parameter == "labels" and self.labelled:
            yield from bad.label_buffers(self.height, COUNT)
        elif parameter == "labels":
            yield from bad.sized("targets", self.real, COUNT * self.height)
            yield from bad.rows("targets", self.real, self.height)
        elif function == "load_optimizer_state":
            yield from bad.mappings({}, self.real, function, "in the optimizer's state")
            yield from (
                replace(each, make=lambda e=each: {"step": e.make()})
                for each in bad.ints("the number of steps", 0, 2**53)
            )
        elif parameter == "mapping":
            yield from bad.mappings({name: value.shape for name, value in self.state.items()}, self.real)
        elif parameter == "out" and function == "outputs_batch":
            yield from bad.rooms({name: room.size for name, room in self.rooms().items()}, self.real)
        elif parameter == "out":
            yield from bad.room("probabilities", self.rooms().get("probabilities", np.zeros(COUNT)).size, self.real)
        elif parameter == "path":
            yield from bad.paths()
        elif parameter == "i":
            yield from bad.ints("the number of a parameter", 0, sum(v.size for v in self.state.values()) - 1)
        elif parameter == "seed":
            yield from bad.seeds()
            if function == "reset" and self.program.initial is None:
                for seed in (0, 3, 2**64 - 1, True):
                    yield Bad(lambda x=seed: x, ValueError, r"no initial distribution: reset\(\) takes no seed")
        else:
            yield from {
                "step": lambda: bad.ints("step", 0, MAX),
                "batch_size": lambda: bad.ints("batch_size", 1, MAX),
                "epochs": lambda: bad.ints("epochs", 0, 10**9),
                "threads": lambda: bad.optional_ints("threads", 1, 64),
                "learning_rate": lambda: self.refused_rates(function),
                "progress": bad.callables,
                "check_finite": bad.bools,
            }[parameter]()

    def refused_rates(self, function: str) -> Iterator[Bad]:
        """update() needs a rate for its step, train() one for each of all steps."""
        good = self.good()[function]
        count = COUNT if self.width else 1
        steps = good["step"] + 1 if function == "update" else -(-count // good["batch_size"]) * good["epochs"]
        yield from bad.rates(self.real)
        yield from bad.rates_of_steps(self.real, steps)

    def unavailable(self, function: str) -> str:
        """What the RuntimeError says of a function that this kind of model does not have, else nothing."""
        if function in ("predict", "predict_batch") and self.program.prediction is None:
            return "declares no prediction"
        if function in ("probabilities", "probabilities_batch") and "probabilities" not in self.program.outputs:
            return "no output named 'probabilities'"
        if self.frozen and function in ("forward", "accumulate", "train", "evaluate", "metrics"):
            return "this model has no loss"
        if function == "metrics":
            return "this model declares no metrics"
        if function == "input_grad":
            return "keeps no gradients of inputs"
        return ""

    def prepare(self) -> None:
        """A model with gradients, and a forward() whose backward() is still to come."""
        if not self.frozen:
            self.module.load_state_dict(self.state)
            self.module.zero_grad()
            for _ in range(2):
                self.module.forward(self.label, self.image)
                self.module.backward()
            self.module.update(learning_rate=0.01)
            self.module.forward(self.label, self.image)

    def bits(self) -> list[list[int]]:
        if self.frozen:
            return [bits(values) for values in self.module.outputs(self.image).values()]
        count = self.module.info()["parameters"]
        return [bits([of(i) for i in range(count)]) for of in (self.module.data, self.module.grad)]

    def rest(self) -> list[list[int]]:
        """After the rest of the step."""
        if not self.frozen:
            self.module.backward()
            self.module.update(learning_rate=0.01)
        return self.bits()

    def prepared(self, function: str, arguments: dict[str, Any]) -> Callable[[], Any]:
        """A call with positional-only parameters by position and all others by keyword."""
        parameters = inspect.signature(self.functions[function]).parameters
        by_position = [arguments[p] for p in arguments if parameters[p].kind is inspect.Parameter.POSITIONAL_ONLY]
        by_keyword = {p: x for p, x in arguments.items() if parameters[p].kind is not inspect.Parameter.POSITIONAL_ONLY}
        return functools.partial(self.functions[function], *by_position, **by_keyword)


def without_inputs() -> Program:
    p = [Value(2.0), Value(-3.0)]
    return Program(inputs=Pixels([]), targets=None, parameters={"p": p}, loss=p[0] * p[1], outputs={"out": p})


def frozen() -> Program:
    program = models.mlp()
    return frozen_program(program, weights_of(program))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "labels": models.mlp,
    "floats": models.mlp_of_floats,
    "float32": lambda: models.mlp_of_floats(dtype="float32"),
    "no targets": models.shared_weights,
    "no inputs": without_inputs,
    "scalars": models.edges,
    "frozen": frozen,
    "nn": lambda: models.mlp((784, 1, 10)),  # what it declares to the outside
    "nn_infer": lambda: replace(models.mlp((784, 1, 10)), loss=None, targets=None, initial=None, prediction="logits"),
}
INSTALLED = {"nn": nn, "nn_infer": nn_infer}
IN_C = ["nn", "nn_infer", "floats", "float32", "no targets", "no inputs"]
IN_PYTHON = ["labels", "floats", "no targets", "no inputs", "scalars", "frozen"]
SUBJECTS = [*IN_C, *(f"{name}, in Python" for name in IN_PYTHON)]


@pytest.fixture(scope="module")
def subject(tmp_path_factory) -> Callable[[str], Subject]:
    made: dict[str, Subject] = {}

    def get(name: str) -> Subject:
        if name not in made:
            folder = tmp_path_factory.mktemp("bad")
            kind, _, python = name.partition(", ")
            program = PROGRAMS[kind]()
            if kind in INSTALLED:
                module = INSTALLED[kind]
            elif python:
                module = Generated(program, folder).module
            else:
                module = Extension(program, folder, "loops", flags=["-O0"]).module
            made[name] = Subject(name, module, program)
        made[name].prepare()
        return made[name]

    return get


FUNCTIONS = ["accumulate", "backward", "data", "evaluate", "flat_data", "flat_grad", "forward", "grad", "grad_dict"]
FUNCTIONS += ["info", "input_grad"]
FUNCTIONS += ["load_optimizer_state", "load_state_dict", "load_weights", "metrics", "optimizer_state", "outputs"]
FUNCTIONS += ["outputs_batch", "predict", "predict_batch"]
FUNCTIONS += ["probabilities", "probabilities_batch", "reset", "save_weights", "state_dict", "train", "update"]
FUNCTIONS += ["zero_grad"]


def test_the_matrix_has_every_function_and_every_parameter(subject):
    for name in SUBJECTS:
        one = subject(name)
        good = one.good()
        assert set(one.functions) <= set(good) == set(FUNCTIONS), name
        for function in one.functions:
            assert list(good[function]) == list(inspect.signature(one.functions[function]).parameters), (name, function)


def wrong_calls(one: Subject, function: str) -> Iterator[tuple[Callable[[], object], str]]:
    """Too few arguments, too many, in the wrong way, and what the TypeError must name."""
    call, good = one.functions[function], one.good()[function]
    parameters = inspect.signature(call).parameters.values()
    by_position = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    required = [p for p in by_position if p.default is inspect.Parameter.empty]
    values = [good[p.name] for p in by_position]
    for count in range(len(required)):
        yield lambda n=count: call(*values[:n]), rf"{function}\(\)"
    for extra in (1, 2, 7):
        yield lambda n=extra: call(*values, *[None] * n), rf"{function}\(\) takes"
    for word in ("nonsense", "", "größe", "Images", "label ", "\ud800"):
        yield lambda w=word: call(*values, **{w: 1}), rf"{function}\(\) (takes no|got an unexpected) keyword argument"
    for p in parameters:
        if p.kind is inspect.Parameter.POSITIONAL_ONLY:
            yield lambda n=p.name: call(**{n: good[n]}), rf"{function}\(\)"
        elif p in by_position:
            yield (
                lambda n=p.name: call(*values, **{n: good[n]}),
                rf"{function}\(\) got (two|multiple) values for (the )?argument '{p.name}'",
            )


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "name",
    slow_but(
        ["nn", "nn_infer", "float32", "labels, in Python"],
        SUBJECTS,
        nightly={*SUBJECTS} - {"floats", "frozen, in Python"},
    ),
)
def test_what_is_refused_leaves_the_model_as_it_was(name, function, subject, record_property):
    one = subject(name)
    if function not in one.functions:
        assert one.frozen
        return
    before = one.bits()
    expected_rest = one.rest()
    one.prepare()
    assert one.bits() == before
    small = name != "nn"
    unavailable, tried = one.unavailable(function), 0

    def expect(call: Callable[[], object], error: type[Exception], message: str) -> None:
        nonlocal tried
        with pytest.raises((error, RuntimeError) if unavailable else error) as caught:
            call()
        said = str(caught.value)
        if unavailable and caught.type is RuntimeError:
            assert unavailable in said
        else:
            assert caught.type is error, said
            assert re.search(message, said), said
        assert caught.value.__cause__ is None
        if small:
            assert one.bits() == before, said
        tried += 1

    for call, message in wrong_calls(one, function):
        expect(call, TypeError, message)
    good = one.good()[function]
    for parameter in good:
        for each in one.refused(function, parameter):
            arguments = good | {parameter: each.make()}
            expect(one.prepared(function, arguments), each.error, each.message)

    record_property("inputs", tried)
    assert tried >= (30 if good else 9)
    assert one.bits() == before
    assert one.rest() == expected_rest
    if unavailable:
        with pytest.raises(RuntimeError, match=unavailable):
            one.prepared(function, good)()
    else:
        one.prepared(function, good)()


def test_how_many_inputs_are_tried(subject):
    tried = 0
    for name in SUBJECTS:
        one = subject(name)
        for function in one.functions:
            tried += sum(1 for _ in wrong_calls(one, function))
            tried += sum(1 for parameter in one.good()[function] for _ in one.refused(function, parameter))
    assert tried > 14000, tried


def test_neither_calls_nor_errors_leak(subject):
    one, good = subject("nn"), subject("nn").good()
    calls = [one.prepared(function, good[function]) for function in one.functions]
    calls += [lambda: nn.load_state_dict(nn.state_dict()), nn.reset, lambda: nn.forward(3, memoryview(one.image))]
    for function in one.functions:
        calls += [call for call, _ in wrong_calls(one, function)]
        for parameter in good[function]:
            for each in one.refused(function, parameter):
                calls.append(one.prepared(function, good[function] | {parameter: each.make()}))
    times = 5

    def grows(call: Callable[[], object]) -> bool:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(times):
            with suppress(TypeError, ValueError, ZeroDivisionError, RuntimeError, OSError):
                call()
        gc.collect()
        return sys.getallocatedblocks() - before >= times

    references = sys.getrefcount(one.image)
    gc.freeze()  # what there is now need not be looked at each time
    try:
        # A leak shows in every round; caches of the interpreter that grow now and then do not.
        assert not [call for call in calls if all(grows(call) for _ in range(10))]
    finally:
        gc.unfreeze()
    assert sys.getrefcount(one.image) < references + times


def test_backward_needs_a_forward(subject):
    for name in SUBJECTS:
        one = subject(name)
        if not one.frozen:
            one.module.reset()
            with pytest.raises(RuntimeError, match=r"backward\(\) needs a forward\(\) before it"):
                one.module.backward()
