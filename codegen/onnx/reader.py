"""What an ONNX file says, checked: plain tuples, dictionaries and NumPy arrays, and nothing of onnx's own classes.

A file may come from anywhere. So nothing is allocated by what it announces: tensors must have the bytes that their
shapes need, and tensors in files of their own must lie in the model's folder and be there. Every mistake is an
OnnxError that names the file, and the tensor or node.
"""

import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from codegen.checks import shown
from codegen.onnx.shapes import TYPES
from codegen.onnx.tensors import OnnxError, Tensor

OLDEST = 7  # the first version of ONNX with NumPy's broadcasting
MAX_INPUTS = 1000
STRINGS = 8  # their TensorProto.DataType
STORED: dict[int, Any] = {1: np.float32, 10: np.float16, 16: np.uint16}  # how floats lie in a file
MAX_LABEL = 1000  # letters
MAX_DIMENSIONS = 32  # of an array
DOMAINS = {"": "", "ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml"}


@dataclass
class Node:
    """One op. `where` is what messages call it; an input that is left out is empty."""

    where: str
    domain: str
    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


@dataclass
class Input:
    """Dimensions are numbers, names, or None for one without either. `words`: below what number tokens are."""

    name: str
    type: int
    shape: tuple[int | str | None, ...]
    words: int = 0


@dataclass
class File:
    path: Path
    producer: str
    inputs: list[Input]
    outputs: list[str]
    nodes: list[Node]
    initializers: dict[str, Tensor]
    versions: dict[str, int]
    constants: set[str] = field(default_factory=set)  # which of the initializers Constant nodes made


def read(path: str | os.PathLike[str]) -> File:
    """Raises OSError, OnnxError, and ImportError without the package onnx."""
    onnx = package()
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise OnnxError(f"{path}: not a file")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf has several implementations
        raise OnnxError(f"{path}: not an ONNX file: {error}") from error
    return read_model(model, path)


def package() -> Any:
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError("reading ONNX files needs onnx: pip install 'micrograd-nn[onnx]'", name="onnx") from error
    return onnx


def read_model(model: Any, path: Path) -> File:
    """`model`: a ModelProto. `path`: where it is from."""
    try:
        return _File(model, path).read()
    except OnnxError as error:
        raise type(error)(f"{path}: {error}") from error
    except (ValueError, TypeError, AttributeError, OverflowError) as error:  # of a text that is no text, for instance
        raise OnnxError(f"{path}: not a whole ONNX file: {error}") from error


class _File:
    def __init__(self, model: Any, path: Path) -> None:
        self.model, self.graph, self.path, self.folder = model, model.graph, path, path.resolve().parent

    def read(self) -> File:
        if not self.model.graph.output:
            raise OnnxError("not an ONNX model: its graph has no outputs")
        versions = {"": OLDEST} if not self.model.opset_import else {}
        for each in self.model.opset_import:
            versions[_domain(each.domain)] = int(each.version)
        if self.graph.node and versions.get("", OLDEST) < OLDEST:
            raise OnnxError(f"version {versions['']} of the ops is too old: from {OLDEST} on they are supported")
        if self.graph.sparse_initializer:
            raise OnnxError("sparse initializers are not supported")
        initializers = {_text(each.name): self.tensor(each) for each in self.graph.initializer}
        nodes = [self.node(number, each) for number, each in enumerate(self.graph.node)]
        inputs = [self.input(each) for each in self.graph.input if each.name not in initializers]
        if len(inputs) > MAX_INPUTS:
            raise OnnxError(f"{len(inputs)} inputs are more than {MAX_INPUTS}")
        producer = f"{_text(self.model.producer_name)} {_text(self.model.producer_version)}".strip()
        outputs = [_text(each.name) for each in self.graph.output]
        found = File(self.path, producer, inputs, outputs, nodes, initializers, versions)
        _check_names(found)
        return found

    def input(self, info: Any) -> Input:
        if not info.type.HasField("tensor_type"):
            raise OnnxError(f"the input {shown(info.name)} is not a tensor")
        kind = info.type.tensor_type
        if not kind.HasField("shape"):
            raise OnnxError(f"the input {shown(info.name)} has no shape")
        shape = [_dimension(each) for each in kind.shape.dim]
        if any(isinstance(size, int) and size < 0 for size in shape) or len(shape) > MAX_DIMENSIONS:
            raise OnnxError(f"the input {shown(info.name)} has the shape {shape[:MAX_DIMENSIONS]}")
        return Input(_text(info.name), int(kind.elem_type), tuple(shape))

    def node(self, number: int, node: Any) -> Node:
        domain, op = _domain(node.domain), _text(node.op_type)
        where = f"node {shown(node.name or number)} ({f'{domain}.' * bool(domain)}{op})"
        attributes = {_text(each.name): self.attribute(where, each) for each in node.attribute}
        return Node(where, domain, op, _named(node.input), _named(node.output), attributes)

    def attribute(self, where: str, given: Any) -> Any:
        kinds = type(given)
        if given.ref_attr_name or given.type in (kinds.GRAPH, kinds.GRAPHS):
            raise OnnxError(f"{where}: the attribute {given.name!r} is a graph, which is not supported")
        simple = {kinds.FLOAT: "f", kinds.INT: "i", kinds.FLOATS: "floats", kinds.INTS: "ints"}
        if given.type in simple:
            value = getattr(given, simple[given.type])
            return value if isinstance(value, int | float) else list(value)
        if given.type == kinds.STRING:
            return given.s.decode()
        if given.type == kinds.STRINGS:
            return [text.decode() for text in given.strings]
        if given.type == kinds.TENSOR:
            return self.tensor(given.t)
        raise OnnxError(f"{where}: the attribute {given.name!r} is of the kind {given.type}, which is not supported")

    def tensor(self, given: Any) -> Tensor:
        """Raises OnnxError for one whose bytes do not fit its shape."""
        what, shape = f"the tensor {shown(given.name)}", list(given.dims)
        if len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0:
            raise OnnxError(f"{what} has the shape {shape[:MAX_DIMENSIONS]}")
        if given.data_type == STRINGS:
            return _texts(what, given, shape)
        if given.data_type not in TYPES:
            raise OnnxError(f"{what} has elements of the type {given.data_type}, which is not supported")
        if given.HasField("segment"):
            raise OnnxError(f"{what} is in segments, which is not supported")
        if given.data_location == type(given).EXTERNAL:
            return self.external(what, given, shape)
        try:
            found: Tensor = package().numpy_helper.to_array(given)
        except Exception as error:
            raise OnnxError(f"{what} of the shape {shape} does not have its numbers: {error}") from error
        return found.astype(TYPES[given.data_type], copy=False)

    def external(self, what: str, given: Any, shape: Sequence[int]) -> Tensor:
        """Numbers in a file beside the model's, which no link may lead away from."""
        says = {_text(each.key): _text(each.value) for each in given.external_data}
        location = says.get("location", "")
        file = (self.folder / location).resolve() if location and "\0" not in location else self.folder
        if Path(location).is_absolute() or not file.is_relative_to(self.folder) or not file.is_file():
            raise OnnxError(f"{what} is said to be in {shown(location)}, which is no file in the model's folder")
        stored = np.dtype(STORED.get(given.data_type, TYPES[given.data_type])).newbyteorder("<")
        size = math.prod(shape) * stored.itemsize
        offset, length = int(says.get("offset", "0")), int(says.get("length", str(size)))
        if offset < 0 or length != size or offset + size > file.stat().st_size:
            raise OnnxError(f"{what} of {size} bytes is not at {offset} of {shown(location)}, which has fewer")
        with file.open("rb") as stream:
            stream.seek(offset)
            numbers = np.frombuffer(stream.read(size), stored).reshape(shape)
        if given.data_type == 16:  # the upper half of a float32
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers.astype(TYPES[given.data_type])


def _named(names: Sequence[str]) -> list[str]:
    """Without those at the end that are left out."""
    found = list(map(_text, names))
    while found and not found[-1]:
        found.pop()
    return found


def _texts(what: str, given: Any, shape: Sequence[int]) -> Tensor:
    """Labels, which nothing computes with."""
    found = [text.decode() for text in given.string_data]
    if len(found) != math.prod(shape) or max(map(len, found), default=0) > MAX_LABEL:
        raise OnnxError(f"{what} of the shape {shape} has {len(found)} strings, of at most {MAX_LABEL} letters")
    return np.array(found, str).reshape(shape)


def _dimension(given: Any) -> int | str | None:
    if given.HasField("dim_value"):
        return int(given.dim_value)
    return _text(given.dim_param) or None


def _text(text: str | bytes) -> str:
    """What protobuf has for a string: bytes, if it is no Unicode."""
    if isinstance(text, bytes):
        raise OnnxError(f"not an ONNX file: a name is no text: {shown(text)}")
    return text


def _domain(name: str | bytes) -> str:
    return DOMAINS.get(_text(name), _text(name))


def _check_names(file: File) -> None:
    """Each tensor is made once, and before it is read."""
    known = set(file.initializers)
    for each in file.inputs:
        if each.name in known or not each.name:
            raise OnnxError(f"there are two inputs {shown(each.name)}")
        known.add(each.name)
    for node in file.nodes:
        for name in node.inputs:
            if name and name not in known:
                raise OnnxError(f"{node.where} reads {shown(name)}, which nothing before it makes")
        for name in filter(None, node.outputs):
            if name in known:
                raise OnnxError(f"{node.where} makes {shown(name)}, which is there already")
            known.add(name)
    for name in file.outputs:
        if name not in known:
            raise OnnxError(f"nothing makes the output {shown(name)}")


def sizes_of(input: Input, dimensions: Mapping[str, int]) -> list[int]:
    """Its shape in numbers: a first dimension that may vary is that of examples, and is 1. Raises OnnxError."""
    return [*_sizes(input, dimensions), *([input.words] if input.words else [])]


def _sizes(input: Input, dimensions: Mapping[str, int]) -> Iterator[int]:
    first = input.shape[0] if input.shape else None
    for axis, size in enumerate(input.shape):
        if isinstance(size, int):
            yield size
        elif size is not None and size in dimensions:
            yield dimensions[size]
        elif axis == 0 or (size is not None and size == first):
            yield 1
        else:
            name = f"the dimension {size!r}" if size else f"a dimension without a name, axis {axis},"
            raise OnnxError(
                f"{name} of the input {shown(input.name)} may vary: "
                + (f"say how long it is, dimensions={{{size!r}: ...}}" if size else "export the model with a length")
            )
