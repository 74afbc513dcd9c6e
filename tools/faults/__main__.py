"""The command: what it does stands in the package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tools.faults import FAULTS
from tools.faults import __doc__ as about
from tools.faults.planting import judge, levels


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=about.split("\n\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this text in their name")
    parser.add_argument("--count", type=int, default=300, metavar="N", help="Programs at most (default: 300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="faults at a time")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth of these faults (default: 1)")
    options = parser.parse_args(arguments)
    survivors = 0
    faults = [fault for fault in FAULTS if options.only in fault.name][:: options.every]
    for fault in [fault for fault in faults if fault.level and fault.level not in levels()]:
        print(f"{fault.name} ({fault.file})\n    not planted: the processor has no {fault.level}", flush=True)
        faults.remove(fault)
    with ThreadPoolExecutor(options.jobs) as pool:  # most of what a fault takes is the start of a process
        for verdict in pool.map(lambda fault: judge(fault, options.count), faults):
            survivors += not verdict.error
            where = f"Program {verdict.programs}: {verdict.error[:110]}" if verdict.error else "SURVIVED"
            print(f"{verdict.fault.name} ({verdict.fault.file}, {verdict.seconds:.0f} s)\n    {where}", flush=True)
    print(f"\n{len(faults)} faults planted, {len(faults) - survivors} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
