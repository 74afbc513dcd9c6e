"""micrograd check: the installed modules have the bits of the interpreted engine, on this machine.

It needs only the engine and the standard library.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path
from typing import Any

from micrograd import __version__, neighbours
from micrograd.commands.comparison import compare_levels, conclude, count
from micrograd.commands.errors import UsageError
from micrograd.commands.inputs import add_matching, add_model_argument, compiled_model, matching_of
from micrograd.commands.observations import FROZEN_WEIGHTS, Interpreted, expected_of_frozen, observe


def add_parsers(commands: Any) -> None:
    """`commands`: what the tree adds parsers to."""
    parser = commands.add_parser(
        "check",
        description="Runs the net as a graph of Values, and nn at every SIMD level of this processor with one thread "
        "and with several, and compares every loss, output, gradient and parameter, bit by bit; and the outputs of "
        "nn_infer. It takes some seconds. The exit code is 0 where all are equal, else 1. Of another MODULE, all "
        "levels and numbers of threads are compared with one another, or with --model in Python.",
    )
    parser.add_argument("module", nargs="?", metavar="MODULE", help="a compiled module instead of ours, as irisnet.net")
    add_model_argument(parser.add_argument, "--model", what="what MODULE was built from: ")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="the weights of a MODULE that only predicts")
    add_matching(parser.add_argument)
    parser.set_defaults(command=check)


def check(options: argparse.Namespace) -> int:
    if options.module is not None:
        from micrograd.commands.check_module import check_module

        return check_module(
            options.module, options.model, options.weights, matching_of(options, options.weights, "--weights")
        )
    if options.model is not None or options.weights is not None:
        raise UsageError("--model and --weights are those of a MODULE: micrograd check MODULE --model MODEL")
    nn, nn_infer = compiled_model("nn"), compiled_model("nn_infer")
    info = nn.info()
    if info["mode"] != "strict":
        raise UsageError(f"this nn was built with {info['dtype']} and fast arithmetic: only strict mode has these bits")
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"machine   {platform.platform()}, {implementation}")
    print(f"package   micrograd-nn {__version__}, compiled by {info['compiler']}")
    print(f"model     {info['architecture']}, digest {info['digest'][:16]}")
    for neighbour in neighbours.problems():
        print(f"warning   {neighbour}")
    problems = [
        f"{module.__name__} is of version {module.__version__}, micrograd of {__version__}"
        for module in (nn, nn_infer)
        if module.__version__ != __version__
    ]
    if not nn_infer.info()["weights"].startswith(FROZEN_WEIGHTS):
        problems.append(f"nn_infer has the weights {nn_infer.info()['weights'][:16]}, expected {FROZEN_WEIGHTS}")
    start = time.perf_counter()
    expected = dict(observe(Interpreted()))
    print(f"engine    {count(expected):,} numbers in {time.perf_counter() - start:.1f} s", flush=True)
    compared = 0
    for name, numbers in (("nn", expected), ("nn_infer", dict(expected_of_frozen()))):
        compared += compare_levels(name, numbers, problems)
    return conclude(problems, compared, "the interpreted engine")
