"""Kernels of a model that only predicts -> NAME.c: weights as static constants, no gradients, no label.

Example: 784 x 50 weights, all of them numbers that float32 holds exactly, become

    static ALIGNED const float weights[44464] = { ... };
    static ALIGNED real data[DATA_COUNT];

where data[] is filled from the table when the module is imported: half the size on the disk, and kernels that need not
convert what they load, which costs some processors half of their speed. Weights of the model's own type are read from
the table itself.
"""

from __future__ import annotations

import hashlib

import numpy as np

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.functions import passes
from codegen.backends.c.module import (
    Kernels,
    defines,
    includes,
    offsets,
    output_tables,
    shared_constants,
    string,
    table,
    translation_unit,
    weights_text,
)
from codegen.program import Program

PASSES = ("compute_prediction", "compute_outputs")


def inference_text(program: Program, kernels: Kernels, name: str, digest: str, operations: int) -> str:
    """The whole of the C of a Program without a loss."""
    constants = shared_constants(program, kernels, name, digest, operations)
    widens = kernels.lowering == "loops" and program.dtype == "float64" and fits_float32(program)
    declarations = [
        *defines([*constants, ("WEIGHTS", string(weights_digest(program))), ("WIDENS", int(widens))]),
        "",
        *offsets(kernels),
        *includes("ops", "finite", "simd", "inputs", "workspace", "outputs", "finite_weights", "frozen_state"),
        "",
        *weights_table(program, kernels),
        *(["static ALIGNED real data[DATA_COUNT];"] if widens else ["#define data weights"]),
        "",
        *output_tables(program, kernels),
    ]
    drivers = passes(kernels.calls, PASSES)
    return translation_unit(program, kernels, name, digest, declarations, drivers, "frozen_level", "frozen")


def weights_table(program: Program, kernels: Kernels) -> list[str]:
    """The weights as a table of constants: of floats where that loses nothing, which is half the memory."""
    if kernels.lowering == "straightline":  # has them in its statements
        return []
    is_float = program.dtype == "float32" or fits_float32(program)
    literal = Arithmetic("float32" if is_float else "float64").literal
    declaration = f"TABLE ALIGNED {'float' if is_float else 'double'} weights"
    return table(declaration, weights_text(program, kernels, literal))


def fits_float32(program: Program) -> bool:
    weights = np.array([p.data for p in program.parameter_values])
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which is another number
        return bool((weights.astype(np.float32) == weights).all())


def weights_digest(program: Program) -> str:
    """SHA-256 of the weights, in the order of the Program's parameters."""
    weights = np.array([p.data for p in program.parameter_values], dtype="<f8")
    return hashlib.sha256(weights.tobytes()).hexdigest()
