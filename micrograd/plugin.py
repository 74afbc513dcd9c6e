"""setuptools calls models() for every project that is built where micrograd-nn is installed.

A project without the table [tool.micrograd-nn] in its pyproject.toml notices nothing of it: the compiler, which needs
NumPy, is not imported then, and no file is touched but read.
"""

import os
import tomllib
from pathlib import Path
from typing import Any


def models(dist: Any) -> None:
    """Makes an extension module of each model that a project's pyproject.toml declares: see docs/wheel.md."""
    path = Path(dist.src_root or os.curdir, "pyproject.toml")
    try:
        text = path.read_text(encoding="utf-8")
        tool = tomllib.loads(text).get("tool")
    except (OSError, ValueError):
        return  # setuptools reads it next and says what is wrong
    if not isinstance(tool, dict) or not {"micrograd-nn", "micrograd_nn"} & tool.keys():
        return
    from codegen.wheels.plugin import add_models

    add_models(dist)
