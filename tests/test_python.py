"""Generated Python modules that differ from the C modules: in API, errors, dependencies, or under PyPy."""

from __future__ import annotations

import inspect
import json
import random
import shutil
import subprocess
import sys
from array import array

import models
import nn
import numpy as np
import pytest
from harness import Generated, bits, example, many, nightly_but
from test_module import IMAGE, IMAGES, LABELS, OTHER, SIGNATURES
from test_ops import GRID, PAIRS

import codegen
from codegen import Floats, Pixels, Program, build, compile_program
from codegen.backends.python.module import STRAIGHT_LINE_NODES
from codegen.mnist import program
from micrograd import ops
from micrograd.arrays import data
from micrograd.engine import Value


@pytest.fixture(scope="module")
def mnist(tmp_path_factory) -> Generated:
    return Generated(program(), tmp_path_factory.mktemp("generated"))


def state(module) -> tuple:
    return tuple(module._data), tuple(module._grad), tuple(module._value), tuple(module._active), set(module._dirty)


def prepare(module) -> None:
    """A model with gradients, and a forward() whose backward() is still to come."""
    module.reset(1)
    module.forward(3, IMAGE)
    module.backward()
    module.forward(4, OTHER)


# The same functions as nn


def test_a_module_offers_the_functions_of_nn(mnist):
    offered = {name: getattr(mnist.module, name) for name in mnist.module.__all__}
    assert set(offered) == set(SIGNATURES)
    for name, function in offered.items():
        signature = inspect.signature(function)
        plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
        found = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
        assert str(found) == SIGNATURES[name], name
        assert len(function.__doc__) > 20


def test_it_computes_what_nn_computes(mnist, digits):
    images, labels = digits(7)
    module = mnist.module
    for each in (nn, module):
        each.reset(3)
    assert module.train(images, labels, batch_size=3, learning_rate=0.1, epochs=2, seed=5) == nn.train(
        images, labels, batch_size=3, learning_rate=0.1, epochs=2, seed=5
    )
    assert module.evaluate(images, labels) == nn.evaluate(images, labels)
    assert module.predict_batch(images) == nn.predict_batch(images)
    assert module.probabilities(IMAGE) == nn.probabilities(IMAGE)
    assert module.predict(IMAGE) == nn.predict(IMAGE)
    assert module.outputs(IMAGE) == nn.outputs(IMAGE)
    for ours, theirs in ((module.state_dict(), nn.state_dict()), (module.grad_dict(), nn.grad_dict())):
        assert [*ours] == [*theirs]
        assert all((np.asarray(ours[name]) == np.asarray(theirs[name])).all() for name in ours)


@pytest.mark.parametrize("name", nightly_but(["recurrence"], ["xor", "shared_weights", "edges", "recurrence"]))
@pytest.mark.parametrize("lowering", ["loops", "straightline"])
def test_models_of_other_kinds_train_as_their_c_modules(name, lowering, compiled, tmp_path):
    extension = compiled(name)
    program = models.REGULAR[name]()  # another test may have moved the Values of the extension's
    module = Generated(program, tmp_path, lowering).module
    data = many(extension.program, 9)
    assert module.info()["lowering"] == lowering
    ours, theirs = (each.train(*data, batch_size=4, epochs=2) for each in (module, extension.module))
    assert bits(ours) == bits(theirs)
    assert [bits([loss]) for loss in module.evaluate(*data)[:1]] == [bits([extension.module.evaluate(*data)[0]])]
    count = len(extension.program.parameter_values)
    for element in ("data", "grad"):
        assert bits([*map(getattr(module, element), range(count))]) == bits(
            [*map(getattr(extension.module, element), range(count))]
        )


def test_weights_go_from_one_to_the_other_and_back(mnist):
    nn.reset(8)
    weights = [nn.data(i) for i in range(0, 39760, 7)]
    mnist.module.load_state_dict(nn.state_dict())
    assert [mnist.module.data(i) for i in range(0, 39760, 7)] == weights
    nn.reset(9)
    nn.load_state_dict(mnist.module.state_dict())
    assert [nn.data(i) for i in range(0, 39760, 7)] == weights
    view = mnist.module.state_dict()["layers.0.weight"]
    view[0, 0] = 3.0
    assert mnist.module.data(0) == weights[0]  # a copy


def test_a_program_without_parameters(tmp_path):
    """Addresses of its values stand outside of inner loops, and no tensor gives them a name."""
    x = models.values(9)
    products = [[(a * b).tanh() for b in x[5:]] for a in x[:5]]
    program = Program(Floats(x), None, {}, models.total([v for row in products for v in row]), {"products": products})
    inputs = [0.1 * i - 0.4 for i in range(9)]
    generated = Generated(program, tmp_path, "loops")
    found = generated.forward(None, inputs)
    for value, number in zip(x, inputs, strict=True):
        value.data = number
    assert found == sum([(a * b).tanh() for a in x[:5] for b in x[5:]], Value(0.0)).data


def test_a_parameter_of_no_dimensions_has_a_state_too(tmp_path):
    module = Generated(models.edges(), tmp_path).module
    view = module.state_dict()["a"]
    assert (view.shape, view.tolist()) == ((), 0.5)
    module.load_state_dict(module.state_dict() | {"a": np.array(0.75)})
    assert module.data(0) == 0.75


def test_progress_is_reported(mnist):
    for call, length in ((mnist.module.train, 3), (mnist.module.evaluate, 3)):
        seen = []
        call(IMAGES, LABELS, progress=lambda *told, seen=seen: seen.append(told))
        assert seen[-1][:2] == (length, 3)
        assert seen[-1][2] > 0
    seen = []
    mnist.module.predict_batch(IMAGES, progress=lambda *told: seen.append(told))
    assert seen == [(3, 3, None)]


def test_info(mnist, tmp_path):
    info = mnist.module.info()
    theirs = nn.info()
    assert info.pop("compiler").startswith("CPython 3.")
    assert info.pop("simd") == "none"
    assert info == {key: theirs[key] for key in info}
    assert set(theirs) - set(info) == {"compiler", "simd"}
    assert Generated(models.xor(), tmp_path).module.info()["lowering"] == "straightline"


def test_an_expression_for_each_root_has_no_limit(tmp_path):
    """A sum of a thousand terms, in pieces: the compiler walks expressions recursively, and so does Python's."""
    x, w = models.values(1000), models.weights(random.Random(1), 1000)
    program = Program(Floats(x), None, {"w": w}, models.dot(w, x).tanh())
    inputs = [random.Random(2).uniform(-1, 1) for _ in x]
    systems = [Generated(program, tmp_path, name).module for name in ("loops", "straightline")]
    assert len({module.forward(None, inputs).hex() for module in systems}) == 1


def test_inference_between_forward_and_backward_disturbs_nothing(mnist):
    module = mnist.module
    prepare(module)
    before = state(module)
    module.predict(IMAGE)
    module.outputs(IMAGE)
    module.predict_batch(IMAGES)
    module.evaluate(IMAGES, LABELS)
    module.state_dict()
    assert state(module) == before


# Errors: tests/test_bad_input.py has most of them


@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"fma": True}, {"reorder": True}])
def test_a_fast_mode_is_refused(options, tmp_path):
    with pytest.raises(ValueError, match="strict float64 and has no other mode"):
        build(models.mlp(**options), tmp_path, target="python")
    assert not any(tmp_path.iterdir())


def test_narrow_weights_are_refused_by_their_name(tmp_path):
    narrow = models.mlp()
    weights = {name: data(np.array(tensor)) for name, tensor in narrow.parameters.items()}
    with pytest.raises(ValueError, match="but this Program has storage='int8', dtype='float32'"):
        codegen.freeze(narrow, weights, tmp_path, target="python", storage="int8")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["for", "a-b", "", "3d"])
def test_a_name_that_cannot_be_imported_is_refused(name):
    with pytest.raises(ValueError, match="must be an ASCII identifier"):
        compile_program(models.xor(), name, target="python")


# Rows of zero inputs


def test_only_rows_of_active_inputs_are_dirty(mnist):
    module = mnist.module
    module.reset(1)
    module.forward(3, IMAGE)
    module.backward()
    assert module._dirty == {i for i, byte in enumerate(IMAGE) if byte}
    module.zero_grad()
    assert not module._dirty
    assert not any(module._grad)


# The text


@pytest.mark.slow
def test_the_text_is_the_same_each_time_and_the_file_rewritten_only_when_it_changes(tmp_path):
    path = build(models.gather(), tmp_path, "gather", target="python")
    assert path == tmp_path.resolve() / "gather.py"
    assert path.read_text() == compile_program(models.gather(), "gather", target="python").text
    before = path.stat().st_mtime_ns
    build(models.gather(), tmp_path, "gather", target="python")
    assert path.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_small_graph_becomes_statements_and_a_large_one_loops(compiled_mnist):
    assert "value[:3]" in compile_program(models.xor(), target="python").text
    assert "LOWERING = 'straightline'" in compile_program(models.mlp(), target="python").text  # 919 nodes
    text = compiled_mnist("python").text
    assert "LOWERING = 'loops'" in text
    assert 919 < STRAIGHT_LINE_NODES < 240_000
    assert len(text.splitlines()) < 1500


def test_a_description_is_no_code(tmp_path):
    x, p = Value(0.0), Value(0.5)
    text = 'a "quoted" \\ thing\n""" and\tα'
    module = Generated(
        Program(
            inputs=codegen.Floats([x]),
            targets=None,
            parameters={'p"\\\n': p},
            loss=x * p,
            outputs={"o'\\": [x * p]},
            description=text,
        ),
        tmp_path,
    ).module
    assert module.info()["architecture"] == text
    assert module.outputs(array("d", [3.0])) == {"o'\\": (1.5,)}
    assert list(module.state_dict()) == ['p"\\\n']


# Other Pythons

SCRIPT = """
import functools, importlib, json, sys
from array import array

folder, tasks = sys.argv[1], json.load(open(sys.argv[2]))
sys.path.insert(0, folder)
numbers = lambda texts: [float.fromhex(text) for text in texts]
found = {}
for name, (pixels, examples) in tasks["models"].items():
    module, seen = importlib.import_module(name), []
    for target, inputs in examples:
        target = array("d", numbers(target)) if isinstance(target, list) else target
        inputs = bytes(inputs) if pixels else array("d", numbers(inputs))
        module.zero_grad()
        seen.append(module.forward(target, inputs))
        module.backward()
        module.update()
        seen += [x for values in module.outputs(inputs).values() for x in values]
        seen += module._data + module._grad
        module.load_state_dict(module.state_dict())
    found[name] = [x.hex() for x in seen]
module = importlib.import_module(tasks["library"])
pairs = [numbers(pair) for pair in tasks["pairs"]]
for name, arity in tasks["functions"]:
    function = functools.reduce(getattr, name.split("."), module)
    found[name] = [function(*pair[:arity]).hex() for pair in pairs]
print(json.dumps([sorted(set(sys.modules) & {"numpy", "micrograd", "codegen"}), found]))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """run(command...) -> what SCRIPT finds, over small models of several kinds, under another Python."""
    folder = tmp_path_factory.mktemp("elsewhere")
    texts = [row.python for row in ops.ROWS if not row.is_registered]  # without what other tests register
    functions = [(text.split("(")[0], text.count("{}")) for text in texts if "(" in text]
    tasks: dict = {"models": {}, "functions": functions, "pairs": [[x.hex() for x in pair] for pair in PAIRS]}
    chosen = {name: models.REGULAR[name]() for name in ("xor", "mlp", "convolution", "attention", "edges", "gather")}
    for name, made in (chosen | {"random": models.random_programs(11, 8)}).items():
        examples = [example(made, random.Random(i)) for i in range(25 if name in ("xor", "mlp") else 3)]
        is_pixels = isinstance(made.inputs, Pixels)
        tasks["models"][Generated(made, folder).name] = (
            is_pixels,
            [
                (
                    [float(y).hex() for y in target] if isinstance(target, list) else target,
                    inputs if is_pixels else [float(x).hex() for x in inputs],
                )
                for target, inputs in examples
            ],
        )
    x, y, z = Value(0.5), Value(0.25), Value(1.0)
    every = {row.name: [row(*(x, y)[: row.arity])] for row in ops.ROWS if not row.is_registered}
    tasks["library"] = Generated(
        Program(inputs=Floats([x, y]), targets=None, parameters={"p": [z]}, loss=z * x, outputs=every), folder
    ).name
    (folder / "tasks.json").write_text(json.dumps(tasks))
    (folder / "script.py").write_text(SCRIPT)

    def run(*command: str) -> list:
        arguments = [*command, str(folder / "script.py"), str(folder), str(folder / "tasks.json")]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_it_needs_the_standard_library_alone(elsewhere):
    imported, found = elsewhere(sys.executable, "-I", "-S")
    assert imported == []
    assert len(found["power"]) == len(PAIRS) > len(GRID) ** 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pypy3") is None, reason="needs pypy3")
def test_pypy_computes_the_same_bits(elsewhere):
    """In the sign of zero too, and where a loop is long enough to be compiled."""
    _, here = elsewhere(sys.executable, "-I", "-S")
    _, there = elsewhere("pypy3", "-I", "-S")
    assert here.keys() == there.keys()
    for name in here:
        wrong = [(a, b) for a, b in zip(here[name], there[name], strict=True) if a != b]
        assert not wrong, (name, len(wrong), wrong[:5])
