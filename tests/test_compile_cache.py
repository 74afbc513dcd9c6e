"""The cache of codegen.compile(): code built twice, lost, or from a damaged file; threads and processes that race."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
from test_compile import line, step

import codegen
from codegen import models as instances
from micrograd import cache

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def empty(tmp_path: Path, unoptimized: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no libraries that another test has loaded."""
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(instances, "_libraries", {})
    return tmp_path / "cache" / "models"


def test_threads_compile_one_program(empty):
    program, found = line(), []

    def make() -> None:
        for _ in range(5):
            model = codegen.compile(program, optimize=0)
            step(model)
            found.append(model)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 20
    assert len({model.data(0) for model in found}) == 1
    assert len(cache.models(empty)) == 1


def test_pythons_variables_are_there_before_threads_are():
    """Who came second saw no EXT_SUFFIX, and compiled the same Program under another key."""
    script = "import codegen, sysconfig; print(bool(sysconfig._CONFIG_VARS))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


RACE = """
import sys
sys.path[:0] = sys.argv[1:3]
import codegen, models
for _ in range(3):
    model = codegen.compile(models.xor(), optimize=0)
    model.forward([1.0], [0.5, -1.0])
    model.backward()
    model.update()
print(model.data(0).hex())
"""


@pytest.mark.slow
def test_processes_compile_one_program(empty):
    arguments = [sys.executable, "-c", RACE, str(ROOT), str(ROOT / "tests")]
    racers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    results = [racer.communicate(timeout=300)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 3
    assert len(set(results)) == 1
    assert [path.suffix for path in empty.iterdir()] == [".model"]


@pytest.mark.parametrize("damage", ["empty", "cut", "bit", "text", "elsewhere", "folder"])
def test_a_damaged_entry_is_built_again(damage, empty):
    program = line()
    codegen.compile(program, optimize=0)
    (entry,) = cache.models(empty)
    content = entry.read_bytes()
    if damage == "elsewhere":  # whole, but of another system
        entry.unlink()
        cache.write(empty, entry.stem, b"MZ no module of this system")
    elif damage == "folder":
        entry.unlink()
        entry.mkdir()
    else:
        changed = bytearray(content)
        changed[len(content) // 2] ^= 4
        entry.write_bytes({"empty": b"", "cut": content[:-1], "bit": bytes(changed), "text": b"?" * 1000}[damage])
    instances._libraries.clear()
    if damage == "folder":
        with pytest.warns(RuntimeWarning, match="not kept"):
            step(codegen.compile(program, optimize=0))
        return
    step(codegen.compile(program, optimize=0))
    assert cache.read(empty, entry.stem) is not None
    assert cache.read(empty, entry.stem) != b"MZ no module of this system"


def test_a_cache_that_cannot_be_written_is_said_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("MICROGRAD_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(instances, "_libraries", {})
    with pytest.warns(RuntimeWarning, match="not kept: the cache cannot be written: .*file.*: .*MICROGRAD_CACHE"):
        step(codegen.compile(line(), optimize=0))
    assert (tmp_path / "file").read_bytes() == b""


def fail(*arguments: object, **options: object) -> NoReturn:
    raise AssertionError("it is built again")


def test_a_user_without_a_home(unoptimized, monkeypatch, tmp_path):
    def no_home() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    for name in ("MICROGRAD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache.Path, "home", no_home)
    monkeypatch.setattr(instances, "_libraries", {})
    with pytest.raises(OSError, match=r"no home folder, and \$MICROGRAD_CACHE names none"):
        cache.folder()
    with pytest.warns(RuntimeWarning, match=r"not kept: .* no home folder, and \$MICROGRAD"):
        step(codegen.compile(line(), optimize=0))


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ImportError("failed to map segment")], ids=str
)
def test_a_cache_from_which_nothing_loads(error, empty, monkeypatch):
    """It is full, or mounted noexec. What is in it, as in one that cannot be written, is used all the same."""
    load_in = instances._load_in

    def load_elsewhere(place: Path, module: bytes) -> ModuleType:
        if place == empty:
            raise error
        return load_in(place, module)

    monkeypatch.setattr(instances, "_load_in", load_elsewhere)
    model = codegen.compile(line(), optimize=0)
    step(model)
    pickled = pickle.dumps(model)
    monkeypatch.setattr(instances, "build_module", fail)
    for again in (lambda: codegen.compile(line(), optimize=0), lambda: pickle.loads(pickled)):
        instances._libraries.clear()
        step(again())


def test_a_cache_that_is_full(empty, monkeypatch):
    def full(*arguments: object) -> NoReturn:
        raise OSError(28, "No space left on device", "models")

    monkeypatch.setattr(cache, "write", full)
    with pytest.warns(RuntimeWarning, match="not kept: the cache cannot be written: models: No space left"):
        step(codegen.compile(line(), optimize=0))


def test_a_file_that_a_killed_process_left_goes_after_a_day(empty):
    empty.mkdir(parents=True)
    old, new = empty / "tmpold.so", empty / "tmpnew.tmp"
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (1, 1))
    cache.write(empty, "key", b"module")
    assert sorted(path.name for path in empty.iterdir()) == ["key.model", "tmpnew.tmp"]


def test_the_cache_is_where_the_system_keeps_caches(monkeypatch):
    import pooch

    monkeypatch.delenv("MICROGRAD_CACHE", raising=False)
    assert cache.folder() == Path(pooch.os_cache("micrograd-nn")) / "models"
