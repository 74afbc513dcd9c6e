"""A trained micrograd model, compiled: MLP 784-50-10, relu, softmax cross-entropy.

predict(pixels), probabilities(pixels) and outputs(pixels) take one image; info() describes the model.
"""

from typing import Literal, TypedDict, type_check_only

from nn import outputs as outputs
from nn import outputs_batch as outputs_batch
from nn import predict as predict
from nn import predict_batch as predict_batch
from nn import probabilities as probabilities
from nn import probabilities_batch as probabilities_batch

__version__: str

@type_check_only
class _Info(TypedDict):
    architecture: str
    version: str
    dtype: Literal["float64", "float32"]
    mode: Literal["strict", "fast"]
    fma: bool
    reorder: bool
    simd: str
    compiler: str
    lowering: str
    parameters: int
    weight_type: Literal["float64", "float32", "float16", "bfloat16", "int8"]
    inputs: int
    input_type: str
    outputs: dict[str, int]
    digest: str
    weights: str

def info() -> _Info:
    """Describes this module, as a dict: architecture, dtype, mode, SIMD level, compiler, digest of the graph."""
