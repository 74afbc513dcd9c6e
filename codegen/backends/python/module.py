"""Program -> a Python module that computes what the C module does, bit for bit, without a compiler.

Example input: the MNIST program becomes nn.py, from top to bottom: the model's constants, micrograd's arithmetic
(from micrograd/ieee/), the loops (kernels.py) or statements (statements.py), the functions of nn
(runtime/). It imports only the standard library and runs on CPython and PyPy from 3.9 on.
"""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.backends.expressions import Arithmetic
from codegen.backends.python.kernels import INDENT, functions, literal, wrapped
from codegen.backends.python.statements import StraightLine
from codegen.backends.python.updates import update_lines
from codegen.backends.shared import (
    comment_text,
    declared_layout,
    drawn_from,
    input_noun,
    noise_rows,
    number_strides,
    targets_noun,
    weights_text,
)
from codegen.ir.graph import Graph
from codegen.ir.loops import DATA, VALUE, Loops
from codegen.kinds import Part, types_text
from codegen.passes.updates import Updates
from codegen.program import Label, Pixels, Program
from codegen.reroll.layout import TensorPlace
from codegen.schedule.pipeline import Rerolled
from codegen.schedule.rows import RowTensor

# Models of at most this many nodes, and at most this many leaves, get one statement per root. PyPy does not compile
# functions that are a few times longer.
STRAIGHT_LINE_NODES = 1000

FUTURE = "from __future__ import annotations"
TENSOR_COMMENT = (
    "Name, shape, first place and strides in data[] and grad[]; the parameters' numbers: first and strides, or each."
)


def check_strict(program: Program) -> None:
    """Raises ValueError for a Program that is not strict float64: Python has no other arithmetic."""
    if Arithmetic.of(program) != Arithmetic():
        asked = f"storage={program.storage!r}, " if program.storage else ""
        asked += f"dtype={program.dtype!r}, fma={program.fma}, reorder={program.reorder}"
        raise ValueError(f"generated Python is strict float64 and has no other mode, but this Program has {asked}")


def is_small(program: Program, graph: Graph) -> bool:
    """Whether a model is small enough for one statement per root."""
    leaves = len(program.parameter_values) + len(program.input_values) + len(program.target_leaves)
    return len(graph) <= STRAIGHT_LINE_NODES and leaves <= STRAIGHT_LINE_NODES


@dataclass
class PythonKernels:
    """A lowering's result: functions, and where they find parameters, inputs and results."""

    lowering: str
    functions: list[str]
    offsets: list[tuple[str, int]]  # names that the functions use
    tensors: list[TensorPlace]
    row_tensors: list[RowTensor]
    value_count: int
    loss: int
    outputs: dict[str, list[int]]
    metrics: dict[str, int]
    input_gradients: dict[int, int]
    updates: Updates | None = None


def loop_kernels(found: Rerolled, loops: Loops, updates: Updates | None = None) -> PythonKernels:
    """Scheduled loops as functions."""
    tensors = [(region.name, region.start) for region in loops.regions[DATA]]
    return PythonKernels(
        lowering="loops",
        functions=functions(loops, found.loops),
        offsets=[
            *tensors,
            *((r.name, r.start) for r in loops.regions[VALUE] if r.name not in ("TARGET", "NOISE", "LOSS")),
        ],
        tensors=found.layout.tensors,
        row_tensors=list(found.rows.values()),
        value_count=found.layout.value_count,
        loss=found.place_of(found.graph.loss),
        outputs={name: [found.place_of(n) for n in nodes] for name, nodes in found.graph.outputs.items()},
        metrics={name: found.place_of(n) for name, n in found.graph.metrics.items()},
        input_gradients=found.input_gradients,
        updates=updates,
    )


def statement_kernels(graph: Graph, program: Program, updates: Updates | None = None) -> PythonKernels:
    """A statement for each root."""
    tensors, places = declared_layout(program)
    written = StraightLine(graph, program, places)
    slots = written.slots
    return PythonKernels(
        lowering="straightline",
        functions=written.functions(),
        offsets=[],
        tensors=tensors,
        row_tensors=[],
        value_count=written.inputs + written.targets + len(slots),
        loss=slots.get(graph.loss, -1),
        outputs={name: [slots[n] for n in nodes] for name, nodes in graph.outputs.items()},
        metrics={name: slots[n] for name, n in graph.metrics.items()},
        input_gradients={i: slots[n] for i, n in graph.input_gradients.items()},
        updates=updates,
    )


def module_text(
    program: Program, kernels: PythonKernels, name: str, version: str, digest: str, definitions: list[str]
) -> str:
    """The whole of NAME.py. `definitions` are the functions of its ops."""
    needed = ["buffers", "arguments", "state", "descent", "weights", "model"]
    if kernels.updates is not None:
        needed[needed.index("descent")] = "optimizer"
    if program.converts_inputs or program.converts_targets:
        needed.insert(1, "parts")
    if program.noise or program.shift:
        needed.insert(needed.index("state") + 1, "noise")
    runtime = [_runtime(part) for part in needed]
    imports = {line for found, _ in runtime for line in found} - {FUTURE} | {"import struct"}
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
        *_constants(program, kernels, version, digest),
        "",
        "# Functions of IEEE doubles, as micrograd defines them: no exceptions, no complex numbers, no library.",
        "",
        *definitions,
        *kernels.functions,
        *update_lines(kernels.updates, program, [row.place.offset for row in kernels.row_tensors], kernels.tensors),
        *(line for _, lines in runtime for line in ("", "", *lines)),
    ]
    return "\n".join(parts) + "\n"


def _constants(program: Program, kernels: PythonKernels, version: str, digest: str) -> list[str]:
    inputs, label = program.inputs, program.label
    input_parts = program.input_parts if program.converts_inputs else ()
    target_parts = program.target_parts if program.converts_targets else ()
    plain = "none" if program.targets is None else "label" if isinstance(program.targets, Label) else "float64"
    input_type = types_text(input_parts) or ("uint8" if isinstance(inputs, Pixels) else "float64")
    target_type = types_text(target_parts) or plain
    initial = {tensor.name: drawn_from(tensor.initial) for tensor in program.tensors if tensor.initial is not None}
    entries: list[tuple[str, object]] = [
        ("VERSION", version),
        ("DESCRIPTION", program.description),
        ("DIGEST", digest),
        ("LOWERING", kernels.lowering),
        ("INPUT_COUNT", len(program.input_values)),
        ("INPUT_PIXELS", isinstance(inputs, Pixels)),
        ("INPUT_SHAPE", _shape(program.input_parts)),
        ("INPUT_NOUN", input_noun(inputs)),
        ("TARGETS_NOUN", targets_noun(program.targets)),
        ("INPUT_SCALE", float(inputs.scale) if isinstance(inputs, Pixels) else 1.0),
        ("TARGET", len(program.input_values)),
        ("TARGET_COUNT", len(program.target_values)),
        ("TARGET_SHAPE", _shape(program.target_parts)),
        ("NOISE", len(program.input_values) + len(program.target_values)),
        ("SHIFT", program.shift),
        ("NOISES", [tuple(row) for row in noise_rows(program.noises)]),
        ("TARGET_LABEL", isinstance(program.targets, Label)),
        ("LABEL_FIRST", label.first if label is not None else 0),
        ("LABEL_COUNT", label.count if label is not None else 0),
        ("INPUT_PARTS", _part_table("input", input_parts)),
        ("TARGET_PARTS", _part_table("target", target_parts)),
        ("INPUT_TYPE", input_type),
        ("TARGET_TYPE", target_type),
        ("VALUE_COUNT", kernels.value_count),
        ("LOSS", kernels.loss),
        ("PREDICTION", program.prediction),
        ("THRESHOLD", program.threshold),
        ("HAS_CLASSES", program.has_classes),
        ("METRICS", kernels.metrics),
        ("INPUT_GRADIENTS", kernels.input_gradients if program.input_gradients else None),
        ("INPUT_NAMES", [(part.name, part.first, part.count) for part in program.input_parts if part.name]),
        ("LEARNING_RATE", program.rate),
        ("SEED", program.seed),
        ("INITIAL", initial if program.initial is not None else None),
        ("ROW_TENSORS", [(row.place.offset, row.row_length, row.lanes, row.factor) for row in kernels.row_tensors]),
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


def _part_table(prefix: str, parts: Sequence[Part]) -> list[tuple[object, ...]]:
    """The fields of Part in runtime/parts.py."""
    return [
        (
            *(part.name, part.what(prefix), part.one(prefix), part.kind, part.numbers, part.classes),
            *(float(part.scale), part.shape),
        )
        for part in parts
    ]


def _shape(parts: Sequence[Part]) -> tuple[int, ...]:
    """That of an example, if there is one part."""
    return parts[0].shape if len(parts) == 1 else ()


def _list(start: str, items: Iterable[str], end: str) -> list[str]:
    body = wrapped(", ".join(items))
    return [start + "".join(body).strip() + end] if len(body) < 2 else [start, *body, end]


def _initial_data(program: Program, kernels: PythonKernels) -> list[str]:
    """Without declared distributions the weights of the traced parameters, in the order of data[]."""
    if program.initial is not None:
        return []
    return weights_text(program, kernels.tensors, len(program.parameter_values), literal)


def _dense_spans(kernels: PythonKernels) -> list[tuple[int, int]]:
    """The parts of data[] and grad[] outside row tensors, in as few spans as possible."""
    rows = {row.place.offset for row in kernels.row_tensors}
    spans: list[tuple[int, int]] = []
    for place in kernels.tensors:
        if place.offset in rows:
            continue
        joins = spans and spans[-1][1] == place.offset and kernels.updates is None
        first = spans.pop()[0] if joins else place.offset
        spans.append((first, place.offset + place.extent))
    return spans


def _runtime(part: str) -> tuple[list[str], list[str]]:
    """A file of runtime/: its import lines; its docstring as a comment, with the lines after `if TYPE_CHECKING`."""
    source = Path(__file__).with_name("runtime").joinpath(f"{part}.py").read_text(encoding="utf-8")
    module, lines = ast.parse(source), source.splitlines()
    imports = [lines[node.lineno - 1] for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
    end = max(node.end_lineno or 0 for node in module.body if isinstance(node, ast.Import | ast.ImportFrom | ast.If))
    comment = [f"# {line}".rstrip() for line in (ast.get_docstring(module) or "").splitlines()]
    return [line.replace("TYPE_CHECKING, ", "") for line in imports], [*comment, *lines[end:]]
