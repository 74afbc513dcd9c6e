"""micrograd report: a page with wrong numbers, one that needs other files, errors that do not say what is wrong."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nn
import numpy as np
import pytest
from commands import environment

from micrograd.__main__ import main
from micrograd.commands import report_page, run_log
from micrograd.commands.run_log import Table
from micrograd.commands.train_model import Recipe
from micrograd.data import mnist

EXPLANATION = run_log.explanation


@contextmanager
def quick() -> Iterator[pytest.MonkeyPatch]:
    """The compiler takes seconds to explain a model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_log, "explanation", lambda recipe: f"the loops of {recipe.hidden} units <&>")
        yield patch


@pytest.fixture(autouse=True)
def not_explained() -> Iterator[None]:
    with quick():
        yield


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder, with its page."""
    folder = tmp_path_factory.mktemp("runs") / "<run>"
    options = ["--data", str(data), "--epochs", "4", "--validation", "0.2", "--quiet"]
    assert main(["train", *options, "--log", str(folder)]) == 0
    with quick():
        assert main(["report", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found(run: Path) -> run_log.Findings:
    with quick():
        return run_log.findings(SimpleNamespace(run=run, data=None, digits=False))  # type: ignore[arg-type]


class Checker(HTMLParser):
    """What is open, and every address in the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_no_other_file(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(checker.addresses) > 2
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in checker.addresses)
    assert "<script" not in page
    assert "@import" not in page


def test_what_it_says(page: str, run: Path, data: Path) -> None:
    images = mnist.read(data)
    last = Table(run / "log.csv").rows()[-1]
    assert f"<b>{last.test_accuracy:.2%}</b>" in page
    assert "MLP 784-50-10, relu, softmax cross-entropy" in page
    assert f"the idx files in {data}" in page
    assert len(images.test_labels) == 100
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        *("Loss", "Accuracy", "Confusion", "Calibration", "Most wrong", "First layer", "How it was trained"),
        "The model&#x27;s loops",
    ]
    assert "the loops of (50,) units &lt;&amp;&gt;" in page
    assert re.search(r"<td>schedule</td><td>linear-warmup</td>", page)
    for source in re.findall(r'src="data:image/png;base64,(.*?)"', page):
        assert base64.b64decode(source).startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_same_run_has_the_same_page(run: Path, page: str, tmp_path: Path) -> None:
    assert main(["report", str(run), "--output", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_the_numbers_behind_it(found: run_log.Findings, run: Path) -> None:
    nn.load_weights(run / "weights.safetensors")
    probabilities = np.array([nn.probabilities(image.tobytes()) for image in found.images])
    assert (found.probabilities == probabilities).all()
    assert (found.predictions == probabilities.argmax(1)).all()
    counts = report_page.matrix(found.labels, found.predictions)
    for row, column in np.ndindex(counts.shape):
        pairs = zip(found.labels, found.predictions, strict=True)
        assert counts[row, column] == sum((label, guess) == (row, column) for label, guess in pairs)
    shares, accuracies, weights = report_page.binned(found)
    assert weights.sum() == pytest.approx(1)
    assert (weights * accuracies).sum() == pytest.approx((found.predictions == found.labels).mean())
    assert (weights * shares).sum() == pytest.approx(probabilities.max(1).mean())
    assert found.weights is not None
    name, tiles = found.weights
    assert name == "layers.0.weight"
    assert (tiles == np.asarray(nn.state_dict()[name])).all()


def test_the_most_wrong_come_first(found: run_log.Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(report_page, "digits", lambda images, titles: seen.append((images, titles)) or "x")
    right = found.predictions == found.labels
    report_page.most_wrong(found, right)
    [(images, titles)] = seen
    assert len(images) == len(titles) == min(24, (~right).sum()) > 3
    assert found.probabilities is not None
    order = [int(np.flatnonzero((found.images == image).all(1))[0]) for image in images]
    truth = [found.probabilities[i, found.labels[i]] for i in order]
    assert truth == sorted(truth)
    first = order[0]
    assert not right[first]
    share = found.probabilities[first, found.predictions[first]]
    assert titles[0] == f"{found.labels[first]}, not {found.predictions[first]} ({share:.0%})"


@pytest.mark.slow
def test_a_model_without_probabilities_or_images_of_weights(found: run_log.Findings) -> None:
    info = found.info | {"architecture": "<b>&"}
    other = run_log.Findings(**{**vars(found), "probabilities": None, "weights": None, "info": info})
    page = report_page.html(other)
    assert "<title>&lt;b&gt;&amp;</title>" in page
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert "Calibration" not in titles
    assert "First layer" not in titles
    assert "Most wrong" in titles
    assert report_page.most_wrong(found, found.labels == found.labels) == ""  # where nothing is wrong


def test_the_loops_are_those_that_explain_prints() -> None:
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        program = SimpleNamespace(explanation=lambda: "loops")
        patch.setattr("codegen.compile_program", lambda program_: seen.append(program_) or program)
        assert EXPLANATION(Recipe(hidden=(2,))) == "loops"
    assert [len(each.parameter_values) for each in seen] == [784 * 2 + 2 + 2 * 10 + 10]


def test_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    message = f"error: {tmp_path}: not a folder that micrograd train --log has written: no run.json\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{", "run.json: not what micrograd train --log has written"),
        ("run.json", "[1]", "run.json: not what micrograd train --log has written"),
        ("run.json", '{"data": null, "digits": false, "recipe": {"hidden": [3]}}', "its recipe has ['hidden']"),
        ("log.csv", "a,b\n", "log.csv: not a table that micrograd train --log has written"),
        ("log.csv", "\udcff", "log.csv: not a table that micrograd train --log has written"),
        ("weights.safetensors", None, "no weights.safetensors: the run has not come to an end"),
        ("weights.safetensors", "damaged", "weights.safetensors: not a whole safetensors file"),
    ],
)
def test_damaged_runs(
    run: Path, tmp_path: Path, name: str, content: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content.encode(errors="surrogateescape"))
    (folder / "report.html").unlink()
    assert main(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (folder / "report.html").exists()


def test_the_page_replaces_no_file_of_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "log.csv").read_bytes()
    assert main(["report", str(run), "--output", str(run / ".." / run.name / "log.csv")]) == 2
    assert "--output must be no file of the run" in capsys.readouterr().err
    assert (run / "log.csv").read_bytes() == before


def test_without_matplotlib(run: Path, tmp_path: Path) -> None:
    script = "import sys; sys.modules['matplotlib'] = None\nfrom micrograd.__main__ import main\n"
    script += "sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "report", str(run), "--output", str(tmp_path / "page")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: the report needs matplotlib: pip install 'micrograd-nn[report]'\n"
