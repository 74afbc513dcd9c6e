"""Pages that are wrong without being run: their text, their declarations, and what the command refuses."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest

import codegen
from codegen import Floats, Pixels, Program
from codegen.pages.page import Picture, page_text, picture_of, wasm_of, write_page
from micrograd.__main__ import main

ROOT = Path(__file__).resolve().parent.parent
needs_clang = pytest.mark.skipif(not shutil.which("wasm-ld"), reason="needs clang and wasm-ld")


def told(page: Path) -> dict[str, Any]:
    """What a page's script is told about the model."""
    text = page.read_text(encoding="utf-8")
    return json.loads(re.findall(r'<script type="application/json" id="model">(.*?)</script>', text, re.S)[0])


def of(inputs: Pixels | Floats) -> Program:
    values = inputs.values if isinstance(inputs.values, list) else inputs.values.ravel().tolist()
    return Program(inputs, None, {}, None, {"sum": [sum(values, start=values[0] * 2.0)]})


def array(*shape: int) -> Any:
    return np.array(models.values(int(np.prod(shape))), dtype=object).reshape(shape)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (lambda: Pixels(models.values(64)), (8, 8)),
        (lambda: Pixels(array(6, 9)), (6, 9)),
        (lambda: Pixels(array(3, 6, 7)), (6, 7)),
        (lambda: Floats(array(1, 8, 8)), (8, 8)),
        (lambda: Floats(models.values(64)), None),  # numbers of any kind
        (lambda: Pixels(models.values(60)), None),
        (lambda: Floats(array(2, 8, 8)), None),  # two channels of what?
        (lambda: Floats(array(8, 4)), None),  # time by feature, say
    ],
)
def test_what_is_drawn(inputs: Callable[[], Any], expected: tuple[int, int] | None):
    picture = picture_of(of(inputs()))
    assert (picture and (picture.height, picture.width)) == expected


def test_floats_are_drawn_in_the_range_of_data():
    program = of(Floats(array(1, 8, 8)))
    picture = picture_of(program, None, np.linspace(-3, 16, 128).reshape(2, 64))
    assert picture is not None
    assert (picture.low, picture.high) == (-3, 16)


def test_a_box_as_large_as_that_of_the_examples():
    rows = np.zeros((3, 12, 8))
    rows[0, 2:11, 3:5] = rows[1, 1:10, 2:8] = 1.0  # 9 of 12 rows
    rows[2, 5:7, 0:8] = 1.0  # all columns
    rows[:, 0, 0] = 0.05  # noise
    picture = picture_of(of(Floats(models.values(96))), (12, 8), rows.reshape(3, -1))
    assert picture == Picture(12, 8, 0.0, 1.0, (9, 6))
    assert picture_of(of(Pixels(array(28, 28)))) == Picture(28, 28, 0.0, 255.0, (20, 20))


def test_a_size_that_does_not_fit():
    with pytest.raises(ValueError, match="the inputs are no picture of 5 x 5 pixels, but 64 floats"):
        picture_of(of(Floats(models.values(64))), (5, 5))


def test_only_the_own_script_and_style_run():
    title = "</script><script>alert(1)</script> @policy@"
    text = page_text({"title": title, "wasm": ""}, "a & b")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ")
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert text.count("<script") == 2
    assert "<h1>&lt;/script&gt;" in text
    assert "a &amp; b" in text
    assert not re.search(r"\b(src|href)=|https?:|@import|url\(", text)


def test_the_names_of_ids_are_those_of_the_script():
    folder = Path(codegen.__file__).parent / "pages"
    page, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.js"))
    used = set(re.findall(r'\$\("([\w-]+)"\)', script)) | set(
        re.findall(r'for \(const id of \["(\w+)", "(\w+)"\]', script)[0]
    )
    there = re.findall(r'id="([\w-]+)"', page)
    assert len(there) == len(set(there))
    assert used <= set(there)
    assert set(re.findall(r'aria-labelledby="([\w-]+)"', page)) <= set(there)


@needs_clang
def test_a_page_is_told_of_ranges_and_names(tmp_path: Path):
    x = models.values(2)
    program = Program(Floats(x), None, {}, None, {"a": [x[0] * x[1]], "b": [x[0], x[1]]}, description="two < three")
    data = [[0.0, 5.0], [1.0, 6.5]]
    page = write_page(program, tmp_path / "page.html", features=["left", "right"], data=data)
    found = told(page)
    assert found["inputs"] == [
        {"kind": "floats", "name": "", "count": 2, "classes": 0, "names": ["left", "right"]}
        | {"low": [0.0, 5.0], "high": [1.0, 6.5], "start": [0.5, 5.75]}
    ]
    assert found["outputs"] == [{"name": "a", "count": 1}, {"name": "b", "count": 2}]
    assert (found["main"], found["classCount"], found["picture"]) == (0, 0, None)
    assert "<title>two &lt; three</title>" in page.read_text(encoding="utf-8")


REFUSED = {
    "classes": ({"classes": ["a"]}, "classes must be 0 names"),
    "features": ({"features": ["a"]}, "features must be 2 names, one for each input, got 1"),
    "columns": ({"data": [[1.0], [2.0]]}, r"data must be rows of 2 finite numbers, got the shape \(2, 1\)"),
    "nan": ({"data": [[1.0, np.nan]]}, "finite"),
    "storage": ({"storage": "float8"}, "storage must be one of float16, bfloat16, int8, got 'float8'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str, tmp_path: Path):
    given, message = REFUSED[case]
    x = models.values(2)
    with pytest.raises(ValueError, match=message):
        write_page(Program(Floats(x), None, {}, None, {"a": [x[0] * x[1]]}), tmp_path / "page.html", **given)
    assert not list(tmp_path.iterdir())


def test_too_many_fields(tmp_path: Path):
    with pytest.raises(ValueError, match="a form has at most 256 fields, but the inputs are 300 floats"):
        write_page(of(Floats(models.values(300))), tmp_path / "page.html")


def test_no_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(codegen.CompilerError, match="apt install clang lld"):
        wasm_of({})
    with pytest.raises(codegen.CompilerError, match="there is no C compiler 'nope'"):
        wasm_of({}, "nope")


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_a_compiler_with_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mycc").write_text("#!/bin/sh\ntouch model.wasm\n")
    Path("mycc").chmod(0o755)
    assert wasm_of({"page.c": ""}, "./mycc") == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--classes", "a,,b"], "argument --classes: expected names with commas between them, got 'a,,b'"),
        (["missing.safetensors"], "missing.safetensors: No such file or directory"),
        (["--train"], "--html excludes --train and --input-gradients: a page has both"),
        (["--data", "text.npy"], "text.npy: not an array of numbers"),
        (["--data", "page.html"], "the page must be another file than page.html, which is read"),
    ],
)
def test_the_command_refuses(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    Path("text.npy").write_text("text", encoding="utf-8")
    Path("page.html").write_text("old", encoding="utf-8")
    try:
        code = main(["export", "codegen.mnist", *arguments, "--html", "page.html"])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert Path("page.html").read_text(encoding="utf-8") == "old"


@pytest.mark.slow
def test_zig_makes_pages_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("ziglang")
    monkeypatch.setattr("codegen.pages.page.shutil.which", lambda command: None)
    page = write_page(models.mlp(), tmp_path / "page.html")
    wasm = gzip.decompress(base64.b64decode(told(page)["wasm"]))
    assert wasm.startswith(b"\0asm\1\0\0\0")
    assert b"train" in wasm


@pytest.mark.slow
@needs_clang
def test_the_page_about_pages_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = (ROOT / "docs" / "pages.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    sizes = []
    (command,) = re.findall(r"^micrograd (.*)$", text, re.M)
    for more in ([], ["--int8"]):
        assert main([*command.split(), *more]) == 0
        sizes.append(Path("digits.html").stat().st_size / 1000)
    said = re.findall(r"has (\d+) KB, and (\d+) KB with `--int8`", " ".join(text.split()))[0]
    assert sizes == [pytest.approx(int(size), abs=3) for size in said]
    assert max(sizes) < 300
    (listing,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(listing, {})
    assert "<h1>Digits</h1>" in Path("digits.html").read_text(encoding="utf-8")
    assert "digits.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--title", "Digits", "--train"], "--title needs --html"),
        (["--data", "X.npy", "--train"], "--data needs --html"),
        (["--map", "a=b", "--train"], "--map, --transpose and --match are for the WEIGHTS of a FILE"),
        (["--int8", "--train"], "--int8 is for WEIGHTS that become constants, or for --html"),
    ],
)
def test_plain_c_takes_no_options_of_pages(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["export", "codegen.mnist", *arguments]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.slow
def test_plain_c_with_narrow_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    weights = ROOT / "weights" / "mnist.safetensors"
    assert main(["export", "codegen.mnist", str(weights), "--int8", "--name", "small", "-o", str(tmp_path)]) == 0
    text = (tmp_path / "small.c").read_text(encoding="utf-8")
    assert "signed char" in text or "int8_t" in text
    assert len(text) < 300_000
    assert capsys.readouterr().out.endswith("small.c\n")
