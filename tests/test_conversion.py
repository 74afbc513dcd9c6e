"""Inputs as people have them: whatever holds the same numbers gives the same results, whatever its type or layout.

Bad input is in test_bad_input.py. What this kind of test is for: a conversion that reads the wrong element, or rounds.
"""

from __future__ import annotations

import ctypes
import importlib.util
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from harness import Extension, slow_but

import codegen
from codegen import Floats, Label, Program
from micrograd.engine import Value

ROWS = np.arange(30).reshape(10, 3)
FORMATS = ["?", *"bBhHiIlLqQefd", ">i2", ">u4", ">i8", ">f2", ">f4", ">f8", "<f8", "<i4"]


def model(labelled: bool, dtype: str) -> Program:
    x, t = [Value(0.0) for _ in range(3)], [Value(0.0) for _ in range(2)]
    w = [[Value(0.01 * (i + 1) * (j - 1)) for j in range(3)] for i in range(2)]
    out = [(row[0] * x[0] + row[1] * x[1] + row[2] * x[2]).tanh() for row in w]
    loss = (out[0] - t[0]) ** 2 + (out[1] - t[1]) ** 2
    return Program(Floats(x), Label(t) if labelled else Floats(t), {"w": w}, loss, {"out": out}, dtype=dtype)


def python_module(program: Program, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("net", codegen.build(program, folder, "net", target="python"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["float64", "float32", "python"])
def modules(request, tmp_path_factory) -> dict[bool, Any]:
    """One that takes floats as targets, and one that takes labels."""

    def build(labelled: bool) -> Any:
        folder = tmp_path_factory.mktemp("net")
        if request.param == "python":
            return python_module(model(labelled, "float64"), folder)
        return Extension(model(labelled, request.param), folder, "loops", flags=["-O0"]).module

    return {labelled: build(labelled) for labelled in (False, True)}


class Lends:
    """An array of another library."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return self.rows


def strided(rows: np.ndarray) -> np.ndarray:
    wide = np.zeros((2 * rows.shape[0], 2 * rows.shape[1] + 1), rows.dtype)
    wide[::2, 1::2] = rows
    return wide[::2, 1::2]


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "C": lambda rows: rows,
    "Fortran": np.asfortranarray,
    "strided": strided,
    "reversed": lambda rows: np.ascontiguousarray(rows[::-1, ::-1])[::-1, ::-1],
    "flat": np.ravel,
    "three dimensions": lambda rows: rows.reshape(len(rows), 1, -1),
    "lent": Lends,
    "lists": np.ndarray.tolist,
    "tuples": lambda rows: tuple(map(tuple, rows.tolist())),
    "a list of arrays": lambda rows: [*rows],
    "a list of numpy's numbers": lambda rows: [*rows.ravel()],
    "memoryview": lambda rows: memoryview(np.ascontiguousarray(rows)),
    "misaligned": lambda rows: np.frombuffer(b"\0" + rows.tobytes(), rows.dtype, offset=1).reshape(rows.shape),
}


CTYPES = [ctypes.c_float, ctypes.c_double, ctypes.c_int, ctypes.c_double.__ctype_be__]


@pytest.mark.parametrize("kind", slow_but(CTYPES[1:2], CTYPES))
def test_arrays_of_ctypes(kind, modules):
    """They say nothing of strides, although they are asked."""
    numbers = [float(number) for number in ROWS.ravel()]
    expected = bytes(modules[False].outputs_batch(array("d", numbers))["out"])
    flat = (kind * 30)(*map(int, numbers))
    rows = ((kind * 3) * 10)(*[(kind * 3)(*row) for row in ROWS.tolist()])
    assert bytes(modules[False].outputs_batch(flat)["out"]) == expected
    assert bytes(modules[False].outputs_batch(rows)["out"]) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_numbers_give_the_same_bits(layout, modules):
    net, give = modules[False], LAYOUTS[layout]
    real = net.state_dict()["w"].format
    for form in FORMATS:
        rows = (ROWS % 2 if form == "?" else ROWS).astype(form)
        targets = rows[:, :2] / 32
        expected = net.evaluate(rows.astype(real), targets.astype(real))
        assert net.evaluate(give(rows), targets) == expected, form
        assert net.evaluate(rows, give(targets.astype("d"))) == expected, form
        one = give(rows[:1])
        assert net.outputs(one) == net.outputs(rows[0].astype(real)), form
        assert net.forward(give(targets[:1]), one) == net.forward(targets[0].astype(real), rows[0].astype(real)), form


@pytest.mark.parametrize("form", [form for form in FORMATS if form[-2:-1] != "f" and form not in "efd"])
def test_labels_of_any_integer_type(form, modules):
    net = modules[True]
    real = net.state_dict()["w"].format
    labels = np.arange(10) % 2
    expected = net.evaluate(ROWS.astype(real), bytes(labels.tolist()))
    for layout in ("C", "strided", "lists", "lent"):
        column = LAYOUTS[layout](labels[:, None].astype(form))
        assert net.evaluate(ROWS, column) == expected, layout
        losses = net.train(ROWS.astype(real), bytes(labels.tolist()), learning_rate=0.0)
        assert net.train(ROWS, column, learning_rate=0.0) == losses, layout


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_numbers_at_the_edges_of_their_types(modules):
    """Through the output w . x with x = (number, 0, 0): each number arrives as float() has it, rounded once."""
    net = modules[False]
    real = net.state_dict()["w"].format
    for form in "bBhHiIqQefd":
        kind = np.iinfo(form) if form not in "efd" else np.finfo(form)
        edges = [kind.min, kind.max, 0, 1]
        if form in "efd":
            edges += [kind.tiny, kind.smallest_subnormal, kind.eps, -0.0, np.inf, -np.inf, np.nan]
        for number in np.array(edges, form):
            row = np.array([number, 0, 0], form)
            assert repr(net.outputs(row)) == repr(net.outputs(row.astype("d").astype(real))), (form, number)


def test_a_bare_number_is_one_target_and_one_input(tmp_path):
    x, t, w = Value(0.0), Value(0.0), Value(2.0)
    net = Extension(
        Program(Floats([x]), Floats([t]), {"w": w}, (w * x - t) ** 2), tmp_path, "loops", flags=["-O0"]
    ).module
    assert net.forward(1.5, 3) == net.forward(array("d", [1.5]), array("d", [3.0])) == 20.25
    assert net.train([1, 2, 3], [2, 4, 6]) == [0.0]


class Claims:
    """Says that it has more numbers than there is memory for."""

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, i: int) -> float:
        return 0.0


def test_a_length_that_is_wrong_is_refused_before_there_is_memory_for_it(modules):
    net = modules[False]
    with pytest.raises(ValueError, match=r"must hold 2 float\d\d, got 1099511627776$"):
        net.forward(Claims(), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"must hold 3 float\d\d, got 1099511627776$"):
        net.outputs(Claims())


def test_text_is_no_number(modules):
    """Its buffer says `u`, which elsewhere is short for unsigned."""
    for text in ((ctypes.c_wchar * 3)(*"abc"), np.array(["a", "b", "c"])):
        with pytest.raises(TypeError):
            modules[False].outputs(text)
        with pytest.raises(TypeError):
            modules[True].train(ROWS[:3], text)


def test_more_bytes_than_memory_can_have(tmp_path):
    """2**60 rows of one byte each, all the same one: as float64, their size overflows."""
    net = Extension(model(False, "float64"), tmp_path, "loops", flags=["-O0"]).module
    for rows in (2**60, 2**62 // 3 + 1):
        with pytest.raises(MemoryError):
            net.outputs_batch(np.broadcast_to(np.uint8(7), (rows, 3)))


def test_arrays_of_more_dimensions_than_numpy_has(tmp_path):
    net = Extension(model(False, "float64"), tmp_path, "loops", flags=["-O0"]).module
    deep = ctypes.c_double * 3
    for _ in range(3000):
        deep = deep * 1
    with pytest.raises(ValueError, match=r"^w must have the shape \(2, 3\)"):
        net.load_state_dict({"w": deep()})
    empty = ctypes.c_double * 0
    for _ in range(3):
        empty = empty * 2**40
    with pytest.raises(ValueError, match="rows must have 3 numbers in each row"):
        net.outputs_batch(empty())
