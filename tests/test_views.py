"""state_dict, grad_dict and load_state_dict: memory that is not shared, is gone, or is read in a wrong layout.

What is written through a view is compared with the engine in test_rows.py.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import hashlib
import itertools
import math
import pickle
import random
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Any

import models
import nn
import numpy as np
import pytest
from harness import Generated
from test_conversion import Lends

import codegen
from codegen import Floats, Program, build, load_extension
from micrograd.engine import Value
from micrograd.functional import total

PARAMETERS = 39760
SHAPES = {
    "layers.0.weight": (50, 784),
    "layers.0.bias": (50,),
    "layers.1.weight": (10, 50),
    "layers.1.bias": (10,),
}
IMAGE = bytes(i % 251 if i % 5 == 0 else 0 for i in range(784))
DARK, LIT = 3, 10  # pixels of IMAGE


@pytest.fixture(autouse=True)
def fresh():
    nn.reset(1)


def in_order(tensors: dict[str, np.ndarray]) -> list[float]:
    """The elements of a state_dict in the order of parameters(): neuron by neuron, weights before the bias."""
    layers = [
        np.hstack([tensors[f"layers.{i}.weight"], np.asarray(tensors[f"layers.{i}.bias"])[:, None]]) for i in (0, 1)
    ]
    return [*layers[0].ravel().tolist(), *layers[1].ravel().tolist()]


# Shared memory


@pytest.mark.parametrize("views", [nn.state_dict, nn.grad_dict])
def test_views_have_the_names_and_shapes_of_pytorch(views):
    assert {name: view.shape for name, view in views().items()} == SHAPES
    for view in views().values():
        assert type(view) is memoryview
        assert (view.format, view.itemsize, view.readonly) == ("d", 8, False)
        assert view.nbytes == 8 * math.prod(view.shape)


@pytest.mark.parametrize(("views", "element"), [(nn.state_dict, nn.data), (nn.grad_dict, nn.grad)])
def test_element_j_i_is_parameter_j_785_plus_i(views, element):
    nn.forward(3, IMAGE)
    nn.backward()
    tensors = views()
    seen = in_order(tensors)  # before data() or grad() can have written anything down
    assert seen == [element(i) for i in range(PARAMETERS)]
    weight = tensors["layers.0.weight"]
    for j, i in [(0, 0), (0, 783), (49, 0), (49, 783), (7, 10)]:
        assert weight[j, i] == element(j * 785 + i)
    assert tensors["layers.1.weight"][9, 49] == element(PARAMETERS - 2)
    assert weight.tolist() == np.asarray(weight).tolist()


@pytest.mark.parametrize(("views", "element"), [(nn.state_dict, nn.data), (nn.grad_dict, nn.grad)])
def test_numpy_shares_the_memory(views, element):
    first, second = (np.asarray(views()["layers.0.weight"]) for _ in range(2))
    assert np.shares_memory(first, second)
    first[7, 10] = 0.5
    assert second[7, 10] == element(7 * 785 + 10) == 0.5
    second *= 2
    assert element(7 * 785 + 10) == 1.0
    view = views()["layers.1.bias"]
    view[3] = -4.0
    assert element(39250 + 51 * 3 + 50) == -4.0
    assert views()["layers.1.bias"].tolist()[3] == -4.0


def test_a_view_sees_what_the_model_does():
    state, grad = nn.state_dict(), nn.grad_dict()
    weight, slope = np.asarray(state["layers.0.weight"]), np.asarray(grad["layers.0.weight"])
    nn.forward(3, IMAGE)
    nn.backward()
    assert slope[:, LIT].any()
    before = weight.copy()
    nn.update(learning_rate=0.5)
    assert weight.tolist() == (before - 0.5 * slope).tolist()
    nn.zero_grad()
    assert not slope.any()
    nn.load_state_dict({name: np.full(shape, 0.25) for name, shape in SHAPES.items()})
    assert (weight == 0.25).all()
    nn.reset(3)
    assert weight[0, 0] == nn.data(0) != 0.25


@pytest.mark.parametrize("keep", [True, False], ids=["view alive", "view dropped"])
@pytest.mark.parametrize("name", SHAPES)
def test_written_weights_are_used_at_once(name, keep):
    expected = {key: np.array(view) for key, view in nn.state_dict().items()}
    expected[name] *= 1.5
    expected[name] += 0.125
    view = np.asarray(nn.state_dict()[name])
    view *= 1.5
    view += 0.125
    if not keep:
        del view
    written = nn.forward(3, IMAGE), nn.predict(IMAGE), nn.probabilities(IMAGE), nn.evaluate(IMAGE, b"\x03")
    nn.reset(2)
    assert nn.forward(3, IMAGE) != written[0]
    nn.load_state_dict(expected)
    assert (nn.forward(3, IMAGE), nn.predict(IMAGE), nn.probabilities(IMAGE), nn.evaluate(IMAGE, b"\x03")) == written


def test_the_exporter_gives_out_contiguous_memory_only_where_it_is():
    views = nn.state_dict()
    bias, weight = views["layers.0.bias"].obj, views["layers.0.weight"].obj
    assert struct.unpack_from("50d", bias) == tuple(views["layers.0.bias"].tolist())
    assert hashlib.sha256(bias).digest() == hashlib.sha256(bytes(views["layers.0.bias"])).digest()
    assert memoryview(weight).strides == views["layers.0.weight"].strides
    assert bytes(memoryview(weight)) == np.array(weight).tobytes()
    with pytest.raises(BufferError, match=r"layers\.0\.weight is stored with strides"):
        hashlib.sha256(weight)
    with pytest.raises(BufferError, match=r"layers\.0\.weight is stored with strides"):
        struct.unpack_from("d", weight)


def test_the_exporter_cannot_be_made_or_copied_by_hand():
    exporter = nn.state_dict()["layers.0.bias"].obj
    kind = type(exporter)
    for make in (
        lambda: kind(),
        lambda: object.__new__(kind),
        lambda: copy.copy(exporter),
        lambda: pickle.dumps(exporter),
        lambda: type("Derived", (kind,), {}),
    ):
        with pytest.raises(TypeError, match="Tensor"):
            make()


# load_state_dict


class Mapping:
    """The least that is a mapping."""

    def __init__(self, items: dict) -> None:
        self.items = items

    def keys(self):
        return iter(self.items)

    def __getitem__(self, name):
        return self.items[name]


def f_order(a: np.ndarray) -> np.ndarray:
    return np.asfortranarray(a)


def every_second(a: np.ndarray) -> np.ndarray:
    spaced = np.zeros((*a.shape[:-1], 2 * a.shape[-1]))
    spaced[..., ::2] = a
    return spaced[..., ::2]


def backwards(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a[::-1])[::-1]


def read_only(a: np.ndarray) -> memoryview:
    return memoryview(a).toreadonly()


def repeated_rows(a: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(a, a.shape, (0,) * a.ndim)


def of_floats(a: np.ndarray) -> np.ndarray:
    return a.astype("f4").T.copy().T


def swapped(a: np.ndarray) -> np.ndarray:
    return a.astype(a.dtype.newbyteorder())


def lists(a: np.ndarray) -> list[Any]:
    return a.tolist()


LAYOUTS = [np.array, f_order, every_second, backwards, read_only, memoryview, repeated_rows]


@pytest.mark.parametrize("form", [*LAYOUTS, of_floats, swapped, lists, Lends])
@pytest.mark.parametrize("wrap", [dict, Mapping])
def test_load_state_dict_reads_any_layout_and_type(form, wrap):
    rng = np.random.default_rng(1)
    source = {name: form(rng.uniform(-1, 1, shape)) for name, shape in reversed(SHAPES.items())}
    assert nn.load_state_dict(wrap(source)) is None
    assert [nn.data(i) for i in range(PARAMETERS)] == in_order({name: np.array(a) for name, a in source.items()})


def test_load_state_dict_reads_the_models_own_memory():
    nn.forward(3, IMAGE)
    nn.backward()
    data, grad = [[element(i) for i in range(PARAMETERS)] for element in (nn.data, nn.grad)]
    nn.load_state_dict(nn.state_dict())
    assert [nn.data(i) for i in range(PARAMETERS)] == data
    nn.load_state_dict(nn.grad_dict())
    assert [nn.data(i) for i in range(PARAMETERS)] == grad
    assert [nn.grad(i) for i in range(PARAMETERS)] == grad

    views = nn.state_dict()
    flipped = views | {"layers.0.bias": views["layers.0.bias"][::-1]}
    nn.load_state_dict(flipped)
    assert views["layers.0.bias"].tolist() == [grad[785 * j + 784] for j in reversed(range(50))]


def test_load_state_dict_keeps_the_gradients():
    nn.forward(3, IMAGE)
    nn.backward()
    grad = [nn.grad(i) for i in range(PARAMETERS)]
    nn.load_state_dict({name: np.zeros(shape) for name, shape in SHAPES.items()})
    assert [nn.grad(i) for i in range(PARAMETERS)] == grad


def test_a_changing_mapping_leaves_the_model_whole():
    class Rude(dict):
        def __getitem__(self, name):
            nn.zero_grad()
            nn.update()
            return np.full(SHAPES[name], 2.0)

    nn.load_state_dict(Rude(dict.fromkeys(SHAPES)))
    assert {nn.data(i) for i in range(PARAMETERS)} == {2.0}


# Life and death of views


def dark_row_is_checked() -> bool:
    """Whether forward() looks at the weights of a pixel that is 0: it does while a view of them is alive.

    A nan is slipped in behind its back.
    """
    view = np.asarray(nn.state_dict()["layers.0.weight"])
    weight = ctypes.c_double.from_address(view.ctypes.data + view.strides[1] * DARK)
    del view
    before, weight.value = weight.value, math.nan
    loss = nn.forward(3, IMAGE)
    weight.value = before
    return math.isnan(loss)


def test_rows_are_skipped_again_when_the_last_view_is_gone():
    assert not dark_row_is_checked()
    for order in itertools.permutations(range(4)):
        views = nn.state_dict()
        weight = views.pop("layers.0.weight")
        handles: list[object] = [
            np.asarray(views.pop("layers.1.bias")),
            np.asarray(weight)[2:5],
            memoryview(weight.obj),
            weight,
        ]
        del views, weight
        for i in order:
            assert dark_row_is_checked() == any(handle is not None for handle in handles[1:])
            handles[i] = None
        assert not dark_row_is_checked()


def test_views_of_other_tensors_cost_nothing():
    views = nn.state_dict(), nn.grad_dict()
    for tensors in views:
        del tensors["layers.0.weight"]
    assert len(views[0]) == len(views[1]) == 3
    assert not dark_row_is_checked()
    assert not dark_gradient_is_cleared()


def dark_gradient_is_cleared() -> bool:
    """Whether zero_grad() visits the gradients of a pixel that was 0: it does while a view of them is alive."""
    view = np.asarray(nn.grad_dict()["layers.0.weight"])
    gradient = ctypes.c_double.from_address(view.ctypes.data + view.strides[1] * DARK)
    del view
    nn.zero_grad()
    gradient.value = 1.0
    nn.zero_grad()
    left, gradient.value = gradient.value, 0.0
    return left == 0.0


def test_gradients_are_skipped_again_when_the_last_view_is_gone():
    assert not dark_gradient_is_cleared()
    for order in itertools.permutations(range(3)):
        views = nn.grad_dict()
        weight = views["layers.0.weight"]
        handles: list[object] = [np.asarray(views["layers.1.bias"]), np.asarray(weight), memoryview(weight.obj)]
        del views, weight
        for i in order:
            assert dark_gradient_is_cleared() == any(handle is not None for handle in handles[1:])
            handles[i] = None
        assert not dark_gradient_is_cleared()


def test_an_array_outlives_the_view_that_it_was_made_from():
    view = nn.state_dict()["layers.0.weight"]
    weight = np.asarray(view)
    view.release()
    with pytest.raises(ValueError, match="released"):
        view[0, 0]
    weight[7, LIT] = 0.75
    assert nn.data(7 * 785 + LIT) == 0.75
    assert dark_row_is_checked()
    del weight
    assert not dark_row_is_checked()


def test_views_in_a_cycle_are_collected():
    views = nn.state_dict()
    views["self"] = views
    del views
    gc.collect()
    assert not dark_row_is_checked()


def test_failing_requests_for_a_buffer_leave_no_view_behind():
    exporter = nn.state_dict()["layers.0.weight"].obj
    for _ in range(3):
        with pytest.raises(BufferError):
            hashlib.sha256(exporter)
    assert not dark_row_is_checked()


# Other shapes and names


def load(program: Program, folder, name: str):
    return load_extension(build(program, folder, name, flags=["-O0"]), name)


def nested(*shape: int):
    return [nested(*shape[1:]) for _ in range(shape[0])] if shape else Value(1.0)


def flat(tree) -> list[Value]:
    return [tree] if isinstance(tree, Value) else [value for inner in tree for value in flat(inner)]


def product_with_one_input(parameters: dict[str, object]) -> Program:
    x = Value(0.0)
    return Program(Floats([x]), None, parameters, loss=total([p * x for p in flat(list(parameters.values()))]))


def test_tensors_have_zero_to_eight_dimensions_and_any_name(tmp_path):
    shapes = {"scalar": (), "größe.*/%s": (3,), 'quote"\\': (2, 1, 3), "eight": (1, 2, 1, 1, 2, 1, 1, 3), "int": (1,)}
    module = load(product_with_one_input({name: nested(*shape) for name, shape in shapes.items()}), tmp_path, "shapes")
    assert {name: view.shape for name, view in module.state_dict().items()} == shapes
    rng = np.random.default_rng(0)
    source = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    module.load_state_dict(source)
    for name, view in module.state_dict().items():
        assert np.array_equal(view, source[name])
    assert module.data(0) == module.state_dict()["scalar"][()] == source["scalar"]
    module.load_state_dict(module.state_dict())
    with pytest.raises(ValueError, match=r"größe\.\*/%s must have the shape \(3,\), got \(\)"):
        module.load_state_dict(source | {"größe.*/%s": source["scalar"]})
    scalar = np.asarray(module.state_dict()["scalar"])
    scalar[()] = 7.0
    assert module.data(0) == 7.0


def test_a_tensor_of_nine_dimensions_is_refused():
    with pytest.raises(ValueError, match=r"'deep'.*8 dimensions"):
        product_with_one_input({"deep": nested(1, 1, 1, 1, 1, 1, 1, 1, 2)})


@pytest.mark.parametrize("name", ["", "nul\0"])
def test_a_name_that_c_cannot_hold_is_refused(name):
    with pytest.raises(ValueError, match="name"):
        product_with_one_input({name: nested(2)})


@pytest.mark.slow
def test_parameters_in_an_odd_order_are_numbered_by_it(tmp_path):
    parameters = {"a": nested(2, 3), "b": nested(4)}
    order = flat(list(parameters.values()))
    random.Random(0).shuffle(order)
    for i, value in enumerate(order):
        value.data = float(i)
    plain = product_with_one_input(parameters)
    module = load(Program(plain.inputs, None, parameters, plain.loss, order=order), tmp_path, "order")
    assert [module.data(i) for i in range(10)] == list(range(10))
    assert module.state_dict()["a"].tolist() == [[value.data for value in row] for row in parameters["a"]]
    assert module.state_dict()["b"].tolist() == [value.data for value in parameters["b"]]


@pytest.mark.slow
def test_a_model_without_parameters_has_empty_dicts(tmp_path):
    x = Value(0.0)
    module = load(Program(Floats([x]), None, {}, loss=x * x), tmp_path, "empty")
    assert module.state_dict() == module.grad_dict() == {}
    module.load_state_dict({})
    assert module.train(array("d", [3.0, 1.0]), None, epochs=2) == [5.0, 5.0]
    with pytest.raises(ValueError, match="the number of a parameter"):
        module.data(0)


# Copies


@pytest.fixture(scope="module")
def instance(tmp_path_factory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MICROGRAD_CACHE", str(tmp_path_factory.mktemp("cache")))
        return codegen.compile(models.mlp_of_floats(dtype="float32"))


@pytest.fixture(scope="module")
def in_python(tmp_path_factory) -> Iterator[object]:
    """Imported, as pickles name it."""
    module = Generated(models.mlp(), tmp_path_factory.mktemp("python")).module
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        yield module


COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    **{f"pickle {p}": lambda d, p=p: pickle.loads(pickle.dumps(d, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)},
    "twice": lambda d: copy.deepcopy(pickle.loads(pickle.dumps(copy.deepcopy(d)))),
    "inside": lambda d: copy.deepcopy({"epoch": 3, "best": d})["best"],
}


@pytest.mark.slow
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("module", ["nn", "instance", "in_python"])
def test_state_dicts_pickle_and_copy(module, how, request):
    subject = nn if module == "nn" else request.getfixturevalue(module)
    for views in (subject.state_dict(), subject.grad_dict()):
        copied = COPIES[how](views)
        assert isinstance(copied, dict)
        assert list(copied) == list(views)
        for name, view in copied.items():
            original = views[name]
            assert type(view) is memoryview
            assert (view.format, view.shape, view.readonly) == (original.format, original.shape, False)
            assert view.tobytes() == original.tobytes()
            assert not np.shares_memory(np.asarray(view), np.asarray(original))
    best, view = COPIES[how](subject.state_dict()), next(iter(subject.state_dict().values()))
    expected = subject.data(0)
    view[(0,) * view.ndim] = 7.0
    subject.load_state_dict(best)
    assert subject.data(0) == expected


def test_a_state_dict_with_other_buffers_is_copied_too():
    views = nn.state_dict()
    views["extra"] = np.arange(6.0).reshape(2, 3).T
    assert copy.deepcopy(views)["extra"].tolist() == [[0, 3], [1, 4], [2, 5]]
    views["extra"] = "text"
    with pytest.raises(TypeError, match="a bytes-like object is required"):
        pickle.dumps(views)


def test_a_pickle_is_read_in_a_process_without_numpy(run_python, tmp_path):
    nn.reset(5)
    path = tmp_path / "state.pickle"
    path.write_bytes(pickle.dumps(nn.state_dict()))
    script = """
import nn, pathlib, pickle, sys
nn.load_state_dict(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()))
print(nn.data(785 * 7 + 3).hex(), "numpy" in sys.modules)
"""
    assert run_python(script, str(path)).split() == [nn.data(785 * 7 + 3).hex(), "False"]
