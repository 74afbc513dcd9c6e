"""Kernels of a model that only predicts -> NAME.c and NAME_kernels.h: static constant weights, no gradients, no label.

Example: 784 x 50 weights, all of them numbers that float32 holds exactly, become

    static ALIGNED const float weights[44464] = { ... };
    static ALIGNED real data[DATA_COUNT];

where data[] is filled from the table when the module is imported: half the size on disk, and kernels need not convert
on each load, which would halve their speed on some processors. Weights of the model's own type are read from the table
itself.
"""

from __future__ import annotations

import hashlib

import numpy as np

from codegen.backends.arithmetic import Arithmetic
from codegen.backends.c.kernels import PREDICTION_PASSES, Kernels, batch_passes_of
from codegen.backends.c.module import (
    files,
    output_tables,
    shared_constants,
    string,
    table,
    weights_text,
)
from codegen.program import Program


def inference_files(
    program: Program, kernels: Kernels, name: str, version: str, digest: str, operations: int
) -> dict[str, str]:
    """NAME.c and NAME_kernels.h of a Program without a loss."""
    groups = shared_constants(program, kernels, name, version, digest, operations)
    widens = kernels.lowering == "loops" and program.dtype == "float64" and fits_float32(program)
    groups["Weights"] = [("WEIGHTS", string(weights_digest(program))), ("WIDENS", int(widens))]
    tables = [
        *weights_table(program, kernels),
        "static ALIGNED real data[DATA_COUNT];" if widens else "#define data weights",
        "",
        *output_tables(kernels),
        *kernels.tables,
    ]
    batch_names = batch_passes_of(program)
    return files(program, kernels, name, digest, groups, tables, list(PREDICTION_PASSES), batch_names, "level")


def weights_table(program: Program, kernels: Kernels) -> list[str]:
    """The weights as a table of constants: of floats if they are exact, in half the memory."""
    if kernels.lowering == "straightline":  # its statements contain the weights
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
