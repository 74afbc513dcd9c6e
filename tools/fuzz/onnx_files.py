"""Target `onnx`: bytes -> an ONNX file for codegen/onnx: any bytes, or a small model in which a few things are odd.

A file must become a Program, in bounded time and with few scalars, or be refused with an OnnxError of one line that
names it. The Python that is written of it must make the same numbers.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from codegen.onnx.module import Module
from codegen.onnx.ops import OPS
from codegen.onnx.program import Imported, imported_file, program_of
from codegen.onnx.reader import read
from codegen.onnx.tensors import OnnxError
from codegen.weights import read_weights
from micrograd.commands.import_model import _npz, _safetensors
from tools.fuzz.choices import Choices
from tools.fuzz.common import Wrong, scratch_folder

LIMIT = 3000  # scalars
SECONDS = 5.0  # of the processor, for one file
NAMES = sorted({name for _, name in OPS if not name.endswith("_1")})
INTEGERS = [0, 1, -1, 2, 3, 4, 7, 64, 1000, -2, -7, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, float("inf"), float("nan")]
TEXTS = ["", "SAME_UPPER", "SAME_LOWER", "VALID", "reverse", "bidirectional", "wrap", "Relu", "L2", "LOGISTIC", "tanh"]
TEXTS += ["ij,jk->ik", "i->", "ii->i", "reflect", "edge", "CRD", "\0", "é", "import os", '"""', "class"]


@cache
def models() -> list[bytes]:
    """One for each kind of op, and a few of several nodes."""
    ones, image, ints = (lambda *s: np.ones(s, "f4")), (1, 2, 4, 4), (lambda *x: np.array(x, "i8"))
    table: list[tuple[str, Sequence[int], Mapping[str, Any], dict[str, Any]]] = [
        ("Gemm", (1, 4), {"w": ones(3, 4), "b": ones(3)}, {"transB": 1, "alpha": 0.5}),
        ("MatMul", (2, 4), {"w": ones(4, 3)}, {}),
        ("Einsum", (2, 4), {"w": ones(4, 3)}, {"equation": "ij,jk->ik"}),
        ("Conv", image, {"w": ones(2, 1, 3, 3), "b": ones(2)}, {"pads": [1] * 4, "group": 2, "strides": [2, 2]}),
        ("ConvTranspose", image, {"w": ones(2, 1, 3, 3)}, {"strides": [2, 2], "output_padding": [1, 1]}),
        ("MaxPool", image, {}, {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "ceil_mode": 1}),
        ("AveragePool", image, {}, {"kernel_shape": [2, 2], "pads": [1] * 4, "count_include_pad": 1}),
        ("BatchNormalization", image, {n: ones(2) for n in "abcd"}, {"epsilon": 0.1}),
        ("LayerNormalization", (2, 4), {"a": ones(4), "b": ones(4)}, {"axis": -1}),
        ("GroupNormalization", image, {"a": ones(2), "b": ones(2)}, {"num_groups": 2}),
        ("LSTM", (3, 1, 2), {"w": ones(1, 8, 2), "r": ones(1, 8, 2), "b": ones(1, 16)}, {"hidden_size": 2}),
        ("GRU", (3, 1, 2), {"w": ones(2, 6, 2), "r": ones(2, 6, 2)}, {"direction": "bidirectional", "clip": 1.0}),
        ("RNN", (3, 1, 2), {"w": ones(1, 2, 2), "r": ones(1, 2, 2)}, {"activations": ["Affine"]}),
        ("Reshape", (2, 4), {"s": ints(4, -1)}, {}),
        ("Slice", (2, 4), {"a": ints(1), "b": ints(-1), "c": ints(1), "d": ints(2)}, {}),
        ("Pad", (2, 4), {"p": ints(1, 0, 0, 1)}, {"mode": "constant"}),
        ("Expand", (1, 4), {"s": ints(2, 3, 4)}, {}),
        ("Tile", (1, 4), {"s": ints(2, 2)}, {}),
        ("Gather", (2, 4), {"i": ints(1, 0)}, {"axis": 1}),
        ("Split", (2, 4), {"s": ints(1, 3)}, {"axis": 1}),
        ("ReduceSum", (2, 4), {"a": ints(1)}, {"keepdims": 0}),
        ("Softmax", (2, 4), {}, {"axis": 0}),
        ("Where", (2, 4), {"c": np.array([True, False, True, False]), "y": ones(4)}, {}),
        ("Clip", (2, 4), {"a": np.array(0.0, "f4"), "b": np.array(1.0, "f4")}, {}),
        ("Resize", image, {"": ones(0), "s": np.array([1, 1, 2, 1.5], "f4")}, {"mode": "nearest"}),
        ("DepthToSpace", (1, 4, 2, 2), {}, {"blocksize": 2}),
        ("LinearClassifier", (1, 4), {}, {"coefficients": [1.0] * 12, "classlabels_ints": [1, 2, 3]}),
        ("Scaler", (1, 4), {}, {"offset": [1.0], "scale": [2.0] * 4}),
    ]
    found = [_one(*row) for row in table]
    found.append(_one("Gather", (1, 2), {"table": ones(5, 3)}, {}, TensorProto.INT64))  # tokens
    chain = ["Shape", "ConstantOfShape", "Range", "Unsqueeze", "Squeeze", "Concat", "Flatten", "Transpose", "ArgMax"]
    return [*found, *(_one(op, (2, 4), {}, {}) for op in chain)]


def _one(
    op: str, shape: Sequence[int], weights: Mapping[str, Any], attributes: dict[str, Any], kind: int = TensorProto.FLOAT
) -> bytes:
    domain = "ai.onnx.ml" if ("ai.onnx.ml", op) in OPS else ""
    names = list(weights)
    inputs = [names[0], "x", *names[1:]] if op == "Where" or kind != TensorProto.FLOAT else ["x", *names]
    outputs = ["y", "z"] if op in ("Split", "LinearClassifier") else ["y"]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs, domain=domain, **attributes), helper.make_node("Relu", ["y"], ["r"])],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in [*outputs, "r"]],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name],
    )
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=versions).SerializeToString())


class Onnx:
    """The target."""

    def __init__(self) -> None:
        self.folder = scratch_folder()
        self.path = self.folder / "file.onnx"

    def __call__(self, data: bytes) -> None:
        """Raises Wrong where something does not hold."""
        c = Choices(data)
        content = c.rest() if c.chance(64) else self.edited(c)
        self.path.write_bytes(content)
        start = time.process_time()
        try:
            model = imported_file(read(self.path), limit=LIMIT)
            loss = c.one_of([None, None, "cross_entropy", "nll", "mse", "binary_cross_entropy"])
            program = program_of(model, loss)
        except OnnxError as error:
            if not str(error).startswith(f"{self.path}: ") or "\n" in str(error):
                raise Wrong(f"not a line that names the file: {error}") from error
            return
        finally:
            if (seconds := time.process_time() - start) > SECONDS:
                raise Wrong(f"{seconds:.1f} s for a file of {len(content)} bytes")
        self.check(model, loss, dict(program.outputs))

    def check(self, model: Imported, loss: str | None, outputs: Mapping[str, Any]) -> None:
        """The module that is written makes the same Program."""
        module = Module(model, "file", loss)
        (self.folder / "file.safetensors").write_bytes(_safetensors(module.weights))
        (self.folder / "file.npz").write_bytes(_npz(module.constants))
        namespace: dict[str, Any] = {"__name__": "file", "__file__": str(self.folder / "file.py")}
        exec(compile(module.text, "file.py", "exec"), namespace)
        if set(namespace) & {"os", "sys"} or set(read_weights(self.folder / "file.safetensors")) != set(model.weights):
            raise Wrong(f"a module that has more in it: {module.text}")
        written = namespace["program"]()
        if {name: _bits(values) for name, values in written.outputs.items()} != {
            name: _bits(values) for name, values in outputs.items()
        }:
            raise Wrong(f"a module of other numbers: {module.text}")

    def edited(self, c: Choices) -> bytes:
        """A model, in which some things are changed."""
        model = ModelProto()
        model.ParseFromString(c.one_of(models()))
        for _ in range(c.below(6)):
            try:
                edit(c, model)
            except (ValueError, TypeError, IndexError, OverflowError):  # what protobuf itself does not take
                break
        return bytes(model.SerializeToString())


def edit(c: Choices, model: ModelProto) -> None:
    graph, kind = model.graph, c.below(10)
    nodes = list(graph.node)
    node = c.one_of(nodes)
    tensors = (
        [t.name for t in graph.initializer] + [name for each in nodes for name in each.output] + ["x", "", "nowhere"]
    )
    if kind == 0:
        attribute(c, node)
    elif kind == 1 and node.attribute:
        node.attribute.remove(c.one_of(list(node.attribute)))
    elif kind == 2 and graph.initializer:
        initializer(c, c.one_of(list(graph.initializer)))
    elif kind == 3:
        node.op_type = c.one_of(NAMES)
    elif kind == 4 and node.input:
        node.input[c.below(len(node.input))] = c.one_of(tensors)
    elif kind == 5:
        name = f"new{len(nodes)}"
        given = [c.one_of(tensors) for _ in range(c.below(4))]
        graph.node.append(
            helper.make_node(c.one_of(NAMES), given, [name, c.one_of(["", "x", f"{name}b"])][: 1 + c.below(2)])
        )
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    elif kind == 6:
        graph.initializer.append(helper.make_tensor(f"t{len(tensors)}", TensorProto.INT64, [1], [c.one_of(INTEGERS)]))
        node.input.append(f"t{len(tensors)}")
    elif kind == 7:
        shape = [c.one_of([*INTEGERS, "N", None]) for _ in range(c.below(5))]
        graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1 + c.below(17), shape))
    elif kind == 8:
        model.opset_import[0].version = c.one_of([0, 1, 6, 7, 9, 11, 12, 13, 99])
    else:
        renamed(c, graph)


def attribute(c: Choices, node: Any) -> None:
    known = [each.name for each in node.attribute]
    name = c.one_of(
        [*known, "axis", "axes", "pads", "strides", "kernel_shape", "keepdims", "to", "value", "x", "group"]
    )
    for each in [each for each in node.attribute if each.name == name]:
        node.attribute.remove(each)
    count = c.below(5)
    value: Any = [c.one_of(INTEGERS) for _ in range(count)]
    value = c.one_of([value, value, c.one_of(INTEGERS), c.one_of(FLOATS), c.one_of(TEXTS), [c.one_of(FLOATS)] * count])
    node.attribute.append(helper.make_attribute(name, value) if value != [] else helper.make_attribute(name, 1))


def initializer(c: Choices, tensor: Any) -> None:
    kind = c.below(5)
    if kind == 0:
        tensor.dims[:] = [c.one_of(INTEGERS) for _ in range(c.below(4))]
    elif kind == 1:
        tensor.data_type = c.below(24)
    elif kind == 2:
        tensor.raw_data = tensor.raw_data[: c.byte()]
    elif kind == 3:
        numbers = [c.one_of(INTEGERS) for _ in range(c.below(5))]
        tensor.CopyFrom(numpy_helper.from_array(np.array(numbers, "i8"), tensor.name))
    else:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=c.one_of(["file.onnx", "../file.onnx", "/dev/zero", *TEXTS]))
        tensor.external_data.add(key="offset", value=str(c.one_of(INTEGERS)))


def renamed(c: Choices, graph: Any) -> None:
    """A tensor gets the name of something else."""
    old, new = "x", c.one_of([*TEXTS[5:], "w", "np", "program", "array", "x y", "1"])
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
    graph.input[0].name = new


def _bits(values: Any) -> list[bytes]:
    return [b"nan" if value.data != value.data else struct.pack("d", value.data) for value in values]


def seeds() -> list[bytes]:
    """Every model as it is, as a file and with some edits."""
    found = [bytes([255]) + model for model in models()]
    for i in range(len(models())):
        for kind in range(10):
            found.append(bytes([0, i, 1 + kind % 5]) + bytes((kind, *range(i, i + 12))))
    return found


DICTIONARY = [*NAMES, "axis", "pads", "axes", "strides", "ai.onnx.ml"]
