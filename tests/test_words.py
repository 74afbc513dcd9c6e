"""Help and messages that speak of images and labels to someone whose model has rows and targets."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from models import values

import codegen
from codegen import Floats, Label, Pixels, Program
from micrograd.engine import Value
from micrograd.functional import total


def program(inputs: Any, leaves: list[Value], label: bool) -> Program:
    goal, w = values(2), [[Value(0.1 * i - 0.2 * j) for j in range(len(leaves))] for i in range(2)]
    out = [total([a * x for a, x in zip(row, leaves, strict=True)]) for row in w]
    loss = (out[0] - goal[0]) ** 2 + (out[1] - goal[1]) ** 2
    return Program(inputs, (Label if label else Floats)(goal), {"w": w}, loss, {"out": out})


@pytest.fixture(scope="module")
def rows() -> Any:
    x = values(3)
    return codegen.compile(program(Floats(x), x, label=False), optimize=0)


@pytest.fixture(scope="module")
def images() -> Any:
    x = values(3)
    return codegen.compile(program(Pixels(x), x, label=True), optimize=0)


def words_of(model: Any) -> str:
    names = [name for name in dir(model) if not name.startswith("_")]
    texts = [inspect.getdoc(getattr(model, name)) or "" for name in names] + [type(model).__doc__ or ""]
    return "\n".join([*texts, *(str(inspect.signature(getattr(model, name))) for name in names)])


def test_help_has_the_words_of_the_program(rows, images):
    assert not re.search(r"\b(images?|labels?|pixels)\b", words_of(rows))
    assert not re.search(r"\b(n rows|rows done|one row)\b(?! of float)", words_of(images))
    assert str(inspect.signature(rows.evaluate)) == "(inputs, targets, *, threads=1, progress=None)"
    assert str(inspect.signature(images.evaluate)) == "(images, labels, *, threads=1, progress=None)"
    assert "over n rows" in rows.evaluate.__doc__
    assert "over n images" in images.evaluate.__doc__
    assert str(inspect.signature(rows.forward)) == "(targets, inputs, /)"
    assert str(inspect.signature(images.forward)) == "(label, pixels, /)"


def test_arguments_by_name(rows, images):
    """Those of the Program, and for programs that train any model, images and labels."""
    X, T = [[1.0, 2.0, 3.0]], [[0.5, 0.25]]
    expected = rows.evaluate(X, T)
    assert rows.evaluate(inputs=X, targets=T) == rows.evaluate(targets=T, images=X) == expected
    assert rows.evaluate(X, labels=T) == expected
    assert images.evaluate(images=bytes(3), labels=[1]) == images.evaluate(bytes(3), [1])
    for wrong, message in (
        ({"inputs": X, "images": X, "targets": T}, "evaluate() got two values for the argument 'inputs'"),
        ({"targets": T}, "evaluate() needs the argument 'inputs'"),
        ({"inputs": X}, "evaluate() needs the argument 'targets'"),
        ({"inputs": X, "targets": T, "pixels": X}, "evaluate() got an unexpected keyword argument 'pixels'"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            rows.evaluate(**wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'inputs'"):
        images.evaluate(inputs=bytes(3), labels=[1])


def test_messages_have_the_words_too(rows):
    with pytest.raises(ValueError, match=r"^1000000000 epochs of 10 rows are|^rows must have 3 numbers in each row"):
        rows.train([[1.0, 2.0]] * 10, [[0.5, 0.25]] * 10)
    with pytest.raises(ValueError, match=r"^rows must hold a multiple of 3 float64, and at least one row, got 4$"):
        rows.evaluate([1.0] * 4, [[0.5, 0.25]])
