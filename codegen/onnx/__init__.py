"""ONNX files as Programs: see `codegen.from_onnx`."""

from codegen.onnx.program import from_onnx
from codegen.onnx.tensors import LIMIT, OnnxError, TooLarge

__all__ = ["LIMIT", "OnnxError", "TooLarge", "from_onnx"]
