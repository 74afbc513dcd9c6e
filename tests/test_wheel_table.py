"""A table of models that is misread, or refused without saying what it should have been. Nothing is compiled here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from models import xor
from setuptools import Distribution, Extension
from setuptools.errors import SetupError

from codegen import Floats, Label, Pixels, Program, Tokens
from codegen.wheels import plugin
from codegen.wheels.build import BuildModels, ModelExtension
from codegen.wheels.generate import digest_of, files_of, inputs_of, program_of
from codegen.wheels.stubs import MARK, stub_text
from codegen.wheels.table import ModelSpec, TableError, read_models
from micrograd.engine import Value
from micrograd.plugin import models

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "irisnet"
HEAD = "[tool.micrograd-nn.models]\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example project."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "irisnet", ignore=shutil.ignore_patterns("build", "*.egg-info")))


def read(text: str, folder: Path) -> list[ModelSpec]:
    return read_models(tomllib.loads(text), folder)


def test_the_examples_table(project: Path) -> None:
    assert read((project / "pyproject.toml").read_text(), project) == [
        ModelSpec("irisnet.net", "model.py"),
        ModelSpec("irisnet.frozen", "model.py", weights="trained.safetensors"),
    ]


def test_every_key(project: Path) -> None:
    text = '"a.b_2" = { program = "./model.py:make", dtype = "float32", fma = true, reorder = false, '
    text += 'files = ["README.md", "irisnet\\\\data.py"] }'
    found = ModelSpec("a.b_2", "model.py", "make", None, "float32", True, False, ("README.md", "irisnet/data.py"))
    assert read(HEAD + text, project) == [found]


@pytest.mark.parametrize("text", ["", "[tool]", "[tool.micrograd-nn]", HEAD, "[tool.other]\nmodels = 1"])
def test_no_models(text: str, project: Path) -> None:
    assert read(text, project) == []


WRONG = {
    HEAD + f'{"x" * 101} = {{ program = "model.py" }}': "must be names of at most 100 characters, got one of 101",
    "[tool.micrograd_nn.models]": "[tool.micrograd_nn] is to be called [tool.micrograd-nn]",
    "[tool]\nmicrograd-nn = 3": "[tool.micrograd-nn] must be a table, not 3",
    "[tool.micrograd-nn]\nmodel = {}": "[tool.micrograd-nn]: unknown key 'model', expected models; did you mean 'mod",
    "[tool.micrograd-nn]\nmodels = []": "[tool.micrograd-nn.models] must be a table, not []",
    HEAD + 'net = "model.py"': "'net' must be a table as \"package.net\" = { program = \"model.py\" }, not 'model.py'",
    HEAD + "net = {}": "'net' needs a program: \"package.net\" = { program",
    HEAD + 'a.net = { program = "model.py" }': "'a' holds the table 'net'. A dotted name needs quotes: \"a.net\" = ...",
    HEAD + 'net = { programm = "model.py" }': "'net': unknown key 'programm', expected program, weights, storage, "
    "dtype, fma, reorder, files; did you mean 'program'?",
    HEAD + "net = { program = 1 }": '\'net\': program must be a path as "model.py" or "model.py:function", not 1',
    HEAD + 'net = { program = "model" }': "'net': program must be a Python file, as model.py, got 'model'",
    HEAD + 'net = { program = "model.py:" }': "'net': program must name a function after the colon, got 'model.py:'",
    HEAD + 'net = { program = "model.py:a b" }': "'net': program must name a function after the colon",
    HEAD + 'net = { program = "models.py" }': "'net': program is 'models.py', but there is no file ",
    HEAD + 'net = { program = "../model.py" }': "'net': program must be a path inside the project's folder, got '../",
    HEAD + 'net = { program = "/model.py" }': "'net': program must be a path inside the project's folder, got '/model",
    HEAD + 'net = { program = "C:/model.py" }': "'net': program must be a path inside the project's folder, got 'C:/",
    HEAD + 'net = { program = "model.py", weights = "w" }': "'net': weights is 'w', but there is no file ",
    HEAD + 'net = { program = "model.py", weights = "irisnet" }': "'net': weights is 'irisnet', but there is no file ",
    HEAD + 'net = { program = "model.py", weights = 1 }': "'net': weights must be the path of a file, got 1",
    HEAD + 'net = { program = "model.py", weights = "" }': "'net': weights must be the path of a file, got ''",
    HEAD + 'net = { program = "model.py", files = "a" }': "'net': files must be a list of paths, not 'a'",
    HEAD + 'net = { program = "model.py", files = ["a"] }': "'net': files is 'a', but there is no file ",
    HEAD + 'net = { program = "model.py", dtype = "f4" }': "'net': dtype must be one of float64, float32, got 'f4'",
    HEAD + 'net = { program = "model.py", dtype = [] }': "'net': dtype must be one of float64, float32, got []",
    HEAD + 'net = { program = "model.py", storage = "int8" }': "'net': storage must be one of float16, bfloat16, int8, "
    "for a model with weights, got 'int8'",
    HEAD
    + 'net = { program = "model.py", weights = "model.py", storage = 8 }': "storage must be one of float16, bfloat16",
    HEAD + 'net = { program = "model.py", fma = 1 }': "'net': fma must be true or false, got 1",
    HEAD
    + '"a-b" = { program = "model.py" }': "'a-b' must be a module's name, ASCII identifiers with dots between them",
    HEAD + '"a..b" = { program = "model.py" }': "'a..b' must be a module's name",
    HEAD + '"a.class" = { program = "model.py" }': "'a.class' must be a module's name, ASCII identifiers with dots "
    "between them, but 'class' is not one",
    HEAD + '"ä" = { program = "model.py" }': "'ä' must be a module's name",
    HEAD + '"a.nul" = { program = "model.py" }': "'a.nul' must be a name that files can have: 'nul' is a device",
    HEAD + 'random = { program = "model.py" }': "'random' must not be the name of a module of the standard library",
    HEAD + 'net = { program = "model.py" }\nNet = { program = "model.py" }': "'net' and 'Net' are one file on Windows",
    HEAD
    + 'a = { program = "model.py" }\n"a.b" = { program = "model.py" }': "'a' cannot be a module and, for 'a.b', a ",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_a_wrong_table_is_told(text: str, project: Path) -> None:
    with pytest.raises(TableError) as caught:
        read(text, project)
    assert WRONG[text] in str(caught.value)
    assert str(caught.value).startswith("[tool")


# What a model is made from


def test_helpers_beside_the_model_are_found(tmp_path: Path) -> None:
    texts = {
        "m/model.py": "import helper, math, missing\nfrom data import iris\nfrom deep.inner import x\nimport codegen",
        "m/helper.py": "def f():\n    import lazy",
        "m/lazy.py": "import helper  # a circle",
        "m/data/__init__.py": "from . import csv_reader",
        "m/data/iris.py": "from ..nowhere import x\nfrom .csv_reader import y",
        "m/data/csv_reader.py": "",
        "m/deep/inner.py": "this is not Python",
        "m/unused.py": "",
        "m/math.py": "",
        "m/codegen.py": "",
        "helper.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = ["data/__init__", "data/csv_reader", "data/iris", "deep/inner", "helper", "lazy", "model"]
    assert files_of("m/model.py", tmp_path) == [f"m/{name}.py" for name in found]


def test_every_input_counts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec("irisnet.frozen", "model.py", weights="trained.safetensors", files=("README.md",))
    assert inputs_of(spec, project) == ["README.md", "layers.py", "model.py", "trained.safetensors"]
    digests = {digest_of(spec, project, "1.2.0"), digest_of(spec, project, "1.2.1")}
    for name in inputs_of(spec, project):
        content = (project / name).read_bytes()
        (project / name).write_bytes(content[:-1] + b"#")
        digests.add(digest_of(spec, project, "1.2.0"))
        (project / name).write_bytes(content)
    assert len(digests) == 6
    (project / "irisnet" / "data.py").write_text("# no input")
    assert digest_of(spec, project, "1.2.0") in digests
    for name, value in (("CC", "clang"), ("CFLAGS", "-g")):
        monkeypatch.setenv(name, value)
        digests.add(digest_of(spec, project, "1.2.0"))
    assert len(digests) == 8


def test_the_options_of_the_table_are_the_programs(project: Path) -> None:
    spec = ModelSpec("net", "model.py", dtype="float32", fma=True, reorder=True)
    program = program_of(spec, project)
    assert (program.dtype, program.fma, program.reorder) == ("float32", True, True)
    assert program_of(ModelSpec("net", "model.py", weights="trained.safetensors"), project).loss is None


# The plugin


def distribution(project: Path, monkeypatch: pytest.MonkeyPatch, **attributes: object) -> Distribution:
    """A setuptools Distribution in a project's folder, with its configuration read, as a build has it."""
    monkeypatch.chdir(project)
    monkeypatch.setattr(Distribution, "finalize_options", lambda self: models(self))
    dist = Distribution(attributes)
    dist.parse_config_files()
    return dist


def on(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch, has_gil: bool = True) -> None:
    """As if this were another Python."""
    monkeypatch.setattr(plugin, "sys", SimpleNamespace(version_info=version, implementation=sys.implementation))
    monkeypatch.setattr(plugin, "sysconfig", SimpleNamespace(get_config_var=lambda name: None if has_gil else 1))


def test_a_project_gets_its_modules(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on((3, 11), monkeypatch)
    dist = distribution(project, monkeypatch)
    assert [ext.name for ext in dist.ext_modules] == ["irisnet.net", "irisnet.frozen"]
    assert all(
        ext.py_limited_api and ext.define_macros == [("Py_LIMITED_API", "0x030b0000")] for ext in dist.ext_modules
    )
    assert dist.get_option_dict("bdist_wheel")["py_limited_api"][1] == "cp311"
    assert issubclass(dist.get_command_class("build_ext"), BuildModels)
    dist.set_defaults()
    assert dist.packages == ["irisnet"]
    command = dist.get_command_obj("build_ext")
    command.ensure_finalized()
    files = [path for path in command.get_source_files() if not path.startswith("/")]
    assert sorted(set(files)) == ["layers.py", "model.py", "trained.safetensors"]
    models(dist)
    assert len(dist.ext_modules) == 2


def test_a_folder_that_cannot_be_written_leaves_nothing_behind(project: Path, tmp_path: Path) -> None:
    script = """
import os
os.access = lambda *arguments: False
from setuptools import Distribution
from micrograd.plugin import models
models(found := Distribution())
print(os.path.isdir(found.get_option_dict("build")["build_base"][1]))
"""
    (temporary := tmp_path / "temporary").mkdir()
    variables = os.environ | {"TMPDIR": str(temporary), "TEMP": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project, env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "has_gil", "wanted", "tag"),
    [
        ((3, 11), True, ">=3.11", 11),
        ((3, 12), True, ">=3.11", None),
        ((3, 12), True, ">=3.12.1, <4", 12),
        ((3, 11), True, ">=3.9", 11),
        ((3, 15), True, ">=3.11", None),
        ((3, 11), False, ">=3.11", None),
        ((3, 11), True, "", 11),
        ((3, 11), True, "no version", None),
    ],
)
def test_the_oldest_python_builds_for_all(
    version: tuple[int, int], has_gil: bool, wanted: str, tag: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(version, monkeypatch, has_gil)
    assert plugin.limited_api({"project": {"requires-python": wanted}}) == tag


@pytest.mark.filterwarnings("ignore:.*ext-modules")
def test_another_module_that_is_not_for_the_limited_api(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on((3, 11), monkeypatch)
    dist = distribution(project, monkeypatch, ext_modules=[Extension("irisnet.other", ["other.c"])])
    assert [ext.py_limited_api for ext in dist.ext_modules] == [False, False, False]
    assert "py_limited_api" not in dist.get_option_dict("bdist_wheel")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[[tool.setuptools.ext-modules]]\nname = "irisnet.third"\nsources = []\n')
    dist = distribution(project, monkeypatch)
    assert not any(ext.py_limited_api for ext in dist.ext_modules)
    assert len(dist.ext_modules) == 3


def test_a_build_ext_of_the_projects_own_stays(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(plugin.BuildModels.__base__):
        pass

    dist = distribution(project, monkeypatch, cmdclass={"build_ext": Own})
    assert issubclass(dist.get_command_class("build_ext"), Own)
    assert issubclass(dist.get_command_class("build_ext"), BuildModels)


def test_a_link_to_a_file_outside_is_refused(project: Path) -> None:
    """A source distribution could not have it."""
    (project.parent / "outside").mkdir()
    (project.parent / "outside" / "model.py").write_text((project / "model.py").read_text())
    (project / "link").symlink_to(project.parent / "outside")
    with pytest.raises(TableError, match=r"'link/model.py' is a link to .*outside"):
        read(HEAD + 'net = { program = "link/model.py" }', project)


@pytest.mark.parametrize(
    "more",
    ["project = 3", "[tool]\nsetuptools = 3", "[tool.setuptools]\next-modules = 3", "[project]\nrequires-python = 3"],
)
def test_what_is_wrong_elsewhere_is_left_to_setuptools(
    more: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text(
        f'{more}\n[tool.micrograd-nn.models]\n"irisnet.net" = {{ program = "model.py" }}'
    )
    monkeypatch.chdir(project)
    monkeypatch.setattr(Distribution, "finalize_options", lambda self: None)
    dist = Distribution()
    models(dist)
    assert [ext.name for ext in dist.ext_modules] == ["irisnet.net"]


def test_an_extension_of_the_table_with_the_same_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('\n[tool.setuptools]\next-modules = [{ name = "irisnet.net", sources = ["a.c"] }]\n')
    with pytest.raises(SetupError, match=r"'irisnet\.net' is a model of pyproject\.toml and another extension"):
        distribution(project, monkeypatch)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("irisnet/net.py", "'irisnet.net' is a model of pyproject.toml, but "),
        ("irisnet/net/__init__.py", "'irisnet.net' is a model of pyproject.toml, but "),
    ],
)
def test_a_module_of_the_same_name(file: str, message: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / file).parent.mkdir(exist_ok=True)
    (project / file).touch()
    with pytest.raises(SetupError) as caught:
        distribution(project, monkeypatch)
    assert str(caught.value).startswith(message)


def test_an_extension_of_the_same_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match=r"'irisnet\.net' is a model of pyproject\.toml and another extension"):
        distribution(project, monkeypatch, ext_modules=[Extension("irisnet.net", ["other.c"])])


def test_a_model_file_is_not_shipped_as_a_module(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(project / "irisnet")
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "x"\nversion = "1"\n{HEAD}net = {{ program = "model.py" }}'
    )
    dist = distribution(project, monkeypatch)
    dist.set_defaults()
    assert (dist.packages, dist.py_modules) == (None, [])
    (project / "app.py").touch()
    dist = distribution(project, monkeypatch)
    dist.set_defaults()
    assert dist.py_modules == ["app"]


def test_other_projects_notice_nothing(project: Path) -> None:
    """Without NumPy, and where pyproject.toml is anything at all."""
    script = """
import sys
sys.modules["numpy"] = None
from setuptools import Distribution
from micrograd.plugin import models
for content in ("", "[tool]", "[tool.other]\\nmicrograd-nn = 1", "tool = 1", "no TOML", "\\xff"):
    with open("pyproject.toml", "w", encoding="latin-1") as file:
        file.write(content)
    dist = Distribution({"name": "x"})
    models(dist)
    assert not dist.ext_modules, content
import os
os.remove("pyproject.toml")
models(Distribution({"name": "x"}))
assert "codegen" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=project, check=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("raise RuntimeError('no flowers')", "RuntimeError: no flowers"),
        ("program = None", "must define a function program()"),
        ("(", "SyntaxError: "),
        ("import missing_helper", "No module named 'missing_helper'"),
        ("open('vocab.txt')", "vocab.txt: No such file or directory"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_a_program_that_fails_is_named(
    change: str, message: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / "model.py").open("a") as file:
        file.write(f"\n{change}\n")
    command = distribution(project, monkeypatch, name="x").get_command_obj("build_ext")
    command.ensure_finalized()
    with pytest.raises(SetupError) as caught:
        command.generate(ModelSpec("irisnet.net", "model.py"))
    assert str(caught.value).startswith("the C of irisnet.net could not be made from model.py: ")
    assert message in str(caught.value)


def test_weights_that_do_not_fit_are_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "model.py").write_text((project / "model.py").read_text().replace("HIDDEN = 8", "HIDDEN = 9"))
    command = distribution(project, monkeypatch, name="x").get_command_obj("build_ext")
    command.ensure_finalized()
    with pytest.raises(SetupError) as caught:
        command.generate(ModelSpec("irisnet.frozen", "model.py", weights="trained.safetensors"))
    text = str(caught.value)
    assert text.startswith(
        "the C of irisnet.frozen could not be made from model.py and trained.safetensors: ValueError: "
    )
    assert "have the shape (8, 4), expected (9, 4)" in text


def test_a_package_that_is_not_there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "irisnet").rename(project / "irisnets")
    dist = distribution(project, monkeypatch)
    dist.set_defaults()
    command = dist.get_command_obj("build_ext")
    command.ensure_finalized()
    with pytest.raises(SetupError) as caught:
        command.run()
    assert str(caught.value) == "the model irisnet.net is to be in a package of this project, which has ['irisnets']"


def test_where_types_go(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist = distribution(project, monkeypatch, name="x", packages=["own-stubs"])
    command = dist.get_command_obj("build_ext")
    command.ensure_finalized()
    lib = Path(command.build_lib)
    assert command.type_files(ModelSpec("a.b.net", "m.py")) == [lib / "a/b/net.pyi", lib / "a/py.typed"]
    assert command.type_files(ModelSpec("net", "m.py")) == [lib / "net-stubs/__init__.pyi"]
    assert command.type_files(ModelSpec("own", "m.py")) == []
    made = project / "made.pyi"
    made.write_text(f"{MARK}, new\n")
    stub = lib / "a" / "net.pyi"
    for before, after in ((None, made.read_text()), (f"{MARK}, old\n", made.read_text()), ("# own\n", "# own\n")):
        if before is not None:
            stub.write_text(before)
        command.write_types(ModelSpec("a.net", "m.py"), made)
        assert stub.read_text() == after
    assert (lib / "a" / "py.typed").read_text() == ""


# Types


def kinds() -> dict[str, tuple[Program, str, str]]:
    """Programs, and how their forward() and evaluate() are declared."""
    x, t, w = [Value(0.0), Value(0.0)], [Value(0.0), Value(0.0)], Value(1.0)
    loss = (w * x[0] - t[0]) ** 2 + x[1] * t[1]
    rows = "_Buffer | Sequence[Any]"

    def of(inputs: object, targets: object, **options: object) -> Program:
        return Program(inputs, targets, {"w": w}, loss, {"out": [w * x[0], x[1]]}, **options)  # type: ignore[arg-type]

    return {
        "pixels, label": (of(Pixels(x, 1.0), Label(t)), "label: SupportsIndex, pixels: _Buffer, /", "float"),
        "floats": (of(Floats(x), Floats(t)), f"targets: _Number | {rows}, inputs: {rows}, /", "None"),
        "tokens": (of(Tokens([x]), Floats(t)), f"targets: _Number | {rows}, inputs: SupportsIndex | {rows}, /", "None"),
        "parts": (
            of({"a": Floats(x)}, {"b": Floats(t)}),
            "targets: Mapping[str, Any], inputs: Mapping[str, Any], /",
            "None",
        ),
    }


@pytest.mark.parametrize("name", ["pixels, label", "floats", "tokens", "parts"])
def test_types_are_those_of_the_program(name: str) -> None:
    program, arguments, accuracy = kinds()[name]
    text = stub_text(program, "a.net")
    assert text.startswith(f"{MARK} for a.net")
    assert f"def forward({arguments}) -> float:" in text
    assert f"-> tuple[float, {accuracy}]:" in text
    assert ("def input_grad() -> dict[str, tuple[float, ...]]:" in text) == (name == "parts")
    compile(text, "net.pyi", "exec")


def test_the_types_of_a_frozen_model(project: Path) -> None:
    text = stub_text(program_of(ModelSpec("net", "model.py", weights="trained.safetensors"), project), "net")
    assert "def train(" not in text
    assert "def predict(inputs: _Buffer | Sequence[Any], /) -> int:" in text
    assert "def train(" in stub_text(xor(), "net")


def test_modules_are_extensions_with_a_model() -> None:
    spec = ModelSpec("a.net", "model.py")
    assert ModelExtension(spec).micrograd_model is spec
