"""Outputs of many rows against other libraries: python -m benchmarks.outputs

10,000 rows through a net of 30-64-64-2 with tanh and a softmax, in float64 and in float32: probabilities_batch of a frozen
module and of one that trains, JAX (jitted), ONNX Runtime and scikit-learn (predict_proba), each with one thread. They
take turns, and the table has medians. In one row a float64 module gets float32 rows, which it converts.
"""

from __future__ import annotations

# ruff: noqa: E402  libraries read the number of threads when they are imported
import argparse
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.neural_network import MLPClassifier

import codegen
from benchmarks.report import processor
from codegen import Floats, Label, Program
from codegen.passes.freeze import weights_of
from micrograd import arrays
from micrograd.functional import cross_entropy, softmax

ROWS, SIZES = 10_000, (30, 64, 64, 2)
Layers = list[tuple[np.ndarray, np.ndarray]]


def weights() -> Layers:
    rng = np.random.default_rng(1)
    return [(rng.normal(0, n**-0.5, (m, n)), rng.normal(0, 0.1, m)) for n, m in pairwise(SIZES)]


def program(layers: Layers, dtype: str) -> Program:
    x, one_hot = arrays.array(np.zeros(SIZES[0])), arrays.array(np.zeros(SIZES[-1]))
    parameters: dict[str, Any] = {}
    h = x
    for i, (w, b) in enumerate(layers):
        parameters[f"w{i}"], parameters[f"b{i}"] = arrays.array(w), arrays.array(b)
        h = parameters[f"w{i}"] @ h + parameters[f"b{i}"]
        h = np.tanh(h) if i + 1 < len(layers) else h
    logits = list(h)
    loss = cross_entropy(logits, list(one_hot))
    fast = dtype == "float32"
    outputs = {"probabilities": softmax(logits)}
    return Program(Floats(x), Label(one_hot), parameters, loss, outputs, dtype=dtype, fma=fast, reorder=fast)


def of_jax(layers: Layers, dtype: str) -> Callable[[np.ndarray], Any]:
    made = [(w.astype(dtype), b.astype(dtype)) for w, b in layers]

    @jax.jit
    def forward(x: Any) -> Any:
        for w, b in made[:-1]:
            x = jax.numpy.tanh(x @ w.T + b)
        return jax.nn.softmax(x @ made[-1][0].T + made[-1][1])

    return lambda rows: np.asarray(forward(rows))


def of_onnx(layers: Layers, dtype: str) -> Callable[[np.ndarray], Any]:
    kind = TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE
    nodes, constants, x = [], [], "x"
    for i, (w, b) in enumerate(layers):
        constants += [numpy_helper.from_array(a.astype(dtype), f"{n}{i}") for n, a in (("w", w), ("b", b))]
        nodes.append(helper.make_node("Gemm", [x, f"w{i}", f"b{i}"], [f"z{i}"], transB=1))
        x = f"h{i}"
        nodes.append(helper.make_node("Tanh" if i + 1 < len(layers) else "Softmax", [f"z{i}"], [x]))
    ends = [helper.make_tensor_value_info(end, kind, [None, size]) for end, size in (("x", SIZES[0]), (x, SIZES[-1]))]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return lambda rows: session.run(None, {"x": rows})[0]


def of_sklearn(layers: Layers, dtype: str) -> Callable[[np.ndarray], Any]:
    net = MLPClassifier(SIZES[1:-1], activation="tanh", max_iter=1)
    rows = np.random.default_rng(0).normal(size=(20, SIZES[0])).astype(dtype)
    net.partial_fit(rows, np.arange(20) % 2, classes=[0, 1])
    net.coefs_ = [w.T.astype(dtype) for w, _ in layers[:-1]] + [(layers[-1][0][1:] - layers[-1][0][:1]).T.astype(dtype)]
    net.intercepts_ = [b.astype(dtype) for _, b in layers[:-1]] + [
        (layers[-1][1][1:] - layers[-1][1][:1]).astype(dtype)
    ]
    return lambda rows: net.predict_proba(rows)


def systems(dtype: str, folder: Path) -> dict[str, tuple[Callable[[np.ndarray], Any], str]]:
    """Name -> what gives the probabilities of rows, and the type of the rows."""
    layers = weights()
    made = program(layers, dtype)
    ours = codegen.compile(made)
    name = f"net_{dtype}"
    frozen = codegen.load_extension(codegen.freeze(made, weights_of(made), folder, name))
    found = {
        "nn, frozen": (frozen.probabilities_batch, dtype),
        "nn": (ours.probabilities_batch, dtype),
        "JAX": (of_jax(layers, dtype), dtype),
        "ONNX Runtime": (of_onnx(layers, dtype), dtype),
        "scikit-learn": (of_sklearn(layers, dtype), dtype),
    }
    if dtype == "float64":
        found["nn, float32 rows"] = (ours.probabilities_batch, "float32")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    jax.config.update("jax_enable_x64", True)
    rows = np.random.default_rng(2).normal(size=(ROWS, SIZES[0]))
    print(
        f"{processor()}, JAX {jax.__version__}, ONNX Runtime {onnxruntime.__version__}; milliseconds, and ratio to nn"
    )
    with TemporaryDirectory() as folder:
        for dtype in ("float64", "float32"):
            all_systems = systems(dtype, Path(folder))
            given = {name: rows.astype(kind) for name, (_, kind) in all_systems.items()}
            expected = np.asarray(all_systems["nn"][0](given["nn"]))
            times: dict[str, list[float]] = {name: [] for name in all_systems}
            for name, (work, kind) in all_systems.items():
                assert np.abs(np.asarray(work(given[name])) - expected).max() < (
                    1e-5 if "float32" in (kind, dtype) else 1e-12
                )
            for _ in range(rounds):
                for name, (work, _) in all_systems.items():
                    start = perf_counter()
                    work(given[name])
                    times[name].append(1e3 * (perf_counter() - start))
            for name, found in times.items():
                print(f"{dtype}  {name:18}{median(found):8.2f}{median(found) / median(times['nn']):8.2f}")


if __name__ == "__main__":
    main()
