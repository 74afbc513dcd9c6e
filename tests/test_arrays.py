"""Functions of NumPy that compute something else on Values, add in another order, or decide a branch while tracing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import codegen
from codegen import Floats, Label, Pixels, Program, compile_program
from micrograd import ops
from micrograd.arrays import Array, array, data, grad
from micrograd.engine import Value
from micrograd.functional import cross_entropy, log_softmax, mse, softmax, total

RNG = np.random.default_rng(0)
NUMBERS = {"a": RNG.normal(size=(3, 4)), "b": RNG.normal(size=(4, 2)), "x": RNG.normal(size=4)}
VALUES = {name: array(numbers) for name, numbers in NUMBERS.items()}
OF_OTHER_TYPES = {"i": np.array([100, -3, 7, 90], np.int8), "f": np.array([1e30, 0.1, 3, -1e-30], np.float32)}
MODULES = {"np": np, "windows": np.lib.stride_tricks.sliding_window_view} | OF_OTHER_TYPES

SAME_AS_ON_NUMBERS = """
a @ b; a @ x; x @ b; x @ x; np.matmul(a, b); np.dot(a, b); a.dot(b); np.inner(a, a); np.outer(x, x)
np.tensordot(a, b, 1); np.kron(a, b); np.ones((2, 3)) @ a; a.T @ np.ones(3); np.linalg.norm(a); np.trace(a)
a + 1; 1 - a; 2 * a; a / 3; 2 / a; 2 ** a; a ** 2; a ** -1.0; -a; +a; abs(a); a * a.T[:, ::-1].T; np.float64(2) * a
a * np.float32(2); np.ones(4) * a; a - x; x[0] * a; x[0] - a; x[0] / a; x[0] + a; np.power(a * a, 0.5)
np.add.outer(x, x)
np.exp(a); np.expm1(a); np.log(a * a + 1); np.log1p(a * a); np.sqrt(a * a); np.sin(a); np.cos(a); np.tanh(a)
np.abs(a); np.square(a); np.reciprocal(a); np.negative(a)
a.sum(); a.sum(0); a.sum(1, keepdims=True); a.sum(axis=(0, 1)); a.sum(axis=(1, 0), keepdims=True); a.sum(axis=-1)
a.T.sum(0); a[:, ::-1].sum(-1); np.sum(a, axis=1); sum(a); np.add.reduce(a); a.cumsum(); np.cumsum(a, 1)
a.mean(); a.mean(0); a.mean(-1, keepdims=True); np.mean(a); np.average(a, axis=0); np.prod(a); a.prod(0)
a.max(); a.max(0); a.max(-1, keepdims=True); a.max(axis=(0, 1)); a.min(1); np.max(a, axis=0); np.amax(a); np.ptp(a)
a.var(); a.var(0); a.var(axis=(0, 1), ddof=1); np.var(a, axis=1); a.std(-1, keepdims=True); np.std(a)
a.var(0, None, None, 1); np.std(a, 1, ddof=2.5); np.linalg.norm(a, axis=1); np.linalg.norm(a, axis=0, keepdims=True)
np.linalg.norm(x, 2); np.linalg.norm(a, 2, axis=1); np.linalg.norm(a, axis=(0, 1)); np.linalg.norm(a, None, -1)
np.maximum(a, 0); np.minimum(0.5, a); np.maximum(a, a[::-1]); np.maximum.accumulate(a)
np.clip(a, -0.5, 0.5); a.clip(0, 1); a.clip(0, None); a.clip(min=0); np.clip(a, None, 1)
np.where(np.eye(3, 4) > 0, a, 0.0); np.exp(np.where(np.eye(3, 4) > 0, a, 0)); a[np.eye(3, 4) > 0]
np.select([np.eye(3, 4) > 0], [a], 0.0); np.tril(a); np.triu(a)
np.einsum("ij,jk->ik", a, b); np.einsum("ij,jk", a, b); np.einsum("ij->", a); np.einsum("ij->ji", a)
np.einsum("ii->i", a[:, :3]); np.einsum("ii", a[:, :3]); np.einsum("ij,jk,j->ik", a, b, x, optimize=True)
np.einsum("ij,...jk,j->i...", a, b, x, optimize="optimal"); np.einsum("ij,kj,j->", a, a, x, optimize=True)
np.einsum("...j,j->...", a, x); np.einsum("...ij,...jk->...ik", a[None], b); np.einsum("ij,kj", a, np.ones((5, 4)))
np.einsum("i,j->ij", x, x); np.einsum(" i j , j -> i ", a, x); np.einsum("...j,...j", a, x); np.einsum("ij->i", a)
np.stack([a, a]); np.concatenate([a, a], 1); np.hstack([a, a]); np.vstack([a, a]); np.append(a, x); np.split(a, 2, 1)[0]
a.reshape(2, 6); a.T; np.transpose(a); np.swapaxes(a, 0, 1); np.moveaxis(a, 0, 1); a.ravel(); np.expand_dims(a, 0)
np.squeeze(a[None]); np.broadcast_to(a, (2, 3, 4)); np.repeat(a, 2, 0); np.tile(a, 2); np.roll(a, 1, 0); np.flip(a)
np.pad(a, 1); np.exp(np.pad(a, 1)); np.maximum(np.pad(a, 1), -1).max(0); np.diff(a); np.diag(x); np.diagonal(a)
windows(a, (2, 2)); windows(a, (2, 2)).max(axis=(-1, -2)); np.einsum("ijuv,uv->ij", windows(a, (2, 2)), np.ones((2, 2)))
np.einsum("i,i,i->i", 1.0 * i, i, x); np.einsum("i,i->", f * 1.0, x); np.einsum("i,i,i->i", x, f, np.float64(f))
np.einsum("i,i,j->j", x, x, x, optimize=True); np.einsum(",i->i", x[0], x); np.einsum(",->", x[0], x[1])
np.einsum(",,i->i", 2.0, 3.0, x, optimize=True); a[:, :0].T.sum(1); a[:0].max(1); np.mean(a[:0], axis=1)
x[0, ...].var(); x[0, ...].sum(0); x[0, ...].sum(axis=-1); np.pad(x, 1, constant_values=10.0) ** 20
1 / np.pad(x, 1, constant_values=4.0)
np.convolve(x, [1, 2.0]); np.correlate(x, [1, 2.0], "valid"); np.meshgrid(x, x)[0]; np.copy(a); a[np.array([0, 2])]
"""


@pytest.mark.parametrize("text", [t for line in SAME_AS_ON_NUMBERS.split("\n") for t in line.split("; ") if t])
def test_a_function_computes_on_values_what_it_computes_on_numbers(text: str):
    expected, found = eval(text, MODULES | NUMBERS), eval(text, MODULES | VALUES)
    assert isinstance(found, Value if np.ndim(expected) == 0 else Array)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(data(found), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a > 0", "greater of an array of Values would be decided once.*use np.maximum"),
        ("a == a", "equal of an array .* compare micrograd.arrays.data"),
        ("np.sign(a)", "sign of an array .* use np.maximum, np.minimum, np.abs or relu"),
        ("a.argmax()", "argmax of an array .* predict"),
        ("np.argmax(a, axis=1)", "argmax of an array .* predict"),
        ("a.argmin()", "argmin of an array"),
        ("np.sort(a)", "sort of an array"),
        ("a.copy().sort()", "sort of an array"),
        ("a.argsort()", "argsort of an array"),
        ("np.median(a)", "median of an array"),
        ("np.array_equal(a, a)", "array_equal of an array .* take it of micrograd.arrays.data"),
        ("np.nan_to_num(a)", "nan_to_num of an array"),
        ("np.fmax(a, 0)", "fmax of an array of Values ignores nan: use np.maximum"),
        ("np.log2(a)", "log2 of an array of Values is not defined: there are absolute, add, .*tanh"),
        ("a % 2", "remainder of an array of Values is not defined"),
        ("a.any()", "logical_or of an array of Values is not defined"),
        ("np.vdot(x, x)", "vdot .* use np.dot"),
        ("np.where(a, a, 0)", "no truth: a comparison would be fixed"),
        ("np.sum(a, initial=1)", "takes axis and keepdims"),
        ("np.sum(a, where=[True, False, True, True])", "takes axis and keepdims"),
        ("a.sum(dtype=float)", "takes axis and keepdims"),
        ("np.var(a, where=a.shape == 3)", "var and std .* take axis, ddof and keepdims alone"),
        ("np.std(a, mean=0.0)", "var and std .* take axis, ddof and keepdims alone"),
        ("np.var(a, axis=0, out=x.copy())", "var and std .* take axis, ddof and keepdims alone"),
        ("np.linalg.norm(a, 2)", "norm of an array of Values is the root of a sum of squares, without an ord, got 2"),
        ("np.linalg.norm(x, 1)", "without an ord, got 1"),
        ("np.linalg.inv(a[:, :3])", "inv of an array of Values is not defined"),
        ("np.fft.fft(x)", "fft of an array of Values is not defined"),
        ("np.cov(a)", "cov of an array of Values is not defined"),
        ("np.round(a)", "round of an array of Values is not defined"),
        ("np.maximum(np.array(list(x)), 0)", r"np.maximum and the like need micrograd.arrays.array\(values\)"),
        ("np.einsum(a, [0, 1])", "subscripts as a string"),
        ("np.einsum('ij->i', a, dtype=float)", "subscripts as a string, and optimize alone"),
        ("a.sum(0, out=x.copy())", "takes axis and keepdims"),
        ("a.sum(axis='0')", "'str' object cannot be interpreted as an integer"),
        ("a.sum(axis=1.0)", "'float' object cannot be interpreted as an integer"),
        ("np.isin(x, x[:1])", "isin of an array of Values would be decided once"),
        ("np.gradient(x)", "gradient of an array of Values is not defined"),
        ("np.minimum(x[0], 1.0)", r"use relu\(\), max\(\) or min\(\)"),
        ("x[0] == np.array([1.0])", "a Value has no order and no truth"),
        ("x[0] != np.array([1.0])", "a Value has no order and no truth"),
        ("array(['one'])", "a Value holds a real number, not str"),
    ],
)
def test_what_would_decide_a_branch_is_refused(text, message):
    with pytest.raises(TypeError, match=message):
        eval(text, MODULES | VALUES | {"array": array})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.sum(2)", "axis 2 is out of bounds"),
        ("a.sum(-3)", "axis -3 is out of bounds"),
        ("a.var(0, ddof=3)", "ddof must be below the number of Values, 3, got 3"),
        ("a[:0].max()", r"a reduction of no Values: the shape is \(0, 4\)"),
        ("np.einsum('ij,jk->ik', a)", "has 2 operands, got 1"),
        ("np.einsum('ijk->ik', a)", "gives an operand 3 indices, but it has 2"),
        ("np.einsum('ij->ik', a)", "each index of the result must be one of the operands'"),
        ("np.einsum('ij->ii', a)", "each index of the result must be one of the operands'"),
        ("np.einsum('ij,jk->ik', a, a)", "shape mismatch"),
        ("np.einsum('...j->', a)", "has ... in an operand, but not in the result"),
        ("np.linalg.norm(a[None], axis=(0, 1, 2))", "norm takes one axis or two"),
        ("np.linalg.norm(a, axis=())", "norm takes one axis or two"),
    ],
)
def test_wrong_shapes_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        eval(text, MODULES | VALUES)


def written(value: Value) -> str:
    """How a Value was made, its leaves as their numbers."""
    if not value._prev:
        return f"{value.data:g}"
    return f"({f' {value._op} '.join(map(written, value._prev))})"


def test_sums_go_from_left_to_right_however_the_array_lies_in_memory():
    a = array(np.arange(1, 7).reshape(2, 3))
    assert written(a.sum()) == "(((((1 + 2) + 3) + 4) + 5) + 6)"
    assert written(a.T.sum()) == "(((((1 + 4) + 2) + 5) + 3) + 6)"
    assert written(a[:, ::-1].sum(1)[0]) == "((3 + 2) + 1)"
    assert written(a.sum(axis=(1, 0))) == written(a.sum())
    assert written(a[::-1].max(0)[2]) == "(6 max 3)"
    assert written((a[:1] @ a.T)[0, 1]) == "(((1 * 4) + (2 * 5)) + (3 * 6))"
    assert written(np.einsum("ij,ij->i", a, a)[0]) == "(((1 * 1) + (2 * 2)) + (3 * 3))"
    assert written(np.einsum("ij,j,i->", a[:, :2], [7, 8], a[:, 0])) == (
        "(((((1 * 7) * 1) + ((2 * 8) * 1)) + ((4 * 7) * 4)) + ((5 * 8) * 4))"
    )
    assert written(np.einsum("ij,j,i->", a[:, :2], [7, 8], a[:, 0], optimize=["einsum_path", (0, 1), (0, 1)])) == (
        "((1 * ((1 * 7) + (2 * 8))) + (4 * ((4 * 7) + (5 * 8))))"
    )
    long = array(np.ones(300)).sum()
    for _ in range(299):  # and not in pairs
        long = long._prev[0]
    assert not long._prev


def test_gradients_are_those_of_the_engine():
    a, x = array(NUMBERS["a"]), array(NUMBERS["x"])
    (np.tanh(a @ x).max() + np.maximum(a, 0).sum()).backward()
    rows, xs = [[Value(n) for n in row] for row in NUMBERS["a"]], [Value(n) for n in NUMBERS["x"]]
    activated = [total([w * v for w, v in zip(row, xs, strict=True)]).tanh() for row in rows]
    (activated[0].max(*activated[1:]) + total([w.max(0.0) for row in rows for w in row])).backward()
    assert grad(a).tolist() == [[w.grad for w in row] for row in rows]
    assert grad(x).tolist() == [v.grad for v in xs]


def test_relu_and_maximum_differ_at_zero():
    x, y = array([0.0]), array([0.0])
    x.relu().sum().backward()
    np.maximum(y, 0).sum().backward()
    assert (grad(x), grad(y)) == ([0.0], [1.0])


def test_every_op_of_the_table_is_an_elementwise_method():
    x = array([0.5, 2.0])
    assert data(x.sigmoid()).tolist() == [Value(n).sigmoid().data for n in (0.5, 2.0)]
    assert data(x.softplus()).tolist() == [Value(n).softplus().data for n in (0.5, 2.0)]
    assert data(x.gelu()).tolist() == [Value(n).gelu().data for n in (0.5, 2.0)]
    assert data(x.apply("erf")).tolist() == [Value(n).erf().data for n in (0.5, 2.0)]
    assert data(x.apply(ops.minimum, [1.0, 1.0])).tolist() == [0.5, 1.0]
    assert x.detach()[0]._op == "detach"


def test_an_array_is_made_of_numbers_or_values():
    v = Value(3.0)
    made = array([[v, 2], [np.float32(1), True]])
    assert made[0, 0] is v
    assert data(made).tolist() == [[3.0, 2.0], [1.0, 1.0]]
    assert isinstance(array(5), Value)
    assert len({id(x) for x in array(np.zeros(10))}) == 10
    assert data([v, 1.5]).tolist() == [3.0, 1.5]


def test_an_array_can_be_changed_in_place():
    a = array([1.0, -2.0])
    same = a
    a += 1
    assert a is same
    assert data(a).tolist() == [2.0, -1.0]
    np.clip(a, 0, 1, out=a)
    assert data(same).tolist() == [1.0, 0.0]
    np.add.at(a, [0, 0], 1)
    assert data(a).tolist() == [3.0, 0.0]
    a[1] = a.sum()
    assert data(a).tolist() == [3.0, 3.0]


def test_functional_takes_arrays():
    x, t = array([1.0, 2.0, 3.0]), array([0.0, 0.0, 1.0])
    lists = list(x), list(t)
    for function in (softmax, log_softmax):
        assert [v.data for v in function(x)] == [v.data for v in function(lists[0])]
    assert total(x).data == 6.0
    assert cross_entropy(x, t).data == cross_entropy(*lists).data == cross_entropy(x, 2).data
    assert mse(x, t).data == mse(*lists).data


def test_a_program_takes_arrays_in_c_order():
    x, t, w, b = array(np.zeros((2, 3))), array(np.zeros(2)), array(np.ones((2, 3))), array(0.0)
    out = (w * x).sum(1) + b
    program = Program(
        inputs=Pixels(x, scale=0.5),
        targets=Label(t),
        parameters={"w": w.T, "b": b},
        loss=np.reshape(((out - t) ** 2).sum(), (1,)),
        outputs={"out": out, "both": [out, out]},
        order=np.append(w, b),
    )
    assert program.inputs == Pixels(list(x.ravel()), 0.5)
    assert program.target_values == list(t)
    assert program.outputs == {"out": list(out), "both": [*out, *out]}
    assert [(s.name, s.shape, s.numbers) for s in program.tensors] == [
        ("w", (3, 2), (0, 3, 1, 4, 2, 5)),
        ("b", (), (6,)),
    ]
    assert isinstance(program.loss, Value)


def test_nested_lists_and_lists_of_arrays_are_arrays_too():
    x, w = array(np.zeros((2, 2))), array(np.ones((2, 2)))
    program = Program(
        Floats([list(row) for row in x]), None, {"w": [w[0], list(w[1])]}, (w * x).sum(), {"out": [x * w]}
    )
    assert program.input_values == list(x.ravel())
    assert program.tensors[0].shape == (2, 2)
    assert len(program.outputs["out"]) == 4


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"inputs": Floats(np.zeros(2))}, TypeError, "inputs: element 0 must be a Value, not float"),
        ({"parameters": {"w": np.ones(2)}}, ValueError, "'w' must be a Value or evenly nested lists of Values"),
        ({"loss": VALUES["x"] * 2}, TypeError, r"one Value, not an array of the shape \(4,\): add it up"),
        ({"outputs": {"out": np.array([])}}, TypeError, "output 'out' must be a list of Values"),
        ({"inputs": Floats(VALUES["x"] * 2)}, ValueError, r"inputs: element 0 is computed by '\*'"),
    ],
)
def test_a_program_refuses_arrays_of_anything_else(changes, error, message):
    w, x = array(np.ones(2)), array(np.zeros(2))
    declaration = {
        "inputs": Floats(x),
        "targets": None,
        "parameters": {"w": w},
        "loss": w @ x,
        "outputs": {"out": w * x},
    }
    with pytest.raises(error, match=message):
        Program(**declaration | changes)


@pytest.mark.filterwarnings("error")
def test_leaves_that_are_0_do_not_warn():
    y = array(np.zeros(3))
    assert np.isnan(data(y * np.log(y))).all()
    assert np.isnan(data((np.log(y) - np.log(y)).sum()))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize(
    "text",
    [
        *("np.pad(x, 1) ** -1", "1 / np.pad(x, 1)", "np.pad(x, 1) / 0", "np.pad(x, 1, constant_values=200) * 2"),
        *("np.where(at, x, -8) ** (1 / 3)", "np.where(at, x, 1e300) ** 2", "-np.append(x, i)", "np.append(x, f) / 3"),
        *(
            "set_first(x, np.uint8(200)) * 2",
            "set_first(x, np.float32(0.1)) / 3",
            "np.where(at, x, 0.0) / np.arange(4)",
        ),
    ],
)
def test_numbers_among_the_values_compute_as_ieee_says_in_64_bits(text):
    def set_first(x, number):
        x = x.copy()
        x[0] = number
        return x

    others = {"at": np.array([True, False, True, False]), "set_first": set_first}
    values = {"x": array(np.abs(NUMBERS["x"]))}
    numbers = {"x": np.abs(NUMBERS["x"]), "i": np.float64(OF_OTHER_TYPES["i"]), "f": np.float64(OF_OTHER_TYPES["f"])}
    found = data(eval(text, MODULES | others | values))
    np.testing.assert_allclose(found, eval(text, MODULES | others | numbers), rtol=1e-12)


@pytest.mark.parametrize("change", ["np.multiply(x, numbers, out=x)", "np.add.at(x, [0, 1, 2, 3], numbers)"])
def test_an_operation_in_place_that_fails_changes_nothing(change):
    values = {"x": VALUES["x"].copy(), "numbers": np.array([2, 2, None, 2])}
    with pytest.raises(TypeError):
        eval(change, MODULES | values)
    assert [*values["x"]] == [*VALUES["x"]]


@pytest.mark.filterwarnings("error")
def test_numbers_among_the_values_are_constants_that_nobody_has_to_declare():
    x, w = array(np.zeros((2, 2))), array(np.ones((2, 2)))
    padded = np.maximum(np.exp(np.pad(x, 1)), 0.5)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2))
    out = np.where(np.eye(3) > 0, np.einsum("ijuv,uv->ij", windows, w), -1.0).max() + x.sum()
    out = out + softmax(np.pad(x[0], 1))[1]
    compile_program(Program(Floats(x), None, {"w": w}, out, {"out": [out]}))


def test_without_numpy_the_import_says_so():
    command = (
        "import sys; sys.modules['numpy'] = None\nimport micrograd.nn, micrograd.functional\nimport micrograd.arrays"
    )
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "micrograd.arrays needs numpy: pip install numpy" in run.stderr


def test_numbers_among_outputs_are_constants() -> None:
    x, w = array(np.zeros(3)), array(np.ones((2, 3)))
    out = np.pad(w @ x, 1)
    program = Program(Floats(x), None, {"w": w}, (w @ x).sum(), {"out": out, "mask": np.where([True, False], w @ x, 0)})
    model = codegen.compile(program, optimize=0)
    assert {name: list(numbers) for name, numbers in model.outputs([1.0, 2.0, 3.0]).items()} == {
        "out": [0.0, 6.0, 6.0, 0.0],
        "mask": [6.0, 0.0],
    }


@pytest.mark.parametrize("text", ["ji", "kj,ij", "ba,...b"])
def test_an_einsum_without_a_result_orders_its_indices_by_the_alphabet(text):
    a = NUMBERS["a"]
    operands = [a, a][: text.count(",") + 1] if "..." not in text else [a, a.T]
    np.testing.assert_allclose(data(np.einsum(text, *map(array, operands))), np.einsum(text, *operands), rtol=1e-12)
