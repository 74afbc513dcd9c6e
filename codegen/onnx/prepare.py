"""A file's nodes as they will run: only those that the outputs depend on, and what is a weight among its tensors.

Example: an input of integers that is nothing but the indices of rows of embedding.weight, of 27 rows, becomes tokens
below 27, one-hot, and

    rows = Gather(embedding.weight, x)    becomes    rows = MatMul(x, embedding.weight)

which the compiler finds to be a look-up again.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from codegen.checks import shown
from codegen.onnx.graph import KEEPS
from codegen.onnx.ops import ML, MOVES, SHIFTS, WEIGHTS
from codegen.onnx.reader import File, Input, Node
from codegen.onnx.shapes import FLOATS
from codegen.onnx.tensors import OnnxError, Tensor


def prepared(file: File) -> File:
    """With the nodes alone that the outputs depend on. What some ops have as attributes are initializers, and what
    Constant nodes make too; a Softmax at the end of a linear classifier is a node of its own."""
    initializers = dict(file.initializers)
    nodes: list[Node] = []
    constants: set[str] = set()
    for node in file.nodes:
        if node.op == "Constant" and not node.domain:
            constants.add(name := node.outputs[0] if node.outputs else "")
            initializers[name] = _constant(node)
        elif node.domain == ML and node.op in ("LinearClassifier", "LinearRegressor"):
            nodes += _linear(node, initializers)
        else:
            nodes.append(node)
    needed = set(file.outputs)
    live = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            live.append(node)
            needed.update(node.inputs)
    found = {name: array for name, array in initializers.items() if name in needed}
    file = replace(file, nodes=live[::-1], initializers=found, constants=constants)
    for each in file.inputs:
        if each.type not in FLOATS:
            file = _looked_up(file, each)
    return file


def _looked_up(file: File, given: Input) -> File:
    """With an input of integers as tokens, if Gather alone reads it; or as floats, if Cast alone does. Or raises."""
    names, nodes, words = {given.name}, list[Node](), set[int]()
    for node in file.nodes:
        if names.isdisjoint(node.inputs):
            nodes.append(node)
        elif node.op == "Gather" and len(node.inputs) == 2 and node.inputs[1] in names:
            table = file.initializers.get(node.inputs[0])
            if table is None or table.ndim != 2 or table.dtype.kind != "f" or node.attributes.get("axis", 0) != 0:
                raise OnnxError(f"{node.where}: tokens look up rows of one table of weights, and nothing else")
            words.add(len(table))
            nodes.append(replace(node, op="MatMul", inputs=[given.name, node.inputs[0]], attributes={}))
        elif node.op == "Shape":
            nodes.append(replace(node, inputs=[given.name], attributes=_own_axes(node, len(given.shape))))
        elif node.op == "Cast" and node.attributes.get("to") not in FLOATS:
            names.update(node.outputs)
        elif node.op == "Cast":
            nodes.append(node)
        else:
            raise OnnxError(
                f"{node.where}: the input {shown(given.name)} is not of floats, nor cast to them, nor looked up"
            )
    if not words:
        return file
    if len(words) > 1 or any(node.op == "Cast" and given.name in node.inputs for node in nodes):
        raise OnnxError(f"the input {shown(given.name)} looks up rows of tables of several lengths, or is a number too")
    tokens = replace(given, words=words.pop())
    return replace(file, nodes=nodes, inputs=[tokens if each is given else each for each in file.inputs])


def _own_axes(node: Node, dimensions: int) -> dict[str, Any]:
    """Which axes Shape is of, without that of words, which comes behind them."""
    ends = {"start": 0, "end": dimensions} | node.attributes
    if not all(isinstance(end, int) for end in ends.values()):
        raise OnnxError(f"{node.where}: start and end must be integers")
    return {name: min(end + dimensions if end < 0 else end, dimensions) for name, end in ends.items()}


def _constant(node: Node) -> Tensor:
    if len(node.attributes) != 1:
        raise OnnxError(f"{node.where}: a constant has one value, not {len(node.attributes)}")
    ((name, value),) = node.attributes.items()
    kind: dict[str, Any] = {"value_float": float, "value_floats": float, "value_int": np.int64, "value_ints": np.int64}
    if name == "value" and isinstance(value, np.ndarray):
        return value
    if name not in kind or isinstance(value, str) or len(node.outputs) != 1:
        raise OnnxError(f"{node.where}: a constant of the kind {shown(name)} is not supported")
    return np.array(value, kind[name])


def _linear(node: Node, initializers: dict[str, Tensor]) -> Iterable[Node]:
    """coefficients and intercepts become inputs."""
    attributes = dict(node.attributes)
    stem = node.outputs[-1] if node.outputs else node.op
    inputs = node.inputs[:1]
    for name in ("coefficients", "intercepts"):
        numbers = attributes.pop(name, [])
        if not isinstance(numbers, list) or any(isinstance(x, str) for x in numbers):
            raise OnnxError(f"{node.where}: {name} are not numbers")
        if numbers:
            inputs.append(f"{stem}.{name}")
            initializers[inputs[-1]] = np.array(numbers, float)
    if node.op == "LinearRegressor":
        return [replace(node, inputs=inputs, attributes=attributes)]
    labels = attributes.pop("classlabels_ints", None) or attributes.pop("classlabels_strings", None) or []
    attributes.pop("classlabels_strings", None)
    if not isinstance(labels, list) or len(node.outputs) != 2:
        raise OnnxError(f"{node.where}: a classifier has a list of labels and two outputs")
    label, scores = node.outputs
    scores = scores or f"{label}.scores"
    attributes["classes"] = len(labels)
    rows = len(initializers.get(inputs[-1], labels)) if len(inputs) == 3 else len(labels)
    softmax = attributes.get("post_transform") == "SOFTMAX" and rows == len(labels)
    found = replace(node, inputs=inputs, attributes=attributes, outputs=[f"{scores}.logits" if softmax else scores])
    nodes = [found]
    if softmax:
        attributes["post_transform"] = "NONE"
        nodes.append(replace(node, domain="", op="Softmax", inputs=found.outputs, outputs=[scores], attributes={}))
    decision = replace(node, domain="", op="ArgMax", inputs=[scores], outputs=[label], attributes={"classes": labels})
    return [*nodes, *([decision] if label else [])]


def weights_of(file: File) -> list[str]:
    """The initializers that are weights, by what reads them, in the order of the file.

    What Constant nodes make is a mask or the like, except in files that have all their weights there.
    """
    computed: set[str] = set()  # from weights, or normalised: what is before scales inputs, and does not train
    sizes = {name: array.size for name, array in file.initializers.items()}  # and of what they become when moved
    for node in file.nodes:
        if node.op in KEEPS:
            sizes |= {made: sizes[x] for x, made in zip(node.inputs[:1], node.outputs, strict=False) if x in sizes}
        if node.op in WEIGHTS or node.op.startswith("Reduce") or not computed.isdisjoint(node.inputs):
            computed.update(node.outputs)
    products = {name for node in file.nodes if node.op in WEIGHTS for name in node.outputs}
    found: set[str] = set()
    for node in reversed(file.nodes):
        if not found.isdisjoint(node.outputs) and node.op in MOVES:
            found.update(node.inputs if node.op == "Concat" else node.inputs[:1])
        found.update(node.inputs[i] for i in WEIGHTS.get(node.op, ()) if i < len(node.inputs))
        if node.op in SHIFTS and not computed.isdisjoint(node.inputs):
            is_bias = node.op == "Add" and not products.isdisjoint(node.inputs)
            least = 1 if is_bias else 2
            found.update(x for x in node.inputs if sizes.get(x, 0) >= least)
    weights = [name for name, array in file.initializers.items() if name in found and array.dtype.kind == "f"]
    return [name for name in weights if name not in file.constants] or weights
