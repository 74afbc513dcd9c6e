"""The small models in this checkout and in others: python -m benchmarks.small [FOLDER ...]

A FOLDER is another checkout of this project, an older state for example, with a virtual environment .venv. Each
checkout builds the models of this one with its own compiler; then they take turns, and the table has the medians of
microseconds per example of train(). Against JAX, PyTorch and NumPy: python -m benchmarks --sections small
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.small.bench import OURS, SmallBench, tasks
from benchmarks.small.models import MODELS, SMALL
from benchmarks.worker import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--dtype", nargs="+", choices=("f64", "f32"), default=["f64"], help="strict f64, fast f32")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", choices=[*SMALL], default=list(MODELS), metavar="NAME")
    options = parser.parse_args()
    folders = [ROOT, *(folder.resolve() for folder in options.folders)]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        parser.error("folders of one name cannot be told apart")
    with tempfile.TemporaryDirectory() as folder:
        bench = SmallBench(Path(folder), options.threads, "", options.rounds, peers=(), checkouts=folders[1:])
        try:
            print(f"µs an example, {options.threads} thread(s); median of {options.rounds} rounds")
            print(f"{'':26}{'batch':>10}" + "".join(f"{name:>12}" for name in names))
            for task in tasks(options.models, options.dtype, options.batch):
                column = bench.column(task)
                found = {result.library: result.median for result in column.results}
                cells = "".join(f"{found.get(name, float('nan')):12.2f}" for name in [OURS, *names[1:]])
                print(f"{task.model:26}{task.dtype:>5}{task.batch:5}{cells}", flush=True)
        finally:
            bench.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
