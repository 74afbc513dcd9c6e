"""python -m tools.fuzz_compiler: random Programs, run by everything that can run a Program, must give the same bits.

Program number i is that of the seed SEED + i, so `--seed N --count 1` repeats a case. Each is run by the engine, the
interpreter of the ir, Python in loops or statements, and C: loops, straight-line and frozen, compiled by tcc, and by
gcc or clang at -O0 or -O3, in turn, at each SIMD level. A Program that fails is made smaller and printed as a test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tools.fuzz_compiler.cases import OF_ONE_PIECE, Case, Outcome, Runner, pasteable
from tools.fuzz_compiler.programs import KINDS
from tools.fuzz_compiler.reduce import reduce_recipe
from tools.fuzz_compiler.regular import REGULAR
from tools.fuzz_compiler.tables import TABLES
from tools.fuzz_compiler.toolchain import COMMANDS, Toolchain


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 where all systems agree, 1 after a failure."""
    options = parser().parse_args(arguments)
    if not hasattr(os, "fork"):
        parser().error("a case is a forked process, which this system does not have")
    seed = options.seed if options.seed is not None else Random().randrange(10**9)
    commands = options.compilers or [command for command in COMMANDS if shutil.which(command.split()[0])]
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        toolchain = Toolchain(Path(folder), commands)
        print(f"seed {seed}; {toolchain.quick}, {', '.join(commands)}; {options.jobs} at a time", flush=True)
        runner = Runner(toolchain, Path(folder), options.timeout)
        cases = (
            Case(
                seed + i,
                options.kind or kind_of(seed + i, options.regular),
                _commands(seed + i, commands, options.every),
            )
            for i in range(options.count)
        )
        started = time.monotonic()
        totals: Counter[str] = Counter()
        failed: list[Outcome] = []
        for outcome in runner.run(cases, options.jobs, started + options.seconds if options.seconds else None):
            totals.update(outcome.counts)
            if outcome.error:
                failed.append(outcome)
                print(f"\nseed {outcome.case.seed}: {outcome.error}", flush=True)
                if len(failed) == options.failures:
                    break
            if totals["programs"] % 500 == 0:
                print(_line(totals, time.monotonic() - started), flush=True)
        print(_line(totals, time.monotonic() - started), flush=True)
        for key in sorted(totals):
            if key not in ("programs", "numbers", "nodes"):
                print(f"    {key}: {totals[key]:,}")
        for outcome in failed if options.reduce else []:
            recipe = reduce_recipe(outcome.case.recipe(), runner.still_fails(outcome))
            print(f"\n# seed {outcome.case.seed}: {outcome.error}\n{pasteable(outcome.case, recipe)}", flush=True)
    return 1 if failed else 0


def kind_of(seed: int, regular: int) -> str | None:
    """That of the Program of a seed: every so many are regular, none where `regular` is 0; every tenth is a table."""
    return REGULAR if regular and seed % regular == 0 else TABLES if seed % 10 == 7 else None


def _commands(seed: int, commands: list[str], every: int) -> list[str]:
    """Those that compile this Program: one, in turn, or none."""
    turn, rest = divmod(seed, every)
    return [] if rest else [commands[turn % len(commands)]]


def _line(totals: Counter[str], seconds: float) -> str:
    return (
        f"{totals['programs']:,} Programs, {totals['nodes']:,} nodes, {totals['numbers']:,} numbers compared, "
        f"{totals['failures']:,} failures, {seconds:,.0f} s"
    )


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m tools.fuzz_compiler", description=__doc__.split("\n\n")[0])
    add = top.add_argument
    add("--seed", type=int, metavar="N", help="of the first Program (default: drawn, and printed)")
    add("--count", type=int, default=1000, metavar="N", help="Programs (default: 1000)")
    add("--seconds", type=float, metavar="S", help="start no further Program after so long")
    add("--kind", choices=[*KINDS, *OF_ONE_PIECE], help="of the Programs (default: all)")
    add("--regular", type=int, default=3, metavar="N", help="every Nth Program repeats itself (default: 3; 0: none)")
    add("--compilers", action="append", choices=COMMANDS, help="default: those of them that are here, in turn")
    add(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="which Programs gcc and clang compile; all others tcc alone, which is fast (default: 1, all)",
    )
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one a processor")
    add("--timeout", type=int, default=120, metavar="S", help="seconds that one Program may take (default: 120)")
    add("--failures", type=int, default=1, metavar="N", help="stop after so many (default: 1)")
    add("--no-reduce", dest="reduce", action="store_false", help="do not make failing Programs smaller")
    return top


if __name__ == "__main__":
    sys.exit(main())
