"""Examples of two or more dimensions: data of another shape is refused, because it would be read as scrambled examples.

What this kind of test is for: a transposed array of the right size that trains without a word.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import values

import codegen
from codegen import Floats, Pixels, Program
from codegen.passes.freeze import frozen_program, weights_of
from micrograd.engine import Value
from micrograd.functional import total

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 1, 3, 2), dtype=np.uint8)
CURVES = np.random.default_rng(1).normal(size=(4, 2, 3))
GOALS = np.random.default_rng(2).normal(size=(4, 2, 2))


def shaped(shape: tuple[int, ...]) -> np.ndarray:
    return np.array(values(int(np.prod(shape)))).reshape(shape)


def program(named: bool = True) -> Program:
    image, curve, goal = shaped((1, 3, 2)), shaped((2, 3)), [values(2), values(2)]
    inputs: Any = {"image": Pixels(image, 1 / 255), "curve": Floats(curve.tolist())} if named else Pixels(image)
    leaves = [*image.ravel(), *curve.ravel()] if named else image.ravel()
    w = [[Value(0.1 * i - 0.05 * j) for j in range(len(leaves))] for i in range(4)]
    out = [total([a * x for a, x in zip(row, leaves, strict=True)]).tanh() for row in w]
    loss = total([(a - b) ** 2 for a, b in zip(out, [x for row in goal for x in row], strict=True)])
    return Program(inputs, {"goal": Floats(goal)} if named else Floats(goal), {"w": w}, loss, {"out": out})


def python_module(subject: Program, folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("shapes", codegen.build(subject, folder, "shapes", target="python"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["compiled", "python"])
def modules(request, tmp_path_factory) -> dict[bool, Any]:
    if request.param == "compiled":
        return {named: codegen.compile(program(named), optimize=0) for named in (True, False)}
    return {named: python_module(program(named), tmp_path_factory.mktemp("shapes")) for named in (True, False)}


def given(named: bool, image: Any = IMAGES, curve: Any = CURVES, goal: Any = GOALS) -> tuple[Any, Any]:
    return ({"image": image, "curve": curve}, {"goal": goal}) if named else (image, goal)


@pytest.mark.parametrize("named", [True, False])
def test_the_declared_shape_flat_rows_and_all_numbers_are_the_same(modules, named):
    expected = modules[named].evaluate(*given(named))
    for part, array in (("image", IMAGES), ("curve", CURVES), ("goal", GOALS)):
        for same in (array.reshape(4, -1), array.ravel(), *([array.tolist()] if part != "image" else [])):
            assert modules[named].evaluate(*given(named, **{part: same})) == expected
    one = modules[named].outputs(given(named, IMAGES[0], CURVES[0])[0])
    for image in (IMAGES[:1], IMAGES[0].ravel(), IMAGES[0].reshape(1, 6)):
        assert modules[named].outputs(given(named, image, CURVES[:1])[0]) == one


WRONG = [
    ("image", IMAGES.reshape(4, 3, 2), "(n, 1, 3, 2) or (n, 6), got the shape (4, 3, 2)"),
    ("image", IMAGES.transpose(0, 1, 3, 2).copy(), "(n, 1, 3, 2) or (n, 6), got the shape (4, 1, 2, 3)"),
    ("image", IMAGES.reshape(4, 3, 2, 1), "(n, 1, 3, 2) or (n, 6), got the shape (4, 3, 2, 1)"),
    ("image", IMAGES.reshape(6, 4), "(n, 1, 3, 2) or (n, 6), got the shape (6, 4)"),
    ("curve", CURVES.transpose(0, 2, 1), "(n, 2, 3) or (n, 6), got the shape (4, 3, 2)"),
    ("curve", CURVES.transpose(0, 2, 1).tolist(), "(n, 2, 3) or (n, 6), got the shape (4, 3, 2)"),
    ("curve", CURVES[:, None].astype("f"), "(n, 2, 3) or (n, 6), got the shape (4, 1, 2, 3)"),
    ("goal", GOALS.reshape(4, 4, 1), "(n, 2, 2) or (n, 4), got the shape (4, 4, 1)"),
]


@pytest.mark.parametrize(
    ("named", "part", "array", "message"),
    [(named, *wrong) for named in (True, False) for wrong in WRONG if named or wrong[0] != "curve"],
    ids=lambda x: str(np.shape(x)) if isinstance(x, np.ndarray | list) else str(x),
)
def test_other_shapes_are_refused_before_anything_changes(modules, named, part, array, message):
    name = (
        f"{'targets' if part == 'goal' else 'inputs'}[{part!r}]" if named else "targets" if part == "goal" else "images"
    )
    before = [modules[named].data(i) for i in range(8)]
    for call in (modules[named].train, modules[named].evaluate):
        with pytest.raises(ValueError, match="^" + re.escape(f"{name} must have the shape {message}") + "$"):
            call(*given(named, **{part: array}))
    assert [modules[named].data(i) for i in range(8)] == before


def test_one_example(modules):
    with pytest.raises(ValueError, match=re.escape("the shape (1, 3, 2) or (6,), got the shape (2, 3)")):
        modules[False].forward(GOALS[0], IMAGES[0, 0].T.copy())
    with pytest.raises(ValueError, match=re.escape("targets must have the shape (2, 2) or (4,), got the shape (4, 1)")):
        modules[False].forward(GOALS[0].reshape(4, 1), IMAGES[0])
    with pytest.raises(ValueError, match=re.escape("inputs['curve'] must have the shape (2, 3) or (6,), got")):
        modules[True].outputs({"image": IMAGES[0], "curve": CURVES[0].T})


def test_frozen_models_have_the_shape_too(tmp_path):
    subject = program(named=False)
    frozen = frozen_program(subject, weights_of(subject, [p.data for p in subject.parameter_values]))
    assert frozen.input_parts[0].shape == (1, 3, 2)
    assert "#define INPUT_SHAPE {3, {1, 3, 2}}" in codegen.compile_program(frozen).text


def test_uneven_and_flat_lists_have_no_shape():
    x, w = values(6), values(6)
    for nested in (x, np.array(x), [x[:2], x[2:]], [x[:5], x[5]]):
        subject = Program(Floats(nested), None, {"w": w}, total([a * b for a, b in zip(x, w, strict=True)]))
        assert subject.input_parts[0].shape == ()
        assert [*subject.input_values] == x
    with pytest.raises(ValueError, match=re.escape("inputs: the shape (2, 2) is not one of 6 Values")):
        Program(Floats(x, (2, 2)), None, {"w": w}, w[0] * x[0])
