"""Microseconds an image in WebAssembly, of pages and of ONNX Runtime Web, beside modules and ONNX Runtime.

    npm install onnxruntime-web       in the current folder, for its row
    python -m benchmarks.pages        prints the table of docs/pages.md

Every row computes the probabilities of MNIST's perceptron for one image at a time, on one thread: the least of many
runs.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import codegen
from codegen.pages.page import write_page
from codegen.weights import read_weights
from micrograd.data import mnist

ROOT = Path(__file__).resolve().parent.parent
IMAGES, REPEATS = 200, 25
NAMES = ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias")


def main() -> None:
    weights = read_weights(ROOT / "weights" / "mnist.safetensors")
    images = np.frombuffer(mnist.load().test_images, np.uint8).reshape(-1, mnist.SIDE**2)[:IMAGES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for dtype in ("float64", "float32"):
            write_model(folder, dtype, weights)
        (folder / "images.bin").write_bytes(images.tobytes())
        (folder / "model.onnx").write_bytes(onnx_model(weights))
        command = ["node", str(ROOT / "benchmarks" / "pages.mjs"), name]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        found |= native(folder / "model.onnx", images)
    print("| | us an image |\n|---|---|")
    for row, micros in sorted(found.items(), key=lambda item: item[1]):
        print(f"| {row} | {micros:.1f} |")


def write_model(folder: Path, dtype: str, weights: dict[str, Any]) -> None:
    """The WebAssembly of a page, and the weights that it takes."""
    program = replace(codegen.load("codegen.mnist"), dtype=dtype)
    text = write_page(program, folder / "page.html", weights).read_text(encoding="utf-8")
    (told,) = re.findall(r'id="model">(.*?)</script>', text, re.S)
    (folder / f"{dtype}.wasm").write_bytes(gzip.decompress(base64.b64decode(json.loads(told)["wasm"])))
    flat = np.concatenate([np.ravel(weights[name]) for name in NAMES])
    (folder / f"{dtype}.bin").write_bytes(flat.astype(dtype).tobytes())


def onnx_model(weights: dict[str, Any]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    w1, b1, w2, b2 = NAMES
    nodes = [
        helper.make_node("Gemm", ["x", w1, b1], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", w2, b2], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["p"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", mnist.SIDE**2])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(weights[name], np.float32), name) for name in NAMES],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(made.SerializeToString())


def native(model: Path, images: np.ndarray) -> dict[str, float]:
    import nn_infer
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    pixels, floats = [x.tobytes() for x in images], [x[None].astype(np.float32) / 255 for x in images]
    runs: dict[str, Callable[[], object]] = {
        "nn_infer, float64": lambda: [nn_infer.probabilities(x) for x in pixels],
        "ONNX Runtime, float32": lambda: [session.run(None, {"x": x}) for x in floats],
    }
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], (time.perf_counter() - start) / len(images) * 1e6)
    return best


if __name__ == "__main__":
    main()
