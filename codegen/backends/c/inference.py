"""Kernels of a model that only predicts -> the files of a module: static constant weights, no gradients, no label.

Example: 784 x 50 weights, all of them numbers that float32 holds exactly, become

    static ALIGNED const float weights[44464] = { ... };
    static ALIGNED real data[DATA_COUNT];

where data[] is filled from the table when the module is imported: half the size on disk, and kernels need not convert
on each load, which would halve their speed on some processors. Weights of the model's own type are read from the table
itself. Those that Program.storage makes narrow are tables of each tensor's elements, without padding, in C order.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from codegen.backends.c.constants import string
from codegen.backends.c.kernels import PREDICTION_PASSES, Kernels, batch_passes_of
from codegen.backends.c.module import SLACK, files, includes, output_tables, shared_constants, table
from codegen.backends.expressions import Arithmetic
from codegen.backends.shared import weights_text
from codegen.passes.freeze import FLOATS, Narrow, narrow, rounded
from codegen.program import Program
from codegen.reroll.layout import TensorPlace
from codegen.schedule.widen import row_count

NARROW_TYPES = {"float16": "uint16_t", "bfloat16": "uint16_t", "int8": "int8_t"}


def inference_files(
    program: Program, kernels: Kernels, name: str, version: str, digest: str, operations: int
) -> dict[str, str]:
    """The files of a Program without a loss."""
    groups = shared_constants(program, kernels, name, version, digest, operations)
    stored = stored_as(program)
    widens = kernels.lowering == "loops" and stored != program.dtype
    groups["Weights"] = [
        ("WEIGHTS", string(weights_digest(program))),
        ("WEIGHT_TYPE", string(stored)),
        ("WIDENS", int(widens)),
    ]
    tables = [
        *(_narrow_tables(program, kernels) if program.storage else weights_table(program, kernels)),
        *(_widening(program, kernels) if widens else ["#define data weights", ""]),
        *output_tables(kernels),
        *kernels.tables,
    ]
    batch_names = batch_passes_of(program)
    return files(program, kernels, name, digest, groups, tables, list(PREDICTION_PASSES), batch_names, "level")


def stored_as(program: Program) -> str:
    """The type of the table of weights."""
    return program.storage or _exact_type(program)


def _exact_type(program: Program) -> str:
    """The narrowest type of floats that holds all weights."""
    return "float32" if program.dtype == "float32" or fits_float32(program) else "float64"


def narrow_tensors(program: Program, places: Sequence[TensorPlace]) -> list[Narrow]:
    """Tensors as they are stored. Raises ValueError for weights that are not those that `storage` can hold."""
    storage, found = program.storage or "", []
    for tensor in (place.tensor for place in places):
        weights = np.array([program.parameter_values[number].data for number in tensor.numbers]).reshape(tensor.shape)
        if (rounded(storage, weights) != weights).any():
            raise ValueError(f"{storage} does not hold the weights {tensor.name!r} exactly: codegen.freeze rounds them")
        found.append(narrow(storage, weights))
    return found


def scales_of(program: Program, places: Sequence[TensorPlace]) -> list[float]:
    """The scales of all rows, tensor by tensor; none but of int8."""
    return [scale for stored in narrow_tensors(program, places) for scale in stored.scales.tolist()]


def _narrow_tables(program: Program, kernels: Kernels) -> list[str]:
    """All elements, tensor by tensor; of int8 the scales of all rows too."""
    tensors = narrow_tensors(program, kernels.tensors)
    numbers = [str(x) for stored in tensors for x in stored.numbers.ravel().tolist()] or ["0"]
    scales = [Arithmetic("float32").literal(scale) for scale in scales_of(program, kernels.tensors)]
    header = includes("narrow") if program.storage in FLOATS else table("TABLE float scales", scales or ["0"])
    return [*header, "", *table(f"TABLE ALIGNED {NARROW_TYPES[program.storage or '']} weights", numbers)]


def _widening(program: Program, kernels: Kernels) -> list[str]:
    """data[], and the function that fills it from the table."""
    body = ["    for (ptrdiff_t i = 0; i < DATA_COUNT; i++)", "        data[i] = weights[i];"]
    if program.storage:
        body = _widening_loops(program, kernels)
    return ["static ALIGNED real data[DATA_COUNT];", "", "static void widen_weights(void)", "{", *body, "}", ""]


def _widening_loops(program: Program, kernels: Kernels) -> list[str]:
    lines, scale = ["    ptrdiff_t at = 0;"], 0
    for place, name in zip(kernels.tensors, kernels.tensor_names, strict=True):
        shape, indent, index = place.tensor.shape, "    ", name
        for axis, (length, stride) in enumerate(zip(shape, place.strides, strict=True)):
            lines.append(f"{indent}for (ptrdiff_t i{axis} = 0; i{axis} < {length}; i{axis}++)")
            index += f" + {stride} * i{axis}"
            indent += "    "
        row = f"{scale} + i0" if len(shape) > 1 else str(scale)
        widened = f"widen_{program.storage}(weights[at++])"
        if program.storage not in FLOATS:
            widened = f"(float)weights[at++] * scales[{row}]"
        lines.append(f"{indent}data[{index}] = {widened};")
        scale += row_count(shape)
    return lines


def weights_table(program: Program, kernels: Kernels) -> list[str]:
    """The weights as a table of constants."""
    if kernels.lowering == "straightline":  # its statements contain the weights
        return []
    kind, numbers = exact_weights(program, kernels, SLACK)
    return table(f"TABLE ALIGNED {kind} weights", numbers)


def exact_weights(program: Program, kernels: Kernels, slack: int) -> tuple[str, list[str]]:
    """The type of a table of weights, float if that is exact, in half the memory; and its numbers, padding included."""
    arithmetic = Arithmetic(_exact_type(program))
    return arithmetic.type, weights_text(program, kernels.tensors, kernels.data_count + slack, arithmetic.literal)


def fits_float32(program: Program) -> bool:
    weights = np.array([p.data for p in program.parameter_values])
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which is another number
        return bool((weights.astype(np.float32) == weights).all())


def weights_digest(program: Program) -> str:
    """SHA-256 of the weights, in the order of the Program's parameters."""
    weights = np.array([p.data for p in program.parameter_values], dtype="<f8")
    return hashlib.sha256(weights.tobytes()).hexdigest()
