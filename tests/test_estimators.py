"""Estimators of scikit-learn as Programs: other numbers than the estimator's, or one that is taken for another.

The quick tests stand in for scikit-learn by objects with the same attributes; the slow ones have the real one.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from harness import nightly_but

import codegen
from codegen import from_sklearn


def fake(name: str, **attributes: object) -> Any:
    return type(name, (), {"__module__": "sklearn.fake", **attributes})()


def linear(name: str = "LinearRegression", **more: object) -> Any:
    return fake(name, **{"n_features_in_": 2, "coef_": np.array([2.0, -3.0]), "intercept_": 0.5} | more)


def compiled(program: codegen.Program) -> Any:
    return codegen.compile(program, optimize=0)


def test_a_pipeline_without_scikit_learn():
    scaler = fake(
        "StandardScaler", n_features_in_=2, mean_=np.array([1.0, 2]), scale_=np.array([2.0, 4]), with_mean=True
    )
    pipeline = fake("Pipeline", steps=[("s", scaler), ("off", "passthrough"), ("l", linear())])
    program = from_sklearn(pipeline)
    assert program.description == "LinearRegression behind StandardScaler"
    assert [(t.name, t.shape) for t in program.tensors] == [("coef", (2,)), ("intercept", (1,))]
    model = compiled(program)
    assert model.outputs([3.0, 10.0])["values"] == (0.5 + 2 * 1.0 - 3 * 2.0,)


@pytest.mark.parametrize(
    ("estimator", "error", "message"),
    [
        (fake("RandomForestClassifier"), TypeError, "not sklearn.fake.RandomForestClassifier"),
        (type("LinearRegression", (), {})(), TypeError, r"not .*test_estimators\.LinearRegression"),
        (3, TypeError, r"not builtins\.int"),
        (fake("Pipeline", steps=[]), TypeError, "has no steps"),
        (fake("Pipeline", steps=[("a", fake("PCA")), ("b", linear())]), TypeError, "not sklearn.fake.PCA"),
        (fake("Lasso"), ValueError, "the Lasso is not fitted: it has no n_features_in_"),
        (fake("MLPRegressor", n_features_in_=3), ValueError, "the MLPRegressor is not fitted: it has no coefs_"),
        (linear(coef_=np.array([1.0, math.nan])), ValueError, r"coef_ of the LinearRegression must be finite"),
        (linear(coef_=np.array([1.0, 2, 3])), ValueError, r"of the shape \(-1, 2\), not an array of \(1, 3\)"),
    ],
)  # fmt: skip
def test_what_is_refused(estimator, error, message):
    with pytest.raises(error, match=message):
        from_sklearn(estimator)


# With scikit-learn


def data(classes: int = 3, columns: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, columns)) * 3 + 1
    return x, np.argmax(x[:, :classes] + rng.normal(size=(150, classes)), axis=1)


def compare(estimator: Any, x: Any) -> codegen.Program:
    program = from_sklearn(estimator)
    model = compiled(program)
    found = {name: np.asarray(rows) for name, rows in model.outputs_batch(x).items()}
    functions = {"probabilities": "predict_proba", "decision": "decision_function", "values": "predict"}
    for name, numbers in found.items():
        expected = np.asarray(getattr(estimator, functions[name])(x))
        assert np.abs(numbers.reshape(expected.shape) - expected).max() < 1e-12, name
        assert len(np.unique(expected)) > 20
    if program.prediction is not None:
        classes = np.frombuffer(model.predict_batch(x), np.uint8)
        assert (np.asarray(estimator.classes_)[classes] == estimator.predict(x)).all()
        assert len(set(classes)) > 1
    return program


def networks() -> list[Any]:
    pytest.importorskip("sklearn")
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    (x, y), settings = data(), {"max_iter": 20, "random_state": 1}
    labels = (x[:, :3] > 1).astype(int)
    found = [
        MLPClassifier((8, 5), activation=name, **settings).fit(x, y)
        for name in ("identity", "logistic", "tanh", "relu")
    ]
    found += [MLPClassifier((4,), **settings).fit(x, np.array(["no", "yes"])[labels[:, 0]])]
    found += [MLPClassifier((), **settings).fit(x, y), MLPClassifier((7,), **settings).fit(x, labels)]
    found += [
        MLPRegressor("squared_error", (6,), **settings).fit(x, x[:, 0]),
        MLPRegressor("squared_error", (6,), **settings).fit(x, x[:, :2]),
    ]
    return [*found, MLPRegressor("poisson", (6,), **settings).fit(x, y)]


def linear_models() -> list[Any]:
    pytest.importorskip("sklearn")
    from sklearn import linear_model as lm
    from sklearn.svm import SVR, LinearSVC, LinearSVR  # noqa: F401

    x, y = data()
    two, target = data(2)[1], x @ np.arange(6.0)
    found = [
        *(lm.LogisticRegression().fit(x, y), lm.LogisticRegression().fit(x, np.array(["b", "a"])[two])),
        *(lm.LogisticRegression(solver="liblinear").fit(x, two), lm.LogisticRegression(fit_intercept=False).fit(x, y)),
        *(LinearSVC().fit(x, y), LinearSVC().fit(x, two), LinearSVR().fit(x, target)),
        *(lm.SGDClassifier(loss="log_loss").fit(x, y), lm.SGDClassifier(loss="log_loss").fit(x, two)),
        *(lm.SGDClassifier().fit(x, y), lm.SGDClassifier().fit(x, y).sparsify(), lm.Perceptron().fit(x, y)),
        *(
            lm.RidgeClassifier().fit(x, y),
            lm.RidgeClassifier().fit(x, two),
            lm.RidgeClassifier().fit(x, 1 * (x[:, :3] > 1)),
        ),
        *(lm.SGDRegressor(eta0=1e-4).fit(x, target), lm.LinearRegression(fit_intercept=False).fit(x, target)),
    ]
    for make in (lm.LinearRegression, lm.Ridge, lm.Lasso, lm.ElasticNet):
        found += [make().fit(x, target), make().fit(x, np.column_stack([target, x[:, 0]]))]
    more = (lm.HuberRegressor, lm.BayesianRidge, lm.TheilSenRegressor, lm.LassoLars, lm.Lars)
    return [*found, *(make().fit(x, target) for make in more)]


def test_where_all_sigmoids_are_zero_all_classes_are_equally_probable():
    lm = pytest.importorskip("sklearn.linear_model")
    x, y = data()
    estimator = lm.SGDClassifier(loss="log_loss").fit(x, y)
    estimator.coef_, estimator.intercept_ = np.zeros((3, 6)), np.full(3, -1000.0)
    found = np.asarray(compiled(from_sklearn(estimator)).outputs_batch(x[:2])["probabilities"])
    assert found.tolist() == estimator.predict_proba(x[:2]).tolist() == [[1 / 3] * 3] * 2


@pytest.mark.parametrize("make", nightly_but([networks], [networks, linear_models]))
def test_estimators_have_their_outputs(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that were stopped early
        estimators = make()
        for estimator in estimators:
            compare(estimator, data()[0])


@pytest.mark.slow
def test_pipelines_and_searches():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    x, y = data()
    scalers = [StandardScaler(), StandardScaler(with_mean=False), StandardScaler(with_std=False), MaxAbsScaler()]
    scalers += [MinMaxScaler(), MinMaxScaler((-2, 3), clip=True), RobustScaler(), RobustScaler(with_centering=False)]
    scalers += [RobustScaler(with_scaling=False), StandardScaler(with_mean=False, with_std=False)]
    for scaler in scalers:
        program = compare(make_pipeline(scaler, LogisticRegression()).fit(x, y), x * 1.5)
        assert [tensor.name for tensor in program.tensors] == ["coef", "intercept"]
    both = make_pipeline(
        make_pipeline(RobustScaler(), MinMaxScaler()), MLPClassifier((5,), max_iter=300, random_state=1)
    )
    search = GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [0.1, 1]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(both.fit(x, y), x)
    compare(search.fit(x, y), x)


@pytest.mark.slow
def test_an_estimator_in_int8_in_plain_c(tmp_path):
    pytest.importorskip("sklearn")
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = make_pipeline(StandardScaler(), MLPClassifier((30,), max_iter=200, random_state=1)).fit(x, y)
    program = from_sklearn(estimator)
    from codegen.passes.freeze import weights_of

    path = codegen.freeze(program, weights_of(program), tmp_path, "small", storage="int8")
    found = np.frombuffer(codegen.load_extension(path).predict_batch(x), np.uint8)
    assert (found == estimator.predict(x)).mean() > 0.98
