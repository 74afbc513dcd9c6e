"""Whole models of other tools, imported and compiled, against ONNX Runtime; and ONNX's own tests of nodes."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from harness import nightly_but

import codegen
from tools import onnx_nodes

FILES = sorted((Path(__file__).resolve().parent / "onnx_files").glob("*.onnx"))
pytestmark = pytest.mark.slow


LARGE = ("test_averagepool_3d_default", "test_maxpool_3d_default")  # half of the time of all


@pytest.mark.parametrize("without", nightly_but([LARGE], [LARGE, ()]), ids=["but large ones", "all"])
def test_onnx_own_tests_of_nodes(without):
    rows = onnx_nodes.table(set(), without)
    failed = {name: why for row in rows.values() for name, why in row.failed.items()}
    assert not failed
    assert sum(len(row.passed) for row in rows.values()) > 900


def test_the_table_would_show_a_wrong_op(monkeypatch):
    from codegen.onnx.ops import OPS

    monkeypatch.setitem(OPS, ("", "Tanh"), OPS["", "Sigmoid"])
    row = onnx_nodes.table({"Tanh"})["Tanh"]
    assert set(row.failed) == {"test_tanh_example", "test_tanh"}


def estimators():
    pytest.importorskip("skl2onnx")
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, Ridge, RidgeClassifier
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import (
        MaxAbsScaler,
        MinMaxScaler,
        Normalizer,
        PolynomialFeatures,
        RobustScaler,
        StandardScaler,
    )
    from sklearn.svm import LinearSVC

    mlp = {"hidden_layer_sizes": (8, 6), "max_iter": 200, "random_state": 0}
    return {
        "mlp": (make_pipeline(StandardScaler(), MLPClassifier(**mlp)), "classes"),
        "mlp of two classes": (make_pipeline(MinMaxScaler(), MLPClassifier(activation="tanh", **mlp)), "two"),
        "mlp of names": (MLPClassifier(activation="logistic", **mlp), "names"),
        "mlp regressor": (make_pipeline(RobustScaler(), MLPRegressor(**mlp)), "number"),
        "mlp of two numbers": (MLPRegressor(**mlp), "numbers"),
        "logistic": (LogisticRegression(), "classes"),
        "logistic of two classes": (LogisticRegression(), "two"),
        "logistic of names": (make_pipeline(Normalizer(), LogisticRegression()), "names"),
        "linear": (make_pipeline(MaxAbsScaler(), LinearRegression()), "number"),
        "ridge": (Ridge(), "numbers"),
        "svc": (LinearSVC(), "classes"),
        "pca": (make_pipeline(PCA(2), LogisticRegression()), "classes"),
        "discriminant": (LinearDiscriminantAnalysis(), "classes"),
        "perceptron": (Perceptron(), "two"),
        "ridge classifier": (RidgeClassifier(), "classes"),
        "polynomial": (make_pipeline(PolynomialFeatures(2), Ridge()), "number"),
    }


def data():
    """Three flowers, as classes, names, two classes, one number and two."""
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    X = X.astype(np.float32)
    targets = {"classes": y, "two": (y == 1) * 1, "names": np.array(["a", "b", "c"])[y], "number": X[:, 0] * X[:, 1]}
    return X, targets | {"numbers": X[:, :2] * X[:, 2:]}


def test_models_of_scikit_learn(tmp_path, unoptimized):
    ort = pytest.importorskip("onnxruntime")
    X, targets = data()
    for name, (estimator, kind) in estimators().items():
        from skl2onnx import to_onnx

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(X, targets[kind])
            exported = to_onnx(estimator, X[:1])
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(exported.SerializeToString())
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        labels, *more = session.run(None, {session.get_inputs()[0].name: X})
        wanted = more[0] if more else labels
        if isinstance(wanted, list):  # a mapping of labels for each example
            wanted = np.array([list(row.values()) for row in wanted])
        program = codegen.from_onnx(path)
        model = codegen.compile(program)
        found = np.asarray(next(iter(model.outputs_batch(X).values())))
        assert np.allclose(found, wanted.reshape(found.shape), atol=2e-5), name
        if more:
            classes = np.unique(targets[kind])
            assert (classes[list(model.predict_batch(X))] == labels).mean() > 0.99, name


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_files_of_pytorch(path, unoptimized):
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    model = codegen.compile(codegen.from_onnx(path))
    rng = np.random.default_rng(0)
    (given,) = session.get_inputs()
    shape = (50, *given.shape[1:])
    x = rng.integers(0, 11, shape) if "int" in given.type else rng.normal(size=shape).astype(np.float32)
    found = np.asarray(model.outputs_batch(x.reshape(50, -1))["y"])
    assert np.allclose(found, session.run(None, {given.name: x})[0].reshape(50, -1), atol=2e-6)


def test_a_model_of_scikit_learn_goes_on_training(tmp_path, unoptimized):
    to_onnx = pytest.importorskip("skl2onnx").to_onnx

    X, targets = data()
    estimator = estimators()["mlp"][0]
    estimator[-1].max_iter = 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, targets["classes"])
    path = tmp_path / "mlp.onnx"
    path.write_bytes(to_onnx(estimator, X[:1]).SerializeToString())
    model = codegen.compile(codegen.from_onnx(path, loss="cross_entropy"))
    y = targets["classes"].astype(np.uint8)
    assert model.evaluate(X, y)[1] < 0.7
    model.train(X, y, batch_size=10, learning_rate=0.1, epochs=60, seed=1)
    assert model.evaluate(X, y)[1] > 0.95
