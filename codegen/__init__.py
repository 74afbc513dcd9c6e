"""codegen: compiles a micrograd `Value` graph into a C extension.

import codegen
path = codegen.build(program, "build")      # a codegen.Program in, an importable module out
"""

try:
    import numpy as _  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "compiling a model needs numpy and setuptools: pip install 'micrograd-nn[compile]'", name="numpy"
    ) from error

from codegen.build import build, freeze, load_extension
from codegen.pipeline import compile_program
from codegen.program import Floats, Label, Pixels, Program, load

__all__ = [
    "Floats",
    "Label",
    "Pixels",
    "Program",
    "build",
    "compile_program",
    "freeze",
    "load",
    "load_extension",
]
