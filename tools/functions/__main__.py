"""The command line: see the package's docstring."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import tools.functions
from tools.functions.compiled import NAMES


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.functions",
        description=tools.functions.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["constants", "errors", "float32", "speed"])
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(NAMES))
    parser.add_argument("--count", type=int, default=1_000_000, help="arguments of each function (errors)")
    parser.add_argument("--seed", type=int, default=1, help="of the random arguments (errors)")
    parser.add_argument("--step", type=int, default=1, help="every step-th float32 (float32)")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(NAMES)):
        parser.error(f"no function is called {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.what == "constants":
            from tools.functions.constants import check

            return 0 if check() else 1
        if options.what == "errors":
            from tools.functions import errors

            return 0 if errors.measure(folder, options.names, options.count, options.seed) else 1
        if options.what == "float32":
            from tools.functions import float32

            return 0 if float32.measure(folder, options.names, options.step) else 1
        from tools.functions import speed

        speed.measure(folder, options.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
