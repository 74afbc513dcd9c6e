"""Runs the nodes of a file: constants become constants, the others steps, which make Values.

Example: of x, a graph's input, and the nodes Shape, Gather, Concat, Reshape and Gemm, the first three are computed by
NumPy, and two steps are left

    flat = Reshape(x, [1, 784])
    logits = Gemm(flat, w["fc.weight"], w["fc.bias"], transB=1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from codegen.onnx.ops import OPS, name_of
from codegen.onnx.reader import File, Node
from codegen.onnx.tensors import OnnxError, Tensor, is_graph

PASSES = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "ZipMap", "LabelEncoder"}  # a decision on
PASSES |= {"ArrayFeatureExtractor", "Gather"}
KEEPS = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Normalizer"}  # elements, but for a factor
RANKS = KEEPS | {"Softmax", "Softmax_1", "LogSoftmax", "LogSoftmax_1", "Sigmoid"}


@dataclass(frozen=True)
class Decision:
    """Which element of a tensor is the largest: a prediction. `classes`: the labels that it chooses from, if known."""

    scores: str
    classes: tuple[object, ...] = ()


Known: TypeAlias = "Tensor | Decision"


@dataclass
class Step:
    """A call: `results = op(*arguments, **attributes)`, of tensors by name; an argument that is left out is empty."""

    op: str
    arguments: list[str]
    attributes: dict[str, Any]
    results: list[str]


@dataclass
class Graph:
    """What has been computed: every tensor by name, and the steps that made those of Values."""

    tensors: dict[str, Known]
    steps: list[Step] = field(default_factory=list)
    makers: dict[str, Step] = field(default_factory=dict)

    def values(self, name: str) -> Tensor | None:
        """A tensor of Values; None for a constant and a decision."""
        found = self.tensors[name]
        return found if isinstance(found, np.ndarray) and is_graph(found) else None

    def maker(self, name: str) -> Step | None:
        """The step that computed a tensor. Those are passed over that keep its elements and their order."""
        step = self._makers().get(name)
        while step is not None and step.op in KEEPS:
            step = self._makers().get(step.arguments[0])
        return step

    def _makers(self) -> dict[str, Step]:
        if not self.makers:
            self.makers = {name: step for step in self.steps for name in step.results}
        return self.makers

    def ranked_as(self, name: str) -> set[str]:
        """The tensors whose largest element is that of this one, which they were computed from."""
        found = {name}
        for step in self.steps:
            if step.op in RANKS and step.arguments[0] in found:
                found.update(step.results[:1])
        return found


def run(file: File, tensors: Mapping[str, Known]) -> Graph:
    """Computes every node from the tensors that are given. Raises OnnxError, which names the node."""
    graph = Graph(dict(tensors))
    for node in file.nodes:
        try:
            _run(node, graph, file.versions.get("", 0))
        except OnnxError as error:
            raise type(error)(f"{file.path}: {node.where}: {error}") from error
        except Exception as error:  # whatever NumPy makes of what a file says
            said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
            raise OnnxError(f"{file.path}: {node.where}: {' '.join(said.split())}") from error
    return graph


def _run(node: Node, graph: Graph, version: int) -> None:
    given = [graph.tensors[name] if name else None for name in node.inputs]
    decisions = [each for each in given if isinstance(each, Decision)]
    if decisions or (node.op == "ArgMax" and graph.values(node.inputs[0]) is not None):
        graph.tensors[node.outputs[0]] = _passed(node, given, decisions) if decisions else _decided(node, graph)
        return
    if node.op == "ZipMap":
        node = replace(node, domain="", op="Identity", attributes={})
    name = name_of(node.domain, node.op, version)
    function = OPS.get((node.domain, name))
    if function is None:
        raise OnnxError("this op is not supported")
    attributes = dict(node.attributes)
    if node.op == "Split":
        attributes.setdefault("num_outputs", len(node.outputs))
    found = function(*given, **attributes)
    results: tuple[Tensor, ...] = found if isinstance(found, tuple) else (found,)
    if any(node.outputs[len(results) :]):
        raise OnnxError(f"only {len(results)} of its outputs are supported, but it has {len(node.outputs)}")
    for result, output in zip(results, node.outputs, strict=False):
        graph.tensors[output] = result
    if any(map(is_graph, results[: len(node.outputs)])):
        graph.steps.append(Step(name, list(node.inputs), attributes, list(node.outputs)))


def _decided(node: Node, graph: Graph) -> Decision:
    """ArgMax, if it is that of all elements."""
    shape = graph.values(node.inputs[0]).shape  # type: ignore[union-attr]
    axis = node.attributes.get("axis", 0 if "classes" not in node.attributes else -1)
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape) or shape[axis] != np.prod(shape, dtype=float):
        raise OnnxError(f"ArgMax is a prediction, of one row, but that along axis {axis} of {list(shape)} is not")
    if node.attributes.get("select_last_index"):
        raise OnnxError("select_last_index is not supported: predict() takes the first of equal elements")
    return Decision(node.inputs[0], tuple(node.attributes.get("classes", ())))


def _passed(node: Node, given: Sequence[Any], decisions: Sequence[Decision]) -> Decision:
    """A decision keeps through ops that look up its label, or only change type or shape."""
    if node.op not in PASSES:
        raise OnnxError("it computes with what ArgMax has decided, which is only known when the model runs")
    labels = next((each for each in given if isinstance(each, np.ndarray)), None)
    if node.op in ("ArrayFeatureExtractor", "Gather") and labels is not None:
        return replace(decisions[0], classes=tuple(labels.ravel().tolist()))
    return decisions[0]
