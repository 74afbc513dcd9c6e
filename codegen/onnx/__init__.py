"""ONNX files as Programs: see `codegen.from_onnx`."""
