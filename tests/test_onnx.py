"""codegen.from_onnx and `micrograd import`: what becomes of a file, and that it trains and freezes."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx_models import image_net, model, node, onnx, perceptron, saved

import codegen
from codegen.onnx.ops import OPS
from codegen.passes.freeze import frozen_program
from micrograd.arrays import grad
from micrograd.commands.tree import parsed


def reference(found, x):
    """What onnx' own evaluator computes, of one example or many."""
    from onnx.reference import ReferenceEvaluator

    (result,) = ReferenceEvaluator(found).run(
        None, {found.graph.input[0].name: x if x.dtype == int else x.astype(np.float32)}
    )
    return result


def interpreted(program, x):
    """The outputs of the interpreted graph for one example."""
    for value, number in zip(program.input_values, np.ravel(x).tolist(), strict=True):
        value.data = number
    found = {}
    for name, values in program.outputs.items():
        found[name] = np.array([value.recompute() if value._prev else value.data for value in values])
    return found


def grads(program):
    return {name: grad(w).tolist() for name, w in program.parameters.items()}


def command(*arguments: object) -> int:
    options = parsed([str(each) for each in arguments])
    return options.command(options)


def test_a_perceptron_predicts_what_onnx_says(tmp_path, unoptimized):
    found = perceptron()
    program = codegen.from_onnx(saved(tmp_path, found))
    assert [(t.name, t.shape) for t in program.tensors] == [
        ("0.weight", (8, 4)),
        ("0.bias", (8,)),
        ("2.weight", (3, 8)),
        ("2.bias", (3,)),
    ]
    assert program.loss is None
    assert list(program.outputs) == ["p", "probabilities"]
    x = np.random.default_rng(0).normal(size=(5, 4))
    model = codegen.compile(program)
    got = np.asarray(model.outputs_batch(x)["p"])
    assert np.allclose(got, reference(found, x), atol=1e-6)
    assert np.asarray(model.probabilities_batch(x)).tolist() == got.tolist()
    assert list(model.predict_batch(x)) == got.argmax(axis=1).tolist()
    for row, one in zip(x, got, strict=True):
        assert interpreted(program, row)["p"].tolist() == one.tolist()  # bits


def test_an_image_net_with_shapes_that_nodes_compute(tmp_path):
    found = image_net()
    program = codegen.from_onnx(saved(tmp_path, found))
    assert [t.name for t in program.tensors] == ["conv.weight", "bn.weight", "bn.bias", "fc.weight", "fc.bias"]
    assert program.input_parts[0].shape == (2, 8, 8)
    x = np.random.default_rng(0).normal(size=(1, 2, 8, 8))
    assert np.allclose(interpreted(program, x)["logits"], reference(found, x), atol=1e-5)


def blobs():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    return rng.normal(size=(300, 4)) + 4 * np.eye(4)[labels], labels.astype(np.uint8)


def test_an_imported_model_is_fine_tuned_and_frozen(tmp_path, unoptimized):
    path = saved(tmp_path, perceptron())
    program = codegen.from_onnx(path, loss="cross_entropy")
    model = codegen.compile(program)
    X, y = blobs()
    before = {name: np.array(view) for name, view in model.state_dict().items()}
    assert np.array_equal(before["0.bias"], onnx.numpy_helper.to_array(onnx.load(path).graph.initializer[1]))
    loss, accuracy = model.evaluate(X, y)
    model.train(X, y, batch_size=10, learning_rate=0.1, epochs=20, seed=1)
    after, better = model.evaluate(X, y)
    assert after < loss / 2
    assert better > 0.9 > accuracy
    assert not np.array_equal(before["0.bias"], model.state_dict()["0.bias"])
    weights = {name: np.array(view) for name, view in model.state_dict().items()}
    frozen = codegen.compile(frozen_program(program, weights))
    assert np.asarray(frozen.outputs_batch(X)["p"]).tolist() == np.asarray(model.outputs_batch(X)["p"]).tolist()


@pytest.mark.parametrize("loss", ["cross_entropy", "nll"])
def test_softmax_is_left_out_of_the_cross_entropy_alone(tmp_path, loss):
    """The gradients of both are those of the cross-entropy of the logits."""
    logits = codegen.from_onnx(saved(tmp_path, perceptron(softmax=False)), loss="cross_entropy")
    other = codegen.from_onnx(saved(tmp_path, perceptron()), loss=loss)
    found = []
    for program in (logits, other):
        interpreted(program, [1.0, -2.0, 0.5, 0.0])
        program.target_values[1].data = 1.0
        program.loss.recompute()
        program.loss.backward()
        found.append([value.grad for value in program.parameter_values])
    assert np.allclose(*found, rtol=1e-12)
    if loss == "cross_entropy":
        assert found[0] == found[1]  # bits


def test_a_loss_of_ones_own(tmp_path):
    from micrograd.arrays import array

    def squared(outputs):
        target = array(np.zeros(3))
        return ((outputs["logits"].ravel() - target) ** 2).sum(), codegen.Floats(target)

    path = saved(tmp_path, perceptron(softmax=False))
    program = codegen.from_onnx(path, loss=squared)
    mse = codegen.from_onnx(path, loss="mse")
    for each in (program, mse):
        interpreted(each, [1.0, 2.0, 3.0, 4.0])
    assert program.loss.recompute() == pytest.approx(3 * mse.loss.recompute())


def test_argmax_is_the_prediction(tmp_path):
    """With the labels' lookup behind it, as exporters write classifiers."""
    found = perceptron()
    found.graph.node.extend(
        [
            node("ArgMax", ["p"], ["best"], axis=1),
            onnx.helper.make_node("ArrayFeatureExtractor", ["classes", "best"], ["looked_up"], domain="ai.onnx.ml"),
            node("Cast", ["looked_up"], ["label"], to=7),
        ]
    )
    found.graph.initializer.append(onnx.numpy_helper.from_array(np.array([7, 8, 9]), "classes"))
    found.graph.output.insert(0, onnx.helper.make_tensor_value_info("label", 7, None))
    program = codegen.from_onnx(saved(tmp_path, found))
    assert list(program.outputs) == ["p", "probabilities"]
    assert program.prediction == "p"
    x = np.random.default_rng(0).normal(size=4)
    assert np.allclose(interpreted(program, x)["p"], reference(perceptron(), x[None]), atol=1e-6)


def test_the_command_writes_a_module_with_the_same_bits(tmp_path, capsys):
    for found in (perceptron(), image_net()):
        path = saved(tmp_path, found)
        program = codegen.from_onnx(path, loss="cross_entropy")
        assert command("import", path, "-o", tmp_path / "net.py", "--loss", "cross_entropy", "--force") == 0
        written = codegen.load(tmp_path / "net.py")
        assert {t.name: t.shape for t in written.tensors} == {t.name: t.shape for t in program.tensors}
        x = np.random.default_rng(0).normal(size=len(program.input_values))
        for each in (written, program):
            interpreted(each, x)
            each.target_values[0].data = 1.0
        assert [value.data for value in written.outputs["probabilities"]] == [
            value.data for value in program.outputs["probabilities"]
        ]
        assert written.loss.recompute() == program.loss.recompute()
        written.loss.backward()
        program.loss.backward()
        assert grads(written) == grads(program)
        text = (tmp_path / "net.py").read_text()
        assert max(map(len, text.splitlines())) <= 120
        assert capsys.readouterr().out.split()[0] == str(tmp_path / "net.py")


@pytest.mark.parametrize(("scale", "shown"), [(1 / 255, "1 / 255"), (0.3, "0.3"), (3.0, "3.0")])
def test_images_that_come_as_bytes(tmp_path, scale, shown):
    path = saved(tmp_path, image_net())
    program = codegen.from_onnx(path, pixels=scale)
    assert command("import", path, "-o", tmp_path / "net.py", "--pixels", scale) == 0
    written = codegen.load(tmp_path / "net.py")
    for each in (program, written):
        (part,) = each.input_parts
        assert (part.kind, part.scale, part.shape) == ("pixels", scale, (2, 8, 8))
    assert f"Pixels(x[0], {shown})" in (tmp_path / "net.py").read_text()
    with pytest.raises(ValueError, match="the scale of pixels must be finite"):
        codegen.from_onnx(path, pixels=float("nan"))


def test_a_module_needs_no_onnx(tmp_path, monkeypatch):
    command("import", saved(tmp_path, perceptron()), "-o", tmp_path / "net.py")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    assert codegen.load(tmp_path / "net.py").prediction == "p"
    with pytest.raises(ImportError, match="pip install 'micrograd-nn\\[onnx\\]'"):
        codegen.from_onnx(tmp_path / "model.onnx")


def test_names_in_a_file_are_only_names(tmp_path):
    """They may be Python, quotes, or the names of what the module uses."""
    evil = '"); import os #\n\\'
    names = {"x": evil, "0.weight": "w", "h": "np", "r": "class", "logits": "ops", "p": '"""' + evil}
    found = perceptron()
    for each in found.graph.node:
        for field in (each.input, each.output):
            field[:] = [names.get(name, name) for name in field]
    for each in (*found.graph.input, *found.graph.output, *found.graph.initializer):
        each.name = names.get(each.name, each.name)
    found.producer_name = '"""\nimport os'
    path = saved(tmp_path, found)
    command("import", path, "-o", tmp_path / "net.py")
    program, written = codegen.from_onnx(path), codegen.load(tmp_path / "net.py")
    assert list(written.outputs) == ['"""' + evil, "probabilities"] == list(program.outputs)
    assert (
        interpreted(written, np.ones(4))[names["p"]].tolist() == interpreted(program, np.ones(4))[names["p"]].tolist()
    )


def test_several_inputs_have_names(tmp_path):
    nodes = [node("Concat", ["a", "b"], ["ab"], axis=1), node("MatMul", ["ab", "w"], ["y"])]
    found = model(nodes, {"a": ["N", 2], "b": ["N", 1]}, ["y"], {"w": np.ones((3, 1))})
    program = codegen.from_onnx(saved(tmp_path, found))
    assert [(part.name, part.count) for part in program.input_parts] == [("a", 2), ("b", 1)]
    assert interpreted(program, [1.0, 2.0, 4.0])["y"].tolist() == [7.0]


def test_weights_are_what_ops_take_as_weights(tmp_path):
    """What scales an input, or is one number, is a constant; what a transposition moves is a weight still."""
    weights = {
        "std": [2.0, 4.0],
        "mean": [1.0, 1.0],
        "m": np.ones((3, 2)),
        "b": [5.0],
        "gain": [1.0, 1.0, 1.0],
        "k": 0.5,
    }
    nodes = [
        node("Mul", ["x", "std"], ["scaled"]),
        node("Add", ["scaled", "mean"], ["moved"]),
        node("Transpose", ["m"], ["mt"]),
        node("MatMul", ["moved", "mt"], ["product"]),
        node("Add", ["product", "b"], ["sum"]),
        node("Mul", ["sum", "gain"], ["more"]),
        node("Mul", ["more", "k"], ["y"]),
    ]
    found = model(nodes, {"x": [1, 2]}, ["y"], weights)
    program = codegen.from_onnx(saved(tmp_path, found))
    assert [t.name for t in program.tensors] == ["m", "b", "gain"]
    assert interpreted(program, [1.0, 2.0])["y"].tolist() == [(3.0 + 9.0 + 5.0) / 2] * 3


def test_what_constant_nodes_make_does_not_train(tmp_path):
    """As a normalisation without weights is exported, or a mask; but a file may have all its weights there."""

    def constant(name, numbers):
        return node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(numbers, np.float32), name))

    tensors = {"w": np.ones((2, 3)), "gain": np.ones(3), "shift": np.zeros(3), "mask": [0.0, -9.0, 0.0]}
    nodes = [
        node("MatMul", ["x", "w"], ["product"]),
        node("LayerNormalization", ["product", "gain", "shift"], ["h"]),
        node("Add", ["h", "mask"], ["y"]),
    ]
    for stored, expected in ({"w": tensors["w"]}, ["w"]), ({}, list(tensors)):
        made = [constant(name, numbers) for name, numbers in tensors.items() if name not in stored]
        path = saved(tmp_path, model([*made, *nodes], {"x": [1, 2]}, ["y"], stored))
        assert list(codegen.from_onnx(path, loss="cross_entropy").parameters) == expected
        command("import", path, "-o", tmp_path / "net.py", "--loss", "cross_entropy", "--force")
        assert set(codegen.load(tmp_path / "net.py").parameters) == set(expected)


def test_gains_and_biases_may_be_reshaped(tmp_path):
    """Those of torch.nn.GroupNorm are, if the exporter does not fold constants."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Unsqueeze", ["gain", "axes"], ["gains"]),
        node("Mul", ["h", "gains"], ["y"]),
    ]
    weights = {"w": np.ones((2, 3)), "gain": np.ones(3), "axes": np.array([0])}
    program = codegen.from_onnx(saved(tmp_path, model(nodes, {"x": [1, 2]}, ["y"], weights)))
    assert list(program.parameters) == ["w", "gain"]


ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "tests" / "onnx_files").glob("*.onnx"))


ROW = np.arange(-3.0, 3.0).reshape(1, 6)
TIMES = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
EDGES = {  # op, what follows x, attributes, x, and y
    "squares that are not summed": ("ReduceSumSquare", {}, {"noop_with_empty_axes": 1}, ROW, [9, 4, 1, 0, 1, 4]),
    "sizes that are not summed": ("ReduceL1", {}, {"noop_with_empty_axes": 1}, ROW, [3, 2, 1, 0, 1, 2]),
    "fewer indices than elements": ("GatherElements", {"i": [[[2, 0]]]}, {"axis": 2}, ROW.reshape(1, 2, 3), [-1, -3]),
    "borders that count": (
        *("AveragePool", {}, {"kernel_shape": [3], "auto_pad": "SAME_UPPER", "count_include_pad": 1}),
        *(np.full((1, 1, 4), 3.0), [2, 3, 3, 2]),
    ),
    "nothing to divide by": ("Normalizer", {}, {"norm": "MAX", "domain": "ai.onnx.ml"}, np.zeros((1, 3)), [0, 0, 0]),
    "far below a threshold": ("ThresholdedRelu", {}, {}, np.array([[-np.inf, 0, 2]]), [0, 0, 2]),
    "2.3 as a float32": (
        *("Resize", {"": None, "s": [1, 2.3]}, TIMES, np.arange(10.0).reshape(1, 10)),
        [0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 9, 9],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_nodes_at_their_edges(tmp_path, name):
    """What ONNX Runtime computes; onnx' own tests have none of these."""
    op, more, attributes, x, expected = EDGES[name]
    weights = {key: np.array(given) for key, given in more.items() if key}
    found = model([node(op, ["x", *more], ["y"], **attributes)], {"x": x.shape}, ["y"], weights)
    assert interpreted(codegen.from_onnx(saved(tmp_path, found)), x)["y"].tolist() == expected


def test_two_heads_are_two_outputs(tmp_path):
    weights = {"a": np.ones((6, 3)), "b": np.ones((6, 2))}
    nodes = [node("MatMul", ["x", name], [f"s{name}"]) for name in weights]
    nodes += [node("ArgMax", [f"s{name}"], [f"l{name}"], axis=1) for name in weights]
    program = codegen.from_onnx(saved(tmp_path, model(nodes, {"x": (1, 6)}, ["la", "lb"], weights)))
    assert list(program.outputs) == ["sa", "sb"]
    assert program.prediction == "sa"


def test_nll_is_not_of_logarithms(tmp_path):
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("LogSoftmax", ["h"], ["y"])]
    path = saved(tmp_path, model(nodes, {"x": (1, 6)}, ["y"], {"w": np.ones((6, 3))}))
    with pytest.raises(codegen.OnnxError, match="'y' has their logarithms, of which cross_entropy is"):
        codegen.from_onnx(path, loss="nll")


def test_a_softmax_over_groups_is_no_distribution(tmp_path):
    weights = {"three": np.array([3, 2]), "one": np.array([1, 6]), "w": np.ones((6, 6))}
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Reshape", ["h", "three"], ["g"])]
    nodes += [node("Softmax", ["g"], ["p"]), node("Reshape", ["p", "one"], ["y"])]
    assert list(codegen.from_onnx(saved(tmp_path, model(nodes, {"x": (1, 6)}, ["y"], weights))).outputs) == ["y"]


@pytest.mark.parametrize("name", ["file", "allow_pickle", "k.npy"])
def test_any_name_of_a_constant_fits_into_a_file(tmp_path, name):
    """Those of arguments of np.savez() too, and that of another constant as it is stored."""
    weights = {"k": np.arange(20.0), name: 100 + np.arange(20.0)}
    nodes = [node("Mul", ["x", "k"], ["h"]), node("Add", ["h", name], ["y"])]
    path = saved(tmp_path, model(nodes, {"x": (1, 20)}, ["y"], weights))
    assert command("import", path, "--output", tmp_path / "made.py") == 0
    program = codegen.load(tmp_path / "made.py")
    assert interpreted(program, np.ones(20))["y"].tolist() == [100 + 2.0 * i for i in range(20)]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_files_of_pytorch(path, tmp_path):
    """Written by torch.onnx.export(dynamo=False)."""
    program = codegen.from_onnx(path)
    part, rng = program.input_parts[0], np.random.default_rng(0)
    given = x = rng.normal(size=(1, *(part.shape or [part.count])))
    if part.kind == "tokens":
        given = rng.integers(0, part.classes, (1, part.numbers))
        x = np.eye(part.classes)[given]
    expected = reference(onnx.load(path), given).ravel()
    assert np.allclose(interpreted(program, x)["y"], expected, atol=1e-6)
    command("import", path, "-o", tmp_path / "net.py")
    written = codegen.load(tmp_path / "net.py")
    assert interpreted(written, x)["y"].tolist() == interpreted(program, x)["y"].tolist()


def test_integers_that_look_up_rows_are_tokens(tmp_path):
    """As torch.nn.Embedding is exported; the compiler finds the look-up again."""
    table = np.random.default_rng(0).normal(size=(27, 3))
    nodes = [
        node("Cast", ["x"], ["i"], to=7),
        node("Gather", ["embedding.weight", "i"], ["rows"]),
        node("Flatten", ["rows"], ["flat"]),
        node("Gemm", ["flat", "w"], ["y"]),
    ]
    weights = {"embedding.weight": table, "w": np.ones((12, 2))}
    path = saved(tmp_path, model(nodes, {"x": ["N", 4]}, ["y"], weights, kind=6))
    program = codegen.from_onnx(path, loss="cross_entropy")
    assert [(part.kind, part.numbers, part.classes) for part in program.input_parts] == [("tokens", 4, 27)]
    one_hot = np.eye(27)[[3, 0, 26, 3]]
    assert np.allclose(interpreted(program, one_hot)["y"], [table[[3, 0, 26, 3]].sum()] * 2, atol=1e-6)
    assert "embedding.weight.rows" in codegen.compile_program(program).explanation()
    command("import", path, "-o", tmp_path / "net.py", "--loss", "cross_entropy")
    written = codegen.load(tmp_path / "net.py")
    assert interpreted(written, one_hot)["y"].tolist() == interpreted(program, one_hot)["y"].tolist()


def test_where_chooses_by_computed_numbers(tmp_path):
    """Also where the other branch is infinite; the gradient is that of the chosen branch."""
    nodes = [
        node("Greater", ["x", "zero"], ["above"]),
        node("Exp", ["x"], ["e"]),
        node("Where", ["above", "x", "e"], ["y"]),
        node("ReduceSum", ["y"], ["sum"], keepdims=0),
    ]
    program = codegen.from_onnx(saved(tmp_path, model(nodes, {"x": [1, 3]}, ["y", "sum"], {"zero": 0.0})))
    assert interpreted(program, [1000.0, 0.0, -1.0])["y"].tolist() == [1000.0, 1.0, pytest.approx(np.exp(-1))]
    interpreted(program, [100.0, 0.0, -1.0])
    program.outputs["sum"][0].backward()
    assert [value.grad for value in program.input_values] == [1.0, 1.0, pytest.approx(np.exp(-1))]


PAGE = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_runs(tmp_path, unoptimized, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(codegen, "freeze", partial(codegen.freeze, target="python"))
    saved(tmp_path, perceptron(), "iris.onnx")
    names: dict[str, object] = {}
    for listing in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(listing, names)
    assert names["losses"][-1] < names["losses"][0] / 2
    command("import", "iris.onnx")
    written = (tmp_path / "iris.py").read_text()
    (shown,) = re.findall(r"```text\n(.*?)    return", PAGE, flags=re.DOTALL)
    assert shown in written


def test_the_page_has_every_op():
    """The table is that of `python -m tools.onnx_nodes --markdown`."""
    rows = set(re.findall(r"^\| (\w+) \| \d+ \| \d+ \|", PAGE, flags=re.MULTILINE))
    assert {name for domain, name in OPS if not domain and not name.endswith("_1")} <= rows | {"Not"}  # of version 1
    assert all(f"`{name}`" in PAGE for domain, name in OPS if domain)
    ((passed, supported),) = re.findall(r"^\| all \| (\d+) \| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert passed == supported
