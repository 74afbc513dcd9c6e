"""ONNX Runtime, which only infers: Gemm, Relu, Gemm; arrays of floats prepared beforehand.

`run` with a dictionary made beforehand, or `run_with_iobinding` with inputs and outputs bound beforehand, whichever is
faster. It stops at the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.tasks import Array, Data, Job, Task, Weights, fastest

VERSION = f"ONNX Runtime {onnxruntime.__version__}"


def model(task: Task, weights: Weights) -> bytes:
    """The network as ONNX, written node by node."""
    kind = TensorProto.DOUBLE if task.dtype == "f64" else TensorProto.FLOAT
    nodes, constants, last = [], [], len(weights) - 1
    for i, (w, b) in enumerate(weights):
        constants += [numpy_helper.from_array(a.astype(task.floats), f"{n}{i}") for n, a in (("w", w), ("b", b))]
        out = "logits" if i == last else f"z{i}"
        nodes.append(helper.make_node("Gemm", ["x" if i == 0 else f"h{i - 1}", f"w{i}", f"b{i}"], [out], transB=1))
        if i < last:
            nodes.append(helper.make_node("Relu", [f"z{i}"], [f"h{i}"]))
    shapes = [("x", task.sizes[0]), ("logits", task.sizes[-1])]
    ends = [helper.make_tensor_value_info(name, kind, [task.batch, size]) for name, size in shapes]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


class Session:
    def __init__(self, task: Task, data: Data, threads: int, bound: bool) -> None:
        self.task, self.threads, self.bound = task, threads, bound
        count, self.repeat = task.calls
        self.inputs = (data.test_images[:count] / 255).astype(task.floats).reshape(-1, task.batch, 784)
        self.images = count * self.repeat
        self.note = "run_with_iobinding" if bound else "run"

    def load(self, weights: Weights) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        session = onnxruntime.InferenceSession(model(self.task, weights), options, ["CPUExecutionProvider"])
        self.session = session
        if not self.bound:
            self.calls: list[Any] = [{"x": x} for x in self.inputs] * self.repeat
            return
        self.calls = []
        out = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((self.task.batch, 10), self.task.floats))
        for x in self.inputs:
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
            binding.bind_ortvalue_output("logits", out)
            self.calls.append(binding)
        self.calls *= self.repeat
        self.out = out

    def run(self, part: int = 0) -> None:
        if self.bound:
            call = self.session.run_with_iobinding
            for binding in self.calls:
                call(binding)
        else:
            run = self.session.run
            for feed in self.calls:
                run(None, feed)

    def classes(self) -> Array:
        results = []
        for call in self.calls[: len(self.inputs)]:
            if self.bound:
                self.session.run_with_iobinding(call)
                results.append(self.out.numpy().argmax(1))
            else:
                results.append(self.session.run(None, call)[0].argmax(1))
        return np.concatenate(results)


def jobs(task: Task, data: Data, threads: int) -> dict[str, Callable[[], Job]]:
    if task.kind == "train":
        return {}
    return {"ONNX Runtime": lambda: fastest(Session, task, data, [(threads, False), (threads, True)])}
