"""Declarations that contradict themselves and are accepted."""

from __future__ import annotations

import math

import models
import pytest

from codegen import Floats, Label, Pixels, Program, compile_program, load
from codegen.pipeline import build_graph
from micrograd.engine import Value

INF, NAN = math.inf, math.nan


def declare(**changes: object) -> Program:
    """A good declaration with something changed."""
    w, b, x, t = Value(0.5), Value(0.1), Value(0.0), Value(0.0)
    named = {"w": w, "b": b, "x": x, "t": t, "sum": w + b, "stranger": Value(0.0)}
    out = w * x + b
    declaration = {
        "inputs": Floats([x]),
        "targets": Floats([t]),
        "parameters": {"w": [w], "b": [b]},
        "loss": (out - t) ** 2,
        "outputs": {"out": [out]},
    }
    changes = {key: change(named) if callable(change) else change for key, change in changes.items()}
    return Program(**declaration | changes)


def nested(value: Value, depth: int) -> object:
    return [nested(value, depth - 1)] if depth else value


def test_a_good_declaration_and_its_defaults():
    step = declare()
    assert step.prediction is None
    assert [p.data for p in step.parameter_values] == [0.5, 0.1]
    assert [(t.name, t.shape, t.numbers, t.initial) for t in step.tensors] == [
        ("w", (1,), (0,), None),
        ("b", (1,), (1,), None),
    ]
    assert declare(outputs={}).prediction is None
    assert list(declare(targets=None).target_values) == []


def test_tensors_know_their_shape_and_the_number_of_each_element():
    order = models.values(6)
    matrix = [[order[4], order[2], order[0]], [order[5], order[3], order[1]]]
    step = Program(Floats([]), None, {"w": matrix}, models.total(order), order=order, initial={"w": (-1.0, 1.0)})
    (tensor,) = step.tensors
    assert (tensor.shape, tensor.numbers, tensor.initial) == ((2, 3), (4, 2, 0, 5, 3, 1), (-1.0, 1.0))
    for depth in (0, 1, 8):
        single = Program(Floats([]), None, {"w": nested(order[0], depth)}, order[0] * 2.0)
        assert (single.tensors[0].shape, single.tensors[0].numbers) == ((1,) * depth, (0,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"inputs": lambda v: [v["x"]]},
            "inputs must be Pixels, Floats, Tokens or a mapping, not list",
        ),
        ({"inputs": lambda v: Label([v["x"]])}, "inputs must be Pixels, Floats, Tokens or a mapping, not Label"),
        ({"targets": lambda v: [v["t"]]}, "targets must be a Label, Floats, Tokens, a mapping or None, not list"),
        (
            {"targets": lambda v: Pixels([v["t"]])},
            "targets must be a Label, Floats, Tokens, .* not Pixels",
        ),
        ({"loss": 1.0}, "loss must be a Value or None, not float"),
        ({"loss": lambda v: [v["sum"]]}, "loss must be a Value or None, not list"),
        ({"outputs": lambda v: {"out": v["sum"]}}, "output 'out' must be a list of Values"),
        ({"seed": 1.5}, "seed must be an int, not float"),
        ({"outputs": {"out": []}}, "output 'out' must be a list of Values"),
        ({"outputs": {"out": [1.0]}}, "output 'out' must be a list of Values"),
        ({"inputs": Floats([1.0])}, "inputs: element 0 must be a Value, not float"),
        ({"targets": lambda v: Floats([v["t"], None])}, "targets: element 1 must be a Value, not NoneType"),
    ],
)
def test_wrong_types_are_refused(changes, message):
    with pytest.raises(TypeError, match=message):
        declare(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": NAN}, "learning rate must be finite, got nan"),
        ({"parameters": lambda v: {"__metadata__": v["w"], "b": v["b"]}}, "a parameter must not be named __metadata__"),
        ({"learning_rate": INF}, "learning rate must be finite, got inf"),
        ({"inputs": lambda v: Pixels([v["x"]], scale=INF)}, "scale of the pixels must be finite, got inf"),
        ({"targets": Label([])}, "1 to 256 classes, got 0"),
        ({"targets": Label(models.values(257))}, "1 to 256 classes, got 257"),
        ({"seed": -1}, "seed must be 0..*got -1"),
        ({"seed": 2**64}, "seed must be 0..*got 18446744073709551616"),
        ({"prediction": "class"}, "'class' is none of the outputs .'out'."),
        ({"parameters": {"w": "ab"}}, "'w' must be a Value or evenly nested lists"),
        ({"parameters": {"w": []}}, "'w' must be a Value or evenly nested lists"),
        ({"parameters": {"w": [[]]}}, "'w' must be a Value or evenly nested lists"),
        ({"parameters": {"w": [1.0]}}, "'w' must be a Value or evenly nested lists"),
        ({"parameters": lambda v: {"w": [v["w"], [v["b"]]]}}, "'w' must be a Value or evenly nested lists"),
        ({"parameters": lambda v: {"w": [[v["w"]], [v["b"], v["x"]]]}}, "'w' must be a Value or evenly nested lists"),
        ({"parameters": lambda v: {"w": nested(v["w"], 9)}}, "'w' has more than 8 dimensions"),
        ({"inputs": lambda v: Floats([v["x"], v["sum"]])}, r"inputs: element 1 is computed by '\+'"),
        ({"targets": lambda v: Floats([v["sum"]])}, r"targets: element 0 is computed by '\+'"),
        ({"parameters": lambda v: {"w": v["sum"]}}, r"parameters: element 0 is computed by '\+'"),
        ({"order": []}, "each parameter exactly once"),
        ({"order": lambda v: [v["w"]]}, "each parameter exactly once"),
        ({"order": lambda v: [v["w"], v["b"], v["w"]]}, "each parameter exactly once"),
        ({"order": lambda v: [v["w"], v["stranger"]]}, "each parameter exactly once"),
        ({"parameters": lambda v: {"w": v["w"], "b": v["w"]}}, "once|twice"),
        ({"parameters": lambda v: {"w": v["w"], "b": v["w"]}, "order": lambda v: [v["w"]]}, "declared twice"),
        ({"inputs": lambda v: Floats([v["x"], v["x"]])}, "declared twice"),
        ({"inputs": lambda v: Floats([v["w"]])}, "declared twice"),
        ({"targets": lambda v: Floats([v["x"]])}, "declared twice"),
        ({"initial": {"w": (0.0, 1.0)}}, r"names \['w'\], but the parameters are \['b', 'w'\]"),
        ({"initial": {"w": (0.0, 1.0), "b": (1.0, 0.0)}}, r"'b' must be finite and ordered, got \(1.0, 0.0\)"),
        ({"initial": {"w": (0.0, INF), "b": (0.0, 0.0)}}, "'w' must be finite and ordered"),
        ({"initial": {"w": (NAN, 1.0), "b": (0.0, 0.0)}}, "'w' must be finite and ordered"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        declare(**changes)


def test_a_field_that_is_misspelt_is_refused():
    with pytest.raises(AttributeError, match="'Program' object has no attribute 'updates'"):
        models.mlp().updates = None  # type: ignore[attr-defined]


def test_declared_numbers_may_be_integers():
    def text(*numbers: float) -> str:
        rate, scale, low, high = numbers
        random_weight, constant, x = Value(0.5), Value(0.0), Value(0.0)
        return compile_program(
            Program(
                inputs=Pixels([x], scale=scale),
                targets=None,
                parameters={"w": random_weight, "b": constant},
                loss=random_weight * x + constant,
                learning_rate=rate,
                initial={"w": (-high, high), "b": (low, low)},
            )
        ).text

    assert text(1, 10**7, 0, 2) == text(1.0, 1e7, 0.0, 2.0)


def test_an_output_cannot_depend_on_a_target():
    with pytest.raises(ValueError, match="'out' depends on a target"):
        build_graph(declare(outputs=lambda v: {"out": [v["w"] * v["t"]]}))


def test_a_program_is_loaded_from_a_file(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(
        "from codegen import Floats, Program\n"
        "from micrograd.engine import Value\n"
        "def program():\n"
        "    w, x = Value(2.0), Value(0.0)\n"
        "    return Program(Floats([x]), None, {'w': w}, w * x, description=__name__)\n"
    )
    assert load(path).description == "model"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("x = 1", ValueError, r"define a function program\(\)"),
        ("program = 3", ValueError, r"define a function program\(\)"),
        ("def program(): return 1", TypeError, "returned a int, not a codegen.Program"),
    ],
)
def test_a_file_without_a_program_is_refused(tmp_path, text, error, message):
    path = tmp_path / "model.py"
    path.write_text(text)
    with pytest.raises(error, match=message):
        load(path)


def test_wrong_kinds_are_named():
    from codegen import build, compile_program

    x = Value(0.0)
    with pytest.raises(TypeError, match="a name of a parameter or an output must be a string, not 5"):
        Program(Floats([x]), None, {}, x, {5: [x]})
    program = Program(Floats([x]), None, {}, x * x)
    with pytest.raises(TypeError, match=r"the program must be a codegen\.Program, not NoneType"):
        compile_program(None)
    with pytest.raises(TypeError, match="a module's name must be a string, not int"):
        compile_program(program, 5)
    with pytest.raises(TypeError, match="flags must be a list of strings, not '-O0'"):
        build(program, "nowhere", flags="-O0")
    with pytest.raises(ValueError, match="compiler and flags are for target='extension'"):
        build(program, "nowhere", target="python", compiler="gcc")


def test_a_threshold_makes_the_output_of_one_element_the_prediction():
    program = declare(outputs=lambda v: {"two": [v["sum"], v["w"] * 2.0], "one": [v["sum"]]}, threshold=0.5)
    assert program.prediction == "one"
    with pytest.raises(ValueError, match="a threshold is for a prediction of one element, but this one has 2 elements"):
        declare(outputs=lambda v: {"two": [v["sum"], v["w"] * 2.0]}, prediction="two", threshold=0.5)
    with pytest.raises(ValueError, match="but this one has none"):
        declare(outputs=lambda v: {"two": [v["sum"], v["w"] * 2.0]}, threshold=0.5)


def test_a_label_makes_the_first_output_the_prediction():
    """And one of several targets the first one of its length."""
    x, t, y = models.values(1), models.values(2), models.values(1)
    w = Value(0.5)
    outputs = {"hidden": [w * x[0]], "classes": [w * x[0] * 2.0, w + x[0]]}
    loss = outputs["classes"][0] * t[0] + outputs["classes"][1] * t[1]
    assert Program(Floats(x), Label(t), {"w": w}, loss, outputs).prediction == "hidden"
    several = {"class": Label(t), "y": Floats(y)}
    assert Program(Floats(x), several, {"w": w}, loss + y[0], outputs).prediction == "classes"


def test_a_model_without_a_loss_has_no_first_weights():
    x, w = Value(0.0), Value(0.5)
    with pytest.raises(ValueError, match="neither targets nor initial distributions"):
        Program(Floats([x]), None, {"w": w}, None, {"out": [w * x]}, initial={"w": (0.0, 1.0)})
