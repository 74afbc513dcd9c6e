"""Mistakes in a Program that compiles all the same: each is named, and what is meant is not."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import models
import pytest

import codegen
from codegen import Floats, Label, ModelWarning, Program
from codegen.mnist import program as mnist_program
from codegen.passes.freeze import frozen_program
from codegen.pipeline import traced
from micrograd import ops
from micrograd.engine import Value

ROOT = Path(__file__).resolve().parent.parent


class Leaves:
    def __init__(self) -> None:
        self.w = [[Value(0.1), Value(0.2), Value(0.3)], [Value(0.4), Value(0.5), Value(0.6)]]
        self.b, self.x, self.y, self.k = Value(0.5), [Value(0), Value(0), Value(0)], Value(0), Value(3.0, label="k")
        self.out = models.total([w * x for row in self.w for w, x in zip(row, self.x, strict=True)]) + self.b

    def program(self, **changes: object) -> Program:
        declared = {"inputs": Floats(self.x), "targets": Floats([self.y]), "parameters": {"w": self.w, "b": self.b}}
        return Program(**declared | {"loss": (self.out - self.y) ** 2} | changes)


def warned(program: Program) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        traced(program)
    assert all(warning.category is ModelWarning for warning in found)
    return [str(warning.message) for warning in found]


def test_a_good_program_has_no_warnings():
    leaves = Leaves()
    assert warned(leaves.program(loss=(2 * leaves.out - 1 + leaves.y / 3) ** 2)) == []
    assert warned(mnist_program()) == []


@pytest.mark.parametrize(
    "use",
    [
        lambda x: 2 * x + 1.0 - 3 / x,
        lambda x: 2 - x,
        lambda x: 2**x + x**3 + x**-0.5,
        lambda x: x.max(0.0, 1).min(7),
        lambda x: x.leaky_relu() + x.gelu("tanh"),
        lambda x: ops.apply("max", x, 1.5),
        lambda x: x.apply("min", 0.5),
        lambda x: sum([x, x]),
    ],
)
def test_numbers_in_an_expression_are_meant(use):
    leaves = Leaves()
    loss = use(leaves.out) + leaves.y
    assert warned(leaves.program(loss=loss)) == []
    assert "2 leaves" in warned(leaves.program(loss=loss + Value(2.0) + Value(3.0)))[0]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_numbers_in_a_copied_expression_are_meant_too(again):
    w, x = Value(0.5), Value(0.0)
    w, x, loss = again((w, x, 2 * w * x))
    assert warned(Program(Floats([x]), None, {"w": w}, loss)) == []


def test_leaves_that_nobody_declared():
    leaves = Leaves()
    assert warned(leaves.program(parameters={"w": leaves.w})) == [
        "1 leaf is declared nowhere and becomes a constant: Value(data=0.5, grad=0). "
        "Declare them as parameters, inputs or targets, or in constants=[...] if that is what they are"
    ]
    loss = leaves.program().loss * leaves.k
    assert "Value(data=3, grad=0) labelled 'k'" in warned(leaves.program(loss=loss))[0]
    for constants in ([leaves.k], leaves.k, [[leaves.k], [[leaves.k]]], (leaves.k,)):
        assert warned(leaves.program(loss=loss, constants=constants)) == []
    many = models.total([Value(float(i), _op="weight") for i in range(6)])
    (message,) = warned(leaves.program(loss=loss * many, constants=[leaves.k]))
    assert message.startswith(
        "6 leaves are declared nowhere and become constants: Value(data=0, grad=0) labelled 'weight'"
    )
    assert "Value(data=2, grad=0) labelled 'weight' and 3 more. " in message


@pytest.mark.nightly
def test_where_a_leaf_was_made_if_python_knows(tmp_path):
    file = tmp_path / "forgets.py"
    file.write_text(
        "from codegen import Floats, Program\nfrom micrograd.engine import Value\n"
        "def program():\n    w, x = Value(1.0), Value(0)\n    b = Value(0.25)\n"
        "    return Program(Floats([x]), None, {'w': w}, w * x + b)\n"
    )
    script = f"import codegen; codegen.compile_program(codegen.load({str(file)!r}))"
    for options, expected in ([], False), (["-X", "tracemalloc=5"], sys.version_info >= (3, 12)):
        command = [sys.executable, *options, "-c", script]
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        assert "1 leaf is declared nowhere" in run.stderr
        assert (f"made in {file}, line 5" in run.stderr) is expected


def test_parameters_that_the_loss_does_not_depend_on():
    leaves = Leaves()
    out = leaves.w[0][0] * leaves.x[0] + leaves.w[1][2] * leaves.x[1] + leaves.x[2]
    (message,) = warned(leaves.program(loss=(out - leaves.y) ** 2, outputs={"out": [out * leaves.w[0][1]]}))
    assert message == (
        "the loss does not depend on 5 parameters, which training never changes: w[0, 1], w[0, 2], w[1, 0] and 2 more"
    )
    (message,) = warned(
        leaves.program(
            loss=(leaves.out - leaves.b - leaves.y) ** 2, parameters={"w": leaves.w, "b": [leaves.b], "k": leaves.k}
        )
    )
    assert message == "the loss does not depend on 1 parameter, which training never changes: k"


def test_inputs_that_nothing_reads():
    leaves = Leaves()
    extra = [Value(0) for _ in range(2)]
    assert warned(leaves.program(inputs=Floats([extra[0], *leaves.x, extra[1]]))) == [
        "nothing reads 2 of 5 inputs: inputs[0], inputs[4]"
    ]
    for count, places in ((3, "inputs[3], inputs[4], inputs[5]"), (4, "inputs[3], inputs[4], inputs[5] and 1 more")):
        more = [Value(0) for _ in range(count)]
        found = warned(leaves.program(inputs=Floats([*leaves.x, *more])))
        assert found == [f"nothing reads {count} of {3 + count} inputs: {places}"]


def test_a_loss_without_inputs():
    leaves = Leaves()
    loss = models.total([w for row in leaves.w for w in row]) * leaves.b - leaves.y
    assert warned(leaves.program(loss=loss, outputs={"out": [leaves.out]})) == [
        "the loss does not depend on any input, only the outputs do"
    ]
    assert warned(leaves.program(loss=loss, inputs=Floats([]))) == []  # as a physics loss on fixed points


def test_a_frozen_program_has_no_warnings():
    leaves = Leaves()
    program = leaves.program(outputs={"out": [leaves.out]})
    assert warned(frozen_program(program, {"w": [[1, 2, 3], [4, 5, 6]], "b": 7})) == []


@pytest.mark.parametrize("make", [codegen.compile_program, codegen.compile])
def test_the_warning_is_at_the_line_that_compiles(make, tmp_path, unoptimized, monkeypatch):
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    leaves = Leaves()
    with pytest.warns(ModelWarning) as found:
        make(leaves.program(parameters={"w": leaves.w}))
    assert [warning.filename for warning in found] == [__file__]


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        (lambda v: {"parameters": {"w": v.w, "b": v.w[1][2]}}, "the parameter w[1, 2] and as the parameter b"),
        (lambda v: {"parameters": {"w": v.w, "b": [v.b, v.b]}}, "the parameter b[0] and as the parameter b[1]"),
        (lambda v: {"inputs": Floats([v.x[0], v.b])}, "the parameter b and as inputs[1]"),
        (lambda v: {"inputs": Floats([v.x[0], v.x[1], v.x[0]])}, "inputs[0] and as inputs[2]"),
        (lambda v: {"targets": Label([v.y, v.x[2]])}, "inputs[2] and as targets[1]"),
        (lambda v: {"constants": [v.k, v.b]}, "the parameter b and as one of `constants`"),
    ],
)
def test_a_value_that_is_declared_twice_is_an_error_that_names_both(changes, places):
    leaves = Leaves()
    with pytest.raises(ValueError, match="one Value is declared twice, as ") as error:
        leaves.program(**changes(leaves))
    assert f"declared twice, as {places}: " in str(error.value)


@pytest.mark.parametrize("constants", [3.0, [None], "k", [Value(1.0) * 2]])
def test_constants_are_leaves(constants):
    with pytest.raises((TypeError, ValueError), match="constants"):
        Leaves().program(constants=constants)
