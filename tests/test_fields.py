"""Every field of a Program, and every argument of the functions that take one, with everything that it may not be.

The kind of test that was missing: the arguments of modules had a matrix of bad values (tests/bad_arguments.py), those
of the compiler only what somebody thought of. Values with methods of their own got into the generated C.
"""

from __future__ import annotations

import ast
import decimal
import enum
import fractions
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from bad_arguments import Index, NoInt, Raising
from hypothesis import given, settings
from hypothesis import strategies as st
from test_program import declare

from codegen import Floats, Label, Pixels, Program, build, compile_program, freeze, load
from codegen.checks import MAX_NAME, MAX_TEXT
from codegen.weights import read_weights
from micrograd import optim
from micrograd.engine import Value
from micrograd.initial import Normal
from micrograd.noise import Bernoulli, Noise

Case = tuple[Callable[[], Any], type[Exception], str]
NAN = float("nan")


class Whole(int):
    """An int whose every other method lies."""

    def __format__(self, spec: str) -> str:
        return '0); system("'

    __str__ = __repr__ = lambda self: "1\n#error"  # type: ignore[assignment]
    __index__ = __int__ = lambda self: 99  # type: ignore[assignment]
    __float__ = lambda self: 99.0  # noqa: E731


class Real(float):
    def __format__(self, spec: str) -> str:
        return "nan"

    __str__ = __repr__ = hex = lambda self: "1; }"  # type: ignore[assignment]
    __float__ = lambda self: 99.0  # noqa: E731


class Text(str):
    def __format__(self, spec: str) -> str:
        return "*/ #error"

    __str__ = __repr__ = lambda self: "*/ #error"  # type: ignore[assignment]
    encode = lambda self, *_: b"*/ #error"  # type: ignore[assignment]  # noqa: E731
    __hash__ = str.__hash__


class Seed(enum.IntEnum):
    FIRST = 7


def case(value: Any, error: type[Exception], message: str) -> Case:
    return (lambda: value), error, message


def wholes() -> Iterator[Case]:
    for wrong in (True, False, np.True_, 1.0, NAN, "1", b"1", None, [], [1], 1j, object(), np.float64(1), 1 + 0j):
        yield case(wrong, TypeError, f"must be an int, not {type(wrong).__name__}")
    for wrong in (fractions.Fraction(1), decimal.Decimal(1), np.array([1, 2]), NoInt(), iter([1])):
        yield case(wrong, TypeError, "must be an int, not")
    yield case(Raising(), ZeroDivisionError, "asked for an index")
    for far in (-1, -(2**63), 2**64, 10**40, np.int8(-1), Whole(-1), Index(2**64)):
        yield case(far, ValueError, r"must be 0\.\.2\*\*64-1, got -?\d+$")
    for far in (10**5000, -(10**5000)):
        yield case(far, ValueError, "got an int of very many digits")


def numbers() -> Iterator[Case]:
    for wrong in (True, np.True_, "1", b"1", None, [], [1.0], {}, 1j, object(), (0.1,), iter([1.0])):
        yield case(wrong, TypeError, "must be a number, not|must be finite and ordered: it must be a number")
    yield case(np.array([0.1, 0.2]), TypeError, "must be a number, not an array")
    yield case(np.array([0.1]), TypeError, "must be a number, not an array")
    yield case(Raising(), ZeroDivisionError, "asked for")
    for far in (NAN, math.inf, -math.inf, np.float32("nan"), Real("inf"), decimal.Decimal("nan"), np.float64("-inf")):
        yield case(far, ValueError, r"must be finite.* got -?(nan|inf)$")
    for far in (10**400, -(10**5000), Whole(10**400), fractions.Fraction(10**400)):
        yield case(far, ValueError, "got a number beyond the range of float64")


def texts(most: int, is_empty_good: bool) -> Iterator[Case]:
    for wrong in (None, 3, b"x", ["x"], ("x",), object(), True, np.array("x"), iter("x")):
        yield case(wrong, TypeError, "must be a string")
    for wrong, message in (
        ("a\0b", "must not.* NUL"),
        ("\0", "must not.* NUL"),
        (Text("\0"), "must not.* NUL"),
        ("\ud800", "lone surrogate"),
        ("x\udfff", "lone surrogate"),
        ("x" * (most + 1), f"at most {most} bytes, got {most + 1}"),
        ("ä" * (most // 2 + 1), f"at most {most} bytes"),
    ):
        yield case(wrong, ValueError, message)
    if not is_empty_good:
        yield case("", ValueError, "must not be empty")


def flags() -> Iterator[Case]:
    for wrong in (0, 1, None, "", "no", 1.0, np.True_, [], Raising()):
        yield case(wrong, TypeError, "must be True or False, not ")


def lists() -> Iterator[Case]:
    x = Value(0.0)
    for wrong in (None, 3, x, {x: 1}, {x}, (v for v in [x]), iter([x]), map(Value, [1]), object()):
        yield case(wrong, TypeError, "must be a list of Values")
    for wrong in ([1.0], [None], [x, 2.0], ["x"], "x", b"x", [[x, 1.0]], np.array([0.0])):
        yield case(wrong, TypeError, "must be a Value, not|must be a list of Values")


def mappings() -> Iterator[Case]:
    x = Value(0.0)
    for wrong in (None, 3, [x], [("w", x)], "w", {"w"}, iter({}), object()):
        yield case(wrong, TypeError, "must map names to Values, not be a ")
    for key in (None, 3, b"w", ("w",), True):
        yield case({key: [x]}, TypeError, "a name of a parameter or an output must be a string")
    for make, error, message in texts(MAX_NAME, is_empty_good=False):
        if isinstance(key := make(), str):
            yield case({key: [x]}, error, message)


def choices(what: str = "dtypes") -> Iterator[Case]:
    for wrong in (None, 3, b"float32", ["float32"], np.dtype("float32"), {}, object()):
        yield case(wrong, TypeError, "must be a string")
    for wrong in (
        "",
        "float16" if what == "dtypes" else "float32",
        "FLOAT32",
        "float32\0",
        "\ud800",
        Text("x"),
        "x" * 10**6,
    ):
        yield case(wrong, ValueError, "must be")


def kinds(what: str) -> Iterator[Case]:
    x = Value(0.0)
    for wrong in (3, 1.0, "x", [x], (x,), object(), iter([x])):
        yield case(wrong, TypeError, f"{what} must be ")
    yield case({}, ValueError if what != "the loss" else TypeError, f"{what} must ")


def ranges() -> Iterator[Case]:
    for wrong in (None, 3, [("w", (0, 1))], "w", object()):
        if wrong is not None:
            yield case(wrong, TypeError, "initial must map names")
    for bounds in (None, (), (1.0,), (0, 1, 2), {0: 1, 1: 2}):
        yield case({"w": bounds, "b": (0, 1)}, TypeError, r"the initial distribution of 'w' must be \(low, high\), ")
    for bounds in ({0, 1}, iter([0, 1]), np.array([0.0, 1.0]), True):
        yield case({"w": bounds, "b": (0, 1)}, TypeError, "the initial value of 'w' must be a number, not ")
    yield case({"w": "01", "b": (0, 1)}, ValueError, "the initial distribution of 'w' must be one of zeros, ones, ")
    for make, error, message in numbers():
        yield case({"w": (make(), 1.0), "b": (0, 1)}, error, message)
        yield case({"w": (0.0, 1.0), "b": (0, make())}, error, message)
    yield case({"w": (-1e308, 1e308), "b": (0, 1)}, ValueError, "the width of the initial range of 'w' must be finite")
    yield case({"w": (1, 0), "b": (0, 1)}, ValueError, "ordered")
    for names in ({}, {"w": (0, 1)}, {"w": (0, 1), "b": (0, 1), "c": (0, 1)}, {3: (0, 1), "b": (0, 1)}):
        yield case(names, TypeError if 3 in names else ValueError, "initial|a name of a parameter")


def constants() -> Iterator[Case]:
    x = Value(0.0)
    for wrong in (3, 1.0, "x", [x, 2.0], [[x], [None]], object(), {"x": 1}):
        yield case(wrong, TypeError, "constants: element [0-9] must be a Value, not ")
    yield case([x * x], ValueError, "constants: element 0 is computed by ")


def metrics() -> Iterator[Case]:
    x = Value(0.0)
    for wrong in (None, 3, [x], [("w", x)], "w", {"w"}, iter({}), object()):
        yield case(wrong, TypeError, "metrics must map names to Values, not be a ")
    for wrong in (3, 1.0, None, [x, x], "x"):
        yield case({"error": wrong}, TypeError, "metric")


def noises() -> Iterator[Case]:
    for wrong in (None, 3, "noise", b"n", {"n": 1}, [Value(0.0)], (0.0, 1.0), [None], object()):
        yield case(wrong, TypeError, "noise must be a Noise or a list of them, not ")
    for wrong in (None, 3, "ab", (1.0,), (1.0, 2.0, 3.0), [Value(0.0)] * 2, (True, 2.0), object()):
        yield case(Noise([Value(0.0)], wrong), TypeError, r"^noise\[0\]: ")
    for number, error in ((math.nan, ValueError), (math.inf, ValueError), (10**400, ValueError), ("1", TypeError)):
        for distribution in (
            (0.0, number),
            Normal(number),
            Normal(0.0, number),
            Bernoulli(number),
            Bernoulli(0.5, number),
        ):
            yield case(Noise([Value(0.0)], distribution), error, r"^noise\[0\]: ")


def updates() -> Iterator[Case]:
    for wrong in (3, 1.0, "adam", b"x", [optim.sgd()], object(), Value(0.0)):
        yield case(wrong, TypeError, "a rule is a function, not ")
    yield case({"w": 3}, TypeError, "a rule is a function, not int")
    yield case({1: optim.sgd()}, TypeError, "or patterns of names, not from 1")
    yield case({}, ValueError, "no rule fits the tensor 'w'")
    yield case({"v": optim.sgd()}, ValueError, "'v' fits none of the tensors w")
    yield case({"*": lambda p, g: p}, TypeError, "cannot be traced: .* takes 2 positional arguments but 5 were given")
    yield case({"*": lambda p, g, s, t, r: (p, (g,))}, ValueError, "returned 1 numbers of state, but it declares 0")


FIELDS: dict[str, Iterator[Case]] = {
    "seed": wholes(),
    "learning_rate": (found for found in numbers() if found[0]() is not None),
    "description": texts(MAX_TEXT, is_empty_good=True),
    "fma": flags(),
    "reorder": flags(),
    "dtype": choices(),
    "storage": (found for found in choices("storages") if found[0]() is not None),
    "inputs": kinds("inputs"),
    "targets": kinds("targets"),
    "loss": kinds("the loss"),
    "parameters": mappings(),
    "outputs": mappings(),
    "order": (found for found in lists() if found[0]() is not None),
    "initial": ranges(),
    "prediction": (found for found in texts(MAX_TEXT, is_empty_good=True) if found[0]() is not None),
    "constants": constants(),
    "metrics": (found for found in metrics()),
    "input_gradients": flags(),
    "update": updates(),
    "noise": noises(),
    "threshold": (found for found in numbers() if found[0]() is not None),
}
CASES = [(field, *found) for field, cases in FIELDS.items() for found in cases]


def test_there_is_a_matrix_for_each_field():
    assert FIELDS.keys() == {field.name for field in fields(Program) if field.init}
    assert len(CASES) > 250


@pytest.mark.parametrize("field", FIELDS)
def test_bad_fields(field):
    for name, make, error, message in CASES:
        if name == field:
            with pytest.raises(error, match=message) as caught:
                declare(**{field: make()})
            assert type(caught.value) is error
            assert len(str(caught.value)) < 500


@pytest.mark.parametrize("field", FIELDS)
def test_bad_fields_that_are_set_later(field):
    """A Program is no frozen dataclass: the compiler checks it again."""
    for name, make, error, message in CASES:
        if name == field:
            program = declare(initial={"w": (0, 1), "b": (0, 1)})
            setattr(program, field, make())
            with pytest.raises(error, match=message):
                compile_program(program)


@pytest.mark.parametrize("kind", [Pixels, Floats, Label])
def test_bad_lists_of_leaves(kind):
    field = "targets" if kind is Label else "inputs"
    for make, error, message in lists():
        with pytest.raises(error, match=message):
            declare(**{field: kind(make())})


def test_bad_scales():
    for make, error, message in numbers():
        with pytest.raises(error, match=message):
            declare(inputs=lambda v, make=make: Pixels([v["x"]], scale=make()))


@pytest.mark.parametrize("far", [1e39, -1e300, 3.5e38])
def test_numbers_that_float32_does_not_have(far):
    """A learning rate of 1e300 was inf in the generated C, and every weight nan after a step."""
    changes: list[dict[str, Any]] = [
        {"learning_rate": far},
        {"inputs": lambda v: Pixels([v["x"]], scale=far)},
        {"initial": {"w": (min(far, 0), max(far, 0)), "b": (0, 1)}},
    ]
    for change in changes:
        declare(**change)
        with pytest.raises(ValueError, match="must be finite in float32, got"):
            declare(**change, dtype="float32")


def odd(v: dict[str, Any]) -> dict[str, Any]:
    return {"w": [v["w"]], "b": [v["b"]]}


def test_values_with_methods_of_their_own_are_made_plain():
    """An int subclass's __format__ was in the C, and `#define SEED TrueULL`."""
    odd_one = declare(
        seed=Whole(7),
        learning_rate=Real(0.5),
        description=Text("plain"),
        dtype=Text("float64"),
        inputs=lambda v: Pixels([v["x"]], scale=Real(0.25)),
        initial={Text("w"): [Whole(0), Real(1.5)], "b": (np.float32(0.5), Index(1))},
        parameters=lambda v: {Text("w"): [v["w"]], "b": [v["b"]]},
        outputs=lambda v: {Text("out"): [v["sum"]]},
        prediction=Text("out"),
    )
    same = declare(
        seed=7,
        learning_rate=0.5,
        description="plain",
        inputs=lambda v: Pixels([v["x"]], scale=0.25),
        initial={"w": (0.0, 1.5), "b": (0.5, 1.0)},
        outputs=lambda v: {"out": [v["sum"]]},
        prediction="out",
    )
    for target in ("extension", "python"):
        assert compile_program(odd_one, Text("nn"), Text("loops"), Text(target)).files == (
            compile_program(same, "nn", "loops", target).files
        )
    fields = [odd_one.seed, odd_one.learning_rate, odd_one.description, odd_one.dtype, odd_one.prediction]
    assert [type(field) for field in fields] == [int, float, str, str, str]
    assert {type(name) for name in (*odd_one.parameters, *odd_one.outputs, *odd_one.initial)} == {str}


@pytest.mark.parametrize("seed", [Seed.FIRST, np.uint64(7), np.int8(7), Index(7), np.array(7)])
def test_good_seeds(seed):
    program = declare(seed=seed)
    assert (program.seed, type(program.seed)) == (7, int)


@pytest.mark.parametrize("rate", [1, np.float32(1), fractions.Fraction(1), decimal.Decimal(1), np.array(1.0), Index(1)])
def test_good_numbers(rate):
    program = declare(learning_rate=rate)
    assert (program.learning_rate, type(program.learning_rate)) == (1.0, float)


def test_the_longest_texts():
    name = "n" * MAX_NAME
    program = declare(description="ä" * (MAX_TEXT // 2), outputs=lambda v: {name: [v["sum"]]})
    text = compile_program(program).text
    longest = max(len(ast.literal_eval('b"' + found + '"')) for found in re.findall(r'"((?:[^"\\]|\\.)*)"', text))
    assert MAX_TEXT <= longest <= 4095


ARGUMENTS: dict[str, list[tuple[Any, type[Exception], str]]] = {
    "program": [(x, TypeError, "must be a codegen.Program, not") for x in (None, 3, "p", Program, {})],
    "directory": [
        *((x, TypeError, "the folder must be a string or a path") for x in (None, 3, [], b"x", True, iter("x"))),
        ("a\0b", ValueError, "the folder must not hold NUL"),
    ],
    "name": [
        *((x, TypeError, "a module's name must be a string, not") for x in (None, 3, b"nn", ["nn"], np.array("n"))),
        *((x, ValueError, "must be an ASCII identifier") for x in ("", "a b", "a.b", "1", "ä", "n\0", "\ud800", "if")),
        (Text("*/"), ValueError, "must be an ASCII identifier"),
        ("a" * 1000, ValueError, "at most 100 characters, got 1000"),
    ],
    "lowering": [
        *((x, TypeError, "lowering must be a string") for x in (3, b"loops", ["loops"], np.array(["a", "b"]), False)),
        *((x, ValueError, "lowering must be 'loops' or") for x in ("", "loop", "loops\0", "\ud800")),
    ],
    "target": [
        *((x, TypeError, "target must be a string") for x in (None, 3, b"c", ["c"], np.array(["a", "b"]))),
        *((x, ValueError, "target must be one of extension, python, c") for x in ("", "C", "c\0", "\ud800")),
    ],
    "compiler": [
        *((x, TypeError, "the compiler must be a string") for x in (3, b"gcc", ["gcc"], True)),
        *((x, ValueError, "the compiler must") for x in ("", "g\0cc", "\ud800")),
    ],
    "flags": [
        *((x, TypeError, "flags must be a list of strings") for x in ("-O0", 3, {"-O0"}, iter(["-O0"]), True)),
        *(([x], TypeError, "a flag must be a string") for x in (None, 3, b"-O0", ["-O0"])),
        *(([x], ValueError, "a flag must") for x in ("-D\0", "-D\ud800")),
    ],
}


@pytest.mark.parametrize("function", [build, freeze])
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_bad_arguments_of_build_and_freeze(argument, function, tmp_path):
    for value, error, message in ARGUMENTS[argument]:
        arguments = {"program": declare(), "directory": tmp_path} | {argument: value}
        arguments |= {"weights": {"w": [1.0], "b": [1.0]}} if function is freeze else {}
        with pytest.raises(error, match=message):
            function(**arguments)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        *((x, TypeError, "must map names to arrays, not be a") for x in (None, 3, [("w", 1)], "w", {"w"}, iter({}))),
        *(({"w": x, "b": [1.0]}, TypeError, "'w' must be an array of numbers, not of")
          for x in (None, "1", ["1.0"], [None], [1j], [True], [object()], iter([1.0]), np.array(["1"]), [b"1"])),
        *(({"w": [x], "b": [1.0]}, ValueError, "'w' are not all finite") for x in (NAN, math.inf, np.float32("nan"))),
        *(({"w": x, "b": [1.0]}, ValueError, "'w' have the shape .* expected ") for x in (1.0, [], [1, 2], [[1]])),
        ({"w": [[1], [1, 2]], "b": [1.0]}, ValueError, "inhomogeneous"),
        *((x, ValueError, "the weights are named") for x in ({}, {"w": [1.0]}, {3: [1.0], "w": [1.0]}, {None: 1})),
    ],
)  # fmt: skip
def test_bad_weights(weights, error, message, tmp_path):
    program = declare()
    with pytest.raises(error, match=message):
        freeze(program, weights, tmp_path)
    assert not any(tmp_path.iterdir())
    assert [p.data for p in program.parameter_values] == [0.5, 0.1]


@pytest.mark.parametrize("path", [None, 3, 0, True, b"x", [], object()])
def test_paths_that_are_none(path):
    for function in (load, read_weights):
        if not (isinstance(path, bytes) and function is read_weights):
            with pytest.raises(TypeError, match="must be a string or a path, not"):
                function(path)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["seed", "learning_rate", "description", "dtype", "prediction", "fma", "initial", "order"]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers()),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_any_value_is_taken_or_refused(field, value):
    """TypeError and ValueError are all that comes; and what is taken compiles to C that says the same."""
    try:
        program = declare(**{field: value})
    except (TypeError, ValueError):
        return
    text = compile_program(program).files["nn.c"]
    assert f"#define SEED {int(program.seed)}ULL\n" in text
    assert text.isascii()
    assert math.isfinite(float.fromhex(re.search(r"#define LEARNING_RATE (\S+)", text)[1]))
