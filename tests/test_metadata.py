"""Metadata that contradicts the distribution, or lists of Pythons and platforms that contradict each other."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import nn
import nn_infer
import pytest

import codegen
import micrograd

ROOT = Path(__file__).resolve().parent.parent
ABOUT = metadata.metadata("micrograd-nn")
CLASSIFIERS = ABOUT.get_all("Classifier")
VERSIONS = [found[1] for text in CLASSIFIERS if (found := re.fullmatch(r"Programming .* :: (3\.\d+)", text))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_there_is_one_version():
    version = metadata.version("micrograd-nn")
    assert version == micrograd.__version__ == nn.__version__ == nn_infer.__version__
    assert version == nn.info()["version"] == nn_infer.info()["version"]


def test_the_version_is_read_without_an_import():
    """setuptools takes it from the source as long as it is a literal there."""
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "micrograd.__version__"}
    tree = ast.parse(Path(micrograd.__file__).read_text(encoding="utf-8"))
    (value,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__version__"
    )
    assert ast.literal_eval(value) == micrograd.__version__


def test_who_only_imports_nn_installs_nothing_else():
    requirements = metadata.requires("micrograd-nn")
    assert requirements
    assert [text for text in requirements if not re.search(r"(; |and )extra == ['\"]\w+['\"]$", text)] == []


def test_extras_that_the_readme_and_the_errors_name_exist():
    sources = [path for module in (micrograd, codegen) for path in Path(module.__file__).parent.glob("*.py")]
    pages = [ROOT / "README.md", ROOT / "docs" / "package.md"]
    texts = [ABOUT.get_payload(), *(path.read_text(encoding="utf-8") for path in (*pages, *sources))]
    named = set(re.findall(r"pip install '(?:micrograd-nn|\.)\[(\w+)\]'", "".join(texts)))
    assert {"compile", "train"} <= named <= set(ABOUT.get_all("Provides-Extra"))


@pytest.mark.parametrize("package", ["micrograd", "codegen"])
def test_packages_are_typed(package):
    assert resources.files(package).joinpath("py.typed").is_file()
    assert "Typing :: Typed" in CLASSIFIERS


def test_every_package_but_the_reference_is_in_the_wheel():
    """tests/test_house.py sees to it that none of the others imports it."""
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in ("micrograd", "codegen")
        for path in (ROOT / folder).rglob("__init__.py")
    }
    listed = PROJECT["tool"]["setuptools"]["packages"]
    in_wheel = {name for name in listed if name not in PROJECT["tool"]["setuptools"]["package-dir"]}
    assert found == in_wheel | {"codegen.reference"}
    assert "codegen.reference" not in listed


def test_the_licence_is_an_expression_and_a_file():
    assert ABOUT["License-Expression"] == "MIT"
    assert ABOUT.get_all("License-File") == ["LICENSE"]
    assert not any(text.startswith("License ::") for text in CLASSIFIERS)


def test_the_pythons_are_those_from_the_oldest_on():
    oldest = int(re.fullmatch(r">=3\.(\d+)", ABOUT["Requires-Python"])[1])
    minors = [int(version.removeprefix("3.")) for version in VERSIONS]
    assert minors == list(range(oldest, max(minors) + 1))


def test_an_import_does_not_bring_the_gil_back(run_python):
    script = """
import sys, sysconfig, nn, nn_infer
has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print(has_gil, bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
"""
    assert run_python(script).split() in (["True", "False"], ["False", "True"])


BUILDS = """
import sys
from cibuildwheel.__main__ import main
for platform in ("linux x86_64", "linux aarch64", "macos x86_64", "macos arm64", "windows AMD64"):
    print("#", flush=True)
    system, arch = platform.split()
    sys.argv[1:] = ["--print-build-identifiers", "--platform", system, "--archs", arch, ROOT]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
"""


def test_wheels_are_tested_on_every_python():
    pytest.importorskip("cibuildwheel")
    script = f"ROOT = {str(ROOT)!r}{BUILDS}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tags = {f"cp{version.replace('.', '')}" for version in VERSIONS} | {"cp314t", "cp315t"}
    listed = [{line.partition("-")[0] for line in part.split()} for part in done.stdout.split("#\n")[1:]]
    assert listed == [tags] * 5


def test_the_oldest_setuptools_reads_the_table_of_data():
    """Before 83 it refuses names that are no modules, as those of stub packages, whose files it takes anyway."""
    names = PROJECT["tool"]["setuptools"]["package-data"]
    assert [name for name in names if not name.replace(".", "_").isidentifier()] == []
