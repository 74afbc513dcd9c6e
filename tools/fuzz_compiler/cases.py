"""One case of the fuzzer in a process of its own, so that a crash or an endless loop is a result like any other."""

from __future__ import annotations

import json
import math
import os
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from codegen.passes.mistakes import ModelWarning
from codegen.program import Program
from tools.fuzz_compiler.programs import random_program
from tools.fuzz_compiler.recipe import Recipe
from tools.fuzz_compiler.reference import Engine
from tools.fuzz_compiler.regular import REGULAR, random_regular
from tools.fuzz_compiler.systems import Difference, bits, compare, example, in_hex
from tools.fuzz_compiler.tables import TABLES, random_table
from tools.fuzz_compiler.toolchain import Toolchain

STEPS = 3
REDUCE_SECONDS = 300
PYTHON = ("loops", "straightline")  # in turn
ODD = 0.1  # share of examples with a number that is not ordinary


OF_ONE_PIECE = {REGULAR: random_regular, TABLES: random_table}  # kinds that are no parts of other Programs


@dataclass(frozen=True)
class Case:
    """A seed's Program, or a smaller one instead, and the commands that compile it."""

    seed: int
    kind: str | None
    commands: list[str]
    smaller: Recipe | None = None
    only: str | None = None  # what is compared with the engine: a part of a name

    def recipe(self) -> Recipe:
        return self.smaller or Recipe.of(self.program())

    def program(self) -> Program:
        if self.smaller:
            return self.smaller.program()
        rng = Random(self.seed)
        whole = OF_ONE_PIECE.get(self.kind or "")
        return whole(rng) if whole else random_program(rng, self.kind)


@dataclass
class Outcome:
    """`error` says in one line what was wrong, "" where nothing was."""

    case: Case
    error: str = ""
    detail: str = ""
    counts: dict[str, int] = field(default_factory=dict)


class Runner:
    """Runs cases in forked processes, which find everything imported."""

    def __init__(self, toolchain: Toolchain, folder: Path, timeout: int) -> None:
        self.toolchain, self.folder, self.timeout = toolchain, folder, timeout

    def run(self, cases: Iterable[Case], jobs: int, deadline: float | None) -> Iterator[Outcome]:
        """The outcomes, as they come. No case starts after the deadline, a time of time.monotonic()."""
        waiting = iter(cases)
        running: dict[int, tuple[Case, Path]] = {}
        done = False
        try:
            while running or not done:
                while not done and len(running) < jobs:
                    case = None if deadline is not None and time.monotonic() > deadline else next(waiting, None)
                    if case is None:
                        done = True
                    else:
                        pid, result = self._start(case)
                        running[pid] = (case, result)
                if running:
                    pid, status = os.wait()
                    if pid in running:
                        yield self._finish(*running.pop(pid), status)
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def still_fails(self, outcome: Outcome) -> Callable[[Recipe], bool]:
        """Whether a smaller recipe fails in the way that `outcome` did, for the reducer."""
        kind = _kind(outcome.error)
        deadline = time.monotonic() + REDUCE_SECONDS

        def fails(recipe: Recipe) -> bool:
            if time.monotonic() > deadline:
                return False
            case = replace(outcome.case, smaller=recipe, only=kind if "," in kind or kind == "frozen" else None)
            [smaller] = self.run([case], 1, None)
            return bool(smaller.error) and _kind(smaller.error) == kind

        return fails

    def _start(self, case: Case) -> tuple[int, Path]:
        descriptor, name = tempfile.mkstemp(dir=self.folder, suffix=".json")
        os.close(descriptor)
        result = Path(name)
        self.toolchain.precompile(case.commands)
        pid = os.fork()
        if pid:
            return pid, result
        status = 1
        try:
            signal.alarm(self.timeout)
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                outcome = run_case(case, self.toolchain, Path(folder))
            result.write_text(json.dumps([outcome.error, outcome.detail, outcome.counts]))
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's is to be closed or flushed twice

    def _finish(self, case: Case, result: Path, status: int) -> Outcome:
        text = result.read_text()
        result.unlink()
        if text:
            return Outcome(case, *json.loads(text))
        number = os.waitstatus_to_exitcode(status)
        error = f"Killed: {signal.Signals(-number).name}" if number < 0 else f"Exit: {number}"
        return Outcome(case, error, counts={"programs": 1, "failures": 1})


def run_case(case: Case, toolchain: Toolchain, folder: Path) -> Outcome:
    """Compiles a Program in all ways, trains it, and freezes what comes out."""
    counts = {"programs": 1}
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", ModelWarning)  # of random Programs
    try:
        recipe = case.recipe()
        program = case.program()
        counts |= {"nodes": len(recipe.nodes), program.dtype: 1, case.kind or "any kind": 1} | {
            f"by {c}": 1 for c in case.commands
        }
        systems = toolchain.systems(program, folder, case.commands, PYTHON[case.seed % 2], case.only)
        counts["numbers"] = compare(systems, Random(case.seed), STEPS, ODD)
        engine = systems.get("engine")
        if isinstance(engine, Engine) and case.only in (None, "frozen") and all(map(math.isfinite, engine.data)):
            counts["frozen"] = 1
            counts["numbers"] += _compare_frozen(engine, toolchain, folder, case)
    except Difference as error:
        return Outcome(case, f"Difference: {error}", "", counts | {"failures": 1})
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return Outcome(
            case, f"{type(error).__name__}: {' '.join(lines[:3])}", traceback.format_exc(), counts | {"failures": 1}
        )
    return Outcome(case, counts=counts)


def _compare_frozen(engine: Engine, toolchain: Toolchain, folder: Path, case: Case) -> int:
    """Returns how many numbers were compared."""
    program, rng, compared = engine.program, Random(case.seed), 0
    examples = [example(program, rng) for _ in range(3)]
    expected: list[dict[str, Any]] = []
    for target, inputs in examples:
        engine.forward(target, inputs)
        expected.append({name: bits(values) for name, values in engine.outputs().items()})
    for system, frozen in toolchain.frozen(program, engine.data, folder, case.commands).items():
        for i, (_, inputs) in enumerate(examples):
            frozen.forward_outputs(inputs)
            for name, values in frozen.outputs().items():
                if bits(values) != expected[i][name]:
                    found = f"{in_hex(bits(values))} instead of {in_hex(expected[i][name])}"
                    raise Difference(f"frozen, {system}: output {name}: {found}")
                compared += len(values)
    return compared


def _kind(error: str) -> str:
    """What stays the same of an error when the Program gets smaller: the exception, or the system that differs."""
    name, _, text = error.partition(": ")
    if " failed (" in text:
        return text.partition(" failed (")[0]  # a C compiler's command
    if name != "Difference":
        return name
    return "frozen" if text.startswith("frozen") else text.partition(" differs from ")[0].rpartition(": ")[2]


def pasteable(case: Case, recipe: Recipe) -> str:
    """A test for the test suite."""
    body = "\n".join(f"    {line}" for line in recipe.text().splitlines())
    command = (case.commands or ["gcc -O3"])[0].split()
    options = f'compiler="{command[0]}", flags=["{command[-1]}"]'
    return (
        "def test_found_by_fuzz(tmp_path):\n"
        f"{body}\n"
        f"    compare(program, tmp_path, steps={STEPS}, seed={case.seed}, odd={ODD}, {options})\n"
    )
