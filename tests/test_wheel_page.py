"""docs/wheel.md, whose listings are a project of their own: one that does not build, or another than the example."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from codegen.wheels.table import KEYS, read_models

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "irisnet"
PAGE = (ROOT / "docs" / "wheel.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_has_the_examples_configuration() -> None:
    shown, wheels = (tomllib.loads(text) for text in fenced("toml"))
    example = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))
    for key in ("name", "version", "requires-python"):
        assert shown["project"][key] == example["project"][key]
    assert shown["build-system"] == example["build-system"]
    assert shown["tool"]["micrograd-nn"] == example["tool"]["micrograd-nn"]
    assert wheels["tool"]["cibuildwheel"] == example["tool"]["cibuildwheel"]


def test_every_key_of_the_table_is_explained() -> None:
    table = PAGE.partition("| key | |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    assert [key for row in rows for key in re.findall(r"`(\w+)`", row)] == list(KEYS)


def test_the_pages_actions_are_those_of_this_project() -> None:
    (workflow,) = fenced("yaml")
    own = "".join(path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"uses: (\S+ # \S+)", workflow)
    assert len(used) == 2
    assert all(f"uses: {action}\n" in own for action in used)


@pytest.mark.slow
def test_the_workflow_is_valid(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    (tmp_path / "wheels.yml").write_text(fenced("yaml")[0])
    command = ["-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(tmp_path / "wheels.yml")]
    subprocess.run([sys.executable, *command], check=True)


@pytest.mark.slow
def test_the_page_leads_to_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listings in order: the model's file, training in a notebook, the table; and then the first command."""
    model, training = fenced("python")
    project = tmp_path / "project"
    (project / "irisnet").mkdir(parents=True)
    monkeypatch.chdir(project)
    (project / "model.py").write_text(model)
    monkeypatch.syspath_prepend(project)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    names: dict[str, object] = {}
    exec(training, names)
    monkeypatch.delitem(sys.modules, "model")
    trained = names["model"]
    loss, accuracy = trained.evaluate(names["flowers"], names["species"])  # type: ignore[attr-defined]
    assert loss < 0.3
    assert accuracy > 0.9
    (project / "pyproject.toml").write_text(fenced("toml")[0])
    (project / "irisnet" / "__init__.py").touch()
    assert len(read_models(tomllib.loads(fenced("toml")[0]), project)) == 2
    command = fenced("shell")[0].splitlines()[0]
    assert command == "python -m pip wheel --no-deps ."
    flags = ["--no-build-isolation", "--no-index", "--no-cache-dir", "-w", str(tmp_path / "out")]
    subprocess.run([sys.executable, *command.split()[1:], *flags], check=True)
    (wheel,) = (tmp_path / "out").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    flower = [5.1, 3.5, 1.4, 0.2]
    script = f"from irisnet import frozen, net; print(frozen.predict({flower}), net.__version__)"
    shutil.rmtree(project)
    shown = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "installed", capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == [str(trained.predict(flower)), "1.2.0"]  # type: ignore[attr-defined]
