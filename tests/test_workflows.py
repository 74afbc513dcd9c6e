"""The README's workflows with every warning an error, marked memory and small stacks: the same numbers everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import workflows
from commands import environment
from harness import nightly_but

resource = pytest.importorskip("resource", reason="no limits of stacks on this platform")
ROOT = Path(__file__).resolve().parent.parent
KB = 1024
MAIN_THREAD = "a_run_that_resumes"  # a command that handles signals


def small_stack() -> None:
    """256 KB for the main thread, and so for others whose size nobody sets."""
    resource.setrlimit(resource.RLIMIT_STACK, (256 * KB, resource.getrlimit(resource.RLIMIT_STACK)[1]))


# Options of Python, settings, the thread, and what to do before.
CONDITIONS = {
    "plain": ([], {}, "main", None),
    "-X dev -W error": (["-X", "dev", "-W", "error"], {}, "main", None),
    "PYTHONMALLOC=debug": ([], {"PYTHONMALLOC": "debug"}, "main", None),
    "ulimit -s 256": ([], {}, "main", small_stack),
    "a thread of 256 KB": ([], {}, "thread", None),
    # Of those that get along, all at once.
    "dev, small": (["-X", "dev", "-W", "error"], {}, "main", small_stack),
    "debug, thread": ([], {"PYTHONMALLOC": "debug"}, "thread", None),
}


def numbers(condition: str, data: Path, folder: Path, names: list[str]) -> str:
    """What the workflows print. Nothing may be said besides."""
    options, settings, where, prepare = CONDITIONS[condition]
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, *options, ROOT / "tests" / "workflows.py", where, data, *names],
        env=environment(**settings),
        cwd=folder,
        preexec_fn=prepare,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{condition}: {done.stdout}{done.stderr}"
    assert [line.split()[0] for line in done.stdout.splitlines()] == names
    return done.stdout


@pytest.mark.slow
def test_quick_workflows(data: Path, tmp_path: Path) -> None:
    names = [workflow.__name__ for workflow in workflows.QUICK]
    one = numbers("dev, small", data, tmp_path / "one", names).splitlines()
    names.remove(MAIN_THREAD)
    other = numbers("debug, thread", data, tmp_path / "other", names).splitlines()
    assert other == [line for line in one if not line.startswith(MAIN_THREAD)]


@pytest.mark.parametrize("workflow", nightly_but([MAIN_THREAD], workflows.WORKFLOWS))
def test_each_workflow_in_each_condition(workflow: str, data: Path, tmp_path: Path) -> None:
    chosen = [x for x in list(CONDITIONS)[:5] if workflow != MAIN_THREAD or "thread" not in x]
    found = {x: numbers(x, data, tmp_path / str(i), [workflow]) for i, x in enumerate(chosen)}
    assert len(set(found.values())) == 1, found


def test_all_that_the_readme_shows_is_a_workflow() -> None:
    source = (ROOT / "tests" / "workflows.py").read_text(encoding="utf-8")
    shown = re.findall(r"(?:^|`)micrograd (\w+(?: \| \w+)*)", workflows.README, re.M)
    commands = {name for names in shown for name in names.split(" | ")}
    assert len(commands) >= 7
    for name in commands:
        assert re.search(rf'command\((\*run|"{name}")', source), name
    listings = re.findall(r"```python\n(.*?)```", workflows.README, flags=re.DOTALL)
    used = [workflows.listing(text) for text in re.findall(r"""listing\(["'](.*?)["']\)""", source.replace("\\n", ""))]
    assert sorted(set(used)) == sorted(listings)
