"""micrograd check: the installed modules have the bits of the interpreted engine, on this machine.

It needs only the engine and the standard library. Of another MODULE, the bits at every SIMD level and with any number
of threads are compared: with the model that it was built from, with those of the same model in plain Python, which
`codegen.build(target="python")` generates; else with its own at the lowest level, with one thread.
"""

import argparse
import importlib
import platform
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

from micrograd import __version__, neighbours
from micrograd.commands.comparison import LEVELS, Numbers, compare_levels, conclude, count, observed
from micrograd.commands.inputs import (
    add_matching,
    add_model_argument,
    compiled_model,
    compiler,
    compiling,
    load_program,
    matching_of,
    shapes_of,
)
from micrograd.commands.observations import FROZEN_WEIGHTS, Interpreted, expected_of_frozen, observe
from micrograd.errors import UsageError, in_model
from micrograd.matching import EXACT, Matching, matched

SCRIPT = "micrograd.commands.observe_module"


def add_parsers(commands: Any) -> None:
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
        how = matching_of(options, options.weights, "--weights")
        return check_module(options.module, options.model, options.weights, how)
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


def check_module(name: str, model: str | None = None, weights: Path | None = None, how: Matching = EXACT) -> int:
    """Prints what is compared and returns the exit code: 0 if all bits are equal. Raises UsageError and ImportError.

    model     the name of the model that the module was built from, as loading.named() takes it
    weights   those of a module that only predicts, and `how` they are matched with the model's
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"expected the name of a module, as irisnet.net, got {name!r}")
    with in_model(name, None, is_loading=True):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise
            raise UsageError(f"there is no module {name}: {error}") from error
    if not {"info", "outputs", "outputs_batch"} <= vars(module).keys():
        raise UsageError(f"{name} is no compiled model: {getattr(module, '__file__', 'it is built in')}")
    info = module.info()
    if info["mode"] != "strict":
        raise UsageError(f"{name} was built with {info['dtype']} and fast arithmetic: only strict mode has these bits")
    if weights is not None and model is None:
        raise UsageError("--weights are those of a model: name it by --model")
    print(f"machine   {platform.platform()}, {platform.python_implementation()} {platform.python_version()}")
    print(f"module    {name} {module.__version__}, compiled by {info['compiler']}, {module.__file__}")
    print(f"model     {info['architecture'] or 'without a description'}, digest {info['digest'][:16]}")
    expected = observed_once(name) if model is None else reference(module, name, model, weights, how)
    source = f"{name} at {LEVELS[0]}, 1 thread" if model is None else f"{model} in Python"
    print(f"expected  {count(expected):,} numbers of {source}", flush=True)
    problems: list[str] = []
    compared = compare_levels(name, expected, problems, SCRIPT)
    return conclude(problems, compared, source)


def observed_once(name: str) -> Numbers:
    """What a module computes at the lowest level with one thread. Raises UsageError if it does not."""
    try:
        found = observed(name, LEVELS[0], 1, SCRIPT)
    except RuntimeError as error:
        raise UsageError(f"{name} at {LEVELS[0]} with 1 thread: {error}") from error
    assert found is not None  # every processor has the lowest level
    return found


def reference(module: Any, name: str, model: str, weights: Path | None, how: Matching = EXACT) -> Numbers:
    """What a model computes in Python. Raises UsageError if the module is not that model's."""
    codegen: Any = compiler()
    from codegen.passes.freeze import frozen_program, rounded
    from codegen.program import STORAGES
    from codegen.weights import read_weights
    from micrograd.commands.observe_module import observe as observed_of

    info, program = module.info(), load_program(model)
    is_frozen = not hasattr(module, "train")
    if is_frozen != (weights is not None):
        raise UsageError(
            f"{name} only predicts: --weights names those it has"
            if is_frozen
            else f"{name} has weights of its own: it trains"
        )
    with compiling(model), tempfile.TemporaryDirectory() as folder:
        tensors = None if weights is None else matched(read_weights(weights), shapes_of(program), how, str(weights))
        if tensors is not None and info["weight_type"] in STORAGES:
            tensors = {name: rounded(info["weight_type"], tensor.astype(float)) for name, tensor in tensors.items()}
        path = codegen.build(program, folder, "reference", target="python")
        plain = codegen.load_extension(path)
        digest = plain.info()["digest"]
        if tensors is not None:
            digest = codegen.compile_program(frozen_program(load_program(model), tensors), "reference").digest
        if digest != info["digest"]:
            raise UsageError(
                f"{name} has the digest {info['digest'][:16]}, but {model} has {digest[:16]}: another model"
            )
        return {what: array("d", numbers) for what, numbers in observed_of(plain, 1, tensors)}
