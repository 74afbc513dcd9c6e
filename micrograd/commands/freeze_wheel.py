"""micrograd freeze --wheel: the wheel of a project that has nothing but a frozen model, made in a temporary folder."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from micrograd.commands.errors import UsageError
from micrograd.commands.inputs import compiling
from micrograd.errors import one_line

if TYPE_CHECKING:
    from codegen import Program

PROJECT = """\
[build-system]
requires = ["setuptools", "micrograd-nn[compile]"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "A trained model that only predicts"
requires-python = ">=3.11"

[tool.micrograd-nn.models]
{name} = {{ program = "model.py", weights = "weights.safetensors"{storage}, dtype = "{dtype}" }}
"""
MODEL = """\
from codegen import load

def program():
    return load({model!r})
"""


def wheel(options: argparse.Namespace, program: Program, weights: dict[str, Any]) -> Path:
    """Builds the wheel of a Program with these weights in the folder of --output. Raises UsageError."""
    from packaging.version import InvalidVersion, Version

    from codegen.loading import named
    from codegen.pipeline import checked_name
    from codegen.weights import write_weights

    try:
        version = str(Version(options.wheel_version))
    except InvalidVersion as error:
        raise UsageError(f"--wheel-version must be one as 1.2.0, got {options.wheel_version!r}") from error
    with compiling(options.model):
        name = checked_name(options.name, "python")
    output = Path(os.path.abspath(options.output))
    output.mkdir(parents=True, exist_ok=True)
    storage = f', storage = "{program.storage}"' if program.storage else ""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        text = PROJECT.format(name=name, version=version, storage=storage, dtype=program.dtype)
        (project / "pyproject.toml").write_text(text, encoding="utf-8")
        (project / "model.py").write_text(MODEL.format(model=named(options.model).whole), encoding="utf-8")
        write_weights(project / "weights.safetensors", weights)
        with compiling(options.model), chdir(project):
            return output / _built(output)


def _built(output: Path) -> str:
    """The name of the wheel of the project in the current folder. Raises UsageError."""
    from setuptools import build_meta
    from setuptools.errors import BaseError

    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            return str(build_meta.build_wheel(str(output)))
    except (BaseError, SystemExit) as error:
        raise UsageError(one_line(error)) from error
