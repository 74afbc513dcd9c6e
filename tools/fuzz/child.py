"""The process that libFuzzer runs in: `python -m tools.fuzz.child TARGET FOLDER arguments of libFuzzer`."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

from tools.fuzz.targets import prepare

INSTRUMENTED = ["micrograd.data.mnist", "micrograd.commands.checkpoint", "codegen.weights", "gzip", "json.decoder"]
INSTRUMENTED += ["codegen.onnx"]

if __name__ == "__main__":
    name, folder, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=INSTRUMENTED):
        target = prepare(name, Path(folder))
    atheris.Setup([sys.argv[0], *arguments], target)
    atheris.Fuzz()
