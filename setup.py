"""Builds the models of pyproject.toml, nn and nn_infer, with this checkout's own plugin for setuptools."""

import sys
from pathlib import Path

from setuptools import Distribution, setup

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which is not there under PEP 517

from codegen.wheels.plugin import add_models


class Project(Distribution):  # type: ignore[misc]
    def finalize_options(self) -> None:
        add_models(self)  # before the plugin of another micrograd-nn, if that is installed
        super().finalize_options()


setup(distclass=Project)
