"""Files that codegen.from_onnx refuses, each with one line that says what and where."""

from __future__ import annotations

import random
import tracemalloc
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from onnx_models import model, node, onnx, perceptron, saved

import codegen
from codegen import OnnxError
from codegen.onnx import module
from codegen.onnx.tensors import TooLarge
from micrograd.__main__ import main
from tools.fuzz import onnx_files
from tools.fuzz.common import Wrong

HUGE = 2**40


def refused(tmp_path, found, *parts, error=OnnxError, **options):
    path = saved(tmp_path, found) if hasattr(found, "SerializeToString") else found
    with pytest.raises(error) as caught:
        codegen.from_onnx(path, **options)
    assert type(caught.value) is error
    message = str(caught.value)
    for part in (str(path), *parts):
        assert part in message
    assert "\n" not in message


def one(op, inputs, weights=None, shape=(1, 4), **attributes):
    """A model of one node, that reads x."""
    return model([node(op, inputs, ["y"], name="the_node", **attributes)], {"x": shape}, ["y"], weights or {})


def test_an_op_that_is_missing_is_named_with_its_node(tmp_path):
    refused(tmp_path, one("TopK", ["x", "k"], {"k": np.array([2])}), "'the_node'", "TopK", "not supported")
    found = one("Relu", ["x"])
    found.graph.node[0].domain = "com.example"
    refused(tmp_path, found, "com.example.Relu", "not supported")
    found.graph.node[0].op_type = "Re\nlu\x1b[31m"
    refused(tmp_path, found, "com.example.Re?lu?[31m")


@pytest.mark.parametrize(
    ("op", "inputs"), [("Ceil", "ss"), ("Floor", "ss"), ("Round", "ss"), ("Mod", "sss"), ("Mod", "s")]
)
def test_rounding_takes_no_input_for_the_place_of_its_result(op, inputs, tmp_path):
    """It would have changed s, which others read."""
    s = np.float32([[1, 1.5, 2, 2.5]])
    nodes = [node("Mul", ["x", "s"], ["y"]), node(op, list(inputs), ["z"], name="the_node")]
    found = model(nodes, {"x": (1, 4)}, ["y", "z"], {"s": s})
    refused(tmp_path, found, "'the_node'", f"{len(inputs)} inputs, expected {1 + (op == 'Mod')}")


def test_what_is_no_onnx_file(tmp_path):
    path = tmp_path / "text.onnx"
    for content in (b"", b"hello", bytes(100), b"\x08" * 50):
        path.write_bytes(content)
        refused(tmp_path, path, "not a")
    refused(tmp_path, tmp_path, "not a file")
    with pytest.raises(FileNotFoundError):
        codegen.from_onnx(tmp_path / "missing.onnx")


def test_dimensions_that_may_vary(tmp_path):
    found = one("Relu", ["x"], shape=["batch", "sequence", 3])
    refused(tmp_path, found, "'sequence'", "'x'", "dimensions={'sequence': ...}")
    program = codegen.from_onnx(saved(tmp_path, found), dimensions={"sequence": 5})
    assert program.input_parts[0].shape == (5, 3)
    refused(tmp_path, found, "no dimension is called 'time'", "batch, sequence", dimensions={"time": 5})
    refused(tmp_path, found, "at least 1", "-5", dimensions={"sequence": -5})
    refused(tmp_path, one("Relu", ["x"], shape=[1, None]), "axis 1", "export the model with a length")


BOMBS = {
    "ConstantOfShape": one("ConstantOfShape", ["s"], {"s": np.array([HUGE])}),
    "Expand": one("Expand", ["x", "s"], {"s": np.array([HUGE, 4])}),
    "Tile": one("Tile", ["x", "s"], {"s": np.array([HUGE, 1])}),
    "Pad": one("Pad", ["x", "s"], {"s": np.array([0, HUGE, 0, 0])}),
    "Range": one("Range", ["a", "b", "c"], {"a": np.array(0), "b": np.array(HUGE), "c": np.array(1)}),
    "Gather": one("Gather", ["x", "s"], {"s": np.zeros(3000, np.int8)}, (10000, 4), axis=1),
    "MatMul": one("MatMul", ["x", "w"], {"w": np.ones((1, 4000))}, shape=(4000, 1)),
    "Conv": one("Conv", ["x", "w"], {"w": np.ones((1, 1, 3, 3))}, shape=(1, 1, 4, 4), pads=[HUGE] * 4),
    "MaxPool": one("MaxPool", ["x"], shape=(1, 1, 4, 4), kernel_shape=[HUGE, 1], pads=[HUGE, 0, HUGE, 0]),
    "ConvTranspose": one(
        "ConvTranspose",
        ["x", "w"],
        {"w": np.ones((1, 1, 3, 3))},
        shape=(1, 1, 4, 4),
        output_padding=[9, 9],
        strides=[HUGE, HUGE],
    ),
    "input": one("Relu", ["x"], shape=(HUGE, 4)),
    "Add": one("Add", ["x", "w"], {"w": np.ones((4000, 1))}, shape=(1, 6000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_with_a_number_before_it_is_made(tmp_path, name):
    path = saved(tmp_path, BOMBS[name])
    size = path.stat().st_size
    tracemalloc.start()
    try:
        refused(tmp_path, path, "scalars", "limit of 20,000,000", error=TooLarge)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000 + 12 * size  # the Values of the input are there


def test_reshapes_do_not_multiply(tmp_path):
    refused(tmp_path, one("Reshape", ["x", "s"], {"s": np.array([HUGE, -1])}), "4 elements", f"{HUGE}")
    refused(tmp_path, one("Reshape", ["x", "s"], {"s": np.array([0, 0, 0])}), "cannot have the shape")
    refused(tmp_path, one("Unsqueeze", ["x", "s"], {"s": np.arange(60)}), "dimensions")


def test_the_limit_is_an_argument(tmp_path):
    path = saved(tmp_path, perceptron())
    refused(tmp_path, path, "limit of 150", error=TooLarge, limit=150)
    codegen.from_onnx(path, limit=400)


def test_tensors_without_their_numbers(tmp_path):
    for change in (
        lambda t: t.dims.append(HUGE),
        lambda t: setattr(t, "raw_data", t.raw_data[:-1]),
        lambda t: setattr(t, "data_type", 999),
        lambda t: t.dims.__setitem__(0, -8),
        lambda t: t.dims.extend([1] * 100),
    ):
        found = perceptron()
        change(found.graph.initializer[0])
        refused(tmp_path, found, "'0.weight'")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "link.bin", "missing.bin", "", ".", "a\0b"])
def test_tensors_in_other_files_stay_in_the_folder(tmp_path, location):
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(128))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    found = perceptron()
    external(found.graph.initializer[0], location)
    refused(folder, found, "'0.weight'", "no file in the model's folder")


def external(tensor, location, **more):
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))


def test_tensors_in_a_file_beside_it_are_read(tmp_path):
    found = perceptron()
    numbers = found.graph.initializer[0].raw_data
    (tmp_path / "weights.bin").write_bytes(b"1234" + numbers)
    external(found.graph.initializer[0], "weights.bin", offset=4, length=128)
    program = codegen.from_onnx(saved(tmp_path, found))
    assert [v.data for row in program.parameters["0.weight"] for v in row] == np.frombuffer(numbers, "f4").tolist()
    for says in ({"offset": 5}, {"offset": -4}, {"length": 2**60}, {"offset": 2**70}):
        bad = perceptron()
        external(bad.graph.initializer[0], "weights.bin", **says)
        refused(tmp_path, bad, "'0.weight'", "128 bytes")


def test_graphs_that_are_none(tmp_path):
    found = perceptron()
    found.graph.node[1].input[0] = "nowhere"
    refused(tmp_path, found, "node 1 (Relu)", "'nowhere'")
    found = perceptron()
    found.graph.node[1].output[0] = "h"
    refused(tmp_path, found, "'h'", "there already")
    found = perceptron()
    found.graph.output[0].name = "q"
    refused(tmp_path, found, "'q'")
    found = perceptron()
    del found.graph.output[:]
    refused(tmp_path, found, "no outputs")
    found = one("If", ["x"], then_branch=perceptron().graph, else_branch=perceptron().graph)
    refused(tmp_path, found, "If", "is a graph")
    refused(tmp_path, one("Relu", ["x"], nonsense=3), "Relu", "nonsense")
    refused(tmp_path, one("Add", ["x"]), "Add")
    refused(tmp_path, one("Identity", ["c"], {"c": np.ones(3)}), "no output depends")


@pytest.mark.parametrize("name", [b"Relu", b"logits", b"0.weight", b"batch", b"transB", b"test"])
def test_names_that_are_no_text(tmp_path, name):
    """Protobuf reads them as bytes."""
    path = tmp_path / "model.onnx"
    content = perceptron().SerializeToString()
    assert name in content
    path.write_bytes(content.replace(name, b"\xff" + name[1:]))
    refused(tmp_path, path, "a name is no text")


def test_what_is_decided_only_when_a_model_runs(tmp_path):
    refused(tmp_path, one("Floor", ["x"]), "Floor", "must be constant")
    refused(tmp_path, one("Cast", ["x"], to=7), "int64", "when the graph is made")
    refused(tmp_path, one("ArgMax", ["x"], shape=(2, 3), axis=1), "of one row")
    nodes = [node("ArgMax", ["x"], ["i"], axis=1), node("Add", ["i", "i"], ["y"])]
    refused(tmp_path, model(nodes, {"x": (1, 3)}, ["y"]), "Add", "ArgMax has decided")
    found = one("Relu", ["x"])
    found.graph.input[0].type.tensor_type.elem_type = 7
    refused(tmp_path, found, "'x'", "not of floats")


def test_versions_before_numpys_broadcasting(tmp_path):
    found = model([node("Relu", ["x"], ["y"])], {"x": [1, 2]}, ["y"], opsets=[onnx.helper.make_opsetid("", 6)])
    refused(tmp_path, found, "version 6")


def test_losses_that_are_none(tmp_path):
    path = saved(tmp_path, perceptron())
    with pytest.raises(ValueError, match="cross_entropy, nll, binary_cross_entropy, mse, not 'mae'"):
        codegen.from_onnx(path, loss="mae")
    refused(tmp_path, path, "one element", "has 3", loss="binary_cross_entropy")


def test_no_mistake_of_a_file_warns(tmp_path):
    """Dividing constants by 0 is IEEE's, and no text on the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model(
            [node("Div", ["a", "z"], ["inf"]), node("Min", ["x", "inf"], ["y"])],
            {"x": [1, 2]},
            ["y"],
            {"a": np.ones(2), "z": np.zeros(2)},
        )
        codegen.from_onnx(saved(tmp_path, found))


def test_the_fuzz_target_finds_nothing_in_its_seeds_and_damaged_ones(monkeypatch):
    target, draw, seeds = onnx_files.Onnx(), random.Random(1), onnx_files.seeds()
    for seed in seeds[: len(onnx_files.models())] + draw.sample(seeds, 100):
        target(seed)
        damaged = bytearray(seed)
        for _ in range(3):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        target(bytes(damaged))


def test_the_fuzz_target_notices_what_is_wrong(monkeypatch):
    target = onnx_files.Onnx()
    monkeypatch.setattr(module, "_text", repr)
    for seed in onnx_files.seeds():
        target(seed)  # which quotes does not matter
    monkeypatch.setattr(module, "SAME", {"Relu"})
    # A gain of -1, and a Relu behind it that the module leaves out
    (content,) = (each for each in onnx_files.models() if b"LayerNormalization" in each)
    found = content.replace(b"\x00\x00\x80\x3f", b"\x00\x00\x80\xbf")
    with pytest.raises(Wrong, match="a module of other numbers"):
        target(bytes([255]) + found)


def test_a_loss_function_returns_two_things(tmp_path):
    with pytest.raises(TypeError, match=r"must return \(loss, targets\), not Value"):
        codegen.from_onnx(saved(tmp_path, perceptron()), loss=lambda outputs: outputs["p"].sum())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pixels", "nan"), "--pixels: expected a positive number, got"),
        (("--pixels", "0"), "--pixels: expected a positive number, got"),
        (("-o", "numpy.py"), "numpy.py would hide the module numpy"),
        (("-o", "nn.py"), "nn.py would hide the module nn"),
    ],
)
def test_options_of_import(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, perceptron())
    with pytest.raises(SystemExit, match="2") if "--pixels" in options else nullcontext():
        assert main(["import", str(path), *options]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_the_commands_errors_are_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, one("Relu", ["x"], shape=["batch", "time"]), "my net.onnx")

    def says(*arguments):
        assert main(["import", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err

    assert "'time'" in says("my net.onnx", "-o", "net.py")
    assert "-o model.py" in says("my net.onnx")
    assert "expected NAME=LENGTH" in says("my net.onnx", "--dimension", "time", "-o", "net.py")
    assert "No such file" in says("other.onnx")
    assert "limit of 3" in says("my net.onnx", "-o", "net.py", "--limit", "3", "--dimension", "time=4")
    assert "one element" in says("my net.onnx", "-o", "net.py", "--dimension=time=4", "--loss=binary_cross_entropy")
    assert list(tmp_path.iterdir()) == [tmp_path / "my net.onnx"]
    assert main(["import", "my net.onnx", "-o", "net.py", "--dimension", "time=4"]) == 0
    capsys.readouterr()
    assert "net.py exists: --force" in says("my net.onnx", "-o", "net.py", "--dimension", "time=4")
