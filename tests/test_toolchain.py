"""Which C compiler is used, and what is said where there is none."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from array import array
from pathlib import Path

import models
import pytest
from test_compile import line, step

import codegen
from codegen import toolchain
from codegen.toolchain import HOW_TO_GET_A_COMPILER, CompilerError, Toolchain, find_toolchain

posix = pytest.mark.skipif(os.name != "posix", reason="of Linux and macOS")
# As the package ziglang, whose command is `python -m ziglang cc ...`.
ZIGLANG = """
import subprocess, sys
assert sys.argv[1] == "cc", sys.argv
with open({log!r}, "a") as file:
    print(*sys.argv[1:], file=file)
sys.exit(subprocess.call(["gcc", *(x for x in sys.argv[2:] if x not in {flags!r})]))
"""


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No compiler is found, and no package ziglang is there but in the folder that this returns."""
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    real = importlib.util.find_spec
    here = packages / "ziglang" / "__init__.py"

    def find_spec(name: str) -> object:
        if name != "ziglang":
            return real(name)
        return importlib.util.spec_from_file_location(name, here) if here.is_file() else None

    monkeypatch.setattr(toolchain.importlib.util, "find_spec", find_spec)
    return packages


@posix
@pytest.mark.parametrize("use", ["compile", "build", "freeze"])
def test_without_a_compiler_the_error_says_how_to_get_one(use, no_compiler, tmp_path):
    uses = {
        "compile": lambda: codegen.compile(line()),
        "build": lambda: codegen.build(line(), tmp_path, "none"),
        "freeze": lambda: codegen.freeze(line(), {"w": 1.0, "b": 2.0}, tmp_path, "none"),
    }
    with pytest.raises(CompilerError, match="needs a C compiler, and none was found") as error:
        uses[use]()
    assert "pip install 'micrograd-nn[compiler]'" in str(error.value)
    assert HOW_TO_GET_A_COMPILER in str(error.value)


def test_the_environments_compiler_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setenv("CC", "no-such-cc -m64")
    with pytest.raises(CompilerError, match="no C compiler 'no-such-cc -m64', which the environment's CC names"):
        find_toolchain()


def test_the_environments_compiler_and_its_options(monkeypatch):
    monkeypatch.setenv("CC", f'"{Path(sys.executable).as_posix()}" -m cc')
    assert find_toolchain().command[1:] == ("-m", "cc")
    assert find_toolchain("gcc").command == ("gcc",) if toolchain.shutil.which("gcc") else True


@posix
def test_missing_headers_are_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(CompilerError, match=r"Python\.h") as error:
        codegen.build(line(), tmp_path, "headless")
    assert HOW_TO_GET_A_COMPILER in str(error.value)


@posix
@pytest.mark.nightly
def test_the_package_ziglang_is_used_where_there_is_no_other(no_compiler, tmp_path, monkeypatch):
    log = tmp_path / "log"
    (no_compiler / "ziglang").mkdir()
    (no_compiler / "ziglang" / "__init__.py").write_text("")
    main = ZIGLANG.format(log=str(log), flags=toolchain.ZIG_FLAGS)
    (no_compiler / "ziglang" / "__main__.py").write_text(main)
    monkeypatch.setenv("PYTHONPATH", str(no_compiler))
    assert find_toolchain() == Toolchain((sys.executable, "-m", "ziglang", "cc"), is_zig=True)
    step(codegen.compile(line()))
    codegen.build(line(), tmp_path, "by_zig")
    codegen.freeze(line(), {"w": 1.0, "b": 2.0}, tmp_path, "frozen_by_zig")
    commands = log.read_text().splitlines()
    assert len(commands) == 3
    assert all("-mcpu=baseline" in command for command in commands)


@posix
def test_a_compiler_with_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mycc").write_text('#!/bin/sh\nexec cc "$@"\n')
    Path("mycc").chmod(0o755)
    monkeypatch.setenv("CC", "./mycc -O0")
    assert find_toolchain().command == (str(tmp_path / "mycc"), "-O0")
    codegen.build(line(), tmp_path / "build", "relative", flags=["-O0"])


@posix
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("CC", "gcc '", "the environment's CC has an open quote or a last backslash: \"gcc '\""),
        ("CFLAGS", '-D"x', "the environment's CFLAGS has an open quote or a last backslash: '-D\"x'"),
        ("LDFLAGS", "-L'x", "the environment's LDFLAGS has an open quote or a last backslash: \"-L'x\""),
        ("CC", "./garbage", "garbage' does not run: "),
        ("CC", "true", "wrote no module:\ntrue "),
        ("CFLAGS", "-fsyntax-only", "wrote no module:\n"),
    ],
)
def test_what_the_environment_names_fails(name, text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("garbage").write_text("garbage")
    Path("garbage").chmod(0o755)
    monkeypatch.setenv(name, text)
    monkeypatch.setattr(toolchain, "_processors", lambda: 2)
    with pytest.raises(CompilerError) as error:
        codegen.build(line(), tmp_path / "build", "failing", flags=["-O1"])
    assert message in str(error.value)


def test_another_compiler_is_another_identity(tmp_path):
    one, two = tmp_path / "cc", tmp_path / "cc2"
    for path in (one, two):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    first = Toolchain((str(one),)).identity()
    assert Toolchain((str(one),)).identity() == first != Toolchain((str(two),)).identity()
    one.write_text("#!/bin/sh\n# updated\n")
    assert Toolchain((str(one),)).identity() != first


gcc = pytest.mark.skipif(
    sys.platform != "linux" or not toolchain.shutil.which("gcc"), reason="of gcc on Linux, which .ci/run has"
)


@gcc
def test_gcc_divides_a_file_among_processors_unless_it_is_told_not_to(tmp_path, monkeypatch):
    def command(compiler: str = "gcc", processors: int = 4, *flags: str, **environment: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(toolchain, "_processors", lambda: processors)
            for name in ("CFLAGS", "LDFLAGS"):
                patch.setenv(name, environment.get(name, ""))
            return toolchain._command(find_toolchain(compiler), tmp_path / "nn.c", tmp_path / "nn.so", flags)

    assert "-flto=4" in command()
    assert "-flto=8" in command(processors=64)
    for alone in (
        command(processors=1),
        command("gcc", 4, "-O0"),
        command(f'"{Path(sys.executable)}" -m no_such_cc'),
        *(command(other) for other in ("clang", "tcc") if toolchain.shutil.which(other)),
        *([command(LDFLAGS="-fuse-ld=lld")] if toolchain.shutil.which("ld.lld") else []),
    ):
        assert not [flag for flag in alone if flag.startswith("-flto")]
    for character in "'$#:;=\n":  # gcc would write it into a Makefile as it is
        monkeypatch.setattr(toolchain.tempfile, "tempdir", f"/tmp/a{character}b")
        assert "-flto=4" not in command()
    monkeypatch.setattr(toolchain.tempfile, "tempdir", "/tmp/a b-c")
    asked = command(CFLAGS="-fno-lto")
    assert asked.index("-flto=4") < asked.index("-fno-lto")


INEXACT = [
    ("gcc", "-ffast-math"),
    ("clang", "-ffast-math"),
    ("gcc", "-Ofast"),
    ("gcc", "-funsafe-math-optimizations"),
    ("gcc", "-fassociative-math -fno-signed-zeros -fno-trapping-math -freciprocal-math"),
    ("clang", "-fassociative-math -fno-signed-zeros -freciprocal-math"),
    ("tcc", "-ffast-math"),
]


@gcc
@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "flags"), INEXACT, ids=str)
def test_the_environments_flags_change_no_numbers(compiler, flags, tmp_path, monkeypatch):
    if toolchain.shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "cache"))
    data = array("d", [0.1 * i for i in range(80)]), array("d", [0.3] * 40)
    found = []
    for asked in ("", flags):
        monkeypatch.setenv("CFLAGS", asked)
        model = codegen.compile(models.xor(), compiler=compiler)
        losses = model.train(*data, batch_size=7, epochs=9)
        found.append([losses, [model.data(i).hex() for i in range(model.info()["parameters"])]])
        assert sys.float_info.min / 2 > 0, "subnormal numbers are flushed"
    assert found[0] == found[1]


@gcc
@pytest.mark.parametrize("flag", ["-ffast-math", "-fsingle-precision-constant", "-mfpmath=387"])
def test_flags_that_cannot_be_undone_are_refused(flag, tmp_path):
    if flag.startswith("-m") and platform.machine() != "x86_64":
        pytest.skip("of x86")
    with pytest.raises(CompilerError, match=f"compile without .*{flag}"):
        codegen.build(line(), tmp_path, "inexact", compiler="gcc", flags=["-O0", flag])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere wheels have no flags of their own")
@pytest.mark.parametrize(
    ("compiler", "is_gcc"), [("gcc -m64", True), ("/usr/bin/x86_64-linux-gnu-gcc-12", True), ("clang", False)]
)
def test_only_gcc_saves_space_where_kernels_ask_for_speed(monkeypatch, compiler, is_gcc):
    """clang has no pragma for a level of optimisation, and would compile the kernels for their size too."""
    monkeypatch.setenv("CC", compiler)
    monkeypatch.delenv("CFLAGS", raising=False)
    assert ("-Os" in toolchain.wheel_flags("unix")[0]) == is_gcc


@gcc
@pytest.mark.slow
def test_a_module_does_not_depend_on_the_number_of_processors(tmp_path, monkeypatch):
    built = []
    for processors in (2, 3):
        monkeypatch.setattr(toolchain, "_processors", lambda number=processors: number)
        path = codegen.build(models.residual(), tmp_path / str(processors), "nn", compiler="gcc")
        built.append(path.read_bytes())
    assert built[0] == built[1]


@pytest.mark.slow
def test_zig_gives_the_same_bits(tmp_path, monkeypatch):
    pytest.importorskip("ziglang")
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "cache"))
    program = models.xor()
    data = array("d", [0.0, 1.0] * 40), array("d", [0.0] * 40)
    found = []
    for compiler in (None, f"{sys.executable} -m ziglang cc {' '.join(toolchain.ZIG_FLAGS)}"):
        model = codegen.compile(program, compiler=compiler)
        found.append([model.train(*data, batch_size=7), [model.data(i) for i in range(model.info()["parameters"])]])
    assert found[0] == found[1]
    assert "clang" in model.info()["compiler"]
