"""Every op by its name, as imported models call them: `ops.Gemm(x, w["fc.weight"], w["fc.bias"], transB=1)`.

An op takes what the ONNX op takes, in its order, and its attributes by name. What was an attribute in early versions
and is an input now has one name, so one function serves both. Where a version changed the meaning, `OPS` has two.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from codegen.onnx import elementwise, linear, ml, norms, recurrent, shapes
from codegen.onnx.elementwise import *  # noqa: F403
from codegen.onnx.linear import *  # noqa: F403
from codegen.onnx.ml import *  # noqa: F403
from codegen.onnx.norms import *  # noqa: F403
from codegen.onnx.recurrent import *  # noqa: F403
from codegen.onnx.shapes import *  # noqa: F403

ML = "ai.onnx.ml"
PARTS = (elementwise, linear, norms, recurrent, shapes, ml)
CHANGED = {"Softmax": 13, "LogSoftmax": 13}  # by this version of ONNX; NAME_1 is what it was

# By domain and name
OPS: dict[tuple[str, str], Callable[..., Any]] = {
    (ML if op.__module__ == ml.__name__ else "", name): op
    for part in PARTS
    for name, op in vars(part).items()
    if isinstance(op, FunctionType) and name[0].isupper()
}
# Where each weight stands among the inputs of an op. An initializer that stands elsewhere is a constant.
WEIGHTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization"), (1, 2)),
    **dict.fromkeys(("GroupNormalization", "LayerNormalization", "LinearRegressor", "LinearClassifier"), (1, 2)),
    **dict.fromkeys(("RMSNormalization", "PRelu"), (1,)),
    "MatMul": (0, 1),
    "Gemm": (0, 1, 2),
    "Einsum": (0, 1, 2),
    "Gather": (0,),
    "LSTM": (1, 2, 3, 7),
    "GRU": (1, 2, 3),
    "RNN": (1, 2, 3),
}
SHIFTS = ("Add", "Mul")  # an initializer of several elements is a bias or a gain; one element is a constant
MOVES = {  # an initializer that one of these moves is a weight if the result is
    *("Identity", "Cast", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice"),
    *("Expand", "Tile"),
}


def name_of(domain: str, name: str, version: int) -> str:
    """Of the function: the op's own, or that of what it was."""
    return f"{name}_1" if not domain and version < CHANGED.get(name, 0) else name
