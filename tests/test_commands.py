"""The one command: its list, its messages, the way in which models are named, and what it needs."""

from __future__ import annotations

import argparse
import ntpath
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from commands import environment

import codegen
from codegen import loading, toolchain
from codegen.loading import named
from codegen.onnx.losses import LOSSES
from codegen.program import DTYPES, STORAGES
from micrograd.__main__ import main
from micrograd.commands import freeze, import_model, train_model
from micrograd.commands.tree import COMMANDS, tree

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[..., tuple[int, str, str]]

MODEL = """
from codegen import Floats, Program
from micrograd.engine import Value

def program():
    x, w = Value(0), Value(2)
    return Program(Floats([x]), None, {"w": w}, w * x, {"out": [w * x]}, description="one weight")

def net():
    found = program()
    found.description = "another"
    return found

def _hidden():
    pass
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """run(*arguments) -> exit code, stdout, stderr"""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


# ---- the list


def test_without_a_command_it_lists_them(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("usage: micrograd [-h] [-V] [--traceback] COMMAND ...\n")
    shown = re.findall(r"^ {4}(\w+) +(\S.*)$", err, re.M)
    assert shown == [(name, what) for name, (_, what) in COMMANDS.items()]
    assert run("--help") == (0, err, "")


def test_the_console_script_is_the_module() -> None:
    (script,) = entry_points(group="console_scripts", name="micrograd")
    assert script.load() is main


def test_every_command_has_help_of_its_own(run: Run) -> None:
    for name in COMMANDS:
        code, out, err = run(name, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: micrograd {name} ")
        assert "--traceback" in out


def test_the_list_comes_without_numpy_and_the_compiler(run: Run) -> None:
    script = "import sys\nfrom micrograd.__main__ import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    script += "print(sorted({'numpy', 'codegen', 'nn', 'micrograd.engine', 'micrograd.optim'} & set(sys.modules)))"
    command = [sys.executable, "-c", script, "--help"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.endswith("in a shell\n[]\n")


# ---- mistakes

MISTAKES = {
    ("trian",): "unknown command 'trian': did you mean train?",
    ("compile", "model.py"): "unknown command 'compile': did you mean build?",
    ("fly",): "unknown command 'fly': micrograd --help lists them",
    ("train", "--nope"): "micrograd train has no option --nope: micrograd train --help lists them",
    ("train", "--epoch-s", "3"): "micrograd train has no option --epoch-s: did you mean --epochs?",
    ("train", "--optimiser=adam"): "micrograd train has no option --optimiser: did you mean --optimizer?",
    ("draw", "--wat"): "micrograd draw has no option --wat: did you mean --what?",
    ("--nope",): "micrograd has no option --nope: micrograd --help lists them",
    ("--verson", "train"): "micrograd has no option --verson: did you mean --version?",
    ("cache", "-x"): "unrecognized arguments: -x",
    ("freeze", "model.py"): "the following arguments are required: WEIGHTS",
    ("build", "missing.py"): "missing.py: No such file or directory",
    ("build", "modle.py"): "modle.py: No such file or directory: did you mean model.py?",
    ("explain", "no/model.py"): "no/model.py: No such file or directory",
    ("explain", "modell"): "modell: no such module; did you mean model.py?",
    ("explain", "no.such.module"): "no.such.module: no such module; a file is named with its ending, as model.py",
    ("explain", "model.py:nett"): "model.py must define a function nett() that returns a codegen.Program; "
    "it has program(), net(): model.py:program",
    ("explain", "shapes.py"): "shapes.py must define a function program() that returns a codegen.Program; "
    "it has three(), needs(): shapes.py:three",
    ("explain", "empty.py"): "empty.py must define a function program() that returns a codegen.Program",
    ("explain", "shapes.py:three"): "three() in shapes.py returned a int, not a codegen.Program",
    ("explain", "shapes.py:needs"): "needs() in shapes.py must take no arguments, but needs size, depth",
    ("explain", "broken.py"): "broken.py:2: ZeroDivisionError: division by zero",
    ("explain", "broken.py:deep"): "broken.py:6: KeyError: 'b'",
    ("draw", "broken.py:helped"): "{folder}/helpers.py:2: ValueError: it cannot",
    ("explain", "broken"): "{folder}/broken.py:2: ZeroDivisionError: division by zero",
    ("freeze", "broken.py:exits", "w"): "broken.py:13: SystemExit: 3",
    ("build", "syntax.py"): "syntax.py:2: SyntaxError: '(' was never closed",
    (
        "build",
        "model.py",
        "--name",
        "a-b",
    ): "model.py: a module's name must be an ASCII identifier that is not a keyword, got 'a-b'",
    ("build", "model.py", "--compiler", "no-such-cc"): "there is no C compiler 'no-such-cc': "
    "pip install 'micrograd-nn[compiler]' brings one",
    ("freeze", "model.py", "nowhere"): "nowhere: No such file or directory",
    ("freeze", "model.py", "model.py"): "model.py: not a safetensors file: ",
    (
        "freeze",
        "model.py",
        "w",
        "--standalone",
        "--compiler",
        "cc",
    ): "--standalone excludes --compiler: it compiles nothing",
    ("freeze", "model.py", "build/m.c", "--name", "m"): "the weights must be no file that is written, got build/m.c",
    ("export", "model.py"): "a model that only predicts needs WEIGHTS; with --train it starts from its own",
    ("export", "model.py", "nowhere", "--train"): "nowhere: No such file or directory",
    ("export", "model.py", "--train", "--name", "math"): "model.py: a module's name must not be that of a C header, "
    "got 'math'",
    ("export", "model.py", "build/model.c"): "the weights must be no file that is written, got build/model.c",
    ("explain", "peculiar.py"): "peculiar.py:6: Odd",
    ("explain", "peculiar.py:base"): "peculiar.py:9: Base: no Exception",
    ("explain", "bytes.py"): "bytes.py:1: SyntaxError: (unicode error) 'utf-8' codec can't decode byte 0xff "
    "in position 0: invalid start byte",
    ("completion",): "the following arguments are required: bash|zsh|fish",
    ("train", "--model", "model.py"): "model.py: its inputs must be 784 Pixels, as the images have them",
}
FILES = {
    "empty.py": "",
    "shapes.py": "from textwrap import dedent\n\ndef three():\n    return 3\n\n"
    "def needs(size, depth, more=1, *rest):\n    pass\n",
    "broken.py": "def program():\n    return 1 / 0\n\ndef deep():\n    def inner(table):\n        return table['b']\n"
    "    return inner({})\n\ndef helped():\n    import helpers\n    return helpers.cannot()\n\n"
    "def exits(): raise SystemExit(3)\n",
    "helpers.py": "def cannot():\n    raise ValueError('it\\ncannot')\n",
    "syntax.py": "x = 1\nprint(\n",
    "peculiar.py": "class Odd(Exception):\n    def __str__(self): raise self\nclass Base(BaseException): pass\n\n"
    "def program():\n    raise Odd\n\ndef base():\n    raise Base('no Exception')\n",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(run: Run, folder: Path, arguments: tuple[str, ...]) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "bytes.py").write_bytes(b"x = '\xff'\n")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    expected = f"error: {MISTAKES[arguments]}".format(folder=folder)
    assert err.startswith(expected) if expected.endswith(": ") else err == f"{expected}\n"
    assert err.count("\n") == 1
    assert not list(folder.glob("build/*nn*.so"))


@pytest.mark.parametrize("before", [True, False])
def test_the_traceback_is_shown_if_it_is_asked_for(run: Run, folder: Path, before: bool) -> None:
    (folder / "broken.py").write_text(FILES["broken.py"])
    command = ["explain", "broken.py"]
    code, _, err = run(*(["--traceback", *command] if before else [*command, "--traceback"]))
    assert code == 2
    assert "Traceback (most recent call last)" in err
    assert 'File "broken.py", line 2, in program' in err
    assert err.endswith("\nerror: broken.py:2: ZeroDivisionError: division by zero\n")


def test_an_error_in_what_the_compiler_calls_is_the_models(run: Run, folder: Path) -> None:
    """The rule of an update runs while the Program is compiled."""
    text = "\n\ndef bad():\n    found = program()\n    found.update = lambda *a: missing\n    return found\n"
    (folder / "model.py").write_text(MODEL + text)
    code, _, err = run("explain", "model.py:bad")
    assert code == 2
    line = (MODEL + text).splitlines().index("    found.update = lambda *a: missing") + 1
    assert err == f"error: model.py:{line}: NameError: name 'missing' is not defined\n"


@pytest.mark.parametrize(
    "source",
    [b"\xef\xbb\xbf" + MODEL.encode(), b"# -*- coding: latin-1 -*-\nname = '\xe9'\n" + MODEL.encode()],
    ids=["with a byte order mark", "latin-1"],
)
def test_a_model_may_have_any_encoding_that_python_reads(run: Run, folder: Path, source: bytes) -> None:
    (folder / "model.py").write_bytes(source)
    code, out, err = run("explain", "model.py")
    assert (code, err) == (0, "")
    assert out


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(run: Run, folder: Path) -> None:
    (folder / "model.py").write_text(MODEL.replace("Floats([x])", "Floats([x, Value(0)])"))
    code, out, err = run("explain", "model.py")
    assert (code, err) == (0, "warning: nothing reads 1 of 2 inputs: inputs[1]\n")
    assert out.startswith("1 root, ")


def test_a_mistake_of_ours_keeps_its_traceback(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(program: object) -> None:
        raise AssertionError("an invariant")

    monkeypatch.setattr(codegen, "compile_program", fails)
    with pytest.raises(AssertionError, match="an invariant"):
        run("explain", "model.py")


def test_without_numpy_it_says_what_to_install(folder: Path) -> None:
    script = (
        "import sys\nsys.modules['numpy'] = None\nfrom micrograd.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    )
    arguments = [sys.executable, "-c", script, "build", "model.py"]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True)
    expected = "error: compiling a model needs numpy and setuptools: pip install 'micrograd-nn[compile]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


# ---- the names of models

NAMES = {
    "model.py": ("model.py", "program", True),
    "model.py:net": ("model.py", "net", True),
    "models/model.py:net": ("models/model.py", "net", True),
    "codegen.mnist": ("codegen.mnist", "program", False),
    "codegen.mnist:net": ("codegen.mnist", "net", False),
    "mnist": ("mnist", "program", False),
    "models/model": ("models/model", "program", True),
    "./model:net": ("model", "net", False),
    "model.py:two words": ("model.py:two words", "program", True),
}
ON_WINDOWS = {
    "C:\\models\\model.py": ("C:\\models\\model.py", "program", True),
    "C:\\models\\model.py:net": ("C:\\models\\model.py", "net", True),
    "C:model.py": ("C:model.py", "program", True),
    "C:model": ("C:model", "program", True),
    "C:model.py:net": ("C:model.py", "net", True),
}


@pytest.mark.parametrize("text", NAMES)
def test_names(text: str) -> None:
    assert named(text) == NAMES[text]


@pytest.mark.parametrize("text", ON_WINDOWS)
def test_names_with_a_drive(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "splitdrive", ntpath.splitdrive)
    assert named(text) == ON_WINDOWS[text]


def test_a_file_may_have_any_name(folder: Path) -> None:
    for name in ("a:b", "plain"):
        (folder / name).write_text(MODEL)
        assert named(name) == (name, "program", True)
        assert codegen.load(name).description == "one weight"
    assert named(Path("mnist")) == ("mnist", "program", True)


def test_what_is_written_about_a_model_has_its_name(folder: Path) -> None:
    names = ("model.py", "models/model.py:net", "codegen.mnist:net")
    assert [named(name).title for name in names] == ["model", "model.net", "mnist.net"]
    assert [named(name).whole for name in names] == [
        f"{folder}/model.py",
        f"{folder}/models/model.py:net",
        "codegen.mnist:net",
    ]


def test_every_command_takes_every_name(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the current folder too, which the console script has not on its path."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(folder))])
    path, modules = list(sys.path), set(sys.modules)
    plain = run("explain", "model.py")
    assert plain[0] == 0
    for name in ("model.py:net", "model", "model:net", str(folder / "model.py")):
        assert run("explain", name) == plain
        assert run("draw", name, "--output", "-")[1].startswith("digraph {")
        assert codegen.load(name).description == ("another" if name.endswith("net") else "one weight")
    assert run("draw", "model:net", "--output", "-", "--what", "loops")[0] == 0
    assert sys.path == path
    assert {name for name in set(sys.modules) - modules if "model" in name} <= {"model", "codegen.models"}
    sys.modules.pop("model", None)


def test_build_and_freeze_print_what_they_have_written(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "UNIX_FLAGS", [*toolchain.UNIX_FLAGS, "-O0"])
    code, out, err = run("build", "model.py:net", "--name", "built_net", "--ir")
    assert (code, err) == (0, "")
    module = codegen.load_extension(out.strip())
    assert module.info()["architecture"] == "another"
    assert {path.name for path in (folder / "build").iterdir()} >= {"built_net.c", "built_net.ir"}
    module.save_weights(folder / "w")
    code, out, err = run("freeze", "model.py", "w", "--standalone", "--output", "c")
    assert (code, out, err) == (0, f"{folder / 'c' / 'nn_infer.h'}\n{folder / 'c' / 'nn_infer.c'}\n", "")
    for name, arguments in {"model": ("model.py", "w"), "model_net": ("model.py:net", "--train")}.items():
        code, out, err = run("export", *arguments, "-o", "c")
        assert (code, out, err) == (0, f"{folder / 'c' / name}.h\n{folder / 'c' / name}.c\n", "")
        assert ("model_net_update" in (folder / "c" / f"{name}.h").read_text()) == (name == "model_net")


# ---- the documentation


def commands_of(page: Path) -> list[str]:
    """The lines of a page's listings that call micrograd."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
    blocks = [block for language, block in fenced if language in ("", "sh", "console")]
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [re.split(" +[#>]", line)[0] for line in lines if line.startswith("micrograd ")]


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_commands_in_the_documentation_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.name == "CHANGELOG.md" or "python -m codegen" not in text
    assert page.name == "commands.md" or "python -m micrograd" not in text
    for command in commands_of(page):
        tree().parse_args(shlex.split(command)[1:])
    for line in re.findall(r"`micrograd ([a-z][^`|]*)`", text):
        name, *words = line.split()
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert name in COMMANDS
        assert options <= {option for action in choices(name)._actions for option in action.option_strings}


def choices(name: str) -> argparse.ArgumentParser:
    """The parser of a command."""
    (commands,) = (each for each in tree()._actions if isinstance(each, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[name]
    return found


def test_commands_in_listings_are_found() -> None:
    assert len(commands_of(ROOT / "README.md")) >= 3
    assert len(commands_of(ROOT / "docs" / "training.md")) >= 4


def test_the_page_about_commands_has_all_of_them() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert re.findall(r"^## `micrograd (\w+)", page, re.M) == list(COMMANDS)


def test_options_have_the_values_that_the_compiler_has():
    """Parsers have lists of their own: NumPy, which the compiler imports, takes longer than most commands do."""
    assert (train_model.DTYPES, freeze.STORAGES, import_model.LOSSES) == (DTYPES, STORAGES, LOSSES)
