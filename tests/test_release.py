"""Tools of a release that nobody has looked at: a build tool that is replaced on an index would be in every wheel.

The kind of test that was missing: actions were pinned by hash, which zizmor checks, what they install was not.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / ".github" / "requirements").glob("*.txt"))
REQUIREMENT = re.compile(r"([a-z0-9-]+)==(\S+)(?: ; [^\\]+)?((?: --hash=sha256:[0-9a-f]{64})+)")


def requirements(text: str) -> list[str]:
    """The lines, with those that are continued in one."""
    return [line for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_tool_is_pinned_by_hash(path):
    lines = requirements(path.read_text())
    names = {match[1] for line in lines if (match := REQUIREMENT.fullmatch(line))}
    assert [line for line in lines if not REQUIREMENT.fullmatch(line)] == []
    wanted = [line for line in path.with_suffix(".in").read_text().splitlines() if not line.startswith("#")]
    assert {re.match(r"[\w-]+", line)[0] for line in wanted} <= names


def test_what_is_not_pinned_is_noticed():
    assert not REQUIREMENT.fullmatch("build==1.0")
    assert not REQUIREMENT.fullmatch("build>=1.0 --hash=sha256:" + "0" * 64)
    assert REQUIREMENT.fullmatch("build==1.0 ; os_name == 'nt' --hash=sha256:" + "0" * 64)


def test_the_release_installs_nothing_else():
    """Of release.yml, and of wheels.yml, which it calls."""
    assert [path.stem for path in FILES] == ["backend", "build", "check"]
    installed = []
    for name in ("release", "wheels"):
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
        steps = re.findall(r"- run: (?:>-\n)?((?:.*\n)(?:          .*\n)*)", text)
        installed += [" ".join(step.split()) for step in steps if re.search(r"\binstall\b", step)]
        assert not re.search(r"pipx|uvx|npm |curl |wget ", text)
    assert len(installed) == 3
    for command in installed:
        assert re.fullmatch(
            r"python -m pip install --require-hashes( -r (sdist/)?\.github/requirements/(backend|build|check)\.txt)+",
            command,
        )
    assert {name for command in installed for name in re.findall(r"(\w+)\.txt", command)} == {p.stem for p in FILES}


def test_wheels_are_built_with_the_pinned_backend():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheels = project["tool"]["cibuildwheel"]
    assert wheels["build-frontend"] == {"name": "build", "args": ["--no-isolation"]}
    assert "--require-hashes -r {package}/.github/requirements/backend.txt" in wheels["before-build"]
    wanted = (ROOT / ".github" / "requirements" / "backend.in").read_text().splitlines()[1:]
    assert sorted(project["build-system"]["requires"]) == sorted(wanted)
