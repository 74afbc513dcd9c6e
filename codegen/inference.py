"""Kernels of a model that only predicts -> NAME.c: weights as static constants, no gradients, no label.

Example: 784 x 50 weights, all of them numbers that float32 holds exactly, become

    typedef float weight;
    static ALIGNED const weight data[44464] = { ... };

and every kernel computes in the model's own type, so the bits are those of the same weights in float64.
"""

from __future__ import annotations

import hashlib

import numpy as np

from codegen.arithmetic import Arithmetic
from codegen.functions import passes
from codegen.module import (
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
    declarations = [
        *defines([*constants, ("WEIGHTS", string(weights_digest(program)))]),
        "",
        *offsets(kernels),
        *includes("ops", "finite", "simd", "inputs", "workspace", "outputs", "finite_weights", "frozen_state"),
        "",
        *weights_table(program, kernels),
        *output_tables(program, kernels),
    ]
    drivers = passes(kernels.calls, PASSES)
    return translation_unit(program, kernels, name, digest, declarations, drivers, "frozen_level", "frozen")


def weights_table(program: Program, kernels: Kernels) -> list[str]:
    """The weights as a table, of floats where that loses nothing: half the memory, and half of what must be loaded."""
    weights = np.array([p.data for p in program.parameter_values])
    exact = program.dtype == "float32" or bool((weights.astype(np.float32) == weights).all())
    literal = Arithmetic("float32" if exact else "float64").literal
    declaration = [f"typedef {'float' if exact else 'double'} weight;", ""]
    if kernels.lowering == "straightline":  # has them in its statements
        return declaration
    return [*declaration, *table("static ALIGNED const weight data", weights_text(program, kernels, literal))]


def weights_digest(program: Program) -> str:
    """SHA-256 of the weights, in the order of the Program's parameters."""
    weights = np.array([p.data for p in program.parameter_values], dtype="<f8")
    return hashlib.sha256(weights.tobytes()).hexdigest()
