"""A fitted estimator of scikit-learn -> a Program with its weights. scikit-learn itself is not imported.

Example: of a LogisticRegression for three classes behind a StandardScaler come

    x = (input - mean_) / scale_           decision = coef_ @ x + intercept_        probabilities = softmax(decision)

with coef_ and intercept_ as parameters, and mean_ and scale_ as constants.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.kinds import Floats
from codegen.program import Program
from micrograd.engine import Value
from micrograd.functional import softmax, total

Values = list[Value]

REGRESSORS = {
    *("ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso"),
    *("LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearRegression", "LinearSVR", "MultiTaskElasticNet"),
    *("MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV", "OrthogonalMatchingPursuit"),
    *("OrthogonalMatchingPursuitCV", "PassiveAggressiveRegressor", "QuantileRegressor", "Ridge", "RidgeCV"),
    *("SGDRegressor", "TheilSenRegressor"),
}
CLASSIFIERS = {
    *("LinearSVC", "LogisticRegression", "LogisticRegressionCV", "PassiveAggressiveClassifier", "Perceptron"),
    *("RidgeClassifier", "RidgeClassifierCV", "SGDClassifier"),
}
NETWORKS = {"MLPClassifier", "MLPRegressor"}
SCALERS = {"StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"}
ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "identity": lambda x: x,
    "logistic": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "relu": lambda x: x.relu(),
    "exp": lambda x: x.exp(),
}


def from_sklearn(estimator: Any) -> Program:
    """The Program of a fitted estimator. It has no loss: build() makes a module, or plain C, that predicts.

    estimator   an MLPClassifier or MLPRegressor, a linear classifier or regressor, or a Pipeline of these behind a
                StandardScaler, MinMaxScaler, MaxAbsScaler or RobustScaler

    Outputs: "probabilities" are those of predict_proba(), "decision" is decision_function(), "values" are the predict()
    of a regressor. predict() of the module gives the number of a class in estimator.classes_. Several labels at a time
    have no predict(). Weights are parameters of scikit-learn's names and shapes; numbers of scalers are constants.

    Raises TypeError for another estimator, which it names, and ValueError for one that is not fitted.
    """
    *steps, (_, last) = _steps(estimator)
    for _, step in [*steps, ("", last)]:
        _check_name(step, SCALERS if step is not last else REGRESSORS | CLASSIFIERS | NETWORKS)
    first = steps[0][1] if steps else last
    count = _attribute(first, "n_features_in_")
    inputs = [Value(0.0) for _ in range(int(count))]
    x, constants = inputs, []
    for _, scaler in steps:
        x, made = _scaled(scaler, x)
        constants += made
    name = _name(last)
    make = _network if name in NETWORKS else _regressor if name in REGRESSORS else _classifier
    parameters, fields = make(last, x)
    return Program(
        inputs=Floats(inputs),
        targets=None,
        parameters=parameters,
        loss=None,
        constants=constants,
        description=" behind ".join([name, *dict.fromkeys(_name(step) for _, step in reversed(steps))]),
        **fields,
    )


def _name(estimator: Any) -> str:
    return type(estimator).__name__


def _check_name(estimator: Any, known: set[str]) -> None:
    """Raises TypeError for an estimator that is not one of these, or only derived from one."""
    if _name(estimator) not in known or type(estimator).__module__.partition(".")[0] != "sklearn":
        names = ", ".join(sorted(known))
        raise TypeError(
            f"from_sklearn() takes, at this place, {names}, not {type(estimator).__module__}.{_name(estimator)}"
        )


def _steps(estimator: Any) -> list[tuple[str, Any]]:
    """The steps of a Pipeline, those of inner ones among them; a search stands for the best that it has found."""
    if hasattr(estimator, "best_estimator_"):
        return _steps(estimator.best_estimator_)
    if _name(estimator) != "Pipeline":
        return [("", estimator)]
    steps = [(name, step) for name, step in estimator.steps if step is not None and not isinstance(step, str)]
    found = [inner for name, step in steps for inner in (_steps(step) if _name(step) == "Pipeline" else [(name, step)])]
    if not found:
        raise TypeError("from_sklearn() takes a Pipeline that ends with an estimator, but this one has no steps")
    return found[:-1] + _steps(found[-1][1])


def _attribute(estimator: Any, name: str) -> Any:
    if not hasattr(estimator, name):
        raise ValueError(f"the {_name(estimator)} is not fitted: it has no {name}")
    return getattr(estimator, name)


def _numbers(estimator: Any, name: str, shape: tuple[int, ...] | None = None) -> npt.NDArray[np.float64]:
    """The finite numbers of an attribute. Sparse ones and numbers alone become arrays; -1 in a shape is any length."""
    return _checked(f"{name} of the {_name(estimator)}", _attribute(estimator, name), shape)


def _checked(what: str, given: Any, shape: tuple[int, ...] | None) -> npt.NDArray[np.float64]:
    found = np.asarray(given.toarray() if hasattr(given, "toarray") else given, dtype=np.float64)
    fits = shape is None or (
        len(shape) == found.ndim and all(n in (-1, m) for n, m in zip(shape, found.shape, strict=True))
    )
    if not fits or not np.isfinite(found).all():
        raise ValueError(f"{what} must be finite numbers of the shape {shape}, not an array of {found.shape}")
    return found


def _scaled(scaler: Any, x: Values) -> tuple[Values, Values]:
    """What a scaler makes of its inputs, and its numbers."""
    constants: Values = []

    def leaves(name: str) -> Values | None:
        if getattr(scaler, name, None) is None:
            _attribute(scaler, name)  # None stands for a step that was switched off
            return None
        found = [Value(number) for number in _numbers(scaler, name, (len(x),)).tolist()]
        constants.extend(found)
        return found

    def minus(numbers: Values | None) -> Values:
        return x if numbers is None else [a - b for a, b in zip(x, numbers, strict=True)]

    def over(numbers: Values | None) -> Values:
        return x if numbers is None else [a / b for a, b in zip(x, numbers, strict=True)]

    kind, low_high = _name(scaler), None
    if kind == "MinMaxScaler":
        x = [a * b for a, b in zip(x, leaves("scale_") or [], strict=True)]
        x = [a + b for a, b in zip(x, leaves("min_") or [], strict=True)]
        low_high = scaler.feature_range
    else:
        if kind != "MaxAbsScaler":
            x = minus(leaves("mean_" if kind == "StandardScaler" else "center_") if _centers(scaler) else None)
        x = over(leaves("scale_"))
        low_high = (-1.0, 1.0)
    if getattr(scaler, "clip", False):
        low, high = (Value(float(bound)) for bound in low_high)
        constants += [low, high]
        x = [each.max(low).min(high) for each in x]
    return x, constants


def _centers(scaler: Any) -> bool:
    """A StandardScaler has a mean that it does not subtract."""
    return bool(getattr(scaler, "with_mean", True) and getattr(scaler, "with_centering", True))


def _affine(rows: Sequence[Values], biases: Values, x: Values) -> Values:
    return [total([b, *(w * xi for w, xi in zip(row, x, strict=True))]) for row, b in zip(rows, biases, strict=True)]


def _network(network: Any, x: Values) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a multilayer perceptron, and the fields of its Program."""
    coefs, intercepts = _attribute(network, "coefs_"), _attribute(network, "intercepts_")
    parameters: dict[str, Any] = {}
    for i, (coef, intercept) in enumerate(zip(coefs, intercepts, strict=True)):
        w = _checked(f"coefs_[{i}]", coef, (len(x), -1))
        matrix = [[Value(number) for number in row] for row in w.tolist()]
        biases = [Value(number) for number in _checked(f"intercepts_[{i}]", intercept, (w.shape[1],)).tolist()]
        parameters |= {f"coefs.{i}": matrix, f"intercepts.{i}": biases}
        x = _affine(list(map(list, zip(*matrix, strict=True))), biases, x)
        if i < len(coefs) - 1:
            x = [_activation(network.activation)(each) for each in x]
    last = network.out_activation_
    x = softmax(x) if last == "softmax" else [_activation(last)(each) for each in x]
    if _name(network) == "MLPRegressor":
        return parameters, {"outputs": {"values": x}}
    if last == "logistic" and len(x) == 1:
        return parameters, {"outputs": {"probabilities": [1 - x[0], x[0]]}, "prediction": "probabilities"}
    return parameters, {"outputs": {"probabilities": x}, "prediction": "probabilities" if last == "softmax" else None}


def _activation(name: str) -> Callable[[Value], Value]:
    if name not in ACTIVATIONS:
        raise ValueError(f"the activation must be one of {', '.join(ACTIVATIONS)}, not {name!r}")
    return ACTIVATIONS[name]


def _linear(model: Any, x: Values) -> tuple[dict[str, Any], Values]:
    """coef_ @ x + intercept_: the parameters, and a value for each row of coef_."""
    coef = _numbers(model, "coef_")
    rows = _checked(f"coef_ of the {_name(model)}", np.atleast_2d(coef), (-1, len(x)))
    intercept = np.broadcast_to(_numbers(model, "intercept_").ravel(), (len(rows),))
    weights = [[Value(number) for number in row] for row in rows.tolist()]
    biases = [Value(number) for number in intercept.tolist()]
    named = {"coef": weights if coef.ndim > 1 else weights[0], "intercept": biases}
    return named, _affine(weights, biases, x)


def _regressor(model: Any, x: Values) -> tuple[dict[str, Any], dict[str, Any]]:
    parameters, values = _linear(model, x)
    return parameters, {"outputs": {"values": values}}


def _classifier(model: Any, x: Values) -> tuple[dict[str, Any], dict[str, Any]]:
    parameters, decision = _linear(model, x)
    probabilities = _probabilities(model, decision)
    outputs = {"decision": decision} | ({} if probabilities is None else {"probabilities": probabilities})
    if len(decision) > 1 and _has_labels(model):
        return parameters, {"outputs": outputs}
    return parameters, {
        "outputs": outputs,
        "prediction": "decision",
        "threshold": 0.0 if len(decision) == 1 else None,
    }


def _has_labels(model: Any) -> bool:
    """Whether an example may be of several classes, as RidgeClassifier has it."""
    binarizer = getattr(model, "_label_binarizer", None)
    return str(getattr(binarizer, "y_type_", "")).startswith("multilabel")


def _probabilities(model: Any, decision: Values) -> Values | None:
    """predict_proba(), of models that have it."""
    kind = str(getattr(model, "multi_class", "auto"))
    is_logistic = _name(model).startswith("LogisticRegression")
    if not is_logistic and not (_name(model) == "SGDClassifier" and model.loss == "log_loss"):
        return None
    if len(decision) == 1:
        if is_logistic and kind == "multinomial":
            return softmax([-decision[0], decision[0]])
        p = decision[0].sigmoid()
        return [1 - p, p]
    if is_logistic and kind != "ovr" and model.solver != "liblinear":
        return softmax(decision)
    each = [d.sigmoid() for d in decision]
    whole = total(each)
    none = 1 - whole.apply("step")  # where all of them are 0, all classes are equally probable
    return [(p + none) / (whole + none * len(each)) for p in each]
