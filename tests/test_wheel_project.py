"""The example project, as a user has it: built, audited, installed where there is nothing else, trained, type-checked.

The builds take most of a minute, so these are slow tests; tests/test_wheel_table.py has the quick ones. There is no
network here: what builds is in this environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import nn
import pytest
from wheels import run, wheel_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "irisnet"
IS_ABI3 = sys.version_info[:2] == (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
HOOK = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"
RUN_TESTS = """
import runpy, sys
found = {name: test for name, test in runpy.run_path(sys.argv[1]).items() if name.startswith("test_")}
for test in found.values():
    test()
print(len(found), *sorted(name for name in ("numpy", "micrograd", "codegen") if name in sys.modules))
"""
USE = """\
from irisnet import frozen, net, species
from irisnet.training import train

name: str = species([5.1, 3.5, 1.4, 0.2])
losses: list[float] = train(epochs=2, seed=1)
loss, accuracy = net.evaluate([5.1, 3.5, 1.4, 0.2], [0])
doubled: float = 2 * accuracy
text: str = net.info()["architecture"]
which: int = frozen.predict((5.1, 3.5, 1.4, 0.2))
"""
MISUSE = """\
from irisnet import frozen, net
net.forward("setosa", [5.1, 3.5, 1.4, 0.2])
frozen.train([], [])
number: int = net.info()["architecture"]
"""


def copy_of_example(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("build", "dist", "*.egg-info", "*.so", "*.pyd", "__pycache__")
    return Path(shutil.copytree(EXAMPLE, folder, ignore=ignored))


def files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def empty_environment(folder: Path, wheel: Path) -> Path:
    """The Python of an environment with nothing but this wheel, and without pip."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    flags = ("--no-index", "--no-deps", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *flags, wheel, cwd=folder)
    return python


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_example(tmp_path_factory.mktemp("a project") / "irisnet")


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(source, tmp_path_factory.mktemp("wheels") / "out")


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_environment(tmp_path_factory.mktemp("empty") / "venv", wheel)


@pytest.fixture(scope="module")
def sdist(source: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made after the wheel: what a build leaves behind is not in it."""
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-c", HOOK, "build_sdist", out, cwd=source)
    (path,) = out.glob("*.tar.gz")
    return path


def test_what_the_wheel_holds(wheel: Path) -> None:
    names = {re.sub(r"\..*\.(so|pyd)$|\.pyd$", ".module", name) for name in files(wheel) if "dist-info" not in name}
    python_files = ("__init__.py", "__main__.py", "data.py", "training.py")
    others = ("net.module", "net.pyi", "frozen.module", "frozen.pyi", "py.typed")
    assert names == {f"irisnet/{name}" for name in (*python_files, *others)}
    assert ("-cp311-abi3-" in wheel.name) == IS_ABI3


def test_it_trains_and_predicts_with_the_standard_library_alone(python: Path, tmp_path: Path) -> None:
    installed = "from importlib import metadata; print(*(found.name for found in metadata.distributions()))"
    assert run(python, "-c", installed, cwd=tmp_path).stdout.split() == ["irisnet"]
    assert run(python, "-c", RUN_TESTS, EXAMPLE / "tests" / "test_irisnet.py", cwd=tmp_path).stdout.split() == ["4"]
    shown = run(python, "-m", "irisnet", cwd=tmp_path).stdout
    assert re.fullmatch(r"trained here: loss 0\.779 -> 0\.057, 97\.3% right\nbuilt in: +97\.3% right\n", shown)


def test_the_stubs_are_those_of_the_modules(python: Path, tmp_path: Path) -> None:
    """What stubtest compares, it imports: so it runs here, where mypy is, with the wheel's folder on the path."""
    pytest.importorskip("mypy")
    (site,) = python.parent.parent.rglob("site-packages")
    done = run(
        sys.executable, "-m", "mypy.stubtest", "irisnet.net", "irisnet.frozen", cwd=tmp_path, PYTHONPATH=str(site)
    )
    assert "Success" in done.stdout


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_know_the_modules(checker: str, python: Path, tmp_path: Path) -> None:
    pytest.importorskip(checker)
    (tmp_path / "use.py").write_text(USE)
    (tmp_path / "misuse.py").write_text(MISUSE)
    options = {
        "mypy": ["--strict", "--config-file=", "--python-executable", python],
        "pyright": ["--pythonpath", python],
    }
    command = (sys.executable, "-m", checker, *options[checker], "use.py", "misuse.py")
    done = run(*command, cwd=tmp_path, check=False, PYRIGHT_PYTHON_IGNORE_WARNINGS="1")
    lines = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [re.search(r"(\w+)\.py:(\d+)", line).groups() for line in lines] == [
        ("misuse", str(n)) for n in (2, 3, 4)
    ], done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")
def test_auditors_find_nothing(wheel: Path) -> None:
    if IS_ABI3:
        pytest.importorskip("abi3audit")
        run(sys.executable, "-m", "abi3audit", "--strict", wheel, cwd=wheel.parent)
    pytest.importorskip("auditwheel")
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent).stdout
    assert re.search(r'following platform tag:\s*"(manylinux|musllinux)', shown)


def test_the_sdist_has_the_model_and_no_c(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"model.py", "layers.py", "trained.safetensors", "pyproject.toml", "irisnet/data.py"} <= names
    assert not [name for name in names if name.endswith((".c", ".h", ".so", ".pyd", ".pyi", ".ir"))]
    assert "MANIFEST.in" not in names
    again = files(wheel_of(sdist, tmp_path / "out"))
    first = files(wheel)
    compiled = [name for name in first if name.endswith((".so", ".pyd", ".pyi"))]
    assert set(again) == set(first)
    assert len(compiled) == 4
    if sys.platform == "linux":
        assert {name: again[name] for name in compiled} == {name: first[name] for name in compiled}
    python = empty_environment(tmp_path / "venv", next((tmp_path / "out").glob("*.whl")))
    assert run(python, "-c", RUN_TESTS, EXAMPLE / "tests" / "test_irisnet.py", cwd=tmp_path).stdout.split() == ["4"]


def test_only_what_has_changed_is_made_again(tmp_path: Path) -> None:
    source = copy_of_example(tmp_path / "irisnet")

    def build() -> dict[str, int]:
        run(sys.executable, "-c", HOOK, "build_wheel", tmp_path / "out", cwd=source)
        kinds = ("**/*.c", "**/*.o", "**/*.so")
        return {path.name: path.stat().st_mtime_ns for kind in kinds for path in source.glob(f"build/{kind}")}

    first = build()
    assert len(first) == 6
    assert build() == first
    weights = source / "trained.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (module,) = source.glob("build/lib*/irisnet/frozen.*so")
    os.utime(module, (4e9, 4e9))  # of a clock that was wrong
    old = module.read_bytes()
    changed = {name for name, time in build().items() if time != first[name]}
    assert {name.partition(".")[0] for name in changed} == {"frozen"}
    assert len(changed) == 3
    assert module.read_bytes() != old
    assert module.stat().st_mtime < 4e9
    others = [module.with_name(f"frozen{suffix}") for suffix in EXTENSION_SUFFIXES]
    for other in others:
        other.touch()  # as it was left by a build for another ABI, which would be imported first
    build()
    assert [*source.glob("build/lib*/irisnet/frozen.*so")] == [module]


@pytest.mark.nightly
def test_an_editable_install(tmp_path: Path) -> None:
    source = copy_of_example(tmp_path / "irisnet")
    run(sys.executable, "-c", HOOK, "build_editable", tmp_path / "out", cwd=source)
    python = empty_environment(tmp_path / "venv", next((tmp_path / "out").glob("*.whl")))
    shown = run(python, "-c", "import irisnet.net as net; print(net.__file__, net.__version__)", cwd=tmp_path).stdout
    assert shown.split()[0].startswith(str(source))
    assert {path.name for path in source.glob("irisnet/*") if path.suffix in (".pyi", ".typed")} == {
        "net.pyi",
        "frozen.pyi",
        "py.typed",
    }
    run(sys.executable, "-c", HOOK, "build_sdist", tmp_path / "sdist", cwd=source)
    with tarfile.open(next((tmp_path / "sdist").glob("*.tar.gz"))) as archive:
        assert not [name for name in archive.getnames() if name.endswith((".so", ".pyd", ".c"))]


SINGLE = """\
[build-system]
requires = ["setuptools>=77", "micrograd-nn[compile]"]
build-backend = "setuptools.build_meta"
[project]
name = "single"
version = "3.0"
requires-python = ">=3.11"
[tool.micrograd-nn.models]
single = { program = "model.py", dtype = "float32" }
"""


@pytest.mark.skipif(find_spec("ziglang") is None, reason="needs the extra compiler")
def test_a_module_outside_a_package_compiled_by_zig(tmp_path: Path) -> None:
    source = copy_of_example(tmp_path / "single")
    shutil.rmtree(source / "irisnet")
    shutil.rmtree(source / "tests")
    (source / "pyproject.toml").write_text(SINGLE)
    wheel = wheel_of(source, tmp_path / "out", CC=f"{sys.executable} -m ziglang cc")
    names = [name for name in files(wheel) if "dist-info" not in name]
    assert len(names) == 2
    assert "single-stubs/__init__.pyi" in names
    python = empty_environment(tmp_path / "venv", wheel)
    script = "import json, single; print(json.dumps(single.info()))"
    info = json.loads(run(python, "-c", script, cwd=tmp_path).stdout)
    assert info["dtype"] == "float32"
    assert info["version"] == "3.0"
    assert info["compiler"].startswith("clang")
    assert info["simd"] == nn.info()["simd"]  # zig's own way to ask the processor finds nothing
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text("import single\nrows: list[float] = single.train([1.0] * 4, b'1')\n")
    run(
        *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python, "use.py"),
        cwd=tmp_path,
    )


IDENTIFIERS = """
import sys
from cibuildwheel.__main__ import main
sys.argv[1:] = ["--print-build-identifiers", "--platform", sys.argv[1], "--archs", sys.argv[2], "."]
main()
"""


def test_cibuildwheel_reads_the_projects_configuration() -> None:
    pytest.importorskip("cibuildwheel")
    pythons = {"cp311", "cp312", "cp313", "cp314", "cp314t"}
    for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("macos", "arm64"), ("windows", "AMD64")):
        shown = run(sys.executable, "-c", IDENTIFIERS, platform, machine, cwd=EXAMPLE, check=False).stdout
        assert {line.partition("-")[0] for line in shown.split()} == pythons
