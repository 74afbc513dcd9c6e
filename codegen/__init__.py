"""Compiles a micrograd `Value` graph into a C extension.

    import codegen

    model = codegen.compile(program)         # a codegen.Program in, a model out, of which there can be many
    path = codegen.build(program, "build")   # the same as an importable module, with its C

`freeze` makes a module of a trained model that only predicts.
"""

try:
    from micrograd import __version__ as _version  # noqa: F401
except ImportError as error:
    import micrograd

    raise ImportError(
        f"codegen needs the micrograd of micrograd-nn, but `import micrograd` finds {micrograd.__file__}: "
        "rename it, work in another folder, or pip uninstall what brought it",
        name="micrograd",
    ) from error
try:
    import numpy as _  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "compiling a model needs numpy and setuptools: pip install 'micrograd-nn[compile]'", name="numpy"
    ) from error

from codegen.build import build, freeze, load_extension
from codegen.estimators import from_sklearn
from codegen.loading import load
from codegen.models import Model, compile
from codegen.onnx.program import from_onnx
from codegen.onnx.tensors import OnnxError
from codegen.passes.mistakes import ModelWarning
from codegen.pipeline import compile_program
from codegen.program import Floats, Label, Pixels, Program, Tokens
from codegen.toolchain import CompilerError

__all__ = [
    "CompilerError",
    "Floats",
    "Label",
    "Model",
    "ModelWarning",
    "OnnxError",
    "Pixels",
    "Program",
    "Tokens",
    "build",
    "compile",
    "compile_program",
    "freeze",
    "from_onnx",
    "from_sklearn",
    "load",
    "load_extension",
]
