"""Program -> a Python module that computes what the C module does, bit for bit, without a compiler.

Example input: the MNIST program becomes nn.py, from top to bottom: what the model is, micrograd's arithmetic
(micrograd/ieee.py, copied), the loops or statements (emit_python.py), the functions that nn has too (runtime/).
It imports the standard library alone and runs on CPython and PyPy from 3.9 on.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.functions import INDENT
from codegen.backends.c.module import comment_text, number_strides, walk
from codegen.backends.c.straightline import declared_layout
from codegen.backends.names import group_name, tensor_names
from codegen.backends.python.emit import PythonText, PythonWriter, StraightLine, functions, wrapped
from codegen.backends.writer import Emitter
from codegen.files import write_if_changed
from codegen.ir.graph import Graph
from codegen.pipeline import build_graph, check_name, graph_digest, lower_graph, no_garbage_collection
from codegen.program import Label, Pixels, Program
from codegen.reroll.layout import TensorPlace
from codegen.reroll.sparse import RowTensor
from micrograd import __version__, ieee

# Up to so many nodes, and as many leaves, every root gets a statement of its own. PyPy gives up on compiling functions
# that are a few times longer.
STRAIGHT_LINE_NODES = 1000

FUTURE = "from __future__ import annotations"
TENSOR_COMMENT = (
    "Name, shape, first place and strides in data[] and grad[]; the parameters' numbers: first and strides, or each."
)


def build_python(program: Program, directory: str | os.PathLike[str], name: str = "nn") -> Path:
    """Writes NAME.py into a folder and returns its path. Raises what generate_python raises."""
    path = Path(directory).resolve() / f"{name}.py"
    write_if_changed(path, generate_python(program, name))
    return path


def generate_python(program: Program, name: str = "nn", lowering: str | None = None) -> str:
    """The text of a Python module with the functions of a compiled one.

    `lowering` is "loops", or "straightline" for one statement a node; by default small models have no loops.
    Raises ValueError for a bad name, and for a Program that is not strict float64: Python has no other arithmetic.
    """
    check_name(name)
    if Arithmetic.of(program) != Arithmetic():
        asked = f"dtype={program.dtype!r}, fma={program.fma}, reorder={program.reorder}"
        raise ValueError(f"generated Python is strict float64 and has no other mode, but this Program has {asked}")
    with no_garbage_collection():
        graph = build_graph(program)
        leaves = len(program.parameter_values) + len(program.inputs.values) + len(program.target_values)
        small = len(graph) <= STRAIGHT_LINE_NODES and leaves <= STRAIGHT_LINE_NODES
        in_statements = small if lowering is None else lowering == "straightline"
        kernels = _statements(graph, program) if in_statements else _loops(graph, program)
        return _module_text(program, kernels, name, graph_digest(graph))


@dataclass
class Kernels:
    """A lowering's result: functions, and where they find parameters, inputs and results."""

    lowering: str
    functions: list[str]
    offsets: list[tuple[str, int]]  # names that the functions use
    tensors: list[TensorPlace]
    row_tensors: list[RowTensor]
    value_count: int
    loss: int
    outputs: dict[str, list[int]]


def _loops(graph: Graph, program: Program) -> Kernels:
    lowered = lower_graph(graph, program, 1)  # nothing is padded
    layout, rows = lowered.layout, lowered.rows
    emitter = Emitter(layout, lowered.shapes, rows, len(program.inputs.values), PythonText(), PythonWriter)
    blocks = [emitter.block(placed, nests) for placed, nests in lowered.groups]
    names = tensor_names(place.tensor.name for place in layout.tensors)
    return Kernels(
        lowering="loops",
        functions=functions(blocks),
        offsets=[
            *zip(names, [place.offset for place in layout.tensors], strict=True),
            ("INPUT", 0),
            *((group_name(p.number), p.offset) for p in layout.placed if p.offset >= 0),
        ],
        tensors=layout.tensors,
        row_tensors=list(rows.values()),
        value_count=layout.value_count,
        loss=lowered.place_of(graph.loss),
        outputs={name: [lowered.place_of(n) for n in nodes] for name, nodes in graph.outputs.items()},
    )


def _statements(graph: Graph, program: Program) -> Kernels:
    tensors, places = declared_layout(program)
    written = StraightLine(graph, program, places)
    slots = written.slots
    return Kernels(
        lowering="straightline",
        functions=written.functions(),
        offsets=[],
        tensors=tensors,
        row_tensors=[],
        value_count=written.inputs + written.targets + len(slots),
        loss=slots.get(graph.loss, -1),
        outputs={name: [slots[n] for n in nodes] for name, nodes in graph.outputs.items()},
    )


def _module_text(program: Program, kernels: Kernels, name: str, digest: str) -> str:
    runtime = [_runtime(part) for part in ("arguments", "model")]
    imports = {line for found, _ in runtime for line in found} - {FUTURE}
    parts = [
        f'"""{name}: a micrograd model in plain Python.{comment_text(program.description)}',
        "",
        f"Generated by codegen from the graph {digest[:16]}.",
        '"""',
        "",
        FUTURE,
        "",
        *sorted(imports, key=lambda line: (line.startswith("from"), line)),
        "",
        "INF = math.inf",
        "NAN = math.nan",
        *_constants(program, kernels, digest),
        "",
        "# Arithmetic on IEEE doubles, as C defines it: no exceptions, no complex numbers.",
        "",
        *_arithmetic(ieee),
        *kernels.functions,
        *(line for _, lines in runtime for line in ("", "", *lines)),
    ]
    return "\n".join(parts) + "\n"


def _constants(program: Program, kernels: Kernels, digest: str) -> list[str]:
    inputs = program.inputs
    initial = program.initial and {name: (float(low), float(high)) for name, (low, high) in program.initial.items()}
    entries: list[tuple[str, object]] = [
        ("VERSION", __version__),
        ("DESCRIPTION", program.description),
        ("DIGEST", digest),
        ("LOWERING", kernels.lowering),
        ("INPUT_COUNT", len(inputs.values)),
        ("INPUT_PIXELS", isinstance(inputs, Pixels)),
        ("INPUT_SCALE", float(inputs.scale) if isinstance(inputs, Pixels) else 1.0),
        ("TARGET", len(inputs.values)),
        ("TARGET_COUNT", len(program.target_values)),
        ("TARGET_LABEL", isinstance(program.targets, Label)),
        ("VALUE_COUNT", kernels.value_count),
        ("LOSS", kernels.loss),
        ("PREDICTION", program.prediction),
        ("LEARNING_RATE", float(program.learning_rate)),
        ("SEED", program.seed),
        ("INITIAL", initial),
        ("ROW_TENSORS", [(row.place.offset, row.row_length) for row in kernels.row_tensors]),
        ("DENSE_SPANS", _dense_spans(kernels)),
        *kernels.offsets,
    ]
    lines = [f"{key} = {value!a}" for key, value in entries]
    lines.append("OUTPUTS = {")
    for output, places in kernels.outputs.items():
        lines += _list(f"{INDENT}{output!a}: [", map(str, places), "],")
    lines += ["}", "", f"# {TENSOR_COMMENT}", "TENSORS = ["]
    for place in kernels.tensors:
        head = f"{INDENT}({place.tensor.name!a}, {place.tensor.shape}, {place.offset}, {place.strides}, "
        found = number_strides(place.tensor)
        lines += _list(f"{head}[", map(str, place.tensor.numbers), "]),") if found is None else [f"{head}{found}),"]
    lines += ["]", "", "Active = list[tuple[int, float]]  # inputs that are not zero, with their values"]
    return [*lines, *_list("INITIAL_DATA = [", _initial_data(program, kernels), "]")]


def _list(start: str, items: Iterable[str], end: str) -> list[str]:
    body = wrapped(", ".join(items))
    return [start + "".join(body).strip() + end] if len(body) < 2 else [start, *body, end]


def _initial_data(program: Program, kernels: Kernels) -> list[str]:
    """Without declared distributions the weights of the traced parameters, in the order of data[]."""
    if program.initial is not None:
        return []
    data = [0.0] * len(program.parameter_values)
    for place in kernels.tensors:
        where = place.offset + walk(place.tensor.shape, place.strides)
        for number, index in zip(place.tensor.numbers, where.tolist(), strict=True):
            data[index] = program.parameter_values[number].data
    return [PythonText().literal(x) for x in data]


def _dense_spans(kernels: Kernels) -> list[tuple[int, int]]:
    """What of data[] and grad[] is not in rows, as few spans."""
    rows = {row.place.offset for row in kernels.row_tensors}
    spans: list[tuple[int, int]] = []
    for place in kernels.tensors:
        if place.offset in rows:
            continue
        first = spans.pop()[0] if spans and spans[-1][1] == place.offset else place.offset
        spans.append((first, place.offset + place.extent))
    return spans


def _arithmetic(module: ModuleType) -> list[str]:
    """The text of a module's functions."""
    found = [part for part in vars(module).values() if inspect.isfunction(part) and part.__module__ == module.__name__]
    return [line for function in found for line in ("", "", inspect.getsource(function).rstrip())]


def _runtime(part: str) -> tuple[list[str], list[str]]:
    """A file of runtime/: the lines of its imports; its docstring, and what follows `if TYPE_CHECKING`, as lines."""
    source = Path(__file__).with_name("runtime").joinpath(f"{part}.py").read_text(encoding="utf-8")
    module, lines = ast.parse(source), source.splitlines()
    imports = [lines[node.lineno - 1] for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
    (end,) = [node.end_lineno for node in module.body if isinstance(node, ast.If)]
    comment = [f"# {line}".rstrip() for line in (ast.get_docstring(module) or "").splitlines()]
    return [line.replace("TYPE_CHECKING, ", "") for line in imports], [*comment, *lines[end:]]
