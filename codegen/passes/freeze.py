"""Program and trained weights -> a Program that only predicts: fewer Values, and the weights as constants.

Example input, with the weights w = 2.0, b = -3.0, u = 0.5, v = 0.0 and pixels x, y in 0..1:

    p = (w * x + b).relu()      q = (w * y).relu()      out = u * p + v * q + b

becomes, p being 0 for every x and q having no part in anything:

    out = b

What a caller can observe keeps its bits, but for the sign of a zero. (Where that sign decides about more, by way of a
power, it is kept: 1 / -0.0 is -inf.) Three things are found in the graph:

* relus that are 0 for all inputs, by interval arithmetic. Rounding is monotone, so computed values stay inside of
  intervals whose ends are computed in the same way.
* units that every user multiplies by a weight of 0. A single weight of 0 stays: a sum with gaps is no loop any more.
* whole rows and columns of weights that nothing reads after that. They are cut out of their tensors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from codegen.backends.c.standalone import standalone_text
from codegen.build import build, write_if_changed
from codegen.pipeline import compile_program
from codegen.program import Floats, Pixels, Program, Tensor
from micrograd import ops
from micrograd.engine import Value

if TYPE_CHECKING:
    import numpy.typing as npt

    from micrograd.nn import Nested

Interval = tuple[float, float]
ANYTHING = (-math.inf, math.inf)  # nan too


def freeze(
    program: Program,
    weights: Mapping[str, npt.ArrayLike],
    directory: str | os.PathLike[str],
    name: str = "nn_infer",
    lowering: str = "loops",
    *,
    compiler: str | None = None,
    flags: list[str] | None = None,
) -> Path:
    """Compiles a Program with its trained weights into an inference-only extension module and returns its path.

    `weights` maps the Program's parameter names to buffers of their shapes, as state_dict() does. The other arguments
    are those of build(). Raises ValueError for weights that do not fit the Program or are not finite.
    """
    return build(frozen_program(program, weights), directory, name, lowering, compiler=compiler, flags=flags)


def freeze_standalone(
    program: Program, weights: Mapping[str, npt.ArrayLike], directory: str | os.PathLike[str], name: str = "nn_infer"
) -> tuple[Path, Path]:
    """The same as plain C for programs without Python: writes NAME.h and NAME.c and returns their paths."""
    frozen = frozen_program(program, weights)
    compiled = compile_program(frozen, name)
    paths = Path(directory, f"{name}.h"), Path(directory, f"{name}.c")
    for path, text in zip(paths, standalone_text(frozen, compiled.kernels, name, compiled.digest), strict=True):
        write_if_changed(path, text)
    return paths


def frozen_program(program: Program, weights: Mapping[str, npt.ArrayLike]) -> Program:
    """The smallest Program that the weights leave of the outputs. Raises ValueError as freeze() does."""
    set_weights(program, weights)
    size = -1
    while size != (size := len(program.parameter_values)):
        program = _smaller(program)
    return program


def set_weights(program: Program, weights: Mapping[str, npt.ArrayLike]) -> None:
    """Gives the Program's parameters these data, all or nothing, rounded to its dtype."""
    expected = {tensor.name for tensor in program.tensors}
    if set(weights) != expected:
        raise ValueError(f"the weights are named {sorted(weights)}, but the parameters {sorted(expected)}")
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, which is refused
        arrays = {name: np.asarray(array).astype(program.dtype) for name, array in weights.items()}
    for tensor in program.tensors:
        array = arrays[tensor.name]
        if array.shape != tensor.shape:
            raise ValueError(f"the weights {tensor.name!r} have the shape {array.shape}, expected {tensor.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"the weights {tensor.name!r} are not all finite")
    for tensor in program.tensors:
        for number, weight in zip(tensor.numbers, arrays[tensor.name].ravel().tolist(), strict=True):
            program.parameter_values[number].data = weight


@dataclass
class _Graph:
    """The Values that the outputs need, in topological order, and what is known about them, by identity."""

    program: Program
    order: list[Value] = field(init=False)
    outputs: set[int] = field(init=False)
    parameters: set[int] = field(init=False)
    intervals: dict[int, Interval] = field(default_factory=dict)
    signed: set[int] = field(init=False)  # where the sign of a zero matters

    def __post_init__(self) -> None:
        outputs = [value for values in self.program.outputs.values() for value in values]
        self.order = Value(0.0, tuple(outputs), "outputs").topo()[:-1]
        self.outputs = set(map(id, outputs))
        self.parameters = set(map(id, self.program.parameter_values))
        self.signed = _signed(self.order)

    def is_zero_weight(self, value: Value) -> bool:
        return id(value) in self.parameters and value.data == 0.0


def _signed(order: list[Value]) -> set[int]:
    """What a negative power is taken of, and all that could make it a zero of the other sign."""
    signed: set[int] = set()
    for value in reversed(order):
        base_only = value._op == "**"
        if base_only and (value._exponent is None or value._exponent < 0):
            signed.add(id(value._prev[0]))
        if id(value) in signed and value._op not in ("exp", "log", "sigmoid"):  # which are the same of both zeros
            signed.update(map(id, value._prev[:1] if base_only else value._prev))
    return signed


def _smaller(program: Program) -> Program:
    graph = _Graph(program)
    _find_intervals(graph)
    unused = _unused_units(graph)
    copies = _copies(graph, unused)
    outputs = {name: [copies[id(v)] for v in values] for name, values in program.outputs.items()}
    roots = [value for values in outputs.values() for value in values]
    live = set(map(id, Value(0.0, tuple(roots), "outputs").topo()))
    tensors = {tensor.name: _live_part(program, tensor, copies, live) for tensor in program.tensors}
    inputs = [copies[id(value)] for value in program.inputs.values]
    return Program(
        inputs=Pixels(inputs, program.inputs.scale) if isinstance(program.inputs, Pixels) else Floats(inputs),
        targets=None,
        parameters={name: part for name, part in tensors.items() if part is not None},
        loss=None,
        outputs=outputs,
        prediction=program.prediction,
        description=program.description,
        dtype=program.dtype,
        fma=program.fma,
        reorder=program.reorder,
    )


def _find_intervals(graph: _Graph) -> None:
    """Where each value lies, whatever the inputs are. Intervals are finite, or nothing is known."""
    program, intervals = graph.program, graph.intervals
    if isinstance(program.inputs, Pixels):
        full = 255 * program.inputs.scale
        intervals.update(dict.fromkeys(map(id, program.inputs.values), (min(0.0, full), max(0.0, full))))
    else:
        intervals.update(dict.fromkeys(map(id, program.inputs.values), ANYTHING))
    for value in graph.order:
        if id(value) not in intervals:
            ends = (value.data, value.data) if not value._prev else _interval(value, graph)
            intervals[id(value)] = ends if all(map(math.isfinite, ends)) else ANYTHING


def _interval(value: Value, graph: _Graph) -> Interval:
    """The interval of an op from those of its operands; of the library's functions only the range is known."""
    operands = [graph.intervals[id(operand)] for operand in value._prev]
    if ANYTHING in operands:
        return ANYTHING
    low, high = operands[0]
    match value._op:
        case "+":
            return low + operands[1][0], high + operands[1][1]
        case "*":
            products = [x * y for x in operands[0] for y in operands[1]]
            return min(products), max(products)
        case "ReLU":
            return max(low, 0.0), max(high, 0.0)
        case "max":
            return max(low, operands[1][0]), max(high, operands[1][1])
        case "detach":
            return low, high
        case "tanh":
            return -1.0, 1.0
        case "sigmoid":
            return 0.0, 1.0
        case _:
            return ANYTHING


def _unused_units(graph: _Graph) -> set[int]:
    """What has no part in any output, because all that use it multiply it by 0 or are of no use themselves."""
    used = set(graph.outputs)
    for value in reversed(graph.order):
        if id(value) not in used:
            continue
        for operand in value._prev:
            other = value._prev[value._prev[0] is operand] if len(value._prev) == 2 else operand
            drops = value._op == "*" and graph.is_zero_weight(other) and graph.intervals[id(operand)] != ANYTHING
            if not (drops and operand._prev) or id(value) in graph.signed:
                used.add(id(operand))
    return {id(value) for value in graph.order if id(value) not in used}


def _copies(graph: _Graph, unused: set[int]) -> dict[int, Value]:
    """For the identity of each Value, what stands for it in the smaller graph."""
    declared = [*graph.program.parameter_values, *graph.program.inputs.values]
    copies = {id(value): Value(value.data) for value in declared}
    constants: dict[int, float] = {}  # the copies that are numbers, by identity
    for value in graph.order:
        if id(value) in copies:
            continue
        operands = tuple(copies[id(operand)] for operand in value._prev)
        known = [constants.get(id(operand)) for operand in operands]
        if value._op == "+" and 0.0 in known and id(value) not in graph.signed:
            copies[id(value)] = operands[known[0] == 0.0]
            continue
        constant = _constant(graph, value, known, id(value) in unused)
        if constant is None:
            copy = Value(value.data, operands, value._op, value.label)
            copy._exponent = value._exponent
        else:
            copy = Value(constant)
            constants[id(copy)] = constant
        copies[id(value)] = copy
    return copies


def _constant(graph: _Graph, value: Value, operands: list[float | None], is_unused: bool) -> float | None:
    """The number that a Value is for all inputs, None where it depends on them, on weights, or is not known."""
    if not operands:
        return value.data
    if is_unused:
        return 0.0
    if id(value) not in graph.signed:
        if value._op == "ReLU" and graph.intervals[id(value)] == (0.0, 0.0):
            return 0.0
        if value._op == "*" and 0.0 in operands and ANYTHING not in [graph.intervals[id(x)] for x in value._prev]:
            return 0.0
    numbers = [x for x in operands if x is not None]
    if len(numbers) < len(operands):
        return None
    exponent = [] if value._exponent is None else [value._exponent]
    return ops.BY_SYMBOL[value._op].function(*numbers, *exponent)


def _live_part(program: Program, tensor: Tensor, copies: dict[int, Value], live: set[int]) -> Nested | None:
    """A tensor without the rows, columns, ... of which nothing is read, as nested lists. None: nothing at all is."""
    values = np.empty(len(tensor.numbers), dtype=object)
    is_live = np.zeros(len(tensor.numbers), dtype=bool)
    for i, number in enumerate(tensor.numbers):
        values[i] = copies[id(program.parameter_values[number])]
        is_live[i] = id(values[i]) in live
    if not is_live.any():
        return None
    if not tensor.shape:
        return copies[id(program.parameter_values[tensor.numbers[0]])]
    is_live = is_live.reshape(tensor.shape)
    kept = [is_live.any(axis=tuple(a for a in range(is_live.ndim) if a != axis)) for axis in range(is_live.ndim)]
    part: list[Nested] = values.reshape(tensor.shape)[np.ix_(*kept)].tolist()
    return part
