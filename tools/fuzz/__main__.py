"""Fuzzes: `python -m tools.fuzz TARGET --seconds N [--corpus DIR]`, `all` for one target after the other.

An input that breaks something is kept in build/fuzz/TARGET, and `--replay FILE` runs it again. The corpus is there too,
so that the next run goes on from where this one ended. Exit code 1 where something was found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.fuzz.run import Failed, fuzz, replay
from tools.fuzz.targets import TARGETS


def main(arguments: list[str] | None = None) -> int:
    """0 where nothing was found. Raises Failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Coverage-guided fuzzing.")
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=int, default=60, help="of each target; 60 if not given")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="where inputs are read from, and new ones kept")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this input of the target and nothing else")
    options = parser.parse_args(arguments)
    if options.target == "all" and (options.replay or options.corpus):
        parser.error("--replay and --corpus are of one target")
    if options.replay:
        replay(options.target, options.replay)
        return 0
    found = False
    for name in TARGETS if options.target == "all" else [options.target]:
        report = fuzz(name, options.seconds, options.corpus)
        print(report, flush=True)
        found |= bool(report.found)
    return int(found)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"error: {error}")
