"""The functions as the project translates them, in a shared library: for one type, compiler and SIMD level.

Example: Compiled(folder, "avx2")("exp", x) is the exponentials of an array. The library has, for each function,

    void array_exp(const real *x, const real *z, real *y, long n)    in lanes; z is for the second operand
    real (*const scalar_exp)(real)                                  out of line
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from codegen.backends.expressions import Arithmetic
from codegen.backends.shared import csrc
from codegen.toolchain import UNIX_FLAGS
from micrograd import ieee, ops
from micrograd.definitions import c_definitions, lane_template

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

NAMES = ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "softplus", "sin", "cos", "erf", "gelu", "power")
ROWS = {row.function.__name__: row for row in ops.ROWS if row.function.__name__ in NAMES}
LEVELS = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"],
}


def levels() -> list[str]:
    """Those of this processor."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    needed = {"baseline": set(), "avx2": {"avx2"}, "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl"}}
    return [level for level, flags in needed.items() if flags <= set(text.split())]


def python_function(name: str) -> Any:
    return getattr(ieee, name)


def source(is_float32: bool = False) -> str:
    """The C of all functions."""
    literal = Arithmetic("float32" if is_float32 else "float64").literal
    definitions = c_definitions(ROWS.values(), literal, is_float32)
    return "\n".join([f"#define FLOAT32 {int(is_float32)}", '#include "ops.h"', *definitions, *_exported(is_float32)])


def _exported(is_float32: bool) -> Iterator[str]:
    for name, row in ROWS.items():
        operands = ["x[i]", "z[i]"][: row.arity]
        yield f"void array_{name}(const real *restrict x, const real *restrict z, real *restrict y, long n)"
        yield f"{{ (void)z; for (long i = 0; i < n; i++) y[i] = {lane_template(row, is_float32).format(*operands)}; }}"
        yield f"real (*const scalar_{name})({', '.join(['real'] * row.arity)}) = op_{row.name};"


class Compiled:
    """A shared library of all functions. Raises CalledProcessError where the compiler fails."""

    def __init__(
        self, folder: Path, level: str, is_float32: bool = False, compiler: str = "gcc", optimisation: str = "-O3"
    ) -> None:
        self.type: Any = np.float32 if is_float32 else np.float64
        path = folder / f"{level}_{self.type.__name__}_{compiler}{optimisation}.c"
        path.write_text(source(is_float32) + "\n", encoding="utf-8")
        flags = [flag for flag in UNIX_FLAGS if flag not in ("-O3", "-fvisibility=hidden")]
        shared = ["-shared", "-fPIC", "-o", str(path.with_suffix(".so")), str(path), "-lm"]
        command = [compiler, *flags, optimisation, *LEVELS[level], f"-I{csrc()}", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([*command, *shared], check=True)
        self.library = ctypes.CDLL(str(path.with_suffix(".so")))

    def __call__(self, name: str, x: Floats, z: Floats | None = None) -> Floats:
        """The function of each element, in lanes."""
        x = np.ascontiguousarray(x, self.type)
        z = x if z is None else np.ascontiguousarray(z, self.type)
        y = np.empty_like(x)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, z, y)]
        getattr(self.library, f"array_{name}")(*pointers, ctypes.c_long(len(x)))
        return y

    def scalar(self, name: str) -> int:
        """The address of the function of one number, which is not inlined."""
        return ctypes.c_void_p.in_dll(self.library, f"scalar_{name}").value or 0

    def array(self, name: str) -> int:
        """The address of the loop over lanes."""
        return ctypes.cast(getattr(self.library, f"array_{name}"), ctypes.c_void_p).value or 0
