"""Pythons that `make pythons` compiles: a source, a compiler or an archive that is missing. Nothing is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cross.builds import Failed
from tools.pythons import __main__, build, free_threaded, source

ROOT = Path(__file__).resolve().parent.parent


def test_apt_knows_that_source_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "KEYS", tmp_path)
    monkeypatch.setattr(source.Path, "is_file", lambda path: True)
    monkeypatch.setattr(source.shutil, "which", lambda name: name)
    monkeypatch.setattr(source, "run", lambda command: b"http://archive/debian/\nhttp://other/\n")
    configuration = source._configuration(tmp_path / "apt")
    lines = configuration.read_text().splitlines()
    assert all(str(tmp_path) in line for line in lines if "Dir::" in line and "sourceparts" not in line)
    listed = (tmp_path / "apt" / "sources.list").read_text()
    assert listed == f"deb-src [signed-by={tmp_path}] http://archive/debian/ trixie main\n"


@pytest.mark.parametrize("archives", [b"", b"\n"])
def test_a_machine_without_debian(archives, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "KEYS", tmp_path / "none")
    with pytest.raises(Failed, match="no apt or not Debian's keys"):
        source.fetch(tmp_path)
    monkeypatch.setattr(source.Path, "is_file", lambda path: True)
    monkeypatch.setattr(source.shutil, "which", lambda name: name)
    monkeypatch.setattr(source, "run", lambda command: archives)
    with pytest.raises(Failed, match="apt knows no archive of Debian"):
        source._configuration(tmp_path / "apt")


def test_a_compilation_that_fails_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "CACHE", tmp_path)
    (tmp_path / "source").mkdir()
    configure = tmp_path / "source" / "configure"
    configure.write_text("#!/bin/sh\necho no such thing as $2\nexit 3\n")
    configure.chmod(0o755)
    with pytest.raises(Failed, match="no such thing as CFLAGS"):
        build.python("free-threaded")
    assert not (tmp_path / "free-threaded").exists()


def test_without_a_compiler_for_musl(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    (tmp_path / "source").mkdir()
    with pytest.raises(Failed, match="musl-gcc is not installed"):
        build.python("musl")


def test_the_tests_that_run_there_exist():
    assert all((ROOT / "tests" / f"{name}.py").is_file() for name in free_threaded.TESTS)


def test_an_unknown_kind(capsys):
    assert __main__.main(["pypy"]) == 2
    assert "free-threaded" in capsys.readouterr().err
