"""Memory tools that would not notice an error. The runs themselves are `make memory`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.memory import __main__, tree, valgrind

ROOT = Path(__file__).resolve().parent.parent
LEAKING = """
import subprocess
import sys
import nn
kept = []
spare = [object()]

def test_leak():
    kept.append(object())
    if len(kept) == 6:  # a round that frees what was there before
        spare.clear()

def test_first_one_only():
    if not kept or kept[-1] is not None:
        kept.append(None)

def test_leak_of_a_reference():
    kept.append(nn)

def test_a_cache_that_is_full_after_a_while():
    kept.append(object()) if len(kept) < 150 else None

def test_no_leak():
    [object() for _ in range(100)]

def test_once():
    assert "once" not in kept
    kept.append("once")

def test_that_loads_an_extension():
    sys.modules.pop("_json", None)
    import _json
    kept.append(object())

def test_that_starts_a_process():
    subprocess.run([sys.executable, "-c", ""])
    kept.append(object())

def test_wrong():
    assert False
"""


@pytest.mark.slow
def test_a_leak_is_found_and_nothing_else_is(tmp_path):
    (tmp_path / "test_leaking.py").write_text(LEAKING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.memory.repeat"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONMALLOC": "pymalloc"},  # the one that counts its blocks
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 failed, 6 passed" in done.stdout, done.stdout + done.stderr
    assert "each run leaves blocks behind: 1\n" in done.stdout
    assert "each run leaves references behind: 1\n" in done.stdout
    assert "not repeated, as it cannot be run again: test_leaking.py::test_once" in done.stdout
    assert "not repeated, as it starts processes: test_leaking.py::test_that_starts_a_process" in done.stdout
    assert "not repeated, as it loads libraries: test_leaking.py::test_that_loads_an_extension" in done.stdout
    assert "5 tests repeated, counting blocks and references" in done.stdout


REPORT = """<?xml version="1.0"?>
<valgrindoutput>
<error><kind>UninitValue</kind><what>Use of uninitialised value of size 8</what>
<stack><frame><obj>/usr/lib/libpython3.11.so</obj><fn>long_add</fn></frame></stack></error>
<error><kind>InvalidRead</kind><what>Invalid read of size 4</what>
<stack><frame><obj>/lib/libc.so.6</obj><fn>memcpy</fn></frame>
<frame><obj>/checkout/copy/nn.abi3.so</obj><fn>api_forward</fn></frame></stack></error>
<error><kind>Leak_DefinitelyLost</kind><xwhat><text>8 bytes are lost</text></xwhat>
<stack><frame><obj>/checkout/copy-of-another/nn.abi3.so</obj></frame></stack></error>
</valgrindoutput>
"""


def test_errors_of_valgrind_count_where_a_module_of_ours_is_on_the_stack(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    (error,) = valgrind.of_ours(report, [Path("/checkout/copy")])
    assert error == (
        "InvalidRead: Invalid read of size 4\n    memcpy (/lib/libc.so.6)\n    api_forward (/checkout/copy/nn.abi3.so)"
    )


def test_a_copy_of_the_checkout_follows_it(tmp_path, monkeypatch):
    for name in ("kept.py", "gone.py"):
        (tmp_path / name).write_text(name)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/build/\n")
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    monkeypatch.setattr(tree, "FOLDER", tmp_path / "build" / "memory")
    folder = tree.copy("tool")
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "gone.py", "kept.py"]
    (folder / "nn.so").write_text("built")
    before = (folder / "kept.py").stat().st_mtime_ns
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("new")
    tree.copy("tool")
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "kept.py", "new.py", "nn.so"]
    assert (folder / "kept.py").stat().st_mtime_ns == before


def test_a_command_that_fails_says_why(tmp_path):
    with pytest.raises(tree.Failed, match=r"(?s)failed in .*no such thing"):
        tree.run([sys.executable, "-c", "import sys; sys.exit('no such thing')"], tmp_path, {})


@pytest.mark.parametrize("arguments", [[], ["msan"]])
def test_without_a_tool_the_command_lists_them(arguments, capsys):
    assert __main__.main(arguments) == 2
    listed = capsys.readouterr().err
    assert all(f"\n{tool} " in listed for tool in __main__.TOOLS)
